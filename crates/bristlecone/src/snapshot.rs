//! `Snapshot`: the state of a store at one moment, and the operations of stores with durable versions.

use std::ops::RangeBounds;

use ::index::engine::{History, Retain, Versions, View};
use ::index::kind::{Bytes, Kind};

use crate::error::{Error, Result};
use crate::store::{Scan, StoreOf, prefix_range};

/// The state of a store at one moment. Later writes do not change it. It takes memory only for values that are overwritten while it exists.
/// After a rollback to an earlier version, every read returns an error.
///
/// Engines with [versions](crate::Capabilities::versions) keep overwritten values in the store. All other engines keep before-images in
/// volatile memory, at most [`Options::snapshot_bytes`](crate::Options::snapshot_bytes). At that bound, reads of the oldest snapshot fail
/// with an error that names the option; younger snapshots go on. Before-images end with the process.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use bristlecone::{Options, Store};
/// let store = Store::open(dir.path(), Options::default().engine("cdds"))?;
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
    /// True if the store has tables.
    has_tables: bool,
}

impl<K: Kind> std::fmt::Debug for Snapshot<'_, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("version", &self.version()).finish_non_exhaustive()
    }
}

/// Errors of every method: those of [`View`] and [`Kind::validate`].
#[allow(clippy::missing_errors_doc)]
impl<K: Kind> Snapshot<'_, K> {
    /// The number of the version. Each write makes a new version. A batch makes one version, or several if it is large. `None` if the
    /// engine has no versions.
    pub fn version(&self) -> Option<u64> {
        self.view.version()
    }

    /// Number of keys. `None` if it is not known without counting.
    pub fn keys(&self) -> Option<u64> {
        self.view.keys()
    }

    /// True if the key was present.
    pub fn contains(&self, key: &K::Key) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// The value of `key` at that moment.
    pub fn get(&self, key: &K::Key) -> Result<Option<K::ValueBuf>> {
        K::validate(key, None)?;
        let mut value = K::ValueBuf::default();
        Ok(self.view.get(key, &mut value)?.then_some(value))
    }

    /// All pairs of that moment, in the engine's own order.
    pub fn walk(&self) -> Scan<'_, K> {
        Scan::walk(self.view.cursor(), None)
    }

    /// The pairs of that moment in a range, in key order. [`Scan::descending`] reverses the order.
    pub fn scan(&self, range: impl RangeBounds<K::KeyBuf>) -> Scan<'_, K> {
        Scan::over(self.view.cursor(), &range)
    }

    /// The table that had this name at that moment, as it was at that moment; the empty name is that of the default table. `None` if there
    /// was no such table. A table that was created, cleared, dropped or swapped later does not change the result. The views of all tables
    /// of one snapshot show the same moment: all or nothing of each transaction. Reads the names of all tables.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use bristlecone::{Options, Store};
    /// # let store = Store::open(dir.path(), Options::default())?;
    /// let (stock, sold) = (store.table("stock")?, store.table("sold")?);
    /// stock.put(b"apples", b"3")?;
    /// let before = store.snapshot()?;
    /// store.transaction(|all| {
    ///     all.table(&stock)?.delete(b"apples")?;
    ///     all.table(&sold)?.put(b"apples", b"3")
    /// })?;
    /// store.drop_table("stock")?;
    /// let (stock, sold) = (before.table("stock")?.unwrap(), before.table("sold")?.unwrap());
    /// assert_eq!((stock.get(b"apples")?, sold.get(b"apples")?), (Some(b"3".to_vec()), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `NoTables` if the store has none; otherwise as a read of this snapshot.
    pub fn table(&self, name: &str) -> Result<Option<Snapshot<'_, K>>> {
        if !self.has_tables {
            return Err(Error::NoTables);
        }
        Ok(self.view.table(name)?.map(|view| Snapshot { view, has_tables: true }))
    }
}

impl Snapshot<'_, Bytes> {
    /// The pairs of that moment whose keys start with `prefix`, in key order.
    pub fn scan_prefix(&self, prefix: &[u8]) -> Scan<'_, Bytes> {
        self.scan(prefix_range(prefix))
    }
}

/// Errors of every method: those of [`History`]; [`Error::Option`] if the engine has no versions (for [`StoreOf::snapshot`]: no snapshots),
/// if a version is not kept, or if a name does not exist (for [`StoreOf::keep`]: exists already).
#[allow(clippy::missing_errors_doc)]
impl<K: Kind> StoreOf<K> {
    fn snapshot_of<'s>(&self, view: Box<dyn View<K> + 's>) -> Snapshot<'s, K> {
        Snapshot { view, has_tables: self.has_tables() }
    }

    /// A snapshot of the current state: of this table, and of every other table by [`Snapshot::table`]. Writes without sync are durable
    /// before this returns.
    pub fn snapshot(&self) -> Result<Snapshot<'_, K>> {
        Ok(self.snapshot_of(self.index().snapshot()?))
    }

    /// A transaction that only reads. The same as [`StoreOf::snapshot`].
    pub fn read_transaction(&self) -> Result<Snapshot<'_, K>> {
        self.snapshot()
    }

    /// The state at a version that is kept ([`StoreOf::versions`]).
    pub fn snapshot_at(&self, version: u64) -> Result<Snapshot<'_, K>> {
        let view = self.history()?.at(version).ok_or_else(|| self.no_version(version))?;
        Ok(self.snapshot_of(view))
    }

    /// The state at the version with this name ([`StoreOf::keep`]).
    pub fn snapshot_named(&self, name: &str) -> Result<Snapshot<'_, K>> {
        let view = self.history()?.named(name).ok_or_else(|| no_name(name))?;
        Ok(self.snapshot_of(view))
    }

    /// Gives the latest version a name, durably. The version is kept, also through restarts, until the name is removed or a rollback goes
    /// to an earlier version.
    pub fn keep(&self, name: &str) -> Result<()> {
        match self.history()?.keep(name)? {
            true => Ok(()),
            false => Err(Error::Option(format!(
                "there is a version named {name:?} already: forget it, or choose another name"
            ))),
        }
    }

    /// Removes the name of a version, durably. Values that only this version kept are collected.
    pub fn forget(&self, name: &str) -> Result<()> {
        if self.history()?.forget(name)? { Ok(()) } else { Err(no_name(name)) }
    }

    /// The versions that can be read.
    pub fn versions(&self) -> Result<Versions> {
        Ok(self.history()?.versions())
    }

    /// Sets which versions are kept from now on, until the store is closed.
    pub fn retain(&self, what: Retain) -> Result<()> {
        self.history()?.retain(what);
        Ok(())
    }

    /// Rolls back every write since a snapshot, in one step. After a crash all of these writes are rolled back or none is. Later snapshots
    /// and scans become invalid: reads of them return an error. Names of later versions are removed.
    pub fn roll_back(&self, to: &Snapshot<'_, K>) -> Result<()> {
        match to.version() {
            Some(version) => self.roll_back_to(version),
            None => Err(crate::registry::no_past(&self.engine().stats().engine)),
        }
    }

    /// As [`StoreOf::roll_back`], to a version that is kept ([`StoreOf::versions`]).
    pub fn roll_back_to(&self, version: u64) -> Result<()> {
        if !self.history()?.roll_back(version)? {
            return Err(self.no_version(version));
        }
        // In a store with tables, the maintenance thread counts the keys of each table again.
        self.engine().start_maintenance();
        Ok(())
    }

    fn history(&self) -> Result<&dyn History<K>> {
        self.index().history().ok_or_else(|| crate::registry::no_past(&self.engine().stats().engine))
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
