//! Pins: which versions somebody may still read.
//!
//! A look-up pins its version in a slot of a small table and takes no lock. What pins for longer (snapshots, cursors) counts
//! itself in a list under a lock of its own, which the writer takes for a moment when it asks for the horizon.
//!
//! Invariants:
//! * P1: the horizon is at or below every pinned version, and at or below the version that is durable. Nothing that is seen at
//!   the horizon or later is overwritten or given back.
//! * P2: a reader who pinned a version and then found it still the newest is seen by every later horizon; who finds
//!   a newer one pins again. (Both sides are sequentially consistent: store, then load the other's.)

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use pmem::sync::{AtomicU64, Mutex, Ordering};

const SLOTS: usize = 64;

/// A slot with a line for itself.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot(AtomicU64);

/// The table, and the list.
#[derive(Debug)]
pub struct Pins {
    slots: Box<[Slot]>,
    long: Mutex<BTreeMap<u64, u64>>,
}

impl Default for Pins {
    fn default() -> Self {
        Self { slots: (0..SLOTS).map(|_| Slot::default()).collect(), long: Mutex::new(BTreeMap::new()) }
    }
}

/// A version that is kept as long as this lives.
#[derive(Debug)]
pub struct Pin<'a> {
    pins: &'a Pins,
    slot: Option<usize>,
    version: u64,
}

thread_local! {
    /// Where this thread looks for a slot first.
    static FIRST: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Threads that looked for a slot so far.
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
    /// Pins the newest version for a short while.
    #[inline]
    pub fn enter<'a>(&'a self, newest: &AtomicU64) -> Pin<'a> {
        let first = first_slot();
        for turn in 0..SLOTS {
            let slot = (first + turn) % SLOTS;
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
        self.enter_long(|| newest.load(Ordering::SeqCst))
    }

    /// Pins a version for as long as one likes. `version` is asked under the list's lock.
    fn enter_long(&self, version: impl FnOnce() -> u64) -> Pin<'_> {
        Pin { pins: self, slot: None, version: self.count(version) }
    }

    fn count(&self, version: impl FnOnce() -> u64) -> u64 {
        let mut long = self.long.lock().unwrap_or_else(PoisonError::into_inner);
        let version = version();
        *long.entry(version).or_default() += 1;
        version
    }

    fn uncount(&self, version: u64) {
        let mut long = self.long.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = long.get_mut(&version) {
            *count -= 1;
            if *count == 0 {
                long.remove(&version);
            }
        }
    }

    /// The oldest version that anybody may still read (P1).
    pub fn horizon(&self, newest: &AtomicU64) -> u64 {
        let newest = newest.load(Ordering::SeqCst);
        let pinned =
            self.slots.iter().map(|slot| slot.0.load(Ordering::SeqCst)).filter(|version| *version != 0);
        let long = self.long.lock().unwrap_or_else(PoisonError::into_inner);
        pinned.chain(long.keys().next().copied()).fold(newest, u64::min)
    }
}

/// The versions that anybody may still read, one by one.
#[derive(Debug)]
pub struct Readers {
    newest: u64,
    /// Pinned ones, ascending.
    pinned: Vec<u64>,
}

impl Readers {
    /// True if one of them is at or above `start` and below `end`. Whoever comes later reads at the newest one or above.
    pub fn any_between(&self, start: u64, end: u64) -> bool {
        let first = self.pinned.partition_point(|version| *version < start);
        end > self.newest || self.pinned.get(first).is_some_and(|version| *version < end)
    }
}

impl Pins {
    /// The versions that anybody may still read. As with the horizon, whoever is missed finds a newer version (P2).
    pub fn readers(&self, newest: &AtomicU64) -> Readers {
        let newest = newest.load(Ordering::SeqCst);
        let short = self.slots.iter().map(|slot| slot.0.load(Ordering::SeqCst));
        let mut pinned: Vec<u64> = short.filter(|version| *version != 0).collect();
        let long = self.long.lock().unwrap_or_else(PoisonError::into_inner);
        pinned.extend(long.keys());
        pinned.sort_unstable();
        Readers { newest, pinned }
    }

    /// True if a snapshot or cursor keeps a version above `version`.
    pub fn has_long_above(&self, version: u64) -> bool {
        let long = self.long.lock().unwrap_or_else(PoisonError::into_inner);
        long.keys().next_back().is_some_and(|last| *last > version)
    }

    /// Waits until no look-up runs at a version below `newest`.
    pub fn wait_for_short(&self, newest: u64) {
        for slot in &self.slots {
            while (1..newest).contains(&slot.0.load(Ordering::SeqCst)) {
                std::thread::yield_now();
            }
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
        self.pins.uncount(self.version);
    }
}

/// A version that is kept as long as this lives, with its number of keys. It belongs to nobody in particular.
#[derive(Debug)]
pub struct Mark {
    pins: Arc<Pins>,
    version: u64,
    keys: u64,
}

impl Mark {
    /// Keeps the version that `version` says, asked under the list's lock.
    pub(crate) fn new(pins: &Arc<Pins>, version: impl FnOnce() -> u64, keys: u64) -> Self {
        Self { version: pins.count(version), pins: Arc::clone(pins), keys }
    }

    /// True if it is one of these.
    pub(crate) fn is_of(&self, pins: &Arc<Pins>) -> bool {
        Arc::ptr_eq(&self.pins, pins)
    }

    /// The version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Number of keys.
    pub fn keys(&self) -> u64 {
        self.keys
    }
}

impl Clone for Mark {
    fn clone(&self) -> Self {
        Self::new(&self.pins, || self.version, self.keys)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.pins.uncount(self.version);
    }
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
        let long = Mark::new(&pins, || 6, 0);
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
        let (_low, _high) = (Mark::new(&pins, || 2, 0), Mark::new(&pins, || 7, 0));
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
