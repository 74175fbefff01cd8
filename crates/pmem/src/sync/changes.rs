//! The counter of structure changes of an index over a list of leaves. A reader validates with it that the structures that led it to a leaf
//! are unchanged.
//!
//! The versions of [`crate::stripe`] protect leaves. They do not protect the *directory*, the structures that lead to leaves. The writer
//! adds 2 to this counter with each change of the assignment of keys to leaves. It does this before it unlocks the versions of the changed
//! leaves. If it changes the directory in place, it adds 1 before the change and 1 after it, so the counter is odd meanwhile.
//!
//! A reader waits until the counter is even and remembers its value. Then it searches the directory, reads the leaf's version, and reads
//! the leaf. Afterwards it validates the version, and then the counter.
//!
//! Invariants:
//! * C1: if both validations succeed, the reader was in the leaf of its key when it read the leaf's version, and it read only words that
//!   were in the leaf at that time.
//! * C2: the writer passes a release fence after it has made the counter odd and before its first store to the directory. The validation of
//!   the version passes an acquire fence before the counter is read again. So a reader that read a word of an unfinished change finds
//!   another value of the counter.

use crate::sync::omission::{Omission, is_omitted};
use crate::sync::stripe::Stripes;
use crate::sync::{AtomicU64, Ordering, fence, yield_now};

/// The counter. See the module's head.
#[derive(Debug, Default)]
pub struct Changes(AtomicU64);

impl Changes {
    /// Reader: the number of changes. Waits while a change is incomplete, but not for a writer that panicked.
    #[inline]
    pub fn settled(&self, stripes: &Stripes) -> u64 {
        let mut changes = self.0.load(Ordering::Acquire);
        while changes & 1 == 1 && !is_omitted(Omission::Settled) && !stripes.is_abandoned() {
            // The change moves only a few words, but the writer's thread may not be running.
            yield_now();
            changes = self.0.load(Ordering::Acquire);
        }
        changes
    }

    /// Reader: validates that nothing changed since [`Changes::settled`] returned `seen`. It must be called after the version of the leaf was
    /// validated ([`Stripes::check`]), whose fence it needs.
    #[inline]
    pub fn are_unchanged(&self, seen: u64, stripes: &Stripes) -> bool {
        // After a panic of the writer, an incomplete change stays incomplete.
        let is_settled = seen & 1 == 0 || !stripes.is_abandoned();
        is_settled && (self.0.load(Ordering::Relaxed) == seen || is_omitted(Omission::Changes))
    }

    /// Writer: counts a change of the assignment of keys to leaves that does not change the directory in place.
    #[inline]
    pub fn add(&self) {
        self.0.fetch_add(2, Ordering::AcqRel);
    }

    /// Writer: begins a change of the directory in place. The versions of the leaves that change are locked.
    #[inline]
    pub fn begin(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
        if !is_omitted(Omission::ChangesFence) {
            fence(Ordering::Release);
        }
    }

    /// Writer: ends a change of the directory in place.
    #[inline]
    pub fn end(&self) {
        self.0.store((self.0.load(Ordering::Relaxed) | 1) + 1, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod model;
