//! Crash points that were explored without a mutant and found good.
//!
//! A mutant changes few of a run's crash points: those before its first effect, and those after later flushes and fences have made up
//! for it, have the same images as without it. Their verdicts are known. A point is recognised by a fingerprint of
//! everything that its verdict depends on: the durable words, the stores on their way, the length, what an image may hold, and the operations that follow.
//! A point at which recovery itself would have been changed by the mutant is explored again.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::mutate::Mutant;

/// The good crash points of a run without a mutant, by fingerprint; of each the mutants that would have changed something in a recovery from
/// one of its images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Points {
    points: HashMap<u128, Arc<BTreeSet<Mutant>>>,
    /// Most points share their mutants.
    last: Arc<BTreeSet<Mutant>>,
}

impl Points {
    /// Adds a point. One that is known may have been sampled otherwise, and met other mutants.
    pub(crate) fn add(&mut self, point: u128, mut in_recovery: BTreeSet<Mutant>) {
        if let Some(known) = self.points.get(&point) {
            in_recovery.extend(known.iter().copied());
        }
        if *self.last != in_recovery {
            self.last = Arc::new(in_recovery);
        }
        self.points.insert(point, self.last.clone());
    }

    /// Adds those of another run.
    pub(crate) fn merge(&mut self, other: Self) {
        for (point, in_recovery) in other.points {
            match self.points.get(&point) {
                Some(known) if *known != in_recovery => self.add(point, (*in_recovery).clone()),
                Some(_) => {}
                None => _ = self.points.insert(point, in_recovery),
            }
        }
    }

    /// Whether the mutant changes nothing at this point.
    pub(crate) fn is_known(&self, point: u128, mutant: &Mutant) -> bool {
        self.points.get(&point).is_some_and(|in_recovery| !in_recovery.contains(mutant))
    }
}

/// A run with a mutant: which, and what is known of the same run without it.
#[derive(Clone, Debug)]
pub struct Mutated {
    /// The mutant.
    pub mutant: Mutant,
    /// Crash points that are not explored again. Empty: all are explored.
    pub known: Arc<Points>,
}

impl From<Mutant> for Mutated {
    /// Everything is explored.
    fn from(mutant: Mutant) -> Self {
        Self { mutant, known: Arc::default() }
    }
}
