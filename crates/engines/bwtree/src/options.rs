//! Sizes and thresholds of a tree.

use crate::error::{Error, Result};
use crate::node::SEEN_MAX;

/// Maximum of [`Options::leaf_chain`].
pub const LEAF_CHAIN_MAX: u32 = SEEN_MAX;

/// Sizes and thresholds of a tree. The defaults of `leaf_chain` and `leaf_split_bytes` come from rough measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Number of places for changes in a leaf's block. A writer that finds no free place makes a new base page. 1 to [`LEAF_CHAIN_MAX`].
    pub leaf_chain: u32,
    /// A reader consolidates a leaf that has a merge delta and a chain of at least this many deltas and changes. 0: readers consolidate no
    /// leaf.
    pub leaf_chain_read: u32,
    /// An inner page with a chain of at least this many deltas is consolidated. At least 1.
    pub inner_chain: u32,
    /// A leaf with more bytes than this and at least two records is split. A record counts 16 bytes: two words, or a slot. A byte-string
    /// record is stored outside of the leaf. 1 byte to 16 MiB.
    pub leaf_split_bytes: usize,
    /// A leaf with fewer bytes than this is merged with a neighbour. At most `leaf_split_bytes`.
    pub leaf_merge_bytes: usize,
    /// An inner page with more bytes than this and at least four terms is split. 1 byte to 16 MiB.
    pub inner_split_bytes: usize,
    /// An inner page with fewer bytes than this is merged with a neighbour. At most `inner_split_bytes`.
    pub inner_merge_bytes: usize,
    /// Number of entries of the mapping table's first segment: a power of two, at most 2^20. Each further segment has twice as many as the
    /// one before.
    pub segment_entries: usize,
    /// If true, a record outside of pages counts its bytes of memory too, not only 16. For trees whose leaves are saved as images, which
    /// contain the records.
    pub weighs_records: bool,
    /// A thread slot tries to free its retired objects after this many new ones. At least 1.
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
            weighs_records: false,
            limbo: 64,
        }
    }
}

impl Options {
    /// Options with pages that are split above `bytes` bytes and merged below a quarter of that.
    pub fn of_pages(bytes: usize) -> Self {
        Self {
            leaf_split_bytes: bytes,
            leaf_merge_bytes: bytes / 4,
            inner_split_bytes: bytes,
            inner_merge_bytes: bytes / 4,
            ..Self::default()
        }
    }

    /// The smallest sizes, for tests: pages of a few small records, chains of two deltas, and the earliest possible frees.
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
            weighs_records: false,
            limbo: 1,
        }
    }

    /// Checks the limits and the consistency of the options.
    ///
    /// # Errors
    /// [`Error::Option`] for the first invalid option.
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
        for ((name, merge), (split_name, split)) in [
            (("leaf_merge_bytes", self.leaf_merge_bytes), ("leaf_split_bytes", self.leaf_split_bytes)),
            (("inner_merge_bytes", self.inner_merge_bytes), ("inner_split_bytes", self.inner_split_bytes)),
        ] {
            // Offsets in a page are 32-bit numbers.
            if split > 1 << 24 {
                return Err(Error::Option { name: split_name, why: "is more than 16 MiB" });
            }
            // Otherwise the halves of a split page would be merged at once.
            if merge > split {
                return Err(Error::Option { name, why: "is larger than the size at which a page splits" });
            }
        }
        Ok(())
    }
}
