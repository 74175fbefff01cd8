//! Watched keys: EXEC must notice every write since WATCH, even one that restores the value.
//!
//! Only writes of the server count. EXEC does not notice the writes of a program that embeds the server and writes to the store through
//! another handle.
//!
//! The table has a version for each watched key. A write increases the versions of its keys. WATCH remembers versions, and EXEC compares
//! them. WATCH also remembers the deadlines of the keys: a key that was present at WATCH and has expired at EXEC counts as changed,
//! although no command wrote it.
//!
//! Invariants:
//! * W1: every write of a command goes through [`Watches`].
//! * W2: while any key is watched, a write holds the table's lock until the versions of its keys are increased. WATCH and EXEC read
//!   versions under the same lock. So if a write is visible in the store, the versions that they read include its increase.
//! * W3: each write holds the gate, a read-write lock, for reading until it is done. WATCH holds the gate for writing while it adds its
//!   keys. So a write that found no watched keys is complete before the keys count as watched.
//! * W4: WATCH reads a deadline after it has remembered the version. So if a write changes the deadline in between, it also increases the
//!   version, and EXEC notices.

use std::collections::{HashMap, hash_map};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bristlecone::Deadline;
use bytes::Bytes;

use crate::shared::{TABLES, lock};
use crate::tracking::Tracking;

#[derive(Debug, Default)]
struct Entry {
    /// Number of connections that watch the key.
    watchers: usize,
    version: u64,
}

/// Approximate bytes of memory for a watched key in both tables, without the bytes of the key.
const ENTRY_BYTES: usize = 200;

/// The watched keys of each database.
type Table = [HashMap<Bytes, Entry>; TABLES];

/// The keys that a write changes.
#[derive(Clone, Copy)]
enum Changed<'k> {
    One(usize, &'k [u8]),
    Several(&'k [(usize, Vec<u8>)]),
    /// All keys of these databases.
    Databases(&'k [usize]),
}

impl Changed<'_> {
    /// Increases the versions of the keys that are watched.
    fn touch(self, table: &mut Table) {
        let mut touch = |db: usize, key: &[u8]| {
            if let Some(entry) = table[db].get_mut(key) {
                entry.version += 1;
            }
        };
        match self {
            Self::One(db, key) => touch(db, key),
            Self::Several(keys) => keys.iter().for_each(|(db, key)| touch(*db, key)),
            Self::Databases(all) => {
                for db in all {
                    table[*db].values_mut().for_each(|entry| entry.version += 1);
                }
            }
        }
    }

    /// Tells the clients that have the keys in a cache.
    fn invalidate(self, tracking: &Tracking) {
        match self {
            Self::One(_, key) => tracking.changed(key),
            Self::Several(keys) => keys.iter().for_each(|(_, key)| tracking.changed(key)),
            Self::Databases(_) => tracking.flushed(),
        }
    }
}

fn len(table: &Table) -> usize {
    table.iter().map(HashMap::len).sum()
}

/// The watched keys of all connections.
#[derive(Debug, Default)]
pub struct Watches {
    gate: RwLock<()>,
    /// Number of entries of the table.
    watched: AtomicUsize,
    table: Mutex<Table>,
    /// The clients that track keys. They use the gate, too.
    pub tracking: Arc<Tracking>,
}

impl Watches {
    /// Waits for the writes that run. Later ones see what the caller has changed before (W3).
    pub fn pass_gate(&self) {
        drop(self.gate.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Runs a write of a key.
    pub fn write<R>(&self, db: usize, key: &[u8], write: impl FnOnce() -> R) -> R {
        self.touching(Changed::One(db, key), || (write(), true))
    }

    /// Runs an operation that may write a key. The second result of `write` is true if it changed the key.
    pub fn write_if<R>(&self, db: usize, key: &[u8], write: impl FnOnce() -> (R, bool)) -> R {
        self.touching(Changed::One(db, key), write)
    }

    /// Runs a write of all keys of these databases.
    pub fn clear<R>(&self, databases: &[usize], write: impl FnOnce() -> R) -> R {
        self.touching(Changed::Databases(databases), || (write(), true))
    }

    /// Runs a write. If it changed something, then increases the versions of its keys (W2, W3), and tells the clients that track them.
    fn touching<R>(&self, keys: Changed<'_>, write: impl FnOnce() -> (R, bool)) -> R {
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let (result, changed) = if self.watched.load(Ordering::Acquire) == 0 {
            write()
        } else {
            let mut table = lock(&self.table);
            let (result, changed) = write();
            if changed {
                keys.touch(&mut table);
            }
            (result, changed)
        };
        if self.tracking.is_used() && changed {
            keys.invalidate(&self.tracking);
        }
        result
    }

    /// Runs the commit of a transaction that writes these keys: `commit` returns whether it took effect, or an error, after which the keys
    /// may be written. `None` if a key of `watching` was written after WATCH or has expired at the time of `now`: then `commit` did not run.
    pub fn commit<E>(
        &self,
        watching: Option<&Watching>,
        now: impl FnOnce() -> u64,
        keys: &[(usize, Vec<u8>)],
        commit: impl FnOnce() -> Result<bool, E>,
    ) -> Option<Result<bool, E>> {
        let keys = Changed::Several(keys);
        let commit = || {
            let committed = commit();
            let changed = !matches!(committed, Ok(false));
            (committed, changed)
        };
        let Some(watching) = watching else {
            return Some(self.touching(keys, commit));
        };
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let mut table = lock(&self.table);
        if watching.is_broken_in(&table, now()) {
            return None;
        }
        let (committed, changed) = commit();
        if changed {
            keys.touch(&mut table);
        }
        drop(table);
        if self.tracking.is_used() && changed {
            keys.invalidate(&self.tracking);
        }
        Some(committed)
    }
}

/// A key as WATCH found it.
#[derive(Debug)]
struct Watched {
    version: u64,
    /// The deadline. `None` also for a key that is absent or had expired: such a key cannot expire any more.
    deadline: Deadline,
}

/// The watched keys of a connection, with their versions and deadlines at WATCH. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watching {
    watches: Arc<Watches>,
    keys: HashMap<(usize, Bytes), Watched>,
}

impl Watching {
    /// Watches nothing yet.
    #[must_use]
    pub fn new(watches: &Arc<Watches>) -> Self {
        Self { watches: Arc::clone(watches), keys: HashMap::new() }
    }

    /// Approximate bytes of memory that the watched keys take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.keys.keys().map(|(_, key)| key.len() + ENTRY_BYTES).sum()
    }

    /// Watches more keys of a database. `deadline` reads the deadline of a key. A key that is watched already keeps what the first WATCH
    /// found.
    ///
    /// # Errors
    /// Those of `deadline`. All keys are watched then, but some without their deadlines.
    pub fn add<E>(
        &mut self,
        db: usize,
        keys: &[Bytes],
        mut deadline: impl FnMut(&[u8]) -> Result<Deadline, E>,
    ) -> Result<(), E> {
        let added = self.add_versions(db, keys);
        for key in added {
            let deadline = deadline(&key)?;
            if let Some(watched) = self.keys.get_mut(&(db, key)) {
                watched.deadline = deadline;
            }
        }
        Ok(())
    }

    /// Remembers the versions of keys (W3). Returns those that were not watched before.
    fn add_versions(&mut self, db: usize, keys: &[Bytes]) -> Vec<Bytes> {
        let mut added = Vec::new();
        let _gate = self.watches.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut table = lock(&self.watches.table);
        for key in keys {
            if let hash_map::Entry::Vacant(vacant) = self.keys.entry((db, key.clone())) {
                let entry = table[db].entry(key.clone()).or_default();
                entry.watchers += 1;
                vacant.insert(Watched { version: entry.version, deadline: None });
                added.push(key.clone());
            }
        }
        self.watches.watched.store(len(&table), Ordering::Release);
        added
    }

    /// True if one of the keys was written after WATCH, or has expired at this time, in milliseconds since 1970.
    #[must_use]
    pub fn is_broken(&self, now: u64) -> bool {
        self.is_broken_in(&lock(&self.watches.table), now)
    }

    fn is_broken_in(&self, table: &Table, now: u64) -> bool {
        let is_same = |((db, key), watched): (&(usize, Bytes), &Watched)| {
            watched.deadline.is_none_or(|deadline| deadline > now)
                && table[*db].get(key).is_some_and(|entry| entry.version == watched.version)
        };
        !self.keys.iter().all(is_same)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut table = lock(&self.watches.table);
        for ((db, key), _) in self.keys.drain() {
            if let Some(entry) = table[db].get_mut(&key) {
                entry.watchers -= 1;
                if entry.watchers == 0 {
                    table[db].remove(&key);
                }
            }
        }
        self.watches.watched.store(len(&table), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Commit = Result<bool, ()>;

    #[test]
    fn each_write_of_a_watched_key_breaks_the_watch_and_others_do_not() {
        let watches = Arc::new(Watches::default());
        let keys = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];
        let write = |key: &'static [u8]| watches.write(0, key, || {});
        let no_deadline = |_: &[u8]| Ok::<_, std::convert::Infallible>(None);
        write(b"a");
        let mut first = Watching::new(&watches);
        first.add(0, &keys, no_deadline).unwrap();
        first.add(0, &keys, no_deadline).unwrap();
        assert_eq!(first.bytes(), 2 * (1 + ENTRY_BYTES));
        write(b"c");
        watches.write(1, b"a", || {});
        watches.write_if(0, b"a", || ((), false));
        watches.clear(&[1, 2], || {});
        assert!(!first.is_broken(0));
        let mut second = Watching::new(&watches);
        second.add(0, &keys[1..], no_deadline).unwrap();
        write(b"a");
        assert!(first.is_broken(0) && !second.is_broken(0));
        assert_eq!(watches.commit(Some(&first), || 0, &[], || unreachable!("a was written")), None::<Commit>);
        let commit = |committed| watches.commit(Some(&second), || 0, &[(0, b"b".to_vec())], || committed);
        assert_eq!(commit(Ok::<_, ()>(false)), Some(Ok(false)));
        assert!(!second.is_broken(0), "its own transaction met a conflict");
        assert_eq!(commit(Ok(true)), Some(Ok(true)));
        assert!(second.is_broken(0), "its own transaction wrote b");
        drop(first);
        drop(second);
        assert_eq!(watches.watched.load(Ordering::Relaxed), 0);
        let mut third = Watching::new(&watches);
        third.add(0, &keys, no_deadline).unwrap();
        watches.clear(&[0], || {});
        assert!(third.is_broken(0));
    }

    #[test]
    fn a_watch_breaks_at_the_first_deadline_of_its_keys() {
        let watches = Arc::new(Watches::default());
        let keys = [Bytes::from_static(b"a"), Bytes::from_static(b"b"), Bytes::from_static(b"c")];
        let deadline = |key: &[u8]| Ok::<_, ()>(if key == b"c" { None } else { Some(u64::from(key[0])) });
        let mut watching = Watching::new(&watches);
        watching.add(0, &keys, deadline).unwrap();
        // The first WATCH of a key counts.
        watching.add(0, &keys, |_| Ok::<_, ()>(Some(1))).unwrap();
        let first = u64::from(b'a');
        assert!(!watching.is_broken(first - 1) && watching.is_broken(first));
        assert_eq!(watches.commit(Some(&watching), || first - 1, &[], || Ok::<_, ()>(true)), Some(Ok(true)));
        assert_eq!(
            watches.commit(Some(&watching), || first, &[], || unreachable!("a expired")),
            None::<Commit>
        );
        let mut refused = Watching::new(&watches);
        assert_eq!(refused.add(0, &keys, |_| Err("unreadable")), Err("unreadable"));
        drop((watching, refused));
        assert_eq!(watches.watched.load(Ordering::Relaxed), 0);
    }
}
