//! The error type of this crate: what failed, on which object, and what to do.

use std::path::PathBuf;

/// An operation that an engine without key order lacks ([`Error::Unsupported`]).
pub const SCANS: &str = "scans";
/// An operation that an engine without atomic batches lacks.
pub const BATCHES: &str = "batches of several keys";
/// An operation that an engine without old versions lacks.
pub const SNAPSHOTS: &str = "snapshots";

/// Result of a pmem operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a region could not be opened, read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a call on the region's file.
    #[error("{what} {path}: {source}")]
    Io {
        /// The action, as a phrase ("cannot open").
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file system has no space for the region to grow.
    #[error(
        "no space to grow {path} by {bytes} bytes: free space on that file system and write again; \
         nothing was lost and reads go on"
    )]
    NoSpace {
        /// The region's file.
        path: PathBuf,
        /// Bytes requested.
        bytes: u64,
    },
    /// The region reached its configured maximum size.
    #[error("the store reached its maximum size of {max_bytes} bytes: open it with a larger maximum")]
    Full {
        /// The configured maximum in bytes.
        max_bytes: u64,
    },
    /// The region is open already, in another process or in this one.
    #[error("{path} is in use by {holder}")]
    Locked {
        /// The region's file.
        path: PathBuf,
        /// The process that has it open.
        holder: Holder,
    },
    /// Another process writes to the store faster than this one can copy it.
    #[error(
        "{path} is written to faster than it can be read as of one moment: try again when less is written, or ask the process \
         that has it open for a backup (`SAVE` of a server)"
    )]
    Busy {
        /// The region's file.
        path: PathBuf,
    },
    /// A snapshot, or a scan that began before a batch, needs more before-images than may be kept.
    #[error(
        "the snapshot or scan is too old: the values overwritten since it began take more than {limit_bytes} bytes; begin it \
         again, or open the store with a larger `snapshot_bytes` (--snapshot-memory)"
    )]
    SnapshotBytes {
        /// The configured bound in bytes.
        limit_bytes: u64,
    },
    /// A write to a store that was opened for reading.
    #[error("the store was opened read-only: open it for writing to change it")]
    ReadOnly,
    /// The file is not a region.
    #[error(
        "{path} is not a Bristlecone store: {why}; if it was one, run `check --salvage NEW_DIR` to copy every intact \
         record (NEW_DIR: a directory that has no store yet)"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The reason, as a clause.
        why: &'static str,
    },
    /// The file has a format version that this program does not read.
    #[error(
        "the store has format version {found}, this program reads version {known}: open it with the program that made it; to move \
         it here, write its content with that program (`scan --json > FILE`) and load it with this one (`load FILE --format jsonl \
         --dir NEW_DIR`)"
    )]
    Version {
        /// Version in the superblock.
        found: u64,
        /// The version that this program reads and writes.
        known: u64,
    },
    /// Data in the region that this program cannot have written.
    #[error(
        "corrupt {what} at offset {at:#x}: run `check`, and `check --salvage NEW_DIR` to copy every intact record \
         (NEW_DIR: a directory that has no store yet)"
    )]
    Corrupt {
        /// The structure.
        what: &'static str,
        /// Offset in the region, in bytes.
        at: u64,
    },
    /// Both superblock copies are damaged.
    #[error(
        "{path}: both copies of the superblock are damaged: run `check --salvage NEW_DIR` to copy every intact record \
         (NEW_DIR: a directory that has no store yet)"
    )]
    Superblock {
        /// The file.
        path: PathBuf,
    },
    /// A store and its journal do not belong together.
    #[error(
        "the journal {path} {why}: put the journal back that was beside the store when it was last open, or restore both \
         from one backup; without it the store's newest writes are missing or torn"
    )]
    Journal {
        /// The journal's file.
        path: PathBuf,
        /// The reason, as a phrase.
        why: &'static str,
    },
    /// A store with process durability did not survive a restart of the machine.
    #[error(
        "the store was open with process durability when the machine went down, so its newest writes may be torn: \
         run `check --salvage NEW_DIR` to copy every intact record (NEW_DIR: a directory that has no store yet)"
    )]
    Dirty,
    /// The file is shorter than its superblock says.
    #[error(
        "{path} is truncated: {found} bytes, its superblock says {expected}: restore it, or run `check --salvage NEW_DIR` \
         to copy every intact record (NEW_DIR: a directory that has no store yet)"
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Length of the file in bytes.
        found: u64,
        /// Length that the superblock gives in bytes.
        expected: u64,
    },
    /// The node size is too small for an index of these keys and values.
    #[error("nodes of {lines} lines hold too few entries of this size: take more lines")]
    Nodes {
        /// Cache lines of a node.
        lines: u64,
    },
    /// A value whose length differs from the length of all values in this index.
    #[error(
        "a value of {given} bytes: in this store every value has {takes}; pad it, or make a store of longer values"
    )]
    ValueBytes {
        /// Bytes of the value.
        given: usize,
        /// Bytes that a value must have.
        takes: usize,
    },
    /// The region holds an index of another kind or shape.
    #[error("the store was made with {found}, not with {asked}: {remedy}")]
    Mismatch {
        /// The kind in the superblock.
        found: String,
        /// The kind that the caller requested.
        asked: String,
        /// The action that helps, as a clause.
        remedy: &'static str,
    },
    /// A key or a value is too long for its store.
    #[error("{of} of {bytes} bytes: at most {limit}")]
    Length {
        /// A key or a value, with its article.
        of: &'static str,
        /// Its length.
        bytes: u64,
        /// The greatest length.
        limit: u64,
    },
    /// One change needs more of a resource (log records, intents, bytes of a block) than the maximum.
    #[error(
        "one step needs {asked} {of}, and {limit} is the most: write fewer keys in one step or shorter values"
    )]
    TooLarge {
        /// The resource: a noun in plural.
        of: &'static str,
        /// Number needed.
        asked: u64,
        /// Maximum.
        limit: u64,
    },
    /// A batch failed after its commit point.
    #[error(
        "a batch could not be finished: {why}; the store takes no more writes, and finishes the batch when it is opened again \
         (make space first if that was lacking)"
    )]
    Unfinished {
        /// The reason.
        why: String,
    },
    /// A bulk load met a key that is not above all earlier keys.
    #[error(
        "keys must ascend and lie above every key in the store: {loaded} were loaded before one that does not"
    )]
    Order {
        /// Number of keys loaded before this key; they stay in the store.
        loaded: u64,
    },
    /// A read at a version that was rolled back.
    #[error("version {version} was removed by a rollback: take a new snapshot")]
    TakenBack {
        /// The version.
        version: u64,
    },
    /// The engine has no such operation.
    #[error("{engine} has no {what}: take an engine that has")]
    Unsupported {
        /// The engine.
        engine: &'static str,
        /// The operation: [`SCANS`], [`BATCHES`] or [`SNAPSHOTS`].
        what: &'static str,
    },
    /// The table was dropped.
    #[error("the table was dropped: open it again by its name, which makes a new one")]
    Dropped,
    /// The index was closed.
    #[error("the store is closed: open it again")]
    Closed,
    /// A write or a sync failed, so the store accepts no more writes.
    #[error(
        "a sync or a write of this store failed, so it takes no more writes, and the newest may not survive the machine: look at the \
         disk and the system's log, then open the store again, which recovers it"
    )]
    Failed,
    /// The requested durability, or a requested size, is not possible on this medium.
    #[error("{0}")]
    Durability(&'static str),
}

impl Error {
    /// True if the files do not have the content that this program left: they are damaged, truncated, torn or not a pair.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Foreign { .. }
                | Self::Corrupt { .. }
                | Self::Superblock { .. }
                | Self::Journal { .. }
                | Self::Dirty
                | Self::Truncated { .. }
        )
    }
}
/// The process that holds the lock of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// This process.
    This,
    /// Another process, and its id if the system reports it.
    Another(Option<u32>),
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let process = match self {
            Self::This => {
                return f.write_str(
                    "this process already: use the store that is open, of which clones are cheap",
                );
            }
            Self::Another(Some(process)) => format!("another process ({process})"),
            Self::Another(None) => "another process".to_owned(),
        };
        write!(
            f,
            "{process}: stop that process first. Meanwhile a store with a journal can be read (`--read-only`)"
        )
    }
}
