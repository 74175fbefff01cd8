//! The mapping table: from a page's number to its newest node [Bw-tree §II-B].
//!
//! A directory of segments, each twice as long as the one before. The table grows by one more segment: nothing moves, nobody waits.
//!
//! ```text
//! word   .nnnnnn0  a node's address, and n: how many of the changes beside it are seen (`node`)
//!        ......01  a free PID: the number of the next free one above the two bits
//!        ......11  kept for an address outside of memory; nothing writes such a word yet
//! ```
//!
//! Invariants:
//! * M1: a word changes from one state of a page to another by one exchange ([`Table::exchange`]), or by whom alone it
//!   belongs: who allocated the PID and has not linked it, who frees it.
//! * M2: a PID is free only after everybody who may know it has left (it is retired like a node).
//! * M3: the free list is a stack. Its head has a count of the changes, so that a stale one is not taken for the present one.

use std::ptr;

use crate::canary::Canary;
use crate::epoch::ThreadSlot;
use crate::node::{Head, Made, Node, fetch};
use crate::pairs::Pairs;
use crate::sync::{AtomicPtr, AtomicU64, Ordering, exchange};

/// A page's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(pub(crate) u32);

/// The root page is this one throughout: what is in it changes.
pub(crate) const ROOT: Pid = Pid(0);

/// Segments of a directory; the last would be beyond all PIDs.
const SEGMENTS: usize = 33;
/// The word is no node's.
const OTHER: usize = 0b01;
/// Of such a word, these bits say what it is.
const KIND: usize = 0b11;
/// It is a free PID's.
const FREE: usize = 0b01;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Table<P: Pairs> {
    segments: [AtomicPtr<AtomicPtr<Node<P>>>; SEGMENTS],
    /// Binary logarithm of the first segment's length.
    first_bits: u32,
    /// PIDs from here on were never used.
    next: AtomicU64,
    /// The first free PID and one, 0 if there is none; above 32 bits the count of changes (M3).
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

    /// A PID's word.
    #[inline(always)]
    fn word(&self, pid: Pid) -> &AtomicPtr<Node<P>> {
        let (segment, index) = self.place(pid);
        let first = self.segments[segment].load(Ordering::Acquire);
        debug_assert!(!first.is_null(), "{pid:?} was never allocated");
        // SAFETY: the segment of a PID that was given out was made before (`allocate`), with so many words.
        let word = unsafe { first.add(index) };
        // SAFETY: a segment stays where it is until the table goes.
        unsafe { &*word }
    }

    /// Makes a segment if it is not there.
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
            // SAFETY: it was made above, and nobody else has seen it.
            drop(unsafe { Box::from_raw(words) });
        }
    }

    /// A PID that nobody knows, with a page that is the table's then.
    ///
    /// # Errors
    /// There are no more: the page.
    pub(crate) fn allocate(&self, page: Made<P>) -> Result<Pid, Made<P>> {
        let pid = self.take_free().or_else(|| {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            // 0 stands for no PID in the free list.
            let pid = Pid(u32::try_from(number).ok().filter(|number| *number < u32::MAX)?);
            self.provide(self.place(pid).0);
            Some(pid)
        });
        let Some(pid) = pid else { return Err(page) };
        // M1: who links it to the tree publishes it.
        self.word(pid).store(page.word(), Ordering::Release);
        Ok(pid)
    }

    fn take_free(&self) -> Option<Pid> {
        loop {
            let head = self.free.load(Ordering::Acquire);
            let pid = Pid((head as u32).checked_sub(1)?);
            // If another takes it meanwhile, this is anything; then the head has changed too (M3).
            let word = self.word(pid).load(Ordering::Acquire).addr();
            let next = if word & KIND == FREE { (word >> 2) as u64 } else { 0 };
            let new = (head >> 32).wrapping_add(1) << 32 | next;
            if self.free.compare_exchange(head, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some(pid);
            }
        }
    }

    /// Nobody knows this PID any more (M2): it can be used again.
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

    /// Empties the word of a page that is no longer in the tree, or never was, so that who remembers its PID finds nothing (M1: the
    /// caller took it out). The page and the PID are to be retired.
    pub(crate) fn vacate(&self, pid: Pid) {
        self.word(pid).store(ptr::null_mut(), Ordering::Release);
    }

    /// The newest state of a page; `None` if the PID is not in use.
    #[inline(always)]
    pub(crate) fn load<'a, G>(&self, pid: Pid, _seat: &'a ThreadSlot<'_, G>) -> Option<Head<'a, P>> {
        let word = self.word(pid).load(Ordering::Acquire);
        fetch(word);
        if word.addr() & OTHER != 0 {
            return None;
        }
        // SAFETY: a word without this bit is null or a node's address, with as many changes as were published with it (M1); what was in
        // the table while somebody was seated is not freed before he leaves (E2).
        unsafe { Head::from_word(word) }
    }

    /// Makes a page what this word says, if its head is still this one. What the new word sees is the table's then; what it does not lead
    /// to any more is the caller's, to be retired.
    #[inline(always)]
    pub(crate) fn exchange(&self, pid: Pid, head: Head<'_, P>, new: *mut Node<P>, canary: Canary) -> bool {
        exchange(self.word(pid), head.word(), new, canary)
    }

    /// PIDs that were ever used are those below this number.
    pub(crate) fn used(&self) -> u64 {
        self.next.load(Ordering::Acquire).min(u64::from(u32::MAX))
    }

    /// PIDs in the free list. Nobody changes it meanwhile.
    pub(crate) fn count_free(&self) -> u64 {
        let mut count = 0;
        let mut at = self.free.load(Ordering::Acquire) as u32;
        while let Some(number) = at.checked_sub(1) {
            count += 1;
            let word = self.word(Pid(number)).load(Ordering::Acquire).addr();
            // A PID that is taken meanwhile leads nowhere.
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

    /// The words of all pages. Nobody else uses the table any more.
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
                // SAFETY: made by `provide` from a box of so many words.
                drop(unsafe { Box::from_raw(words) });
            }
        }
    }
}
