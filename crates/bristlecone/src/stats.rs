//! Sizes and counts of an open store.

use crate::latency::LatencyStats;

/// Sizes and counts of an open store.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Stats {
    /// Engine's name.
    pub engine: String,
    /// "bytes", "u64", or "u64, N bytes" where all values have N bytes.
    pub kind: String,
    /// What the memory is ("file", "tmpfs", "anonymous memory" …).
    pub medium: String,
    /// "process", "power" or "eadr".
    pub durability: String,
    /// Why that durability, in words for a person.
    pub durability_reason: String,
    /// Keys.
    pub keys: u64,
    /// True while keys are still being counted.
    pub keys_pending: bool,
    /// Bytes of the store's file, without its journal's; `None` if it has none in a directory, or that cannot be inspected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Bytes of the region, which is what the index is in. Over a journal the file has a page more, by which the journal is
    /// paired, and what it was given ahead of need. See [`Space`] for what they are used for.
    pub region_bytes: u64,
    /// Bytes of an index node.
    pub node_bytes: u64,
    /// Microseconds that open spent in recovery.
    pub recovery_us: u64,
    /// "new", "clean" or "recovered": how the store was found.
    pub opened: String,
    /// It was opened to be read only.
    pub read_only: bool,
    /// The journal, if the store has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalStats>,
    /// What was taken out of an index without locks and is not freed yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limbo: Option<LimboStats>,
    /// How long operations took since the store was opened.
    pub latency: LatencyStats,
}

/// Blocks that were removed from an index while a reader could hold them. They are freed when no reader can.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct LimboStats {
    /// Bytes of it.
    pub bytes: u64,
}

/// What a region's bytes are used for: `live_bytes`, `free_bytes` and `overhead_bytes` are all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Space {
    /// Bytes in blocks that hold nodes, records and separators: what was asked for, and what a block has more because blocks
    /// come in sizes. The same that [`CheckReport::live_bytes`](crate::CheckReport::live_bytes) is.
    pub live_bytes: u64,
    /// Bytes that the store will use again before its file grows: blocks that hold nothing (for others of their size, until
    /// their chunk of 256 KiB is empty) and chunks that are empty.
    pub free_bytes: u64,
    /// What the format takes: superblock, log, heads and remainders of chunks; and chunks with damaged heads, of which nothing is
    /// used.
    pub overhead_bytes: u64,
}

/// Sizes and counts of a store's journal. Of one that is only read, what its file says; the rest is `None`.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct JournalStats {
    /// Capacity in bytes of groups: opening after a crash reads at most this much.
    pub bytes: u64,
    /// Bytes of its file.
    pub file_bytes: u64,
    /// Counters of the process that has the store open for writing.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub activity: Option<JournalActivity>,
}

/// What a journal holds and did.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct JournalActivity {
    /// Groups of writes that were made durable since the store was made.
    pub groups: u64,
    /// Of these, since it was opened.
    pub groups_since_open: u64,
    /// Syncs of both files that succeeded since it was opened, those of opening (or making) it among them.
    pub syncs_since_open: u64,
    /// Halves of the journal that were brought home since it was opened.
    pub checkpoints_since_open: u64,
    /// Bytes of groups that are not home: what opening would have to replay after a crash.
    pub waiting_bytes: u64,
    /// Groups that opening brought home.
    pub replayed_groups: u64,
    /// Bytes of the journal that they took.
    pub replayed_bytes: u64,
}
