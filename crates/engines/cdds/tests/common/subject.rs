//! Trees and tables as subjects of the crash explorer, and their workloads.
//!
//! Contents are judged after both kinds of recovery, lazy and by a scan. In addition to the structure's own check, scans in both directions
//! and lookups must agree, the region must be intact ([`crash::region`]), and a second recovery must store nothing.

use std::collections::BTreeMap;
use std::path::Path;

use cdds::{Mark, Recovery, Versioned};
use crash::{Contents, Options, Report, Step, Subject, Workload, explore_all, interrupted, random, region};
use index::Decision;
use index::{Life, Schema, WriteOptions};
use pmem::{Error, Geometry, Observed};

use super::samples::{Bytes, Sample as _};
use super::{PairOf, Tested, options, write_many};

/// One operation. Keys and values are numbers.
#[derive(Clone, Debug)]
pub enum Op {
    Put(u32, u32),
    Delete(u32),
    /// Decided in one step with a read. `None` deletes.
    Update(u32, Option<u32>),
    /// One batch. `None` deletes.
    Batch(Vec<(u32, Option<u32>)>),
    /// Keeps the current version.
    Mark,
    /// Releases all marks.
    Release,
    /// Rolls back to the last mark. Without a mark, these writes have the same result.
    Back(Vec<(u32, Option<u32>)>),
    /// A batch with conditions, which hold.
    If(Vec<(u32, Option<u32>)>, Vec<(u32, Option<u32>)>),
    /// Removes every key.
    Clear,
    /// A batch that also has a value without space in the region. It must be refused as a whole.
    Refused(Vec<(u32, Option<u32>)>),
    /// A put of a value without space in the region.
    TooLarge(u32, u32),
    /// Collects in this many nodes.
    Collect(usize),
    CollectAll,
    /// Closes and opens again.
    Reopen,
    /// Opens again without a close.
    Kill,
}

pub const LAZY: Recovery = Recovery::Lazy;
pub const SCAN: Recovery = Recovery::Scan;

/// The settings of a structure.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Cache lines of a node.
    pub lines: u64,
    /// The recovery at open.
    pub recovery: Recovery,
    /// True for the method of the thesis.
    pub faithful: bool,
    /// The sizes of the region.
    pub geometry: Geometry,
    /// Initial bytes. The region grows if it needs more.
    pub len: u64,
    /// Maximum bytes.
    pub capacity: u64,
}

/// Settings with enough space for all workloads.
pub fn sizes(lines: u64, recovery: Recovery) -> Sizes {
    Sizes { lines, recovery, faithful: false, geometry: Geometry::tiny(), len: 0, capacity: 256 << 10 }
}

impl Sizes {
    fn options(&self) -> cdds::Options {
        cdds::Options { faithful: self.faithful, geometry: self.geometry, ..options(self.lines) }
    }
}

/// A tree or table under the crash explorer.
pub struct CddsSubject<X: Tested> {
    medium: Observed,
    sizes: Sizes,
    tree: Option<Versioned<Observed, X>>,
    marks: Vec<Mark>,
}

/// A byte string for which no region here has space, under a key of its own.
const GIANT: u32 = 800_000;
const GIANT_KEY: u32 = 999_999;

fn text_of(error: Error) -> String {
    error.to_string()
}

impl<X: Tested> CddsSubject<X> {
    fn tree(&self) -> &Versioned<Observed, X> {
        self.tree.as_ref().expect("only `reopen` takes the tree out, and puts one back")
    }

    fn open(medium: &Observed, sizes: Sizes) -> Result<Versioned<Observed, X>, Error> {
        let (path, options) = (Path::new("observed"), X::options(sizes.options()));
        Versioned::open(medium.clone(), path, &options, sizes.recovery).map(|(tree, _)| tree)
    }

    fn reopen(&mut self) -> Result<(), String> {
        self.marks.clear();
        self.tree = None;
        self.tree = Some(Self::open(&self.medium, self.sizes).map_err(text_of)?);
        Ok(())
    }

    fn batch(&self, writes: &[(u32, Option<u32>)]) -> Result<(), Error> {
        write_many(self.tree(), &Self::pairs_of(writes)).map(drop)
    }

    fn pairs_of(writes: &[(u32, Option<u32>)]) -> Vec<PairOf<X>> {
        writes.iter().map(|(key, value)| (X::Schema::key(*key), value.map(X::Schema::value))).collect()
    }
}

fn write_model<X: Tested>(writes: &[(u32, Option<u32>)], model: &mut Contents) {
    for (key, value) in writes {
        let key = X::Schema::key(*key).bytes();
        match value {
            Some(value) => _ = model.insert(key, X::Schema::value(*value).bytes()),
            None => _ = model.remove(&key),
        }
    }
}

impl<X: Tested> Subject for CddsSubject<X> {
    type Op = Op;
    type Config = Sizes;

    fn size(sizes: &Sizes) -> (u64, u64) {
        (sizes.len, sizes.capacity)
    }

    fn create(medium: Observed, sizes: &Sizes) -> Result<Self, String> {
        let tree = Versioned::create(medium.clone(), &X::options(sizes.options())).map_err(text_of)?;
        Ok(Self { medium, sizes: *sizes, tree: Some(tree), marks: Vec::new() })
    }

    fn recover(medium: Observed, sizes: &Sizes) -> Result<Self, String> {
        if let Err(problem) = region::verify_image(&medium, sizes.geometry) {
            panic!("{problem}");
        }
        match Self::open(&medium, *sizes) {
            Ok(tree) => Ok(Self { medium, sizes: *sizes, tree: Some(tree), marks: Vec::new() }),
            Err(error @ (Error::Foreign { .. } | Error::Superblock { .. })) => Err(text_of(error)),
            Err(error) => panic!("a whole superblock, and yet: {error}"),
        }
    }

    fn apply(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Put(key, value) => {
                let (key, value) = (X::Schema::key(*key), X::Schema::value(*value));
                self.tree().put(X::Schema::borrow(&key), X::Schema::borrow_value(&value)).map(drop)
            }
            Op::Delete(key) => self.tree().delete(X::Schema::borrow(&X::Schema::key(*key))).map(drop),
            Op::Update(key, value) => {
                let value = value.map(X::Schema::value);
                let decide = |_: Option<&<X::Schema as Schema>::Value>| match &value {
                    Some(value) => Decision::Put(X::Schema::borrow_value(value)),
                    None => Decision::Delete,
                };
                let key = X::Schema::key(*key);
                self.tree().update(X::Schema::borrow(&key), decide, WriteOptions::default())
            }
            Op::Batch(writes) => self.batch(writes),
            Op::If(writes, expected) => {
                let (writes, expected) = (Self::pairs_of(writes), Self::pairs_of(expected));
                match self.tree().batch(writes, &expected, WriteOptions::default()) {
                    Ok(false) => return Err("a condition that holds does not".to_owned()),
                    other => other.map(drop),
                }
            }
            Op::Clear => self.tree().clear(),
            Op::Mark => {
                self.marks.push(self.tree().mark());
                Ok(())
            }
            Op::Release => {
                self.marks.clear();
                Ok(())
            }
            Op::Back(writes) => match self.marks.last() {
                None => self.batch(writes),
                Some(mark) => match self.tree().roll_back(mark) {
                    Ok(false) => return Err("a rollback was refused".to_owned()),
                    other => other.map(drop),
                },
            },
            Op::Refused(writes) => {
                let writes: Vec<_> = writes.iter().copied().chain([(GIANT_KEY, Some(GIANT))]).collect();
                match self.batch(&writes) {
                    Err(Error::Full { .. }) => Ok(()),
                    Err(error) => Err(error),
                    Ok(()) => return Err("there was space for a value that there is no space for".to_owned()),
                }
            }
            Op::TooLarge(key, value) => {
                let (key, value) = (X::Schema::key(*key), X::Schema::value(*value));
                match self.tree().put(X::Schema::borrow(&key), X::Schema::borrow_value(&value)) {
                    Err(Error::Full { .. }) => Ok(()),
                    Err(error) => Err(error),
                    Ok(_) => return Err("there was space for a write that must be refused".to_owned()),
                }
            }
            Op::Collect(nodes) => self.tree().collect_some(*nodes).map(drop),
            Op::CollectAll => self.tree().collect_all(),
            Op::Reopen => {
                self.tree().close().map_err(text_of)?;
                return self.reopen();
            }
            Op::Kill => return self.reopen(),
        }
        .map_err(text_of)
    }

    fn apply_model(op: &Op, model: &mut Contents) {
        match op {
            Op::Put(key, value) => write_model::<X>(&[(*key, Some(*value))], model),
            Op::Delete(key) => write_model::<X>(&[(*key, None)], model),
            Op::Update(key, value) => write_model::<X>(&[(*key, *value)], model),
            Op::Batch(writes) | Op::Back(writes) | Op::If(writes, _) => write_model::<X>(writes, model),
            Op::Clear => model.clear(),
            _ => {}
        }
    }

    fn verify(&self) -> Result<Contents, String> {
        let tree = self.tree();
        region::verify_open(&self.medium)?;
        let problems = tree.check().problems;
        if let Some(first) = problems.first() {
            return Err(format!("{first} ({} problems)", problems.len()));
        }
        let all = X::pairs(&tree.snapshot())?;
        if tree.len() != all.len() as u64 {
            return Err(format!("{} pairs are scanned, {} counted", all.len(), tree.len()));
        }
        let mut got = <X::Schema as Schema>::ValueBuf::default();
        for (key, value) in &all {
            if !tree.get(X::Schema::borrow(key), Some(&mut got)).map_err(text_of)? || got != *value {
                return Err(format!("get and scan differ at {key:?}"));
            }
        }
        let contents: Contents = all.iter().map(|(key, value)| (key.bytes(), value.bytes())).collect();
        for n in 0..16 {
            let key = X::Schema::key(n);
            if !contents.contains_key(&key.bytes())
                && tree.get(X::Schema::borrow(&key), None).map_err(text_of)?
            {
                return Err(format!("get finds {key:?}, the scan does not"));
            }
        }
        Ok(contents)
    }

    fn continuation(op: &Op) -> Vec<Op> {
        let key = match op {
            Op::Put(key, _) | Op::Delete(key) | Op::Update(key, _) => *key,
            Op::Batch(writes) | Op::Back(writes) | Op::Refused(writes) | Op::If(writes, _) => {
                writes.first().map_or(3, |(key, _)| *key)
            }
            _ => 5,
        };
        let mut ops = vec![Op::Delete(key), Op::Put(key, 41)];
        ops.extend((key + 1..key + 7).map(|key| Op::Put(key, 42)));
        ops.push(Op::CollectAll);
        ops.extend((key + 1..key + 7).map(Op::Delete));
        ops.push(Op::Kill);
        ops
    }

    fn idempotence_exempt(at: u64) -> bool {
        at < pmem::region::ROOT_AT
    }

    fn close(self) -> Result<(), String> {
        self.tree().close().map_err(text_of)
    }
}

/// A workload.
pub type Work<X> = Workload<CddsSubject<X>>;

/// The mix of [`mixed`]: upper limits for a draw below 100. A kind of operation has the draws from the previous limit to its own.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Puts, in thirty draws and in the next thirty. So periods of filling and of emptying alternate.
    pub puts: [u32; 2],
    pub deletes: u32,
    pub updates: u32,
    pub batches: u32,
    pub marks: u32,
    /// A batch has fewer writes than this.
    pub writes_end: u32,
}

/// Random operations on a window of keys, with marks, rollbacks and collections. With `cuts` there are no marks, and about one step in
/// `cuts` is interrupted.
pub fn mixed<X: Tested>(seed: u64, sizes: Sizes, count: usize, keys: u32, cuts: usize) -> Work<X> {
    let mix = X::MIX;
    let mut now: BTreeMap<u32, u32> = BTreeMap::new();
    let mut marked: Option<BTreeMap<u32, u32>> = None;
    let mut turn = 0;
    let ops = random(seed, count, |rng| {
        let (key, value) = (rng.u32(..keys), rng.u32(..64));
        turn += 1;
        match rng.u32(..100) {
            roll if roll < mix.puts[turn / 30 % 2] => {
                now.insert(key, value);
                Op::Put(key, value)
            }
            roll if roll < mix.deletes => {
                now.remove(&key);
                Op::Delete(key)
            }
            roll if roll < mix.updates => {
                let value = rng.bool().then_some(value);
                match value {
                    Some(value) => _ = now.insert(key, value),
                    None => _ = now.remove(&key),
                }
                Op::Update(key, value)
            }
            roll if roll < mix.batches => {
                let writes: Vec<(u32, Option<u32>)> = (0..rng.u32(1..mix.writes_end))
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
            // After an interrupted step the contents of a mark are unknown.
            roll if roll < mix.marks && cuts == 0 => {
                marked = Some(now.clone());
                Op::Mark
            }
            roll if (mix.marks..89).contains(&roll) => {
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

/// Grows from empty and shrinks again. In a tree: shifts, splits, root splits, shares, merges, promotions. In a table: new nodes, buckets,
/// segments and top levels, then fewer. Then reuse.
pub fn lives<X: Tested>(sizes: Sizes, keys: u32) -> Work<X> {
    let mut ops: Vec<Op> = (0..keys).map(|i| Op::Put(i * 7 % keys, i)).collect();
    ops.extend((0..keys).map(|i| Op::Delete(i * 5 % keys)));
    ops.extend((0..keys / 2).rev().map(|i| Op::Put(i, i + 1)));
    ops.push(Op::CollectAll);
    Workload::new(sizes, ops)
}

/// Explores these workloads with this many images at a point, and inside recovery.
pub fn explore<X: Tested>(name: &str, workloads: &[Work<X>], (cap, nested_cap): (usize, usize)) -> Report {
    let bounds =
        Options { cap, nested_cap, samples: 8, line_cap: 64, violations_max: 1, ..Options::default() };
    let report = explore_all(workloads, &bounds);
    println!(
        "{} over {}, {name}: {} images at {} crash points ({} sampled), {} inside recovery",
        X::ENGINE,
        X::Schema::NAME,
        report.images,
        report.crash_points,
        report.sampled_points,
        report.nested_images
    );
    assert!(!report.is_violated(), "{report}");
    report
}

/// Checks the minimum number of states, which may only be raised.
pub fn at_least(reports: &[Report], floor: u64) {
    let states: u64 = reports.iter().map(|report| report.images + report.nested_images).sum();
    println!("{states} states");
    assert!(states >= floor, "{states} states, {floor} were explored before");
}
