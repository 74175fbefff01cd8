//! What an operation costs by the papers' formulas, and by our own protocols.
//!
//! * [`wbtree2015`]: Table 3 of the wB+-Tree paper, in words.
//! * [`vlab2018`]: Table 2 of the VLAB paper, in bytes.
//! * [`ours`]: what our engines do, exactly.
//!
//! A paper's formula is an average over the ranks at which keys come, and a sum over entries of equal size. [`Met`] carries
//! what it is evaluated at; how close a measured operation has to come to it is its [`Standing`].

pub mod ours;
pub mod vlab2018;
pub mod wbtree2015;

/// What a formula is evaluated at.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Met {
    /// Most entries of a node (the papers' n, n' or N).
    pub n: f64,
    /// Entries of the node that takes the new entry, or the last separator, or that loses one (m or M).
    pub m: f64,
    /// Levels of nodes that were split (l or L).
    pub l: f64,
    /// Entries that this operation moves in its leaf; without it the papers' average, in a sorted node half of them.
    pub moved: Option<f64>,
    /// Pointers that are switched to a copied leaf; without it the paper's two.
    pub pointers: Option<f64>,
    /// Bytes of an entry.
    pub entry_bytes: f64,
}

impl Met {
    /// Entries that an insert into a sorted node moves: half of m on average [wB+ §3.1].
    pub fn moved_by_insert(&self) -> f64 {
        self.moved.unwrap_or(self.m / 2.0)
    }

    /// Entries that a delete from a sorted node moves: half of those that stay on average [wB+ §3.1].
    pub fn moved_by_delete(&self) -> f64 {
        self.moved.unwrap_or((self.m - 1.0) / 2.0)
    }
}

/// What a paper counts for an allocation within an operation, where allocation has a column of its own here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// Words.
    pub words: u32,
    /// Flushes.
    pub flushes: u32,
}

impl Allocation {
    /// Nothing.
    pub const NONE: Self = Self { words: 0, flushes: 0 };
}

/// A paper's N_w, N_clf and N_mf.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Paper {
    /// Words, or bytes where the paper counts those.
    pub written: f64,
    /// Lines flushed.
    pub flushes: f64,
    /// Fences.
    pub fences: f64,
}

/// How a measured operation has to stand to a paper's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// The same, at the number of entries moved by this very operation.
    Equal,
    /// The next whole number: the paper counts a slot array in eighths of a word, we write whole ones.
    RoundedUp,
    /// No less: the paper calls its flushes lower bounds.
    NoLess,
    /// Shown beside it only, with the reason.
    Apart,
}

impl Standing {
    /// True if `measured` stands so to the paper's value. (The formulas' fractions are multiples of 1/128 or of 1/1000.)
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

/// A paper's formula for one operation of one engine.
#[derive(Clone, Copy)]
pub struct Claim {
    /// The formula.
    pub formula: fn(&Met) -> Paper,
    /// How words or bytes stand to it.
    pub written: Standing,
    /// How flushes do.
    pub flushes: Standing,
    /// How fences do.
    pub fences: Standing,
    /// What the formula has for allocation; left out before anything is held against it.
    pub allocation: Allocation,
    /// The most bytes whose value changes, where the paper counts those.
    pub changed: Option<fn(&Met) -> f64>,
    /// Where the paper draws its line otherwise, in words; empty if nowhere.
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
