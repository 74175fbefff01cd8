//! Records the effects of an operation on durable memory: counts, and for each commit the node lines that it changed directly, without a
//! log record.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use pmem::observed::{Category, Counts};
use pmem::{Event, Fence, LINE, Observer};

/// Effects since the last [`Tape::take`].
#[derive(Clone, Debug, Default)]
pub struct Spent {
    /// Counts by category.
    pub counts: Counts,
    /// For each commit, the flushed lines of nodes that are no data lines of the log. Their words did not go through the log.
    direct: Vec<HashSet<u64>>,
    /// Number of commits.
    commits: usize,
}

impl Spent {
    /// True if a commit wrote the word at this offset without the log.
    pub fn is_direct(&self, commit: usize, at: u64) -> bool {
        self.direct.get(commit).is_some_and(|lines| lines.contains(&(at & !(LINE - 1))))
    }

    /// Number of commits of the operation.
    pub fn commits(&self) -> usize {
        self.commits
    }

    fn note(&mut self, event: &Event, old: u64) {
        self.counts.note(event, old);
        match event {
            Event::Flush { line, .. } if event.category() == Category::Node => {
                self.direct.resize_with(self.commits + 1, HashSet::new);
                self.direct[self.commits].insert(*line);
            }
            Event::Fence { why: Fence::Commit, .. } => self.commits += 1,
            _ => {}
        }
    }
}

/// Records the effects of operations.
#[derive(Debug, Default)]
pub struct Tape {
    spent: Mutex<Spent>,
}

impl Tape {
    /// Returns the recorded effects and starts again.
    pub fn take(&self) -> Spent {
        std::mem::take(&mut self.spent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, event: &Event, old: u64) {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner).note(event, old);
    }
}

impl Observer for Tape {
    fn event(&self, event: Event) {
        self.note(&event, 0);
    }

    fn store(&self, event: Event, old: u64) {
        self.note(&event, old);
    }
}

/// An observer that ignores all events, for reads that must not be counted.
#[derive(Debug)]
pub struct Deaf;

impl Observer for Deaf {
    fn event(&self, _event: Event) {}
}
