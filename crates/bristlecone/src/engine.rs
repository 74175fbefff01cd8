//! The `Engine` trait: what every index offers to a [`Store`](crate::Store), as an object.

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

use ::index::{Write, WriteOptions};
use pmem::copy::Progress;

use crate::backup::Backup;
use crate::error::Result;
use crate::latency::LatencyStats;

/// What keys and values are. Implemented by [`Bytes`], [`U64`] and [`Fixed`] only.
pub trait Kind: Debug + Copy + Send + Sync + 'static {
    /// A key as it is passed in.
    type Key: ?Sized + Ord + Debug;
    /// A key as it is handed out.
    type KeyBuf: Ord + Clone + Debug + Default + Send + Sync;
    /// A value as it is passed in.
    type Value: ?Sized + PartialEq + Debug;
    /// A value as it is handed out.
    type ValueBuf: Clone + Debug + Default + Send + Sync;
    /// Name for people; see [`Stats::kind`] for that of a store.
    const NAME: &'static str;

    /// Borrows a key.
    fn key(buf: &Self::KeyBuf) -> &Self::Key;
    /// Borrows a value.
    fn value(buf: &Self::ValueBuf) -> &Self::Value;
    /// Copies a key.
    fn own_key(key: &Self::Key) -> Self::KeyBuf;
    /// Copies a value.
    fn own_value(value: &Self::Value) -> Self::ValueBuf;
    /// Refuses a key or value that is out of bounds.
    ///
    /// # Errors
    /// `KeyLength` or `ValueLength`.
    fn validate(key: &Self::Key, value: Option<&Self::Value>) -> Result<()>;
    /// Fewest bytes that a key and a value take from a user's point of view, for space accounting.
    fn payload_bytes(key: &Self::Key, value: &Self::Value) -> u64;
}

/// Keys of 1 to 65,535 bytes, values of 0 to 256 MiB.
#[derive(Clone, Copy, Debug)]
pub struct Bytes;

/// 64-bit keys to 64-bit values.
#[derive(Clone, Copy, Debug)]
pub struct U64;

/// 64-bit keys to bytes of one length, which stand inside the index's entries: what fits is one cache miss nearer, and a change
/// of it costs its whole length. A store says when it is made how many bytes its values have
/// ([`Options::value_bytes`](crate::Options::value_bytes)).
#[derive(Clone, Copy, Debug)]
pub struct Fixed;

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Longest value in bytes.
pub const VALUE_BYTES_MAX: usize = 256 << 20;

impl Kind for Bytes {
    type Key = [u8];
    type KeyBuf = Vec<u8>;
    type Value = [u8];
    type ValueBuf = Vec<u8>;
    const NAME: &'static str = "bytes";

    fn key(buf: &Vec<u8>) -> &[u8] {
        buf
    }
    fn value(buf: &Vec<u8>) -> &[u8] {
        buf
    }
    fn own_key(key: &[u8]) -> Vec<u8> {
        key.to_vec()
    }
    fn own_value(value: &[u8]) -> Vec<u8> {
        value.to_vec()
    }
    fn validate(key: &[u8], value: Option<&[u8]>) -> Result<()> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(crate::Error::KeyLength { bytes: key.len() });
        }
        match value {
            Some(value) if value.len() > VALUE_BYTES_MAX => {
                Err(crate::Error::ValueLength { bytes: value.len() })
            }
            _ => Ok(()),
        }
    }
    fn payload_bytes(key: &[u8], value: &[u8]) -> u64 {
        (key.len() + value.len()) as u64
    }
}

impl Kind for U64 {
    type Key = u64;
    type KeyBuf = u64;
    type Value = u64;
    type ValueBuf = u64;
    const NAME: &'static str = "u64";

    fn key(buf: &u64) -> &u64 {
        buf
    }
    fn value(buf: &u64) -> &u64 {
        buf
    }
    fn own_key(key: &u64) -> u64 {
        *key
    }
    fn own_value(value: &u64) -> u64 {
        *value
    }
    fn validate(_key: &u64, _value: Option<&u64>) -> Result<()> {
        Ok(())
    }
    fn payload_bytes(_key: &u64, _value: &u64) -> u64 {
        16
    }
}

impl Kind for Fixed {
    type Key = u64;
    type KeyBuf = u64;
    type Value = [u8];
    type ValueBuf = Vec<u8>;
    const NAME: &'static str = <::index::Fixed as ::index::Schema>::NAME;

    fn key(buf: &u64) -> &u64 {
        buf
    }
    fn value(buf: &Vec<u8>) -> &[u8] {
        buf
    }
    fn own_key(key: &u64) -> u64 {
        *key
    }
    fn own_value(value: &[u8]) -> Vec<u8> {
        value.to_vec()
    }
    /// How long values are is the store's to know: its engine refuses others.
    fn validate(_key: &u64, _value: Option<&[u8]>) -> Result<()> {
        Ok(())
    }
    fn payload_bytes(_key: &u64, value: &[u8]) -> u64 {
        8 + value.len() as u64
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
    /// Stores of [`Fixed`] values.
    pub fixed_values: bool,
}

/// A key and its value; none if it is absent, or is to be.
pub type Pair<K> = (<K as Kind>::KeyBuf, Option<<K as Kind>::ValueBuf>);

/// Decides, from a key's present value, what becomes of it.
pub type Decide<'d, V> = dyn FnMut(Option<&V>) -> Change<'static, V> + 'd;

/// Writes the next pair into its arguments; false at the end.
pub type NextPair<'n, K> =
    dyn FnMut(&mut <K as Kind>::KeyBuf, &mut <K as Kind>::ValueBuf) -> Result<bool> + 'n;

/// What an update decides to do with a key.
pub enum Change<'a, V: ?Sized + ToOwned> {
    /// Leave the key as it is.
    Keep,
    /// Store this value.
    Put(Cow<'a, V>),
    /// Remove the key.
    Delete,
}

/// Number of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Keys counted so far.
    pub keys: u64,
    /// True while keys are still being counted after a crash; `keys` is then a lower bound.
    pub pending: bool,
}

/// What a full verification found.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct CheckReport {
    /// Keys visited.
    pub keys: u64,
    /// Index nodes visited.
    pub nodes: u64,
    /// Levels of the tree, leaves included.
    pub levels: u64,
    /// Bytes in blocks that belong to somebody.
    pub live_bytes: u64,
    /// One sentence for each thing that is wrong; empty if the store is sound.
    pub problems: Vec<String>,
}

/// Sizes and counts of an open store.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Stats {
    /// Engine's name.
    pub engine: String,
    /// "bytes", "u64", or "u64, N bytes" where all values have N bytes.
    pub kind: String,
    /// What the memory is ("file", "tmpfs", "anonymous memory" …).
    pub medium: String,
    /// "process", "power" or "eadr".
    pub durability: String,
    /// Why that durability, in words for a person.
    pub durability_reason: String,
    /// Keys.
    pub keys: u64,
    /// True while keys are still being counted.
    pub keys_pending: bool,
    /// Bytes of the store's file, without its journal's; `None` if it has none in a directory, or that cannot be inspected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Bytes of the region, which is what the index is in. Over a journal the file has a page more, by which the journal is
    /// paired, and what it was given ahead of need. See [`Space`] for what they are used for.
    pub region_bytes: u64,
    /// Bytes of an index node.
    pub node_bytes: u64,
    /// Microseconds that open spent in recovery.
    pub recovery_us: u64,
    /// "new", "clean" or "recovered": how the store was found.
    pub opened: String,
    /// It was opened to be read only.
    pub read_only: bool,
    /// The journal, if the store has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalStats>,
    /// What was taken out of an index without locks and is not freed yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limbo: Option<LimboStats>,
    /// How long operations took since the store was opened.
    pub latency: LatencyStats,
}

/// What was taken out of an index while somebody could be looking at it. It is freed when nobody can be any more.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct LimboStats {
    /// Bytes of it.
    pub bytes: u64,
}

/// What a region's bytes are used for: `live_bytes`, `free_bytes` and `overhead_bytes` are all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Space {
    /// Bytes in blocks that hold nodes, records and separators: what was asked for, and what a block has more because blocks
    /// come in sizes. The same that [`CheckReport::live_bytes`] is.
    pub live_bytes: u64,
    /// Bytes that the store will use again before its file grows: blocks that hold nothing (for others of their size, until
    /// their chunk of 256 KiB is empty) and chunks that are empty.
    pub free_bytes: u64,
    /// What the format takes: superblock, log, heads and remainders of chunks; and chunks with damaged heads, of which nothing is
    /// used.
    pub overhead_bytes: u64,
}

/// Sizes and counts of a store's journal. Of one that is only read, what its file says; the rest is `None`.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct JournalStats {
    /// Bytes of groups that it has room for: opening after a crash reads this much.
    pub bytes: u64,
    /// Bytes of its file.
    pub file_bytes: u64,
    /// What is known to who has the store open alone.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub activity: Option<JournalActivity>,
}

/// What a journal holds and did.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct JournalActivity {
    /// Groups of writes that were made durable since the store was made.
    pub groups: u64,
    /// Of these, since it was opened.
    pub groups_since_open: u64,
    /// Syncs of both files that succeeded since it was opened, those of opening (or making) it among them.
    pub syncs_since_open: u64,
    /// Halves of the journal that were brought home since it was opened.
    pub checkpoints_since_open: u64,
    /// Bytes of groups that are not home: what opening would have to replay after a crash.
    pub waiting_bytes: u64,
    /// Groups that opening brought home.
    pub replayed_groups: u64,
    /// Bytes of the journal that they took.
    pub replayed_bytes: u64,
}

/// A position in key order, or in an order of the engine's own. It holds no lock; the store may change between two calls.
pub trait Cursor<K: Kind> {
    /// Places the cursor before the first key of `from` (ascending) or behind the last key of it (descending).
    ///
    /// # Errors
    /// `Pmem` for a corrupt store; `Unordered` if the engine keeps its keys in no order.
    fn seek(&mut self, from: Bound<&K::Key>, descending: bool) -> Result<()>;

    /// Places the cursor where a walk through all keys begins, or goes on behind this key, which need not be there any more. The
    /// order is the engine's own, and is the same in each walk.
    ///
    /// # Errors
    /// `Pmem` for a corrupt store.
    fn walk(&mut self, behind: Option<&K::Key>) -> Result<()> {
        self.seek(behind.map_or(Bound::Unbounded, Bound::Excluded), false)
    }

    /// Moves one key on in the direction of the last `seek` or `walk` and copies key and value out; false at the end.
    ///
    /// # Errors
    /// `Pmem` for a corrupt store.
    fn next(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool>;
}

/// What an engine held at one moment. It is kept as long as this lives.
///
/// # Errors
/// Every method: `Pmem` when the version was taken back by a rollback, when more was overwritten since than
/// [`Options::snapshot_bytes`](crate::Options::snapshot_bytes) lets the store keep, or when the store is corrupt.
pub trait View<K: Kind>: Send + Sync {
    /// The version; `None` of an engine that keeps no versions.
    fn version(&self) -> Option<u64>;
    /// Number of keys, where that is known without counting.
    fn keys(&self) -> Option<u64>;
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

/// Which versions are kept that nobody reads and that have no name.
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
/// Every method: `Pmem` when memory is full, the file system refuses, or the store is corrupt.
pub trait History<K: Kind>: Send + Sync
where
    K::Value: ToOwned,
{
    /// The newest durable version.
    fn snapshot(&self) -> Box<dyn View<K> + '_>;
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
    /// Takes back all writes since a version that is kept, in one atomic step; false if it is not kept.
    fn roll_back(&self, version: u64) -> Result<bool>;
}

/// An index over keys of one kind. Object-safe; shared between threads.
///
/// # Errors
/// Every method: `Pmem` when memory is full, the file system refuses, or the store is corrupt.
#[allow(clippy::len_without_is_empty)] // a count may be pending: "empty" has no answer then
pub trait Engine<K: Kind>: Send + Sync
where
    K::Value: ToOwned,
{
    /// What the engine can do.
    fn capabilities(&self) -> Capabilities;
    /// Copies the value of `key` into `value`; false if absent.
    fn get(&self, key: &K::Key, value: &mut K::ValueBuf) -> Result<bool>;
    /// True if the key is there.
    fn contains(&self, key: &K::Key) -> Result<bool>;
    /// Stores; true if a value was replaced.
    fn put(&self, key: &K::Key, value: &K::Value, how: WriteOptions) -> Result<bool>;
    /// Removes; true if the key was there.
    fn delete(&self, key: &K::Key, how: WriteOptions) -> Result<bool>;
    /// Reads and changes one key in one step: no other write comes between.
    fn update(&self, key: &K::Key, decide: &mut Decide<'_, K::Value>, how: WriteOptions) -> Result<()>;
    /// Makes what was written without sync as durable as was promised.
    fn commit(&self) -> Result<()>;
    /// True if a commit is a sync, and not done by the time that a write's fences are.
    fn commits_with_sync(&self) -> bool;
    /// True if everything was durable a moment ago: a read will hardly have to wait for a commit.
    fn is_quiet(&self) -> bool;
    /// Lets the processor bring in what reads of these keys will touch.
    fn prefetch(&self, keys: &[&K::Key]);
    /// Gives the values of many keys, in their order; `None` for an absent one. Ends when `give` returns false. They are of one moment
    /// if there are batches ([`Capabilities::atomic_batch`]).
    fn get_each(&self, keys: &[&K::Key], give: &mut dyn FnMut(Option<K::ValueBuf>) -> bool) -> Result<()>;
    /// Carries out many writes; says of each whether its key was there.
    fn write_many(&self, writes: &[Write<'_, K::Key, K::Value>], how: WriteOptions) -> Result<Vec<bool>>;
    /// Puts and removes several keys in one step, if all of `expected` are as they say; false if not. `NoBatches` without
    /// [`Capabilities::atomic_batch`].
    fn batch(&self, writes: Vec<Pair<K>>, expected: &[Pair<K>], how: WriteOptions) -> Result<bool>;
    /// A cursor over the keys.
    fn cursor(&self) -> Box<dyn Cursor<K> + '_>;
    /// Number of keys.
    fn len(&self) -> Count;
    /// Number of keys; if they are being counted, once that is done.
    fn count(&self) -> Result<u64> {
        Ok(self.len().keys)
    }
    /// Makes everything acknowledged survive the machine, as far as the medium can.
    fn sync(&self) -> Result<()>;
    /// Verifies everything.
    fn check(&self) -> Result<CheckReport>;
    /// What it is, sizes and counts; of latencies it knows nothing.
    fn stats(&self) -> Stats;
    /// What the region's bytes are used for.
    fn space(&self) -> Space;
    /// Makes a backup in `dir`, beside readers; `progress` is told bytes copied, and of how many.
    fn backup(&self, dir: &Path, progress: Progress<'_>) -> Result<Backup>;
    /// Stores the pairs that `next` writes into its arguments until it says false, in key order and above all keys that are
    /// there, into leaves that become nearly full; in any order, if the engine is not [`Capabilities::ordered`]. Returns how many.
    fn append(&self, next: &mut NextPair<'_, K>) -> Result<u64>;
    /// Removes every key.
    fn clear(&self) -> Result<()>;
    /// What is there now, for good; everything in it is durable as promised. `None` of an engine without
    /// [`Capabilities::snapshots`].
    fn snapshot(&self) -> Result<Option<Box<dyn View<K> + '_>>>;
    /// Durable versions, of an engine that has them ([`Capabilities::versions`]).
    fn history(&self) -> Option<&dyn History<K>>;
    /// Closes cleanly: the next open finds an exact count and nothing to recover. Later writes are refused.
    fn close(&self) -> Result<()>;
}
