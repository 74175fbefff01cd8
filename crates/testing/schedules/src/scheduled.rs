//! The interface of an index to schedules, besides [`Index`]: keys and values from small numbers, and how the index is made and opened over
//! any medium.

use std::collections::BTreeMap;

use index::{Index, Kind};
use pmem::{Medium, Result};

/// Keys or values from small numbers.
pub trait Numbered: Clone {
    /// Key number `n`. Keys ascend with `n`.
    fn key(n: u64) -> Self;
    /// Value number `n`.
    fn value(n: u64) -> Self;
    /// The number of a key or a value. `None` if it is torn.
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
    /// The number is repeated, so that a torn value is detected. The lengths differ, so that blocks are reused.
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

/// Kinds whose keys and values come from numbers.
pub trait Sampled: Kind<KeyBuf: Numbered, ValueBuf: Numbered> {}
impl<K: Kind<KeyBuf: Numbered, ValueBuf: Numbered>> Sampled for K {}

/// Events on nodes, with their counts.
pub type Turnover = BTreeMap<&'static str, u64>;

/// A type of index.
pub trait Scheduled: 'static {
    /// Keys and values.
    type Keys: Sampled;
    /// The index over a medium.
    type Over<M: Medium>: Index<Self::Keys> + 'static;
    /// True for an index in a buffer pool over a journal: readers cannot tell durable from rolled-back words, so they may fail, too.
    const POOLED: bool = false;

    /// Makes an empty index with nodes of `lines` lines.
    ///
    /// # Errors
    /// Those of the engine.
    fn create<M: Medium>(medium: M, lines: u64) -> Result<Self::Over<M>>;
    /// Opens the index in the medium, made with nodes of `lines` lines.
    ///
    /// # Errors
    /// Those of the engine.
    fn open<M: Medium>(medium: M, lines: u64) -> Result<Self::Over<M>>;
    /// Counts of events on nodes. Empty if the engine has none.
    fn turnover<M: Medium>(_index: &Self::Over<M>) -> Turnover {
        Turnover::new()
    }
}
