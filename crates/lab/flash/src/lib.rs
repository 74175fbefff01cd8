//! `bench flash`: Bristlecone's engine for files (`bwtree`) compared with other stores, on data that fits into memory and on data that does
//! not, at the same durability and with the same memory.
//!
//! Each store runs in a process of its own, inside a memory control group. The limit covers the process's heap and the page cache of its
//! files. So the operating system's page cache does not decide. The caches and write buffers of each store have the same share of the limit.
//!
//! A part of the run is a size of the data and a durability. In each part all stores are loaded with the same pairs in the same random
//! order, in batches. A load ends after a time; it then puts the remaining pairs in key order, unmeasured. Each round then measures every
//! cell on every store in turn, starting with another store each time. Medians of the rounds are reported. At the end of a part, each
//! process is killed (SIGKILL); the store is opened again and compared.
//!
//! * F1: a wrong answer ends the run (`work`). After the kill, each store must have the newest version of every value.
//! * F2: a store's background work, and the write-back of its files, ends before the turn of the next store (`usage`).
//! * F3: the process of a store ends with the benchmark (`child`). Files and groups are removed, also after an error; those of a killed
//!   run are removed by the next run.
//! * F4: a store that the kernel kills because its memory is full keeps its results, and has no further ones. Any other error ends the run.
//!
//! `cgroup`: control groups. `process`, `protocol`: the processes of stores. `part`: the cells of a part. `judge`: targets.
//! [`memory`]: the memory of a store over a run.
#![forbid(unsafe_code)]

mod arguments;
mod cgroup;
mod child;
mod judge;
pub mod memory;
mod part;
mod process;
mod protocol;
mod report;
mod usage;
mod work;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use competitors::place::{self, Place};
use competitors::{Competitor, Kind, Promise, chosen, ours};

pub use arguments::Arguments;
pub use child::serve;
pub use judge::Target;
pub use report::{Figure, Part, Report, Row};

use cgroup::Hierarchy;
use work::PAIR_BYTES;

/// The engine of Bristlecone that this benchmark measures.
const ENGINE: &str = "bwtree";

/// Bristlecone with its engine for files.
const OURS: Kind = Kind { name: ours::NAME, setting, open };

/// Maximum bytes that a store needs on the disk per byte of a pair.
const SPACE_PER_BYTE: u64 = 5;
/// Bytes that a store needs on the disk regardless of its contents: logs, journals.
const SPACE_EACH: u64 = 256 << 20;
/// The kernel's number for its memory file system.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

fn setting(promise: Promise) -> &'static str {
    match promise {
        Promise::Process => "engine bwtree, Durability::Process: the commit log goes to the kernel",
        Promise::Power => {
            "engine bwtree, Durability::Power: one fdatasync of the commit log for all that wait"
        }
    }
}

fn open(path: &Path, options: &competitors::Options) -> competitors::Result<Box<dyn Competitor>> {
    open_ours(path, options, false)
}

fn open_ours(
    path: &Path,
    options: &competitors::Options,
    direct_io: bool,
) -> competitors::Result<Box<dyn Competitor>> {
    let own = bristlecone::Options::default().engine(ENGINE).durability(ours::durability(options.promise));
    ours::open_as(path, own.memory_bytes(options.memory_bytes).direct_io(direct_io))
}

/// Parameters of the benchmark.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of memory of each store, page cache included.
    pub memory_bytes: u64,
    /// Share of the memory for a store's cache and write buffers, in percent.
    pub cache_percent: u64,
    /// False: the memory is not limited.
    pub is_limited: bool,
    /// True: Bristlecone's pages bypass the page cache.
    pub direct_io: bool,
    /// Sizes of the data as multiples of the memory.
    pub sizes: Vec<f64>,
    /// Durabilities.
    pub promises: Vec<Promise>,
    /// Duration of each cell in seconds.
    pub seconds: f64,
    /// Duration of a load in random order in seconds. The remaining keys are then put in key order.
    pub load_seconds: f64,
    /// Maximum number of operations of each thread in a cell.
    pub operations_max: u64,
    /// Number of rounds; medians are reported.
    pub rounds: usize,
    /// Competitors to measure; `None` for all in this build.
    pub only: Option<Vec<String>>,
    /// Directory for the files.
    pub backing: PathBuf,
    /// Seed of keys and their order.
    pub seed: u64,
    /// The program, with its arguments, that calls [`serve`].
    pub child: Vec<OsString>,
}

impl Options {
    fn cache_bytes(&self) -> u64 {
        self.memory_bytes * self.cache_percent / 100
    }

    /// Number of keys of a size.
    fn keys(&self, size: f64) -> u64 {
        ((self.memory_bytes as f64 * size) as u64 / PAIR_BYTES).max(1)
    }
}

/// Error of the benchmark.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stores cannot be selected.
    #[error(transparent)]
    Choice(#[from] competitors::Choice),
    /// The directory of the stores cannot be made.
    #[error(transparent)]
    Place(#[from] place::Error),
    /// No control group can be made.
    #[error(transparent)]
    Unlimited(#[from] cgroup::Unlimited),
    /// The files would be in memory.
    #[error(
        "{0} is on a memory file system, whose files count as memory: name a directory of a disk with --backing, or give --unlimited-memory"
    )]
    InMemory(PathBuf),
    /// The backing has too little free space.
    #[error(
        "{path} has {free} MiB free, and this run may need {needed}: measure fewer stores (--only) or smaller data (--memory, --data), or name \
         another directory with --backing"
    )]
    Space {
        /// The directory.
        path: PathBuf,
        /// MiB free.
        free: u64,
        /// MiB that may be needed.
        needed: u64,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The failed action.
        what: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The process of a store ended, or broke the protocol.
    #[error("the process of {store} {how}")]
    Died {
        /// Name of the store.
        store: String,
        /// The unexpected event.
        how: String,
    },
    /// A store returned an error.
    #[error("{0}")]
    Store(String),
    /// A store returned a wrong answer. Its times are meaningless.
    #[error("{store} answered wrongly: {what}")]
    Wrong {
        /// Name of the store.
        store: String,
        /// The expected and the actual answer.
        what: String,
    },
    /// The memory of a store was full.
    #[error("{0} needed more memory than the limit, and was killed")]
    Memory(String),
    /// The syncs of a store cannot be counted.
    #[error("cannot count the syncs of {store}: {why}")]
    Uncounted {
        /// Name of the store.
        store: String,
        /// The reason.
        why: String,
    },
}

/// Runs the benchmark. Reports each step to `progress`.
///
/// # Errors
/// Before any work: `Choice`, `Place`, `Unlimited`, `InMemory` and `Space`. Later: `Store`, `Wrong`, `Died`, `Place` or `System`.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Report, Error> {
    let kinds = chosen(OURS, options.only.as_deref())?;
    let place = Place::take(&options.backing)?;
    require_disk(options, kinds.len() as u64)?;
    let hierarchy = options.is_limited.then(Hierarchy::find).transpose()?;
    let mut parts = Vec::new();
    for (turn, (size, promise)) in parts_of(options).enumerate() {
        let part = part::Plan {
            options,
            kinds: &kinds,
            hierarchy: hierarchy.as_ref(),
            place: &place,
            turn,
            size,
            promise,
            progress,
        };
        parts.push(part.run()?);
    }
    Ok(Report {
        memory_bytes: options.memory_bytes,
        is_limited: options.is_limited,
        direct_io: options.direct_io,
        cache_bytes: options.cache_bytes(),
        pair_bytes: PAIR_BYTES,
        seconds: options.seconds,
        load_seconds: options.load_seconds,
        rounds: options.rounds,
        backing: options.backing.clone(),
        seed: options.seed,
        targets: judge::targets(&parts),
        parts,
        others_missing: competitors::KINDS.is_empty(),
    })
}

fn parts_of(options: &Options) -> impl Iterator<Item = (f64, Promise)> {
    options.sizes.iter().flat_map(|size| options.promises.iter().map(|promise| (*size, *promise)))
}

fn require_disk(options: &Options, stores: u64) -> Result<(), Error> {
    let backing = &options.backing;
    let system =
        |source: rustix::io::Errno| Error::System { what: "examine the backing", source: source.into() };
    if options.is_limited && rustix::fs::statfs(backing).map_err(system)?.f_type == TMPFS {
        return Err(Error::InMemory(backing.clone()));
    }
    let keys = options.sizes.iter().map(|size| options.keys(*size)).max().unwrap_or(0);
    let needed =
        stores.saturating_mul((keys * PAIR_BYTES).saturating_mul(SPACE_PER_BYTE).saturating_add(SPACE_EACH));
    let free = place::bytes_free(backing)?;
    if free < needed {
        return Err(Error::Space { path: backing.clone(), free: free >> 20, needed: needed >> 20 });
    }
    Ok(())
}
