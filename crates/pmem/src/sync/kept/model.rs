//! The protocol under a model checker: a node of one word, a reader, and a writer that also reads. A reader keeps copies of the node's word
//! for later readers (the kept words). The words stay right if the node's word grows, so a writer does not clear the line then.

use std::sync::Arc;

use loom::thread;

use super::*;
use crate::sync::model::{explored, is_noticed};
use crate::sync::omission::Omission;
use crate::sync::stripe::{Held, Stripes};

const NODE: u64 = 4096;
/// Number of changes of the node.
const ROUNDS: u64 = 2;
/// Minimum of executions: two threads share a few words.
const EXECUTIONS_MIN: u64 = 100;

struct Shared {
    stripes: Stripes,
    node: AtomicU64,
    kept: Kept,
}

impl Shared {
    fn write(&self, round: u64) {
        let mut held = Held::default();
        self.stripes.lock(NODE, &mut held);
        self.kept.clear();
        self.node.store(round, Ordering::Relaxed);
        self.stripes.unlock(&mut held);
    }

    /// A change that leaves the kept words right.
    fn grow(&self, by: u64) {
        let mut held = Held::default();
        self.stripes.lock(NODE, &mut held);
        self.node.store(self.node.load(Ordering::Relaxed) + by, Ordering::Relaxed);
        self.stripes.unlock(&mut held);
    }

    /// As [`Shared::read`], of a node that only grows. A reader that finds old words in the line replaces them.
    fn read_grown(&self) {
        let version = self.stripes.read(NODE);
        let kept = self.kept.read();
        let word = self.node.load(Ordering::Relaxed);
        if !self.stripes.check(version) {
            return;
        }
        if let Some(words) = kept {
            assert!(
                words == [words[0]; WORDS] && words[0] <= word,
                "the node has {word}, the line {words:?}"
            );
        }
        if kept != Some([word; WORDS]) {
            self.kept.fill(&[word; WORDS], || self.stripes.check(version));
        }
    }

    /// One attempt to read the node and its kept line. A reader that finds the line empty fills it.
    fn read(&self) {
        let version = self.stripes.read(NODE);
        let kept = self.kept.read();
        let word = self.node.load(Ordering::Relaxed);
        if !self.stripes.check(version) {
            return;
        }
        match kept {
            Some(words) => assert_eq!(words, [word; WORDS], "the node has {word}"),
            None => self.kept.fill(&[word; WORDS], || self.stripes.check(version)),
        }
    }
}

fn model() {
    let executions = explored(|| {
        let shared =
            Arc::new(Shared { stripes: Stripes::new(2), node: AtomicU64::new(0), kept: Kept::default() });
        let beside = Arc::clone(&shared);
        let thread = thread::spawn(move || beside.read());
        for round in 1..=ROUNDS {
            shared.write(round);
            // A reader that took the line before the write may still be filling it.
            shared.read();
        }
        thread.join().unwrap();
        shared.read();
        shared.read();
        assert_eq!(shared.kept.read(), Some([ROUNDS; WORDS]));
    });
    assert!(executions >= EXECUTIONS_MIN, "{executions} executions");
}

fn model_of_growth() {
    let executions = explored(|| {
        let shared =
            Arc::new(Shared { stripes: Stripes::new(2), node: AtomicU64::new(0), kept: Kept::default() });
        shared.read_grown();
        let beside = Arc::clone(&shared);
        let thread = thread::spawn(move || beside.read_grown());
        for round in 1..=ROUNDS {
            shared.grow(round);
            shared.read_grown();
        }
        thread.join().unwrap();
    });
    assert!(executions >= EXECUTIONS_MIN, "{executions} executions");
}

#[test]
fn what_is_kept_is_right_for_the_node() {
    model();
}

#[test]
fn what_is_kept_is_of_one_fill() {
    model_of_growth();
}

#[test]
fn a_missing_look_at_the_state_is_noticed() {
    is_noticed(Omission::KeptRead, model_of_growth);
}

#[test]
fn a_missing_clear_is_noticed() {
    is_noticed(Omission::KeptClear, model);
}

#[test]
fn a_missing_validation_is_noticed() {
    is_noticed(Omission::KeptCheck, model);
}
