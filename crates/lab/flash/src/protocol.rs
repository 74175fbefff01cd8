//! The lines of JSON between the benchmark and a store's process. The benchmark writes a [`Job`], then [`Order`]s, to the process's standard
//! input. The process writes one [`Answer`] for the job and for each order to its standard output. Lines that do not begin with a brace are
//! skipped.

use std::path::PathBuf;

use competitors::Promise;
use serde::{Deserialize, Serialize};

/// The store of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Name of the store.
    pub store: String,
    /// Directory of its files.
    pub folder: PathBuf,
    /// Durability of its writes.
    pub promise: Promise,
    /// Bytes of its cache and write buffers.
    pub cache_bytes: u64,
    /// True: its pages bypass the page cache. Only for Bristlecone.
    pub direct_io: bool,
    /// Number of its keys.
    pub keys: u64,
    /// Seed of the keys and of their order.
    pub seed: u64,
    /// The versions of all values, for a store that was written before.
    pub versions: Option<PathBuf>,
    /// True: syncs are counted, which makes writes slower.
    pub counts_syncs: bool,
}

/// The operation of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// Put keys in random order, in batches. The keys that are left at the end of the time are put in key order, outside of the measured time.
    Load,
    /// Look up keys with equal probability.
    GetUniform,
    /// Look up keys with YCSB's Zipfian distribution.
    GetZipfian,
    /// Scan the first hundred pairs from a random key on.
    Scan,
    /// Look up or update a key, with equal probability. The keys have the Zipfian distribution, as in YCSB's workload A.
    Mixed,
    /// Update keys with equal probability.
    Update,
}

/// An operation and a number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cell {
    /// The operation.
    pub verb: Verb,
    /// Number of threads.
    pub threads: u64,
}

impl Cell {
    /// True if the cell writes.
    pub fn writes(self) -> bool {
        matches!(self.verb, Verb::Load | Verb::Mixed | Verb::Update)
    }

    /// True if the cell updates keys that are in the store.
    pub fn updates(self) -> bool {
        matches!(self.verb, Verb::Mixed | Verb::Update)
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.verb {
            Verb::Load => return f.write_str("load"),
            Verb::GetUniform => "get, uniform",
            Verb::GetZipfian => "get, zipfian",
            Verb::Scan => "scan of 100",
            Verb::Mixed => "50/50",
            Verb::Update => "update",
        };
        match (self.updates(), self.threads) {
            (true, 1) => write!(f, "{what}, 1 writer"),
            (true, threads) => write!(f, "{what}, {threads} writers"),
            (false, _) => f.write_str(what),
        }
    }
}

/// An order to a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Do the work of a cell.
    Measure {
        /// The cell.
        cell: Cell,
        /// The work ends after this time.
        seconds: f64,
        /// The work ends after this number of operations of each thread.
        operations_max: u64,
    },
    /// Write the versions of all values to a file.
    Save(PathBuf),
    /// Compare all bytes of all pairs with the expected ones.
    Verify,
    /// Close the store and end.
    Close,
}

/// The answer to a job or an order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", content = "of")]
pub enum Answer {
    /// The store is open.
    Opened {
        /// Time from the call of the open to the first value read.
        seconds: f64,
    },
    /// The work of a cell is done.
    Measured(Measured),
    /// The order is done.
    Done,
    /// The store returned an error.
    Failed(String),
    /// The store returned a wrong answer.
    Wrong(String),
    /// Syncs cannot be counted here.
    Uncounted(String),
}

/// Results of the work of a cell.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Number of pairs put or read, or of scans, in the measured time.
    pub operations: u64,
    /// Number of pairs put, also outside of the measured time.
    pub puts: u64,
    /// Number of commits, also outside of the measured time.
    pub commits: u64,
    /// Time from the first call to the last return.
    pub seconds: f64,
    /// 99.9th percentile of the duration of a call.
    pub p999_ns: u64,
    /// Bytes that the process caused to be written to the disk, up to the end of the store's background work.
    pub written_bytes: u64,
    /// False if the store's threads still worked 10 s after the cell.
    pub is_idle: bool,
    /// Number of syncs, if they are counted.
    pub syncs: Option<u64>,
}
