//! A scheduler of random bursts. A thread continues until a random draw switches to another one. The probability differs between
//! executions.
//!
//! A uniform choice at every step would mix the threads evenly. A reader would rarely stand still between two steps while a writer makes
//! hundreds of steps. But only a reader that stands still for so long follows a stale pointer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

/// Random bursts; see the head of the module.
#[derive(Debug)]
pub struct Bursts {
    seed: u64,
    left: u64,
    random: fastrand::Rng,
    /// Number of steps in 1,024 after which the thread may change.
    switches: u32,
}

impl Bursts {
    /// A scheduler for this many executions with this seed.
    pub fn new(seed: u64, executions: u64) -> Self {
        Self { seed, left: executions, random: fastrand::Rng::new(), switches: 0 }
    }
}

impl Scheduler for Bursts {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.left = self.left.checked_sub(1)?;
        let seed = self.seed << 32 | self.left;
        self.random = fastrand::Rng::with_seed(seed);
        self.switches = 1 << self.random.u32(1..=9);
        Some(Schedule::new(seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let others: Vec<TaskId> =
            runnable.iter().map(|task| task.id()).filter(|id| Some(*id) != current).collect();
        match current.filter(|current| runnable.iter().any(|task| task.id() == *current)) {
            Some(current) if others.is_empty() => Some(current),
            Some(current) if !is_yielding && self.random.u32(..1024) >= self.switches => Some(current),
            _ => self.random.choice(others),
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.random.u64(..)
    }
}

/// A scheduler that stops when a violation is found.
#[derive(Debug)]
pub struct Until<S> {
    /// The scheduler that chooses threads.
    pub scheduler: S,
    /// True when a violation is found.
    pub found: Arc<AtomicBool>,
}

impl<S: Scheduler> Scheduler for Until<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.found.load(Ordering::Relaxed) { None } else { self.scheduler.new_execution() }
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        self.scheduler.next_task(runnable, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.scheduler.next_u64()
    }
}
