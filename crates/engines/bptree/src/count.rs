//! The number of keys. It is exact. After a crash the keys are counted anew while the tree is in use.
//!
//! If the count is not complete, a close counts some more keys. If keys remain, the close marks the number as unknown, and the next open
//! counts again.
//!
//! The count visits the keys in order, in steps. A step reads its keys without the writer's lock, so that they are in the cache, and then
//! again with the lock. Until the count ends, a write changes the number only for keys that the count has passed. The count visits the
//! other keys later.

use std::ops::Bound;

use pmem::sync::Ordering;
use pmem::{Error, Medium, Result};

use crate::commit_protocol::CommitProtocol;
use crate::layout::Layouts;
use crate::tree::{Tree, Writer};
use index::{KEYS_UNKNOWN, Schema};

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    /// Updates the number of keys after a write, also while keys are being counted.
    #[inline]
    pub(crate) fn count_key(&self, writer: &Writer<S>, key: &S::Key, added: bool) {
        if self.counting.load(Ordering::Relaxed) {
            // The count will visit the keys above the point that it has reached.
            let probe = S::probe(key);
            let reached =
                writer.counted_to.as_ref().is_some_and(|to| S::order_probe(probe, S::borrow(to)).is_le());
            if !reached {
                return;
            }
        }
        let keys = self.keys.load(Ordering::Relaxed);
        self.keys.store(if added { keys + 1 } else { keys.saturating_sub(1) }, Ordering::Release);
    }

    /// The number of keys, or [`KEYS_UNKNOWN`] while they are being counted.
    pub(crate) fn known_keys(&self) -> u64 {
        if self.counting.load(Ordering::Acquire) { KEYS_UNKNOWN } else { self.keys.load(Ordering::Acquire) }
    }

    /// Counts up to `keys` more keys if the count is not complete. True if keys remain. Writers wait only for the second read of these
    /// keys, which are then in the cache.
    ///
    /// # Errors
    /// `Corrupt` if a leaf is damaged; `Failed` if the writer failed during a change of it.
    pub fn count_some(&self, keys: usize) -> Result<bool> {
        if !self.counting.load(Ordering::Acquire) {
            return Ok(false);
        }
        let from = self.writer_side().counted_to.clone();
        let cursor_behind = |from: &Option<S::KeyBuf>| {
            let mut cursor = self.cursor().unsettled();
            if let Some(from) = from {
                cursor.seek(Bound::Excluded(from.clone()), false);
            }
            cursor
        };
        let mut key = S::KeyBuf::default();
        // This read without the lock brings leaves and records into the cache.
        let mut cursor = cursor_behind(&from);
        for _ in 0..keys {
            if !cursor.next_key(&mut key)? {
                break;
            }
        }
        // A count is not a write, so it also runs in a read-only index.
        let mut writer = self.writer_side();
        if let Err(Error::Closed | Error::Failed) = self.writable() {
            return Ok(false);
        }
        if !self.counting.load(Ordering::Acquire) {
            return Ok(false); // another thread finished the count while this one waited for the lock
        }
        if writer.counted_to != from {
            return Ok(true); // another thread counted these
        }
        let mut cursor = cursor_behind(&from);
        for _ in 0..keys {
            if !cursor.next_key(&mut key)? {
                self.counting.store(false, Ordering::Release);
                self.durable_keys.store(KEYS_UNKNOWN, Ordering::Release);
                writer.counted_to = None;
                return Ok(false);
            }
            self.keys.fetch_add(1, Ordering::AcqRel);
        }
        writer.counted_to = Some(key);
        Ok(true)
    }
}
