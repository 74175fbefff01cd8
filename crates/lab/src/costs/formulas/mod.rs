//! The cost of an operation by the papers' formulas and by our own protocols.
//!
//! * [`wbtree2015`]: Table 3 of the wB+-Tree paper, in words.
//! * [`vlab2018`]: Table 2 of the VLAB paper, in bytes.
//! * [`ours`]: the expected costs of our engines: exact numbers of words and fences, bounds of the number of flushes.
//!
//! The number of entries that an operation moves depends on the rank of the key in its node. A paper's formula has the average over all
//! ranks, and assumes that all entries have the same size. [`Met`] holds the arguments of a formula. If they include the number of entries
//! that the measured operation moved, this number replaces the average. A [`Standing`] is the required relation of the measured cost to the
//! formula's value.

pub mod ours;
pub mod vlab2018;
pub mod wbtree2015;

/// The arguments of a formula.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Met {
    /// Maximum entries of a node (the papers' n, n' or N).
    pub n: f64,
    /// Entries of the node that receives the new entry or the last separator, or that loses an entry (m or M).
    pub m: f64,
    /// Number of levels that split (l or L).
    pub l: f64,
    /// Entries that this operation moves in its leaf. `None` for the papers' average: half of the entries of a sorted node.
    pub moved: Option<f64>,
    /// Pointers that are switched to a copied leaf. `None` for the paper's two.
    pub pointers: Option<f64>,
    /// Bytes of an entry.
    pub entry_bytes: f64,
}

impl Met {
    /// Entries that an insert into a sorted node moves: on average half of m [wB+ §3.1].
    pub fn moved_by_insert(&self) -> f64 {
        self.moved.unwrap_or(self.m / 2.0)
    }

    /// Entries that a delete from a sorted node moves: on average half of the remaining ones [wB+ §3.1].
    pub fn moved_by_delete(&self) -> f64 {
        self.moved.unwrap_or((self.m - 1.0) / 2.0)
    }
}

/// The part of a paper's formula that belongs to allocation, which is a separate category here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// Words.
    pub words: u32,
    /// Flushes.
    pub flushes: u32,
}

impl Allocation {
    /// No allocation.
    pub const NONE: Self = Self { words: 0, flushes: 0 };
}

/// The values N_w, N_clf and N_mf of a paper.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Paper {
    /// Words, or bytes if the paper counts bytes.
    pub written: f64,
    /// Lines flushed.
    pub flushes: f64,
    /// Fences.
    pub fences: f64,
}

/// The required relation of a measured operation to a paper's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Equal, at the number of entries that this operation moves.
    Equal,
    /// Rounded up to a whole number: the paper counts a slot array in eighths of a word, we write whole words.
    RoundedUp,
    /// Not less: the paper's flushes are lower bounds.
    NoLess,
    /// Not compared, only printed with the reason.
    Apart,
}

impl Standing {
    /// True if `measured` has this relation to the paper's value. (The formulas' fractions are multiples of 1/128 or of 1/1000.)
    pub fn allows(self, measured: u64, paper: f64) -> bool {
        let measured = measured as f64;
        match self {
            Self::Equal => (measured - paper).abs() < 1e-6,
            Self::RoundedUp => (measured - (paper - 1e-6).ceil()).abs() < 1e-6,
            Self::NoLess => measured > paper - 1e-6,
            Self::Apart => true,
        }
    }
}

/// A paper's formula for one operation of an engine.
#[derive(Clone, Copy)]
pub struct Claim {
    /// The formula.
    pub formula: fn(&Met) -> Paper,
    /// Required relation of words or bytes.
    pub written: Standing,
    /// Required relation of flushes.
    pub flushes: Standing,
    /// Required relation of fences.
    pub fences: Standing,
    /// The formula's part for allocation. It is subtracted before any comparison.
    pub allocation: Allocation,
    /// Maximum bytes whose value changes, if the paper counts those.
    pub changed: Option<fn(&Met) -> f64>,
    /// Difference between the paper's rules of counting and ours; empty if there is none.
    pub note: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standing_allows_what_it_says_and_nothing_beside() {
        use Standing::{Apart, Equal, NoLess, RoundedUp};
        for (standing, measured, paper, allowed) in [
            (Equal, 3, 3.0, true),
            (Equal, 3, 2.875, false),
            (Equal, 2, 3.0, false),
            (RoundedUp, 7, 6.875, true),
            (RoundedUp, 7, 7.0, true),
            (RoundedUp, 8, 7.0, false),
            (RoundedUp, 6, 6.875, false),
            (NoLess, 4, 3.359_375, true),
            (NoLess, 3, 3.0, true),
            (NoLess, 3, 3.015_625, false),
            (Apart, 99, 1.0, true),
        ] {
            assert_eq!(standing.allows(measured, paper), allowed, "{standing:?} {measured} {paper}");
        }
    }
}
