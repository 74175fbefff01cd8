//! Workloads that the hash table is driven by.

use std::collections::BTreeMap;

use cdds::Recovery;
use cdds::hash::Hashed;
use crash::{Step, Workload, interrupted, random};

use crate::common::Sample;
use crate::common::subject::{Bytes, CddsSubject, Op, Sizes};

pub use crate::common::subject::sizes;

/// A workload.
pub type Work<S> = Workload<CddsSubject<Hashed<S>>>;

pub const LAZY: Recovery = Recovery::Lazy;
pub const SCAN: Recovery = Recovery::Scan;

/// Random operations that keep a window of keys, with marks, rollbacks and collections among them; every so often most of what
/// there is goes, or comes.
pub fn mixed<S: Sample>(seed: u64, sizes: Sizes, count: usize, keys: u32, cuts: usize) -> Work<S>
where
    S::KeyBuf: Bytes,
    S::ValueBuf: Bytes,
{
    let mut now: BTreeMap<u32, u32> = BTreeMap::new();
    let mut marked: Option<BTreeMap<u32, u32>> = None;
    let mut turn = 0;
    let ops = random(seed, count, |rng| {
        let (key, value) = (rng.u32(..keys), rng.u32(..64));
        turn += 1;
        // Times that fill the table, and times that empty it.
        let puts = if turn / 30 % 2 == 0 { 60 } else { 15 };
        match rng.u32(..100) {
            roll if roll < puts => {
                now.insert(key, value);
                Op::Put(key, value)
            }
            ..72 => {
                now.remove(&key);
                Op::Delete(key)
            }
            72..76 => {
                let value = rng.bool().then_some(value);
                match value {
                    Some(value) => _ = now.insert(key, value),
                    None => _ = now.remove(&key),
                }
                Op::Update(key, value)
            }
            76..83 => {
                let writes: Vec<(u32, Option<u32>)> = (0..rng.u32(1..6))
                    .map(|_| (rng.u32(..keys), rng.bool().then(|| rng.u32(..64))))
                    .collect();
                for (key, value) in &writes {
                    match value {
                        Some(value) => _ = now.insert(*key, *value),
                        None => _ = now.remove(key),
                    }
                }
                Op::Batch(writes)
            }
            // Behind a cut nobody knows what a mark would hold.
            83..87 if cuts == 0 => {
                marked = Some(now.clone());
                Op::Mark
            }
            87..89 => {
                marked = None;
                Op::Release
            }
            89..92 => match &marked {
                None => Op::Collect(2),
                Some(old) => {
                    let writes = (0..keys).map(|key| (key, old.get(&key).copied())).collect();
                    now = old.clone();
                    Op::Back(writes)
                }
            },
            92..95 => Op::Collect(rng.usize(1..4)),
            95 => Op::CollectAll,
            96 => {
                marked = None;
                Op::Reopen
            }
            97 => {
                marked = None;
                Op::Kill
            }
            _ => {
                now.insert(key, value);
                Op::Put(key, value)
            }
        }
    });
    let steps =
        if cuts == 0 { ops.into_iter().map(Step::Run).collect() } else { interrupted(seed, cuts, ops) };
    Workload { config: sizes, prepare: Vec::new(), steps }
}

/// From empty up and down again: new nodes, buckets, segments, tops; then fewer; then reuse.
pub fn lives<S: Sample>(sizes: Sizes, keys: u32) -> Work<S>
where
    S::KeyBuf: Bytes,
    S::ValueBuf: Bytes,
{
    let mut ops: Vec<Op> = (0..keys).map(|i| Op::Put(i * 7 % keys, i)).collect();
    ops.extend((0..keys).map(|i| Op::Delete(i * 5 % keys)));
    ops.extend((0..keys / 2).rev().map(|i| Op::Put(i, i + 1)));
    ops.push(Op::CollectAll);
    Workload::new(sizes, ops)
}
