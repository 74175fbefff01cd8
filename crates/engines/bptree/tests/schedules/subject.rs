//! What schedules ask of an index, so that those of all rooms are run and judged by the same means: keys and values from small numbers,
//! every call that takes part in a protocol between threads, and how one is made and opened over any medium.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Bound;

use index::Decision;
use index::Report;
use index::{Pair, Schema, Write, WriteOptions};
use pmem::{Medium, Result};

/// Keys or values from small numbers.
pub trait Numbered: Clone {
    /// Key number `n`; ascending with `n`.
    fn key(n: u64) -> Self;
    /// Value number `n`.
    fn value(n: u64) -> Self;
    /// The number of a key or a value; `None` if it was made of several.
    fn number(&self) -> Option<u64>;
}

impl Numbered for u64 {
    fn key(n: u64) -> u64 {
        n
    }
    fn value(n: u64) -> u64 {
        n
    }
    fn number(&self) -> Option<u64> {
        Some(*self)
    }
}

impl Numbered for Vec<u8> {
    fn key(n: u64) -> Vec<u8> {
        let mut key = b"a long beginning".to_vec();
        key.extend(n.to_be_bytes());
        key
    }
    /// The number again and again, so that a torn value is seen, of different lengths, so that blocks are used again.
    fn value(n: u64) -> Vec<u8> {
        n.to_be_bytes().repeat(1 + n as usize % 4)
    }
    fn number(&self) -> Option<u64> {
        let words: Vec<[u8; 8]> = self.as_chunks().0.to_vec();
        let last = *words.last()?;
        let is_key = self.len() == 24 && self.starts_with(b"a long");
        (is_key || words.iter().all(|word| *word == last)).then(|| u64::from_be_bytes(last))
    }
}

/// Schemas whose keys and values come from numbers.
pub trait Sample: Schema<KeyBuf: Numbered, ValueBuf: Numbered> {}
impl<S: Schema<KeyBuf: Numbered, ValueBuf: Numbered>> Sample for S {}

/// The schema of an index.
pub type SchemaOf<T> = <T as Subject>::Schema;
/// A key as it is passed to an index.
pub type KeyOf<T> = <SchemaOf<T> as Schema>::Key;
/// A value as it is passed to an index.
pub type ValueOf<T> = <SchemaOf<T> as Schema>::Value;
/// A value as an index hands it out.
pub type ValueBufOf<T> = <SchemaOf<T> as Schema>::ValueBuf;

/// An index. What is not said here is as the trees have it.
pub trait Subject: Send + Sync + Sized + 'static {
    /// Keys and values.
    type Schema: Sample;

    /// Stores a value; true if that replaced one.
    fn put(&self, key: &KeyOf<Self>, value: &ValueOf<Self>, how: WriteOptions) -> Result<bool>;
    /// Removes a key; false if it was absent.
    fn delete(&self, key: &KeyOf<Self>) -> Result<bool>;
    /// Does what `decide` says, in one step with its look at what is there; the last time that it was asked counts.
    fn update<W: Borrow<ValueOf<Self>>>(
        &self,
        key: &KeyOf<Self>,
        decide: impl FnMut(Option<&ValueOf<Self>>) -> Decision<W>,
        how: WriteOptions,
    ) -> Result<()>;
    /// Writes, each by itself.
    fn write_many(
        &self,
        writes: &[Write<'_, KeyOf<Self>, ValueOf<Self>>],
        how: WriteOptions,
    ) -> Result<Vec<bool>>;
    /// Writes that are one, if these keys have these values.
    fn batch(
        &self,
        writes: Vec<Pair<Self::Schema>>,
        expected: &[Pair<Self::Schema>],
        how: WriteOptions,
    ) -> Result<bool>;
    /// Writes behind each other: with the writer's lock held, where an index has that.
    fn session(&self) -> Result<impl Session<Self::Schema>> {
        Ok(Unheld(self))
    }

    /// Looks at a key.
    fn get(&self, key: &KeyOf<Self>, value: &mut ValueBufOf<Self>) -> Result<bool>;
    /// Looks at many.
    fn get_many(&self, keys: &[&KeyOf<Self>]) -> Result<Vec<Option<ValueBufOf<Self>>>>;
    /// A scan that stands before the first key.
    fn cursor(&self) -> impl Scan<Self::Schema>;
    /// Opens a snapshot and has it read: by scans, and by gets. False where there are none.
    fn read_snapshot(
        &self,
        _read: &mut dyn FnMut(&mut dyn Scan<Self::Schema>, &mut Get<'_, Self>),
    ) -> Result<bool> {
        Ok(false)
    }

    /// Makes everything durable.
    fn commit(&self) -> Result<()>;
    /// Takes no more writes.
    fn close(&self) -> Result<()>;
    /// Verifies everything.
    fn check(&self) -> Report;
    /// How often nodes came and went, if that is counted.
    fn turnover(&self) -> Turnover {
        Turnover::new()
    }
}

/// A get of a snapshot.
pub type Get<'g, T> = dyn FnMut(&KeyOf<T>, &mut ValueBufOf<T>) -> Result<bool> + 'g;

/// What happened to nodes, and how often.
pub type Turnover = BTreeMap<&'static str, u64>;

/// Writes behind each other.
pub trait Session<S: Schema> {
    /// As of the index.
    fn put(&mut self, key: &S::Key, value: &S::Value) -> Result<bool>;
    /// As of the index.
    fn delete(&mut self, key: &S::Key) -> Result<bool>;
}

/// Of an index that has no sessions: others may come between.
struct Unheld<'a, T>(&'a T);

impl<T: Subject> Session<T::Schema> for Unheld<'_, T> {
    fn put(&mut self, key: &KeyOf<T>, value: &ValueOf<T>) -> Result<bool> {
        self.0.put(key, value, WriteOptions::default())
    }
    fn delete(&mut self, key: &KeyOf<T>) -> Result<bool> {
        self.0.delete(key)
    }
}

/// A scan.
pub trait Scan<S: Schema> {
    /// Goes to a place.
    fn seek(&mut self, from: Bound<S::KeyBuf>, descending: bool);
    /// Hands out the next pair; false at the end.
    fn next(&mut self, key: &mut S::KeyBuf, value: &mut S::ValueBuf) -> Result<bool>;
}

/// How indexes of a kind are made.
pub trait Kind: 'static {
    /// Keys and values.
    type Schema: Sample;
    /// One over a medium.
    type Over<M: Medium>: Subject<Schema = Self::Schema>;
    /// Over groups, what is durable cannot be told from what was taken back: readers are told of failures, too.
    const POOLED: bool = false;

    /// An empty one, of nodes of so many lines.
    fn create<M: Medium>(medium: M, lines: u64) -> Result<Self::Over<M>>;
    /// The one that lives there.
    fn open<M: Medium>(medium: M) -> Result<Self::Over<M>>;
}
