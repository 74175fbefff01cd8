//! Pins: the versions that may still be read.
//!
//! A lookup pins its version in a slot of a small table. It takes no lock, unless all slots are taken. Users that keep a version for longer
//! (snapshots, cursors) are counted in a list under a lock of its own. The writer takes this lock briefly when it computes the *horizon*,
//! the oldest version that may still be read.
//!
//! Invariants:
//! * P1: the horizon is at or below every pinned version, and at or below the durable version. Nothing that is visible at the horizon or
//!   later is overwritten or freed.
//! * P2: if a reader pinned a version and then found that it is still the newest one, every later horizon includes the pin. If the reader
//!   finds a newer version, it pins again. (Reader and writer use sequentially consistent operations: each stores its own word, then loads
//!   the word of the other.)

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, PoisonError};

use pmem::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

const SLOTS: usize = 64;

/// A slot on a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot(AtomicU64);

/// The table of slots, and the list.
#[derive(Debug)]
pub struct Pins {
    slots: Box<[Slot]>,
    /// Slots from this number on were never taken.
    taken: AtomicU64,
    long: Mutex<BTreeMap<u64, u64>>,
    /// Versions of lookups that found no slot.
    more: Mutex<BTreeMap<u64, u64>>,
    /// Number of versions before the newest one that are kept.
    newest: AtomicU64,
    /// Versions from this one on are kept.
    since: AtomicU64,
    /// The newest computed horizon. Versions below it may have been collected in part. Changed only while `long` is locked.
    collected: AtomicU64,
}

impl Default for Pins {
    fn default() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            taken: AtomicU64::new(0),
            long: Mutex::default(),
            more: Mutex::default(),
            newest: AtomicU64::new(0),
            since: AtomicU64::new(u64::MAX),
            collected: AtomicU64::new(0),
        }
    }
}

/// A version that is kept as long as this value lives.
#[derive(Debug)]
pub struct Pin<'a> {
    pins: &'a Pins,
    slot: Option<usize>,
    version: u64,
}

fn count(list: &Mutex<BTreeMap<u64, u64>>, version: impl FnOnce() -> u64) -> u64 {
    let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
    let version = version();
    *list.entry(version).or_default() += 1;
    version
}

fn uncount(list: &Mutex<BTreeMap<u64, u64>>, version: u64) {
    let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(count) = list.get_mut(&version) {
        *count -= 1;
        if *count == 0 {
            list.remove(&version);
        }
    }
}

thread_local! {
    /// The slot that this thread tries first.
    static FIRST: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Number of threads that have used a slot.
static THREADS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

fn first_slot() -> usize {
    FIRST.with(|first| {
        if first.get() == usize::MAX {
            first.set(THREADS.fetch_add(1, Ordering::Relaxed) % SLOTS);
        }
        first.get()
    })
}

impl Pins {
    /// No pins. Versions below `version` may have been collected.
    pub fn since(version: u64) -> Self {
        let pins = Self::default();
        pins.collected.store(version, Ordering::SeqCst);
        pins
    }

    /// Marks a slot as taken before it is taken. So a writer that reads the taken slots later also reads this one (P2).
    #[inline]
    fn take(&self, slot: usize) {
        if self.taken.load(Ordering::SeqCst) <= slot as u64 {
            self.taken.fetch_max(slot as u64 + 1, Ordering::SeqCst);
        }
    }

    /// The versions in all slots that were ever taken.
    fn short(&self) -> impl Iterator<Item = u64> {
        let taken = self.taken.load(Ordering::SeqCst) as usize;
        let versions = self.slots[..taken].iter().map(|slot| slot.0.load(Ordering::SeqCst));
        versions.filter(|version| *version != 0)
    }

    /// Pins the newest version for a short time.
    #[inline]
    pub fn enter<'a>(&'a self, newest: &AtomicU64) -> Pin<'a> {
        let first = first_slot();
        for turn in 0..SLOTS {
            let slot = (first + turn) % SLOTS;
            self.take(slot);
            let mut version = newest.load(Ordering::SeqCst);
            let place = &self.slots[slot].0;
            if place.compare_exchange(0, version, Ordering::SeqCst, Ordering::Relaxed).is_err() {
                continue;
            }
            loop {
                let now = newest.load(Ordering::SeqCst);
                if now == version {
                    return Pin { pins: self, slot: Some(slot), version };
                }
                version = now;
                place.store(version, Ordering::SeqCst);
            }
        }
        self.enter_more(|| newest.load(Ordering::SeqCst))
    }

    /// Pins without a slot. `version` is called while the list is locked.
    fn enter_more(&self, version: impl FnOnce() -> u64) -> Pin<'_> {
        Pin { pins: self, slot: None, version: count(&self.more, version) }
    }

    /// The oldest version, up to `newest`, that is kept without a reader.
    fn retained(&self, newest: u64) -> u64 {
        let retained = newest.saturating_sub(self.newest.load(Ordering::SeqCst));
        newest.min(retained.max(1)).min(self.since.load(Ordering::SeqCst))
    }

    /// The oldest version that may still be read (P1).
    pub fn horizon(&self, newest: &AtomicU64) -> u64 {
        let newest = newest.load(Ordering::SeqCst);
        let retained = self.retained(newest);
        let pinned = self.short();
        let more = self.more.lock().unwrap_or_else(PoisonError::into_inner).keys().next().copied();
        let long = self.long.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = long.keys().next().copied();
        let horizon = pinned.chain(more).chain(kept).fold(retained, u64::min);
        self.collected.fetch_max(horizon, Ordering::SeqCst);
        horizon
    }
}

/// The individual versions that may still be read.
#[derive(Debug)]
pub struct Readers {
    /// All versions from this one on may be read.
    retained: u64,
    /// Pinned versions, ascending.
    pinned: Vec<u64>,
}

impl Readers {
    /// True if one of them is at or above `start` and below `end`. Later readers read at a retained version, the newest one or above.
    pub fn any_between(&self, start: u64, end: u64) -> bool {
        let first = self.pinned.partition_point(|version| *version < start);
        end > self.retained || self.pinned.get(first).is_some_and(|version| *version < end)
    }
}

/// While this value lives, no reader can begin to keep a version for long.
pub struct NoneKept<'a> {
    _long: MutexGuard<'a, BTreeMap<u64, u64>>,
}

impl Pins {
    /// The versions that may still be read. As with the horizon, a reader that this misses finds a newer version (P2).
    pub fn readers(&self, newest: &AtomicU64) -> Readers {
        let retained = self.retained(newest.load(Ordering::SeqCst));
        let mut pinned: Vec<u64> = self.short().collect();
        pinned.extend(self.more.lock().unwrap_or_else(PoisonError::into_inner).keys());
        let long = self.long.lock().unwrap_or_else(PoisonError::into_inner);
        pinned.extend(long.keys());
        // Entries between two pinned versions may be collected.
        self.collected.fetch_max(retained, Ordering::SeqCst);
        drop(long);
        pinned.sort_unstable();
        Readers { retained, pinned }
    }

    /// Prevents new long pins, if no snapshot, cursor or retention rule keeps a version. Otherwise `None`.
    pub fn none_kept(&self) -> Option<NoneKept<'_>> {
        let long = self.long.lock().unwrap_or_else(PoisonError::into_inner);
        let has_rule =
            self.newest.load(Ordering::SeqCst) != 0 || self.since.load(Ordering::SeqCst) != u64::MAX;
        (long.is_empty() && !has_rule).then_some(NoneKept { _long: long })
    }

    /// Pins a version that has a long pin, or had one when it was rolled back.
    #[inline]
    pub fn enter_at(&self, version: u64) -> Pin<'_> {
        let first = first_slot();
        for turn in 0..SLOTS {
            let slot = (first + turn) % SLOTS;
            self.take(slot);
            let place = &self.slots[slot].0;
            if place.compare_exchange(0, version, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                return Pin { pins: self, slot: Some(slot), version };
            }
        }
        self.enter_more(|| version)
    }

    /// The oldest version of which nothing can have been collected.
    pub fn collected(&self) -> u64 {
        self.collected.load(Ordering::SeqCst)
    }

    /// Keeps the `count` versions before the newest one.
    pub fn retain_versions(&self, count: u64) {
        self.newest.store(count, Ordering::SeqCst);
    }

    /// Keeps versions from `version` on.
    pub fn retain_since(&self, version: Option<u64>) {
        self.since.store(version.unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// True if one of these versions has a long pin.
    pub fn keeps_any(&self, versions: RangeInclusive<u64>) -> bool {
        self.long.lock().unwrap_or_else(PoisonError::into_inner).range(versions).next().is_some()
    }

    /// Waits until no lookup runs at one of these versions.
    pub fn wait_for_short(&self, versions: RangeInclusive<u64>) {
        for slot in &self.slots {
            while versions.contains(&slot.0.load(Ordering::SeqCst)) {
                std::thread::yield_now();
            }
        }
        let more = || self.more.lock().unwrap_or_else(PoisonError::into_inner);
        while more().range(versions.clone()).next().is_some() {
            std::thread::yield_now();
        }
    }
}

impl Pin<'_> {
    /// The version.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            return self.pins.slots[slot].0.store(0, Ordering::Release);
        }
        uncount(&self.pins.more, self.version);
    }
}

/// A version that is kept as long as this value lives, with its number of keys. It does not borrow the structure.
#[derive(Debug)]
pub struct Mark {
    pins: Arc<Pins>,
    version: u64,
    keys: Option<u64>,
}

impl Mark {
    /// Keeps the version that `version` returns, with its number of keys. `version` is called while the list is locked.
    pub(crate) fn new(pins: &Arc<Pins>, version: impl FnOnce() -> (u64, Option<u64>)) -> Self {
        let mut keys = None;
        let version = || {
            let (version, of_it) = version();
            keys = of_it;
            version
        };
        Self { version: count(&pins.long, version), pins: Arc::clone(pins), keys }
    }

    /// Keeps a version, if nothing of it can have been collected.
    pub(crate) fn of_retained(pins: &Arc<Pins>, version: u64) -> Option<Self> {
        let mut long = pins.long.lock().unwrap_or_else(PoisonError::into_inner);
        if version < pins.collected.load(Ordering::SeqCst) {
            return None;
        }
        *long.entry(version).or_default() += 1;
        drop(long);
        Some(Self { pins: Arc::clone(pins), version, keys: None })
    }

    /// True if this mark belongs to these pins.
    pub(crate) fn is_of(&self, pins: &Arc<Pins>) -> bool {
        Arc::ptr_eq(&self.pins, pins)
    }

    /// The version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Number of keys, if it is known.
    pub fn keys(&self) -> Option<u64> {
        self.keys
    }
}

impl Clone for Mark {
    fn clone(&self) -> Self {
        Self::new(&self.pins, || (self.version, self.keys))
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        uncount(&self.pins.long, self.version);
    }
}

/// A named version.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// The mark that keeps the version.
    pub mark: Mark,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_horizon_is_the_oldest_pin_of_either_kind() {
        let (pins, newest) = (Arc::new(Pins::default()), AtomicU64::new(5));
        assert_eq!(pins.horizon(&newest), 5);
        let short = pins.enter(&newest);
        newest.store(7, Ordering::SeqCst);
        let long = Mark::new(&pins, || (6, None));
        assert_eq!((short.version(), pins.horizon(&newest)), (5, 5));
        drop(short);
        let again = long.clone();
        drop(long);
        assert_eq!(pins.horizon(&newest), 6);
        drop(again);
        assert_eq!(pins.horizon(&newest), 7);
    }

    #[test]
    fn between_two_pinned_versions_nobody_reads() {
        let (pins, newest) = (Arc::new(Pins::default()), AtomicU64::new(9));
        let (_low, _high) = (Mark::new(&pins, || (2, None)), Mark::new(&pins, || (7, None)));
        let readers = pins.readers(&newest);
        assert!(!readers.any_between(3, 7) && readers.any_between(3, 8) && readers.any_between(2, 3));
        assert!(!readers.any_between(8, 9) && readers.any_between(8, 10));
    }

    #[test]
    fn more_readers_than_slots_are_pinned_all_the_same() {
        let (pins, newest) = (Pins::default(), AtomicU64::new(3));
        let mut all: Vec<_> = (0..SLOTS + 2).map(|_| pins.enter(&newest)).collect();
        newest.store(9, Ordering::SeqCst);
        all.drain(..SLOTS + 1);
        assert_eq!(pins.horizon(&newest), 3);
    }
}
