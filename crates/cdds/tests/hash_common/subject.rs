//! The hash table as the crash explorer drives it, and workloads of random operations.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::Path;

use cdds::hash::Table;
use cdds::{Mark, Recovery};
use crash::{Contents, Step, Subject, Workload, interrupted, random};
use pmem::{Error, Observed};
use tree::insert::Decision;

use super::common::Sample;
use super::hash_common::{options, pairs, write_many};

/// One operation. Keys and values are numbers.
#[derive(Clone, Debug)]
pub enum Op {
    Put(u32, u32),
    Delete(u32),
    /// Decided in one step with a look: `None` deletes.
    Update(u32, Option<u32>),
    /// All as one: `None` deletes.
    Batch(Vec<(u32, Option<u32>)>),
    /// Keeps the version.
    Mark,
    /// Lets all marks go.
    Release,
    /// Goes back to the last mark; this is what has to be written to get there without one.
    Back(Vec<(u32, Option<u32>)>),
    /// Collects in so many buckets.
    Collect(usize),
    CollectAll,
    /// Close and open again.
    Reopen,
    /// Open again without closing.
    Kill,
}

#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub lines: u64,
    pub recovery: Recovery,
    pub faithful: bool,
    /// Bytes of the region before it grows.
    pub len: u64,
}

pub struct HashSubject<S: Sample> {
    medium: Observed,
    sizes: Sizes,
    table: Option<Table<Observed, S>>,
    marks: Vec<Mark>,
    parts: PhantomData<S>,
}

fn text_of(error: Error) -> String {
    error.to_string()
}

impl<S: Sample> HashSubject<S>
where
    S::KeyBuf: Bytes,
    S::ValueBuf: Bytes,
{
    fn table(&self) -> &Table<Observed, S> {
        self.table.as_ref().expect("only `reopen` takes the table out, and puts one back")
    }

    fn options(sizes: Sizes) -> cdds::hash::Options {
        cdds::hash::Options { faithful: sizes.faithful, ..options(sizes.lines) }
    }

    fn open(medium: &Observed, sizes: Sizes) -> Result<Table<Observed, S>, Error> {
        let path = Path::new("observed");
        Table::open(medium.clone(), path, &Self::options(sizes), sizes.recovery).map(|(table, _)| table)
    }

    fn reopen(&mut self) -> Result<(), String> {
        self.marks.clear();
        self.table = None;
        self.table = Some(Self::open(&self.medium, self.sizes).map_err(text_of)?);
        Ok(())
    }

    fn batch(&self, writes: &[(u32, Option<u32>)]) -> Result<(), Error> {
        let writes: Vec<_> = writes.iter().map(|(key, value)| (S::key(*key), value.map(S::value))).collect();
        write_many(self.table(), &writes).map(drop)
    }
}

/// Keys and values as the model has them.
pub trait Bytes {
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

fn write_model<S: Sample>(writes: &[(u32, Option<u32>)], model: &mut Contents)
where
    S::KeyBuf: Bytes,
    S::ValueBuf: Bytes,
{
    for (key, value) in writes {
        let key = S::key(*key).bytes();
        match value {
            Some(value) => _ = model.insert(key, S::value(*value).bytes()),
            None => _ = model.remove(&key),
        }
    }
}

impl<S: Sample> Subject for HashSubject<S>
where
    S::KeyBuf: Bytes,
    S::ValueBuf: Bytes,
{
    type Op = Op;
    type Config = Sizes;

    fn size(sizes: &Sizes) -> (u64, u64) {
        (sizes.len, 256 << 10)
    }

    fn create(medium: Observed, sizes: &Sizes) -> Result<Self, String> {
        let table = Table::create(medium.clone(), &Self::options(*sizes)).map_err(text_of)?;
        Ok(Self { medium, sizes: *sizes, table: Some(table), marks: Vec::new(), parts: PhantomData })
    }

    fn recover(medium: Observed, sizes: &Sizes) -> Result<Self, String> {
        match Self::open(&medium, *sizes) {
            Ok(table) => {
                Ok(Self { medium, sizes: *sizes, table: Some(table), marks: Vec::new(), parts: PhantomData })
            }
            Err(error @ (Error::Foreign { .. } | Error::Superblock { .. })) => Err(text_of(error)),
            Err(error) => panic!("a whole superblock, and yet: {error}"),
        }
    }

    fn apply(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Put(key, value) => {
                let (key, value) = (S::key(*key), S::value(*value));
                self.table().put(S::borrow(&key), S::borrow_value(&value)).map(drop)
            }
            Op::Delete(key) => self.table().delete(S::borrow(&S::key(*key))).map(drop),
            Op::Update(key, value) => {
                let value = value.map(S::value);
                let decide = |_: Option<&S::Value>| match &value {
                    Some(value) => Decision::Put(S::borrow_value(value)),
                    None => Decision::Delete,
                };
                self.table().update(S::borrow(&S::key(*key)), decide)
            }
            Op::Batch(writes) => self.batch(writes),
            Op::Mark => {
                self.marks.push(self.table().mark());
                Ok(())
            }
            Op::Release => {
                self.marks.clear();
                Ok(())
            }
            Op::Back(writes) => match self.marks.last() {
                None => self.batch(writes),
                Some(mark) => match self.table().roll_back(mark) {
                    Ok(false) => return Err("a rollback was refused".to_owned()),
                    other => other.map(drop),
                },
            },
            Op::Collect(buckets) => self.table().collect_some(*buckets).map(drop),
            Op::CollectAll => self.table().collect_all(),
            Op::Reopen => {
                self.table().close().map_err(text_of)?;
                return self.reopen();
            }
            Op::Kill => return self.reopen(),
        }
        .map_err(text_of)
    }

    fn apply_model(op: &Op, model: &mut Contents) {
        match op {
            Op::Put(key, value) => write_model::<S>(&[(*key, Some(*value))], model),
            Op::Delete(key) => write_model::<S>(&[(*key, None)], model),
            Op::Update(key, value) => write_model::<S>(&[(*key, *value)], model),
            Op::Batch(writes) | Op::Back(writes) => write_model::<S>(writes, model),
            _ => {}
        }
    }

    fn verify(&self) -> Result<Contents, String> {
        let table = self.table();
        let problems = table.check().problems;
        if let Some(first) = problems.first() {
            return Err(format!("{first} ({} problems)", problems.len()));
        }
        let all = pairs(&mut table.pairs());
        if table.len() != all.len() as u64 {
            return Err(format!("{} pairs are met, {} counted", all.len(), table.len()));
        }
        let mut got = S::ValueBuf::default();
        for (key, value) in &all {
            if !table.get(S::borrow(key), Some(&mut got)).map_err(text_of)? || got != *value {
                return Err(format!("get and walk differ at {key:?}"));
            }
        }
        let contents: Contents = all.iter().map(|(key, value)| (key.bytes(), value.bytes())).collect();
        for n in 0..16 {
            let key = S::key(n);
            if !contents.contains_key(&key.bytes()) && table.get(S::borrow(&key), None).map_err(text_of)? {
                return Err(format!("get finds {key:?}, the walk does not"));
            }
        }
        Ok(contents)
    }

    fn continuation(op: &Op) -> Vec<Op> {
        let key = match op {
            Op::Put(key, _) | Op::Delete(key) | Op::Update(key, _) => *key,
            Op::Batch(writes) | Op::Back(writes) => writes.first().map_or(3, |(key, _)| *key),
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
        self.table().close().map_err(text_of)
    }
}

/// A workload.
pub type Work<S> = Workload<HashSubject<S>>;

pub const LAZY: Recovery = Recovery::Lazy;
pub const SCAN: Recovery = Recovery::Scan;

pub fn sizes(lines: u64, recovery: Recovery) -> Sizes {
    Sizes { lines, recovery, faithful: false, len: 0 }
}

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
