//! Writes of several keys and tables in one step.
//!
//! The caller passes its writes, and the keys that it has read with the values that it found. The writes become one batch of the index,
//! together with the changes of deadline entries. The conditions of the batch are the values that were read, in their stored form. A value and
//! its deadline have only one stored form. So at first this module computes it, without a lookup. If the batch is refused, it compares the
//! values with the current ones: if one differs, nothing is written; otherwise the stored values that were compared are the conditions of
//! another batch. An absent key has several stored forms, because it may have expired. It is looked up at once if a deadline may exist.

use pmem::Result;
use pmem::omission::{Omission, is_omitted};

use super::keys::{StoredKey, check_lengths, entry, split_value, tagged};
use super::{Gate, Tables, UNSYNCED, stripe_of};
use crate::engine::{Commit, KeyValue, TableRead, TableWrite};
use crate::kind::Bytes;
use crate::sorting::last_of_each;
use crate::write::WriteOptions;
use std::sync::atomic::Ordering;

/// A write, and the number of its table.
type Numbered<'c> = (u32, &'c TableWrite<Bytes>);

/// The writes by their stored keys, in ascending order. If a key has several writes, the last one stays.
fn last_writes(writes: &[TableWrite<Bytes>]) -> Result<Vec<(Vec<u8>, Numbered<'_>)>> {
    let mut numbered = Vec::with_capacity(writes.len());
    for write in writes {
        let id = write.table.id()?;
        numbered.push((StoredKey::new(id, &write.key).to_vec(), (id, write)));
    }
    Ok(last_of_each(numbered))
}

impl Tables {
    /// Applies all writes, if all conditions hold, and returns whether it did. Sets `found`: for each written key, whether it was present.
    /// `found` is in the order of the tables' numbers and of the keys. It has one element for a key that is written more than once.
    pub(super) fn commit(
        &self,
        what: Commit<'_, Bytes>,
        how: WriteOptions,
        found: &mut Vec<bool>,
    ) -> Result<bool> {
        let Commit { writes, reads, validate } = what;
        for write in &writes {
            check_lengths(&write.key, write.next.as_ref().map(|(value, _)| &value[..]))?;
        }
        let sets_deadline = writes.iter().any(|write| matches!(write.next, Some((_, Some(_)))));
        let apply = |gate: &Gate, found: &mut Vec<bool>| {
            if sets_deadline {
                // Under the gate: a rollback may have cleared it.
                self.has_deadlines.store(true, Ordering::SeqCst);
            }
            let mut compares = false;
            loop {
                if let Some(done) = self.try_commit(gate, &writes, reads, compares, found)? {
                    return Ok(done);
                }
                compares = true;
            }
        };
        let validate = validate.filter(|_| !is_omitted(Omission::ScanValidation));
        self.deferred(how, || match validate {
            None => apply(&self.shared(), found),
            Some(validate) => {
                let gate = self.exclusive();
                if !validate()? {
                    return Ok(false);
                }
                if is_omitted(Omission::ScanGate) {
                    drop(gate);
                    return apply(&self.shared(), found);
                }
                apply(&gate, found)
            }
        })
    }

    /// `None` if the batch was refused: a key that was read may have changed. `compares`: the values that were read are compared before.
    fn try_commit(
        &self,
        gate: &Gate,
        writes: &[TableWrite<Bytes>],
        reads: &[TableRead<Bytes>],
        compares: bool,
        found: &mut Vec<bool>,
    ) -> Result<Option<bool>> {
        found.clear();
        let reads = if is_omitted(Omission::ReadValidation) { &[] } else { reads };
        let Some(mut expected) = self.conditions(reads, compares)? else { return Ok(Some(false)) };
        if is_omitted(Omission::ReadConditions) {
            expected.clear();
        }
        let mut last = last_writes(writes)?;
        // If no key of the index has a deadline, no key needs a lock or an entry.
        let has_deadlines = self.has_deadlines();
        let mut locks: Vec<_> =
            last.iter().filter(|_| has_deadlines).map(|(stored, _)| stripe_of(stored)).collect();
        locks.sort_unstable();
        locks.dedup();
        let _locks: Vec<_> = locks.into_iter().map(|number| self.lock_stripe(number)).collect();
        let (mut batch, mut visible) = (Vec::<KeyValue<Bytes>>::with_capacity(last.len()), Vec::new());
        let (mut old, mut expired) = (Vec::new(), Vec::new());
        for (stored, (_, write)) in last.iter().filter(|_| has_deadlines) {
            let was_there = self.index.get(stored, Some(&mut old))?;
            let old_deadline = if was_there { split_value(&old)?.1 } else { None };
            let is_expired = self.is_past(old_deadline);
            visible.push(was_there && !is_expired);
            if was_there && is_expired {
                expired.push(*write);
            }
            let new_deadline = write.next.as_ref().and_then(|(_, deadline)| *deadline);
            if old_deadline != new_deadline {
                batch.extend(new_deadline.map(|deadline| (entry(deadline, stored), Some(Vec::new()))));
                batch.extend(old_deadline.map(|deadline| (entry(deadline, stored), None)));
            }
        }
        // Keys of entries are below all keys of tables.
        let entries = batch.len();
        batch.extend(last.iter_mut().map(|(stored, (_, write))| {
            let next = write.next.as_ref().map(|(value, deadline)| tagged(value, *deadline));
            (std::mem::take(stored), next)
        }));
        expected.dedup_by(|a, b| a.0 == b.0);
        let mut changed = Vec::new();
        if !self.index.batch_found(batch, &expected, UNSYNCED, &mut changed)? {
            return Ok(None);
        }
        for ((_, (id, write)), was_there) in last.iter().zip(&changed[entries..]) {
            gate.note(&write.table, &StoredKey::new(*id, &write.key), *was_there, write.next.is_some());
        }
        for write in expired {
            self.note_expired(&write.table.name, &write.key);
        }
        *found = if has_deadlines { visible } else { changed.split_off(entries) };
        Ok(Some(true))
    }

    /// The stored values of the keys that were read, in the order of the stored keys. `None` if one has changed: if its deadline has passed,
    /// or if a comparison shows it.
    fn conditions(&self, reads: &[TableRead<Bytes>], compares: bool) -> Result<Option<Vec<KeyValue<Bytes>>>> {
        let mut stored = Vec::with_capacity(reads.len());
        let has_deadlines = self.has_deadlines();
        for read in reads {
            let key = StoredKey::new(read.table.id()?, &read.key);
            // Without deadlines, a deadline that was not read is none.
            let deadline = read.deadline.or((!has_deadlines).then_some(None));
            match (&read.value, deadline) {
                (Some(value), Some(deadline)) if !compares => {
                    if self.is_past(deadline) {
                        return Ok(None);
                    }
                    stored.push((key.to_vec(), Some(tagged(value, deadline))));
                    continue;
                }
                (None, _) if !compares && !has_deadlines => {
                    stored.push((key.to_vec(), None));
                    continue;
                }
                _ => {}
            }
            let mut bytes = Vec::new();
            let is_stored = self.index.get(&key, Some(&mut bytes))?;
            let now = if is_stored { Some(split_value(&bytes)?) } else { None };
            let now = now.filter(|(_, deadline)| !self.is_past(*deadline));
            let deadline = now.and_then(|(_, deadline)| deadline);
            if now.map(|(value, _)| value) != read.value.as_deref()
                || read.deadline.is_some_and(|read| read != deadline)
            {
                return Ok(None);
            }
            stored.push((key.to_vec(), is_stored.then_some(bytes)));
        }
        stored.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Some(stored))
    }
}
