//! Discarded ranges: those that wait for their punch, and holes. The contract is in the head of `space`.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::medium::holes::Holes;
use crate::sync::atomics::unmodelled::{Mutex, MutexGuard};

/// In place of the number of a generation: the group that freed the range is not closed yet.
pub(super) const RUNNING: u64 = u64::MAX;

/// The discarded ranges of an image.
#[derive(Debug, Default)]
pub(super) struct Space {
    freed: Mutex<Freed>,
    /// A range was allocated, and the data file has not been synced since (P3).
    pub unsynced: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct Freed {
    /// First byte of a range, the byte after its last, and the generation that freed it.
    pub waiting: BTreeMap<u64, (u64, u64)>,
    /// Waiting ranges that the running group freed.
    pub running: Vec<u64>,
    pub holes: Holes,
    /// Young ranges (P4).
    pub young: Vec<(u64, u64)>,
}

impl Freed {
    /// Waiting ranges that overlap `from..to`.
    pub fn waiting_in(&self, from: u64, to: u64) -> Vec<u64> {
        let before = self.waiting.range(..from).next_back().filter(|(_, (end, _))| *end > from);
        before.into_iter().chain(self.waiting.range(from..to)).map(|(first, _)| *first).collect()
    }
}

impl Space {
    pub fn freed(&self) -> MutexGuard<'_, Freed> {
        self.freed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Assigns the ranges that the running group freed to this generation.
    pub fn close(&self, generation: u64) {
        let mut freed = self.freed();
        for from in std::mem::take(&mut freed.running) {
            if let Some((_, freed_by)) = freed.waiting.get_mut(&from)
                && *freed_by == RUNNING
            {
                *freed_by = generation;
            }
        }
    }

    /// Removes the ranges that the running group freed: they are in use again.
    pub fn roll_back(&self) {
        let mut freed = self.freed();
        freed.running.clear();
        freed.waiting.retain(|_, (_, generation)| *generation != RUNNING);
    }

    /// True once after an allocation: the data file must be synced before the next group is written (P3).
    pub fn take_unsynced(&self) -> bool {
        self.unsynced.swap(false, Ordering::AcqRel)
    }

    /// True if the checkpoint of this generation has ranges to punch.
    pub fn waits_for(&self, generation: u64) -> bool {
        self.freed().waiting.values().any(|(_, freed_by)| *freed_by <= generation)
    }

    /// True if `at` must not be stored to (P2).
    pub fn lacks(&self, at: u64) -> bool {
        let freed = self.freed();
        !freed.holes.within(at, at + 1).is_empty() || !freed.waiting_in(at, at + 1).is_empty()
    }

    /// Total bytes of all holes.
    pub fn hole_bytes(&self) -> u64 {
        self.holes().iter().map(|(from, to)| to - from).sum()
    }

    /// The ranges without storage.
    pub fn holes(&self) -> Vec<(u64, u64)> {
        self.freed().holes.all()
    }
}
