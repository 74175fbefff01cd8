//! What the tests share: trees in plain memory, keys and values from small numbers.

#[allow(dead_code)]
pub mod beside;
#[allow(dead_code)]
pub mod subject;

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use cdds::Inlined;
use cdds::{Cursor, Options, Recovery, Tree};
use pmem::{Counter, Durability, Geometry, Medium, Memory, Observed};
use tree::{Keyed, Schema, Words, Write};

/// A schema whose keys and values come from small numbers.
pub trait Sample: Schema<Tail = [u64; 0], KeyBuf: Ord, ValueBuf: PartialEq> {
    /// Key number `n`; ascending with `n`. Number 0 is the least key there is.
    fn key(n: u32) -> Self::KeyBuf;
    /// Value number `n`.
    fn value(n: u32) -> Self::ValueBuf;
}

impl Sample for Words {
    fn key(n: u32) -> u64 {
        // Both halves matter; the last key there is, too.
        if n == 0 {
            0
        } else if n >= 1 << 20 {
            u64::MAX
        } else {
            u64::from(n) << 32 | u64::from(!n)
        }
    }
    fn value(n: u32) -> u64 {
        u64::from(n) << 32 | u64::from(!n)
    }
}

impl Sample for Keyed {
    fn key(n: u32) -> Vec<u8> {
        if n == 0 { Vec::new() } else { format!("key{n:06}").into_bytes() }
    }
    fn value(n: u32) -> Vec<u8> {
        (0..n / 8).map(|i| (n + i * 7) as u8).chain(n.to_le_bytes()).collect()
    }
}

impl Sample for Inlined {
    /// Short keys, longer ones, ones that begin like others, ones that end with zeros; separators of all lengths.
    fn key(n: u32) -> Vec<u8> {
        const TAILS: [&[u8]; 8] = [
            b"",
            b"\0",
            b"\0\0\0",
            b"\0\0\0\0",
            b"\0\0\0\0\x01",
            b"\0\0\x01",
            b"tail of many bytes",
            b"tail of many bytez",
        ];
        if n == 0 {
            return Vec::new();
        }
        let (group, tail) = (n / 8, TAILS[n as usize % 8]);
        [b"k", &group.to_be_bytes()[1..], tail].concat()
    }
    fn value(n: u32) -> Vec<u8> {
        <Keyed as Sample>::value(n)
    }
}

#[allow(dead_code)]
pub type Pairs<S> = Vec<(<S as Schema>::KeyBuf, <S as Schema>::ValueBuf)>;

/// Small chunks, few stripes. In nodes of three lines batches go in waves of a few blocks.
pub fn options(lines: u64) -> Options {
    let production = Options::new(lines, Durability::Power);
    let wave_blocks = if lines == 3 { 3 } else { production.wave_blocks };
    Options { geometry: Geometry::tiny(), stripes: 2, wave_blocks, ..production }
}

/// Observed memory and who counts.
#[allow(dead_code)]
pub fn memory(bytes: u64) -> (Observed, Arc<Counter>) {
    let counter = Arc::new(Counter::default());
    (Observed::new(Memory::new(bytes, 0), Arc::clone(&counter) as Arc<_>), counter)
}

/// Opens what is in memory.
#[allow(dead_code)]
pub fn open<S: Sample>(medium: &Observed, lines: u64, recovery: Recovery) -> Tree<Observed, S> {
    Tree::open(medium.clone(), Path::new("memory"), &options(lines), recovery).unwrap().0
}

/// All pairs that a cursor gives out.
pub fn pairs<M: Medium, S: Sample>(
    cursor: &mut Cursor<'_, M, S>,
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

/// One batch: `None` deletes.
#[allow(dead_code)]
pub fn write_many<S: Sample>(
    tree: &Tree<Observed, S>,
    writes: &[(S::KeyBuf, Option<S::ValueBuf>)],
) -> Result<(), pmem::Error> {
    let writes: Vec<_> = writes
        .iter()
        .map(|(key, value)| match value {
            Some(value) => Write::Put(S::borrow(key), S::borrow_value(value)),
            None => Write::Delete(S::borrow(key)),
        })
        .collect();
    tree.write_many(&writes).map(drop)
}
