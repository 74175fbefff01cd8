//! Other ordered stores behind one interface, so that they can be measured beside ours.
//!
//! [`Competitor`] is a store that several threads share, [`Session`] what one of them does with it. Ours implements them
//! too, in the benchmark; the others stand here, a module and a feature each. Without a feature only the interface is built.
//!
//! [`maps`] are those in memory alone, for `bench bwtree`.
//!
//! Rules for a competitor, without which a comparison says nothing:
//!
//! * P1: a write is kept, as the [`Promise`] says, when the call returns: with `Process` it survives `kill -9`, with
//!   `Power` it was synced. No cheaper setting, and no dearer one. The setting is named in the output.
//! * P2: a batch is atomic: one commit.
//! * P3: a get sees every write that returned before it began. A scan sees the keys of one moment, if the store can do that.
//! * P4: what fits into memory is cached, and nothing is compressed: the others compete at their best, with their own defaults
//!   for the rest.
//! * P5: what a write leaves to a background thread is waited for in [`Competitor::settle`], outside the measured time.
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

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// The death of the process.
    Process,
    /// The machine's losing power.
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

/// A store refused.
#[derive(Debug, thiserror::Error)]
#[error("{store} cannot {what}: {source}")]
pub struct Error {
    /// Which.
    pub store: &'static str,
    /// What it was asked for.
    pub what: &'static str,
    /// Its reason.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// Result of a store.
pub type Result<T> = std::result::Result<T, Error>;

/// Gives a store's own error its subject.
pub fn refused<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    store: &'static str,
    what: &'static str,
) -> impl FnOnce(E) -> Error {
    move |source| Error { store, what, source: source.into() }
}

/// How to open a store.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What it promises.
    pub promise: Promise,
    /// Bytes of keys and values that it will hold at most: sizes of maps and caches follow.
    pub bytes_max: u64,
}

/// A kind of store.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Name in tables and on the command line.
    pub name: &'static str,
    /// How it keeps a promise, in words.
    pub setting: fn(Promise) -> &'static str,
    /// Opens the store in an existing directory, makes it if there is none.
    pub open: fn(&Path, &Options) -> Result<Box<dyn Competitor>>,
}

/// A store in use. Dropping it closes it, whatever happens; [`Competitor::close`] tells whether all went well.
pub trait Competitor: Send + Sync {
    /// What one thread needs.
    ///
    /// # Errors
    /// What the store may say.
    fn session(&self) -> Result<Box<dyn Session + '_>>;
    /// Waits until nothing goes on in the background, which would be measured as another store's. A store without threads of its
    /// own has nothing to wait for.
    ///
    /// # Errors
    /// What the store may say.
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    /// Closes the store.
    ///
    /// # Errors
    /// What the store may say.
    fn close(self: Box<Self>) -> Result<()>;
}

/// A thread's way to a store. Errors of every method: what the store may say.
#[allow(clippy::missing_errors_doc)]
pub trait Session {
    /// Stores a value.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Stores all of them or none, in one commit.
    fn batch(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<()>;
    /// Copies a value into a buffer, which it replaces; false if there is none.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;
    /// Removes a key, if it is there.
    fn delete(&mut self, key: &[u8]) -> Result<()>;
    /// Meets the pairs from a key on, in key order, at most so many. Their number.
    fn scan(&mut self, from: &[u8], limit: u64, met: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64>;
}

/// The names of all stores that this crate knows, built or not.
pub const NAMES: [&str; 5] = ["lmdb", "rocksdb", "redb", "fjall", "berkeley"];

/// The stores that were built.
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

/// Berkeley DB without transactions, if it was built: it keeps no promise. For one thread it has no locks either.
pub fn plain(threads: usize) -> Option<Kind> {
    #[cfg(feature = "berkeley")]
    let kind = Some(if threads == 1 { berkeley::PLAIN } else { berkeley::SHARED });
    #[cfg(not(feature = "berkeley"))]
    let kind = None.filter(|_| threads > 0);
    kind
}

/// How long a settling store is left alone before it is asked again.
#[cfg(any(feature = "rocksdb", feature = "fjall"))]
const SETTLE_PAUSE: std::time::Duration = std::time::Duration::from_millis(2);
