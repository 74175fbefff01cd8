//! Shared parts of the engines' tests: memory, and keys and values that are made from small numbers.

use std::ops::Bound;
use std::sync::Arc;

use index::leaf_list::{Cursor, LeafList};
use index::{Fixed, Keyed, Kind, Prefixed, Schema, SchemaOf, Words, kind};
use pmem::{Counter, Memory, Observed};

/// A schema whose keys and values come from small numbers.
pub trait Sample:
    Schema<KeyBuf: Ord + Bytes, ValueBuf: PartialEq + Bytes> + SchemaOf<<Self as Sample>::Kind>
{
    /// The kind of keys and values in [`index::Index`].
    type Kind: Kind;
    /// Words of a value in its entry.
    #[allow(dead_code)]
    const PAYLOAD_WORDS: usize = 1;
    /// Key number `n`. Keys ascend with `n`. Key 0 is the smallest possible key.
    #[allow(dead_code)]
    fn key(n: u32) -> Self::KeyBuf;
    /// Value number `n`.
    #[allow(dead_code)]
    fn value(n: u32) -> Self::ValueBuf;
}

/// Bytes that have the order of the keys.
pub trait Bytes {
    /// The bytes.
    #[allow(dead_code)]
    fn bytes(&self) -> Vec<u8>;
}

impl Bytes for u64 {
    fn bytes(&self) -> Vec<u8> {
        self.to_be_bytes().into()
    }
}

impl Bytes for Vec<u8> {
    fn bytes(&self) -> Vec<u8> {
        self.clone()
    }
}

fn word(n: u32) -> u64 {
    // Both halves of the word depend on `n`. The largest possible key occurs, too.
    if n == 0 {
        0
    } else if n >= 1 << 20 {
        u64::MAX
    } else {
        u64::from(n) << 32 | u64::from(!n)
    }
}

impl Sample for Words {
    type Kind = kind::U64;
    fn key(n: u32) -> u64 {
        word(n)
    }
    fn value(n: u32) -> u64 {
        word(n)
    }
}

impl Sample for Fixed {
    type Kind = kind::Fixed;
    const PAYLOAD_WORDS: usize = 3;
    fn key(n: u32) -> u64 {
        word(n)
    }
    fn value(n: u32) -> Vec<u8> {
        (0..3).flat_map(|i| (word(n) ^ i).to_le_bytes()).collect()
    }
}

impl Sample for Keyed {
    type Kind = kind::Bytes;
    fn key(n: u32) -> Vec<u8> {
        if n == 0 { Vec::new() } else { format!("key{n:06}").into_bytes() }
    }
    fn value(n: u32) -> Vec<u8> {
        (0..n / 8).map(|i| (n + i * 7) as u8).chain(n.to_le_bytes()).collect()
    }
}

impl Sample for Prefixed {
    type Kind = kind::Bytes;
    /// From 32 on, keys differ only after the inline prefix.
    fn key(n: u32) -> Vec<u8> {
        if n < 32 { Keyed::key(n) } else { format!("same beginning {n:06}").into_bytes() }
    }
    fn value(n: u32) -> Vec<u8> {
        Keyed::value(n)
    }
}

#[allow(dead_code)]
pub type Pairs<S> = Vec<(<S as Schema>::KeyBuf, <S as Schema>::ValueBuf)>;

/// Observed memory and its counter.
#[allow(dead_code)]
pub fn memory(bytes: u64) -> (Observed, Arc<Counter>) {
    let counter = Arc::new(Counter::default());
    (Observed::new(Memory::new(bytes, 0), Arc::clone(&counter) as Arc<_>), counter)
}

/// All pairs that a cursor returns.
#[allow(dead_code)]
pub fn pairs<T: LeafList<Schema = S>, S: Sample>(
    cursor: &mut Cursor<'_, T>,
    from: Bound<S::KeyBuf>,
    down: bool,
) -> Pairs<S> {
    let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
    cursor.seek(from, down);
    let mut pairs = Vec::new();
    while cursor.next(&mut key, &mut value).unwrap() {
        pairs.push((key.clone(), value.clone()));
    }
    pairs
}
