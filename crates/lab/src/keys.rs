//! Keys of [`competitors::pairs`] for indexes of every kind, with values.

use std::borrow::Borrow;

use index::TAIL_MAX;
use index::kind::{Bytes, Fixed, Kind, U64};

pub use competitors::pairs::{Random, Text};

/// Converts a key for indexes of a kind, and makes the values stored with it.
pub trait Key<K: Kind>: Random {
    /// A value.
    type Value: Borrow<K::Value>;
    /// The key.
    fn key(&self) -> &K::Key;
    /// The key, owned.
    fn owned(&self) -> K::KeyBuf;
    /// The value made of a number. `words` is its number of words, for trees with larger payloads.
    fn value(number: u64, words: usize) -> Self::Value;
    /// The number whose value is inserted with this key.
    fn number(&self) -> u64;
    /// True if `value` is the value of the number.
    fn is(value: &K::ValueBuf, number: u64) -> bool;
}

impl Key<U64> for u64 {
    type Value = u64;
    #[inline(always)]
    fn key(&self) -> &u64 {
        self
    }
    fn owned(&self) -> u64 {
        *self
    }
    #[inline(always)]
    fn value(number: u64, _words: usize) -> u64 {
        number
    }
    #[inline(always)]
    fn number(&self) -> u64 {
        *self
    }
    fn is(value: &u64, number: u64) -> bool {
        *value == number
    }
}

/// A value that is stored inside its entry.
#[derive(Clone, Copy, Debug)]
pub struct FixedValue {
    words: [[u8; 8]; 1 + TAIL_MAX],
    len: usize,
}

impl FixedValue {
    /// The value of a number, with this many words. All words differ, except for rare numbers.
    fn new(number: u64, words: usize) -> Self {
        let word = |i| if i == 0 { number } else { number.rotate_left(i as u32) ^ (i as u64 - 1) };
        Self { words: std::array::from_fn(|i| word(i).to_le_bytes()), len: words.min(1 + TAIL_MAX) }
    }
}

impl Borrow<[u8]> for FixedValue {
    fn borrow(&self) -> &[u8] {
        self.words[..self.len].as_flattened()
    }
}

impl Key<Fixed> for u64 {
    type Value = FixedValue;
    #[inline(always)]
    fn key(&self) -> &u64 {
        self
    }
    fn owned(&self) -> u64 {
        *self
    }
    #[inline(always)]
    fn value(number: u64, words: usize) -> FixedValue {
        FixedValue::new(number, words)
    }
    #[inline(always)]
    fn number(&self) -> u64 {
        *self
    }
    fn is(value: &Vec<u8>, number: u64) -> bool {
        let wanted = FixedValue::new(number, value.len() / 8);
        value.as_slice() == Borrow::<[u8]>::borrow(&wanted)
    }
}

impl Key<Bytes> for Text {
    type Value = [u8; 8];
    #[inline(always)]
    fn key(&self) -> &[u8] {
        self
    }
    fn owned(&self) -> Vec<u8> {
        self.to_vec()
    }
    #[inline(always)]
    fn value(number: u64, _words: usize) -> [u8; 8] {
        number.to_be_bytes()
    }
    #[inline(always)]
    fn number(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = *self;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
    fn is(value: &Vec<u8>, number: u64) -> bool {
        value.as_slice() == number.to_be_bytes()
    }
}
