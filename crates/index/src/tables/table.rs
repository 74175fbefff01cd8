//! A table as an [`Index`]: it translates keys and values, and passes everything else to the index of all tables.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use pmem::alloc::Usage;
use pmem::region::Identity;
use pmem::{Error, Result};

use super::keys::{self, StoredKey, check_lengths, split_value, tag, tagged, untag};
use super::{Counted, Tables, UNSYNCED};
use crate::check::Report;
use crate::engine::{
    Commit, Count, Cursor, Deadline, Decide, DecideUntil, Expiring, History, Index, KeyValue, Lifecycle,
    Next, NextPair, OnExpired, Paging, Slot, TableOps, TableRead, TableWrite, View, take_pairs,
};
use crate::kind::Bytes;
use crate::sorting::last_of_each;
use crate::write::{Decision, Write, WriteOptions};

/// Maximum number of pairs that are written together by a load that cannot append, and about the maximum of their bytes.
const LOAD: (usize, u64) = (256, 1 << 20);

/// A handle of a table. A clone is cheap.
#[derive(Clone)]
pub struct Table {
    pub(super) tables: Arc<Tables>,
    pub(super) slot: Arc<Slot>,
}

impl Table {
    pub(super) fn new(tables: Arc<Tables>, slot: Arc<Slot>) -> Self {
        Self { tables, slot }
    }

    fn index(&self) -> &dyn Index<Bytes> {
        &*self.tables.index
    }

    /// Writes one key in an index without deadlines, and updates the count. Returns the result of `write`: true if the key was present.
    fn plain(
        &self,
        key: &[u8],
        how: WriteOptions,
        is_put: bool,
        write: impl FnOnce(&StoredKey, WriteOptions) -> Result<bool>,
    ) -> Result<bool> {
        let gate = self.tables.shared();
        let stored = StoredKey::new(self.slot.id()?, key);
        let found = write(&stored, how)?;
        gate.note(&self.slot, &stored, found, is_put);
        Ok(found)
    }
}

impl Lifecycle for Table {
    fn commit(&self) -> Result<()> {
        self.index().commit()
    }
    fn is_quiet(&self) -> bool {
        self.index().is_quiet()
    }
    fn durable_ticket(&self) -> u64 {
        self.index().durable_ticket()
    }
    fn wait_for_ticket(&self, ticket: u64) -> Result<()> {
        self.index().wait_for_ticket(ticket)
    }
    fn sync(&self) -> Result<()> {
        self.index().sync()
    }
    fn refuse_writes(&self) {
        self.tables.has_ended.store(true, Ordering::Release);
        self.index().refuse_writes();
    }
    fn hold_writers(&self, run: &mut dyn FnMut()) -> Result<()> {
        self.index().hold_writers(run)
    }
    fn close(&self) -> Result<()> {
        self.tables.close()
    }
    fn set_snapshot_bytes(&self, bytes: u64) {
        self.index().set_snapshot_bytes(bytes);
    }
    fn identity(&self) -> Option<&Identity> {
        self.index().identity()
    }
    fn region_bytes(&self) -> u64 {
        self.index().region_bytes()
    }
    fn usage(&self) -> Usage {
        self.index().usage()
    }
    fn paging(&self) -> Option<Paging> {
        self.index().paging()
    }
    fn limbo_bytes(&self) -> Option<u64> {
        self.index().limbo_bytes()
    }
}

impl Index<Bytes> for Table {
    fn get(&self, key: &[u8], value: Option<&mut Vec<u8>>) -> Result<bool> {
        let mut own = Vec::new();
        Ok(self.get_until(key, value.unwrap_or(&mut own))?.is_some())
    }

    fn put(&self, key: &[u8], value: &[u8], how: WriteOptions) -> Result<bool> {
        check_lengths(key, Some(value))?;
        if !self.tables.has_deadlines() {
            let value = tagged(value, None);
            return self.plain(key, how, true, |key, how| self.index().put(key, &value, how));
        }
        let mut found = false;
        let decide = &mut |old: Option<(&[u8], Deadline)>| {
            found = old.is_some();
            Next::Put(value.to_vec(), None)
        };
        self.change(key, decide, how)?;
        Ok(found)
    }

    fn delete(&self, key: &[u8], how: WriteOptions) -> Result<bool> {
        check_lengths(key, None)?;
        if !self.tables.has_deadlines() {
            return self.plain(key, how, false, |key, how| self.index().delete(key, how));
        }
        let mut found = false;
        let decide = &mut |old: Option<(&[u8], Deadline)>| {
            found = old.is_some();
            Next::Delete
        };
        self.change(key, decide, how)?;
        Ok(found)
    }

    fn set(&self, key: &[u8], value: Option<&[u8]>, how: WriteOptions) -> Result<Option<bool>> {
        if self.tables.has_deadlines() {
            return match value {
                Some(value) => self.put(key, value, how),
                None => self.delete(key, how),
            }
            .map(Some);
        }
        check_lengths(key, value)?;
        let gate = self.tables.shared();
        let stored = StoredKey::new(self.slot.id()?, key);
        let value = value.map(|value| tagged(value, None));
        let found = self.index().set(&stored, value.as_deref(), how)?;
        gate.note_set(&self.slot, gate.is_counted(&stored), found, value.is_some());
        Ok(found)
    }

    /// A new value keeps the deadline of the old one.
    fn update(&self, key: &[u8], decide: &mut Decide<'_, [u8]>, how: WriteOptions) -> Result<()> {
        let mut decide = |old: Option<(&[u8], Deadline)>| {
            let deadline = old.and_then(|(_, deadline)| deadline);
            match decide(old.map(|(value, _)| value)) {
                Decision::Keep => Next::Keep,
                Decision::Delete => Next::Delete,
                Decision::Put(value) => Next::Put(value.into_owned(), deadline),
            }
        };
        check_lengths(key, None)?;
        if self.tables.has_deadlines() {
            return self.change(key, &mut decide, how);
        }
        let (mut was_there, mut is_there, mut refused) = (false, false, Ok(()));
        let gate = self.tables.shared();
        let stored = StoredKey::new(self.slot.id()?, key);
        let mut decide = |old: Option<&[u8]>| {
            was_there = old.is_some();
            is_there = was_there;
            // A deadline that was set meanwhile is kept, and has its entry.
            let old = match old.map(split_value).transpose() {
                Ok(old) => old.filter(|(_, deadline)| !self.tables.is_past(*deadline)),
                Err(error) => {
                    refused = Err(error);
                    return Decision::Keep;
                }
            };
            match decide(old) {
                Next::Keep => Decision::Keep,
                Next::Delete => {
                    is_there = false;
                    Decision::Delete
                }
                Next::Put(value, deadline) => {
                    refused = check_lengths(key, Some(&value));
                    if refused.is_err() {
                        return Decision::Keep;
                    }
                    is_there = true;
                    Decision::Put(Cow::Owned(tagged(&value, deadline)))
                }
            }
        };
        self.index().update(&stored, &mut decide, how)?;
        gate.note(&self.slot, &stored, was_there, is_there);
        refused
    }

    fn get_each(&self, keys: &[&[u8]], give: &mut dyn FnMut(Option<Vec<u8>>) -> bool) -> Result<()> {
        keys.iter().try_for_each(|key| check_lengths(key, None))?;
        let id = self.slot.id()?;
        let stored: Vec<_> = keys.iter().map(|key| StoredKey::new(id, key)).collect();
        let mut damaged = Ok(());
        let give = &mut |value: Option<Vec<u8>>| {
            let mut value = value;
            match value.as_mut().map(untag).transpose() {
                Ok(deadline) => give(value.filter(|_| !self.tables.is_past(deadline.flatten()))),
                Err(error) => {
                    damaged = Err(error);
                    false
                }
            }
        };
        self.index().get_each(&stored.iter().map(|key| &**key).collect::<Vec<_>>(), give)?;
        damaged
    }

    fn write_many(&self, writes: &[Write<'_, [u8], [u8]>], how: WriteOptions) -> Result<Vec<bool>> {
        writes.iter().try_for_each(|write| match write {
            Write::Put(key, value) => check_lengths(key, Some(value)),
            Write::Delete(key) => check_lengths(key, None),
        })?;
        if self.tables.has_deadlines() {
            let each = || {
                let single = |write: &Write<'_, [u8], [u8]>| match write {
                    Write::Put(key, value) => self.put(key, value, UNSYNCED),
                    Write::Delete(key) => self.delete(key, UNSYNCED),
                };
                writes.iter().map(single).collect()
            };
            return self.tables.deferred(how, each);
        }
        let gate = self.tables.shared();
        let id = self.slot.id()?;
        let stored = writes.iter().map(|write| match write {
            Write::Put(key, value) => (StoredKey::new(id, key), Some(tagged(value, None))),
            Write::Delete(key) => (StoredKey::new(id, key), None),
        });
        let stored: Vec<_> = stored.collect();
        let writes: Vec<_> = stored
            .iter()
            .map(|(key, value)| match value {
                Some(value) => Write::Put(&**key, value.as_slice()),
                None => Write::Delete(&**key),
            })
            .collect();
        let found = self.index().write_many(&writes, how)?;
        for ((key, value), found) in stored.iter().zip(&found) {
            gate.note(&self.slot, key, *found, value.is_some());
        }
        Ok(found)
    }

    fn batch_found(
        &self,
        writes: Vec<KeyValue<Bytes>>,
        expected: &[KeyValue<Bytes>],
        how: WriteOptions,
        found: &mut Vec<bool>,
    ) -> Result<bool> {
        let table = &self.slot;
        let write = |(key, value): KeyValue<Bytes>| TableWrite {
            table: Arc::clone(table),
            key,
            next: value.map(|value| (value, None)),
        };
        let read = |(key, value): &KeyValue<Bytes>| TableRead {
            table: Arc::clone(table),
            key: key.clone(),
            value: value.clone(),
            deadline: None,
        };
        let reads: Vec<_> = expected.iter().map(read).collect();
        let writes = writes.into_iter().map(write).collect();
        self.tables.commit(Commit { writes, reads: &reads, validate: None }, how, found)
    }

    fn set_batch(&self, writes: Vec<KeyValue<Bytes>>, how: WriteOptions) -> Result<Vec<Option<bool>>> {
        if self.tables.has_deadlines() {
            let mut found = Vec::new();
            self.batch_found(writes, &[], how, &mut found)?;
            return Ok(found.into_iter().map(Some).collect());
        }
        writes.iter().try_for_each(|(key, value)| check_lengths(key, value.as_deref()))?;
        self.tables.deferred(how, || {
            let gate = self.tables.shared();
            let id = self.slot.id()?;
            let stored =
                writes.into_iter().map(|(key, value)| (StoredKey::new(id, &key).to_vec(), value.map(tag)));
            let batch = last_of_each(stored.collect());
            let written: Vec<_> =
                batch.iter().map(|(key, value)| (gate.is_counted(key), value.is_some())).collect();
            let found = self.index().set_batch(batch, UNSYNCED)?;
            for ((is_counted, is_there), found) in written.into_iter().zip(&found) {
                gate.note_set(&self.slot, is_counted, *found, is_there);
            }
            Ok(found)
        })
    }

    fn cursor(&self) -> Box<dyn Cursor<Bytes> + '_> {
        self.cursor_over(self.index().cursor())
    }

    fn snapshot(&self) -> Result<Box<dyn View<Bytes> + '_>> {
        // The gate keeps the table's number valid until the snapshot is open.
        let _gate = self.tables.shared();
        let (id, view) = (self.slot.id()?, self.index().snapshot()?);
        Ok(self.view(view, id))
    }

    fn history(&self) -> Option<&dyn History<Bytes>> {
        self.index().history().map(|_| self as _)
    }

    fn append(&self, next: &mut NextPair<'_, Bytes>, fill: f64) -> Result<u64> {
        if !self.is_last()? {
            return self.load(next);
        }
        let gate = self.tables.shared();
        let id = self.slot.id()?;
        let mut too_long = Ok(());
        let mut stored_next = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
            if !next(key, value)? {
                return Ok(false);
            }
            too_long = check_lengths(key, Some(value));
            if too_long.is_err() {
                return Ok(false);
            }
            *key = StoredKey::new(id, key).to_vec();
            value.push(0);
            Ok(true)
        };
        let appended = self.index().append(&mut stored_next, fill);
        // A failed load leaves an unknown number of pairs.
        let is_counted = match &appended {
            Ok(pairs) if matches!(gate.counted, Counted::All) => {
                self.slot.keys.fetch_add(*pairs, Ordering::Relaxed);
                true
            }
            _ => false,
        };
        drop(gate);
        if !is_counted {
            self.tables.count_again();
        }
        too_long?;
        appended
    }

    fn clear(&self) -> Result<()> {
        self.tables.clear(&self.slot)
    }

    fn len(&self) -> Count {
        self.tables.count_of(&self.tables.shared(), &self.slot)
    }

    fn count_all(&self) -> Result<()> {
        self.tables.count_all()
    }

    fn tables(&self) -> Option<&dyn TableOps<Bytes>> {
        Some(self)
    }

    fn has_maintenance(&self) -> bool {
        self.index().has_maintenance() || self.tables.has_upkeep()
    }

    fn maintain(&self) -> Option<Duration> {
        let (index, tables) = (self.index().maintain(), self.tables.maintain());
        index.into_iter().chain(tables).min()
    }

    fn check(&self) -> Report {
        self.tables.check()
    }
}

impl Table {
    /// True if no key is above the keys of this table. Then loaded keys can be appended.
    fn is_last(&self) -> Result<bool> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut cursor = self.index().cursor();
        cursor.seek(Bound::Unbounded, true)?;
        Ok(!cursor.next(&mut key, &mut value)? || key < keys::range(self.slot.id()?).1)
    }

    /// Loads pairs by ordinary writes.
    fn load(&self, next: &mut NextPair<'_, Bytes>) -> Result<u64> {
        let (mut loaded, mut last) = (0, None);
        loop {
            let pairs = take_pairs::<Bytes>(next, LOAD.0, LOAD.1)?;
            let Some((highest, _)) = pairs.last() else { break };
            let mut all = last.iter().chain(pairs.iter().map(|(key, _)| key));
            if !all.by_ref().is_sorted_by(|a, b| a < b) {
                return Err(Error::Order { loaded });
            }
            let writes: Vec<_> = pairs.iter().map(|(key, value)| Write::Put(&key[..], &value[..])).collect();
            self.write_many(&writes, UNSYNCED)?;
            loaded += pairs.len() as u64;
            last = Some(highest.clone());
        }
        self.index().commit()?;
        Ok(loaded)
    }
}

impl TableOps<Bytes> for Table {
    fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    fn now(&self) -> u64 {
        self.tables.now()
    }

    fn get_until(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Deadline>> {
        check_lengths(key, None)?;
        let stored = StoredKey::new(self.slot.id()?, key);
        if !self.index().get(&stored, Some(value))? {
            return Ok(None);
        }
        let deadline = untag(value)?;
        Ok((!self.tables.is_past(deadline)).then_some(deadline))
    }

    fn change(&self, key: &[u8], decide: &mut DecideUntil<'_, Bytes>, how: WriteOptions) -> Result<()> {
        check_lengths(key, None)?;
        self.tables.deferred(how, || self.tables.change(&self.slot, key, decide))
    }

    fn tell_expired(&self, told: OnExpired) {
        *self.tables.on_expired.write().unwrap_or_else(PoisonError::into_inner) = Some(told);
    }

    fn commit_tables(&self, what: Commit<'_, Bytes>, how: WriteOptions) -> Result<bool> {
        self.tables.commit(what, how, &mut Vec::new())
    }

    fn table(&self, name: &str, create: bool) -> Result<Option<Arc<dyn Index<Bytes>>>> {
        let slot = self.tables.find(name, create)?;
        Ok(slot.map(|slot| Arc::new(Self::new(Arc::clone(&self.tables), slot)) as _))
    }

    fn drop_table(&self, name: &str) -> Result<bool> {
        self.tables.drop_table(name)
    }

    fn swap(&self, one: &str, other: &str) -> Result<bool> {
        self.tables.swap(one, other)
    }

    fn clear_all_but(&self, kept: &[&str]) -> Result<()> {
        self.tables.clear_all_but(kept)
    }

    fn deadlines(&self, most: usize) -> Result<u64> {
        self.tables.deadlines_of(self.slot.id()?, most)
    }

    fn expiring(&self, position: &mut Vec<u8>, most: usize) -> Result<Vec<Expiring<Bytes>>> {
        self.tables.expiring(position, most)
    }

    fn list(&self) -> Vec<(String, Count)> {
        let gate = self.tables.shared();
        let count = |(name, slot): (&String, &Arc<Slot>)| (name.clone(), self.tables.count_of(&gate, slot));
        gate.slots.iter().map(count).collect()
    }

    fn stored(&self) -> &Arc<dyn Index<Bytes>> {
        &self.tables.index
    }

    fn settle(&self) -> Result<()> {
        self.tables.settle()
    }

    fn give_up_counts(&self) {
        self.tables.shared().is_stale.store(true, Ordering::Relaxed);
    }

    fn adopt(&self) -> Result<()> {
        self.tables.adopt()
    }

    fn reload(&self) -> Result<()> {
        self.tables.load(&mut self.tables.exclusive(), false)
    }
}
