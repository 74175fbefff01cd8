//! Changes of the catalog, counts, background work, and verification.

use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use pmem::pending::defer_waits;
use pmem::{Error, Result};

use super::catalog::{Catalog, DEFAULT, NAME_BYTES_MAX, TABLES_MAX, encode_counts};
use super::keys::{self, CATALOG, COUNTS, FIRST_TABLE, entry, split_entry, split_key, split_value};
use super::{Counted, Gate, Tables, UNSYNCED};
use crate::check::Report;
use crate::engine::{Count, Slot};
use crate::write::{Write, WriteOptions};

/// Maximum number of keys that one step counts, while writers wait.
const COUNT_STEP: usize = 256;
/// Maximum number of keys of dropped tables that one step removes.
const REMOVE_STEP: usize = 256;
/// Pause after a step that failed, for example because there is no space.
const PAUSE: Duration = Duration::from_millis(500);

impl Tables {
    /// Writes a changed catalog. When it is durable, changes the tables in memory (T7). No other write runs meanwhile.
    fn change_catalog<R>(
        &self,
        change: impl FnOnce(&mut Catalog, &Gate) -> Result<Option<R>>,
        adopt: impl FnOnce(&mut Gate, R),
    ) -> Result<bool> {
        let mut gate = self.exclusive();
        let write = || {
            let mut catalog = gate.catalog();
            let result = change(&mut catalog, &gate)?;
            if result.is_some() {
                self.index.put(CATALOG, &catalog.encode(), UNSYNCED)?;
            }
            Ok(result.map(|result| (result, catalog.dropped)))
        };
        let Some((result, dropped)) = self.deferred(WriteOptions::default(), write)? else {
            return Ok(false);
        };
        gate.dropped = dropped;
        adopt(&mut gate, result);
        Ok(true)
    }

    /// The table of this name. Makes it if there is none and `create` is set.
    pub(super) fn find(&self, name: &str, create: bool) -> Result<Option<Arc<Slot>>> {
        let find = |gate: &Gate| gate.slots.get(name).cloned();
        let found = find(&self.shared());
        if found.is_some() || !create {
            return Ok(found);
        }
        let make = |catalog: &mut Catalog, gate: &Gate| {
            if catalog.ids.contains_key(name) {
                return Ok(None);
            }
            let limits = [
                ("bytes of a table's name", name.len(), NAME_BYTES_MAX),
                ("tables", catalog.ids.len() + 1, TABLES_MAX),
            ];
            for (of, asked, limit) in limits {
                if asked > limit {
                    return Err(Error::TooLarge { of, asked: asked as u64, limit: limit as u64 });
                }
            }
            let id = catalog.free_id(&gate.retired);
            catalog.ids.insert(name.to_owned(), id);
            Ok(Some(id))
        };
        self.change_catalog(make, |gate, id| {
            gate.slots.insert(name.to_owned(), Arc::new(Slot::new(name, id)));
        })?;
        Ok(find(&self.shared()))
    }

    /// Drops a table. The default table is cleared instead, because it always exists.
    pub(super) fn drop_table(&self, name: &str) -> Result<bool> {
        if name == DEFAULT {
            let slot = self.find(name, false)?.ok_or(Error::Dropped)?;
            return self.clear(&slot).map(|()| true);
        }
        let drop = |catalog: &mut Catalog, _: &Gate| {
            let id = catalog.ids.remove(name);
            catalog.dropped.extend(id);
            Ok(id)
        };
        self.change_catalog(drop, |gate, _| {
            if let Some(slot) = gate.slots.remove(name) {
                slot.id.store(0, Ordering::Release);
            }
        })
    }

    /// Gives a table a new number, so that it is empty. Background work removes the keys of the old number.
    pub(super) fn clear(&self, slot: &Arc<Slot>) -> Result<()> {
        let renumber = |catalog: &mut Catalog, gate: &Gate| {
            let has_keys = self.has_keys(slot.id()?)?;
            Ok(has_keys.then(|| renumber(catalog, gate, &slot.name)))
        };
        self.change_catalog(renumber, |_, id| empty(slot, id)).map(drop)
    }

    /// True if a stored key has this number.
    fn has_keys(&self, id: u32) -> Result<bool> {
        let ((low, high), mut key, mut value) = (keys::range(id), Vec::new(), Vec::new());
        let mut cursor = self.index.cursor();
        cursor.seek(Bound::Included(&low), false)?;
        match cursor.next(&mut key, &mut value) {
            Ok(found) => Ok(found && key < high),
            // A damaged key may be one of the table.
            Err(Error::Corrupt { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Clears all tables but those with these names.
    pub(super) fn clear_all_but(&self, kept: &[&str]) -> Result<()> {
        let renumber_all = |catalog: &mut Catalog, gate: &Gate| {
            let mut cleared = Vec::new();
            for slot in gate.slots.values() {
                if !kept.contains(&&*slot.name) && self.has_keys(slot.id()?)? {
                    cleared.push((renumber(catalog, gate, &slot.name), Arc::clone(slot)));
                }
            }
            Ok((!cleared.is_empty()).then_some(cleared))
        };
        let adopt = |_: &mut Gate, slots: Vec<(u32, Arc<Slot>)>| {
            slots.iter().for_each(|(id, slot)| empty(slot, *id));
        };
        self.change_catalog(renumber_all, adopt).map(drop)
    }

    /// Exchanges the contents of two tables.
    pub(super) fn swap(&self, one: &str, other: &str) -> Result<bool> {
        let swap = |catalog: &mut Catalog, gate: &Gate| {
            let pair = (gate.slots.get(one).cloned(), gate.slots.get(other).cloned());
            let (Some(first), Some(second)) = pair else { return Ok(None) };
            catalog.ids.insert(one.to_owned(), second.id()?);
            catalog.ids.insert(other.to_owned(), first.id()?);
            Ok(Some((first, second)))
        };
        self.change_catalog(swap, |_, (first, second): (Arc<Slot>, Arc<Slot>)| {
            let id = first.id.load(Ordering::Acquire);
            first.id.store(second.id.load(Ordering::Acquire), Ordering::Release);
            second.id.store(id, Ordering::Release);
            let keys = first.keys.load(Ordering::Relaxed);
            first.keys.store(second.keys.load(Ordering::Relaxed), Ordering::Relaxed);
            second.keys.store(keys, Ordering::Relaxed);
        })
    }

    /// Number of keys of a table.
    pub(super) fn count_of(&self, gate: &Gate, slot: &Slot) -> Count {
        // Stale counts may be negative.
        let keys = slot.keys.load(Ordering::Relaxed).cast_signed().max(0).cast_unsigned();
        Count { keys, pending: !gate.has_counts() }
    }

    /// Forgets the counts. Background work, or a close, counts again.
    pub(super) fn count_again(&self) {
        let mut gate = self.exclusive();
        gate.is_stale.store(false, Ordering::Relaxed);
        gate.slots.values().for_each(|slot| slot.keys.store(0, Ordering::Relaxed));
        gate.counted = Counted::To(Vec::new());
    }

    /// Counts all keys. If keys are set meanwhile, the counts may be stale again.
    pub(super) fn count_all(&self) -> Result<()> {
        while self.count_some()? {}
        if !self.shared().has_counts() {
            self.count_again();
            while self.count_some()? {}
        }
        Ok(())
    }

    /// Counts the next keys. False if counting has ended.
    fn count_some(&self) -> Result<bool> {
        let (counted, _) = defer_waits(|| {
            let mut gate = self.exclusive();
            let Counted::To(position) = &gate.counted else { return Ok(false) };
            let from = if position.is_empty() {
                Bound::Included(FIRST_TABLE)
            } else {
                Bound::Excluded(&position[..])
            };
            let mut cursor = self.index.cursor();
            cursor.seek(from, false)?;
            let (mut key, mut value, mut last) = (Vec::new(), Vec::new(), None);
            let mut current = (None, None);
            for _ in 0..COUNT_STEP {
                if !cursor.next(&mut key, &mut value)? {
                    gate.counted = Counted::All;
                    return Ok(false);
                }
                // The keys of a table are neighbours.
                let id = split_key(&key).map(|(id, _)| id);
                if id != current.0 {
                    current = (id, id.and_then(|id| gate.slot_of(id)));
                }
                if let Some(slot) = current.1 {
                    slot.keys.fetch_add(1, Ordering::Relaxed);
                }
                last = Some(key.clone());
            }
            gate.counted = last.map_or(Counted::All, Counted::To);
            Ok(true)
        });
        counted
    }

    /// True if there is background work now or later.
    pub(super) fn has_upkeep(&self) -> bool {
        let gate = self.shared();
        let removes = self.has_deadlines() || !gate.dropped.is_empty();
        removes && !self.has_ended.load(Ordering::Acquire) || !matches!(gate.counted, Counted::All)
    }

    /// Does one step of background work. Returns the pause before the next step; `None` if no work is left.
    pub(super) fn maintain(&self) -> Option<Duration> {
        if self.has_ended.load(Ordering::Acquire) {
            // Only the count goes on.
            return self.count_some().unwrap_or(false).then_some(Duration::ZERO);
        }
        let _step = self.upkeep.lock().unwrap_or_else(PoisonError::into_inner);
        if self.has_ended.load(Ordering::Acquire) {
            return None;
        }
        let more = |more: bool| more.then_some(Duration::ZERO);
        let steps = [
            self.count_some().map(more),
            self.deferred(UNSYNCED, || self.remove_some()).map(more),
            self.deferred(UNSYNCED, || self.expire_some()),
        ];
        steps.into_iter().filter_map(|step| step.unwrap_or_else(|error| pause_after(&error))).min()
    }

    /// Removes all keys of dropped tables, and ends the background work. After that, only callers change the index.
    pub(super) fn settle(&self) -> Result<()> {
        let _step = self.upkeep.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_ended.store(true, Ordering::Release);
        while self.remove_some()? {}
        self.count_all()
    }

    /// Removes keys of dropped tables, and frees a number that has no keys left (T4). False if no dropped table is left.
    fn remove_some(&self) -> Result<bool> {
        let Some(id) = self.shared().dropped.first().copied() else { return Ok(false) };
        let (low, high) = keys::range(id);
        let (mut gone, mut entries, mut key, mut value) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut cursor = self.index.cursor();
        cursor.seek(Bound::Included(&low), false)?;
        while gone.len() < REMOVE_STEP && cursor.next(&mut key, &mut value)? && key < high {
            // A damaged value has no deadline.
            let deadline = split_value(&value).ok().and_then(|(_, deadline)| deadline);
            entries.extend(deadline.map(|deadline| entry(deadline, &key)));
            gone.push(key.clone());
        }
        drop(cursor);
        if !gone.is_empty() {
            let writes: Vec<_> = gone.iter().chain(&entries).map(|key| Write::Delete(&key[..])).collect();
            self.index.write_many(&writes, UNSYNCED)?;
            return Ok(true);
        }
        let forget = |catalog: &mut Catalog, _: &Gate| {
            catalog.dropped.retain(|dropped| *dropped != id);
            Ok(Some(()))
        };
        self.change_catalog(forget, |gate, ()| gate.retired.push(id))?;
        Ok(true)
    }

    /// Counts all keys, writes the counts, and closes the index cleanly.
    pub(super) fn close(&self) -> Result<()> {
        // Stale counts stay so: a close does not read all keys for them.
        let is_stale = self.shared().is_stale.load(Ordering::Relaxed);
        let counted = if is_stale { Ok(()) } else { self.count_all() };
        self.has_ended.store(true, Ordering::Release);
        let gate = self.exclusive();
        let counts: Vec<_> = gate
            .slots
            .values()
            .map(|slot| (slot.id.load(Ordering::Acquire), slot.keys.load(Ordering::Relaxed)))
            .collect();
        let is_counted = gate.has_counts();
        let written = counted.and_then(|()| match is_counted {
            true => self.index.put(COUNTS, &encode_counts(&counts), UNSYNCED),
            false => self.index.delete(COUNTS, UNSYNCED),
        });
        // Then the index refuses all writes.
        let is_refusal = |error: &Error| matches!(error, Error::Closed | Error::ReadOnly | Error::Failed);
        let written = match written {
            // Without counts, the next open counts again. Old ones must not stay (T6).
            Err(error) if !is_refusal(&error) => self.index.delete(COUNTS, UNSYNCED),
            written => written,
        };
        match written {
            Err(error) if !is_refusal(&error) => Err(error),
            _ => self.index.close(),
        }
    }

    /// Verifies the index, and that its keys and values are those of tables.
    pub(super) fn check(&self) -> Report {
        let mut report = self.index.check();
        let mut tables = TableCheck { tables: self, report: &mut report, keys: 0 };
        if let Err(error) = tables.run() {
            let problem = format!("the keys of the tables cannot be read: {error}");
            tables.report.problem(problem);
        }
        let keys = tables.keys;
        report.keys = keys;
        report
    }
}

/// The pause after an error of background work. `None` if the index takes no more writes.
fn pause_after(error: &Error) -> Option<Duration> {
    match error {
        Error::Closed | Error::ReadOnly | Error::Failed => None,
        _ => Some(PAUSE),
    }
}

/// Gives a table a new number in the catalog, and drops the old one.
fn renumber(catalog: &mut Catalog, gate: &Gate, name: &str) -> u32 {
    let id = catalog.free_id(&gate.retired);
    catalog.dropped.extend(catalog.ids.insert(name.to_owned(), id));
    id
}

/// Makes a table empty: no key has its new number.
fn empty(slot: &Slot, id: u32) {
    slot.id.store(id, Ordering::Release);
    slot.keys.store(0, Ordering::Relaxed);
}

/// A running verification of the tables.
struct TableCheck<'t> {
    tables: &'t Tables,
    report: &'t mut Report,
    /// Keys of all tables.
    keys: u64,
}

impl TableCheck<'_> {
    fn run(&mut self) -> Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut cursor = self.tables.index.cursor();
        cursor.walk(None)?;
        while cursor.next(&mut key, &mut value)? {
            match (split_key(&key), split_entry(&key)) {
                (Some((id, _)), _) => self.check_value(id, &key, &value)?,
                (None, Some((_, stored))) if split_key(stored).is_some() && value.is_empty() => {}
                (None, None) if key == CATALOG => _ = Catalog::decode(&value)?,
                (None, None) if key == COUNTS => {}
                _ => self.report.problem(format!("the key {key:02x?} belongs to no table")),
            }
        }
        Ok(())
    }

    fn check_value(&mut self, id: u32, key: &[u8], value: &[u8]) -> Result<()> {
        let gate = self.tables.shared();
        if gate.slot_of(id).is_none() {
            // The background may have removed the key, and then its number.
            if !gate.dropped.contains(&id) && self.tables.index.get(key, None)? {
                self.report
                    .problem(format!("the key {key:02x?} is of table number {id}, which does not exist"));
            }
            return Ok(());
        }
        self.keys += 1;
        let deadline = match split_value(value) {
            Ok((_, deadline)) => deadline,
            Err(_) => {
                self.report.problem(format!("the value of the key {key:02x?} is not one of a table"));
                return Ok(());
            }
        };
        let Some(deadline) = deadline else { return Ok(()) };
        // A writer changes both under this lock.
        let _key = self.tables.stripe(key);
        let mut now = Vec::new();
        let is_same = self.tables.index.get(key, Some(&mut now))? && now == value;
        if is_same && !self.tables.index.get(&entry(deadline, key), None)? {
            self.report.problem(format!("the deadline {deadline} of the key {key:02x?} has no entry"));
        }
        Ok(())
    }
}
