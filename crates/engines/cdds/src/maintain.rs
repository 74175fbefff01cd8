//! Work beside users, in bounded steps: the collector, and the age of versions.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use pmem::Medium;

use crate::passes::Ages;
use crate::structure::{Structure, Versioned};

/// Nodes or buckets of a step of the collector, which holds writers up meanwhile.
const STEP: usize = 32;
/// The collector rests so many times as long as a step took: its bounded share of time.
const REST: u32 = 4;
/// How long it waits at most before it looks for work.
const IDLE: Duration = Duration::from_millis(50);

impl<M: Medium, X: Structure> Versioned<M, X> {
    /// Keeps versions up to this age from now on; without one, none by their age.
    pub(crate) fn retain_age(&self, limit: Option<Duration>) {
        let mut ages = self.maintenance.ages.lock().unwrap_or_else(PoisonError::into_inner);
        *ages = Ages { limit, ..Ages::default() };
        self.retain_since(ages.note(self.version()));
    }

    /// Notes the age of versions, and takes a step of the collector if there may be something to collect; how long to rest then.
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
        // Reads report a damaged node, and writes a full disk. Either may be mended before the next pass.
        if self.collect_some(STEP).unwrap_or(true) {
            passes.end(self.dead_intervals());
        }
        since.elapsed() * REST
    }
}
