//! What schedules need to know of an index besides its [`Index`]: keys and values from small numbers, and how one is made and opened over
//! any medium.

use std::collections::BTreeMap;

use index::{Index, Kind};
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

/// Kinds whose keys and values come from numbers.
pub trait Sampled: Kind<KeyBuf: Numbered, ValueBuf: Numbered> {}
impl<K: Kind<KeyBuf: Numbered, ValueBuf: Numbered>> Sampled for K {}

/// What happened to nodes, and how often.
pub type Turnover = BTreeMap<&'static str, u64>;

/// How indexes of a kind are made.
pub trait Scheduled: 'static {
    /// Keys and values.
    type Keys: Sampled;
    /// One over a medium.
    type Over<M: Medium>: Index<Self::Keys> + 'static;
    /// Over groups, what is durable cannot be told from what was rolled back: readers get failures, too.
    const POOLED: bool = false;

    /// An empty one, of nodes of so many lines.
    ///
    /// # Errors
    /// What making it may say.
    fn create<M: Medium>(medium: M, lines: u64) -> Result<Self::Over<M>>;
    /// The one that lives there, made with nodes of so many lines.
    ///
    /// # Errors
    /// What opening it may say.
    fn open<M: Medium>(medium: M, lines: u64) -> Result<Self::Over<M>>;
    /// How often nodes came and went, if that is counted.
    fn turnover<M: Medium>(_index: &Self::Over<M>) -> Turnover {
        Turnover::new()
    }
}
