//! The policy of gathering: how long a commit waits for more callers. A sync costs the same for one caller and for hundreds, and callers
//! that a commit released usually write again soon. Therefore a thread *gathers* before it commits. When a commit ends, it releases some
//! callers, and others already wait. The next gathering ends when the number of waiting callers reaches the sum of the two. Without
//! gathering, the callers would split into two halves that commit in turn, and each half would wait for the sync of the other.
//!
//! Limits: a gathering takes at most a part of the duration of the last commit, and at most 2 ms. There is none if the last commit was very
//! fast. If the sum is one, there is no gathering, because no other caller is expected. A leader among waiting threads gathers for a
//! quarter of the duration, and after a gathering that timed out, the next three commits do not gather: the released threads may be
//! readers, or have stopped. A commit thread with many connections gathers for half of the duration, and also after a gathering that timed
//! out: most of its callers come back soon, and each sync that is saved leaves them processor time.

use std::time::Duration;

/// In models and schedules no time passes. There every commit takes long enough to gather, and a gathering may time out at any moment.
const MODELLED: bool = cfg!(any(all(test, loom), shuttle));
/// There is no gathering if the last commit was faster than this: sleeping takes as long.
const MIN: Duration = Duration::from_micros(80);
/// Longest gathering: a very slow commit does not predict the next one.
const MAX: Duration = Duration::from_millis(2);

/// The state of the policy. Its owner protects it with the lock of the waiting callers.
#[derive(Debug)]
pub struct Gathering {
    /// A gathering takes at most the last commit's time divided by this number.
    part: u32,
    /// Number of commits without gathering after one that timed out.
    skips_max: u32,
    /// Number of waiting callers when the last commit was done: for its group, and for the next.
    enough: usize,
    /// Duration of the last commit.
    took: Duration,
    /// Number of commits without gathering, because the last gathering timed out.
    skips: u32,
}

impl Gathering {
    /// For callers that are threads, one of which commits.
    pub fn of_threads() -> Self {
        Self::new(4, if MODELLED { 1 } else { 3 })
    }

    /// For callers that are futures, with a thread that commits for them.
    pub fn of_futures() -> Self {
        Self::new(2, 0)
    }

    fn new(part: u32, skips_max: u32) -> Self {
        Self { part, skips_max, enough: 0, took: Duration::ZERO, skips: 0 }
    }

    /// True if this number of waiting callers is enough to commit.
    pub fn is_enough(&self, waiting: usize) -> bool {
        waiting >= self.enough
    }

    /// Before a commit for this number of waiting callers: the longest time to gather. `None` if the commit should begin at once.
    pub fn limit(&mut self, waiting: usize) -> Option<Duration> {
        if self.took < MIN || self.is_enough(waiting) {
            return None;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return None;
        }
        Some((self.took / self.part).min(MAX))
    }

    /// After a gathering, with this number of waiting callers.
    pub fn gathered(&mut self, waiting: usize) {
        if !self.is_enough(waiting) {
            self.skips = self.skips_max;
        }
    }

    /// After a commit of this duration. `waiting` is the number of waiting callers, including those that the commit releases.
    pub fn committed(&mut self, waiting: usize, took: Duration) {
        self.enough = waiting;
        self.took = if MODELLED { MIN } else { took };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_commit_gathers_for_those_that_the_last_one_released_and_not_after_it_timed_out() {
        let mut gathering = Gathering::of_threads();
        assert_eq!(gathering.limit(1), None, "nothing is known yet");
        gathering.committed(8, MIN / 2);
        assert_eq!(gathering.limit(1), None, "a fast commit");
        gathering.committed(8, 4 * MIN);
        assert_eq!(gathering.limit(8), None, "enough already");
        assert_eq!(gathering.limit(7), Some(MIN));
        gathering.gathered(8);
        assert!(gathering.limit(7).is_some());
        gathering.gathered(7);
        for _ in 0..3 {
            assert_eq!(gathering.limit(7), None, "the last gathering timed out");
        }
        assert!(gathering.limit(7).is_some());
        gathering.committed(1, Duration::from_secs(60));
        assert_eq!(gathering.limit(1), None, "a single caller");
        assert_eq!(gathering.limit(0), Some(MAX));
        let mut gathering = Gathering::of_futures();
        gathering.committed(8, 4 * MIN);
        gathering.gathered(7);
        assert_eq!(gathering.limit(7), Some(2 * MIN), "despite the time-out");
    }
}
