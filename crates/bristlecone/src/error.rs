//! What can go wrong with a store, and what to do about it.

use ::index::kind::BadLength;

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

/// Why a store refused. Nothing is lost by any of these.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Durable memory refused.
    #[error(transparent)]
    Pmem(pmem::Error),
    /// A key of the wrong length.
    #[error("a key of {bytes} bytes: keys have 1 to 65,535 bytes")]
    KeyLength {
        /// Its length.
        bytes: usize,
    },
    /// A value of the wrong length.
    #[error("a value of {bytes} bytes: values have at most 268,435,456 bytes (256 MiB)")]
    ValueLength {
        /// Its length.
        bytes: usize,
    },
    /// No such engine.
    #[error("unknown engine {name:?}: choose one of {known}")]
    UnknownEngine {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// An engine that was left out of this program.
    #[error(
        "this program was built without the engine {name}: build it with the feature `{feature}` \
         (cargo build --release --features {feature})"
    )]
    NotCompiled {
        /// The engine.
        name: String,
        /// The feature of crate `bristlecone` that has it.
        feature: &'static str,
    },
    /// Keys in an order were asked for, of an engine that has none.
    #[error(
        "{engine} is an unordered engine: it has no scans, no ranges and no first or last key. Ordered engines are {ordered}"
    )]
    Unordered {
        /// The engine.
        engine: &'static str,
        /// What there is with an order.
        ordered: String,
    },
    /// A batch, of an engine that changes each key by itself.
    #[error(
        "{engine} has no batches: several keys do not change in one step there. Write them one by one, or take an engine that has: \
         {batched}"
    )]
    NoBatches {
        /// The engine.
        engine: &'static str,
        /// What there is with batches.
        batched: String,
    },
    /// An option out of bounds.
    #[error("{0}")]
    Option(String),
    /// Another process has the store, and it has no journal.
    #[error(
        "{path} is in use by another process, and without a journal it changes in place: nobody else can read it as of one \
         moment. Stop that process first, or ask it (`get`, `SAVE` and so on of a server)"
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
        /// What was to be made.
        what: &'static str,
        /// The directory.
        path: std::path::PathBuf,
        /// Bytes it takes.
        bytes: u64,
    },
    /// The file system has no space for a new store.
    #[error(
        "no space for a new store in {path}: {bytes} bytes are needed. Free space there, or name another directory. No file was made"
    )]
    NotMade {
        /// The directory.
        path: std::path::PathBuf,
        /// Bytes that the file system refused.
        bytes: u64,
    },
    /// There is no store.
    #[error("there is no store in {path}: `load`, `put` or `serve` make one")]
    Missing {
        /// The directory.
        path: std::path::PathBuf,
    },
}

impl Error {
    /// True if the store's files are damaged, truncated, torn or not a pair: `check --salvage` rescues what is intact.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Pmem(error) if error.is_damage())
    }
}
