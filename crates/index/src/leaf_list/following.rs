//! The leaves that follow in a scan. A search finds them beside the first leaf, so a scan does not search for each of its leaves.
//!
//! Invariant: as long as the number of structure changes is the one from before the search, these are the leaves that follow. The
//! validation of a page compares this number, too ([`Core::changes`](super::Core::changes)).

/// Maximum number of leaves.
const LEAVES: usize = 32;
/// Number of leaves that are loaded ahead.
const AHEAD: usize = 3;

/// The leaves that follow.
#[derive(Debug)]
pub struct Following {
    leaves: [u64; LEAVES],
    len: usize,
    /// Number of leaves that were taken.
    taken: usize,
    descending: bool,
    /// The number of structure changes from before the search.
    changes: u64,
}

impl Following {
    /// No leaves, in an ascending scan.
    pub(crate) fn none() -> Self {
        Self { leaves: [0; LEAVES], len: 0, taken: 0, descending: false, changes: 0 }
    }

    /// Forgets all leaves. `changes` is the number of structure changes from before the next search.
    #[inline(always)]
    pub(crate) fn begin(&mut self, descending: bool, changes: u64) {
        (self.len, self.taken, self.descending, self.changes) = (0, 0, descending, changes);
    }

    /// True if the leaves with smaller keys follow.
    #[inline(always)]
    pub fn is_descending(&self) -> bool {
        self.descending
    }

    /// Sets the leaves, in the order of the scan.
    #[inline(always)]
    pub fn set(&mut self, leaves: impl Iterator<Item = u64>) {
        self.len = 0;
        for (to, leaf) in self.leaves.iter_mut().zip(leaves) {
            *to = leaf;
            self.len += 1;
        }
    }

    /// Takes the next leaf. `None` if it is not known, or if there were structure changes.
    #[inline(always)]
    pub(crate) fn take(&mut self, changes: u64) -> Option<u64> {
        let known = &self.leaves[..self.len.min(LEAVES)];
        let leaf = known.get(self.taken).copied().filter(|_| changes == self.changes)?;
        self.taken += 1;
        Some(leaf)
    }

    /// The leaves that begin to be loaded now. `is_first`: none was taken.
    #[inline(always)]
    pub(crate) fn to_load(&self, is_first: bool) -> &[u64] {
        let known = &self.leaves[..self.len.min(LEAVES)];
        let end = (self.taken + AHEAD).min(known.len());
        let first = if is_first { 0 } else { self.taken + AHEAD - 1 };
        known.get(first..end).unwrap_or_default()
    }
}
