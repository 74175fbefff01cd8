//! Other ordered stores behind one interface, for benchmarks against Bristlecone.
//!
//! [`Competitor`] is a store that several threads share, [`Session`] its interface for one thread. The benchmark implements both for
//! Bristlecone. The other stores are here, each in a module with a feature. Without features only the interface is built.
//!
//! [`maps`] has maps in memory, for `bench bwtree`.
//!
//! Rules for competitors, required for a valid comparison:
//!
//! * P1: a write is durable, as the [`Promise`] says, when the call returns: with `Process` it survives `kill -9`, with `Power` it was
//!   synced. Each competitor has its cheapest setting with this durability. The output names the setting.
//! * P2: a batch is atomic: one commit.
//! * P3: a get sees every write that returned before it began. A scan sees the keys of one moment, if the store supports this.
//! * P4: data that fits into memory is cached, and nothing is compressed. So the competitors run at their best. Other settings have the
//!   competitor's defaults.
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
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;

/// Failure that an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

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
