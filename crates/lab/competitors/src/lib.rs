//! Other ordered stores behind one interface, for benchmarks against Bristlecone.
//!
//! [`Competitor`] is a store that several threads share, [`Session`] its interface for one thread. The stores are
//! here, each in a module with a feature. Without features only the interface is built.
//!
//! [`ours`] is Bristlecone behind this interface. [`chosen`] selects the stores of a run. [`place`] has their directory, [`pairs`] their keys
//! and values, [`syncs`] counts their syncs. [`maps`] has maps in memory, for `bench bwtree`.
//!
//! Rules for competitors, required for a valid comparison:
//!
//! * P1: a write is durable, as the [`Promise`] says, when the call returns: with `Process` it survives `kill -9`, with `Power` it was
//!   synced. Each competitor has its cheapest setting with this durability. The output names the setting.
//! * P2: a batch is atomic: one commit.
//! * P3: a get sees every write that returned before it began. A scan sees the keys of one moment, if the store supports this.
//! * P4: data that fits into memory is cached, and nothing is compressed. So the competitors run at their best. With
//!   [`Options::memory_bytes`] a store's cache and its write buffers together have this size. Other settings have the competitor's defaults.
//! * P5: [`Competitor::settle`] waits for the background work of writes, outside the measured time.
#![deny(unsafe_code)]

use std::path::Path;

#[cfg(feature = "berkeley")]
mod berkeley;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "lmdb")]
mod lmdb;
pub mod maps;
#[cfg(feature = "ours")]
pub mod ours;
pub mod pairs;
pub mod place;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
pub mod syncs;

/// Failure that an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// Death of the process.
    Process,
    /// Loss of power.
    Power,
}

impl std::fmt::Display for Promise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Promise::Process => "process",
            Promise::Power => "power",
        })
    }
}

/// Error of a store.
#[derive(Debug, thiserror::Error)]
#[error("{store} cannot {what}: {source}")]
pub struct Error {
    /// Name of the store.
    pub store: &'static str,
    /// The failed action.
    pub what: &'static str,
    /// The error of the store.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// Result of a store.
pub type Result<T> = std::result::Result<T, Error>;

/// Wraps an error of a store with the failed action.
pub fn refused<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    store: &'static str,
    what: &'static str,
) -> impl FnOnce(E) -> Error {
    move |source| Error { store, what, source: source.into() }
}

/// Options for opening a store.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Durability of acknowledged writes.
    pub promise: Promise,
    /// Maximum bytes of keys and values that it will hold. Sizes of maps and caches depend on it.
    pub bytes_max: u64,
    /// Bytes of memory for the store's cache and write buffers; `None` for a cache that holds everything.
    pub memory_bytes: Option<u64>,
}

impl Options {
    /// Bytes of a cache that also serves as write buffer.
    #[cfg(any(feature = "redb", feature = "berkeley", feature = "rocksdb", feature = "fjall"))]
    fn cache_bytes(&self) -> u64 {
        self.memory_bytes.unwrap_or_else(|| (self.bytes_max * CACHE_BYTES_PER_BYTE).max(CACHE_BYTES_MIN))
    }

    /// Bytes of a write buffer, and of a cache beside two write buffers. The size of the buffers is `None` if it is the store's default.
    #[cfg(any(feature = "rocksdb", feature = "fjall"))]
    fn split_cache(&self) -> (Option<u64>, u64) {
        match self.memory_bytes {
            None => (None, self.cache_bytes()),
            Some(bytes) => {
                let buffer = (bytes / 8).min(WRITE_BUFFER_MAX);
                (Some(buffer), bytes - 2 * buffer)
            }
        }
    }
}

/// Cache bytes per byte of a pair, for a cache that holds everything.
#[cfg(any(feature = "redb", feature = "berkeley", feature = "rocksdb", feature = "fjall"))]
const CACHE_BYTES_PER_BYTE: u64 = 4;
#[cfg(any(feature = "redb", feature = "berkeley", feature = "rocksdb", feature = "fjall"))]
const CACHE_BYTES_MIN: u64 = 1 << 30;
/// The default size of a write buffer in RocksDB and fjall.
#[cfg(any(feature = "rocksdb", feature = "fjall"))]
const WRITE_BUFFER_MAX: u64 = 64 << 20;

/// A kind of store.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Name in tables and on the command line.
    pub name: &'static str,
    /// Description of the settings for a durability.
    pub setting: fn(Promise) -> &'static str,
    /// Opens the store in an existing directory. Makes it if it does not exist.
    pub open: fn(&Path, &Options) -> Result<Box<dyn Competitor>>,
}

/// An open store. Dropping it closes it and ignores errors; [`Competitor::close`] returns them.
pub trait Competitor: Send + Sync {
    /// Returns a session for one thread.
    ///
    /// # Errors
    /// Errors of the store.
    fn session(&self) -> Result<Box<dyn Session + '_>>;
    /// Waits for the end of background work, which would affect the measurement of another store. A store without background threads
    /// returns at once.
    ///
    /// # Errors
    /// Errors of the store.
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    /// Closes the store.
    ///
    /// # Errors
    /// Errors of the store.
    fn close(self: Box<Self>) -> Result<()>;
}

/// The interface of a store for one thread. All methods return errors of the store.
#[allow(clippy::missing_errors_doc)]
pub trait Session {
    /// Stores a value.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Stores all pairs or none, in one commit.
    fn batch(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<()>;
    /// Copies a value into a buffer, replacing its contents. False if the key does not exist.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;
    /// Removes a key. Does nothing if the key does not exist.
    fn delete(&mut self, key: &[u8]) -> Result<()>;
    /// Calls `met` for the pairs from a key on, in key order, at most `limit`. Returns their number.
    fn scan(&mut self, from: &[u8], limit: u64, met: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64>;
}

/// Names of all stores that this crate supports, also those not in this build.
pub const NAMES: [&str; 5] = ["lmdb", "rocksdb", "redb", "fjall", "berkeley"];

/// The stores in this build.
pub const KINDS: &[Kind] = &[
    #[cfg(feature = "lmdb")]
    lmdb::KIND,
    #[cfg(feature = "rocksdb")]
    rocksdb::KIND,
    #[cfg(feature = "redb")]
    redb::KIND,
    #[cfg(feature = "fjall")]
    fjall::KIND,
    #[cfg(feature = "berkeley")]
    berkeley::KIND,
];

/// Error of a selection of stores.
#[derive(Debug, thiserror::Error)]
pub enum Choice {
    /// The name of the competitor is unknown.
    #[error("no store `{name}` to measure beside ours; there are {known}")]
    Unknown {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// This build does not contain the competitor.
    #[error(
        "{0} is not in this build: `cargo run --release -p bristlecone-lab --features competitors` has it (RocksDB and Berkeley DB are the \
         system's: apt-get install librocksdb-dev libdb5.3-dev)"
    )]
    NotBuilt(String),
}

/// Returns Bristlecone and the requested competitors, or all competitors of this build.
///
/// # Errors
/// A name that is unknown, or whose store is not in this build.
pub fn chosen(ours: Kind, only: Option<&[String]>) -> std::result::Result<Vec<Kind>, Choice> {
    for name in only.unwrap_or_default() {
        let built = KINDS.iter().any(|kind| kind.name == name) || name == ours.name;
        if !built && NAMES.contains(&name.as_str()) {
            return Err(Choice::NotBuilt(name.clone()));
        }
        if !built {
            return Err(Choice::Unknown { name: name.clone(), known: NAMES.join(", ") });
        }
    }
    let wanted = |kind: &&Kind| only.is_none_or(|only| only.iter().any(|name| name == kind.name));
    Ok(std::iter::once(ours).chain(KINDS.iter().filter(wanted).copied()).collect())
}

/// Berkeley DB without transactions, if it is in this build: it has no durability. For one thread it also has no locks.
pub fn plain(threads: usize) -> Option<Kind> {
    #[cfg(feature = "berkeley")]
    let kind = Some(if threads == 1 { berkeley::PLAIN } else { berkeley::SHARED });
    #[cfg(not(feature = "berkeley"))]
    let kind = None.filter(|_| threads > 0);
    kind
}

/// Pause between two checks whether background work has ended.
#[cfg(any(feature = "rocksdb", feature = "fjall"))]
const SETTLE_PAUSE: std::time::Duration = std::time::Duration::from_millis(2);
