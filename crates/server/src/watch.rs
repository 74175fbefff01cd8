//! Watched keys: WATCH must notice every write between it and EXEC, also one that restores the value.
//!
//! Only writes of the server count. A program that embeds the server and writes to the store through another handle breaks no watch.
//!
//! The table has a version for each watched key. A write increases the versions of its keys. WATCH remembers versions, and EXEC compares
//! them.
//!
//! Invariants:
//! * W1: every write of a command goes through [`Watches::write`], [`Watches::commit`] or [`Watches::clear`].
//! * W2: while any key is watched, a write holds the table's lock until the versions of its keys are increased. So no write is visible
//!   before its versions are, neither to WATCH nor to EXEC.
//! * W3: a write that found no watched keys holds the gate until it is done. WATCH closes the gate while it adds its keys. So such a write is
//!   complete before the keys count as watched.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;

use crate::shared::lock;

#[derive(Debug, Default)]
struct Entry {
    /// Number of connections that watch the key.
    watchers: usize,
    version: u64,
}

type Table = HashMap<Bytes, Entry>;

/// Increases the versions of the keys that are watched.
fn touch<'k>(table: &mut Table, keys: impl IntoIterator<Item = &'k [u8]>) {
    for key in keys {
        if let Some(entry) = table.get_mut(key) {
            entry.version += 1;
        }
    }
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
    /// Runs a write of these keys.
    pub fn write<'k, R>(&self, keys: impl IntoIterator<Item = &'k [u8]>, write: impl FnOnce() -> R) -> R {
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        if self.watched.load(Ordering::Acquire) == 0 {
            return write();
        }
        let mut table = lock(&self.table);
        let result = write();
        touch(&mut table, keys);
        result
    }

    /// Runs a write of all keys.
    pub fn clear<R>(&self, write: impl FnOnce() -> R) -> R {
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let mut table = lock(&self.table);
        let result = write();
        table.values_mut().for_each(|entry| entry.version += 1);
        result
    }

    /// Runs the commit of a transaction that writes these keys. `None` if a key of `watching` was written after WATCH: then `commit` did not
    /// run.
    pub fn commit<R>(
        &self,
        watching: Option<&Watching>,
        keys: &[Vec<u8>],
        commit: impl FnOnce() -> R,
    ) -> Option<R> {
        let Some(watching) = watching else {
            return Some(self.write(keys.iter().map(Vec::as_slice), commit));
        };
        let mut table = lock(&self.table);
        if watching.is_broken_in(&table) {
            return None;
        }
        let result = commit();
        touch(&mut table, keys.iter().map(Vec::as_slice));
        Some(result)
    }
}

/// The watched keys of a connection, with their versions at WATCH. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watching {
    watches: Arc<Watches>,
    keys: Vec<(Bytes, u64)>,
}

impl Watching {
    /// Watches nothing yet.
    #[must_use]
    pub fn new(watches: &Arc<Watches>) -> Self {
        Self { watches: Arc::clone(watches), keys: Vec::new() }
    }

    /// Bytes of the watched keys.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.keys.iter().map(|(key, _)| key.len()).sum()
    }

    /// Watches more keys.
    pub fn add(&mut self, keys: &[Bytes]) {
        let _gate = self.watches.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut table = lock(&self.watches.table);
        for key in keys {
            if self.keys.iter().any(|(watched, _)| watched == key) {
                continue;
            }
            let entry = table.entry(key.clone()).or_default();
            entry.watchers += 1;
            self.keys.push((key.clone(), entry.version));
        }
        self.watches.watched.store(table.len(), Ordering::Release);
    }

    /// True if one of the keys was written after WATCH.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.is_broken_in(&lock(&self.watches.table))
    }

    fn is_broken_in(&self, table: &Table) -> bool {
        let is_same =
            |(key, version): &(Bytes, u64)| table.get(key).is_some_and(|entry| entry.version == *version);
        !self.keys.iter().all(is_same)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut table = lock(&self.watches.table);
        for (key, _) in self.keys.drain(..) {
            if let Some(entry) = table.get_mut(&key) {
                entry.watchers -= 1;
                if entry.watchers == 0 {
                    table.remove(&key);
                }
            }
        }
        self.watches.watched.store(table.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_write_of_a_watched_key_breaks_the_watch_and_others_do_not() {
        let watches = Arc::new(Watches::default());
        let keys = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];
        let write = |key: &'static [u8]| watches.write([key], || {});
        write(b"a");
        let mut first = Watching::new(&watches);
        first.add(&keys);
        first.add(&keys);
        assert_eq!(first.bytes(), 2);
        write(b"c");
        assert!(!first.is_broken());
        let mut second = Watching::new(&watches);
        second.add(&keys[1..]);
        write(b"a");
        assert!(first.is_broken() && !second.is_broken());
        assert_eq!(watches.commit(Some(&first), &[], || unreachable!("a was written")), None::<()>);
        assert_eq!(watches.commit(Some(&second), &[b"b".to_vec()], || 7), Some(7));
        assert!(second.is_broken(), "its own transaction wrote b");
        drop(first);
        drop(second);
        assert_eq!(watches.watched.load(Ordering::Relaxed), 0);
        let mut third = Watching::new(&watches);
        third.add(&keys);
        watches.clear(|| {});
        assert!(third.is_broken());
    }
}
