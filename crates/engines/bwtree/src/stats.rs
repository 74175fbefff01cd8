//! Counts: what happened, and what there is.

use std::sync::atomic::{AtomicU64, Ordering};

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    /// Records that came minus records that went.
    Records,
    Updates,
    UpdateFailures,
    Consolidations,
    ConsolidationFailures,
    Splits,
    SplitFailures,
    Merges,
    MergeFailures,
    RootSplits,
    RootShrinks,
    IndexPosts,
    StructureFailures,
    Helped,
    /// Bytes of nodes that went into the mapping table, and of records that went there with them.
    MadeBytes,
    RetiredObjects,
    RetiredBytes,
    FreedObjects,
    FreedBytes,
    RetiredPids,
    FreedPids,
    /// No count: the largest number that was drawn for a node at this thread slot.
    Drawn,
}

const COUNTS: usize = Count::Drawn as usize + 1;

/// The counts of one thread slot. Only who has the thread slot writes them, so they need no exchange; sums may be read at any time, and are exact
/// when nobody writes.
#[derive(Debug, Default)]
pub(crate) struct Tally([AtomicU64; COUNTS]);

impl Tally {
    #[inline(always)]
    pub(crate) fn add(&self, count: Count, by: u64) {
        let own = &self.0[count as usize];
        own.store(own.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn set(&self, count: Count, to: u64) {
        self.0[count as usize].store(to, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn get(&self, count: Count) -> u64 {
        self.0[count as usize].load(Ordering::Relaxed)
    }
}

/// Bytes of memory that a tree takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Pages, with their deltas and records.
    pub page_bytes: u64,
    /// What was taken out and waits until nobody can have it.
    pub limbo_bytes: u64,
    /// The mapping table.
    pub table_bytes: u64,
    /// What pools have beyond that: blocks to be used again, and what was not used yet.
    pub spare_bytes: u64,
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.page_bytes + self.limbo_bytes + self.table_bytes + self.spare_bytes
    }
}

/// What happened to a tree, and what it is. Exact when nobody else uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records.
    pub records: u64,
    /// Levels, that of the leaves too.
    pub levels: u32,
    /// Leaves.
    pub leaves: u64,
    /// Inner pages.
    pub inner_pages: u64,
    /// Deltas in front of leaves.
    pub leaf_deltas: u64,
    /// Deltas in front of inner pages.
    pub inner_deltas: u64,
    /// The longest chain in front of a leaf.
    pub chain_max: u32,
    /// Bytes of memory of all pages, with their deltas and records.
    pub page_bytes: u64,
    /// Bytes of memory of the mapping table.
    pub table_bytes: u64,
    /// PIDs in use.
    pub pids: u64,
    /// Updates (puts, deletes) that changed a page.
    pub updates: u64,
    /// Updates whose exchange failed and that were tried again; the LSN of the try is void.
    pub update_failures: u64,
    /// Pages consolidated.
    pub consolidations: u64,
    /// Consolidations abandoned because the page had changed.
    pub consolidation_failures: u64,
    /// Pages split, the root too.
    pub splits: u64,
    /// Splits abandoned because the page had changed.
    pub split_failures: u64,
    /// Pages merged into the one to their left.
    pub merges: u64,
    /// Merges abandoned before they were begun because a page had changed.
    pub merge_failures: u64,
    /// Times that the tree became one level higher.
    pub root_splits: u64,
    /// Times that it became one level lower.
    pub root_shrinks: u64,
    /// Index terms posted.
    pub index_posts: u64,
    /// Other steps of structure changes whose exchange failed and that were tried again.
    pub structure_failures: u64,
    /// Unfinished structure changes that somebody met who had not begun them, or thought so.
    pub helped: u64,
    /// Objects (nodes, records that lie by themselves, PIDs) taken out of the tree, and their bytes.
    pub retired_objects: u64,
    /// See `retired_objects`.
    pub retired_bytes: u64,
    /// Of these, what has been freed.
    pub freed_objects: u64,
    /// See `freed_objects`.
    pub freed_bytes: u64,
    /// PIDs taken out of the tree, and how many of them could be used again since.
    pub retired_pids: u64,
    /// See `retired_pids`.
    pub freed_pids: u64,
}

impl Stats {
    /// Objects that wait until nobody can have them.
    pub fn limbo_objects(&self) -> u64 {
        self.retired_objects.saturating_sub(self.freed_objects)
    }

    /// Bytes that wait until nobody can have them.
    pub fn limbo_bytes(&self) -> u64 {
        self.retired_bytes.saturating_sub(self.freed_bytes)
    }
}
