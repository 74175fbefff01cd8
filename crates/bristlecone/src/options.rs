//! Options for opening a store.

use ::index::tables::Clock;
use pmem::Durability;

/// Options for opening a store. `Options::default()` has the best known settings for the file system of the directory.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the engine. `None` for the engine of the existing store; a new store gets [`DEFAULT`](crate::registry::DEFAULT), or
    /// [`DEFAULT_FIXED`](crate::registry::DEFAULT_FIXED) for [`StoreFixed`](crate::StoreFixed).
    pub engine: Option<String>,
    /// Durability of acknowledged writes. `None` chooses by file system.
    pub durability: Option<Durability>,
    /// Cache lines of a node of a new store, 2 to 64. Each engine has its own bounds. `None` for the engine's default.
    pub node_lines: Option<u64>,
    /// Bytes of every value of a [`StoreFixed`](crate::StoreFixed): a multiple of 8, at most 120. Required for a new store of this kind;
    /// not allowed for other kinds.
    pub value_bytes: Option<u64>,
    /// Bytes of the journal of a new store, 4 MiB to 1 GiB. `None` for 64 MiB. Opening after a crash reads at most this much, and the
    /// latest large group. A batch that does not fit into half of the journal extends the file until the batch is checkpointed. On an
    /// ordinary file system a store has a journal unless it is made for process durability. Elsewhere a store has a journal if this option
    /// is set.
    pub journal_bytes: Option<u64>,
    /// Maximum size of the region in bytes. For an engine without a region (`bwtree`): maximum bytes of pages and of blocks that wait to be
    /// freed. Memory that the engine keeps for reuse, and memory of running writes, come on top.
    pub max_bytes: u64,
    /// Maximum bytes of memory for writes that are not checkpointed yet, for a store with a journal; at least 16 MiB. `None` for a quarter
    /// of the memory of the machine or of the control group. A smaller bound causes more checkpoints. One write or batch may exceed the
    /// bound. The memory that a checkpoint reads into comes on top: at most half of the journal, and 32 bytes per changed line.
    pub memory_bytes: Option<u64>,
    /// Maximum bytes of volatile memory for before-images: values that were overwritten since a snapshot was opened, or by batches since a
    /// scan began. At this bound the oldest snapshot or scan fails. Engines with [versions](crate::Capabilities::versions) need no
    /// before-images.
    pub snapshot_bytes: u64,
    /// True for a new store with several tables, transactions that scan, and deadlines of keys ([`crate::tables`]). Only for byte strings
    /// and ordered engines; others ignore it. A key and a value take one byte more each. An existing store keeps what it has.
    pub tables: bool,
    /// The clock of the deadlines.
    pub clock: Clock,
    /// Makes the store if it does not exist.
    pub create: bool,
    /// Opens the store for reading only. Nothing in the directory changes, writes are refused, and reads see the state of one moment.
    /// Several processes may read a store in this way. Meanwhile it cannot be opened for writing. If another process has it open for
    /// writing, a store with a journal can still be read: opening copies it into memory.
    pub read_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            engine: None,
            durability: None,
            node_lines: None,
            value_bytes: None,
            journal_bytes: None,
            max_bytes: 1 << 40,
            memory_bytes: None,
            snapshot_bytes: ::index::images::SNAPSHOT_BYTES,
            tables: true,
            clock: Clock::default(),
            create: true,
            read_only: false,
        }
    }
}
