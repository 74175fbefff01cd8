//! The common state of the steps of background work: the passes of the collector that are due, and the ages of retained versions.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The resolution of the ages of versions is the age limit divided by this number.
const AGES: u32 = 64;

/// The common state of the steps.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    pub ages: Mutex<Ages>,
    pub passes: Mutex<Passes>,
}

/// The versions that were the newest at certain times.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    pub limit: Option<Duration>,
    pub seen: VecDeque<(Instant, u64)>,
}

impl Ages {
    /// Records the newest version. Returns the first version that the age limit keeps.
    pub fn note(&mut self, version: u64) -> Option<u64> {
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

/// The passes of the collector that ran. A pass has many steps, and its beginning determines what it may collect. If a snapshot is dropped
/// during a pass, entries in nodes that the pass has visited remain for another pass.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    /// The collectable number when the running pass began.
    begun: Option<u64>,
    /// The collectable number of the last complete pass, and the dead intervals that it left.
    ended: Option<(u64, usize)>,
}

impl Passes {
    /// True if a pass runs, or there may be something to collect for a new one.
    pub fn is_due(&mut self, collectable: u64, dead_intervals: usize) -> bool {
        if self.ended == Some((collectable, dead_intervals)) {
            return false;
        }
        self.begun.get_or_insert(collectable);
        true
    }

    /// Records the end of the running pass.
    pub fn end(&mut self, dead_intervals: usize) {
        self.ended = self.begun.take().map(|collectable| (collectable, dead_intervals));
    }
}

#[cfg(test)]
mod tests {
    use super::Passes;

    /// A snapshot was dropped during a pass. At its end the pass counted as one that had seen everything collectable. Garbage in nodes that
    /// it had already visited stayed until the next write.
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
