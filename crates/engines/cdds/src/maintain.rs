//! Work beside users, in bounded steps: the collector, and the age of versions.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pmem::Medium;

use crate::structure::Structure;
use crate::versioned::Versioned;

/// Nodes or buckets of a step of the collector, which holds writers up meanwhile.
const STEP: usize = 32;
/// The collector rests so many times as long as a step took: its bounded share of time.
const REST: u32 = 4;
/// How long it waits at most before it looks for work.
const IDLE: Duration = Duration::from_millis(50);
/// Ages are told apart by so much of what is kept.
const AGES: u32 = 64;

/// What the steps know of each other.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    ages: Mutex<Ages>,
    passes: Mutex<Passes>,
}

/// When which version was the newest.
#[derive(Debug, Default)]
struct Ages {
    limit: Option<Duration>,
    seen: VecDeque<(Instant, u64)>,
}

impl Ages {
    /// Notes the newest version and says from which one on versions are kept.
    fn note(&mut self, version: u64) -> Option<u64> {
        let (limit, now) = (self.limit?, Instant::now());
        if self.seen.back().is_none_or(|(at, _)| now.duration_since(*at) >= limit / AGES) {
            self.seen.push_back((now, version));
        }
        while self.seen.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= limit) {
            self.seen.pop_front();
        }
        self.seen.front().map(|(_, version)| *version)
    }
}

/// Which passes of the collector ran. A pass takes many steps, and what it may collect is settled when it begins: a snapshot that is
/// dropped while it runs leaves entries behind in nodes that it has passed already, for another pass.
#[derive(Debug, Default)]
struct Passes {
    /// What the running pass could collect when it began.
    begun: Option<u64>,
    /// The same of the last pass that ended, and the dead intervals that it left.
    ended: Option<(u64, usize)>,
}

impl Passes {
    /// True if a pass runs, or there may be something to collect for a new one.
    fn is_due(&mut self, collectable: u64, dead_intervals: usize) -> bool {
        if self.ended == Some((collectable, dead_intervals)) {
            return false;
        }
        self.begun.get_or_insert(collectable);
        true
    }

    /// The running pass ended.
    fn end(&mut self, dead_intervals: usize) {
        self.ended = self.begun.take().map(|collectable| (collectable, dead_intervals));
    }
}

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
        // A damaged node is told to whoever reads it, and a full disk to whoever writes; both may be over next time.
        if self.collect_some(STEP).unwrap_or(true) {
            passes.end(self.dead_intervals());
        }
        since.elapsed() * REST
    }
}

#[cfg(test)]
mod tests {
    use super::Passes;

    /// A snapshot was dropped in the middle of a pass. The pass counted as one that had seen all that could be collected at its end, and
    /// what lay behind it stayed until the next write.
    #[test]
    fn what_becomes_collectable_while_a_pass_runs_is_for_another_pass() {
        let mut passes = Passes::default();
        assert!(passes.is_due(5, 0));
        assert!(passes.is_due(9, 0), "the pass runs on");
        passes.end(0);
        assert!(passes.is_due(9, 0), "another pass");
        passes.end(0);
        assert!(!passes.is_due(9, 0));
        assert!(passes.is_due(9, 1), "a rollback");
    }
}
