//! The meaning of a delta chain: the lookup in it, and the contents of the page.
//!
//! A chain is read from its newest node on. The first node that has information about a key decides.
//!
//! Invariants:
//! * P1: each key in a node of a leaf is at or above the low key and below the high key that the page had when the node was added. The
//!   same holds for each separator of an inner page; the first child has no separator. In one chain the bounds only widen, by a merge
//!   delta: a split replaces the chain.
//! * P2: the index term of a child is the child's low key. The low key of the first child is the low key of the page itself.
//! * P3: a child is one level below its parent. The right sibling is on the same level, and its low key is the page's high key.
//! * P4: a page with a remove delta gets no other delta.
//! * P5: a right sibling that has no index term yet is reached through its left sibling.
//!
//! Paper: Bw-tree §III-B, §IV.

use std::borrow::Borrow;
use std::ops::Range;

use crate::node::{Body, Head};
use crate::pairs::{At, Changes, Pairs, Target};
use crate::search::beckon;
use crate::table::Pid;

/// The key range of a page and its right sibling. A page has the keys at or above `low` and below `high`.
#[derive(Debug)]
pub(crate) struct Bounds<P: Pairs> {
    /// `None`: the page is the first of its level.
    pub(crate) low: Option<P::Fence>,
    /// `None`: the page is the last of its level.
    pub(crate) high: Option<P::Fence>,
    /// The page whose keys begin at `high`.
    pub(crate) right: Option<Pid>,
}

/// The parameters of a new node.
pub(crate) struct New {
    pub(crate) level: u32,
    pub(crate) lsn: u64,
    pub(crate) bytes: usize,
}

/// The next step of a descent at a page.
pub(crate) enum Step<'g, P: Pairs> {
    /// Go down to this child.
    Child(Pid),
    /// Stop: the page is the target page on the requested level.
    Here,
    /// Go to the right sibling, which begins at this key.
    Right(&'g P::Fence, Pid),
    /// The page is being removed.
    Removed,
}

#[inline(always)]
fn admits<P: Pairs>(target: impl Target<P>, fence: Option<&P::Fence>) -> bool {
    fence.is_some_and(|fence| target.admits(fence))
}

/// The next step of a descent to `target` on `level`, at the page with this head.
#[inline(always)]
pub(crate) fn step<'g, P: Pairs>(head: Head<'g, P>, target: impl Target<P>, level: u32) -> Step<'g, P> {
    let mut node = head;
    loop {
        node = match node.body() {
            Body::Leaf { bounds, .. } | Body::Evicted { bounds, .. } => {
                return aside(bounds, target).unwrap_or(Step::Here);
            }
            Body::Inner { keys, children, bounds, .. } => {
                return aside(bounds, target).unwrap_or_else(|| {
                    if head.level() == level {
                        Step::Here
                    } else {
                        Step::Child(children[target.admitted(keys, |about| beckon(children, about))])
                    }
                });
            }
            Body::IndexInsert { key, high, child }
                if head.level() != level && target.admits(key) && !admits(target, high.as_ref()) =>
            {
                return Step::Child(*child);
            }
            Body::IndexDelete { low, high, child, .. }
                if head.level() != level
                    && low.as_ref().is_none_or(|low| target.admits(low))
                    && !admits(target, high.as_ref()) =>
            {
                return Step::Child(*child);
            }
            Body::Merge { key, high, right, .. } if target.admits(key) => {
                if let (Some(high), Some(right)) = (high, right)
                    && target.admits(high)
                {
                    return Step::Right(high, *right);
                }
                let Some(contents) = node.body().contents() else { return Step::Removed };
                contents
            }
            Body::Remove { .. } => return Step::Removed,
            _ => {
                let Some(next) = node.next() else { return Step::Removed };
                next
            }
        };
    }
}

#[inline(always)]
fn aside<P: Pairs>(bounds: &Bounds<P>, target: impl Target<P>) -> Option<Step<'_, P>> {
    match (&bounds.high, bounds.right) {
        (Some(high), Some(right)) if target.admits(high) => Some(Step::Right(high, right)),
        _ => None,
    }
}

/// The record of a key in the leaf with this head. The key belongs in this leaf.
#[inline(always)]
pub(crate) fn lookup<'g, P: Pairs>(head: Head<'g, P>, wanted: &P::Key) -> Option<P::Record<'g>> {
    let mut node = head;
    loop {
        node = match node.body() {
            Body::Leaf { run, changes, .. } => {
                return match node.find(changes, wanted) {
                    Some(found) => P::record_value(found).map(|_| found),
                    None => P::lookup(run, wanted),
                };
            }
            Body::Merge { key, .. } if At::<P>(wanted).admits(key) => node.body().contents()?,
            _ => node.next()?,
        };
    }
}

/// The bounds of a page and the structure changes in its chain.
pub(crate) struct Outline<'g, P: Pairs> {
    pub(crate) low: Option<&'g P::Fence>,
    pub(crate) high: Option<&'g P::Fence>,
    pub(crate) right: Option<Pid>,
    pub(crate) is_removed: bool,
    /// Keys of merge deltas: pages that were merged into this one since its last consolidation.
    pub(crate) merged: Vec<&'g P::Fence>,
    /// Index terms of children that will be merged.
    pub(crate) merging: Vec<&'g P::Fence>,
}

impl<'g, P: Pairs> Outline<'g, P> {
    /// Reads the chain of this head. O(length of the chain).
    pub(crate) fn of(head: Head<'g, P>) -> Self {
        let mut own = Self {
            low: None,
            high: None,
            right: None,
            is_removed: false,
            merged: Vec::new(),
            merging: Vec::new(),
        };
        let mut is_bounded = false;
        let mut gone: Vec<&P::Fence> = Vec::new();
        let mut node = Some(head);
        while let Some(at) = node {
            let mut bound = |high, right| {
                if !is_bounded {
                    (own.high, own.right, is_bounded) = (high, right, true);
                }
            };
            match at.body() {
                Body::Leaf { bounds, .. } | Body::Inner { bounds, .. } | Body::Evicted { bounds, .. } => {
                    bound(bounds.high.as_ref(), bounds.right);
                    own.low = bounds.low.as_ref();
                }
                Body::Merge { key, high, right, .. } => {
                    bound(high.as_ref(), *right);
                    own.merged.push(key);
                }
                Body::Remove { .. } => own.is_removed = true,
                Body::IndexDelete { key, .. } => gone.push(key),
                Body::IndexMerging { key } if !gone.contains(&key) => own.merging.push(key),
                _ => {}
            }
            node = at.next();
        }
        own
    }
}

/// An index term. The first term of a page has no key of its own.
pub(crate) type Term<'g, P> = (Option<&'g <P as Pairs>::Key>, Pid);

/// The records of a chain, live and dead.
pub(crate) struct Records<'g, P: Pairs> {
    /// The records of the leaf, in key order.
    pub(crate) live: Vec<P::Record<'g>>,
    /// The other records of the chain: replaced ones, and those that mark a deleted key. See also [`copied`](Self::copied).
    pub(crate) dead: Vec<P::Record<'g>>,
}

impl<P: Pairs> Default for Records<'_, P> {
    fn default() -> Self {
        Self { live: Vec::new(), dead: Vec::new() }
    }
}

impl<'g, P: Pairs> Records<'g, P> {
    /// Collects the records of the leaf with this head.
    pub(crate) fn of(head: Head<'g, P>) -> Self {
        let mut next = Some(head);
        while let Some(node) = next {
            match node.body() {
                Body::Leaf { run, .. } => return Self::with(run, Changes(node.changes().collect())),
                Body::Merge { .. } => {
                    let mut all = Self::default();
                    for arm in [node.next(), node.body().contents()].into_iter().flatten() {
                        let Self { live, dead } = Self::of(arm);
                        all.live.extend(live);
                        all.dead.extend(dead);
                    }
                    return all;
                }
                _ => next = node.next(),
            }
        }
        Self::default()
    }

    /// The records of a base page, with these changes of it.
    fn with(run: &'g P::Leaf, changes: Changes<'g, P>) -> Self {
        let (changes, mut dead) = changes.sorted();
        let mut live = Vec::with_capacity(P::len(run) + changes.len());
        let all = |range: Range<usize>| range.map(|i| P::at(run, i));
        let mut from = 0;
        for (spot, change) in changes {
            let (end, behind) = spot.records();
            live.extend(all(from..end));
            dead.extend(all(end..behind));
            if P::record_value(change).is_some() {
                live.push(change)
            } else {
                dead.push(change)
            }
            from = behind;
        }
        live.extend(all(from..P::len(run)));
        Self { live, dead }
    }

    /// For a page that copies its records: the small ones are dead after it replaces the chain (N8). Copies have no block and need not be
    /// among them.
    pub(crate) fn copied(mut self, copies: bool) -> Self {
        if copies {
            let is_replaced = |record: &P::Record<'g>| P::is_copied(*record) && P::record_memory(*record) > 0;
            self.dead.extend(self.live.iter().copied().filter(is_replaced));
        }
        self
    }
}

/// Term changes in front of a base page: only the newest of each key, in key order. The argument is ordered newest first.
fn newest<P: Pairs, T>(mut changes: Vec<(&P::Fence, T)>) -> Vec<(&P::Fence, T)> {
    // The sort is stable, so the newest change of a key stays first.
    changes.sort_by(|a, b| a.0.cmp(b.0));
    changes.dedup_by(|later, first| later.0 == first.0);
    changes
}

/// The index terms of the inner page with this head, in key order.
pub(crate) fn terms<P: Pairs>(head: Head<'_, P>) -> Vec<Term<'_, P>> {
    let mut changes: Vec<(&P::Fence, Option<Pid>)> = Vec::new();
    let mut base: Vec<Term<'_, P>> = Vec::new();
    let mut next = Some(head);
    while let Some(node) = next {
        match node.body() {
            Body::IndexInsert { key, child, .. } => changes.push((key, Some(*child))),
            Body::IndexDelete { key, .. } => changes.push((key, None)),
            Body::Inner { keys, children, .. } => {
                base.push((None, children[0]));
                base.extend((0..P::count(keys)).map(|i| (Some(P::separator_at(keys, i)), children[i + 1])));
            }
            Body::Merge { key, .. } => {
                base = node.next().map(terms).unwrap_or_default();
                let mut merged = node.body().contents().map(terms).unwrap_or_default();
                if let Some(first) = merged.first_mut() {
                    first.0 = Some(key.borrow());
                }
                base.extend(merged);
                break;
            }
            _ => {}
        }
        next = node.next();
    }
    for (key, child) in newest::<P, _>(changes) {
        let at = base.partition_point(|term| is_below(term, key.borrow()));
        let is_there = base.get(at).is_some_and(|term| term_is(term, key.borrow()));
        match (child, is_there) {
            (Some(child), true) => base[at].1 = child,
            (Some(child), false) => base.insert(at, (Some(key.borrow()), child)),
            (None, true) => drop(base.remove(at)),
            (None, false) => {}
        }
    }
    base
}

fn is_below<K: Ord + ?Sized>(term: &(Option<&K>, Pid), key: &K) -> bool {
    term.0.is_none_or(|own| own < key)
}

fn term_is<K: Ord + ?Sized>(term: &(Option<&K>, Pid), key: &K) -> bool {
    term.0 == Some(key)
}

/// Binary search for the term with exactly this key. `Err`: the position at which it would be inserted.
pub(crate) fn find_term<K: Ord + ?Sized>(terms: &[(Option<&K>, Pid)], key: &K) -> Result<usize, usize> {
    let at = terms.partition_point(|term| is_below(term, key));
    if terms.get(at).is_some_and(|term| term_is(term, key)) { Ok(at) } else { Err(at) }
}

/// Bytes that an index term takes in a page.
pub(crate) fn term_bytes<P: Pairs>((key, _): &Term<'_, P>) -> usize {
    key.map_or(0, P::key_bytes) + size_of::<u64>()
}

/// As [`term_bytes`], for a term with this key.
pub(crate) fn term_bytes_of<P: Pairs>(key: &P::Key) -> usize {
    P::key_bytes(key) + size_of::<u64>()
}
