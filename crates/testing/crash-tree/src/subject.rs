//! A durable tree as a [`Subject`] of the crash explorer.
//!
//! Keys and values are made from small numbers, so that operations print shortly and the same workload drives every
//! schema. What `verify` asks, beyond the tree's own check: scans both ways, gets of present and absent keys and the count
//! agree; the region below is whole ([`crash::region`]).

use std::fmt;
use std::marker::PhantomData;
use std::ops::Bound;
use std::path::Path;

use bptree::discipline::Discipline;
use bptree::layout::{Layout, Layouts};
use bptree::{Tree, TreeOptions};
use crash::{Contents, Subject, region};
use index::{Batching, Decision, Life, Schema, Tail, Write, WriteOptions};
use pmem::log::Format;
use pmem::{Durability, Error, Geometry, Observed};

/// Keys or values from small numbers.
pub trait Numbered: Clone + PartialEq {
    /// Key number `n`; ascending with `n`.
    fn key(n: u32) -> Self;
    /// Value number `n`: of byte strings, `n / 16` is the length.
    fn value(n: u32) -> Self;
    /// Value number `n`, of so many words where all of a tree's values have as many.
    fn of_words(n: u32, _words: usize) -> Self {
        Self::value(n)
    }
    /// Its bytes, of keys ordered as the keys.
    fn bytes(&self) -> Vec<u8>;
}

impl Numbered for u64 {
    fn key(n: u32) -> u64 {
        // Both halves matter, so that a torn key is seen.
        u64::from(n) << 32 | u64::from(!n)
    }
    fn value(n: u32) -> u64 {
        Self::key(n)
    }
    fn bytes(&self) -> Vec<u8> {
        self.to_be_bytes().into()
    }
}

impl Numbered for Vec<u8> {
    /// Nine bytes, the last of which a prefix word does not hold.
    fn key(n: u32) -> Vec<u8> {
        format!("key{n:06}").into_bytes()
    }
    fn value(n: u32) -> Vec<u8> {
        (0..n / 16).map(|i| (n + i * 7) as u8).collect()
    }
    /// Words that differ, so that a torn value is seen.
    fn of_words(n: u32, words: usize) -> Vec<u8> {
        (0..words as u32).flat_map(|i| <u64 as Numbered>::value(n + (i << 24)).bytes()).collect()
    }
    fn bytes(&self) -> Vec<u8> {
        self.clone()
    }
}

/// A schema whose keys and values come from small numbers.
pub trait Sample: Schema<KeyBuf: Numbered, ValueBuf: Numbered> {
    /// Words of a payload: of entries of 32 bytes where values stand in them.
    const PAYLOAD_WORDS: usize = if <Self::Tail as Tail>::EMPTY { 1 } else { 3 };
    /// Key number `n`.
    fn key(n: u32) -> Self::KeyBuf {
        Self::KeyBuf::key(n)
    }
    /// Value number `n`.
    fn value(n: u32) -> Self::ValueBuf {
        match Self::PAYLOAD_WORDS {
            1 => Self::ValueBuf::value(n),
            words => Self::ValueBuf::of_words(n, words),
        }
    }
}
impl<S: Schema<KeyBuf: Numbered, ValueBuf: Numbered>> Sample for S {}

/// One operation on a tree. After a crash in it, [`Subject::continuation`] puts `burst` keys behind `key` and takes them
/// out again: more than a node holds force a split and a merge.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Op {
    /// What is done.
    pub act: Act,
    /// Key number.
    pub key: u32,
    /// Keys of the continuation.
    pub burst: u8,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Insert, or replace.
    Put(u32),
    /// Replace if it is there.
    Update(u32),
    /// Delete.
    Delete,
    /// Bulk load of this many keys, [`BULK_STEP`] numbers apart, from `key` on, as one leaf.
    Bulk(u16),
    /// Writes of so many keys at once, so many numbers apart, from `key` on: two puts, a delete, and so on.
    Many(u16, u32),
    /// The same as one batch, all of it or nothing, with values of this number and the next ones.
    Batch(u16, u32, u32),
    /// A put that the region is too small for.
    Refused(u32),
    /// Close and open again.
    Reopen,
    /// Open again without closing, as after a kill.
    Kill,
}

/// Distance between the key numbers of a bulk load.
pub const BULK_STEP: u32 = 100;

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.act, self.key)
    }
}

/// Sizes of a tree under test.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Cache lines of a node.
    pub lines: u64,
    /// Chunks and log.
    pub geometry: Geometry,
    /// Most bytes of the region.
    pub capacity: u64,
}

impl Sizes {
    /// Chunks of four nodes or 4 KiB, and a log that a few splits fill.
    pub fn new<D: Discipline>(lines: u64) -> Self {
        let log_records = match (D::LOG, lines) {
            (_, 17..) => 1024,
            (Format::UndoRedo, 9..) => 1024,
            (Format::UndoRedo, _) | (Format::Redo, 9..) => 256,
            (Format::Redo, _) => 128,
        };
        let geometry = Geometry { log_records, ..Geometry::tiny() };
        if lines > 16 {
            return Self {
                lines,
                geometry: Geometry { chunk_bytes: 32 << 10, ..geometry },
                capacity: 4 << 20,
            };
        }
        Self { lines, geometry, capacity: 256 << 10 }
    }

    /// Most entries of a leaf.
    pub fn entries<S: Sample, L: Layouts>(&self) -> u32 {
        L::Leaf::shape(self.lines, S::KEY_WORDS, S::PAYLOAD_WORDS).capacity as u32
    }

    /// Most separators of an inner node.
    pub fn separators<S: Schema, L: Layouts>(&self) -> u32 {
        L::Inner::shape(self.lines, S::KEY_WORDS, 1).capacity as u32
    }
}

const ENGINE: &str = "crash";
const STRIPES: usize = 2;

/// See the module's head.
pub struct TreeSubject<S: Schema, L, D: Discipline> {
    medium: Observed,
    tree: Option<Tree<Observed, S, L, D>>,
    parts: PhantomData<(L, D)>,
}

/// Keys and values of a scan, in its order.
pub(crate) type Pairs<S> = Vec<(<S as index::Schema>::KeyBuf, <S as index::Schema>::ValueBuf)>;

impl<S: Sample, L: Layouts, D: Discipline> TreeSubject<S, L, D> {
    fn new(medium: Observed, tree: Tree<Observed, S, L, D>) -> Self {
        Self { medium, tree: Some(tree), parts: PhantomData }
    }

    fn tree(&self) -> &Tree<Observed, S, L, D> {
        self.tree.as_ref().expect("only `reopen` takes the tree out, and puts one back")
    }

    fn open(medium: &Observed) -> Result<Tree<Observed, S, L, D>, Error> {
        let path = Path::new("observed");
        Tree::open(medium.clone(), path, ENGINE, Durability::Power, STRIPES).map(|(tree, _)| tree)
    }

    fn reopen(&mut self) -> Result<(), String> {
        self.tree = None;
        self.tree = Some(Self::open(&self.medium).map_err(text_of)?);
        Ok(())
    }

    fn scan(&self, descending: bool) -> Result<Pairs<S>, String> {
        let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
        let mut cursor = self.tree().cursor();
        cursor.seek(Bound::Unbounded, descending);
        let mut pairs = Vec::new();
        while cursor.next(&mut key, &mut value).map_err(text_of)? {
            pairs.push((key.clone(), value.clone()));
        }
        Ok(pairs)
    }
}

pub(crate) fn text_of(error: Error) -> String {
    error.to_string()
}

fn bulk_keys(op: &Op, count: u16) -> impl Iterator<Item = u32> + use<> {
    let first = op.key;
    (0..u32::from(count)).map(move |i| first + i * BULK_STEP)
}

/// The first value's number of [`Act::Many`].
const VALUE: u32 = 0x2A0;

/// Keys of an [`Act::Many`] or [`Act::Batch`], with what is put under them; `None` deletes.
fn many(op: &Op) -> impl Iterator<Item = (u32, Option<u32>)> + use<> {
    let (count, step, value) = match op.act {
        Act::Many(count, step) => (count, step, VALUE),
        Act::Batch(count, step, value) => (count, step, value),
        _ => (0, 0, 0),
    };
    let first = op.key;
    (0..u32::from(count)).map(move |i| (first + i * step, (i % 3 < 2).then_some(value + i)))
}

impl<S: Sample, L: Layouts, D: Discipline> Subject for TreeSubject<S, L, D> {
    type Op = Op;
    type Config = Sizes;

    fn size(sizes: &Sizes) -> (u64, u64) {
        (0, sizes.capacity)
    }

    fn create(medium: Observed, sizes: &Sizes) -> Result<Self, String> {
        let options = TreeOptions {
            payload_words: S::PAYLOAD_WORDS,
            geometry: sizes.geometry,
            stripes: STRIPES,
            ..TreeOptions::new(ENGINE, sizes.lines, Durability::Power)
        };
        Tree::create(medium.clone(), &options).map(|tree| Self::new(medium, tree)).map_err(text_of)
    }

    fn recover(medium: Observed, sizes: &Sizes) -> Result<Self, String> {
        if let Err(problem) = region::verify_image(&medium, sizes.geometry) {
            panic!("{problem}");
        }
        match Self::open(&medium) {
            Ok(tree) => Ok(Self::new(medium, tree)),
            Err(error @ (Error::Foreign { .. } | Error::Superblock { .. })) => Err(text_of(error)),
            // Even inside `create`: once a superblock is whole, everything it leads to is.
            Err(error) => panic!("a whole superblock, and yet: {error}"),
        }
    }

    fn apply(&mut self, op: &Op) -> Result<(), String> {
        let key = S::key(op.key);
        let key = S::borrow(&key);
        let tree = self.tree();
        match op.act {
            Act::Put(value) => tree.put(key, S::borrow_value(&S::value(value))).map(drop),
            Act::Update(value) => {
                let value = S::value(value);
                let decide = |old: Option<&S::Value>| match old {
                    None => Decision::Keep,
                    Some(_) => Decision::Put(S::borrow_value(&value)),
                };
                tree.update(key, decide, WriteOptions::default())
            }
            Act::Delete => tree.delete(key).map(drop),
            Act::Bulk(count) => {
                let pairs: Vec<_> = bulk_keys(op, count).map(|n| (S::key(n), S::value(n % 64))).collect();
                let pairs = pairs.iter().map(|(key, value)| (S::borrow(key), S::borrow_value(value)));
                tree.bulk_load(pairs, 1.0).map(drop)
            }
            Act::Many(..) => {
                let pairs: Vec<_> = many(op).map(|(n, v)| (S::key(n), v.map(S::value))).collect();
                let writes: Vec<Write<'_, S::Key, S::Value>> = pairs
                    .iter()
                    .map(|(key, value)| match value {
                        Some(value) => Write::Put(S::borrow(key), S::borrow_value(value)),
                        None => Write::Delete(S::borrow(key)),
                    })
                    .collect();
                tree.write_many(&writes, WriteOptions::default()).map(drop)
            }
            Act::Batch(..) => {
                let writes = many(op).map(|(n, v)| (S::key(n), v.map(S::value))).collect();
                // The condition holds; of one that does not, nothing comes.
                let absent = [(S::key(u32::MAX / 2), None)];
                match tree.batch(writes, &absent, WriteOptions::default()) {
                    Ok(false) => return Err("a batch was not done".to_owned()),
                    other => other.map(drop),
                }
            }
            Act::Refused(value) => match tree.put(key, S::borrow_value(&S::value(value))) {
                Err(Error::Full { .. }) => Ok(()),
                Err(error) => Err(error),
                Ok(_) => return Err("there was room for what was to be refused".to_owned()),
            },
            Act::Reopen => {
                tree.close().map_err(text_of)?;
                return self.reopen();
            }
            Act::Kill => return self.reopen(),
        }
        .map_err(text_of)
    }

    fn apply_model(op: &Op, model: &mut Contents) {
        let key = S::key(op.key).bytes();
        let bytes = |value| S::value(value).bytes();
        match op.act {
            Act::Put(value) => _ = model.insert(key, bytes(value)),
            Act::Update(value) => _ = model.get_mut(&key).map(|old| *old = bytes(value)),
            Act::Delete => _ = model.remove(&key),
            Act::Bulk(count) => {
                model.extend(bulk_keys(op, count).map(|n| (S::key(n).bytes(), bytes(n % 64))));
            }
            Act::Many(..) | Act::Batch(..) => {
                for (key, value) in many(op) {
                    let key = S::key(key).bytes();
                    match value {
                        Some(value) => _ = model.insert(key, bytes(value)),
                        None => _ = model.remove(&key),
                    }
                }
            }
            Act::Refused(_) | Act::Reopen | Act::Kill => {}
        }
    }

    fn is_divisible(op: &Op) -> bool {
        matches!(op.act, Act::Many(..))
    }

    fn verify(&self) -> Result<Contents, String> {
        let tree = self.tree();
        while tree.count_some(3).map_err(text_of)? {}
        region::verify_open(&self.medium)?;
        let problems = tree.check().problems;
        if let Some(first) = problems.first() {
            return Err(format!("{first} ({} problems)", problems.len()));
        }
        let pairs = self.scan(false)?;
        let mut backward = self.scan(true)?;
        backward.reverse();
        let agree = |a: &(S::KeyBuf, S::ValueBuf), b: &(S::KeyBuf, S::ValueBuf)| a.0 == b.0 && a.1 == b.1;
        if pairs.len() != backward.len() || !pairs.iter().zip(&backward).all(|(a, b)| agree(a, b)) {
            return Err(format!(
                "{} pairs forwards, {} backwards, not the same",
                pairs.len(),
                backward.len()
            ));
        }
        if tree.len() != (pairs.len() as u64, false) {
            return Err(format!("{} pairs are scanned, {:?} counted", pairs.len(), tree.len()));
        }
        let mut got = S::ValueBuf::default();
        for (key, value) in &pairs {
            let found = tree.get(S::borrow(key), Some(&mut got)).map_err(text_of)?;
            if !found || got != *value {
                return Err(format!("get and scan differ at {key:?}"));
            }
        }
        let contents: Contents = pairs.iter().map(|(key, value)| (key.bytes(), value.bytes())).collect();
        for n in 0..16 {
            let key = S::key(n * 7);
            if !contents.contains_key(&key.bytes()) && tree.get(S::borrow(&key), None).map_err(text_of)? {
                return Err(format!("get finds {key:?}, the scan does not"));
            }
        }
        Ok(contents)
    }

    fn continuation(op: &Op) -> Vec<Op> {
        let at = |act, key| Op { act, key, burst: 0 };
        let burst = || op.key + 1..=op.key + u32::from(op.burst);
        let mut ops =
            vec![at(Act::Delete, op.key), at(Act::Put(0x155), op.key), at(Act::Update(0x1A3), op.key)];
        ops.extend(burst().map(|key| at(Act::Put(0x121), key)));
        ops.extend(burst().map(|key| at(Act::Delete, key)));
        ops.push(at(Act::Kill, op.key));
        ops
    }

    fn idempotence_exempt(at: u64) -> bool {
        at < pmem::region::ROOT_AT
    }

    fn close(self) -> Result<(), String> {
        self.tree().close().map_err(text_of)
    }
}
