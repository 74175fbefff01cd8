//! Sizes and counts of an open store.

use crate::latency::LatencyStats;
pub use index::engine::Paging as PagingStats;

/// Sizes and counts of an open store.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Stats {
    /// Name of the engine.
    pub engine: String,
    /// "bytes", "u64", or "u64, N bytes" if all values have N bytes. "bytes, tables" if the store has tables.
    pub kind: String,
    /// Kind of memory, as text for users ("ordinary file with a journal", "memory file system", "anonymous memory" …).
    pub medium: String,
    /// "process", "power" or "eadr"; "none" if the engine keeps nothing after the process.
    pub durability: String,
    /// The reason for that durability, as text for users.
    pub durability_reason: String,
    /// Number of keys.
    pub keys: u64,
    /// True while the count of the keys after a crash is running.
    pub keys_pending: bool,
    /// Bytes of the store's file without its journal, or of all files of `bwtree` in files. `None` if the store has no file in a directory, or
    /// the file cannot be inspected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Bytes of the region, which contains the index. In a store with a journal, the file is larger: it has one more page, which pairs it
    /// with the journal, and space that was allocated in advance. [`Space`] shows how the bytes are used.
    pub region_bytes: u64,
    /// Bytes of an index node; of a page, if the store is in files.
    pub node_bytes: u64,
    /// Microseconds that the open took, with recovery.
    pub recovery_us: u64,
    /// State in which the open found the store: "new", "clean" or "recovered".
    pub opened: String,
    /// True if the store was opened for reading only.
    pub read_only: bool,
    /// True if another process had the store open for writing. Then this is a copy in memory of the state of one moment, and `opened` does
    /// not show whether there was a crash.
    pub beside_writer: bool,
    /// The journal, if the store has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalStats>,
    /// Blocks that a latch-free index has removed and not freed yet. `None` for other indexes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limbo: Option<LimboStats>,
    /// The pages of an engine whose data may be larger than memory. `None` for other engines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paging: Option<PagingStats>,
    /// Latencies of operations since the open.
    pub latency: LatencyStats,
}

/// Blocks that were removed from an index while a reader could hold them. They are freed when no reader can hold them.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct LimboStats {
    /// Bytes of these blocks.
    pub bytes: u64,
}

/// Use of a region's bytes. The sum of `live_bytes`, `free_bytes` and `overhead_bytes` is the size of the region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Space {
    /// Bytes in blocks that hold nodes, records and separators. Blocks come in size classes, so a block may be larger than its contents.
    /// [`CheckReport::live_bytes`](crate::CheckReport::live_bytes) is the same number.
    pub live_bytes: u64,
    /// Bytes that the store uses again before its file grows: free blocks and empty chunks. A free block serves requests of its size class
    /// until its chunk of 256 KiB is empty.
    pub free_bytes: u64,
    /// Bytes of the format: superblock, log, heads and remainders of chunks. Chunks with damaged heads count too; none of their space is
    /// used.
    pub overhead_bytes: u64,
}

/// Sizes and counts of a store's journal. If the store is only read, `activity` is `None`.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct JournalStats {
    /// Capacity for groups in bytes. Opening after a crash reads at most this much, and one group that is larger than half of it.
    pub bytes: u64,
    /// Bytes of the journal's file.
    pub file_bytes: u64,
    /// Counters of the process that has the store open for writing.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub activity: Option<JournalActivity>,
}

/// Contents and work of a journal.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct JournalActivity {
    /// Groups that were made durable since the store was made.
    pub groups: u64,
    /// Groups that were made durable since the open.
    pub groups_since_open: u64,
    /// Successful syncs of both files since the open, with those of the open or creation.
    pub syncs_since_open: u64,
    /// Halves of the journal that were checkpointed since the open.
    pub checkpoints_since_open: u64,
    /// Bytes of groups that are not checkpointed. Opening after a crash replays them.
    pub waiting_bytes: u64,
    /// Groups that the open replayed.
    pub replayed_groups: u64,
    /// Bytes of the journal that these groups took.
    pub replayed_bytes: u64,
}
