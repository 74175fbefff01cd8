//! The interface between engines and their callers.
//!
//! * [`Index`] is the interface of every engine. Stores, benchmarks, the cost model and the crash explorer use it. It is object-safe: a
//!   store holds a `dyn Index`. Code with a type parameter for the index is compiled for each index type, without dynamic dispatch.
//! * [`Lifecycle`] is the part of [`Index`] that the kernel implements for every engine that embeds a [`Kernel`](crate::Kernel).
//! * [`Create`] creates and opens an index over any [`Medium`].
//! * [`Family`] is the registry entry of an engine: its capabilities, and its index for each kind of keys and values. [`About`] describes
//!   the engine to users.

mod cursor;

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

pub use cursor::Cursor;
use pmem::alloc::Usage;
use pmem::region::Identity;
use pmem::stripe::STRIPES;
use pmem::{Durability, Found, Geometry, Medium, Native, Region, Result};

use crate::check::Report;
use crate::entry::Entry;
use crate::kind::{Bytes, Fixed, Kind, SchemaOf, U64};
pub use crate::paging::Paging;
use crate::write::{Decision, Write, WriteOptions};

/// The description of an engine, for its registry entry.
#[derive(Debug)]
pub struct About {
    /// Name, as users type it and superblocks store it.
    pub name: &'static str,
    /// Description in one line, for users.
    pub about: &'static str,
    /// Layout of the leaves.
    pub leaf: &'static str,
    /// Layout of the inner nodes.
    pub inner: &'static str,
    /// Commit protocol.
    pub commit_protocol: &'static str,
    /// True if the contents survive a crash.
    pub durable: bool,
    /// Minimum and maximum number of cache lines of a node.
    pub lines: (u64, u64),
    /// Default number of cache lines of a node.
    pub default_lines: u64,
}

impl About {
    /// True if nodes may have this many lines.
    pub fn allows(&self, lines: u64) -> bool {
        (self.lines.0..=self.lines.1).contains(&lines)
    }
}

/// Optional capabilities of an engine. The shared tests branch on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Scans exist and return keys in key order.
    pub ordered: bool,
    /// The contents survive the process.
    pub durable: bool,
    /// Consistent views of the current contents, while writers go on.
    pub snapshots: bool,
    /// Durable versions, with names and rollback ([`History`]).
    pub versions: bool,
    /// Several keys can change in one crash-atomic step.
    pub atomic_batch: bool,
    /// Several writers can write at the same time.
    pub several_writers: bool,
    /// Indexes of [`Fixed`] values exist.
    pub fixed_values: bool,
}

impl Capabilities {
    /// The capabilities of an ordered, durable index that embeds the kernel. The kernel provides snapshots and atomic batches.
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

/// A key and its value; `None` if the key is absent or is to be removed.
pub type KeyValue<K> = (<K as Kind>::KeyBuf, Option<<K as Kind>::ValueBuf>);

/// The decision of an update.
pub type Change<'a, V> = Decision<Cow<'a, V>>;

/// Decides the new state of a key from its current value.
pub type Decide<'d, V> = dyn FnMut(Option<&V>) -> Change<'static, V> + 'd;

/// Writes the next pair into its arguments. False at the end.
pub type NextPair<'n, K> =
    dyn FnMut(&mut <K as Kind>::KeyBuf, &mut <K as Kind>::ValueBuf) -> Result<bool> + 'n;

/// Number of keys. Its text is the number, with "at least" before it while `pending` is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Keys counted so far.
    pub keys: u64,
    /// True while the count after a crash is running. Then `keys` is a lower bound.
    pub pending: bool,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.pending { "at least " } else { "" }, self.keys)
    }
}

/// Default fill factor of leaves that are written in key order. The free space delays splits by later writes.
pub const FILL: f64 = 0.9;

/// The writer's lock, held for several changes. Each change is durable by itself when its call returns.
///
/// # Errors
/// Every method: as the method of the same name in [`Index`].
pub trait Session<K: Kind> {
    /// Stores a value. True if the key was present.
    fn put(&mut self, key: &K::Key, value: &K::Value) -> Result<bool>;
    /// Removes a key. True if the key was present.
    fn delete(&mut self, key: &K::Key) -> Result<bool>;
}

/// The contents of an index at one moment. The index keeps them until the view is dropped.
///
/// # Errors
/// Every method: `TakenBack` if a rollback removed the version; `SnapshotBytes` if before-images of the view were dropped; `Corrupt`.
pub trait View<K: Kind>: Send + Sync {
    /// The version; `None` if the engine has no versions.
    fn version(&self) -> Option<u64> {
        None
    }
    /// Number of keys; `None` if it is not known without counting.
    fn keys(&self) -> Option<u64> {
        None
    }
    /// Copies the value of `key` into `value`. False if the key was absent.
    fn get(&self, key: &K::Key, value: &mut K::ValueBuf) -> Result<bool>;
    /// A cursor over the keys of the view.
    fn cursor(&self) -> Box<dyn Cursor<K> + '_>;
    /// For a view of a table: the table that had this name at the moment of the view, at the same moment. `None` if there was none, or if
    /// the index has no tables.
    fn table(&self, _name: &str) -> Result<Option<Box<dyn View<K> + '_>>> {
        Ok(None)
    }
}

/// The versions of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Versions {
    /// The oldest readable version without a name.
    pub oldest: u64,
    /// The newest durable version.
    pub newest: u64,
    /// Versions with names, oldest first.
    pub named: Vec<NamedVersion>,
}

/// A version with a name. It is kept, also through restarts, until its name is removed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct NamedVersion {
    /// The name.
    pub name: String,
    /// The version number.
    pub version: u64,
    /// Number of keys in this version.
    pub keys: u64,
}

/// The rule for keeping versions that have no reader and no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retain {
    /// Only the newest version.
    Newest,
    /// This many of the newest versions. A version is a write or a batch.
    Versions(u64),
    /// The versions of this last period, counted from the opening of the store.
    Age(Duration),
}

/// Access to earlier versions.
///
/// # Errors
/// Every method: `Full` or `NoSpace`, `Io`, `Corrupt`.
pub trait History<K: Kind>: Send + Sync {
    /// A version; `None` if it is not kept.
    fn at(&self, version: u64) -> Option<Box<dyn View<K> + '_>>;
    /// The version with this name; `None` if there is none.
    fn named(&self, name: &str) -> Option<Box<dyn View<K> + '_>>;
    /// The versions that are kept.
    fn versions(&self) -> Versions;
    /// Durably gives the newest version a name. False if the name exists.
    fn keep(&self, name: &str) -> Result<bool>;
    /// Durably removes a name. False if the name does not exist.
    fn forget(&self, name: &str) -> Result<bool>;
    /// Sets the rule for keeping versions.
    fn retain(&self, what: Retain);
    /// Rolls back all writes after this version, in one atomic step. False if the version is not kept.
    fn roll_back(&self, version: u64) -> Result<bool>;
}

/// The life cycle of an index, for all kinds of keys and values. [`Life`](crate::Life) implements it for every engine that embeds the
/// kernel.
pub trait Lifecycle: Send + Sync {
    /// Makes writes without `sync` durable as promised.
    ///
    /// # Errors
    /// As [`Life::commit`](crate::Life::commit).
    fn commit(&self) -> Result<()>;
    /// True if every write was durable at the time of this call. Then a read is unlikely to wait for a commit.
    fn is_quiet(&self) -> bool;
    /// The newest durable ticket ([`pmem::pending::defer_waits`]). All lower tickets are durable, too.
    fn durable_ticket(&self) -> u64 {
        u64::MAX
    }
    /// Waits until a ticket is durable.
    ///
    /// # Errors
    /// As [`Life::commit`](crate::Life::commit): its group was rolled back.
    fn wait_for_ticket(&self, _ticket: u64) -> Result<()> {
        Ok(())
    }
    /// Makes all acknowledged writes survive a power failure, as far as the medium can.
    ///
    /// # Errors
    /// As [`Life::sync`](crate::Life::sync).
    fn sync(&self) -> Result<()>;
    /// Refuses all later writes. After that, the index needs no close. Used for an index over a private mapping.
    fn refuse_writes(&self);
    /// Runs `run` while no other thread writes.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly` or `Failed`: `run` was not called.
    fn hold_writers(&self, run: &mut dyn FnMut()) -> Result<()>;
    /// Closes the index cleanly: the next open finds an exact count and has nothing to recover. Later writes are refused.
    ///
    /// # Errors
    /// As [`Life::close`](crate::Life::close).
    fn close(&self) -> Result<()>;
    /// Copies the files of an index in files of its own ([`Files`]) into a directory, in the state of one moment. Returns the number of bytes.
    /// `progress` gets the copied bytes and all bytes.
    ///
    /// # Errors
    /// `Unsupported` for other indexes; `NoSpace`; `Io`; `Failed`.
    fn copy_files(&self, _to: &Path, _progress: &dyn Fn(u64, u64)) -> Result<u64> {
        Err(pmem::Error::Unsupported { engine: "this engine", what: "files of its own" })
    }
    /// Makes the files of an index in files of its own as small as the pairs allow. `progress` gets the finished and all steps.
    ///
    /// # Errors
    /// `Unsupported` for other indexes; `NoSpace`; `Io`; `Failed`.
    fn compact_files(&self, _progress: &dyn Fn(u64, u64)) -> Result<()> {
        Err(pmem::Error::Unsupported { engine: "this engine", what: "files of its own" })
    }
    /// Sets the bound of the memory for before-images in bytes. No effect on an index without before-images.
    fn set_snapshot_bytes(&self, bytes: u64);
    /// The identity in the region's superblock. `None` without a region.
    fn identity(&self) -> Option<&Identity>;
    /// Size of the region, or of the used memory, in bytes.
    fn region_bytes(&self) -> u64;
    /// The use of the region's bytes.
    fn usage(&self) -> Usage;
    /// The work of an index whose pages are partly outside of memory. `None` for other indexes.
    fn paging(&self) -> Option<Paging> {
        None
    }
    /// Bytes that a latch-free index has removed but not freed yet. `None` for an index with locks.
    fn limbo_bytes(&self) -> Option<u64> {
        None
    }
}

/// An index over keys and values of one kind, ordered or hashed. Threads share it.
///
/// # Errors
/// Every method: `Full` or `NoSpace` if there is no space, `TooLarge` if a change or a batch is too large, `ValueBytes` or `Length` if a
/// key or value has a wrong length, `Io` if a system call fails, `Corrupt`, `Closed`, `ReadOnly`, `Failed`.
#[allow(clippy::len_without_is_empty)] // the count may be incomplete, so "empty" may have no answer
pub trait Index<K: Kind>: Lifecycle {
    /// Copies the value of `key` into `value` (if given). False if the key is absent.
    fn get(&self, key: &K::Key, value: Option<&mut K::ValueBuf>) -> Result<bool>;
    /// Stores a value. True if the key was present.
    fn put(&self, key: &K::Key, value: &K::Value, how: WriteOptions) -> Result<bool>;
    /// Removes a key. True if the key was present.
    fn delete(&self, key: &K::Key, how: WriteOptions) -> Result<bool>;
    /// Stores a value, or removes the key. Returns whether the key was present; `None` if the index did not read the key. Then
    /// [`Index::len`] is pending.
    fn set(&self, key: &K::Key, value: Option<&K::Value>, how: WriteOptions) -> Result<Option<bool>> {
        value.map_or_else(|| self.delete(key, how), |value| self.put(key, value, how)).map(Some)
    }
    /// Reads and changes one key in one step. No other write can come between.
    fn update(&self, key: &K::Key, decide: &mut Decide<'_, K::Value>, how: WriteOptions) -> Result<()>;
    /// Calls `give` with the value of each key, in order; `None` for an absent key. Stops when `give` returns false. With
    /// [`Capabilities::atomic_batch`], all or nothing of each batch is visible.
    fn get_each(&self, keys: &[&K::Key], give: &mut dyn FnMut(Option<K::ValueBuf>) -> bool) -> Result<()>;
    /// Applies many writes. Writes of the same key keep their order. Returns for each write whether its key was present.
    fn write_many(&self, writes: &[Write<'_, K::Key, K::Value>], how: WriteOptions) -> Result<Vec<bool>>;
    /// Puts and deletes several keys in one step, if all pairs of `expected` match. False if one does not match. `Unsupported` without
    /// [`Capabilities::atomic_batch`].
    fn batch(&self, writes: Vec<KeyValue<K>>, expected: &[KeyValue<K>], how: WriteOptions) -> Result<bool> {
        self.batch_found(writes, expected, how, &mut Vec::new())
    }
    /// As [`Index::batch`]. Sets `found`: for each key of the batch, in ascending order, whether it was present before. Empty if a
    /// condition did not match.
    fn batch_found(
        &self,
        writes: Vec<KeyValue<K>>,
        expected: &[KeyValue<K>],
        how: WriteOptions,
        found: &mut Vec<bool>,
    ) -> Result<bool>;
    /// Puts and deletes several keys in one step, each as [`Index::set`]. Returns for each key of the batch, in ascending order, whether it
    /// was present before. `Unsupported` as for [`Index::batch`].
    fn set_batch(&self, writes: Vec<KeyValue<K>>, how: WriteOptions) -> Result<Vec<Option<bool>>> {
        let mut found = Vec::new();
        self.batch_found(writes, &[], how, &mut found).map(|_| found.into_iter().map(Some).collect())
    }
    /// A cursor over the keys.
    fn cursor(&self) -> Box<dyn Cursor<K> + '_>;
    /// Opens a snapshot. Everything in it is durable as promised. `Unsupported` without [`Capabilities::snapshots`].
    fn snapshot(&self) -> Result<Box<dyn View<K> + '_>>;
    /// Durable versions; `None` without [`Capabilities::versions`].
    fn history(&self) -> Option<&dyn History<K>> {
        None
    }
    /// Stores the pairs that `next` returns, until it returns false. The pairs are in key order and above all keys of the index. If the
    /// engine is not [`Capabilities::ordered`], any order is allowed. `fill` is the fill factor of the new leaves, from 0 to 1, if the
    /// engine can choose it. Returns the number of pairs. `Order` if a key is not above all earlier ones; the pairs before it stay.
    fn append(&self, next: &mut NextPair<'_, K>, fill: f64) -> Result<u64>;
    /// The writer's lock for several changes; `None` if the engine would not gain by it. Other writers wait until the session is dropped. A
    /// thread with a session must not call methods that write or open a snapshot: it would wait for itself.
    fn session(&self) -> Result<Option<Box<dyn Session<K> + '_>>> {
        Ok(None)
    }
    /// Removes every key.
    fn clear(&self) -> Result<()>;
    /// Number of keys.
    fn len(&self) -> Count;
    /// Finishes the count of the keys, if it is still running.
    fn count_all(&self) -> Result<()> {
        Ok(())
    }
    /// The operations of tables. `None` if the keys are not those of several tables.
    fn tables(&self) -> Option<&dyn TableOps<K>> {
        None
    }
    /// True if the index has background work, now or later.
    fn has_maintenance(&self) -> bool {
        false
    }
    /// Does one bounded step of background work, such as counting after a crash or freeing old versions. Returns the pause before the next
    /// step; `None` if no work remains.
    fn maintain(&self) -> Option<Duration> {
        None
    }
    /// Verifies the whole index. Never panics, whatever the region contains.
    fn check(&self) -> Report;
    /// Measures the structure of the index, for benchmarks. All of `keys` are present; the engine may look them up to count comparisons.
    /// `None` if the engine does not measure its structure.
    fn anatomy(&self, _keys: &[K::KeyBuf]) -> Option<Anatomy> {
        None
    }
    /// For salvage: every entry of the leaf at this offset, complete or not. `region` may be damaged.
    fn salvage_leaf(_region: &Region<Native>, _leaf: u64) -> Vec<Salvaged<K>>
    where
        Self: Sized,
    {
        Vec::new()
    }
}

/// Milliseconds since 1970. `None`: a key does not expire.
pub type Deadline = Option<u64>;

/// The decision of the closure of [`TableOps::change`].
pub enum Next<V> {
    /// Leave the key as it is.
    Keep,
    /// Store this value with this deadline.
    Put(V, Deadline),
    /// Remove the key.
    Delete,
}

/// Decides the new value and deadline of a key from the current ones. `None` if the key is absent or its deadline has passed.
pub type DecideUntil<'d, K> =
    dyn FnMut(Option<(&<K as Kind>::Value, Deadline)>) -> Next<<K as Kind>::ValueBuf> + 'd;

/// The state of a table that all its handles share.
#[derive(Debug)]
pub struct Slot {
    /// The name. Empty for the default table.
    pub name: String,
    /// The number in the stored keys; 0 if the table was dropped.
    pub(crate) id: AtomicU32,
    /// Number of keys. Keys whose deadline has passed count until they are removed.
    pub(crate) keys: AtomicU64,
}

/// A key that a transaction read.
pub struct TableRead<K: Kind> {
    /// The table.
    pub table: Arc<Slot>,
    /// The key.
    pub key: K::KeyBuf,
    /// Its value; `None` if it was absent.
    pub value: Option<K::ValueBuf>,
    /// Its deadline. `None` if the transaction did not read it.
    pub deadline: Option<Deadline>,
}

/// A write of a transaction.
pub struct TableWrite<K: Kind> {
    /// The table.
    pub table: Arc<Slot>,
    /// The key.
    pub key: K::KeyBuf,
    /// The new value and deadline. `None` removes the key.
    pub next: Option<(K::ValueBuf, Deadline)>,
}

/// A transaction to be committed ([`TableOps::commit_tables`]).
pub struct Commit<'c, K: Kind> {
    /// The writes. If a key has several, the last one counts.
    pub writes: Vec<TableWrite<K>>,
    /// The keys that were read.
    pub reads: &'c [TableRead<K>],
    /// Checks further conditions: false if one does not hold. Runs while no other thread writes. It may read the index.
    pub validate: Option<&'c mut dyn FnMut() -> Result<bool>>,
}

/// Operations of a table, and of all tables of its index.
///
/// # Errors
/// Every method: as the writes of [`Index`]. `Dropped` if the table was dropped. `Length` for a key or a value that is too long for a
/// table.
pub trait TableOps<K: Kind>: Send + Sync {
    /// The table.
    fn slot(&self) -> &Arc<Slot>;
    /// Milliseconds since 1970, by the clock of the deadlines.
    fn now(&self) -> u64;
    /// Copies the value of a key, and returns its deadline. `None` if the key is absent.
    fn get_until(&self, key: &K::Key, value: &mut K::ValueBuf) -> Result<Option<Deadline>>;
    /// Reads and changes one key and its deadline in one step. `decide` may be called again if another thread changed the key.
    fn change(&self, key: &K::Key, decide: &mut DecideUntil<'_, K>, how: WriteOptions) -> Result<()>;
    /// Applies all writes in one step, if all conditions hold. False if one does not hold; then nothing has changed.
    fn commit_tables(&self, what: Commit<'_, K>, how: WriteOptions) -> Result<bool>;
    /// The table of this name. `None` if there is none and `create` is false. `TooLarge` if the name has more than 255 bytes, or if there
    /// are too many tables.
    fn table(&self, name: &str, create: bool) -> Result<Option<Arc<dyn Index<K>>>>;
    /// Removes a table in one step. Its keys are removed in the background. False if there is none.
    fn drop_table(&self, name: &str) -> Result<bool>;
    /// Exchanges the contents of two tables in one step. False if one of them does not exist.
    fn swap(&self, one: &str, other: &str) -> Result<bool>;
    /// Removes all keys of all tables but those with these names, in one step.
    fn clear_all_but(&self, kept: &[&str]) -> Result<()>;
    /// Number of deadlines of this table among the first `most` deadlines of all tables. O(`most`).
    fn deadlines(&self, most: usize) -> Result<u64>;
    /// At most `most` keys with deadlines, of all tables, in the order of deadlines. `position` is where the previous call ended; empty for
    /// the first deadline. The call sets it to its own end, and to empty after the last deadline. O(`most`).
    fn expiring(&self, position: &mut Vec<u8>, most: usize) -> Result<Vec<Expiring<K>>>;
    /// Calls `told` from now on with the table and the key of each removal of an expired key. Replaces an earlier one. `told` must not use
    /// the store.
    fn tell_expired(&self, told: OnExpired);
    /// The tables and their numbers of keys, by name.
    fn list(&self) -> Vec<(String, Count)>;
    /// The index that holds the keys of all tables, the catalog and the deadlines.
    fn stored(&self) -> &Arc<dyn Index<K>>;
    /// Reads the catalog and counts again, after a caller wrote to [`TableOps::stored`]. No other thread uses the tables.
    fn reload(&self) -> Result<()>;
    /// Removes all keys of dropped tables, and ends the background work. After that, only callers change the index.
    fn settle(&self) -> Result<()>;
    /// Gives up the counts: a close then neither reads all keys for them nor stores them. The next open counts again.
    fn give_up_counts(&self);
    /// After a salvage: reads the catalog and counts again. Keys of tables that the catalog does not have get tables with the names
    /// `salvaged-1`, `salvaged-2` …, by number. No other thread uses the tables.
    fn adopt(&self) -> Result<()>;
}

/// Gets the name of a table, empty for the default table, and a key.
pub type OnExpired = Arc<dyn Fn(&str, &[u8]) + Send + Sync>;

/// A key with a deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiring<K: Kind> {
    /// Name of its table. Empty for the default table.
    pub table: String,
    /// The key. It may have been removed, or have another deadline by now.
    pub key: K::KeyBuf,
    /// The deadline, in milliseconds since 1970.
    pub deadline: u64,
}

/// The structure of an index.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Anatomy {
    /// Number of leaves.
    pub leaves: u64,
    /// Bytes of a leaf.
    pub leaf_bytes: u64,
    /// Bytes of inner nodes or of the structure in their place, durable or volatile.
    pub extra_bytes: u64,
    /// Average number of comparisons to find a key's leaf. `None` if the engine does not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparisons: Option<f64>,
}

/// An entry that salvage found in a leaf.
pub struct Salvaged<K: Kind> {
    /// Key and value; `None` if the record is damaged.
    pub pair: Option<(K::KeyBuf, K::ValueBuf)>,
    /// The start version of the entry, if the engine has versions; otherwise 0.
    pub start: u64,
    /// True if the entry was replaced or removed.
    pub ended: bool,
}

impl<K: Kind> Salvaged<K> {
    /// Reads an entry of an engine without versions.
    pub fn of<M: Medium, S: SchemaOf<K>>(region: &Region<M>, entry: &Entry<S::Tail>) -> Self {
        let (mut key, mut value) = (K::KeyBuf::default(), K::ValueBuf::default());
        let is_whole = S::read_key(region.medium(), entry.key, &mut key)
            && S::read_value(region.medium(), entry, &mut value);
        Self { pair: is_whole.then_some((key, value)), start: 0, ended: false }
    }
}

/// Takes pairs from `next`: at most `most`, and about `bytes_most` bytes in total. Empty at the end.
///
/// # Errors
/// As `next`.
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

/// Options for creating or opening an index.
#[derive(Clone, Debug)]
pub struct Form {
    /// The engine's name, for the superblock.
    pub engine: &'static str,
    /// Cache lines of a node. (For an existing index, those of its creation.)
    pub node_lines: u64,
    /// Words of a value in an entry: 1, except for [`Fixed`] values. (For an existing index, those of its creation.)
    pub payload_words: usize,
    /// The region's fixed sizes; `None` for the engine's default. (For an existing index, those of its creation.)
    pub geometry: Option<Geometry>,
    /// The promised durability, for the superblock.
    pub durability: Durability,
    /// True for the keys of several tables ([`Tables`](crate::tables::Tables)), for the superblock. Only for keys and values of [`Bytes`].
    pub tables: bool,
    /// Number of striped version locks; a power of two.
    pub stripes: usize,
    /// Maximum size in bytes of an index without a region. (A medium has its own bound.)
    pub max_bytes: u64,
}

impl Form {
    /// The production settings.
    pub fn new(engine: &'static str, node_lines: u64, durability: Durability) -> Self {
        Self {
            engine,
            node_lines,
            payload_words: 1,
            geometry: None,
            durability,
            tables: false,
            stripes: STRIPES,
            max_bytes: 1 << 40,
        }
    }
}

/// Creates and opens an index over a medium.
pub trait Create<M: Medium>: Sized + Send + Sync + 'static {
    /// Creates an empty index in a new medium.
    ///
    /// # Errors
    /// `Nodes` for an invalid node size; the errors of growing the medium.
    fn create(medium: M, form: &Form) -> Result<Self>;

    /// Opens the index in a region. Recovers it if it was not closed. `path` is for error texts.
    ///
    /// # Errors
    /// `Mismatch` if the region contains another engine or kind; the errors of [`Region::open`] and of recovery.
    fn open(medium: M, path: &Path, form: &Form) -> Result<(Self, Found)>;
}

/// The directory of an index that keeps its contents in files of its own, not in a [`Medium`].
#[derive(Clone, Copy, Debug)]
pub struct Files<'f> {
    /// The directory. The caller has locked the store.
    pub dir: &'f Path,
    /// The names of the files begin with this and a dot.
    pub stem: &'f str,
    /// A random number, the same in all files of the store.
    pub id: u64,
    /// True if the files exist. Otherwise they are made.
    pub is_found: bool,
    /// Options. Node size, durability and tables of an existing index are those of its creation.
    pub form: &'f Form,
    /// Maximum bytes of memory for pages.
    pub memory_bytes: u64,
    /// Bytes of log after which the index makes a checkpoint.
    pub log_bytes: u64,
    /// True if new pages are compressed in their files. `None`: as at the last checkpoint; not in a new index.
    pub compresses: Option<bool>,
    /// True if pages are read and written without the page cache of the operating system.
    pub direct_io: bool,
    /// True if no file may change.
    pub read_only: bool,
}

/// An index in files of its own, and the state in which it was found.
pub type InFiles<K> = Result<(Arc<dyn Index<K>>, Found)>;

/// A function over the index type of an engine.
pub trait WithIndex<M: Medium, K: Kind> {
    /// The result.
    type Out;
    /// Called with the index type.
    fn with<I: Index<K> + Create<M>>(self) -> Self::Out;
}

/// An engine, for the registry.
pub trait Family: 'static {
    /// The engine's capabilities.
    const CAPABILITIES: Capabilities;
    /// The capabilities of its index in files of its own ([`Files`]). `None` if it has no such index.
    const FILES: Option<Capabilities> = None;
    /// Its index from byte strings to byte strings.
    type Bytes<M: Medium>: Index<Bytes> + Create<M>;
    /// Its index from integers to integers.
    type Words<M: Medium>: Index<U64> + Create<M>;
    /// Makes or opens its index from byte strings to byte strings in files of its own.
    ///
    /// # Errors
    /// `Unsupported` without [`Family::FILES`]; otherwise those of its files.
    fn bytes_in_files(_files: &Files<'_>) -> InFiles<Bytes> {
        Err(pmem::Error::Unsupported { engine: "this engine", what: "files of its own" })
    }
    /// Makes or opens its index from integers to integers in files of its own.
    ///
    /// # Errors
    /// As [`Family::bytes_in_files`].
    fn words_in_files(_files: &Files<'_>) -> InFiles<U64> {
        Err(pmem::Error::Unsupported { engine: "this engine", what: "files of its own" })
    }
    /// Calls `with` with its index from integers to byte strings of one length. `None` without [`Capabilities::fixed_values`].
    fn fixed<M: Medium, V: WithIndex<M, Fixed>>(_with: V) -> Option<V::Out> {
        None
    }
}

/// A function over an engine of the registry.
pub trait Visitor {
    /// The result.
    type Out;
    /// Called with the engine and its description.
    fn visit<F: Family>(self, about: &'static About) -> Self::Out;
}
