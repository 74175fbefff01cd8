//! Background work in bounded steps: the collector, and the release of retained versions that are older than the age limit.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use pmem::Medium;

use crate::passes::Ages;
use crate::structure::{Structure, Versioned};

/// Nodes or buckets of one step of the collector. Writers wait during a step.
const STEP: usize = 32;
/// The collector rests this many times as long as its last step took. So its share of time is bounded.
const REST: u32 = 4;
/// Maximum time between two searches for work.
const IDLE: Duration = Duration::from_millis(50);

impl<M: Medium, X: Structure> Versioned<M, X> {
    /// From now on keeps versions up to this age. `None`: keeps no version because of its age.
    pub(crate) fn retain_age(&self, limit: Option<Duration>) {
        let mut ages = self.maintenance.ages.lock().unwrap_or_else(PoisonError::into_inner);
        *ages = Ages { limit, ..Ages::default() };
        self.retain_since(ages.note(self.version()));
    }

    /// Records the age of versions, and does a step of the collector if there may be something to collect. Returns the time to rest.
    pub(crate) fn maintain_once(&self, collectable: u64) -> Duration {
        let mut ages = self.maintenance.ages.lock().unwrap_or_else(PoisonError::into_inner);
        let since = ages.note(self.version());
        self.retain_since(since);
        drop(ages);
        let mut passes = self.maintenance.passes.lock().unwrap_or_else(PoisonError::into_inner);
        if !passes.is_due(collectable, self.dead_intervals()) {
            return IDLE;
        }
        let since = Instant::now();
        // Reads report a damaged node, and writes report a full disk. Both may be repaired before the next pass.
        if self.collect_some(STEP).unwrap_or(true) {
            passes.end(self.dead_intervals());
        }
        since.elapsed() * REST
    }
}
