//! Salvage of a store with tables: recognises the keys and values that a store with tables may have, and stores them in
//! a new store.

use std::borrow::Cow;
use std::ops::Bound;

use pmem::Result;

use super::keys::{CATALOG, COUNTS, FIRST_TABLE, entry, range, split_entry, split_key, split_value};
use super::{Tables, UNSYNCED};
use crate::engine::Index;
use crate::kind::Bytes;
use crate::write::Decision;

/// True if a store with tables may have this pair. Salvage asks this if the superblock of the store is lost.
#[must_use]
pub fn is_pair(key: &[u8], value: &[u8]) -> bool {
    match split_key(key) {
        Some(_) => split_value(value).is_ok(),
        None => key == CATALOG || key == COUNTS || split_entry(key).is_some(),
    }
}

/// Stores a pair that salvage found, if the new store does not have its key. For a value with a deadline, the function also stores the
/// entry of the deadline. It skips counts and entries of deadlines. True if it stored a pair whose key is a key of a table.
///
/// # Errors
/// Those of writes.
pub fn salvage(new: &dyn Index<Bytes>, key: &[u8], value: &[u8]) -> Result<bool> {
    let deadline = match split_key(key) {
        Some(_) => split_value(value).map(|(_, deadline)| deadline),
        None => Ok(None),
    };
    // Entries are written again with their values.
    let (Ok(deadline), false) = (deadline, key == COUNTS || split_entry(key).is_some()) else {
        return Ok(false);
    };
    if let Some(deadline) = deadline {
        new.put(&entry(deadline, key), &[], UNSYNCED)?;
    }
    let mut is_new = false;
    let mut decide = |old: Option<&[u8]>| {
        is_new = old.is_none();
        if is_new { Decision::Put(Cow::Owned(value.to_vec())) } else { Decision::Keep }
    };
    new.update(key, &mut decide, UNSYNCED)?;
    Ok(is_new && split_key(key).is_some())
}

/// Repeats an update of a store in a new one: stores a pair, or removes a key. The entries of deadlines follow the values; those of the old
/// store, and its counts, are skipped. Returns the change of the number of keys of tables.
///
/// # Errors
/// Those of writes. A value that is none of a table is skipped.
pub fn repeat(new: &dyn Index<Bytes>, key: &[u8], value: Option<&[u8]>) -> Result<i64> {
    if key == COUNTS || split_entry(key).is_some() {
        return Ok(0);
    }
    let is_in_table = split_key(key).is_some();
    let deadline_of = |value: Option<&[u8]>| match value {
        Some(value) if is_in_table => split_value(value).map(|(_, deadline)| deadline),
        _ => Ok(None),
    };
    let Ok(next) = deadline_of(value) else { return Ok(0) };
    let (mut last, mut was_there) = (None, false);
    let mut decide = |old: Option<&[u8]>| {
        (last, was_there) = (deadline_of(old).ok().flatten(), old.is_some());
        value.map_or(Decision::Delete, |value| Decision::Put(Cow::Owned(value.to_vec())))
    };
    new.update(key, &mut decide, UNSYNCED)?;
    if last != next {
        if let Some(deadline) = last {
            new.delete(&entry(deadline, key), UNSYNCED)?;
        }
        if let Some(deadline) = next {
            new.put(&entry(deadline, key), &[], UNSYNCED)?;
        }
    }
    Ok(if is_in_table { i64::from(value.is_some()) - i64::from(was_there) } else { 0 })
}

impl Tables {
    /// Reads the catalog. If keys have a table number that the catalog does not have, adds a table with this number. Counts all keys again.
    pub(super) fn adopt(&self) -> Result<()> {
        let mut gate = self.exclusive();
        self.load(&mut gate, false)?;
        let mut catalog = gate.catalog();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut cursor = self.index.cursor();
        let mut from = FIRST_TABLE.to_vec();
        loop {
            cursor.seek(Bound::Included(&from), false)?;
            if !cursor.next(&mut key, &mut value)? {
                break;
            }
            let Some((id, _)) = split_key(&key) else { break };
            if gate.slot_of(id).is_none() {
                catalog.ids.insert(format!("salvaged-{id}"), id);
            }
            from = range(id).1;
        }
        // The catalog that was found may be old. So salvage also keeps the keys of tables that this catalog lists as dropped.
        catalog.dropped.clear();
        self.index.put(CATALOG, &catalog.encode(), UNSYNCED)?;
        self.load(&mut gate, false)
    }
}
