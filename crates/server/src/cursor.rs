//! Cursors of SCAN: a client holds a number; the server holds the key that the number stands for.
//!
//! Invariants:
//! * I1: the table is bounded in entries and in bytes. The oldest cursors are removed first. A client that sends a removed cursor gets an
//!   error, never a wrong position.
//! * I2: the table keeps the last two cursors of each scan, and no older ones. So a client that lost a reply can repeat its request with
//!   the same cursor.
//! * I3: a process uses a number only once. The 20 bits above a number's lower 32 are chosen at random by each process. So it is very
//!   unlikely that a number of an earlier process is valid.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher, RandomState};

/// Maximum bytes of keys in the table.
const KEY_BYTES_MAX: usize = 64 << 20;

/// The number of a cursor; never 0.
pub type CursorId = u64;

#[derive(Debug)]
struct Entry {
    last_key: Vec<u8>,
    parent: CursorId,
}

/// The bounded table of cursors.
#[derive(Debug)]
pub struct CursorTable {
    /// The cursors by number, which is the order of their age.
    entries: BTreeMap<CursorId, Entry>,
    /// The latest successor of each cursor, for a repeated request.
    children: HashMap<CursorId, CursorId>,
    entries_max: usize,
    key_bytes: usize,
    next: CursorId,
}

impl CursorTable {
    /// An empty table for at most `entries_max` cursors.
    #[must_use]
    pub fn new(entries_max: usize) -> Self {
        // 20 random bits above 32 counter bits. Some clients keep cursors in doubles, which are exact up to 2^53.
        let random = RandomState::new().build_hasher().finish() >> 44;
        Self {
            entries: BTreeMap::new(),
            children: HashMap::new(),
            entries_max: entries_max.max(2),
            key_bytes: 0,
            next: (random << 32) | 1,
        }
    }

    /// The key after which the scan continues. `None` if the cursor is unknown or was removed.
    #[must_use]
    pub fn last_key(&self, cursor: CursorId) -> Option<&[u8]> {
        self.entries.get(&cursor).map(|entry| entry.last_key.as_slice())
    }

    /// Adds a cursor that follows cursor `parent` (0 for the first step of a scan), and removes the predecessor of `parent`.
    pub fn insert(&mut self, last_key: Vec<u8>, parent: CursorId) -> CursorId {
        if let Some(grandparent) = self.entries.get(&parent).map(|entry| entry.parent) {
            self.remove(grandparent);
        }
        if let Some(sibling) = self.children.get(&parent).copied().filter(|_| parent != 0) {
            self.remove(sibling);
        }
        let cursor = self.next;
        self.next += 1;
        self.key_bytes += last_key.len();
        self.entries.insert(cursor, Entry { last_key, parent });
        if parent != 0 {
            self.children.insert(parent, cursor);
        }
        while self.entries.len() > self.entries_max || self.key_bytes > KEY_BYTES_MAX {
            let Some((&oldest, _)) = self.entries.first_key_value() else { break };
            self.remove(oldest);
        }
        cursor
    }

    fn remove(&mut self, cursor: CursorId) {
        if let Some(entry) = self.entries.remove(&cursor) {
            self.key_bytes -= entry.last_key.len();
            self.children.remove(&cursor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_scan_keeps_its_last_two_places_only() {
        let mut table = CursorTable::new(100);
        let mut cursor = 0;
        for step in 0..1000_u32 {
            let parent = cursor;
            cursor = table.insert(step.to_be_bytes().to_vec(), parent);
            assert_eq!(table.last_key(cursor), Some(step.to_be_bytes().as_slice()));
            if step > 0 {
                assert_eq!(table.last_key(parent), Some((step - 1).to_be_bytes().as_slice()));
            }
        }
        assert_eq!(table.entries.len(), 2);
        assert!(table.children.len() <= 2);
    }

    #[test]
    fn a_client_that_repeats_a_cursor_gets_the_same_place_and_leaves_nothing_behind() {
        let mut table = CursorTable::new(100);
        let first = table.insert(b"a".to_vec(), 0);
        for _ in 0..50 {
            let second = table.insert(b"b".to_vec(), first);
            assert_eq!(table.last_key(second), Some(b"b".as_slice()));
            assert_eq!(table.last_key(first), Some(b"a".as_slice()));
        }
        assert_eq!(table.entries.len(), 2);
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_or_too_large() {
        let mut table = CursorTable::new(10);
        let cursors: Vec<_> = (0..20_u8).map(|key| table.insert(vec![key], 0)).collect();
        assert!(cursors[..10].iter().all(|&cursor| table.last_key(cursor).is_none()));
        assert!(cursors[10..].iter().all(|&cursor| table.last_key(cursor).is_some()));
        let mut table = CursorTable::new(1 << 20);
        for _ in 0..2000 {
            table.insert(vec![0; 65_535], 0);
        }
        assert!(table.key_bytes <= KEY_BYTES_MAX);
    }

    #[test]
    fn numbers_fit_signed_integers_and_are_never_zero() {
        for _ in 0..100 {
            let cursor = CursorTable::new(1).insert(Vec::new(), 0);
            assert!(cursor > 0 && i64::try_from(cursor).is_ok());
        }
    }
}
