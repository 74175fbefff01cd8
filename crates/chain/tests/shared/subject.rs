//! The index as the crash explorer sees it, and the workloads it is driven by.
//!
//! Beyond the index's own check: scans both ways and look-ups agree, and a second recovery stores nothing.

use std::marker::PhantomData;
use std::ops::Bound;
use std::path::Path;

use crate::common::{Bytes, Index, Options, Sample, options, pairs, rebuild};
use chain::prelude::*;
use crash::{Contents, Step, Subject, Workload, interrupted, random};
use pmem::{Error, Geometry, Observed};
use tree::WriteOptions;

/// One operation. Keys and values are numbers.
#[derive(Clone, Debug)]
pub enum Op {
    Put(u32, u32),
    Delete(u32),
    /// All as one: `None` deletes.
    Batch(Vec<(u32, Option<u32>)>),
    /// Builds what leads to the leaves anew, at once.
    Rebuild,
    /// Close and open again.
    Reopen,
    /// Open again without closing.
    Kill,
}

/// How an index is made and opened.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Cache lines of a leaf.
    pub lines: u64,
    /// As the paper prescribes, where there are two ways.
    pub faithful: bool,
    /// The region's sizes.
    pub geometry: Geometry,
    /// Bytes that there are in the beginning; the region grows if it needs more.
    pub len: u64,
    /// Most bytes.
    pub capacity: u64,
}

/// Sizes with room for everything.
pub fn sizes(lines: u64, faithful: bool) -> Sizes {
    Sizes { lines, faithful, geometry: Geometry::tiny(), len: 0, capacity: 256 << 10 }
}

/// See the module's head.
pub struct Indexed<S: Sample> {
    medium: Observed,
    sizes: Sizes,
    index: Option<Index<Observed, S>>,
    parts: PhantomData<S>,
}

fn text_of(error: Error) -> String {
    error.to_string()
}

impl<S: Sample> Indexed<S> {
    fn index(&self) -> &Index<Observed, S> {
        self.index.as_ref().expect("only `reopen` takes the index out, and puts one back")
    }

    fn options(sizes: &Sizes) -> Options {
        Options { geometry: sizes.geometry, ..options::<S>(sizes.lines, sizes.faithful) }
    }

    fn open(medium: &Observed, sizes: &Sizes) -> Result<Index<Observed, S>, Error> {
        Index::open(medium.clone(), Path::new("observed"), &Self::options(sizes)).map(|(index, _)| index)
    }

    fn reopen(&mut self) -> Result<(), String> {
        self.index = None;
        self.index = Some(Self::open(&self.medium, &self.sizes).map_err(text_of)?);
        Ok(())
    }
}

impl<S: Sample> Subject for Indexed<S> {
    type Op = Op;
    type Config = Sizes;

    fn size(sizes: &Sizes) -> (u64, u64) {
        (sizes.len, sizes.capacity)
    }

    fn create(medium: Observed, sizes: &Sizes) -> Result<Self, String> {
        let index = Index::create(medium.clone(), &Self::options(sizes)).map_err(text_of)?;
        Ok(Self { medium, sizes: *sizes, index: Some(index), parts: PhantomData })
    }

    fn recover(medium: Observed, sizes: &Sizes) -> Result<Self, String> {
        match Self::open(&medium, sizes) {
            Ok(index) => Ok(Self { medium, sizes: *sizes, index: Some(index), parts: PhantomData }),
            Err(error @ (Error::Foreign { .. } | Error::Superblock { .. })) => Err(text_of(error)),
            Err(error) => panic!("a whole superblock, and yet: {error}"),
        }
    }

    fn apply(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Put(key, value) => {
                let (key, value) = (S::key(*key), S::value(*value));
                self.index().put(S::borrow(&key), S::borrow_value(&value)).map(drop)
            }
            Op::Delete(key) => self.index().delete(S::borrow(&S::key(*key))).map(drop),
            Op::Batch(writes) => {
                let writes = writes.iter().map(|(key, value)| (S::key(*key), value.map(S::value))).collect();
                self.index().batch(writes, &[], WriteOptions::default()).map(|done| assert!(done))
            }
            Op::Rebuild => rebuild(self.index()),
            Op::Reopen => {
                self.index().close().map_err(text_of)?;
                return self.reopen();
            }
            Op::Kill => return self.reopen(),
        }
        .map_err(text_of)
    }

    fn apply_model(op: &Op, model: &mut Contents) {
        match op {
            Op::Put(key, value) => _ = model.insert(S::key(*key).bytes(), S::value(*value).bytes()),
            Op::Delete(key) => _ = model.remove(&S::key(*key).bytes()),
            Op::Batch(writes) => {
                for (key, value) in writes {
                    match value {
                        Some(value) => _ = model.insert(S::key(*key).bytes(), S::value(*value).bytes()),
                        None => _ = model.remove(&S::key(*key).bytes()),
                    }
                }
            }
            _ => {}
        }
    }

    fn verify(&self) -> Result<Contents, String> {
        let index = self.index();
        let problems = index.check().problems;
        if let Some(first) = problems.first() {
            return Err(format!("{first} ({} problems)", problems.len()));
        }
        let up = pairs(&mut index.cursor(), Bound::Unbounded, false);
        let mut down = pairs(&mut index.cursor(), Bound::Unbounded, true);
        down.reverse();
        if up != down {
            return Err(format!("{} pairs forwards, {} backwards, not the same", up.len(), down.len()));
        }
        if index.len() != up.len() as u64 {
            return Err(format!("{} pairs are scanned, {} counted", up.len(), index.len()));
        }
        let mut got = S::ValueBuf::default();
        for (key, value) in &up {
            if !index.get(S::borrow(key), Some(&mut got)).map_err(text_of)? || got != *value {
                return Err(format!("get and scan differ at {key:?}"));
            }
        }
        let contents: Contents = up.iter().map(|(key, value)| (key.bytes(), value.bytes())).collect();
        for n in 0..16 {
            let key = S::key(n);
            if !contents.contains_key(&key.bytes()) && index.get(S::borrow(&key), None).map_err(text_of)? {
                return Err(format!("get finds {key:?}, the scan does not"));
            }
        }
        Ok(contents)
    }

    fn continuation(op: &Op) -> Vec<Op> {
        let key = match op {
            Op::Put(key, _) | Op::Delete(key) => *key,
            Op::Batch(writes) => writes.first().map_or(3, |(key, _)| *key),
            _ => 5,
        };
        let mut ops = vec![Op::Delete(key), Op::Put(key, 41)];
        ops.extend((key + 1..key + 7).map(|key| Op::Put(key, 42)));
        ops.push(Op::Rebuild);
        ops.extend((key + 1..key + 7).map(Op::Delete));
        ops.push(Op::Kill);
        ops
    }

    fn idempotence_exempt(at: u64) -> bool {
        at < pmem::region::ROOT_AT
    }

    fn close(self) -> Result<(), String> {
        self.index().close().map_err(text_of)
    }
}

/// A workload of the index.
pub type Work<S> = Workload<Indexed<S>>;

/// Random operations in a window of keys, with rebuilds, closes and kills among them; about one step in `cuts` is cut short.
pub fn mixed<S: Sample>(seed: u64, sizes: Sizes, count: usize, keys: u32, cuts: usize) -> Work<S> {
    let ops = random(seed, count, |rng| {
        let (key, value) = (rng.u32(..keys), rng.u32(..64));
        match rng.u32(..100) {
            0..52 => Op::Put(key, value),
            52..86 => Op::Delete(key),
            86..92 => Op::Batch(
                (0..rng.u32(1..5)).map(|_| (rng.u32(..keys), rng.bool().then(|| rng.u32(..64)))).collect(),
            ),
            92..96 => Op::Rebuild,
            96..98 => Op::Reopen,
            _ => Op::Kill,
        }
    });
    let steps =
        if cuts == 0 { ops.into_iter().map(Step::Run).collect() } else { interrupted(seed, cuts, ops) };
    Workload { config: sizes, prepare: Vec::new(), steps }
}

/// From empty up and down again: splits, appends, rebuilds; merges; then reuse.
pub fn lives<S: Sample>(sizes: Sizes, keys: u32) -> Work<S> {
    let mut ops: Vec<Op> = (0..keys).map(|i| Op::Put(i * 7 % keys, i)).collect();
    ops.extend((0..keys).map(|i| Op::Delete(i * 5 % keys)));
    ops.extend((0..keys).map(|i| Op::Put(i, i + 1)));
    ops.extend((0..keys / 2).map(|i| Op::Put(i * 2, i + 2)));
    Workload::new(sizes, ops)
}
