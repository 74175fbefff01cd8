//! Retired memory: objects taken out of the tree, which are freed when no thread can reference them.
//!
//! Invariant E2 in [`epoch`](crate::epoch) says when no thread can reference an object any more.

use crate::epoch::ThreadSlot;
use crate::node::{Made, Retired, Weighed, free_all};
use crate::omission::{Omission, is_omitted};
use crate::pairs::Pairs;
use crate::stats::Count;
use crate::sync::IS_SMALL;
use crate::table::Pid;
use crate::tree::{Tree, Visit};

impl<P: Pairs> Visit<'_, P> {
    /// Retires an object. It is freed when no thread can reference it.
    pub(crate) fn retire(&self, (retired, (objects, bytes)): Weighed<P>) {
        self.slot.count(Count::RetiredObjects, objects);
        self.slot.count(Count::RetiredBytes, bytes);
        if let Retired::Pid(pid) = retired
            && is_omitted(Omission::Pids)
        {
            self.count(Count::FreedObjects);
            self.count(Count::FreedPids);
            return self.tree.table.release(pid);
        }
        self.slot.retire((retired, (objects, bytes)));
    }

    /// Frees a node that did not get into the mapping table.
    #[cold]
    pub(crate) fn drop_made(&self, made: Made<P>) {
        // SAFETY: the thread that made the node owns it, and no other thread knows it.
        unsafe { self.tree.graves.bury(made.word(), &mut |block| self.slot.give(block)) };
    }

    /// Frees a record that did not get into the tree.
    #[cold]
    pub(crate) fn drop_fresh(&self, fresh: P::Fresh) {
        if let Some(dead) = P::dead(P::record(&fresh)) {
            // SAFETY: the thread that made the record owns it. The place or the page with a pointer to it never became visible (N4).
            unsafe { self.tree.graves.bury_record(dead, &mut |block| self.slot.give(block)) };
        }
    }

    /// Retires a page that is no longer in the tree, and its PID.
    pub(crate) fn discard(&self, pid: Pid, page: Weighed<P>) {
        self.tree.table.vacate(pid);
        self.retire(page);
        self.count(Count::RetiredPids);
        self.retire((Retired::Pid(pid), (1, 0)));
    }
}

impl<P: Pairs> Tree<P> {
    /// Frees all retired memory that no active operation can reference, from every thread slot that is not in use. O(thread slots + retired
    /// objects).
    pub fn reclaim(&self) {
        self.epochs.visit_all(|slot| self.empty(slot));
    }

    /// Frees the objects in a thread slot's bag that no thread can reference.
    fn empty(&self, slot: &ThreadSlot<'_, Weighed<P>>) {
        for (retired, (objects, bytes)) in slot.expired() {
            slot.count(Count::FreedObjects, objects);
            slot.count(Count::FreedBytes, bytes);
            // SAFETY: it was taken out of the tree, and every thread that could reference it has released its slot (E2).
            if let Some(pid) = unsafe { retired.free(&self.graves, |block| slot.give(block)) } {
                slot.count(Count::FreedPids, 1);
                self.table.release(pid);
            }
        }
    }
}

/// True if a model or a schedule has failed: the tree may be damaged.
#[inline(always)]
fn given_up() -> bool {
    IS_SMALL && std::thread::panicking()
}

impl<P: Pairs> Drop for Tree<P> {
    fn drop(&mut self) {
        if given_up() {
            return;
        }
        for (retired, _) in self.epochs.take_all() {
            let slot = self.epochs.enter();
            // SAFETY: no operation is active, and the object is not in the tree.
            if let Some(pid) = unsafe { retired.free(&self.graves, |block| slot.give(block)) } {
                self.table.release(pid);
            }
        }
        let (words, counted) = (self.table.words(), self.memory().page_bytes);
        let slot = self.epochs.enter();
        // SAFETY: no operation is active, and all retired objects have been freed.
        let bytes = unsafe { free_all(words.into_iter(), &self.graves, |block| slot.give(block)) };
        self.graves.empty(|block| slot.give(block));
        debug_assert!(
            bytes as u64 == counted || std::thread::panicking(),
            "{bytes} bytes were in the tree, and {counted} are counted"
        );
    }
}

impl<P: Pairs> Drop for Visit<'_, P> {
    #[inline]
    fn drop(&mut self) {
        if !given_up() && self.slot.is_due(self.tree.options.limbo) {
            self.tree.empty(&self.slot);
        }
    }
}
