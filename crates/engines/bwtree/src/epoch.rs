//! Epochs: when what was taken out of the tree can be freed [Bw-tree §III-D, OpenBw-Tree §4].
//!
//! Whoever reads the tree has a *thread slot*: a slot in which the epoch of his arrival stands for as long as he stays. There is no list
//! of threads: a thread slot is taken with one exchange and left with one store, and if all are taken more are added. What he takes
//! out of the tree goes into the bag of his thread slot, with the epoch of that moment.
//!
//! With a thread slot comes a pool of memory (`pool`), which is nobody else's as long.
//!
//! The shared counter is read by everybody and moved only by who empties a bag: epochs are decentralised but for that word.
//!
//! Invariants:
//! * E1: the bag and the pool of a slot belong to who has the thread slot.
//! * E2: what was retired in epoch `t` is freed only when every thread slot taken has an epoch above `t`. Who sits with an epoch above `t`
//!   arrived after `t` had passed, that is after it was taken out, and cannot find it: between taking out and reading `t`, and
//!   between taking a thread slot and reading the tree, stands a fence each, and whichever is first is seen by the other.
//! * E3: a thread slot that is never left keeps what was retired since, and nothing else waits for it.
//!
//! The same code runs in the models and in the schedules: that is why it is not a crate's.

use std::collections::VecDeque;
use std::ptr;

use crate::canary::{Canary, sings};
use crate::pool::{Block, Depot, Pool};
use crate::stats::{Count, Tally};
use crate::sync::{
    AtomicPtr, AtomicU64, IS_SMALL, Ordering, OwnedCell, fence, fence_behind_exchange, thread_number,
};

/// Slots of a segment: as many threads find a thread slot at their first look on most machines.
const SLOTS: usize = if IS_SMALL { 3 } else { 64 };

/// Bits of a slot's number. If more than 65,536 visitors are there at once, two may draw the same number.
const NUMBER_BITS: u32 = 16;

/// Nobody sits here.
const EMPTY: u64 = 0;

/// Epochs, and what waits to be freed.
#[derive(Debug)]
pub(crate) struct Epochs<G> {
    now: AtomicU64,
    first: Segment<G>,
    depot: Depot,
    /// Bytes that pools have of the system, in chunks and large blocks: a count that no protocol reads.
    held: std::sync::atomic::AtomicU64,
}

#[derive(Debug)]
struct Segment<G> {
    /// The number of its first slot.
    from: u64,
    slots: Box<[Slot<G>]>,
    next: AtomicPtr<Segment<G>>,
}

/// Two lines, because processors fetch lines in pairs: nobody's thread slot is on somebody else's.
#[derive(Debug)]
#[repr(align(128))]
struct Slot<G> {
    /// The epoch of who sits here, or [`EMPTY`].
    since: AtomicU64,
    bag: OwnedCell<Bag<G>>,
    pool: OwnedCell<Pool>,
    tally: Tally,
    /// No other slot has it; see [`ThreadSlot::draw`].
    number: u64,
}

/// Retired things, by epoch.
#[derive(Debug)]
struct Bag<G> {
    waiting: VecDeque<(u64, G)>,
    /// So many have to wait before it is tried again to free some.
    tried_at: usize,
}

// SAFETY: what is shared are atomics, and the bags and pools; these are touched by who has their thread slot alone (E1), with the thread slot's
// exchange and store between one and the next.
unsafe impl<G: Send> Sync for Epochs<G> {}
// SAFETY: it owns its segments and what is in their bags.
unsafe impl<G: Send> Send for Epochs<G> {}

/// A thread slot: nothing that was reachable when it was taken is freed while it is held.
#[derive(Debug)]
pub(crate) struct ThreadSlot<'e, G> {
    epochs: &'e Epochs<G>,
    slot: &'e Slot<G>,
}

impl<G> Segment<G> {
    fn new(from: u64) -> Self {
        let slot = |i| Slot {
            since: AtomicU64::new(EMPTY),
            bag: OwnedCell::new(Bag { waiting: VecDeque::new(), tried_at: 0 }),
            pool: OwnedCell::new(Pool::new()),
            tally: Tally::default(),
            number: (from + i) & ((1 << NUMBER_BITS) - 1),
        };
        Self { from, slots: (0..SLOTS as u64).map(slot).collect(), next: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The segment behind this one.
    fn next(&self) -> Option<&Self> {
        let next = self.next.load(Ordering::Acquire);
        // SAFETY: a segment that was linked stays until the first is dropped, and is never changed but through its cells.
        unsafe { next.as_ref() }
    }

    /// The segment behind this one, which is made if there is none.
    fn next_or_new(&self) -> &Self {
        if let Some(next) = self.next() {
            return next;
        }
        let new = Box::into_raw(Box::new(Self::new(self.from + SLOTS as u64)));
        if self.next.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: it was made above and nobody else has seen it.
            drop(unsafe { Box::from_raw(new) });
        }
        self.next().unwrap_or(self)
    }
}

impl<G> Drop for Segment<G> {
    fn drop(&mut self) {
        let next = self.next.load(Ordering::Relaxed);
        if !next.is_null() {
            // SAFETY: made by `next_or_new` from a box, owned by this segment alone.
            drop(unsafe { Box::from_raw(next) });
        }
    }
}

impl<G> Epochs<G> {
    pub(crate) fn new() -> Self {
        Self { now: AtomicU64::new(EMPTY + 1), first: Segment::new(0), depot: Depot::new(), held: 0.into() }
    }

    fn segments(&self) -> impl Iterator<Item = &Segment<G>> {
        std::iter::successors(Some(&self.first), |segment| segment.next())
    }

    fn slots(&self) -> impl Iterator<Item = &Slot<G>> {
        self.segments().flat_map(|segment| &segment.slots)
    }

    /// Takes a thread slot. A second one of the same thread is another thread slot.
    #[inline]
    pub(crate) fn enter(&self) -> ThreadSlot<'_, G> {
        let mut segment = &self.first;
        let first = thread_number();
        loop {
            for i in 0..SLOTS {
                if let Some(slot) = self.claim(&segment.slots[(first + i) % SLOTS]) {
                    return slot;
                }
            }
            segment = segment.next_or_new();
        }
    }

    #[inline(always)]
    fn claim<'e>(&'e self, slot: &'e Slot<G>) -> Option<ThreadSlot<'e, G>> {
        if slot.since.load(Ordering::Relaxed) != EMPTY {
            return None;
        }
        let now = self.now.load(Ordering::Acquire);
        slot.since.compare_exchange(EMPTY, now, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        // E2: the thread slot is seen to be taken before anything of the tree is read.
        fence_behind_exchange();
        Some(ThreadSlot { epochs: self, slot })
    }

    /// Takes one free thread slot after the other, so that each bag is looked at by somebody; calls `visit` with each.
    pub(crate) fn visit_all(&self, mut visit: impl FnMut(&ThreadSlot<'_, G>)) {
        self.slots().filter_map(|slot| self.claim(slot)).for_each(|slot| visit(&slot));
    }

    /// Thread slots taken at the moment.
    pub(crate) fn seated(&self) -> usize {
        fence(Ordering::SeqCst);
        self.slots().filter(|slot| slot.since.load(Ordering::Acquire) != EMPTY).count()
    }

    /// The sums of all counts.
    pub(crate) fn tally(&self, count: Count) -> u64 {
        self.slots().fold(0, |sum, slot| sum.wrapping_add(slot.tally.get(count)))
    }

    /// Bytes that pools have of the system.
    #[inline]
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// The largest number that was drawn.
    pub(crate) fn drawn(&self) -> u64 {
        self.slots().map(|slot| slot.tally.get(Count::Drawn)).max().unwrap_or(0)
    }

    /// Everything that waits. Nobody has a thread slot any more.
    pub(crate) fn take_all(&mut self) -> Vec<G> {
        let mut all = Vec::new();
        self.visit_all(|slot| slot.bag(|bag| all.extend(bag.waiting.drain(..).map(|(_, what)| what))));
        all
    }
}

impl<G> ThreadSlot<'_, G> {
    /// The bag of this thread slot (E1).
    #[inline(always)]
    fn bag<R>(&self, use_it: impl FnOnce(&mut Bag<G>) -> R) -> R {
        // SAFETY: this thread slot's slot is ours (E1), a thread slot is not shared between threads, and no caller's `use_it` comes back here.
        self.slot.bag.with_mut(|bag| use_it(unsafe { &mut *bag }))
    }

    /// Memory of so many bytes at least.
    #[inline]
    pub(crate) fn take(&self, bytes: usize) -> Block {
        // SAFETY: as in `bag`.
        let take = |pool: *mut Pool| unsafe { &mut *pool }.take(bytes, &self.epochs.depot);
        let (block, more) = self.slot.pool.with_mut(take);
        if more > 0 {
            self.epochs.held.fetch_add(more as u64, Ordering::Relaxed);
        }
        block
    }

    /// Memory that nobody has any more.
    #[inline]
    pub(crate) fn give(&self, block: Block) {
        // SAFETY: as in `bag`.
        let give = |pool: *mut Pool| unsafe { &mut *pool }.give(block, &self.epochs.depot);
        let less = self.slot.pool.with_mut(give);
        if less > 0 {
            self.epochs.held.fetch_sub(less as u64, Ordering::Relaxed);
        }
    }

    /// Counts something.
    #[inline(always)]
    pub(crate) fn count(&self, count: Count, by: u64) {
        self.slot.tally.add(count, by);
    }

    /// Draws a number that is above this one and all that were drawn from this slot, and that no other slot gives: a Lamport clock
    /// with the slot's number behind it. There is no counter that all write.
    #[inline(always)]
    pub(crate) fn draw(&self, above: u64) -> u64 {
        let last = self.slot.tally.get(Count::Drawn).max(above);
        let drawn = ((last >> NUMBER_BITS) + 1) << NUMBER_BITS | self.slot.number;
        self.slot.tally.set(Count::Drawn, drawn);
        drawn
    }

    /// Something that was taken out of the tree is to be freed when nobody can have it any more.
    pub(crate) fn retire(&self, what: G) {
        // E2: it is seen to be taken out before the epoch is read.
        fence(Ordering::SeqCst);
        let now = self.epochs.now.load(Ordering::Acquire);
        self.bag(|bag| bag.waiting.push_back((now, what)));
    }

    /// How much waits in this thread slot's bag, beyond what is known to have to wait.
    #[inline(always)]
    pub(crate) fn is_due(&self, after: usize) -> bool {
        self.bag(|bag| bag.waiting.len() >= bag.tried_at + after)
    }

    /// What of this thread slot's bag nobody can have any more. Who sits here must not, either: it is called when he leaves.
    pub(crate) fn expired(&self) -> Vec<G> {
        let end = self.epochs.now.fetch_add(1, Ordering::AcqRel) + 1;
        fence(Ordering::SeqCst);
        let others = self.epochs.slots().filter(|slot| !ptr::eq(*slot, self.slot));
        let sitting = others.map(|slot| slot.since.load(Ordering::Acquire)).filter(|since| *since != EMPTY);
        let oldest = if sings(Canary::Pins) { end } else { sitting.fold(end, u64::min) };
        self.bag(|bag| {
            let count = bag.waiting.iter().take_while(|(epoch, _)| *epoch < oldest).count();
            let expired = bag.waiting.drain(..count).map(|(_, what)| what).collect();
            bag.tried_at = bag.waiting.len();
            expired
        })
    }
}

impl<G> Drop for ThreadSlot<'_, G> {
    #[inline]
    fn drop(&mut self) {
        // Release: what was read from here was read before; what is freed behind this is freed after.
        self.slot.since.store(EMPTY, Ordering::Release);
    }
}
