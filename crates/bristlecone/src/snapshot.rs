//! `Snapshot`: a store as it was at one moment, and what else a store with durable versions can do.

use std::ops::RangeBounds;

use ::index::Kind;
use ::index::engine::{History, Retain, Versions, View};

use crate::error::{Error, Result};
use crate::store::{Scan, StoreOf};

/// A store as it was at one moment: whatever is written meanwhile, it shows the same. It takes no memory but for what is overwritten
/// while it lives. After a rollback to a version before it every read says so.
///
/// Engines with [versions](crate::Capabilities::versions) keep what is overwritten in the store. All others keep it in volatile memory, at
/// most [`Options::snapshot_bytes`](crate::Options::snapshot_bytes) of it: at that bound reads of the oldest snapshot fail with an error
/// that names the option, and younger snapshots go on. Such a snapshot ends with the process.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use bristlecone::{Options, Store};
/// let store = Store::open(dir.path(), Options { engine: Some("cdds".into()), ..Options::default() })?;
/// store.put(b"alice", b"10")?;
/// let before = store.snapshot()?;
/// store.put(b"alice", b"7")?;
/// assert_eq!(before.get(b"alice")?.as_deref(), Some(&b"10"[..]));
/// store.roll_back(&before)?;
/// assert_eq!(store.get(b"alice")?.as_deref(), Some(&b"10"[..]));
/// # Ok::<(), bristlecone::Error>(())
/// ```
pub struct Snapshot<'s, K: Kind> {
    view: Box<dyn View<K> + 's>,
}

impl<K: Kind> std::fmt::Debug for Snapshot<'_, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("version", &self.version()).finish_non_exhaustive()
    }
}

/// Errors of every method: see [`View`] and [`Kind::validate`].
#[allow(clippy::missing_errors_doc)]
impl<K: Kind> Snapshot<'_, K> {
    /// Its version: writes are numbered, and a batch is one of them (or some, if it is large). `None` of an engine that keeps no
    /// versions.
    pub fn version(&self) -> Option<u64> {
        self.view.version()
    }

    /// Number of keys, where that is known without counting.
    pub fn keys(&self) -> Option<u64> {
        self.view.keys()
    }

    /// True if the key was there.
    pub fn contains(&self, key: &K::Key) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// The value of `key` at that moment.
    pub fn get(&self, key: &K::Key) -> Result<Option<K::ValueBuf>> {
        K::validate(key, None)?;
        let mut value = K::ValueBuf::default();
        Ok(self.view.get(key, &mut value)?.then_some(value))
    }

    /// All pairs of that moment, in whatever order the engine has them.
    pub fn walk(&self) -> Scan<'_, K> {
        Scan::walk(self.view.cursor(), None)
    }

    /// The pairs of that moment in a range, in key order or (see [`Scan::descending`]) against it.
    pub fn scan(&self, range: impl RangeBounds<K::KeyBuf>) -> Scan<'_, K> {
        Scan::over(self.view.cursor(), &range)
    }
}

/// Errors of every method: [`Error::Option`] for an engine that keeps no versions (of [`StoreOf::snapshot`], that has no snapshots); see
/// [`History`].
#[allow(clippy::missing_errors_doc)]
impl<K: Kind> StoreOf<K> {
    /// The store as it is now, for good. What was written without sync is durable by then.
    pub fn snapshot(&self) -> Result<Snapshot<'_, K>> {
        Ok(Snapshot { view: self.engine().snapshot()? })
    }

    /// A transaction that only reads: the same as [`StoreOf::snapshot`].
    pub fn read_transaction(&self) -> Result<Snapshot<'_, K>> {
        self.snapshot()
    }

    /// The store as it was at a version that is kept ([`StoreOf::versions`]).
    pub fn snapshot_at(&self, version: u64) -> Result<Snapshot<'_, K>> {
        let view = self.history()?.at(version).ok_or_else(|| self.no_version(version))?;
        Ok(Snapshot { view })
    }

    /// The store as it was when this name was given ([`StoreOf::keep`]).
    pub fn snapshot_named(&self, name: &str) -> Result<Snapshot<'_, K>> {
        let view = self.history()?.named(name).ok_or_else(|| no_name(name))?;
        Ok(Snapshot { view })
    }

    /// Gives the newest version a name, durably: it is kept, through restarts, until it is forgotten or a rollback goes behind it.
    pub fn keep(&self, name: &str) -> Result<()> {
        match self.history()?.keep(name)? {
            true => Ok(()),
            false => Err(Error::Option(format!(
                "there is a version named {name:?} already: forget it, or choose another name"
            ))),
        }
    }

    /// Forgets a named version, durably: what only it kept is collected.
    pub fn forget(&self, name: &str) -> Result<()> {
        if self.history()?.forget(name)? { Ok(()) } else { Err(no_name(name)) }
    }

    /// Which versions can be read.
    pub fn versions(&self) -> Result<Versions> {
        Ok(self.history()?.versions())
    }

    /// Says which versions to keep from now on, until the store is closed.
    pub fn retain(&self, what: Retain) -> Result<()> {
        self.history()?.retain(what);
        Ok(())
    }

    /// Takes back every write since a snapshot, in one step: after a crash all of them are there or none. Snapshots, scans and named
    /// versions in between are of no use from then on: reads of them say so, the names are forgotten.
    pub fn roll_back(&self, to: &Snapshot<'_, K>) -> Result<()> {
        match to.version() {
            Some(version) => self.roll_back_to(version),
            None => Err(crate::registry::no_past(&self.engine().stats().engine)),
        }
    }

    /// As [`StoreOf::roll_back`], to a version that is kept.
    pub fn roll_back_to(&self, version: u64) -> Result<()> {
        if self.history()?.roll_back(version)? { Ok(()) } else { Err(self.no_version(version)) }
    }

    fn history(&self) -> Result<&dyn History<K>> {
        self.engine().history().ok_or_else(|| crate::registry::no_past(&self.engine().stats().engine))
    }

    fn no_version(&self, version: u64) -> Error {
        let (oldest, newest) = match self.history() {
            Ok(history) => (history.versions().oldest, history.versions().newest),
            Err(error) => return error,
        };
        Error::Option(format!(
            "version {version} is not kept: unnamed versions from {oldest} to {newest} are, but for those rolled back"
        ))
    }
}

fn no_name(name: &str) -> Error {
    Error::Option(format!("there is no version named {name:?}: `versions` lists those there are"))
}
