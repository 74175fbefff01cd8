//! Epochs: they decide when retired memory can be freed.
//!
//! A thread that reads the tree holds a *thread slot*. The slot contains the epoch in which the thread took it. Threads need no
//! registration: a thread takes a slot with one exchange and releases it with one store. If all slots are taken, a new segment of slots is
//! added. An object that the thread takes out of the tree goes into the bag of its slot, with the current epoch.
//!
//! Each thread slot has an allocation pool (`pool`), which only its holder uses.
//!
//! All threads read the shared epoch counter, but only a thread that empties a bag advances it. The rest of the protocol is per slot.
//!
//! Invariants:
//! * E1: the bag and the pool of a thread slot belong to the thread that holds the slot.
//! * E2: an object that was retired in epoch `t` is freed only when every other taken thread slot has an epoch above `t`. A thread with an
//!   epoch above `t` took its slot after the end of epoch `t`. At that time the object was not in the tree any more, so the thread cannot
//!   find it. The retiring thread executes a fence after it takes the object out and before it reads `t`. A reading thread executes a fence
//!   after it takes its slot and before it reads the tree. If the retiring thread's fence is first, the reader does not find the object. If
//!   the reader's fence is first, the retiring thread sees that the reader's slot is taken when it reads all slots before it frees the
//!   object.
//! * E3: a thread slot that is never released keeps all memory that was retired since it was taken, and delays nothing else.
//!
//! Linearization points: the exchange that takes a slot, and the store that releases it.
//!
//! The tests run this code under loom (models) and shuttle (schedules), so it uses the atomics of `sync` and not a library for epochs.
//! Papers: Bw-tree §III-D, OpenBw-Tree §4.

use std::collections::VecDeque;
use std::ptr;

use crate::omission::{Omission, is_omitted};
use crate::pool::{Block, Depot, Pool};
use crate::stats::{Count, Tally};
use crate::sync::{
    AtomicPtr, AtomicU64, IS_SMALL, Ordering, OwnedCell, fence, fence_behind_exchange, thread_number,
};

/// Number of slots in a segment. On most machines no more threads than this use the tree at once, so each finds a free slot at the first
/// attempt.
const SLOTS: usize = if IS_SMALL { 3 } else { 64 };

/// Bits of a slot's number. With more than 65,536 taken slots, two of them may draw the same number.
const NUMBER_BITS: u32 = 16;

/// The slot is free.
const EMPTY: u64 = 0;

/// The epoch counter, the thread slots, and the depot.
#[derive(Debug)]
pub(crate) struct Epochs<G> {
    now: AtomicU64,
    first: Segment<G>,
    depot: Depot,
    /// Bytes that pools have allocated from the system, in chunks and large blocks. No protocol reads this counter.
    held: std::sync::atomic::AtomicU64,
}

#[derive(Debug)]
struct Segment<G> {
    /// Number of the segment's first slot.
    from: u64,
    slots: Box<[Slot<G>]>,
    next: AtomicPtr<Segment<G>>,
}

/// Aligned to two cache lines, because processors fetch lines in pairs: so no two slots share a pair.
#[derive(Debug)]
#[repr(align(128))]
struct Slot<G> {
    /// The epoch of the thread that holds the slot, or [`EMPTY`].
    since: AtomicU64,
    bag: OwnedCell<Bag<G>>,
    pool: OwnedCell<Pool>,
    tally: Tally,
    /// Number of the slot; see [`ThreadSlot::draw`].
    number: u64,
}

/// Retired objects, in order of their epochs.
#[derive(Debug)]
struct Bag<G> {
    waiting: VecDeque<(u64, G)>,
    /// Number of objects that the last attempt to free could not free.
    tried_at: usize,
}

// SAFETY: the shared parts are atomics, bags and pools. Only the thread that holds a slot accesses its bag and pool (E1), and the slot's
// exchange and store order one holder before the next.
unsafe impl<G: Send> Sync for Epochs<G> {}
// SAFETY: it owns its segments and the objects in their bags.
unsafe impl<G: Send> Send for Epochs<G> {}

/// A taken thread slot. No object that was reachable when it was taken is freed while it is held.
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

    /// The next segment, if there is one.
    fn next(&self) -> Option<&Self> {
        let next = self.next.load(Ordering::Acquire);
        // SAFETY: a linked segment exists until the first one is dropped, and changes only through its cells.
        unsafe { next.as_ref() }
    }

    /// The next segment. Adds one if there is none.
    fn next_or_new(&self) -> &Self {
        if let Some(next) = self.next() {
            return next;
        }
        let new = Box::into_raw(Box::new(Self::new(self.from + SLOTS as u64)));
        if self.next.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: the segment was made above, and no other thread has seen it.
            drop(unsafe { Box::from_raw(new) });
        }
        self.next().unwrap_or(self)
    }
}

impl<G> Drop for Segment<G> {
    fn drop(&mut self) {
        let next = self.next.load(Ordering::Relaxed);
        if !next.is_null() {
            // SAFETY: `next_or_new` made it from a box, and this segment alone owns it.
            drop(unsafe { Box::from_raw(next) });
        }
    }
}

impl<G> Epochs<G> {
    pub(crate) fn new(batch_bytes: usize) -> Self {
        let (now, depot) = (AtomicU64::new(EMPTY + 1), Depot::new(batch_bytes));
        Self { now, first: Segment::new(0), depot, held: 0.into() }
    }

    fn segments(&self) -> impl Iterator<Item = &Segment<G>> {
        std::iter::successors(Some(&self.first), |segment| segment.next())
    }

    fn slots(&self) -> impl Iterator<Item = &Slot<G>> {
        self.segments().flat_map(|segment| &segment.slots)
    }

    /// Takes a thread slot. A second call by the same thread takes another slot.
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
        // E2: other threads see the slot as taken before this thread reads the tree.
        fence_behind_exchange();
        Some(ThreadSlot { epochs: self, slot })
    }

    /// Takes each free thread slot in turn and calls `visit` with it.
    pub(crate) fn visit_all(&self, mut visit: impl FnMut(&ThreadSlot<'_, G>)) {
        self.slots().filter_map(|slot| self.claim(slot)).for_each(|slot| visit(&slot));
    }

    /// Number of thread slots that are taken now.
    pub(crate) fn seated(&self) -> usize {
        fence(Ordering::SeqCst);
        self.slots().filter(|slot| slot.since.load(Ordering::Acquire) != EMPTY).count()
    }

    /// The sum of a counter over all slots.
    pub(crate) fn tally(&self, count: Count) -> u64 {
        self.slots().fold(0, |sum, slot| sum.wrapping_add(slot.tally.get(count)))
    }

    /// Bytes that pools have allocated from the system.
    #[inline]
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// The largest number that was drawn.
    pub(crate) fn drawn(&self) -> u64 {
        self.slots().map(|slot| slot.tally.get(Count::Drawn)).max().unwrap_or(0)
    }

    /// Takes all retired objects. The caller guarantees that no thread slot is taken.
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
        // SAFETY: this thread holds the slot (E1), a thread slot is not shared between threads, and no caller's `use_it` calls this again.
        self.slot.bag.with_mut(|bag| use_it(unsafe { &mut *bag }))
    }

    /// Takes a block of at least `bytes` bytes.
    #[inline]
    pub(crate) fn take(&self, bytes: usize) -> Block {
        self.take_by(|pool, depot| pool.take(bytes, depot))
    }

    /// Takes a block of at least `bytes` bytes for a node.
    #[inline]
    pub(crate) fn take_for_node(&self, bytes: usize) -> Block {
        self.take_by(|pool, depot| pool.take_for_node(bytes, depot))
    }

    #[inline]
    fn take_by(&self, take: impl FnOnce(&mut Pool, &Depot) -> (Block, usize)) -> Block {
        // SAFETY: as in `bag`.
        let (block, more) = self.slot.pool.with_mut(|pool| take(unsafe { &mut *pool }, &self.epochs.depot));
        if more > 0 {
            self.epochs.held.fetch_add(more as u64, Ordering::Relaxed);
        }
        block
    }

    /// Frees a block that no thread has.
    #[inline]
    pub(crate) fn give(&self, block: Block) {
        // SAFETY: as in `bag`.
        let give = |pool: *mut Pool| unsafe { &mut *pool }.give(block, &self.epochs.depot);
        let less = self.slot.pool.with_mut(give);
        if less > 0 {
            self.epochs.held.fetch_sub(less as u64, Ordering::Relaxed);
        }
    }

    /// Adds to a counter.
    #[inline(always)]
    pub(crate) fn count(&self, count: Count, by: u64) {
        self.slot.tally.add(count, by);
    }

    /// Draws a number above `above` and above all numbers that this slot drew. No other slot draws it. It is a Lamport clock with the
    /// slot's number in its low bits, so no shared counter is written.
    #[inline(always)]
    pub(crate) fn draw(&self, above: u64) -> u64 {
        let last = self.slot.tally.get(Count::Drawn).max(above);
        let drawn = ((last >> NUMBER_BITS) + 1) << NUMBER_BITS | self.slot.number;
        self.slot.tally.set(Count::Drawn, drawn);
        drawn
    }

    /// Retires an object that was taken out of the tree.
    pub(crate) fn retire(&self, what: G) {
        // E2: other threads see the object as taken out before this thread reads the epoch.
        fence(Ordering::SeqCst);
        let now = self.epochs.now.load(Ordering::Acquire);
        self.bag(|bag| bag.waiting.push_back((now, what)));
    }

    /// True if at least `after` objects were retired since the last attempt to free.
    #[inline(always)]
    pub(crate) fn is_due(&self, after: usize) -> bool {
        self.bag(|bag| bag.waiting.len() >= bag.tried_at + after)
    }

    /// Takes the objects of this slot's bag that no other thread can reference. The holder of the slot must not reference them either, so
    /// it calls this when it releases the slot.
    pub(crate) fn expired(&self) -> Vec<G> {
        let end = self.epochs.now.fetch_add(1, Ordering::AcqRel) + 1;
        fence(Ordering::SeqCst);
        let others = self.epochs.slots().filter(|slot| !ptr::eq(*slot, self.slot));
        let sitting = others.map(|slot| slot.since.load(Ordering::Acquire)).filter(|since| *since != EMPTY);
        let oldest = if is_omitted(Omission::Pins) { end } else { sitting.fold(end, u64::min) };
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
        // Release: reads before this store are complete, so a thread that sees the slot free may free what they read.
        self.slot.since.store(EMPTY, Ordering::Release);
    }
}
