//! An engine as the suites ask for it that run over every engine: how its index is made and opened; all the rest is [`Index`].

use std::marker::PhantomData;

use index::{Embed, Index, Kind};
use pmem::{Durability, Found, Medium, Result};

use super::samples::Sample;

/// An engine with its options.
#[allow(dead_code)]
pub trait Subject {
    /// What its keys and values are.
    type Schema: Sample;
    /// Its index.
    type Over<M: Medium>: Index<KindOf<Self>> + Embed;
    /// Cursors come in key order.
    const ORDERED: bool = true;
    /// Writes that are asked for together take place together, or none of them does.
    const WRITES_AT_ONCE: bool = false;
    /// Keys of random writes.
    const KEYS: u32 = 60;
    /// Keys of one append.
    const APPENDED: u32 = 100;
    /// Ways to recover.
    const WAYS: u64 = 1;

    /// Makes an empty index.
    fn create<M: Medium>(&self, medium: M) -> Result<Self::Over<M>>;
    /// Opens what is in the medium, with this promise, in this way of [`Subject::WAYS`].
    fn open<M: Medium>(&self, medium: M, durability: Durability, way: u64) -> Result<(Self::Over<M>, Found)>;
    /// Does work beside users: a part of it, or all.
    fn tend<M: Medium>(_index: &Self::Over<M>, _all: bool) -> Result<()> {
        Ok(())
    }
}

#[allow(dead_code)]
pub type KindOf<X> = <<X as Subject>::Schema as Sample>::Kind;
#[allow(dead_code)]
pub type KeyOf<X> = <KindOf<X> as Kind>::KeyBuf;
#[allow(dead_code)]
pub type ValueOf<X> = <KindOf<X> as Kind>::ValueBuf;
/// What an index is to hold.
#[allow(dead_code)]
pub type Model<X> = std::collections::BTreeMap<KeyOf<X>, ValueOf<X>>;

/// The indexes of a type that are made and opened with these options.
pub struct Of<T, O> {
    pub options: O,
    indexes: PhantomData<fn() -> T>,
}

impl<T, O> Of<T, O> {
    #[allow(dead_code)]
    pub fn new(options: O) -> Self {
        Self { options, indexes: PhantomData }
    }
}
