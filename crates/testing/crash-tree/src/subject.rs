//! An index of the registry as a [`Subject`] of the crash explorer.
//!
//! Keys and values are made from small numbers. So operations print briefly, and one workload drives every kind of key and value. `verify`
//! runs the index's own check. It also compares the scans in both directions, the gets of present and absent keys, and the count with each
//! other, and checks the region below the index ([`crash::region`]).
//!
//! * [`Explored`] creates and opens an index. [`Held`] is an index owned by a subject, with the code that all subjects share.
//! * [`TreeSubject`] runs the operations of the workloads of trees. [`crate::general`] runs those of all other indexes.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Bound;
use std::path::Path;

use bptree::Tree;
use bptree::commit_protocol::CommitProtocol;
use bptree::layout::{Layout, Layouts};
use crash::{Contents, Subject, region};
use index::engine::Change;
use index::{Create, Form, Index, Kind, Lifecycle, Schema, SchemaOf, Write, WriteOptions};
use pmem::log::Format;
use pmem::{Durability, Error, Geometry, Observed};

/// Keys or values made from small numbers.
pub trait Numbered: Clone + PartialEq {
    /// Key number `n`. Keys ascend with `n`.
    fn key(n: u32) -> Self;
    /// Value number `n`. A byte string has the length `n / 16`.
    fn value(n: u32) -> Self;
    /// Value number `n` with `words` words, for trees whose values all have the same length.
    fn of_words(n: u32, _words: usize) -> Self {
        Self::value(n)
    }
    /// The bytes of the key or value. The bytes of keys have the order of the keys.
    fn bytes(&self) -> Vec<u8>;
}

impl Numbered for u64 {
    fn key(n: u32) -> u64 {
        // Both halves matter, so that the oracle detects a torn key.
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
    /// A key of nine bytes. A prefix word does not hold the last byte.
    fn key(n: u32) -> Vec<u8> {
        format!("key{n:06}").into_bytes()
    }
    fn value(n: u32) -> Vec<u8> {
        (0..n / 16).map(|i| (n + i * 7) as u8).collect()
    }
    /// A value of distinct words, so that the oracle detects a torn value.
    fn of_words(n: u32, words: usize) -> Vec<u8> {
        (0..words as u32).flat_map(|i| <u64 as Numbered>::value(n + (i << 24)).bytes()).collect()
    }
    fn bytes(&self) -> Vec<u8> {
        self.clone()
    }
}

/// A kind whose keys and values are made from small numbers.
pub trait Sampled: Kind<KeyBuf: Numbered, ValueBuf: Numbered> {
    /// Words of a payload: 3 if entries contain the bytes of values (entries of 32 bytes), otherwise 1.
    const PAYLOAD_WORDS: usize = if Self::HAS_VALUE_BYTES { 3 } else { 1 };
    /// Key number `n`.
    fn number_key(n: u32) -> Self::KeyBuf {
        Self::KeyBuf::key(n)
    }
    /// Value number `n`.
    fn number_value(n: u32) -> Self::ValueBuf {
        match Self::PAYLOAD_WORDS {
            1 => Self::ValueBuf::value(n),
            words => Self::ValueBuf::of_words(n, words),
        }
    }
}
impl<K: Kind<KeyBuf: Numbered, ValueBuf: Numbered>> Sampled for K {}

/// Creates, opens and maintains an index under the explorer.
pub trait Explored: Send + Sync + 'static {
    /// The kind of keys and values.
    type Kind: Sampled;
    /// The index type.
    type Index: Index<Self::Kind>;
    /// The sizes of the index.
    type Sizes: Copy + fmt::Debug + Send + Sync;

    /// Returns the bytes in use at the start, and the maximum bytes.
    fn bytes(sizes: &Self::Sizes) -> (u64, u64);
    /// Returns the geometry of the region.
    fn geometry(sizes: &Self::Sizes) -> Geometry;
    /// Creates an empty index.
    ///
    /// # Errors
    /// Those of the index.
    fn create(medium: Observed, sizes: &Self::Sizes) -> Result<Self::Index, Error>;
    /// Opens the index in memory.
    ///
    /// # Errors
    /// Those of the index.
    fn open(medium: Observed, sizes: &Self::Sizes) -> Result<Self::Index, Error>;
    /// Completes all background work.
    ///
    /// # Errors
    /// Those of the index.
    fn maintain(index: &Self::Index) -> Result<(), Error>;
    /// Completes the count of keys.
    ///
    /// # Errors
    /// Those of the index.
    fn count(index: &Self::Index) -> Result<(), Error> {
        index.count_all()
    }
}

/// Path of the memory in error texts.
pub(crate) const PATH: &str = "observed";
pub(crate) const STRIPES: usize = 2;
/// All writes are durable when their calls return.
pub(crate) const SYNCED: WriteOptions = WriteOptions { sync: true };

/// An index owned by a subject.
pub struct Held<E: Explored> {
    medium: Observed,
    sizes: E::Sizes,
    index: Option<E::Index>,
}

/// Keys and values, in the order of a scan.
pub(crate) type Pairs<K> = Vec<(<K as Kind>::KeyBuf, <K as Kind>::ValueBuf)>;

/// Writes made from numbers: a value, or `None` to delete the key.
pub(crate) type NumberedWrites<K> = Vec<(<K as Kind>::KeyBuf, Option<<K as Kind>::ValueBuf>)>;

impl<E: Explored> Held<E> {
    pub(crate) fn index(&self) -> &E::Index {
        self.index.as_ref().expect("only `reopen` takes the index out, and puts one back")
    }

    pub(crate) fn create(medium: Observed, sizes: &E::Sizes) -> Result<Self, String> {
        let index = E::create(medium.clone(), sizes).map_err(text_of)?;
        Ok(Self { medium, sizes: *sizes, index: Some(index) })
    }

    /// Opens an image. If its superblock is valid, it must open: even inside `create`, everything that a valid superblock references is
    /// complete.
    pub(crate) fn recover(medium: Observed, sizes: &E::Sizes) -> Result<Self, String> {
        if let Err(problem) = region::verify_image(&medium, E::geometry(sizes)) {
            panic!("{problem}");
        }
        match E::open(medium.clone(), sizes) {
            Ok(index) => Ok(Self { medium, sizes: *sizes, index: Some(index) }),
            Err(error @ (Error::Foreign { .. } | Error::Superblock { .. })) => Err(text_of(error)),
            Err(error) => panic!("a whole superblock, and yet: {error}"),
        }
    }

    /// Opens the index again, whether or not it was closed.
    pub(crate) fn reopen(&mut self) -> Result<(), String> {
        self.index = None;
        self.index = Some(E::open(self.medium.clone(), &self.sizes).map_err(text_of)?);
        Ok(())
    }

    pub(crate) fn write_many(&self, pairs: &NumberedWrites<E::Kind>) -> Result<(), Error> {
        let writes: Vec<_> = pairs.iter().map(write_of::<E::Kind>).collect();
        self.index().write_many(&writes, SYNCED).map(drop)
    }

    /// Bulk loads pairs in key order into full leaves.
    pub(crate) fn append(&self, pairs: Pairs<E::Kind>) -> Result<(), Error> {
        let mut pairs = pairs.into_iter();
        let mut next = |to: &mut _, value: &mut _| {
            let Some(pair) = pairs.next() else { return Ok(false) };
            (*to, *value) = pair;
            Ok(true)
        };
        self.index().append(&mut next, 1.0).map(drop)
    }

    fn scan(&self, descending: bool) -> Result<Pairs<E::Kind>, String> {
        let (mut key, mut value) = Default::default();
        let mut cursor = self.index().cursor();
        cursor.seek(Bound::Unbounded, descending).map_err(text_of)?;
        let mut pairs = Vec::new();
        while cursor.next(&mut key, &mut value).map_err(text_of)? {
            pairs.push((key.clone(), value.clone()));
        }
        Ok(pairs)
    }

    /// Verifies the index and returns its contents. `absent` are numbers of keys to look up, too; most of them are absent.
    pub(crate) fn verify(&self, absent: impl Iterator<Item = u32>) -> Result<Contents, String> {
        let index = self.index();
        E::count(index).map_err(text_of)?;
        region::verify_open(&self.medium)?;
        let problems = index.check().problems;
        if let Some(first) = problems.first() {
            return Err(format!("{first} ({} problems)", problems.len()));
        }
        let pairs = self.scan(false)?;
        let mut backward = self.scan(true)?;
        backward.reverse();
        if pairs != backward {
            return Err(format!(
                "{} pairs forwards, {} backwards, not the same",
                pairs.len(),
                backward.len()
            ));
        }
        let count = index.len();
        if (count.keys, count.pending) != (pairs.len() as u64, false) {
            return Err(format!("{} pairs are scanned, {count:?} counted", pairs.len()));
        }
        let mut got = <E::Kind as Kind>::ValueBuf::default();
        for (key, value) in &pairs {
            let found = index.get(E::Kind::key(key), Some(&mut got)).map_err(text_of)?;
            if !found || got != *value {
                return Err(format!("get and scan differ at {key:?}"));
            }
        }
        let contents: Contents = pairs.iter().map(|(key, value)| (key.bytes(), value.bytes())).collect();
        for n in absent {
            let key = E::Kind::number_key(n);
            let is_known = contents.contains_key(&key.bytes());
            if !is_known && index.get(E::Kind::key(&key), None).map_err(text_of)? {
                return Err(format!("get finds {key:?}, the scan does not"));
            }
        }
        Ok(contents)
    }

    pub(crate) fn close(&self) -> Result<(), String> {
        Lifecycle::close(self.index()).map_err(text_of)
    }
}

fn write_of<K: Kind>((key, value): &(K::KeyBuf, Option<K::ValueBuf>)) -> Write<'_, K::Key, K::Value> {
    match value {
        Some(value) => Write::Put(K::key(key), K::value(value)),
        None => Write::Delete(K::key(key)),
    }
}

/// One operation on a tree. After a crash in it, [`Subject::continuation`] puts `burst` keys after `key` and deletes them again. More keys
/// than a node holds force a split and a merge.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Op {
    /// The action.
    pub act: Act,
    /// Number of the key.
    pub key: u32,
    /// Number of keys of the continuation.
    pub burst: u8,
}

/// The action of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Insert or replace.
    Put(u32),
    /// Replace if the key is present.
    Update(u32),
    /// Delete.
    Delete,
    /// Bulk load of this many keys, [`BULK_STEP`] numbers apart, starting at `key`, into one leaf.
    Bulk(u16),
    /// A write group of this many keys, this many numbers apart, starting at `key`: two puts, a delete, and so on.
    Many(u16, u32),
    /// The same as one atomic batch. Values start at this number and ascend.
    Batch(u16, u32, u32),
    /// Delete every key, in one step.
    Clear,
    /// A put that must fail because the region is too small.
    Refused(u32),
    /// Close and open again.
    Reopen,
    /// Open again without a close, as after a kill.
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
    /// Maximum bytes of the region.
    pub capacity: u64,
}

impl Sizes {
    /// Chunks of four nodes or 4 KiB, and a log that a few splits fill.
    pub fn new<D: CommitProtocol>(lines: u64) -> Self {
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

    /// Maximum number of entries of a leaf.
    pub fn entries<K: Sampled, S: Schema, L: Layouts>(&self) -> u32 {
        L::Leaf::shape(self.lines, S::KEY_WORDS, K::PAYLOAD_WORDS).capacity as u32
    }

    /// Maximum number of separators of an inner node.
    pub fn separators<S: Schema, L: Layouts>(&self) -> u32 {
        L::Inner::shape(self.lines, S::KEY_WORDS, 1).capacity as u32
    }
}

/// A durable tree.
pub struct DurableTree<K, S, L, D>(PhantomData<(K, S, L, D)>);

fn form(sizes: &Sizes, payload_words: usize) -> Form {
    let usual = Form::new("crash", sizes.lines, Durability::Power);
    Form { payload_words, geometry: Some(sizes.geometry), stripes: STRIPES, ..usual }
}

impl<K: Sampled, S: SchemaOf<K>, L: Layouts, D: CommitProtocol> Explored for DurableTree<K, S, L, D> {
    type Kind = K;
    type Index = Tree<Observed, S, L, D>;
    type Sizes = Sizes;

    fn bytes(sizes: &Sizes) -> (u64, u64) {
        (0, sizes.capacity)
    }

    fn geometry(sizes: &Sizes) -> Geometry {
        sizes.geometry
    }

    fn create(medium: Observed, sizes: &Sizes) -> Result<Self::Index, Error> {
        Create::create(medium, &form(sizes, K::PAYLOAD_WORDS))
    }

    fn open(medium: Observed, sizes: &Sizes) -> Result<Self::Index, Error> {
        let opened = Create::open(medium, Path::new(PATH), &form(sizes, K::PAYLOAD_WORDS));
        opened.map(|(tree, _)| tree)
    }

    fn maintain(tree: &Self::Index) -> Result<(), Error> {
        Self::count(tree)
    }

    /// Counts in small steps, so that one step continues where the previous one ended.
    fn count(tree: &Self::Index) -> Result<(), Error> {
        while tree.count_some(3)? {}
        Ok(())
    }
}

/// See the module's head.
pub struct TreeSubject<K: Sampled, S: SchemaOf<K>, L: Layouts, D: CommitProtocol>(
    Held<DurableTree<K, S, L, D>>,
);

pub(crate) fn text_of(error: Error) -> String {
    error.to_string()
}

fn bulk_keys(op: &Op, count: u16) -> impl Iterator<Item = u32> + use<> {
    let first = op.key;
    (0..u32::from(count)).map(move |i| first + i * BULK_STEP)
}

/// Number of the first value of [`Act::Many`].
const VALUE: u32 = 0x2A0;

/// Keys of an [`Act::Many`] or [`Act::Batch`], with the numbers of their values; `None` deletes.
fn many(op: &Op) -> impl Iterator<Item = (u32, Option<u32>)> + use<> {
    let (count, step, value) = match op.act {
        Act::Many(count, step) => (count, step, VALUE),
        Act::Batch(count, step, value) => (count, step, value),
        _ => (0, 0, 0),
    };
    let first = op.key;
    (0..u32::from(count)).map(move |i| (first + i * step, (i % 3 < 2).then_some(value + i)))
}

impl<K: Sampled, S: SchemaOf<K>, L: Layouts, D: CommitProtocol> Subject for TreeSubject<K, S, L, D> {
    type Op = Op;
    type Config = Sizes;

    fn size(sizes: &Sizes) -> (u64, u64) {
        DurableTree::<K, S, L, D>::bytes(sizes)
    }

    fn create(medium: Observed, sizes: &Sizes) -> Result<Self, String> {
        Held::create(medium, sizes).map(Self)
    }

    fn recover(medium: Observed, sizes: &Sizes) -> Result<Self, String> {
        Held::recover(medium, sizes).map(Self)
    }

    fn apply(&mut self, op: &Op) -> Result<(), String> {
        let (key, value) = (K::number_key, K::number_value);
        let at = key(op.key);
        let at = K::key(&at);
        let put = |number| Index::<K>::put(self.0.index(), at, K::value(&value(number)), SYNCED);
        match op.act {
            Act::Put(number) => put(number).map(drop),
            Act::Update(number) => {
                let new = value(number);
                let decide = &mut |old: Option<&K::Value>| match old {
                    None => Change::Keep,
                    Some(_) => Change::Put(Cow::Owned(K::value(&new).to_owned())),
                };
                Index::<K>::update(self.0.index(), at, decide, SYNCED)
            }
            Act::Delete => Index::<K>::delete(self.0.index(), at, SYNCED).map(drop),
            Act::Bulk(count) => {
                self.0.append(bulk_keys(op, count).map(|n| (key(n), value(n % 64))).collect())
            }
            Act::Many(..) => self.0.write_many(&many(op).map(|(n, v)| (key(n), v.map(value))).collect()),
            Act::Batch(..) => {
                let writes = many(op).map(|(n, v)| (key(n), v.map(value))).collect();
                // This condition holds. A batch whose condition fails would do nothing.
                let absent = [(key(u32::MAX / 2), None)];
                match Index::<K>::batch(self.0.index(), writes, &absent, SYNCED) {
                    Ok(false) => return Err("a batch was not done".to_owned()),
                    other => other.map(drop),
                }
            }
            Act::Clear => Index::<K>::clear(self.0.index()),
            Act::Refused(number) => match put(number) {
                Err(Error::Full { .. }) => Ok(()),
                Err(error) => Err(error),
                Ok(_) => return Err("there was space for a write that must be refused".to_owned()),
            },
            Act::Reopen => {
                self.0.close()?;
                return self.0.reopen();
            }
            Act::Kill => return self.0.reopen(),
        }
        .map_err(text_of)
    }

    fn apply_model(op: &Op, model: &mut Contents) {
        let key = K::number_key(op.key).bytes();
        let bytes = |value| K::number_value(value).bytes();
        match op.act {
            Act::Put(value) => _ = model.insert(key, bytes(value)),
            Act::Update(value) => _ = model.get_mut(&key).map(|old| *old = bytes(value)),
            Act::Delete => _ = model.remove(&key),
            Act::Bulk(count) => {
                model.extend(bulk_keys(op, count).map(|n| (K::number_key(n).bytes(), bytes(n % 64))));
            }
            Act::Many(..) | Act::Batch(..) => {
                for (key, value) in many(op) {
                    let key = K::number_key(key).bytes();
                    match value {
                        Some(value) => _ = model.insert(key, bytes(value)),
                        None => _ = model.remove(&key),
                    }
                }
            }
            Act::Clear => model.clear(),
            Act::Refused(_) | Act::Reopen | Act::Kill => {}
        }
    }

    fn is_divisible(op: &Op) -> bool {
        matches!(op.act, Act::Many(..))
    }

    fn verify(&self) -> Result<Contents, String> {
        self.0.verify((0..16).map(|n| n * 7))
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
        self.0.close()
    }
}
