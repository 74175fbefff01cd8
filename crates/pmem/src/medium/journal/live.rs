//! The state of the live generations between two commits.

use std::sync::PoisonError;

use crate::sync::atomics::unmodelled::{Mutex, MutexGuard};

/// The writer fills generations, checkpoints empty them. Both keep their progress here.
#[derive(Debug)]
pub(super) struct Live {
    /// The oldest generation that is not checkpointed.
    pub oldest: u64,
    /// The generation that takes groups: the oldest or the next.
    pub generation: u64,
    /// Bytes used of each half.
    pub used: [u64; 2],
    /// Pages of the image that hold lines of the generation in each half.
    pub pages: [u64; 2],
    /// The generation whose group is in the annex.
    pub annex: Option<u64>,
    /// Number of the first group of the generation in each half.
    pub first: [u64; 2],
    /// Number of the next group.
    pub next: u64,
    /// Number of running copies of the region. No checkpoint is due while a copy runs.
    pub held_off: u32,
    /// True when the checkpoint thread must end.
    pub waits_ended: bool,
    /// Number of checkpointed generations.
    pub checkpoints: u64,
}

impl Live {
    /// True if the writer has left a half that can be checkpointed.
    pub fn is_due(&self) -> bool {
        self.generation > self.oldest && self.held_off == 0
    }

    /// Moves the writer to the other half, which is free.
    pub fn turn(&mut self) {
        self.generation += 1;
        let half = (self.generation % 2) as usize;
        (self.used[half], self.pages[half], self.first[half]) = (0, 0, self.next);
    }
}

pub(super) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
