//! Structure changes: consolidation, splits, index terms. Merges are in [`merge`](crate::merge).
//!
//! A split has two steps. First the right half goes into a new page that no thread knows, and the consolidated left half replaces the old
//! page and links the right half (the half split). From here on a descent finds the right half through the left one. Then the parent gets a
//! delta with the index term, which completes the split. The paper links the right half by a delta in front of the old page and
//! consolidates later; that delta's chain would keep the right half's records too.
//!
//! The root is split in one step: both halves go into new pages, and a new page of two terms replaces the root. The root's page id (PID)
//! never changes.
//!
//! Invariants:
//! * S1: to post an index term, a thread reads the parent's head, then checks that the split exists, then exchanges the parent's word. A
//!   merge that undoes the split after the check also changes the parent's word, so the exchange fails.
//! * S2: a page is consolidated, split or removed only when the merges in its chain are complete. So the contents of a merged page are
//!   reachable through one page only, and no announced merge is lost.
//!
//! Commit points: the exchange that installs the left half; for the root, the exchange of its word. Paper: Bw-tree §III-B, §IV-A.

use std::borrow::Borrow;

use crate::node::{Body, Head, Made, Retired};
use crate::omission::{Omission, is_omitted};
use crate::options::Options;
use crate::page::{Bounds, New, Outline, Records, Term, find_term, term_bytes, term_bytes_of, terms};
use crate::paged::Saved;
use crate::pairs::{At, Pairs, Place, RECORD_BYTES};
use crate::stats::Count;
use crate::table::{Pid, ROOT};
use crate::tree::Visit;

/// The contents of a page, in key order.
pub(crate) enum Contents<'g, P: Pairs> {
    /// The records. True if a record weighs its bytes too ([`Options::weighs_records`](crate::Options)).
    Leaf(Records<'g, P>, bool),
    Inner(Vec<Term<'g, P>>, u32),
}

impl<'g, P: Pairs> Contents<'g, P> {
    pub(crate) fn of(head: Head<'g, P>, options: &Options) -> Self {
        if head.level() == 0 {
            Self::Leaf(Records::of(head).copied(options.weighs_records), options.weighs_records)
        } else {
            Self::Inner(terms(head), head.level())
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Leaf(records, _) => records.live.len(),
            Self::Inner(terms, _) => terms.len(),
        }
    }

    fn bytes_of(&self, i: usize) -> usize {
        match self {
            Self::Leaf(_, false) => RECORD_BYTES,
            Self::Leaf(records, true) => RECORD_BYTES + P::record_weight(records.live[i]),
            Self::Inner(terms, _) => term_bytes::<P>(&terms[i]),
        }
    }

    /// Bytes of a page with this range of the contents.
    pub(crate) fn bytes(&self, range: std::ops::Range<usize>) -> usize {
        // The first term of a page has no key.
        let first = match self {
            Self::Inner(terms, _) if !range.is_empty() => terms[range.start].0.map_or(0, P::key_bytes),
            _ => 0,
        };
        range.map(|i| self.bytes_of(i)).sum::<usize>() - first
    }

    /// Records of the chain that are not part of the contents.
    pub(crate) fn dead(&self) -> &[P::Record<'g>] {
        match self {
            Self::Leaf(records, _) => &records.dead,
            Self::Inner(..) => &[],
        }
    }

    /// The index at which the contents divide into two halves with about the same bytes. Neither half is empty.
    fn middle(&self) -> usize {
        let half = self.bytes(0..self.len()) / 2;
        let mut sum = 0;
        let before = (0..self.len()).take_while(|i| {
            sum += self.bytes_of(*i);
            sum <= half
        });
        before.count().clamp(1, self.len() - 1)
    }

    /// A key that separates the items at `at - 1` and `at`.
    pub(crate) fn separator(&self, at: usize) -> Option<P::Fence> {
        match self {
            Self::Leaf(Records { live, .. }, _) => {
                Some(P::separator(P::record_key(live[at - 1]), P::record_key(live[at])))
            }
            Self::Inner(terms, _) => terms[at].0.map(P::fence),
        }
    }
}

impl<P: Pairs> Visit<'_, P> {
    /// Makes a base page of a range of the contents.
    pub(crate) fn page(
        &self,
        contents: &Contents<'_, P>,
        range: std::ops::Range<usize>,
        lsn: u64,
        bounds: Bounds<P>,
    ) -> Made<P> {
        let bytes = contents.bytes(range.clone());
        match contents {
            Contents::Leaf(records, _) => {
                self.leaf_page(New { level: 0, lsn, bytes }, &records.live[range], bounds, Saved::default())
            }
            Contents::Inner(terms, level) => {
                self.inner_page(New { level: *level, lsn, bytes }, &terms[range], bounds)
            }
        }
    }

    /// The bytes above which a page of a level is split, and below which it is merged.
    pub(crate) fn sizes(&self, level: u32) -> (usize, usize) {
        let options = &self.tree.options;
        if level == 0 {
            (options.leaf_split_bytes, options.leaf_merge_bytes)
        } else {
            (options.inner_split_bytes, options.inner_merge_bytes)
        }
    }

    /// Completes the merges in a page's chain (S2). False if the page must be loaded again because a merge below it was completed.
    fn settle(&self, head: Head<'_, P>, outline: &Outline<'_, P>) -> bool {
        for key in &outline.merged {
            self.finish_merge(head.level(), (*key).borrow());
        }
        for key in &outline.merging {
            self.finish_merge(head.level() - 1, (*key).borrow());
        }
        outline.merging.is_empty()
    }

    /// Consolidates a page, and splits or merges it if its size requires that. If another thread changes the page meanwhile, this thread
    /// stops.
    #[cold]
    pub(crate) fn maintain(&self, pid: Pid) {
        let (head, outline) = loop {
            let Some(head) = self.load(pid) else { return };
            // An evicted leaf has no chain.
            if head.is_removed() || head.evicted().is_some() {
                return;
            }
            let outline = Outline::of(head);
            if self.settle(head, &outline) {
                break (head, outline);
            }
        };
        let (split, merge) = self.sizes(head.level());
        let bytes = head.bytes();
        if bytes <= split
            && let Some((page, dead)) = self.merged(head, self.draw(head.lsn()))
        {
            if self.install(pid, head, page, &dead) && pid != ROOT && bytes < merge {
                self.merge_with_neighbour(pid, 0, outline.low);
            }
            return;
        }
        let contents = Contents::of(head, &self.tree.options);
        if bytes > split && contents.len() >= if head.level() == 0 { 2 } else { 4 } {
            return self.split(pid, head, &outline, &contents);
        }
        if head.depth() > 0 && !self.consolidate(pid, head, &outline, &contents) {
            return;
        }
        if pid == ROOT && head.level() > 0 && contents.len() == 1 {
            self.shrink();
        } else if pid != ROOT && bytes < merge {
            self.merge_with_neighbour(pid, head.level(), outline.low);
        }
    }

    fn consolidate(
        &self,
        pid: Pid,
        head: Head<'_, P>,
        outline: &Outline<'_, P>,
        contents: &Contents<'_, P>,
    ) -> bool {
        let (low, high) = (outline.low.cloned(), outline.high.cloned());
        let bounds = Bounds { low, high, right: outline.right };
        let page = self.page(contents, 0..contents.len(), self.draw(head.lsn()), bounds);
        self.install(pid, head, page, contents.dead())
    }

    /// Replaces a chain with a consolidated page, if the chain has not changed. `dead` are the records that are not in the page.
    fn install(&self, pid: Pid, head: Head<'_, P>, page: Made<P>, dead: &[P::Record<'_>]) -> bool {
        let done = self.replace(pid, head, page, dead, Omission::Consolidation);
        self.count(if done { Count::Consolidations } else { Count::ConsolidationFailures });
        done
    }

    pub(crate) fn split(
        &self,
        pid: Pid,
        head: Head<'_, P>,
        outline: &Outline<'_, P>,
        contents: &Contents<'_, P>,
    ) {
        if let Some((key, right)) = self.split_half(pid, head, outline, contents) {
            self.post_index(pid, head.level(), &key, right);
        }
    }

    /// The first step of a split; the parent is not changed. Returns the separator and the right half. `None` if no second step is needed:
    /// the root was split, or the page was not split because it had changed or no PID was left.
    pub(crate) fn split_half(
        &self,
        pid: Pid,
        head: Head<'_, P>,
        outline: &Outline<'_, P>,
        contents: &Contents<'_, P>,
    ) -> Option<(P::Fence, Pid)> {
        let middle = contents.middle();
        let key = contents.separator(middle)?;
        let (low, high) = (Some(key.clone()), outline.high.cloned());
        let bounds = Bounds { low, high, right: outline.right };
        let right = self.page(contents, middle..contents.len(), self.draw(head.lsn()), bounds);
        let Some(right) = self.allocate(right) else {
            // Without a PID the page cannot be split.
            self.consolidate(pid, head, outline, contents);
            return None;
        };
        if pid == ROOT {
            self.split_root(head, contents, middle, &key, right);
            return None;
        }
        let bounds = Bounds { low: outline.low.cloned(), high: Some(key.clone()), right: Some(right) };
        let left = self.page(contents, 0..middle, self.draw(head.lsn()), bounds);
        if !self.replace(pid, head, left, contents.dead(), Omission::Structure) {
            self.forget(right);
            self.count(Count::SplitFailures);
            return None;
        }
        self.count(Count::Splits);
        Some((key, right))
    }

    /// Splits the root. The right half is in a page that no thread knows. The left half gets a page too, and both become the root's
    /// children.
    fn split_root(
        &self,
        head: Head<'_, P>,
        contents: &Contents<'_, P>,
        middle: usize,
        key: &P::Fence,
        right: Pid,
    ) {
        let bounds = Bounds { low: None, high: Some(key.clone()), right: Some(right) };
        let left = self.page(contents, 0..middle, self.draw(head.lsn()), bounds);
        let Some(left) = self.allocate(left) else {
            return self.forget(right);
        };
        let terms: [Term<'_, P>; 2] = [(None, left), (Some(key.borrow()), right)];
        let bytes = terms.iter().map(term_bytes::<P>).sum();
        let new = New { level: head.level() + 1, lsn: self.draw(head.lsn()), bytes };
        let root = self.inner_page(new, &terms, Bounds { low: None, high: None, right: None });
        if self.replace(ROOT, head, root, contents.dead(), Omission::Structure) {
            self.count(Count::Splits);
            self.count(Count::RootSplits);
        } else {
            self.forget(left);
            self.forget(right);
            self.count(Count::SplitFailures);
        }
    }

    /// Discards a page that was never linked. It is retired, because a thread that knows its PID from earlier may read it. Its records
    /// belong to other nodes (N6).
    fn forget(&self, pid: Pid) {
        if let Some(page) = self.load(pid) {
            self.discard(pid, Retired::node(page));
        }
    }

    /// Completes the split of page `pid` on `level`. Its right half `right` begins at `key`.
    #[cold]
    pub(crate) fn post_index(&self, pid: Pid, level: u32, key: &P::Fence, right: Pid) {
        loop {
            let Some((parent, head)) = self.find(At(key.borrow()), level + 1) else { return };
            let (terms, outline) = (terms(head), Outline::of(head));
            let Err(at) = find_term(&terms, key.borrow()) else { return };
            // The first term of a page has no key of its own: its key is the page's low key.
            if outline.low == Some(key) {
                return;
            }
            // S1.
            if !is_omitted(Omission::Validation) && !self.is_split_at(pid, level, key, right) {
                return;
            }
            let next = terms.get(at).and_then(|term| term.0).map(P::fence);
            let high = next.or_else(|| outline.high.cloned());
            let body = Body::IndexInsert { key: key.clone(), high, child: right };
            let bytes = head.bytes() + term_bytes_of::<P>(key.borrow());
            let delta = self.delta(head, self.draw(head.lsn()), bytes, body);
            if self.append(parent, head, delta, Omission::Structure) {
                self.count(Count::IndexPosts);
                if head.depth() + 1 >= self.tree.options.inner_chain {
                    self.maintain(parent);
                }
                return;
            }
            self.count(Count::StructureFailures);
        }
    }

    /// True if a page ends at `key` and its right sibling is `right`. The page is `pid`, or one that was split off from it later. If one of
    /// these was merged into another page, the function takes the page that now has the keys before `key`.
    fn is_split_at(&self, mut pid: Pid, level: u32, key: &P::Fence, right: Pid) -> bool {
        loop {
            let known = self.load(pid).filter(|head| !head.is_removed());
            let other = || self.find(Place::Before(key.borrow()), level).map(|found| found.1);
            let Some(head) = known.or_else(other) else { return false };
            let outline = Outline::of(head);
            match (outline.high, outline.right) {
                (Some(high), Some(next)) if high < key && known.is_some() => pid = next,
                (high, next) => return high == Some(key) && next == Some(right),
            }
        }
    }
}
