//! The mapping table: from a page id (PID) to the newest state of the page.
//!
//! The table is a directory of segments. Each segment has twice as many words as the one before. The table grows by one segment, so no word
//! moves and no thread waits.
//!
//! ```text
//! word   .nnnnnn0  a node's address, and n: the number of its visible changes (`node`)
//!        ......01  a free PID: above the two bits, the next free PID
//!        ......11  reserved for an address outside of memory; no code writes such a word yet
//! ```
//!
//! Invariants:
//! * M1: one exchange changes a word from one state of a page to another ([`Table::exchange`]). A plain store changes it only if one thread
//!   owns the word: the thread that allocated the PID and has not linked it, or the thread that frees it.
//! * M2: a PID is retired like a node: it becomes free only after every thread that may know the PID has released its thread slot
//!   ([`crate::epoch`]).
//! * M3: the free list is a stack. Its head contains a count of the changes, so an exchange with a stale head fails.
//!
//! Linearization point: the exchange. Paper: Bw-tree §II-B.

use std::ptr;

use crate::epoch::ThreadSlot;
use crate::node::{Head, Made, Node, fetch, prefetch};
use crate::omission::Omission;
use crate::pairs::Pairs;
use crate::sync::{AtomicPtr, AtomicU64, Ordering, exchange};

/// A page id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(pub(crate) u32);

/// The PID of the root. It never changes; the contents of the page do.
pub(crate) const ROOT: Pid = Pid(0);

/// Number of segments in the directory. The last one is never made: it would begin after the largest PID.
const SEGMENTS: usize = 33;
/// Set in a word that is not a node's.
const OTHER: usize = 0b01;
/// The bits that give the kind of such a word.
const KIND: usize = 0b11;
/// The kind of a free PID.
const FREE: usize = 0b01;

/// The mapping table; see the module's head.
#[derive(Debug)]
pub(crate) struct Table<P: Pairs> {
    segments: [AtomicPtr<AtomicPtr<Node<P>>>; SEGMENTS],
    /// Binary logarithm of the first segment's length.
    first_bits: u32,
    /// PIDs from this number on were never used.
    next: AtomicU64,
    /// The first free PID plus one, or 0 if there is none. The count of changes is above 32 bits (M3).
    free: AtomicU64,
}

impl<P: Pairs> Table<P> {
    /// An empty table.
    pub(crate) fn new(first_entries: usize) -> Self {
        let segments = std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut()));
        Self { segments, first_bits: first_entries.ilog2(), next: AtomicU64::new(0), free: AtomicU64::new(0) }
    }

    /// Segment and index of a PID.
    #[inline(always)]
    fn place(&self, pid: Pid) -> (usize, usize) {
        let number = u64::from(pid.0) + (1 << self.first_bits);
        let bits = number.ilog2();
        ((bits - self.first_bits) as usize, (number ^ (1 << bits)) as usize)
    }

    fn entries(&self, segment: usize) -> usize {
        1 << (self.first_bits as usize + segment)
    }

    /// The word of a PID.
    #[inline(always)]
    fn word(&self, pid: Pid) -> &AtomicPtr<Node<P>> {
        let (segment, index) = self.place(pid);
        let first = self.segments[segment].load(Ordering::Acquire);
        debug_assert!(!first.is_null(), "{pid:?} was never allocated");
        // SAFETY: `allocate` made the segment before it returned the PID, and the segment has enough words.
        let word = unsafe { first.add(index) };
        // SAFETY: a segment does not move until the table is dropped.
        unsafe { &*word }
    }

    /// Makes a segment, if it does not exist.
    fn provide(&self, segment: usize) {
        let place = &self.segments[segment];
        if !place.load(Ordering::Acquire).is_null() {
            return;
        }
        let words: Box<[AtomicPtr<Node<P>>]> =
            (0..self.entries(segment)).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        let words = Box::into_raw(words);
        let first = words.cast::<AtomicPtr<Node<P>>>();
        if place.compare_exchange(ptr::null_mut(), first, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: it was made above, and no other thread has seen it.
            drop(unsafe { Box::from_raw(words) });
        }
    }

    /// Allocates a PID that no other thread knows, and stores the page there. The table then owns the page.
    ///
    /// # Errors
    /// Returns the page if no PID is left.
    pub(crate) fn allocate(&self, page: Made<P>) -> Result<Pid, Made<P>> {
        let pid = self.take_free().or_else(|| {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            // 0 means no PID in the free list.
            let pid = Pid(u32::try_from(number).ok().filter(|number| *number < u32::MAX)?);
            self.provide(self.place(pid).0);
            Some(pid)
        });
        let Some(pid) = pid else { return Err(page) };
        // M1: the exchange that links the PID to the tree publishes it.
        self.word(pid).store(page.word(), Ordering::Release);
        Ok(pid)
    }

    fn take_free(&self) -> Option<Pid> {
        loop {
            let head = self.free.load(Ordering::Acquire);
            let pid = Pid((head as u32).checked_sub(1)?);
            // If another thread takes this PID meanwhile, the word may have any value. Then the head has changed, and the exchange fails
            // (M3).
            let word = self.word(pid).load(Ordering::Acquire).addr();
            let next = if word & KIND == FREE { (word >> 2) as u64 } else { 0 };
            let new = (head >> 32).wrapping_add(1) << 32 | next;
            if self.free.compare_exchange(head, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some(pid);
            }
        }
    }

    /// Frees a PID that no thread knows (M2), for reuse.
    pub(crate) fn release(&self, pid: Pid) {
        loop {
            let head = self.free.load(Ordering::Acquire);
            let next = (head as u32 as usize) << 2 | FREE;
            self.word(pid).store(ptr::without_provenance_mut(next), Ordering::Release);
            let new = (head >> 32).wrapping_add(1) << 32 | (u64::from(pid.0) + 1);
            if self.free.compare_exchange(head, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Clears the word of a page that is not in the tree, so that a thread that still knows the PID finds no page (M1: the caller took it
    /// out of the tree). The caller retires the page and the PID.
    pub(crate) fn vacate(&self, pid: Pid) {
        self.word(pid).store(ptr::null_mut(), Ordering::Release);
    }

    /// The newest state of a page. `None` if the PID is not in use.
    #[inline(always)]
    pub(crate) fn load<'a, G>(&self, pid: Pid, _seat: &'a ThreadSlot<'_, G>) -> Option<Head<'a, P>> {
        let word = self.word(pid).load(Ordering::Acquire);
        fetch(word);
        if word.addr() & OTHER != 0 {
            return None;
        }
        // SAFETY: without this bit the word is null or a node's address, with as many visible changes as were published with it (M1). A
        // node that was in the table while this thread held its slot is not freed before the slot is released (E2).
        unsafe { Head::from_word(word) }
    }

    /// Prefetches the word of a page that will be read soon.
    #[inline(always)]
    pub(crate) fn fetch_word(&self, pid: Pid) {
        prefetch(self.word(pid));
    }

    /// Changes the word of a page to `new`, if its state is still `head`. The table then owns the nodes that `new` leads to. The caller
    /// retires the nodes that it no longer leads to.
    #[inline(always)]
    pub(crate) fn exchange(
        &self,
        pid: Pid,
        head: Head<'_, P>,
        new: *mut Node<P>,
        omission: Omission,
    ) -> bool {
        exchange(self.word(pid), head.word(), new, omission)
    }

    /// Number of PIDs that were ever used: those below this number.
    pub(crate) fn used(&self) -> u64 {
        self.next.load(Ordering::Acquire).min(u64::from(u32::MAX))
    }

    /// Length of the free list. Exact if no thread changes it meanwhile.
    pub(crate) fn count_free(&self) -> u64 {
        let mut count = 0;
        let mut at = self.free.load(Ordering::Acquire) as u32;
        while let Some(number) = at.checked_sub(1) {
            count += 1;
            let word = self.word(Pid(number)).load(Ordering::Acquire).addr();
            // A PID that was taken meanwhile has no next one.
            if word & KIND != FREE || count > self.used() {
                break;
            }
            at = (word >> 2) as u32;
        }
        count
    }

    /// Bytes of the segments.
    pub(crate) fn memory(&self) -> usize {
        let made = (0..SEGMENTS).filter(|i| !self.segments[*i].load(Ordering::Acquire).is_null());
        made.map(|i| self.entries(i) * size_of::<usize>()).sum()
    }

    /// The words of all pages. No other thread uses the table.
    pub(crate) fn words(&mut self) -> Vec<*mut Node<P>> {
        let pids = (0..self.used() as u32).map(Pid);
        let words = pids.map(|pid| self.word(pid).load(Ordering::Relaxed));
        words.filter(|word| !word.is_null() && word.addr() & OTHER == 0).collect()
    }
}

impl<P: Pairs> Drop for Table<P> {
    fn drop(&mut self) {
        for segment in 0..SEGMENTS {
            let first = self.segments[segment].load(Ordering::Relaxed);
            if !first.is_null() {
                let words = ptr::slice_from_raw_parts_mut(first, self.entries(segment));
                // SAFETY: `provide` made it from a box of that many words.
                drop(unsafe { Box::from_raw(words) });
            }
        }
    }
}
