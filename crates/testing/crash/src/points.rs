//! The crash points without a violation in a run without a mutant. The runs with mutants skip these points where possible.
//!
//! A mutant changes few of a run's crash points. Some points have the same images as without the mutant, so their verdicts are known: those
//! before the mutant's first effect, and those where later flushes and fences have made good what it left out. A fingerprint identifies a
//! point. It covers everything that the verdict depends on: the durable words, the pending stores, the length, the expected contents, and
//! the continuation. A point at which the mutant would also change recovery is explored again.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::mutate::Mutant;

/// The good crash points of a run without a mutant, by fingerprint. Each has the set of mutants that would have changed events of a
/// recovery from one of its images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Points {
    points: HashMap<u128, Arc<BTreeSet<Mutant>>>,
    /// The last set added. Most points share their set.
    last: Arc<BTreeSet<Mutant>>,
}

impl Points {
    /// Adds a point. A known point may have been sampled differently, with other mutants, so the sets are united.
    pub(crate) fn add(&mut self, point: u128, mut in_recovery: BTreeSet<Mutant>) {
        if let Some(known) = self.points.get(&point) {
            in_recovery.extend(known.iter().copied());
        }
        if *self.last != in_recovery {
            self.last = Arc::new(in_recovery);
        }
        self.points.insert(point, self.last.clone());
    }

    /// Adds the points of another run.
    pub(crate) fn merge(&mut self, other: Self) {
        for (point, in_recovery) in other.points {
            match self.points.get(&point) {
                Some(known) if *known != in_recovery => self.add(point, (*in_recovery).clone()),
                Some(_) => {}
                None => _ = self.points.insert(point, in_recovery),
            }
        }
    }

    /// True if the mutant changes nothing at this point.
    pub(crate) fn is_known(&self, point: u128, mutant: &Mutant) -> bool {
        self.points.get(&point).is_some_and(|in_recovery| !in_recovery.contains(mutant))
    }
}

/// A mutant, and the known crash points of the same run without it.
#[derive(Clone, Debug)]
pub struct Mutated {
    /// The mutant.
    pub mutant: Mutant,
    /// Crash points that are not explored again. If empty, all are explored.
    pub known: Arc<Points>,
}

impl From<Mutant> for Mutated {
    /// All crash points are explored.
    fn from(mutant: Mutant) -> Self {
        Self { mutant, known: Arc::default() }
    }
}
