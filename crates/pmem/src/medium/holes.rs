//! The ranges of a region that have no storage.

use std::collections::BTreeMap;

/// Disjoint ranges: from the first byte of each to the byte after its last.
#[derive(Debug, Default)]
pub(crate) struct Holes(BTreeMap<u64, u64>);

impl Holes {
    /// All ranges, ascending.
    pub fn all(&self) -> Vec<(u64, u64)> {
        self.0.iter().map(|(from, to)| (*from, *to)).collect()
    }

    pub fn add(&mut self, from: u64, to: u64) {
        self.remove(from, to);
        self.0.insert(from, to);
    }

    pub fn remove(&mut self, from: u64, to: u64) {
        for (first, last) in self.within(from, to) {
            // The hole that contains this range begins at or before it.
            if let Some((&hole, &end)) = self.0.range(..=first).next_back() {
                self.0.remove(&hole);
                self.0.extend([(hole, first), (last, end)].into_iter().filter(|(from, to)| from < to));
            }
        }
    }

    /// The parts of `from..to` that are in holes.
    pub fn within(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let before = self.0.range(..from).next_back();
        let holes = before.into_iter().chain(self.0.range(from..to));
        let clipped = holes.map(|(first, last)| ((*first).max(from), (*last).min(to)));
        clipped.filter(|(first, last)| first < last).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_disjoint_whatever_is_added_and_removed() {
        let mut holes = Holes::default();
        let mut model = [false; 64];
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..10_000 {
            let from = rng.usize(..64);
            let to = rng.usize(from..64);
            let is_hole = rng.bool();
            match is_hole {
                true if from < to => holes.add(from as u64, to as u64),
                true => {}
                false => holes.remove(from as u64, to as u64),
            }
            model[from..to].fill(is_hole);
            let seen: Vec<bool> = (0..64).map(|at| !holes.within(at, at + 1).is_empty()).collect();
            assert_eq!(seen, model);
            let ends: Vec<u64> = holes.0.iter().flat_map(|(from, to)| [*from, *to]).collect();
            assert!(ends.windows(2).all(|pair| pair[0] <= pair[1]), "{ends:?}");
        }
    }
}
