//! Options for opening a store.

use ::index::tables::Clock;
use pmem::Durability;

use crate::error::{Error, Result};

/// Compression of pages in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// None.
    None,
    /// LZ4.
    Lz4,
}

/// Options for opening a store. `Options::default()` has the best known settings for the file system of the directory. Each method sets one
/// option and returns the options:
///
/// ```
/// # use bristlecone::{Durability, Options};
/// let options = Options::default().durability(Durability::Process).max_bytes(1 << 30);
/// ```
///
/// A method whose option has no value by default also takes an `Option`: `None` is the default.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use]
pub struct Options {
    pub(crate) engine: Option<String>,
    pub(crate) durability: Option<Durability>,
    pub(crate) node_lines: Option<u64>,
    pub(crate) value_bytes: Option<u64>,
    pub(crate) journal_bytes: Option<u64>,
    pub(crate) max_bytes: u64,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) compression: Option<Compression>,
    pub(crate) direct_io: bool,
    pub(crate) snapshot_bytes: u64,
    pub(crate) tables: bool,
    pub(crate) clock: Clock,
    pub(crate) create: bool,
    pub(crate) read_only: bool,
    /// True for a store whose engine has files of its own.
    pub(crate) in_files: bool,
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
            compression: None,
            direct_io: false,
            snapshot_bytes: ::index::images::SNAPSHOT_BYTES,
            tables: true,
            clock: Clock::default(),
            create: true,
            read_only: false,
            in_files: false,
        }
    }
}

impl Options {
    /// Name of the engine. Default: the engine of the existing store; a new store gets [`DEFAULT`](crate::registry::DEFAULT), or
    /// [`DEFAULT_FIXED`](crate::registry::DEFAULT_FIXED) for [`StoreFixed`](crate::StoreFixed).
    pub fn engine<'a>(mut self, name: impl Into<Option<&'a str>>) -> Self {
        self.engine = name.into().map(str::to_owned);
        self
    }

    /// Durability of acknowledged writes. Default: by file system.
    pub fn durability(mut self, durability: impl Into<Option<Durability>>) -> Self {
        self.durability = durability.into();
        self
    }

    /// Cache lines of a node of a new store, 2 to 64. Each engine has its own bounds. Default: by engine.
    pub fn node_lines(mut self, lines: impl Into<Option<u64>>) -> Self {
        self.node_lines = lines.into();
        self
    }

    /// Bytes of every value of a [`StoreFixed`](crate::StoreFixed): a multiple of 8, at most 120. Required for a new store of this kind;
    /// not allowed for other kinds.
    pub fn value_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.value_bytes = bytes.into();
        self
    }

    /// Bytes of the journal of a new store, 4 MiB to 1 GiB. Default: 64 MiB. Opening after a crash reads at most this much, and one group
    /// that is larger than half of the journal. A batch that does not fit into half of the journal extends the journal's file until the
    /// batch is checkpointed. On an ordinary file system, a store has a journal unless it is made for process durability. Elsewhere, a
    /// store has a journal if this option is set.
    pub fn journal_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.journal_bytes = bytes.into();
        self
    }

    /// Maximum size of the region in bytes. For an engine without a region (`bwtree`): maximum bytes of pages and of blocks that wait to be
    /// freed. Memory that the engine keeps for reuse, and memory of running writes, come on top. Default: 1 TiB.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// For an engine in files of its own (`bwtree` with a durability): maximum bytes of memory for pages; leaves that were not used lately
    /// are evicted. Otherwise: maximum bytes of memory for writes that are not checkpointed yet, for a store with a journal; at least 16
    /// MiB. Default: a quarter of the memory of the machine or of the control group. A smaller bound causes more checkpoints. One write or
    /// batch may exceed the bound. The memory that a checkpoint reads into comes on top: at most half of the journal, and 32 bytes per
    /// changed line.
    pub fn memory_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.memory_bytes = bytes.into();
        self
    }

    /// Compression of the pages that are written from now on; pages of both forms are read in any case. A page is compressed if that saves a
    /// quarter. Then a lookup of a key whose page is not in memory reads all of the page. Only for an engine in files of its own (`bwtree`
    /// with a durability). The next checkpoint stores the choice, for later opens and for [`compact`](crate::compact()). Default: the stored
    /// choice; none for a new store.
    pub fn compression(mut self, compression: impl Into<Option<Compression>>) -> Self {
        self.compression = compression.into();
        self
    }

    /// If true, pages are read and written without the page cache of the operating system (direct I/O), which then keeps no second copy of
    /// them. [`memory_bytes`](Self::memory_bytes) is then all the memory that serves reads: give most of what the machine has. For the log,
    /// the page cache stays. Only for an engine in files of its own (`bwtree` with a durability), on a file system that has direct I/O.
    /// Not stored: each open chooses. Default: false.
    pub fn direct_io(mut self, is_direct: bool) -> Self {
        self.direct_io = is_direct;
        self
    }

    /// Maximum bytes of volatile memory for before-images: values that were overwritten since a snapshot was opened, or by batches since a
    /// scan began. At this bound the oldest snapshot or scan fails. Engines with [versions](crate::Capabilities::versions) need no
    /// before-images. Default: 256 MiB.
    pub fn snapshot_bytes(mut self, bytes: u64) -> Self {
        self.snapshot_bytes = bytes;
        self
    }

    /// If true, a new store has tables, transactions that scan, and deadlines of keys ([`crate::tables`]). Default: true. Only stores of
    /// byte strings with an ordered engine can have them; other stores ignore the option. A table adds 1 byte to each key (5 if its number
    /// exceeds 239) and 1 byte to each value (9 if the key has a deadline). An existing store keeps the setting of its creation.
    pub fn tables(mut self, has_tables: bool) -> Self {
        self.tables = has_tables;
        self
    }

    /// The clock of the deadlines. Default: the clock of the system.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// If true, opening makes the store if it does not exist. Default: true.
    pub fn create(mut self, is_allowed: bool) -> Self {
        self.create = is_allowed;
        self
    }

    /// If true, opens the store for reading only. Nothing in the directory changes, writes are refused, and reads see the state of one
    /// moment. Several processes may read a store in this way. Meanwhile it cannot be opened for writing. If another process has it open
    /// for writing, a store with a journal can still be read: opening copies it into memory. Default: false.
    pub fn read_only(mut self, is_read_only: bool) -> Self {
        self.read_only = is_read_only;
        self
    }

    /// An error if an option is set that only files of pages have. For stores without files of their own.
    pub(crate) fn check_has_no_pages(&self, engine: &str) -> Result<()> {
        let what = if self.compression.is_some_and(|compression| compression != Compression::None) {
            "compression"
        } else if self.direct_io {
            "direct I/O"
        } else {
            return Ok(());
        };
        Err(Error::Option(format!(
            "{what} is only for the files of `bwtree` with power or process durability, and this store (`{engine}`) has no such files: \
             open it without {what}, or make a new store with `--engine bwtree --durability power` \
             (`Options::engine` and `Options::durability`)"
        )))
    }
}
