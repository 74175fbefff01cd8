//! Merges of pages, and the shrink of the root.
//!
//! A merge moves page R into its left sibling L. Page O is the parent of both. The steps are:
//!
//! 1. O gets a delta with R's low key, which announces the merge of R. From here on the merge must be completed. Until it is complete, O is
//!    not split, consolidated or removed. (The paper does not say what prevents a split of O between L and R meanwhile.)
//! 2. R gets a remove delta. R does not change any more. R's own split and merges are completed before this step, and the pages between L
//!    and R are known to O.
//! 3. L gets a merge delta, with R's contents as its second arm. L's split is completed before this step. If L itself is being removed, its
//!    merge is completed first.
//! 4. O gets an index delete delta. R cannot be found any more. The thread that put the delta there retires R's page id (PID) and R's
//!    remove delta.
//!
//! A thread reads the current state and does the next step. So any thread can begin a merge, and any number of threads can take part.
//! Leaves are merged only if both are in memory, where they stay until the merge is complete (V2 of [`crate::eviction`]). So no step reads
//! an image, and none can fail.
//!
//! Invariants:
//! * G1: from step 1 to step 4, R is a child of O, and L is the child of O to the left of R. A page that is split off from L comes between
//!   the two. Then this page takes the role of L.
//! * G2: step 3 is one exchange (compare-and-swap) of L's word in the mapping table. The exchange expects a head under which L's high
//!   key is R's low key, and R is L's right sibling. Afterwards L ends further right, so the exchange can succeed only once.
//! * G3: a PID is reused only when no active thread can still know it (M2 of [`crate::table`]). So R is the same page throughout.
//!
//! The root shrinks when it has only one child, and this child has no right sibling. The child gets a remove delta without a low key, and
//! its contents become the root's. Only a split of the child could give the root another child, and the child cannot be split any more.
//!
//! Commit point: the exchange of step 3; for the shrink, the exchange of the root's word. Paper: Bw-tree §IV-B, §IV-C.

use std::borrow::Borrow;
use std::cmp::Ordering;

use crate::node::{Body, Head, Link, Retired};
use crate::omission::Omission;
use crate::page::{Bounds, Outline, find_term, term_bytes_of, terms};
use crate::pairs::{At, Pairs, Place};
use crate::stats::Count;
use crate::structure::Contents;
use crate::table::{Pid, ROOT};
use crate::tree::Visit;

/// Compares the high keys of two pages. `None` is above all keys.
fn compare_high<K: Ord>(a: Option<&K>, b: Option<&K>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.cmp(b),
        (a, b) => a.is_none().cmp(&b.is_none()),
    }
}

impl<P: Pairs> Visit<'_, P> {
    /// Merges a small page with a neighbour below the same parent, if both fit into one page.
    pub(crate) fn merge_with_neighbour(&self, pid: Pid, level: u32, low: Option<&P::Fence>) {
        // The right page of the two is the one that is removed.
        if !self.merge(pid, level, low, 0) {
            self.merge(pid, level, low, 1);
        }
    }

    /// Merges the child `further` places to the right of page `pid` into its left sibling, if both together take at most three quarters of
    /// the split size. Returns false if there is no such pair or it is too large.
    pub(crate) fn merge(&self, pid: Pid, level: u32, low: Option<&P::Fence>, further: usize) -> bool {
        self.keeping_leaves(level, || self.announce_and_merge(pid, level, low, further))
    }

    /// Step 1, and then the others.
    fn announce_and_merge(&self, pid: Pid, level: u32, low: Option<&P::Fence>, further: usize) -> bool {
        let place = low.map_or(Place::First, |low| Place::At(low.borrow()));
        let Some((parent, head)) = self.find(place, level + 1) else { return false };
        let terms = terms(head);
        let Some(victim) = terms.iter().position(|term| term.1 == pid).map(|at| at + further) else {
            return false;
        };
        let Some((Some(key), _)) = terms.get(victim) else { return false };
        let key = P::fence(key);
        if Outline::of(head).merging.contains(&&key) {
            self.finish_merge(level, key.borrow());
            return true;
        }
        let pages = [terms[victim - 1].1, terms[victim].1];
        let loaded = || pages.iter().filter_map(|page| self.load(*page));
        // A merge is not worth a read of an image.
        if loaded().any(|head| head.evicted().is_some()) {
            return false;
        }
        let bytes: usize = loaded().map(|head| head.bytes()).sum();
        // A larger page would soon be split again.
        if bytes > self.sizes(level).0 / 4 * 3 {
            return false;
        }
        let body = Body::IndexMerging { key: key.clone() };
        let delta = self.delta(head, self.draw(head.lsn()), head.bytes(), body);
        if self.append(parent, head, delta, Omission::Structure) {
            self.finish_merge(level, key.borrow());
        } else {
            self.count(Count::MergeFailures);
        }
        true
    }

    /// Completes the operation that put the remove delta on the page with this head.
    #[cold]
    pub(crate) fn finish_removal(&self, head: Head<'_, P>) {
        match head.body() {
            Body::Remove { low: Some(low) } => self.finish_merge(head.level(), low.borrow()),
            Body::Remove { low: None } => self.finish_shrink(),
            _ => {}
        }
    }

    /// Completes the merge of the page on `level` that begins at `key`, if one is announced.
    pub(crate) fn finish_merge(&self, level: u32, key: &P::Key) {
        if let Some(parent) = self.keeping_leaves(level, || self.merge_pages(level, key)) {
            self.maintain(parent);
            if level > 0 {
                self.merge_at(level - 1, key);
            }
        }
    }

    /// Calls `merge`. If it merges leaves that the eviction may evict, the eviction is stopped meanwhile (V2). A merge inside of another one
    /// of this thread needs no second lock.
    fn keeping_leaves<R>(&self, level: u32, merge: impl FnOnce() -> R) -> R {
        if level > 0 || !self.shelf_exists() || self.keeps_leaves.get() {
            return merge();
        }
        // The lock protects no data, so a panic while it was held has damaged nothing.
        let _lock = self.tree.merging.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.keeps_leaves.set(true);
        let result = merge();
        self.keeps_leaves.set(false);
        result
    }

    /// The steps 2 to 4. Returns the page id of the parent if this thread completed the merge.
    pub(crate) fn merge_pages(&self, level: u32, key: &P::Key) -> Option<Pid> {
        loop {
            let (parent, head) = self.find(At(key), level + 1)?;
            let outline = Outline::of(head);
            if !outline.merging.iter().any(|own| (*own).borrow() == key) {
                return None;
            }
            let terms = terms(head);
            let at = find_term(&terms, key).ok()?;
            let (victim, (left_key, left)) = (terms[at].1, terms[at - 1]);
            let next = terms.get(at + 1).and_then(|term| term.0).map(P::fence);
            let high = next.or_else(|| outline.high.cloned());
            let (Some(removed), Some(kept)) = (self.load(victim), self.load(left)) else { continue };
            assert!(
                removed.evicted().is_none() && kept.evicted().is_none(),
                "an evicted leaf is merged (V2)"
            );
            if kept.is_removed() {
                // The left page is being removed too: its merge comes first.
                if let Some(left_key) = left_key {
                    self.finish_merge(level, left_key);
                }
                continue;
            }
            if !removed.is_removed() {
                // A page that was split off from L takes its role.
                if self.is_next(left, kept, victim, key) {
                    self.remove(victim, removed, key, high.as_ref());
                }
                continue;
            }
            let low = left_key.map(P::fence).or_else(|| outline.low.cloned());
            if !self.take_over(left, kept, victim, removed, key) {
                continue;
            }
            let body = Body::IndexDelete { key: P::fence(key), low, high, child: left };
            let bytes = head.bytes() - term_bytes_of::<P>(key);
            let delta = self.delta(head, self.draw(head.lsn()), bytes, body);
            if self.append(parent, head, delta, Omission::Structure) {
                self.count(Count::Merges);
                self.discard(victim, Retired::node(removed));
                return Some(parent);
            }
            self.count(Count::StructureFailures);
        }
    }

    /// Step 2: puts the remove delta on the page with head `victim`. `high` is the page's end according to the parent.
    fn remove(&self, pid: Pid, victim: Head<'_, P>, key: &P::Key, high: Option<&P::Fence>) {
        let outline = Outline::of(victim);
        if let Some(key) = outline.merging.first() {
            return self.finish_merge(victim.level() - 1, (*key).borrow());
        }
        for key in &outline.merged {
            self.finish_merge(victim.level(), (*key).borrow());
        }
        match (compare_high(outline.high, high), outline.high, outline.right) {
            (Ordering::Equal, ..) => {
                let body = Body::Remove { low: Some(P::fence(key)) };
                let delta = self.delta(victim, self.draw(victim.lsn()), victim.bytes(), body);
                if !self.append(pid, victim, delta, Omission::Structure) {
                    self.count(Count::StructureFailures);
                }
            }
            (Ordering::Less, Some(own), Some(right)) => self.post_index(pid, victim.level(), own, right),
            // The parent has changed.
            _ => {}
        }
    }

    /// Step 3: gives the contents of `removed` to the page with head `kept`. True if this was already done.
    fn take_over(
        &self,
        left: Pid,
        kept: Head<'_, P>,
        victim: Pid,
        removed: Head<'_, P>,
        key: &P::Key,
    ) -> bool {
        if Outline::of(kept).high.is_none_or(|own| own.borrow() > key) {
            return true;
        }
        // G2: R is not merged yet, so its contents are its own.
        if let Some(contents) = removed.next().filter(|_| self.is_next(left, kept, victim, key)) {
            let of = Outline::of(contents);
            let (high, right) = (of.high.cloned(), of.right);
            let body = Body::Merge { key: P::fence(key), contents: Link::to(contents), high, right };
            // The first term of R has no key, and gets one in L.
            let first = if kept.level() > 0 { P::key_bytes(key) } else { 0 };
            let lsn = self.draw(kept.lsn().max(removed.lsn()));
            let delta = self.delta(kept, lsn, kept.bytes() + removed.bytes() + first, body);
            if !self.append(left, kept, delta, Omission::Structure) {
                self.count(Count::StructureFailures);
            }
        }
        false
    }

    /// True if the page with head `kept` ends where `victim` begins. If a page between the two was split off from it, tells the parent.
    fn is_next(&self, left: Pid, kept: Head<'_, P>, victim: Pid, key: &P::Key) -> bool {
        let outline = Outline::of(kept);
        let (Some(own), Some(right)) = (outline.high, outline.right) else { return false };
        if own.borrow() < key {
            self.post_index(left, kept.level(), own, right);
        }
        own.borrow() == key && right == victim
    }

    /// Tries to merge the page of a level that begins at `key` into its left sibling. The two became siblings when their parents were
    /// merged, and one of them may be small.
    fn merge_at(&self, level: u32, key: &P::Key) {
        let Some((pid, head)) = self.find(At(key), level) else { return };
        if pid != ROOT {
            self.merge(pid, level, Outline::of(head).low, 0);
        }
    }

    /// The only child of the root, if it has exactly one.
    fn only_child(&self) -> Option<(Head<'_, P>, Pid)> {
        let root = self.load(ROOT).filter(|root| root.level() > 0)?;
        match terms(root)[..] {
            [(_, child)] => Some((root, child)),
            _ => None,
        }
    }

    /// Replaces a root that has one child with the child's contents.
    pub(crate) fn shrink(&self) {
        while let Some((_, child)) = self.only_child() {
            let Some(head) = self.load(child) else { return };
            // A shrink is not worth a read of an image.
            if head.evicted().is_some() {
                return;
            }
            if !head.is_removed() {
                let outline = Outline::of(head);
                for key in &outline.merging {
                    self.finish_merge(head.level() - 1, (*key).borrow());
                }
                // If this child is still the only one of the root, all merges in it are complete.
                let is_alone = outline.high.is_none() && outline.merging.is_empty();
                if !is_alone || self.only_child().is_none_or(|(_, again)| again != child) {
                    if outline.high.is_some() {
                        return;
                    }
                    continue;
                }
                let delta = self.delta(head, self.draw(head.lsn()), head.bytes(), Body::Remove { low: None });
                if !self.append(child, head, delta, Omission::Structure) {
                    self.count(Count::StructureFailures);
                    continue;
                }
            }
            self.finish_shrink();
        }
    }

    /// Completes a shrink: gives the root the contents of its only child, which has a remove delta.
    fn finish_shrink(&self) {
        while let Some((root, child)) = self.only_child() {
            let Some(removed) = self.load(child) else { return };
            let (Body::Remove { low: None }, Some(old)) = (removed.body(), removed.next()) else { return };
            let contents = Contents::of(old, &self.tree.options);
            let bounds = Bounds { low: None, high: None, right: None };
            let page =
                self.page(&contents, 0..contents.len(), self.draw(root.lsn().max(removed.lsn())), bounds);
            if self.replace(ROOT, root, page, &[], Omission::Structure) {
                self.count(Count::RootShrinks);
                // The root has the child's records, except these.
                self.discard(child, Retired::chain(removed, contents.dead()));
                return;
            }
            self.count(Count::StructureFailures);
        }
    }
}
