//! What the steps of the work beside users know of each other: which pass of the collector is due, and how old versions are.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Ages are told apart by so much of what is kept.
const AGES: u32 = 64;

/// What the steps know of each other.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    pub ages: Mutex<Ages>,
    pub passes: Mutex<Passes>,
}

/// When which version was the newest.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    pub limit: Option<Duration>,
    pub seen: VecDeque<(Instant, u64)>,
}

impl Ages {
    /// Notes the newest version and says from which one on versions are kept.
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

/// Which passes of the collector ran. A pass takes many steps, and what it may collect is settled when it begins: a snapshot that is
/// dropped while it runs leaves entries behind in nodes that it has passed already, for another pass.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    /// What the running pass could collect when it began.
    begun: Option<u64>,
    /// The same of the last pass that ended, and the dead intervals that it left.
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

    /// The running pass ended.
    pub fn end(&mut self, dead_intervals: usize) {
        self.ended = self.begun.take().map(|collectable| (collectable, dead_intervals));
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
