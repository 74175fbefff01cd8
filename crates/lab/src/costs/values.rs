//! Values made from numbers, for trees of 64-bit keys: of one word, or of several inside the entry.

use tree::shape::Tail;
use tree::{Block, Inline, Schema, Words};

/// A schema of 64-bit keys whose values can be made from numbers.
pub trait Numbered: Schema<Key = u64, KeyBuf = u64> {
    /// Bytes of an entry.
    const ENTRY_BYTES: u64 = (2 + Self::Tail::WORDS as u64) * pmem::WORD;

    /// A value from a number; no two of its words are the same, but for rare numbers.
    fn value(number: u64) -> Self::ValueBuf;
}

impl Numbered for Words {
    fn value(number: u64) -> u64 {
        number
    }
}

impl<const T: usize> Numbered for Inline<T> {
    fn value(number: u64) -> Block<T> {
        Block { first: number, rest: std::array::from_fn(|i| number.rotate_left(i as u32 + 1) ^ i as u64) }
    }
}
