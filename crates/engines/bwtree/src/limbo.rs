//! What was taken out of the tree: retired, and freed when nobody can have it any more.

use crate::canary::{Canary, sings};
use crate::epoch::ThreadSlot;
use crate::node::{Made, Retired, Weighed, free_all};
use crate::pairs::Pairs;
use crate::stats::Count;
use crate::sync::IS_SMALL;
use crate::table::Pid;
use crate::tree::{Tree, Visit};

impl<P: Pairs> Visit<'_, P> {
    /// What was taken out of the tree is freed when nobody can have it any more.
    pub(crate) fn retire(&self, (retired, (objects, bytes)): Weighed<P>) {
        self.slot.count(Count::RetiredObjects, objects);
        self.slot.count(Count::RetiredBytes, bytes);
        if let Retired::Pid(pid) = retired
            && sings(Canary::Pids)
        {
            self.count(Count::FreedObjects);
            self.count(Count::FreedPids);
            return self.tree.table.release(pid);
        }
        self.slot.retire((retired, (objects, bytes)));
    }

    /// A node did not get into the mapping table.
    #[cold]
    pub(crate) fn drop_made(&self, made: Made<P>) {
        // SAFETY: who made it has it, and nobody else knows it.
        unsafe { self.tree.graves.bury(made.word(), &mut |block| self.slot.give(block)) };
    }

    /// A record did not get into the tree.
    #[cold]
    pub(crate) fn drop_fresh(&self, fresh: P::Fresh) {
        if let Some(dead) = P::dead(P::record(&fresh)) {
            // SAFETY: who made it has it; the place or the page with a pointer to it was seen by nobody, and will not be (N4).
            unsafe { self.tree.graves.bury_record(dead, &mut |block| self.slot.give(block)) };
        }
    }

    /// A page is no longer in the tree: with it goes its PID.
    pub(crate) fn discard(&self, pid: Pid, page: Weighed<P>) {
        self.tree.table.vacate(pid);
        self.retire(page);
        self.count(Count::RetiredPids);
        self.retire((Retired::Pid(pid), (1, 0)));
    }
}

impl<P: Pairs> Tree<P> {
    /// Tries to free everything that waits for it, whoever retired it. Only somebody who is at work keeps anything.
    pub fn reclaim(&self) {
        self.epochs.visit_all(|slot| self.empty(slot));
    }

    /// Frees what of a thread slot's bag nobody can have any more.
    fn empty(&self, slot: &ThreadSlot<'_, Weighed<P>>) {
        for (retired, (objects, bytes)) in slot.expired() {
            slot.count(Count::FreedObjects, objects);
            slot.count(Count::FreedBytes, bytes);
            // SAFETY: it was taken out of the tree, and whoever could have it has left (E2).
            if let Some(pid) = unsafe { retired.free(&self.graves, |block| slot.give(block)) } {
                slot.count(Count::FreedPids, 1);
                self.table.release(pid);
            }
        }
    }
}

/// A model or a schedule found something: the tree may be anything.
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
            // SAFETY: nobody is at work any more, and it is not in the tree.
            if let Some(pid) = unsafe { retired.free(&self.graves, |block| slot.give(block)) } {
                self.table.release(pid);
            }
        }
        let (words, counted) = (self.table.words(), self.memory().page_bytes);
        let slot = self.epochs.enter();
        // SAFETY: nobody is at work any more, and what was retired has been freed.
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
