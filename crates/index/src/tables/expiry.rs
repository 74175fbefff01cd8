//! Deadlines: changes of keys in an index that has deadlines, and the removal of keys whose deadline has passed.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use pmem::Result;

use super::keys::{
    DEADLINES, DEADLINES_END, StoredKey, check_lengths, entry, split_entry, split_key, split_value, tagged,
};
use super::{Tables, UNSYNCED};
use crate::engine::{DecideUntil, Expiring, Next, Slot};
use crate::kind::Bytes;
use crate::write::Decision;

/// Maximum number of keys that one step removes.
const STEP: usize = 64;

impl Tables {
    /// Changes a key and its deadline. The writes are not durable yet.
    pub(super) fn change(
        &self,
        slot: &Arc<Slot>,
        key: &[u8],
        decide: &mut DecideUntil<'_, Bytes>,
    ) -> Result<()> {
        let gate = self.shared();
        let stored = StoredKey::new(slot.id()?, key);
        let _key = self.stripe(&stored);
        let mut old = Vec::new();
        loop {
            let was_there = self.index.get(&stored, Some(&mut old))?;
            let now = if was_there { Some(split_value(&old)?) } else { None };
            let old_deadline = now.and_then(|(_, deadline)| deadline);
            let visible = now.filter(|(_, deadline)| !self.is_past(*deadline));
            let is_expired = visible.is_none();
            let (new, new_deadline) = match decide(visible) {
                Next::Keep => return Ok(()),
                // The background removes a key whose deadline has passed.
                Next::Delete if visible.is_none() => return Ok(()),
                Next::Delete => (None, None),
                Next::Put(value, deadline) => {
                    check_lengths(key, Some(&value))?;
                    (Some(tagged(&value, deadline)), deadline)
                }
            };
            if let Some(deadline) = new_deadline.filter(|_| new_deadline != old_deadline) {
                // Other threads see this before the value. A thread that misses it sets no deadline (T3).
                self.has_deadlines.store(true, Ordering::SeqCst);
                self.index.put(&entry(deadline, &stored), &[], UNSYNCED)?;
            }
            if !self.replace(&stored, was_there.then_some(&old), new.as_deref())? {
                // A writer that saw no deadlines came between.
                continue;
            }
            gate.note(slot, &stored, was_there, new.is_some());
            if was_there && is_expired {
                self.note_expired(&slot.name, key);
            }
            if let Some(deadline) = old_deadline.filter(|_| new_deadline != old_deadline) {
                self.index.delete(&entry(deadline, &stored), UNSYNCED)?;
            }
            return Ok(());
        }
    }

    /// Tells that an expired key was removed or replaced.
    pub(super) fn note_expired(&self, table: &str, key: &[u8]) {
        let told = self.on_expired.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(told) = &*told {
            told(table, key);
        }
    }

    /// Replaces a stored value if it is `old`. False if it is another one.
    fn replace(&self, stored: &[u8], old: Option<&Vec<u8>>, new: Option<&[u8]>) -> Result<bool> {
        let mut is_same = false;
        let mut decide = |now: Option<&[u8]>| {
            is_same = now == old.map(Vec::as_slice);
            match new.filter(|_| is_same) {
                Some(new) => Decision::Put(Cow::Owned(new.to_vec())),
                None if is_same => Decision::Delete,
                None => Decision::Keep,
            }
        };
        self.index.update(stored, &mut decide, UNSYNCED)?;
        Ok(is_same)
    }

    /// Removes keys whose deadline has passed, at most [`STEP`]. Returns the pause before the next step; `None` if no deadline is left.
    pub(super) fn expire_some(&self) -> Result<Option<Duration>> {
        if !self.has_deadlines() {
            return Ok(None);
        }
        let now = self.now();
        let mut cursor = self.index.cursor();
        cursor.seek(Bound::Included(DEADLINES), false)?;
        let (mut due, mut key, mut value) = (Vec::new(), Vec::new(), Vec::new());
        let mut pause = None;
        // The key after the last entry may be damaged.
        while cursor.next(&mut key, &mut value).unwrap_or(false) && key.as_slice() < DEADLINES_END {
            let Some((deadline, stored)) = split_entry(&key) else { continue };
            if deadline > now || due.len() == STEP {
                pause = Some(Duration::from_millis(deadline.saturating_sub(now)));
                break;
            }
            due.push((deadline, stored.to_vec()));
        }
        drop(cursor);
        // One damaged key does not prevent the removal of the others.
        let mut outcome = Ok(());
        for (deadline, stored) in due {
            outcome = outcome.and(self.expire(deadline, &stored));
        }
        outcome.map(|()| pause)
    }

    /// Number of deadlines of a table among the first `most` deadlines.
    pub(super) fn deadlines_of(&self, id: u32, most: usize) -> Result<u64> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let (mut cursor, mut found) = (self.index.cursor(), 0);
        cursor.seek(Bound::Included(DEADLINES), false)?;
        for _ in 0..most {
            if !cursor.next(&mut key, &mut value)? || key.as_slice() >= DEADLINES_END {
                break;
            }
            let of = split_entry(&key).and_then(|(_, stored)| split_key(stored));
            found += u64::from(of.is_some_and(|(of, _)| of == id));
        }
        Ok(found)
    }

    /// Keys with deadlines, in the order of deadlines ([`crate::engine::TableOps::expiring`]).
    pub(super) fn expiring(&self, position: &mut Vec<u8>, most: usize) -> Result<Vec<Expiring<Bytes>>> {
        let (mut key, mut value, mut entries) = (Vec::new(), Vec::new(), Vec::new());
        let mut cursor = self.index.cursor();
        match position.is_empty() {
            true => cursor.seek(Bound::Included(DEADLINES), false)?,
            false => cursor.seek(Bound::Excluded(position), false)?,
        }
        for _ in 0..most {
            if !cursor.next(&mut key, &mut value)? || key.as_slice() >= DEADLINES_END {
                position.clear();
                break;
            }
            position.clone_from(&key);
            entries.push(key.clone());
        }
        drop(cursor);
        // A cursor may wait for a commit, so the gate is taken after it.
        let gate = self.shared();
        let named = |entry: &Vec<u8>| {
            let (deadline, stored) = split_entry(entry)?;
            let (id, key) = split_key(stored)?;
            Some(Expiring { table: gate.slot_of(id)?.name.clone(), key: key.to_vec(), deadline })
        };
        Ok(entries.iter().filter_map(named).collect())
    }

    /// Removes the key of an entry whose deadline has passed, if this is still its deadline. Then removes the entry (T2).
    fn expire(&self, deadline: u64, stored: &[u8]) -> Result<()> {
        let gate = self.shared();
        let _key = self.stripe(stored);
        let slot = split_key(stored).and_then(|(id, _)| gate.slot_of(id));
        let mut old = Vec::new();
        if let Some(slot) = slot {
            while self.index.get(stored, Some(&mut old))? && split_value(&old)?.1 == Some(deadline) {
                if self.replace(stored, Some(&old), None)? {
                    gate.note(slot, stored, true, false);
                    let key = split_key(stored).map_or(&[][..], |(_, key)| key);
                    self.note_expired(&slot.name, key);
                    break;
                }
            }
        }
        self.index.delete(&entry(deadline, stored), UNSYNCED)?;
        Ok(())
    }
}
