//! What one operation did to durable memory: counts, and which lines of nodes each of its commits flushed for themselves.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use pmem::observed::{Category, Counts};
use pmem::{Event, Fence, LINE, Observer};

/// What was seen since the last time.
#[derive(Clone, Debug, Default)]
pub struct Spent {
    /// Counts by category.
    pub counts: Counts,
    /// For each commit, lines of nodes that were flushed as a node's, not as the log's home lines: their words did not go
    /// through the log.
    direct: Vec<HashSet<u64>>,
    /// Commits so far.
    commits: usize,
}

impl Spent {
    /// True if a commit wrote the word at this offset without the log.
    pub fn is_direct(&self, commit: usize, at: u64) -> bool {
        self.direct.get(commit).is_some_and(|lines| lines.contains(&(at & !(LINE - 1))))
    }

    /// Commits of the operation.
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

/// Collects what operations do.
#[derive(Debug, Default)]
pub struct Tape {
    spent: Mutex<Spent>,
}

impl Tape {
    /// Takes what was seen and starts again.
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

/// An observer for looks that nobody is to hear of.
#[derive(Debug)]
pub struct Deaf;

impl Observer for Deaf {
    fn event(&self, _event: Event) {}
}
