//! Marks of keys whose newest update may not be durable yet.
//!
//! A reader must not return an update that a crash can still undo. So a writer notes the end of its record in the log under the hash of the
//! key, before it makes the update visible. A reader looks the key up after it read the value. Keys with the same hash share a mark; then a
//! reader may wait although its own key is durable.
//!
//! Invariant W1: a thread that sees an update sees its mark, or a later one.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use crate::sync::{AtomicU64, Ordering};

const MARKS: usize = if cfg!(all(test, loom)) { 2 } else { 8192 };

/// The marks.
#[derive(Debug)]
pub(crate) struct Marks(Box<[AtomicU64]>);

impl Marks {
    pub(crate) fn new() -> Self {
        Self((0..MARKS).map(|_| AtomicU64::new(0)).collect())
    }

    fn of<K: Hash + ?Sized>(&self, key: &K) -> &AtomicU64 {
        let mut hasher = FxHasher::default();
        key.hash(&mut hasher);
        // The upper bits of this hash are the good ones.
        &self.0[(hasher.finish() >> 40) as usize % MARKS]
    }

    /// Notes that an update of the key is durable when the log is stable up to `end`.
    pub(crate) fn note<K: Hash + ?Sized>(&self, key: &K, end: u64) {
        // The exchange that makes the update visible follows, and releases this store (W1).
        self.of(key).fetch_max(end, Ordering::Relaxed);
    }

    /// The LSN up to which the log must be stable, so that everything which a reader saw under this key is durable.
    pub(crate) fn end<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.of(key).load(Ordering::Acquire)
    }
}
