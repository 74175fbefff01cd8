//! Late changes: changes of an evicted leaf that need no read of the leaf.
//!
//! [`Tree::set`] sets or removes a key and does not tell whether the key was there. If the leaf is evicted and has few late changes, the
//! evicted leaf gets one more. When the leaf is read for another reason, they are applied together. Then one read serves many changes.
//!
//! Until then the tree does not know how the late changes alter the number of its records: the leaf is *uncounted*.
//!
//! A batch plans its changes first ([`Tree::plan`]): it reads the leaves that would get too many. It also notes the leaf of each change, so
//! that the change needs no second descent, and prefetches the next leaves while it makes the changes.
//!
//! Commit point: the exchange that replaces the evicted leaf. The paper has no such changes: it reads a page that is not in memory.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;

use crate::copies::NewCopies;
use crate::epoch::ThreadSlot;
use crate::error::Result;
use crate::image::{self, Late};
use crate::node::{Body, Head, Weighed};
use crate::page::{Bounds, New, Outline, Step, step};
use crate::paged::{Evicted, Kept, NewEvicted, Stub};
use crate::pairs::{At, Pairs};
use crate::stats::Count;
use crate::sync::IS_SMALL;
use crate::table::{Pid, ROOT};
use crate::tree::{Change, Recorder, Tree, Visit};

/// The late changes that a batch will make in one leaf.
#[derive(Debug, Default)]
struct Planned {
    leaf: Option<Pid>,
    bytes: usize,
}

/// Number of leaves that are prefetched together.
const TOGETHER: usize = 8;
/// While a plan holds a thread slot, memory that is retired is not freed. So a plan of more changes than this holds none. A plan that reads
/// leaves releases its slot.
const SLOT_MAX: usize = 4096;

/// Changes that can be made now; see [`Tree::plan`].
#[derive(Debug)]
#[must_use = "a plan changes nothing before `make`"]
pub struct Plan<'t, P: Pairs> {
    tree: &'t Tree<P>,
    changes: &'t [image::Change<P>],
    /// The leaf of each change. A structure change may move the key to another leaf.
    leaves: Vec<Pid>,
    /// As long as it is held, no page number of `leaves` gets another page (M2). `None`: they are not used.
    slot: Option<ThreadSlot<'t, Weighed<P>>>,
}

/// The leaf is read if its late changes would take a larger share of it than an image of changes may, and more than this.
const BYTES_MIN: usize = 128;

/// A change that needs no read of the leaf.
#[derive(Debug)]
pub(crate) struct Blind<'v, P: Pairs> {
    /// `None`: the key is removed.
    pub(crate) value: Option<&'v P::Value>,
    /// The leaf is never read, however many late changes it has.
    pub(crate) always: bool,
}

impl<P: Pairs> Clone for Blind<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Pairs> Copy for Blind<'_, P> {}

impl<P: Pairs> Visit<'_, P> {
    /// The leaves of at most [`TOGETHER`] keys. Their cache misses overlap: all descents stop above the leaf, then each goes on.
    fn leaves(&self, changes: &[image::Change<P>]) -> impl Iterator<Item = (Pid, Head<'_, P>)> {
        let mut pids = [ROOT; TOGETHER];
        for (pid, (key, _)) in pids.iter_mut().zip(changes) {
            let target = At(key.borrow());
            // Without a level above the leaves, the descent begins at the root.
            if let Some((_, head)) = self.find(target, 1)
                && let Step::Child(child) = step(head, target, 0)
            {
                *pid = child;
                self.tree.table.fetch_word(child);
            }
        }
        // The load of a word prefetches the page.
        pids[..changes.len()].iter().for_each(|pid| _ = self.load(*pid));
        pids.into_iter().zip(changes).map(|(pid, (key, _))| {
            let target = At(key.borrow());
            self.leaf_from(pid, target)
        })
    }

    /// Replaces an evicted leaf by one with these late changes. Returns the LSN. `None` if the leaf has another state now.
    fn replace_late(
        &self,
        pid: Pid,
        head: Head<'_, P>,
        evicted: &Evicted,
        late: &[u8],
        copies: NewCopies,
    ) -> Option<u64> {
        let lsn = self.draw(head.lsn());
        let Outline { low, high, right, .. } = Outline::of(head);
        let bounds = Bounds { low: low.cloned(), high: high.cloned(), right };
        let kept = Kept { unsaved: &*evicted.kept.unsaved, late };
        let leaf = NewEvicted { kept, is_counted: false, ..evicted.with_copies(copies) };
        let page = self.evicted_page(New { level: 0, lsn, bytes: head.bytes() }, bounds, leaf);
        let is_replaced = self.replace_stub(pid, head, evicted, page);
        if is_replaced {
            self.count(Count::Updates);
        }
        is_replaced.then_some(lsn)
    }
}

impl<P: Pairs> Plan<'_, P> {
    /// Makes the changes. Calls `made` for each: whether the key existed, or `None` if this is not known.
    ///
    /// # Errors
    /// `KeyTooLong`, `ValueTooLong`. `Unreadable`: another thread has evicted a leaf and made late changes, and it cannot be read.
    pub fn make(self, mut made: impl FnMut(Option<bool>)) -> Result<()> {
        let Self { tree, changes, mut leaves, slot } = self;
        if slot.is_none() {
            leaves.fill(ROOT);
        }
        for (changes, leaves) in changes.chunks(TOGETHER).zip(leaves.chunks(TOGETHER)) {
            // The load of a word prefetches the page.
            slot.iter().for_each(|slot| leaves.iter().for_each(|pid| _ = tree.table.load(*pid, slot)));
            for ((key, value), pid) in changes.iter().zip(leaves) {
                made(tree.set_from(*pid, key.borrow(), value.as_ref().map(Borrow::borrow), true, &())?);
            }
        }
        Ok(())
    }
}

impl Planned {
    /// Adds a change of a leaf. Returns the evicted leaf if its late changes are too many then.
    fn add<P: Pairs>(
        &mut self,
        pid: Pid,
        head: Head<'_, P>,
        (key, value): &image::Change<P>,
    ) -> Option<Stub> {
        let Body::Evicted { leaf, .. } = head.body() else { return None };
        if self.leaf != Some(pid) {
            *self = Self { leaf: Some(pid), bytes: leaf.kept.late.len() };
        }
        self.bytes += P::fresh_space(key.borrow(), value.as_ref().map(Borrow::borrow)) + image::LATE_BYTES;
        (self.bytes > bytes_max(head.bytes())).then(|| head.stub(leaf))
    }
}

/// The most bytes of late changes of a leaf.
fn bytes_max(leaf_bytes: usize) -> usize {
    (leaf_bytes / image::SHARE).max(BYTES_MIN)
}

impl<P: Pairs> Tree<P> {
    /// Stores a value under a key, or removes the key, without a read of an evicted leaf, if the leaf has few late changes or `always` is
    /// true. Returns whether the key existed. `None`: this is not known. O(log records).
    ///
    /// # Errors
    /// `KeyTooLong`, `ValueTooLong`, `Unreadable`, `NotLogged`.
    pub fn set(
        &self,
        key: &P::Key,
        value: Option<&P::Value>,
        always: bool,
        log: &impl Recorder<P>,
    ) -> Result<Option<bool>> {
        self.set_from(ROOT, key, value, always, log)
    }

    /// As [`set`](Self::set), but looks for the key in this leaf first.
    fn set_from(
        &self,
        pid: Pid,
        key: &P::Key,
        value: Option<&P::Value>,
        always: bool,
        log: &impl Recorder<P>,
    ) -> Result<Option<bool>> {
        value.map_or(Ok(()), P::check_value)?;
        let decide = |_: Option<&P::Value>| value.map_or(Change::Delete, Change::Put);
        let blind = Some(Blind { value, always });
        self.change_logged(pid, key, decide, log, blind).map(|(was_there, _)| was_there)
    }

    /// Plans to make these changes without a log, and without a read of an evicted leaf: reads the leaves whose late changes would become too
    /// many. The keys come in ascending order, and no other thread makes late changes meanwhile. O(changes · log records).
    ///
    /// # Errors
    /// `Unreadable`.
    pub fn plan<'t>(&'t self, changes: &'t [image::Change<P>]) -> Result<Plan<'t, P>> {
        let mut slot = (changes.len() <= SLOT_MAX).then(|| self.epochs.enter());
        let mut leaves = Vec::with_capacity(changes.len());
        let mut planned = Planned::default();
        let mut rest = changes;
        while !rest.is_empty() {
            let visit = self.visit();
            let group = &rest[..rest.len().min(TOGETHER)];
            let too_many = visit.leaves(group).zip(group).find_map(|((pid, head), change)| {
                leaves.push(pid);
                Some((pid, planned.add(pid, head, change)?))
            });
            drop(visit);
            rest = &changes[leaves.len()..];
            if let Some((pid, stub)) = too_many {
                // Reads take long.
                slot = None;
                self.page_in(pid, stub)?;
            }
        }
        Ok(Plan { tree: self, changes, leaves, slot })
    }

    /// Adds a late change to an evicted leaf. Returns its LSN. `None` if the leaf has too many of them, or is in another state. The caller has
    /// no visit.
    #[cold]
    pub(crate) fn change_late(
        &self,
        pid: Pid,
        stub: Stub,
        key: &P::Key,
        blind: Blind<'_, P>,
        log: &impl Recorder<P>,
    ) -> Result<Option<u64>> {
        let _turn = self.paging.turn(pid);
        let visit = self.visit();
        let Some((head, evicted)) = visit.stub(pid, stub) else { return Ok(None) };
        let late = image::late_with::<P>(&evicted.kept.late, key, blind.value);
        let Some(late) = late else { return Ok(None) };
        if late.len() > bytes_max(head.bytes()) && !blind.always && !IS_SMALL {
            return Ok(None);
        }
        // R1.
        let Some(copies) = evicted.copies.to_new().without::<P>(key) else { return Ok(None) };
        let entry = log.begin(key, blind.value)?;
        let Some(lsn) = visit.replace_late(pid, head, evicted, &late, copies) else { return Ok(None) };
        log.commit(entry);
        Ok(Some(lsn))
    }

    /// Makes those of the changes that are in the leaf of the first one, as late changes and without a log. The changes are in the order of
    /// their keys. Returns their number. 0: the leaf is in memory. It is read if it would have too many late changes. O(log records + bytes of
    /// late changes).
    ///
    /// # Errors
    /// `Unreadable`.
    pub fn set_late(&self, changes: &[Late<'_>]) -> Result<usize> {
        let first = changes.first().and_then(|(key, _)| P::read_key(key));
        let found = first.and_then(|first| {
            let visit = self.visit();
            let (pid, head) = visit.leaf(At(first.borrow()));
            Some((pid, head.evicted()?))
        });
        let Some((pid, stub)) = found else { return Ok(0) };
        match self.try_late(pid, stub, changes) {
            Some(count) => Ok(count),
            None => self.page_in(pid, stub).map(|()| 0),
        }
    }

    /// `None`: the leaf has another state now, or would have too many late changes. The caller has no visit.
    fn try_late(&self, pid: Pid, stub: Stub, changes: &[Late<'_>]) -> Option<usize> {
        let _turn = self.paging.turn(pid);
        let visit = self.visit();
        let (head, evicted) = visit.stub(pid, stub)?;
        let high = Outline::of(head).high.map(|high| image::key_bytes::<P>(high.borrow()));
        let is_inside = |change: &&Late<'_>| {
            high.as_ref().is_none_or(|high| P::order(change.0, high).is_some_and(Ordering::is_lt))
        };
        let count = changes.iter().take_while(is_inside).count();
        let late = image::late_with_all::<P>(&evicted.kept.late, &changes[..count])?;
        if late.len() > bytes_max(head.bytes()) {
            return None;
        }
        // R1.
        visit.replace_late(pid, head, evicted, &late, NewCopies::default())?;
        Some(count)
    }

    /// Number of leaves whose late changes are not counted by [`len`](Self::len).
    pub fn uncounted(&self) -> u64 {
        self.uncounted.load(Relaxed)
    }

    /// Reads a leaf, by its page number, if its late changes are not counted. False if there are no more pages.
    ///
    /// # Errors
    /// `Unreadable`.
    pub fn count_leaf(&self, page: u32) -> Result<bool> {
        if u64::from(page) >= self.table.used() {
            return Ok(false);
        }
        let pid = Pid(page);
        let stub = self.visit().load(pid).and_then(|head| match head.body() {
            Body::Evicted { leaf, .. } if !leaf.is_counted => Some(head.stub(leaf)),
            _ => None,
        });
        stub.map_or(Ok(()), |stub| self.page_in(pid, stub)).map(|()| true)
    }
}
