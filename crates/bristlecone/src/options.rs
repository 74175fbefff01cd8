//! How to open a store.

use pmem::Durability;

/// How to open a store. `Options::default()` is the best known setting for what the directory lies on.
#[derive(Clone, Debug)]
pub struct Options {
    /// Engine's name, `None` for the one the store was made with (a new store: [`DEFAULT`](crate::registry::DEFAULT),
    /// [`DEFAULT_FIXED`](crate::registry::DEFAULT_FIXED) for [`StoreFixed`](crate::StoreFixed)).
    pub engine: Option<String>,
    /// Promise for acknowledged writes; `None` chooses by file system.
    pub durability: Option<Durability>,
    /// Cache lines of a new store's index nodes (2 to 64, as the engine has them); `None` for the best measured.
    pub node_lines: Option<u64>,
    /// Bytes of every value of a [`StoreFixed`](crate::StoreFixed): a multiple of 8 up to 120. To be given when it is made; not of other kinds.
    pub value_bytes: Option<u64>,
    /// Bytes of a new store's journal, 4 MiB to 1 GiB; `None` for 64 MiB. Opening after a crash reads this much, and the newest
    /// large group: a batch that does not fit into half of it makes the file longer until it is in the data file. On an ordinary file
    /// system a store has a journal unless it is made for process durability; elsewhere, if this is given.
    pub journal_bytes: Option<u64>,
    /// Most bytes that the region may grow to. Of an engine without a region (`bwtree`): that its pages and what waits to be freed may take;
    /// memory that it keeps to use again, and what threads that write at that moment take, come on top.
    pub max_bytes: u64,
    /// Most bytes of memory for writes of a store with a journal that are not in the data file yet, at least 16 MiB; `None` for a
    /// quarter of the machine's, or of what the control group allows. A smaller bound means more checkpoints. One write or batch that
    /// needs more gets it. What a checkpoint reads comes on top: at most half of the journal and 32 bytes for each line that changed.
    pub memory_bytes: Option<u64>,
    /// Most bytes of volatile memory for values that were overwritten since a snapshot was opened, or by batches since a scan began.
    /// At this bound the oldest snapshot or scan fails. Engines with [versions](crate::Capabilities::versions) need none.
    pub snapshot_bytes: u64,
    /// Make the store if there is none.
    pub create: bool,
    /// Only read: nothing in the directory changes, writes are refused, and the state is that of one moment. Several processes may
    /// read a store so. While they do, it cannot be opened for writing. If another process has it open for writing already, a store
    /// with a journal can still be read: from a copy that is taken into memory when it is opened.
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
            create: true,
            read_only: false,
        }
    }
}
