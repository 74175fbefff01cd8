//! Sizes and thresholds of a tree.

use crate::error::{Error, Result};
use crate::node::SEEN_MAX;

/// Changes beside a leaf at most.
pub const LEAF_CHAIN_MAX: u32 = SEEN_MAX;

/// Sizes and thresholds of a tree. Of the defaults `leaf_chain` and `leaf_split_bytes` were measured against others, roughly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// A leaf has space for so many changes beside it; whoever has one more makes a new leaf. [`LEAF_CHAIN_MAX`] at most.
    pub leaf_chain: u32,
    /// A leaf that a merge left, with a chain of so many deltas and changes, is consolidated by who reads it. 0: by nobody who only reads.
    pub leaf_chain_read: u32,
    /// An inner page with a chain of so many deltas is consolidated.
    pub inner_chain: u32,
    /// A leaf with more bytes than that is split, if it has two records. A record is 16: two words, or the slot of a byte string's, which
    /// lies by itself.
    pub leaf_split_bytes: usize,
    /// A leaf with fewer bytes than that is merged with a neighbour.
    pub leaf_merge_bytes: usize,
    /// An inner page with more bytes than that is split, if it has four entries.
    pub inner_split_bytes: usize,
    /// An inner page with fewer bytes than that is merged with a neighbour.
    pub inner_merge_bytes: usize,
    /// Entries of the mapping table's first segment: a power of two. Each further segment has twice as many as the one before.
    pub segment_entries: usize,
    /// It is tried to free something whenever so many more things wait for it in a bag.
    pub limbo: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            leaf_chain: 8,
            leaf_chain_read: 2,
            inner_chain: 2,
            leaf_split_bytes: 4096,
            leaf_merge_bytes: 1024,
            inner_split_bytes: 4096,
            inner_merge_bytes: 1024,
            segment_entries: 1024,
            limbo: 64,
        }
    }
}

impl Options {
    /// Pages that are split when they have more than so many bytes, and merged when they have a quarter.
    pub fn of_pages(bytes: usize) -> Self {
        Self {
            leaf_split_bytes: bytes,
            leaf_merge_bytes: bytes / 4,
            inner_split_bytes: bytes,
            inner_merge_bytes: bytes / 4,
            ..Self::default()
        }
    }

    /// The smallest of everything: pages of a few small records, chains of two deltas, nothing waits longer than it must.
    pub fn tiny() -> Self {
        Self {
            leaf_chain: 2,
            leaf_chain_read: 2,
            inner_chain: 2,
            leaf_split_bytes: 64,
            leaf_merge_bytes: 32,
            inner_split_bytes: 64,
            inner_merge_bytes: 48,
            segment_entries: 4,
            limbo: 1,
        }
    }

    /// Refuses options that have no sense.
    ///
    /// # Errors
    /// The first that has none.
    pub fn check(&self) -> Result<()> {
        let positive = [
            ("leaf_chain", self.leaf_chain as usize),
            ("inner_chain", self.inner_chain as usize),
            ("leaf_split_bytes", self.leaf_split_bytes),
            ("inner_split_bytes", self.inner_split_bytes),
            ("limbo", self.limbo),
        ];
        if let Some((name, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return Err(Error::Option { name, why: "is 0" });
        }
        if self.leaf_chain > LEAF_CHAIN_MAX {
            return Err(Error::Option { name: "leaf_chain", why: "is more than 63" });
        }
        if !self.segment_entries.is_power_of_two() || self.segment_entries > 1 << 20 {
            return Err(Error::Option { name: "segment_entries", why: "is no power of two up to 2^20" });
        }
        for (name, merge, split) in [
            ("leaf_merge_bytes", self.leaf_merge_bytes, self.leaf_split_bytes),
            ("inner_merge_bytes", self.inner_merge_bytes, self.inner_split_bytes),
        ] {
            // Offsets in a page are 32-bit numbers.
            if split > 1 << 24 {
                return Err(Error::Option { name, why: "is of pages of more than 16 MiB" });
            }
            // Otherwise a page's halves would be merged at once.
            if merge > split {
                return Err(Error::Option { name, why: "is more than what is split" });
            }
        }
        Ok(())
    }
}
