//! Benchmarks and experiments: evidence beside claims.
//!
//! * [`costs`]: `bristlecone-lab costs`: words, flushes and fences of an operation beside the papers' formulas.
//! * [`floor`]: what the memory itself costs: a dependent read, a dependent read with a durable store.
//! * [`flush`]: `bristlecone-lab flush`: how many lines a second can be written back, by the size of what is flushed.
//! * [`measured`]: the ordered maps that are measured, in batches; [`keys`]: what is stored in them;
//!   [`scratch`]: the files that they live in.
//! * [`experiment`]: `bristlecone-lab run`: the papers' figures measured again, each with the paper's claims judged.
//! * [`latch_free`]: `bench bwtree`: the Bw-tree beside other maps in memory.
//! * [`readers`]: `bench readers`: lookups by several readers, alone and beside a writer.
//! * [`registry`]: `bristlecone-lab registry`: every engine and its parts.
//! * [`reopen`]: `bench reopen`: how long a store that was not closed takes to open.
//! * [`stores`]: `bench store`: Bristlecone beside other stores, in one run; [`syncs`]: how often each waits for its disk.
//! * [`verdict`]: a paper's sentence beside what was measured.
//! * [`versioned`]: `bench cdds`: the CDDS B-Tree beside Berkeley DB, and the price of versions.
//! * [`trees`]: `bench trees`: one table of operations, as times and as multiples of the floor of the same run.

pub mod costs;
pub mod experiment;
pub mod floor;
pub mod flush;
pub mod heat;
pub mod keys;
pub mod latch_free;
pub mod measured;
pub mod readers;
pub mod registry;
pub mod reopen;
pub mod scratch;
pub mod stores;
pub mod syncs;
pub mod trees;
pub mod verdict;
pub mod versioned;

use index::About;

/// What an experiment could not do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Durable memory refused.
    #[error(transparent)]
    Pmem(#[from] pmem::Error),
    /// No tree of this name is measured here.
    #[error("no durable tree `{name}`; there are {known}")]
    UnknownTree {
        /// What was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A file could not be made.
    #[error("cannot make {path}: {source}")]
    File {
        /// Which.
        path: std::path::PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A tree that an experiment was not made for.
    #[error("{0} has no place in this experiment")]
    Unfit(&'static str),
    /// The entries of this tree have no space for several words.
    #[error(
        "{0} keeps one word with a key: larger values are for the indexes of 4 KiB nodes, as wb-4k, vlab and nvtree"
    )]
    OneWord(&'static str),
    /// Values of a size that no tree has.
    #[error("values of {0} bytes: give a multiple of 8 up to 120")]
    ValueBytes(u64),
    /// A store refused.
    #[error(transparent)]
    Store(#[from] competitors::Error),
    /// A store of ours refused.
    #[error(transparent)]
    Own(#[from] bristlecone::Error),
    /// A backing that is none.
    #[error("there is no directory {0}: make it, or name another with --backing")]
    NoDirectory(std::path::PathBuf),
    /// A backing that is too small.
    #[error(
        "{path} has {free} MiB free, and this run may need {needed}: measure fewer stores (--only), --keys, --operations or \
         --rounds, or name another directory with --backing"
    )]
    Room {
        /// The directory.
        path: std::path::PathBuf,
        /// MiB free.
        free: u64,
        /// MiB that may be needed.
        needed: u64,
    },
    /// A backing that became full.
    #[error(
        "the file system of {path} is full ({source}): make space, measure fewer --keys, or name another with --backing"
    )]
    Full {
        /// The directory.
        path: std::path::PathBuf,
        /// What failed.
        source: Box<Error>,
    },
    /// No such store is known.
    #[error("no store `{name}` to measure beside ours; there are {known}")]
    UnknownStore {
        /// What was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A store that this build does not have.
    #[error(
        "{name} is not in this build: `cargo run --release -p bristlecone-lab --features competitors -- bench store` has it (RocksDB and Berkeley DB are the \
         system's: apt-get install librocksdb-dev libdb5.3-dev)"
    )]
    NotBuilt {
        /// What was asked for.
        name: String,
    },
    /// Syncs that passed uncounted.
    #[error("cannot count the syncs of {store}: {source}")]
    Uncounted {
        /// Which.
        store: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// A trace that cannot be read.
    #[error(
        "cannot read the trace {path}: {why}; it is text, a basket a line, numbers of items between blanks"
    )]
    Trace {
        /// Where it should be.
        path: std::path::PathBuf,
        /// Why not.
        why: String,
    },
    /// A list of words that cannot be read.
    #[error("cannot read the words {path}: {why}; it is text, a word a line")]
    Words {
        /// Where it should be.
        path: std::path::PathBuf,
        /// Why not.
        why: String,
    },
    /// Valgrind is not there, or did not do what it was to do.
    #[error(
        "cannot count loads below Valgrind: {0}\nIs it installed (apt-get install valgrind)? Without --caches it is not needed."
    )]
    Valgrind(String),
    /// A competitor gave a wrong answer. Its times have no meaning.
    #[error("{who} answered wrongly: {what}")]
    Wrong {
        /// The competitor.
        who: String,
        /// What was expected and what came.
        what: String,
    },
}

/// An engine of the registry.
pub type Engine = &'static About;

/// The ordered engine of this name.
///
/// # Errors
/// In words, with the names there are.
pub fn engine(name: &str) -> std::result::Result<Engine, String> {
    let is_ordered = |name| bristlecone::registry::find(name).is_ok_and(|entry| entry.capabilities.ordered);
    let measured = || bristlecone::registry::engines().filter(|about| is_ordered(about.name));
    let names: Vec<_> = measured().map(|about| about.name).collect();
    let found = measured().find(|about| about.name == name);
    found.ok_or_else(|| format!("no engine `{name}`; there are {}", names.join(", ")))
}

pub(crate) fn wrong(name: &str, what: String) -> Error {
    Error::Wrong { who: name.into(), what }
}

pub(crate) fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}
