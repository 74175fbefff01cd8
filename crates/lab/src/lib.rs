//! Benchmarks and experiments: evidence beside claims.
//!
//! * [`floor`]: what the memory itself costs: a dependent read, a dependent read with a durable store.
//! * [`contender`]: the ordered maps that are compared, behind one batch interface.
//! * [`reopen`]: `bench reopen`: how long a store that was not closed takes to open.
//! * [`trees`]: `bench trees`: one table of operations, as times and as multiples of the floor of the same run.

pub mod contender;
pub mod crash_tree;
pub mod floor;
pub mod reopen;
pub mod trees;

/// What an experiment could not do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Durable memory refused.
    #[error(transparent)]
    Pmem(#[from] pmem::Error),
    /// A file could not be made.
    #[error("cannot make {path}: {source}")]
    File {
        /// Which.
        path: std::path::PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A contender gave a wrong answer: its times mean nothing.
    #[error("{who} answered wrongly: {what}")]
    Wrong {
        /// Contender.
        who: String,
        /// What was expected and what came.
        what: String,
    },
}
