//! Watched keys: WATCH must notice every write between it and EXEC, also one that restores the value.
//!
//! Only writes of the server count. A program that embeds the server and writes to the store through another handle breaks no watch.
//!
//! The table has a version for each watched key. A write increases the versions of its keys. WATCH remembers versions, and EXEC compares
//! them.
//!
//! Invariants:
//! * W1: every write of a command goes through [`Watches`].
//! * W2: while any key is watched, a write holds the table's lock until the versions of its keys are increased. So no write is visible
//!   before its versions are, neither to WATCH nor to EXEC.
//! * W3: a write that found no watched keys holds the gate until it is done. WATCH closes the gate while it adds its keys. So such a write is
//!   complete before the keys count as watched.

use std::collections::{HashMap, hash_map};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;

use crate::shared::{DATABASES, lock};

#[derive(Debug, Default)]
struct Entry {
    /// Number of connections that watch the key.
    watchers: usize,
    version: u64,
}

/// Bytes of memory for a watched key beside its bytes, in both tables, about.
const ENTRY_BYTES: usize = 200;

/// The watched keys of each database.
type Table = [HashMap<Bytes, Entry>; DATABASES];

/// Increases the versions of the keys that are watched.
fn touch<'k>(table: &mut Table, keys: impl IntoIterator<Item = (usize, &'k [u8])>) {
    for (db, key) in keys {
        if let Some(entry) = table[db].get_mut(key) {
            entry.version += 1;
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
}

impl Watches {
    /// Runs a write of a key.
    pub fn write<R>(&self, db: usize, key: &[u8], write: impl FnOnce() -> R) -> R {
        self.touching(|table| touch(table, [(db, key)]), || (write(), true))
    }

    /// Runs a possible write of a key. `write` also returns true if it changed the key.
    pub fn write_if<R>(&self, db: usize, key: &[u8], write: impl FnOnce() -> (R, bool)) -> R {
        self.touching(|table| touch(table, [(db, key)]), write)
    }

    /// Runs a write of keys of several databases.
    pub fn write_all<R>(&self, keys: &[(usize, &[u8])], write: impl FnOnce() -> R) -> R {
        self.touching(|table| touch(table, keys.iter().copied()), || (write(), true))
    }

    /// Runs a write of all keys of these databases.
    pub fn clear<R>(&self, databases: &[usize], write: impl FnOnce() -> R) -> R {
        let touch_all = |table: &mut Table| {
            for db in databases {
                table[*db].values_mut().for_each(|entry| entry.version += 1);
            }
        };
        self.touching(touch_all, || (write(), true))
    }

    /// Runs a write. If it changed something, `touch` then increases the versions of its keys (W2, W3).
    fn touching<R>(&self, touch: impl FnOnce(&mut Table), write: impl FnOnce() -> (R, bool)) -> R {
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        if self.watched.load(Ordering::Acquire) == 0 {
            return write().0;
        }
        let mut table = lock(&self.table);
        let (result, changed) = write();
        if changed {
            touch(&mut table);
        }
        result
    }

    /// Runs the commit of a transaction that writes these keys. `None` if a key of `watching` was written after WATCH: then `commit` did not
    /// run.
    pub fn commit<R>(
        &self,
        watching: Option<&Watching>,
        keys: &[(usize, Vec<u8>)],
        commit: impl FnOnce() -> R,
    ) -> Option<R> {
        let keys = keys.iter().map(|(db, key)| (*db, key.as_slice()));
        let Some(watching) = watching else {
            return Some(self.touching(|table| touch(table, keys), || (commit(), true)));
        };
        let mut table = lock(&self.table);
        if watching.is_broken_in(&table) {
            return None;
        }
        let result = commit();
        touch(&mut table, keys);
        Some(result)
    }
}

/// The watched keys of a connection, with their versions at WATCH. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watching {
    watches: Arc<Watches>,
    /// The version of each key of a database.
    keys: HashMap<(usize, Bytes), u64>,
}

impl Watching {
    /// Watches nothing yet.
    #[must_use]
    pub fn new(watches: &Arc<Watches>) -> Self {
        Self { watches: Arc::clone(watches), keys: HashMap::new() }
    }

    /// Bytes that the watched keys take, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.keys.keys().map(|(_, key)| key.len() + ENTRY_BYTES).sum()
    }

    /// Watches more keys of a database.
    pub fn add(&mut self, db: usize, keys: &[Bytes]) {
        let _gate = self.watches.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut table = lock(&self.watches.table);
        for key in keys {
            if let hash_map::Entry::Vacant(vacant) = self.keys.entry((db, key.clone())) {
                let entry = table[db].entry(key.clone()).or_default();
                entry.watchers += 1;
                vacant.insert(entry.version);
            }
        }
        self.watches.watched.store(len(&table), Ordering::Release);
    }

    /// True if one of the keys was written after WATCH.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.is_broken_in(&lock(&self.watches.table))
    }

    fn is_broken_in(&self, table: &Table) -> bool {
        let is_same = |((db, key), version): (&(usize, Bytes), &u64)| {
            table[*db].get(key).is_some_and(|entry| entry.version == *version)
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

    #[test]
    fn each_write_of_a_watched_key_breaks_the_watch_and_others_do_not() {
        let watches = Arc::new(Watches::default());
        let keys = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];
        let write = |key: &'static [u8]| watches.write(0, key, || {});
        write(b"a");
        let mut first = Watching::new(&watches);
        first.add(0, &keys);
        first.add(0, &keys);
        assert_eq!(first.bytes(), 2 * (1 + ENTRY_BYTES));
        write(b"c");
        watches.write(1, b"a", || {});
        watches.write_if(0, b"a", || ((), false));
        watches.clear(&[1, 2], || {});
        assert!(!first.is_broken());
        let mut second = Watching::new(&watches);
        second.add(0, &keys[1..]);
        write(b"a");
        assert!(first.is_broken() && !second.is_broken());
        assert_eq!(watches.commit(Some(&first), &[], || unreachable!("a was written")), None::<()>);
        assert_eq!(watches.commit(Some(&second), &[(0, b"b".to_vec())], || 7), Some(7));
        assert!(second.is_broken(), "its own transaction wrote b");
        drop(first);
        drop(second);
        assert_eq!(watches.watched.load(Ordering::Relaxed), 0);
        let mut third = Watching::new(&watches);
        third.add(0, &keys);
        watches.clear(&[0], || {});
        assert!(third.is_broken());
    }
}
