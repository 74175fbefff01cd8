//! `bristlecone-lab run`: repeats figures of the papers, and judges the papers' claims.
//!
//! * [`figure`]: searches, inserts and deletes on bulk-loaded trees, as times and as multiples of the volatile tree in the same round.
//! * [`counts`]: words, flushes, fences and lines read by the same operations. These counts explain the times.
//! * [`simulated`]: the same batches on simulated memory: cycles, energy and wear. [`writes`]: single writes on simulated memory.
//! * [`layers`]: the cost of files and system calls compared with mapped memory.
//! * `draw`: pictures of simulated figures.
//! * [`claims`]: the verdict of a claim, a function of the measured rows alone.
//! * [`phases`]: operations, mixes of operations and a trace on six indexes of the VLAB paper: times and counts.
//! * [`keysets`]: lookups in VLAB by the distribution of keys. [`stalls`]: the cost of VLAB's combines ([`vlab::combine`]) for an insert.
//! * [`wb_tree`]: trees and claims of the wB+-Tree paper's figures 11 to 14.
//! * [`report`]: rows and claims as text.
//!
//! An experiment is an entry of [`EXPERIMENTS`]. Results that contradict the paper, because of other hardware, are printed as measured: a
//! claim that does not hold is a result. A wrong answer of a tree is an error: its times would be meaningless.

pub mod claims;
pub mod counts;
mod draw;
pub mod figure;
pub mod keysets;
pub mod layers;
pub mod phases;
pub mod report;
pub mod simulated;
pub mod stalls;
pub mod wb_tree;
pub mod writes;

use std::path::PathBuf;

use claims::Claim;
use counts::Costs;

use crate::Error;
use crate::scratch::Instructions;

/// An experiment.
#[derive(Debug)]
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Default numbers of keys in each tree and of operations in a batch.
    pub sizes: (u64, u64),
    /// Runs it.
    pub run: fn(&'static Experiment, &Options, &Progress<'_>) -> Result<Outcome, Error>,
}

/// Results of an experiment.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// Times of batches.
    Measured(Report),
    /// Cycles of batches.
    Simulated(simulated::Report),
    /// Cycles of single writes.
    Writes(writes::Report),
    /// Rates of files and mapped memory.
    Layers(layers::Report),
    /// Times and counts of phases.
    Phases(phases::Report),
    /// Times of lookups by key set.
    Keys(keysets::Report),
    /// Latencies of inserts.
    Stalls(stalls::Report),
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Measured(report) => report.fmt(f),
            Outcome::Simulated(report) => report.fmt(f),
            Outcome::Writes(report) => report.fmt(f),
            Outcome::Layers(report) => report.fmt(f),
            Outcome::Phases(report) => report.fmt(f),
            Outcome::Keys(report) => report.fmt(f),
            Outcome::Stalls(report) => report.fmt(f),
        }
    }
}

/// A fifth of the paper's keys, and all of its operations.
const MEASURED: (u64, u64) = (10_000_000, 500_000);
/// A tenth of the paper's keys, and a twentieth of its operations.
const PHASES: (u64, u64) = (5_000_000, 2_500_000);
/// Entries of a million buckets that are half to almost full, and enough inserts for several complete combines.
const STALLS: (u64, u64) = (21_500_000, 4_000_000);
/// The sizes of the paper.
const SIMULATED: (u64, u64) = (20_000_000, 100_000);

/// All experiments.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "cdds-fig3",
        about: "CDDS thesis, chapter 3: mapped memory beside write and fsync, by the size of a block",
        sizes: MEASURED,
        run: layers::chapter_3,
    },
    Experiment {
        name: "vlab-fig15",
        about: "VLAB paper, section 6.3: queries, by size of entry",
        sizes: PHASES,
        run: phases::figure_15,
    },
    Experiment {
        name: "vlab-fig16",
        about: "VLAB paper, section 6.4.1: words stored by inserts, deletes and updates, by size of entry",
        sizes: PHASES,
        run: phases::figure_16,
    },
    Experiment {
        name: "vlab-fig17",
        about: "VLAB paper, section 6.4.2: inserts, deletes and updates: times, flushes and fences",
        sizes: PHASES,
        run: phases::figure_17,
    },
    Experiment {
        name: "vlab-fig18",
        about: "VLAB paper, section 6.5: phases of a database, and workloads A, B and D: times and words",
        sizes: PHASES,
        run: phases::figure_18,
    },
    Experiment {
        name: "vlab-fig19",
        about: "VLAB paper, section 6.6: throughput of the trace of a shop",
        sizes: PHASES,
        run: phases::figure_19,
    },
    Experiment {
        name: "vlab-fig20",
        about: "VLAB paper, section 6.7: the trace on memory whose writes take longer",
        sizes: PHASES,
        run: phases::figure_20,
    },
    Experiment {
        name: "vlab-keys",
        about: "VLAB: lookups by how keys are spread, beside wb-4k",
        sizes: PHASES,
        run: keysets::run,
    },
    Experiment {
        name: "vlab-stalls",
        about: "VLAB: how long inserts take while the directory takes in the braids, beside wb-4k",
        sizes: STALLS,
        run: stalls::run,
    },
    Experiment {
        name: "vlab-table4",
        about: "VLAB paper, section 6.3: comparisons until a leaf is found",
        sizes: PHASES,
        run: phases::table_4,
    },
    Experiment {
        name: "vlab-table7",
        about: "VLAB paper, section 6.4.3: what flushes and fences cost an insert",
        sizes: PHASES,
        run: phases::table_7,
    },
    Experiment {
        name: "vlab-table8",
        about: "VLAB paper, section 6.8: memory beside the data",
        sizes: PHASES,
        run: phases::table_8,
    },
    Experiment {
        name: "wb-fig4",
        about: "wB+-Tree paper, section 2.4: writes flushed and fenced, on simulated memory",
        sizes: SIMULATED,
        run: writes::figure_4,
    },
    Experiment {
        name: "wb-fig11",
        about: "wB+-Tree paper, section 5.2: nine trees of 64-bit keys on simulated phase-change memory",
        sizes: SIMULATED,
        run: wb_tree::figure_11,
    },
    Experiment {
        name: "wb-fig12",
        about: "wB+-Tree paper, section 5.2: wear, energy, flushes and fences of inserts",
        sizes: SIMULATED,
        run: wb_tree::figure_12,
    },
    Experiment {
        name: "wb-fig13",
        about: "wB+-Tree paper, section 5.3: ten trees of 64-bit keys",
        sizes: MEASURED,
        run: wb_tree::figure_13,
    },
    Experiment {
        name: "wb-fig14",
        about: "wB+-Tree paper, section 5.4: seven trees of 20-byte string keys, and inline prefixes",
        sizes: MEASURED,
        run: wb_tree::figure_14,
    },
];

/// Returns the experiment of this name.
///
/// # Errors
/// An error text with the known names.
pub fn find(name: &str) -> Result<&'static Experiment, String> {
    let names: Vec<_> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
    let found = EXPERIMENTS.iter().find(|experiment| experiment.name == name);
    found.ok_or_else(|| format!("no experiment `{name}`; there are {}", names.join(", ")))
}

/// Parameters of an experiment.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of keys in each tree.
    pub keys: u64,
    /// Operations of a batch. For bulk-loaded trees at most a twentieth of the keys, so that a batch hardly changes the fill of a tree.
    pub operations: u64,
    /// Number of rounds; medians are reported.
    pub rounds: usize,
    /// Cache lines of a node.
    pub node_lines: Vec<u64>,
    /// Directory whose file system backs the trees.
    pub backing: PathBuf,
    /// File with a trace, a basket of items per line. `None` for a generated trace with the statistics of the paper's trace.
    pub trace: Option<PathBuf>,
    /// File with a list of words, one per line.
    pub words: Option<PathBuf>,
    /// Directory on an ordinary file system, for experiments that write files.
    pub disk: PathBuf,
    /// Factor for the numbers of keys and operations.
    pub scale: f64,
    /// Seed of keys and their order.
    pub seed: u64,
    /// The memory hierarchy of simulated experiments.
    pub memory: pcm::Config,
}

impl Options {
    /// Scaled numbers of keys and of operations per batch.
    pub fn scaled(&self) -> (u64, u64) {
        let (keys, operations) = self.scaled_apart();
        (keys, operations.min(keys / 20))
    }

    /// The same without the limit on operations, for experiments whose batches may change the fill of a tree.
    pub fn scaled_apart(&self) -> (u64, u64) {
        let scale = |number: u64| (number as f64 * self.scale) as u64;
        (scale(self.keys).max(100), scale(self.operations).max(1))
    }
}

/// Progress of a run.
#[derive(Clone, Debug)]
pub struct Step {
    /// Number of finished steps.
    pub done: u64,
    /// Number of all steps.
    pub total: u64,
    /// Description of the present step.
    pub what: String,
}

/// Callback that receives the progress of a run.
pub type Progress<'a> = dyn Fn(Step) + 'a;

/// Operations that are measured together, on trees with a given fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Batch {
    /// Searches for existing keys, leaves 70 % full.
    Search70,
    /// Inserts of new keys, leaves 70 % full.
    Insert70,
    /// Deletes of the inserted keys, leaves 70 % full.
    Delete70,
    /// Inserts of new keys, leaves full: nodes split.
    Insert100,
    /// Deletes of loaded keys, leaves full.
    Delete100,
}

impl Batch {
    /// All batches in the order of tables.
    pub const ALL: [Self; 5] =
        [Self::Search70, Self::Insert70, Self::Delete70, Self::Insert100, Self::Delete100];

    /// The batches that change trees.
    pub const UPDATES: [Self; 4] = [Self::Insert70, Self::Delete70, Self::Insert100, Self::Delete100];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Search70 => "search 70%",
            Self::Insert70 => "insert 70%",
            Self::Delete70 => "delete 70%",
            Self::Insert100 => "insert 100%",
            Self::Delete100 => "delete 100%",
        }
    }
}

/// The form of the keys in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// The key word of the entry is the key.
    Integer,
    /// The entry points to the string.
    Pointer,
    /// The entry holds the first 8 bytes of the string and points to it.
    Prefix,
}

/// Results of one batch on one tree.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// Name of the tree.
    pub tree: &'static str,
    /// Layout of its leaves.
    pub leaf: &'static str,
    /// The commit protocol.
    pub commit_protocol: &'static str,
    /// Form of its keys.
    pub keys: Form,
    /// Cache lines of a node.
    pub node_lines: u64,
    /// The instructions that made changes durable.
    pub instructions: Instructions,
    /// The batch.
    pub batch: Batch,
    /// Nanoseconds per operation, median of the rounds.
    pub ns: f64,
    /// Time as a multiple of the volatile tree's in the same round, median of the rounds.
    pub ratio: f64,
    /// Counts of an operation.
    #[serde(flatten)]
    pub costs: Costs,
}

/// Results of a measured experiment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Description of the experiment.
    pub about: &'static str,
    /// Number of keys in each tree.
    pub keys: u64,
    /// Operations of a batch.
    pub operations: u64,
    /// Number of rounds.
    pub rounds: usize,
    /// Cache lines of a node.
    pub node_lines: Vec<u64>,
    /// Directory that backed the trees.
    pub backing: PathBuf,
    /// Seed of keys and their order.
    pub seed: u64,
    /// Number of keys in the trees whose operations were counted.
    pub keys_counted: u64,
    /// Number of groups of durable trees, each measured together with the volatile one. A group is limited by the memory.
    pub groups: usize,
    /// The best flush instruction of this processor.
    pub best_flush: String,
    /// True if keys of a node are compared eight at a time.
    pub vectors: bool,
    /// One row per batch and tree.
    pub rows: Vec<Row>,
    /// The judged claims of the paper.
    pub claims: Vec<Claim>,
}
