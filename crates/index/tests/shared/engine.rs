//! The interface of an engine to the suites that run for every engine: how its index is created and opened. The rest of
//! the interface is [`Index`].

use std::marker::PhantomData;

use index::{Embed, Index, Kind};
use pmem::{Durability, Found, Medium, Result};

use super::samples::Sample;

/// An engine with its options.
#[allow(dead_code)]
pub trait Subject {
    /// Keys and values.
    type Schema: Sample;
    /// The index over a medium.
    type Over<M: Medium>: Index<KindOf<Self>> + Embed;
    /// True if cursors return keys in key order.
    const ORDERED: bool = true;
    /// True if the writes of one group are atomic together.
    const WRITES_AT_ONCE: bool = false;
    /// Number of keys of random writes.
    const KEYS: u32 = 60;
    /// Number of keys of one append.
    const APPENDED: u32 = 100;
    /// Number of ways to recover.
    const WAYS: u64 = 1;

    /// Makes an empty index.
    fn create<M: Medium>(&self, medium: M) -> Result<Self::Over<M>>;
    /// Opens the index in the medium with this durability. `way` is below [`Subject::WAYS`].
    fn open<M: Medium>(&self, medium: M, durability: Durability, way: u64) -> Result<(Self::Over<M>, Found)>;
    /// Does background work: one step, or all.
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
/// The expected contents of an index.
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
