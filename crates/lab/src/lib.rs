//! Benchmarks and experiments that measure and verify what the documents claim.
//!
//! * [`costs`]: `bristlecone-lab costs`: words, flushes and fences of an operation, compared with the papers' formulas.
//! * [`floor`]: the baseline of the memory: a dependent read, and a dependent read with a durable store.
//! * [`flush`]: `bristlecone-lab flush`: lines written back per second, by the size of the flushed range.
//! * [`heat`]: `bristlecone-lab heat`: number of store instructions to each tree node, and line writes of a simulated device.
//! * [`measured`]: the measured ordered maps, in batches; [`keys`]: their keys and values; [`scratch`]: their files.
//! * [`experiment`]: `bristlecone-lab run`: repeats figures of the papers and judges the papers' claims.
//! * [`latch_free`]: `bench bwtree`: the Bw-tree compared with other maps in memory.
//! * [`readers`]: `bench readers`: lookups by several readers, with and without a writer.
//! * [`registry`]: `bristlecone-lab registry`: every engine and its parts.
//! * [`reopen`]: `bench reopen`: time to open a store that was not closed.
//! * [`stores`]: `bench store`: Bristlecone and other stores in one run. `bench flash` is the crate `flash`.
//! * [`verdict`]: a claim of a paper, with the measured result.
//! * [`versioned`]: `bench cdds`: the CDDS B-Tree compared with Berkeley DB, and the cost of versions.
//! * [`trees`]: `bench trees`: a table of operations, as times and as multiples of the baseline of the same run.

mod callgrind;
pub mod costs;
pub mod experiment;
pub mod floor;
pub mod flush;
pub mod heat;
pub mod instructions;
pub mod keys;
pub mod latch_free;
pub mod measured;
pub mod readers;
pub mod registry;
pub mod reopen;
pub mod scratch;
pub mod stores;
pub mod trees;
pub mod verdict;
pub mod versioned;

use index::About;

/// Error of an experiment.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error of durable memory.
    #[error(transparent)]
    Pmem(#[from] pmem::Error),
    /// The name of the tree is unknown.
    #[error("no durable tree `{name}`; there are {known}")]
    UnknownTree {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// An operation on a file or directory failed.
    #[error("cannot make {path}: {source}")]
    File {
        /// Its path.
        path: std::path::PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The experiment does not support this tree.
    #[error("{0} has no place in this experiment")]
    Unfit(&'static str),
    /// The entries of this tree have no space for larger values.
    #[error(
        "{0} keeps one word with a key: larger values are for the indexes of 4 KiB nodes, as wb-4k, vlab and nvtree"
    )]
    OneWord(&'static str),
    /// No tree has values of this size.
    #[error("values of {0} bytes: give a multiple of 8 up to 120")]
    ValueBytes(u64),
    /// An error of a competitor.
    #[error(transparent)]
    Store(#[from] competitors::Error),
    /// An error of a Bristlecone store.
    #[error(transparent)]
    Own(#[from] bristlecone::Error),
    /// The directory of the measured stores cannot be made.
    #[error(transparent)]
    Place(#[from] competitors::place::Error),
    /// The stores cannot be selected.
    #[error(transparent)]
    Choice(#[from] competitors::Choice),
    /// `bench flash` failed.
    #[error(transparent)]
    Flash(#[from] flash::Error),
    /// The backing has too little free space.
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
    /// The backing is full.
    #[error(
        "the file system of {path} is full ({source}): make space, measure fewer --keys, or name another with --backing"
    )]
    Full {
        /// The directory.
        path: std::path::PathBuf,
        /// The error that this caused.
        source: Box<Error>,
    },
    /// The syncs of a store cannot be counted.
    #[error("cannot count the syncs of {store}: {source}")]
    Uncounted {
        /// Name of the store.
        store: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A trace cannot be read.
    #[error(
        "cannot read the trace {path}: {why}; it is text, a basket a line, numbers of items between blanks"
    )]
    Trace {
        /// Its path.
        path: std::path::PathBuf,
        /// The reason.
        why: String,
    },
    /// A list of words cannot be read.
    #[error("cannot read the words {path}: {why}; it is text, a word a line")]
    Words {
        /// Its path.
        path: std::path::PathBuf,
        /// The reason.
        why: String,
    },
    /// Valgrind is missing or failed.
    #[error(
        "cannot count below Valgrind: {0}\nIs it installed (apt-get install valgrind)? Without --caches or --count-instructions it is not needed."
    )]
    Valgrind(String),
    /// A competitor returned a wrong answer. Its times are meaningless.
    #[error("{who} answered wrongly: {what}")]
    Wrong {
        /// The competitor.
        who: String,
        /// The expected and the actual answer.
        what: String,
    },
}

/// An engine of the registry.
pub type Engine = &'static About;

/// Returns the ordered engine of this name.
///
/// # Errors
/// An error text with the known names.
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
