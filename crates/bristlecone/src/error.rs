//! Errors of a store, and what the user can do about them.

use ::index::kind::{BadLength, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use ::index::tables::{TABLE_KEY_BYTES_MAX, TABLE_VALUE_BYTES_MAX};

/// Result of a store operation.
pub type Result<T> = std::result::Result<T, Error>;

impl From<BadLength> for Error {
    fn from(length: BadLength) -> Self {
        match length {
            BadLength::Key(bytes) => Self::KeyLength { bytes },
            BadLength::Value(bytes) => Self::ValueLength { bytes },
        }
    }
}

/// The limit that a key or value of this length breaks. Only a key can be too short.
fn limit_of(bytes: usize, with_tables: usize, without: usize) -> String {
    match bytes {
        0 => format!("a key has 1 to {with_tables} bytes"),
        _ => format!("at most {with_tables} ({without} in a store without tables)"),
    }
}

/// The reason why a store refused an operation. No error loses a durable write.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of durable memory.
    #[error(transparent)]
    Pmem(pmem::Error),
    /// The key has a wrong length.
    #[error("a key of {bytes} bytes: {}", limit_of(*bytes, TABLE_KEY_BYTES_MAX, KEY_BYTES_MAX))]
    KeyLength {
        /// Length in bytes.
        bytes: usize,
    },
    /// The value has a wrong length.
    #[error("a value of {bytes} bytes: {}", limit_of(*bytes, TABLE_VALUE_BYTES_MAX, VALUE_BYTES_MAX))]
    ValueLength {
        /// Length in bytes.
        bytes: usize,
    },
    /// There is no engine of this name.
    #[error("unknown engine {name:?}: choose one of {known}")]
    UnknownEngine {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The engine was not compiled into this program.
    #[error(
        "this program was built without the engine {name}: build it with the feature `{feature}` \
         (cargo build --release --features {feature})"
    )]
    NotCompiled {
        /// The engine.
        name: String,
        /// The feature of crate `bristlecone` that compiles it.
        feature: &'static str,
    },
    /// The operation needs key order, and the engine has none.
    #[error(
        "{engine} is an unordered engine: it has no scans, no ranges and no first or last key. Ordered engines are {ordered}"
    )]
    Unordered {
        /// The engine.
        engine: &'static str,
        /// The ordered engines.
        ordered: String,
    },
    /// The operation needs snapshots or versions, and the engine has none.
    #[error("{0}")]
    Unsupported(String),
    /// The operation is a batch, and the engine has no batches.
    #[error(
        "{engine} has no batches: several keys do not change in one step there. Write them one by one, or take an engine that has: \
         {batched}"
    )]
    NoBatches {
        /// The engine.
        engine: &'static str,
        /// The engines with batches.
        batched: String,
    },
    /// Other threads changed the keys of a transaction whenever it ran.
    #[error(
        "the transaction ran {attempts} times, and each time another thread changed a key that it had read. Nothing was changed. Run it \
         again later, or let it read fewer keys"
    )]
    Conflict {
        /// Number of times that it ran.
        attempts: usize,
    },
    /// The operation needs tables or deadlines, and the store has none.
    #[error(
        "this store has no tables and no deadlines of keys: they need a store of byte strings and of an ordered engine that was made with \
         `Options::tables`, as `serve` makes it. To move this store, write it out with `scan --json`, and load it into such a store"
    )]
    NoTables,
    /// An option or an argument is not valid, or the store cannot do what the caller asks. The text has the reason.
    #[error("{0}")]
    Option(String),
    /// Another process has the store open, and the store has no journal.
    #[error(
        "{path} is in use by another process, and it has no journal, so others cannot read it as of one moment: stop that process \
         first, or ask it (`GET`, `BGSAVE` and so on of a server)"
    )]
    InUse {
        /// The store's file.
        path: std::path::PathBuf,
    },
    /// The file system is full.
    #[error(
        "no space for {what} in {path}, which takes {bytes} bytes: free space there or name another place; the store is as it was, \
         and what was made of the other is removed"
    )]
    NoRoom {
        /// The object that needs the space.
        what: &'static str,
        /// The directory.
        path: std::path::PathBuf,
        /// Number of bytes that it needs.
        bytes: u64,
    },
    /// The file system has no space for a new store.
    #[error(
        "no space for a new store in {path}: {bytes} bytes are needed. Free space there, or name another directory. No file was made"
    )]
    NotMade {
        /// The directory.
        path: std::path::PathBuf,
        /// Number of bytes that the file system refused.
        bytes: u64,
    },
    /// There is no store in the directory.
    #[error(
        "there is no store in {path}: name the directory of a store, or make one (`bristlecone put`, `load` or `serve`, \
             or `Options::create`)"
    )]
    Missing {
        /// The directory.
        path: std::path::PathBuf,
    },
    /// The store's own file is missing, and other files of the store are there.
    #[error(
        "the store in {path} has lost its file store.bristlecone: {found} is still there. Put that file back from where it was moved, or \
         restore all files of the directory from a backup; do not make a new store there{}",
        if is_journal(found) { "" } else { ". `check --salvage NEW_DIR` copies what the other files hold" }
    )]
    Incomplete {
        /// The directory.
        path: std::path::PathBuf,
        /// One of the other files.
        found: std::path::PathBuf,
    },
}

fn is_journal(path: &std::path::Path) -> bool {
    path.extension().is_some_and(|extension| extension == "journal")
}

/// What an error means for the caller. [`Error`] has the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no store in the directory.
    Missing,
    /// Another process, or this one, has the store open.
    InUse,
    /// The file system is full, or the store has reached its maximum size.
    Full,
    /// The files are damaged or foreign, or the journal does not belong to the store's file.
    Damaged,
    /// The store has another format version, another engine, or another kind of keys or values.
    Mismatch,
    /// Other threads changed what a transaction had read.
    Conflict,
    /// A key, a value, a name, or all writes of one step together are too large.
    TooLarge,
    /// A snapshot or scan lost before-images to the memory bound, or its version was rolled back.
    Expired,
    /// The engine or the store has no such operation.
    Unsupported,
    /// An argument or option has a wrong value.
    Invalid,
    /// The store was opened for reading only.
    ReadOnly,
    /// The store was closed, or the table was dropped.
    Closed,
    /// A sync or a write failed. The store takes no more writes until it is opened again.
    Failed,
    /// The operating system refused a call.
    Io,
}

impl Error {
    /// What the error means for the caller.
    pub fn kind(&self) -> ErrorKind {
        use pmem::Error as P;
        match self {
            Self::Pmem(error) if error.is_damage() => ErrorKind::Damaged,
            Self::Pmem(error) => match error {
                P::NoSpace { .. } | P::Full { .. } => ErrorKind::Full,
                P::Locked { .. } | P::Busy { .. } => ErrorKind::InUse,
                P::SnapshotBytes { .. } | P::TakenBack { .. } => ErrorKind::Expired,
                P::ReadOnly => ErrorKind::ReadOnly,
                P::Version { .. } | P::Mismatch { .. } => ErrorKind::Mismatch,
                P::TooLarge { .. } | P::Length { .. } => ErrorKind::TooLarge,
                P::Unsupported { .. } => ErrorKind::Unsupported,
                P::Closed | P::Dropped => ErrorKind::Closed,
                P::Failed | P::Unfinished { .. } => ErrorKind::Failed,
                P::Io { .. } => ErrorKind::Io,
                // The other variants are damage, which the first arm covers, or wrong arguments.
                _ => ErrorKind::Invalid,
            },
            Self::KeyLength { bytes: 0 } => ErrorKind::Invalid,
            Self::KeyLength { .. } | Self::ValueLength { .. } => ErrorKind::TooLarge,
            Self::UnknownEngine { .. } | Self::Option(_) => ErrorKind::Invalid,
            Self::NotCompiled { .. }
            | Self::Unordered { .. }
            | Self::Unsupported(_)
            | Self::NoBatches { .. }
            | Self::NoTables => ErrorKind::Unsupported,
            Self::Conflict { .. } => ErrorKind::Conflict,
            Self::InUse { .. } => ErrorKind::InUse,
            Self::NoRoom { .. } | Self::NotMade { .. } => ErrorKind::Full,
            Self::Missing { .. } => ErrorKind::Missing,
            Self::Incomplete { .. } => ErrorKind::Damaged,
        }
    }

    /// True if the store's files are damaged, truncated or torn, or do not belong together. `check --salvage` then copies the intact
    /// records.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Pmem(error) => error.is_damage(),
            Self::Incomplete { .. } => true,
            _ => false,
        }
    }
}
