//! Counters of events, and the sizes of a tree.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a thread slot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    /// Inserted records minus deleted records.
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
    /// Bytes of the nodes that went into the mapping table, and of the records that went there with them.
    MadeBytes,
    RetiredObjects,
    RetiredBytes,
    FreedObjects,
    FreedBytes,
    RetiredPids,
    FreedPids,
    /// Leaves that were read from their images.
    PagedIn,
    /// Not a counter: the largest number that this thread slot drew for a state of a page.
    Drawn,
}

const COUNTS: usize = Count::Drawn as usize + 1;

/// The counters of one thread slot. Only the thread that holds the slot writes them, so they need no exchange. Sums may be read at any
/// time. They are exact when no thread writes.
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

/// Memory of a tree, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Pages, with their deltas and records.
    pub page_bytes: u64,
    /// Retired memory that is not freed yet.
    pub limbo_bytes: u64,
    /// The mapping table.
    pub table_bytes: u64,
    /// The rest of the allocation pools: free blocks, and unused parts of chunks.
    pub spare_bytes: u64,
}

impl Memory {
    /// The sum of all fields.
    pub fn total(&self) -> u64 {
        self.page_bytes + self.limbo_bytes + self.table_bytes + self.spare_bytes
    }
}

/// Counts of events in a tree, and its sizes. Exact when no other thread uses the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of records.
    pub records: u64,
    /// Number of levels, including the leaves' level.
    pub levels: u32,
    /// Number of leaves.
    pub leaves: u64,
    /// Number of inner pages.
    pub inner_pages: u64,
    /// Number of deltas in front of leaves, and of changes of leaves.
    pub leaf_deltas: u64,
    /// Number of deltas in front of inner pages.
    pub inner_deltas: u64,
    /// Length of the longest chain of a leaf, in deltas and changes.
    pub chain_max: u32,
    /// Bytes of memory of all pages, with their deltas and records.
    pub page_bytes: u64,
    /// Bytes of memory of the mapping table.
    pub table_bytes: u64,
    /// Page ids of the pages in the tree.
    pub pids: u64,
    /// Updates (puts, deletes) that changed a page.
    pub updates: u64,
    /// Attempts to update a page that failed and were repeated because the page had changed. The LSN of such an attempt is unused.
    pub update_failures: u64,
    /// Consolidated pages.
    pub consolidations: u64,
    /// Consolidations that were abandoned because the page had changed.
    pub consolidation_failures: u64,
    /// Splits, including those of the root.
    pub splits: u64,
    /// Splits that were abandoned because the page had changed.
    pub split_failures: u64,
    /// Pages that were merged into their left sibling.
    pub merges: u64,
    /// Merges that were abandoned before their first step because the parent had changed.
    pub merge_failures: u64,
    /// Splits of the root. Each adds a level.
    pub root_splits: u64,
    /// Shrinks of the root. Each removes a level.
    pub root_shrinks: u64,
    /// Posted index terms.
    pub index_posts: u64,
    /// Other steps of structure changes that were repeated because their exchange failed.
    pub structure_failures: u64,
    /// Incomplete structure changes that a descent met.
    pub helped: u64,
    /// Objects taken out of the tree: nodes, records outside of pages, page ids.
    pub retired_objects: u64,
    /// Bytes of these objects.
    pub retired_bytes: u64,
    /// Retired objects that have been freed.
    pub freed_objects: u64,
    /// Bytes of these objects.
    pub freed_bytes: u64,
    /// Page ids taken out of the tree.
    pub retired_pids: u64,
    /// Page ids that have been freed for reuse.
    pub freed_pids: u64,
    /// Leaves that were read from their images.
    pub paged_in: u64,
}

impl Stats {
    /// Retired objects that are not freed yet.
    pub fn limbo_objects(&self) -> u64 {
        self.retired_objects.saturating_sub(self.freed_objects)
    }

    /// Retired bytes that are not freed yet.
    pub fn limbo_bytes(&self) -> u64 {
        self.retired_bytes.saturating_sub(self.freed_bytes)
    }
}
