//! The number of keys: exact after a clean close, taken anew beside the tree's users after a crash.
//!
//! The count goes through the keys in order, some at a time, under the writer's lock. A writer meanwhile changes the number
//! only for keys that the count has passed; the others it will meet itself.

use std::ops::Bound;

use pmem::sync::Ordering;
use pmem::{Error, Medium, Result};

use crate::discipline::Discipline;
use crate::group::KEYS_UNKNOWN;
use crate::layout::Layouts;
use crate::schema::Schema;
use crate::tree::{Tree, Writer};

impl<M: Medium, S: Schema, L: Layouts, D: Discipline> Tree<M, S, L, D> {
    /// Keeps the number of keys, whether or not it is still being taken.
    #[inline]
    pub(crate) fn count_key(&self, writer: &Writer<S>, key: &S::Key, added: bool) {
        if self.counting.load(Ordering::Relaxed) {
            // The count will come by keys beyond the point that it has reached.
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

    /// Counts some more keys if the count is still being taken; true while there is more to count.
    ///
    /// # Errors
    /// `Corrupt` if a leaf is damaged.
    pub fn count_some(&self, keys: usize) -> Result<bool> {
        if !self.counting.load(Ordering::Acquire) {
            return Ok(false);
        }
        let mut writer = match self.lock_writer() {
            Err(Error::Closed | Error::Failed) => return Ok(false),
            // To count is not to write.
            Err(Error::ReadOnly) => self.writer_side(),
            other => other?,
        };
        if !self.counting.load(Ordering::Acquire) {
            return Ok(false); // another thread finished the count while this one waited for the lock
        }
        let mut cursor = self.cursor().unsettled();
        if let Some(to) = &writer.counted_to {
            cursor.seek(Bound::Excluded(to.clone()), false);
        }
        let mut key = S::KeyBuf::default();
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
