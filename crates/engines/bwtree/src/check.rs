//! The structure checker: it walks the whole tree, concurrently with operations, and reports violated invariants.
//!
//! It reads the head of a page (the page's word in the mapping table) once and checks the delta chain from this head. It also checks the
//! page against its children and right sibling, if the page did not change while these were read. If no other operation changed the tree
//! during the walk, it also checks the totals over all pages.
//!
//! It checks P1 to P3 of `page`, the order of LSNs, and the counters.

use std::borrow::Borrow;

use crate::node::{Body, Head};
use crate::page::{Outline, Records, lookup, terms};
use crate::pairs::{At, Pairs, Place};
use crate::stats::{Count, Stats};
use crate::structure::Contents;
use crate::table::{Pid, ROOT};
use crate::tree::{Tree, Visit};

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Descriptions of the violations, at most 100 for single pages. Empty if there are none.
    pub problems: Vec<String>,
    /// Number of records found.
    pub records: u64,
    /// Number of levels, with the leaves'.
    pub levels: u32,
    /// Number of pages found.
    pub pages: u64,
    /// Number of pages that are not in memory. Their records are counted and not compared.
    pub evicted: u64,
    /// Number of comparisons of a page with one of its children or its right sibling.
    pub judged: u64,
    /// True if no other operation was active at the start or the end of the walk, and none changed the tree during the walk. Then the
    /// totals were checked, and `records` is exact.
    pub is_quiet: bool,
}

/// Maximum number of reported violations of single pages.
const TOLD: usize = 100;

struct Walk<'v, 't, P: Pairs> {
    visit: &'v Visit<'t, P>,
    found: Check,
    /// Pages found, by level. In `terms`, the index terms that lead to a page of the level.
    pages: Vec<u64>,
    terms: Vec<u64>,
    /// Bytes of memory of the pages.
    memory: u64,
}

/// The low key of a page. A remove delta has it too.
fn low_of<P: Pairs>(head: Head<'_, P>) -> Option<&P::Fence> {
    if let Body::Remove { low } = head.body() { low.as_ref() } else { Outline::of(head).low }
}

impl<P: Pairs> Walk<'_, '_, P> {
    fn tell(&mut self, pid: Pid, what: impl FnOnce() -> String) {
        if self.found.problems.len() < TOLD {
            self.found.problems.push(format!("{pid:?}: {}", what()));
        }
    }

    /// Checks P1 and the order of LSNs in one chain.
    fn judge_page(&mut self, pid: Pid, head: Head<'_, P>, outline: &Outline<'_, P>) {
        let mut node = head;
        while let Some(next) = node.next() {
            if next.lsn() >= node.lsn() || next.level() != head.level() || next.depth() + 1 != node.depth() {
                let (a, b) = (next.lsn(), node.lsn());
                self.tell(pid, || {
                    format!("a node of LSN {b} is in front of one of LSN {a}, or on another level")
                });
            }
            node = next;
        }
        if !node.is_in_order() {
            self.tell(pid, || {
                "changes beside it are not in the order of their LSNs, or not where they say".to_owned()
            });
        }
        if let Body::Evicted { leaf, .. } = head.body() {
            self.found.records += u64::from(leaf.records);
            self.found.evicted += 1;
            return;
        }
        let contents = Contents::of(head, &self.visit.tree.options);
        let bytes = contents.bytes(0..contents.len());
        if bytes != head.bytes() {
            self.tell(pid, || format!("{bytes} bytes are noted down as {}", head.bytes()));
        }
        let keys: Vec<P::Fence> = match &contents {
            Contents::Leaf(Records { live, .. }, _) => {
                self.found.records += live.len() as u64;
                live.iter().map(|record| P::fence(P::record_key(*record))).collect()
            }
            Contents::Inner(terms, level) => {
                if terms.is_empty() || terms[0].0.is_some() {
                    self.tell(pid, || "the first term is missing".to_owned());
                }
                self.terms[*level as usize - 1] += terms.len() as u64;
                terms.iter().filter_map(|(key, _)| key.map(P::fence)).collect()
            }
        };
        let mut last = outline.low.cloned();
        for (i, key) in keys.iter().enumerate() {
            // Only the first record of a leaf may be at the low key.
            let may_equal = i == 0 && head.level() == 0;
            if let Some(last) = &last {
                let order = key.cmp(last);
                if order.is_lt() || (order.is_eq() && !may_equal) {
                    self.tell(pid, || format!("key {key:?} comes after {last:?}"));
                }
            }
            if outline.high.is_some_and(|high| key >= high) {
                self.tell(pid, || format!("key {key:?} is not below {:?}", outline.high));
            }
            if head.level() == 0 && lookup(head, key.borrow()).is_none() {
                self.tell(pid, || format!("key {key:?} is there and is not found"));
            }
            last = Some(key.clone());
        }
        if outline.high.is_some() != outline.right.is_some() {
            self.tell(pid, || format!("high key {:?}, right sibling {:?}", outline.high, outline.right));
        }
    }

    /// Checks P2 and P3: the level and the low key of a child or right sibling.
    fn judge_other(&mut self, pid: Pid, head: Head<'_, P>, other: Pid, level: u32, low: Option<&P::Fence>) {
        let found = self.visit.load(other).map(|head| (head.level(), low_of(head).cloned()));
        if !self.visit.load(pid).is_some_and(|again| again.is(head)) {
            return;
        }
        self.found.judged += 1;
        if found != Some((level, low.cloned())) {
            self.tell(pid, || {
                format!("{other:?} should begin at {low:?} on level {level}, and is {found:?}")
            });
        }
    }

    fn judge_others(&mut self, pid: Pid, head: Head<'_, P>, outline: &Outline<'_, P>) {
        if let Some(right) = outline.right {
            self.judge_other(pid, head, right, head.level(), outline.high);
        }
        if head.level() > 0 {
            for (key, child) in terms(head) {
                let low = key.map(P::fence).or_else(|| outline.low.cloned());
                // The remove delta of a shrink has no low key. That matches: the root's only child has none either.
                self.judge_other(pid, head, child, head.level() - 1, low.as_ref());
            }
        }
    }

    fn walk_level(&mut self, level: u32) {
        let mut at: Option<P::Fence> = None;
        loop {
            let place = at.as_ref().map_or(Place::First, |at| Place::At(at.borrow()));
            let Some((pid, head)) = self.visit.find(place, level) else { return };
            let outline = Outline::of(head);
            if outline.low > at.as_ref() {
                self.tell(pid, || format!("was found for {at:?}, and begins at {:?}", outline.low));
            }
            self.pages[level as usize] += 1;
            self.memory += head.chain_memory() as u64;
            self.judge_page(pid, head, &outline);
            self.judge_others(pid, head, &outline);
            let Some(high) = outline.high else { return };
            at = Some(high.clone());
        }
    }
}

impl<P: Pairs> Tree<P> {
    /// Walks the whole tree and checks its structure. May run concurrently with all operations. O(records).
    pub fn check(&self) -> Check {
        let visit = self.visit();
        // The numbers that a thread slot draws only grow, so an equal sum means that none was drawn.
        let drawn = || self.epochs.tally(Count::Drawn);
        let before = drawn();
        let is_alone = || self.epochs.seated() == 1;
        let was_alone = is_alone();
        let levels = visit.load(ROOT).map_or(0, |root| root.level() + 1);
        let mut walk = Walk {
            visit: &visit,
            found: Check::default(),
            pages: vec![0; levels as usize],
            terms: vec![0; levels as usize],
            memory: 0,
        };
        (0..levels).rev().for_each(|level| walk.walk_level(level));
        let Walk { mut found, pages, mut terms, memory: walked, .. } = walk;
        found.pages = pages.iter().sum();
        found.levels = levels;
        let tally = |count| self.epochs.tally(count);
        let (counted, limbo) = (self.len(), tally(Count::RetiredPids).wrapping_sub(tally(Count::FreedPids)));
        let (used, free) = (self.table.used(), self.table.count_free());
        let memory = self.memory().page_bytes;
        // A thread that changed the tree meanwhile drew an LSN meanwhile, or was active at the start.
        found.is_quiet = was_alone && is_alone() && drawn() == before;
        if !found.is_quiet {
            return found;
        }
        let mut tell = |what: String| found.problems.push(what);
        if memory != walked {
            tell(format!("pages take {walked} bytes of memory, and {memory} are counted"));
        }
        if counted != found.records {
            tell(format!("{counted} records are counted, {} are there", found.records));
        }
        // No term leads to the root.
        if let Some(last) = terms.last_mut() {
            *last += 1;
        }
        if pages != terms {
            tell(format!("pages by level: {pages:?}, terms: {terms:?}"));
        }
        if used != found.pages + free.wrapping_add(limbo) {
            tell(format!("{used} PIDs, of which {} pages, {free} free, {limbo} retired", found.pages));
        }
        found
    }

    /// The counters and sizes of the tree. Walks over all pages. O(records).
    pub fn stats(&self) -> Stats {
        let tally = |count| self.epochs.tally(count);
        let mut stats = Stats {
            records: self.len(),
            table_bytes: self.table.memory() as u64,
            updates: tally(Count::Updates),
            update_failures: tally(Count::UpdateFailures),
            consolidations: tally(Count::Consolidations),
            consolidation_failures: tally(Count::ConsolidationFailures),
            splits: tally(Count::Splits),
            split_failures: tally(Count::SplitFailures),
            merges: tally(Count::Merges),
            merge_failures: tally(Count::MergeFailures),
            root_splits: tally(Count::RootSplits),
            root_shrinks: tally(Count::RootShrinks),
            index_posts: tally(Count::IndexPosts),
            structure_failures: tally(Count::StructureFailures),
            helped: tally(Count::Helped),
            paged_in: tally(Count::PagedIn),
            freed_objects: tally(Count::FreedObjects),
            freed_bytes: tally(Count::FreedBytes),
            freed_pids: tally(Count::FreedPids),
            retired_objects: tally(Count::RetiredObjects),
            retired_bytes: tally(Count::RetiredBytes),
            retired_pids: tally(Count::RetiredPids),
            ..Stats::default()
        };
        let visit = self.visit();
        stats.levels = visit.load(ROOT).map_or(0, |root| root.level() + 1);
        for level in 0..stats.levels {
            let mut at: Option<P::Fence> = None;
            while let Some((_, head)) = match &at {
                None => visit.find(Place::First, level),
                Some(at) => visit.find(At(at.borrow()), level),
            } {
                if level == 0 {
                    stats.leaves += 1;
                    stats.leaf_deltas += u64::from(head.depth());
                    stats.chain_max = stats.chain_max.max(head.depth());
                } else {
                    stats.inner_pages += 1;
                    stats.inner_deltas += u64::from(head.depth());
                }
                stats.page_bytes += head.chain_memory() as u64;
                let Some(high) = Outline::of(head).high else { break };
                at = Some(high.clone());
            }
        }
        stats.pids = stats.leaves + stats.inner_pages;
        stats
    }
}
