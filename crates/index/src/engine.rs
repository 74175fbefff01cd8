//! The interface of an engine: [`Index`], which each engine implements once and every caller uses (stores, benchmarks, the cost model,
//! the crash explorer), and [`Family`], by which the registry knows an engine.
//!
//! * [`Index`] is object-safe. A store holds a `dyn Index`; code that is generic over indexes is compiled for each.
//! * [`Lifecycle`] is the part of it that the kernel implements for every engine that embeds a [`Kernel`](crate::Kernel).
//! * [`Create`] makes and opens an index over any [`Medium`].
//! * [`Family`] is an engine as the registry knows it: its capabilities, and its index for each kind of keys and values. [`About`]
//!   describes it to users.

use std::borrow::Cow;
use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

use pmem::alloc::Usage;
use pmem::region::Identity;
use pmem::{Durability, Found, Geometry, Medium, Native, Region, Result};

use crate::check::Report;
use crate::entry::Entry;
use crate::kind::{Bytes, Fixed, Kind, SchemaOf, U64};
use crate::write::{Decision, Write, WriteOptions};

/// What an engine is, for its registry entry.
#[derive(Debug)]
pub struct About {
    /// Name, as users give it and superblocks hold it.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// Layout of leaves.
    pub leaf: &'static str,
    /// Layout of inner nodes.
    pub inner: &'static str,
    /// Commit protocol.
    pub commit_protocol: &'static str,
    /// Contents survive a crash.
    pub durable: bool,
    /// Fewest and most cache lines of a node.
    pub lines: (u64, u64),
    /// Cache lines of a node unless the user says otherwise.
    pub default_lines: u64,
}

impl About {
    /// True if nodes may have so many lines.
    pub fn allows(&self, lines: u64) -> bool {
        (self.lines.0..=self.lines.1).contains(&lines)
    }
}

/// What an engine can do beyond the common ground. The shared test battery branches on these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// There are scans, and they come in key order.
    pub ordered: bool,
    /// Contents survive the process.
    pub durable: bool,
    /// Consistent views of the present, while writers go on.
    pub snapshots: bool,
    /// Durable versions: named ones, rollback ([`History`]).
    pub versions: bool,
    /// Several keys change in one crash-atomic step.
    pub atomic_batch: bool,
    /// Writers do not exclude each other.
    pub several_writers: bool,
    /// Indexes of [`Fixed`] values.
    pub fixed_values: bool,
}

impl Capabilities {
    /// Those of an ordered index that embeds the kernel and is durable: snapshots and atomic batches come with it.
    pub const KERNEL: Self = Self {
        ordered: true,
        durable: true,
        snapshots: true,
        versions: false,
        atomic_batch: true,
        several_writers: false,
        fixed_values: false,
    };
}

/// A key and its value; no value if the key is absent, or is to be removed.
pub type KeyValue<K> = (<K as Kind>::KeyBuf, Option<<K as Kind>::ValueBuf>);

/// What an update decides to do with a key.
pub type Change<'a, V> = Decision<Cow<'a, V>>;

/// Decides, from a key's present value, what becomes of it.
pub type Decide<'d, V> = dyn FnMut(Option<&V>) -> Change<'static, V> + 'd;

/// Writes the next pair into its arguments; false at the end.
pub type NextPair<'n, K> =
    dyn FnMut(&mut <K as Kind>::KeyBuf, &mut <K as Kind>::ValueBuf) -> Result<bool> + 'n;

/// Number of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Keys counted so far.
    pub keys: u64,
    /// True while keys are still being counted after a crash; `keys` is then a lower bound.
    pub pending: bool,
}

/// A position in key order, or in an order of the engine's own. It holds no lock; the index may change between two calls.
pub trait Cursor<K: Kind> {
    /// Places the cursor before the first key of `from` (ascending) or behind the last key of it (descending).
    ///
    /// # Errors
    /// `Corrupt`; `Unsupported` if the engine keeps its keys in no order.
    fn seek(&mut self, from: Bound<&K::Key>, descending: bool) -> Result<()>;

    /// Places the cursor where a walk through all keys begins, or goes on behind this key, which need not be there any more. The
    /// order is the engine's own, and is the same in each walk.
    ///
    /// # Errors
    /// `Corrupt`.
    fn walk(&mut self, behind: Option<&K::Key>) -> Result<()> {
        self.seek(behind.map_or(Bound::Unbounded, Bound::Excluded), false)
    }

    /// Moves one key on in the direction of the last `seek` or `walk` and copies key and value out; false at the end.
    ///
    /// # Errors
    /// `Corrupt`.
    fn next(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool>;
}

/// How full leaves are that are written in key order: keys that come later need not split each at once.
pub const FILL: f64 = 0.9;

/// The writer's lock, held over several changes. Each change is durable by itself when its call returns.
///
/// # Errors
/// Every method: as the same one of [`Index`].
pub trait Session<K: Kind> {
    /// Stores; true if a value was replaced.
    fn put(&mut self, key: &K::Key, value: &K::Value) -> Result<bool>;
    /// Removes; true if the key was there.
    fn delete(&mut self, key: &K::Key) -> Result<bool>;
}

/// What an index held at one moment. It is kept as long as this lives.
///
/// # Errors
/// Every method: `TakenBack` when the version was taken back by a rollback, `SnapshotBytes` when more was overwritten since than the
/// bound allows, `Corrupt`.
pub trait View<K: Kind>: Send + Sync {
    /// The version; `None` of an engine that keeps no versions.
    fn version(&self) -> Option<u64> {
        None
    }
    /// Number of keys, where that is known without counting.
    fn keys(&self) -> Option<u64> {
        None
    }
    /// Copies the value of `key` into `value`; false if absent.
    fn get(&self, key: &K::Key, value: &mut K::ValueBuf) -> Result<bool>;
    /// A cursor over the keys; it keeps the version itself.
    fn cursor(&self) -> Box<dyn Cursor<K> + '_>;
}

/// Which versions there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Versions {
    /// The oldest version that can be read, but for named ones.
    pub oldest: u64,
    /// The newest durable version.
    pub newest: u64,
    /// Named versions, oldest first.
    pub named: Vec<NamedVersion>,
}

/// A version with a name: it is kept until that is forgotten, through restarts.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct NamedVersion {
    /// Its name.
    pub name: String,
    /// Which version.
    pub version: u64,
    /// Keys at that version.
    pub keys: u64,
}

/// Which versions are kept that no reader holds and that have no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retain {
    /// None but the newest.
    Newest,
    /// So many of the newest. A version is a write, or a batch.
    Versions(u64),
    /// Those of the last while, counted from the opening of the store.
    Age(Duration),
}

/// Views of the past.
///
/// # Errors
/// Every method: `Full` or `NoSpace`, `Io`, `Corrupt`.
pub trait History<K: Kind>: Send + Sync {
    /// A version that is kept; `None` if it is not.
    fn at(&self, version: u64) -> Option<Box<dyn View<K> + '_>>;
    /// The version of this name; `None` if there is none.
    fn named(&self, name: &str) -> Option<Box<dyn View<K> + '_>>;
    /// Which versions there are.
    fn versions(&self) -> Versions;
    /// Gives the newest version a name, durably; false if there is one of that name.
    fn keep(&self, name: &str) -> Result<bool>;
    /// Forgets a name, durably; false if there is none such.
    fn forget(&self, name: &str) -> Result<bool>;
    /// Says which versions to keep from now on.
    fn retain(&self, what: Retain);
    /// Rolls back all writes since a version that is kept, in one atomic step; false if it is not kept.
    fn roll_back(&self, version: u64) -> Result<bool>;
}

/// The life of an index, whatever its keys and values are. [`Life`](crate::Life) implements it for every engine over the kernel.
pub trait Lifecycle: Send + Sync {
    /// Makes what was written without sync as durable as was promised.
    ///
    /// # Errors
    /// As [`Life::commit`](crate::Life::commit).
    fn commit(&self) -> Result<()>;
    /// True if everything was durable a moment ago: a read will hardly have to wait for a commit.
    fn is_quiet(&self) -> bool;
    /// Makes everything acknowledged survive the machine, as far as the medium can.
    ///
    /// # Errors
    /// As [`Life::sync`](crate::Life::sync).
    fn sync(&self) -> Result<()>;
    /// Refuses writes, and has nothing to close: its memory is its own.
    fn refuse_writes(&self);
    /// Runs `run` while no other thread writes.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly` or `Failed`: it was not run.
    fn hold_writers(&self, run: &mut dyn FnMut()) -> Result<()>;
    /// Closes cleanly: the next open finds an exact count and nothing to recover. Later writes are refused.
    ///
    /// # Errors
    /// As [`Life::close`](crate::Life::close).
    fn close(&self) -> Result<()>;
    /// Bounds the memory for before-images, if it has any.
    fn set_snapshot_bytes(&self, bytes: u64);
    /// What its region says it is. `None` without a region.
    fn identity(&self) -> Option<&Identity>;
    /// Bytes of the region, or of memory.
    fn region_bytes(&self) -> u64;
    /// What the region's bytes are used for.
    fn usage(&self) -> Usage;
    /// Bytes that were taken out of a latch-free index and are not freed yet; `None` of an index with locks.
    fn limbo_bytes(&self) -> Option<u64> {
        None
    }
}

/// An ordered (or hashed) index over keys and values of one kind. Shared between threads.
///
/// # Errors
/// Every method: `Full` or `NoSpace` when memory is full, `Io` when the file system refuses, `Corrupt`, `Closed`, `Failed`.
#[allow(clippy::len_without_is_empty)] // a count may be pending: "empty" has no answer then
pub trait Index<K: Kind>: Lifecycle {
    /// Copies the value of `key` into `value` (if given); false if absent.
    fn get(&self, key: &K::Key, value: Option<&mut K::ValueBuf>) -> Result<bool>;
    /// Stores; true if a value was replaced.
    fn put(&self, key: &K::Key, value: &K::Value, how: WriteOptions) -> Result<bool>;
    /// Removes; true if the key was there.
    fn delete(&self, key: &K::Key, how: WriteOptions) -> Result<bool>;
    /// Reads and changes one key in one step: no other write comes between.
    fn update(&self, key: &K::Key, decide: &mut Decide<'_, K::Value>, how: WriteOptions) -> Result<()>;
    /// Has the processor bring in what reads of these keys will touch. Nothing, where a lookup cannot be foreseen.
    fn prefetch(&self, _keys: &[&K::Key]) {}
    /// Gives the values of many keys, in their order; `None` for an absent one. Ends when `give` returns false. They are of one moment
    /// if there are batches ([`Capabilities::atomic_batch`]).
    fn get_each(&self, keys: &[&K::Key], give: &mut dyn FnMut(Option<K::ValueBuf>) -> bool) -> Result<()>;
    /// Carries out many writes, in their order where they are of one key; says of each whether its key was there.
    fn write_many(&self, writes: &[Write<'_, K::Key, K::Value>], how: WriteOptions) -> Result<Vec<bool>>;
    /// Puts and removes several keys in one step, if all of `expected` are as they say; false if not. `Unsupported` without
    /// [`Capabilities::atomic_batch`].
    fn batch(&self, writes: Vec<KeyValue<K>>, expected: &[KeyValue<K>], how: WriteOptions) -> Result<bool>;
    /// A cursor over the keys.
    fn cursor(&self) -> Box<dyn Cursor<K> + '_>;
    /// What is there now; everything in it is durable as promised. `Unsupported` without [`Capabilities::snapshots`].
    fn snapshot(&self) -> Result<Box<dyn View<K> + '_>>;
    /// Durable versions, of an engine that has them ([`Capabilities::versions`]).
    fn history(&self) -> Option<&dyn History<K>> {
        None
    }
    /// Stores the pairs that `next` writes into its arguments until it says false, in key order and above all keys that are
    /// there; in any order, if the engine is not [`Capabilities::ordered`]. Leaves become `fill` full, from 0 to 1, where the engine
    /// can choose. Returns how many.
    fn append(&self, next: &mut NextPair<'_, K>, fill: f64) -> Result<u64>;
    /// The writer's lock for several changes, of an engine that saves by that. Other writers wait until it is dropped.
    fn session(&self) -> Result<Option<Box<dyn Session<K> + '_>>> {
        Ok(None)
    }
    /// Removes every key.
    fn clear(&self) -> Result<()>;
    /// Number of keys.
    fn len(&self) -> Count;
    /// Ends the count of the keys, if it is still being taken.
    fn count_all(&self) -> Result<()> {
        Ok(())
    }
    /// True if there is work beside users, now or later.
    fn has_maintenance(&self) -> bool {
        false
    }
    /// One bounded step of the work beside users (counting after a crash, collecting old versions). Returns how long to rest before
    /// the next step; `None` when there will be nothing to do any more.
    fn maintain(&self) -> Option<Duration> {
        None
    }
    /// Verifies everything. Never panics, whatever the region holds.
    fn check(&self) -> Report;
    /// Of what it is made, asked with keys that are there, for benchmarks.
    fn anatomy(&self, _keys: &[K::KeyBuf]) -> Option<Anatomy> {
        None
    }
    /// For salvage: every entry that the leaf at this offset holds, whole or not. `region` may be damaged.
    fn salvage_leaf(_region: &Region<Native>, _leaf: u64) -> Vec<Salvaged<K>>
    where
        Self: Sized,
    {
        Vec::new()
    }
}

/// Of what an index is made.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Anatomy {
    /// Nodes that hold entries.
    pub leaves: u64,
    /// Bytes of each.
    pub leaf_bytes: u64,
    /// Bytes of what leads to them: inner nodes, or what stands for these, in durable memory or not.
    pub extra_bytes: u64,
    /// Comparisons until a key's leaf is found, on average, where that is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparisons: Option<f64>,
}

/// An entry that salvage met in a leaf.
pub struct Salvaged<K: Kind> {
    /// Key and value; `None` if the record is damaged.
    pub pair: Option<(K::KeyBuf, K::ValueBuf)>,
    /// Tells keys apart, of an engine that has versions; else 0.
    pub hash: u64,
    /// The version that it began with, of an engine that has versions; else 0.
    pub start: u64,
    /// It was replaced or removed.
    pub ended: bool,
}

impl<K: Kind> Salvaged<K> {
    /// An entry of an engine without versions.
    pub fn of<M: Medium, S: SchemaOf<K>>(region: &Region<M>, entry: &Entry<S::Tail>) -> Self {
        let (mut key, mut value) = (K::KeyBuf::default(), K::ValueBuf::default());
        let is_whole = S::read_key(region.medium(), entry.key, &mut key)
            && S::read_value(region.medium(), entry, &mut value);
        Self { pair: is_whole.then_some((key, value)), hash: 0, start: 0, ended: false }
    }
}

/// Takes up to `most` pairs, of about `bytes_most` bytes in all; none at the end.
///
/// # Errors
/// What `next` says.
pub fn take_pairs<K: Kind>(
    next: &mut NextPair<'_, K>,
    most: usize,
    bytes_most: u64,
) -> Result<Vec<(K::KeyBuf, K::ValueBuf)>> {
    let (mut pairs, mut bytes) = (Vec::new(), 0);
    while pairs.len() < most && bytes < bytes_most {
        let (mut key, mut value) = (K::KeyBuf::default(), K::ValueBuf::default());
        if !next(&mut key, &mut value)? {
            break;
        }
        bytes += K::payload_bytes(K::key(&key), K::value(&value));
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// How an index is made or opened.
#[derive(Clone, Debug)]
pub struct Form {
    /// Engine's name, for the superblock.
    pub engine: &'static str,
    /// Cache lines of a node. (Of an existing index, what it was made with.)
    pub node_lines: u64,
    /// Words of a value in its entry; 1, but for [`Fixed`] values. (Of an existing index, what it was made with.)
    pub payload_words: usize,
    /// The region's fixed sizes; `None`: as usual for the engine. (Of an existing index, what it was made with.)
    pub geometry: Option<Geometry>,
    /// The promise, for the superblock.
    pub durability: Durability,
    /// Version locks; a power of two.
    pub stripes: usize,
    /// Most bytes of an index without a region. (A medium bounds itself.)
    pub max_bytes: u64,
}

impl Form {
    /// Production settings.
    pub fn new(engine: &'static str, node_lines: u64, durability: Durability) -> Self {
        Self {
            engine,
            node_lines,
            payload_words: 1,
            geometry: None,
            durability,
            stripes: 1024,
            max_bytes: 1 << 40,
        }
    }
}

/// Making and opening an index over a medium.
pub trait Create<M: Medium>: Sized + Send + Sync + 'static {
    /// Makes an empty index in a fresh medium.
    ///
    /// # Errors
    /// `Nodes` for a size that is none; what growing the medium may say.
    fn create(medium: M, form: &Form) -> Result<Self>;

    /// Opens what is in a region, recovering it if it was not closed. `path` is for errors.
    ///
    /// # Errors
    /// `Mismatch` if something else lives there; what [`Region::open`] and recovery say.
    fn open(medium: M, path: &Path, form: &Form) -> Result<(Self, Found)>;
}

/// What is done with the index type of an engine.
pub trait WithIndex<M: Medium, K: Kind> {
    /// What comes of it.
    type Out;
    /// Called with the type.
    fn with<I: Index<K> + Create<M>>(self) -> Self::Out;
}

/// An engine: its entry in the registry.
pub trait Family: 'static {
    /// What it can do.
    const CAPABILITIES: Capabilities;
    /// Its index from byte strings to byte strings.
    type Bytes<M: Medium>: Index<Bytes> + Create<M>;
    /// Its index from integers to integers.
    type Words<M: Medium>: Index<U64> + Create<M>;
    /// Its index from integers to byte strings of one length, if it has one ([`Capabilities::fixed_values`]).
    fn fixed<M: Medium, V: WithIndex<M, Fixed>>(_with: V) -> Option<V::Out> {
        None
    }
}

/// What is done with an engine of the registry.
pub trait Visitor {
    /// What comes of it.
    type Out;
    /// Called with the engine and its entry.
    fn visit<F: Family>(self, about: &'static About) -> Self::Out;
}
