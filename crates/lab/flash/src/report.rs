//! The tables of `bench flash`.

use std::fmt::{Display, Formatter, Result};
use std::path::PathBuf;

use competitors::Promise;
use serde::Serialize;
use terminal::thousands;

use crate::judge::Target;
use crate::protocol::Cell;

/// The results of a store in a cell.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Number of operations of all rounds.
    pub operations: u64,
    /// Operations per second; median of the rounds. Pairs for the load, scans for scans.
    pub per_second: f64,
    /// The same value of the slowest round.
    pub slowest: f64,
    /// The same value of the fastest round.
    pub fastest: f64,
    /// 99.9th percentile of the duration of a call in microseconds; median of the rounds. A call of the load is a batch.
    pub p999_us: f64,
    /// Bytes written to the disk per byte put, up to the end of the background work; all rounds together. `None` for reads.
    pub written_per_byte: Option<f64>,
    /// Syncs per commit, if they were counted for this cell.
    pub syncs_per_commit: Option<f64>,
}

/// The results of a store.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name.
    pub name: &'static str,
    /// Settings that give the store its durability.
    pub setting: &'static str,
    /// One figure per column. `None` if the store has no result.
    pub cells: Vec<Option<Figure>>,
    /// Bytes written to the disk per byte put, of all updates together.
    pub write_amplification: Option<f64>,
    /// Bytes of its files per byte of its pairs, at the end of the last round.
    pub space_amplification: Option<f64>,
    /// Time to open the store after its process was killed, and to read one value.
    pub reopen_seconds: Option<f64>,
    /// The most bytes that the store's control group used, page cache included.
    pub peak_bytes: Option<u64>,
    /// Bytes of the control group's heaps and stacks at the end of the last round.
    pub anonymous_bytes: Option<u64>,
    /// Number of measured cells after which the store's threads still worked for more than 10 s. They disturb the cells that follow.
    pub busy_cells: usize,
    /// The reason why later cells have no result.
    pub failure: Option<String>,
    /// The reason why syncs were not counted.
    pub uncounted: Option<String>,
}

/// The results for a size of the data and a durability.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// Size of the data as a multiple of the memory.
    pub size: f64,
    /// Number of keys.
    pub keys: u64,
    /// Bytes of all keys and values.
    pub live_bytes: u64,
    /// Failure that acknowledged writes survive.
    pub durability: Promise,
    /// Descriptions of the columns.
    pub columns: Vec<String>,
    /// The operations of the columns.
    pub cells: Vec<Cell>,
    /// Bristlecone's rate divided by the best rate of the other stores, by column.
    pub ratios: Vec<Option<f64>>,
    /// The stores, Bristlecone first.
    pub rows: Vec<Row>,
}

impl Part {
    /// The results of the store of this name.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }
}

/// The results of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Bytes of memory of each store, page cache included.
    pub memory_bytes: u64,
    /// False if the memory was not limited.
    pub is_limited: bool,
    /// True: Bristlecone's pages bypassed the page cache.
    pub direct_io: bool,
    /// Bytes of a store's cache and write buffers.
    pub cache_bytes: u64,
    /// Bytes of a key and its value.
    pub pair_bytes: u64,
    /// Duration of each cell in seconds.
    pub seconds: f64,
    /// Maximum duration of a load in random order.
    pub load_seconds: f64,
    /// Number of rounds.
    pub rounds: usize,
    /// Directory of the files.
    pub backing: PathBuf,
    /// Seed of keys and their order.
    pub seed: u64,
    /// The parts of the run.
    pub parts: Vec<Part>,
    /// The judged targets.
    pub targets: Vec<Target>,
    /// True if this build has no competitors.
    pub others_missing: bool,
}

const LABEL_WIDTH: usize = 24;
const CELL_WIDTH: usize = 13;

/// Formats a value of a row.
type Format<'a> = &'a dyn Fn(&Row) -> Option<String>;

impl Part {
    fn line(&self, f: &mut Formatter<'_>, label: &str, of: Format<'_>) -> Result {
        write!(f, "{label:LABEL_WIDTH$}")?;
        for row in &self.rows {
            write!(f, "{:>CELL_WIDTH$}", of(row).unwrap_or_else(|| "-".to_owned()))?;
        }
        Ok(())
    }

    /// A line for each column in which a store has a value.
    fn table(
        &self,
        f: &mut Formatter<'_>,
        head: &str,
        of: &dyn Fn(&Figure) -> Option<String>,
        behind: &dyn Fn(usize) -> String,
    ) -> Result {
        self.line(f, head, &|row| Some(row.name.to_owned()))?;
        writeln!(f)?;
        for (number, column) in self.columns.iter().enumerate() {
            let value = |row: &Row| row.cells[number].as_ref().and_then(of);
            if self.rows.iter().any(|row| value(row).is_some()) {
                self.line(f, column, &value)?;
                writeln!(f, "{}", behind(number))?;
            }
        }
        writeln!(f)
    }
}

impl Display for Part {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self { size, durability, .. } = self;
        writeln!(
            f,
            "== {size} times the memory ({} MiB, {} keys), {durability} durability\n",
            self.live_bytes >> 20,
            thousands(self.keys as f64)
        )?;
        let nothing = |_| String::new();
        let ratio = |column: usize| {
            let text = self.ratios[column].map(|ratio| format!("{ratio:>CELL_WIDTH$.2}x the best other"));
            text.unwrap_or_default()
        };
        self.table(f, "a second", &|figure| Some(thousands(figure.per_second)), &ratio)?;
        self.table(f, "p99.9, us", &|figure| Some(thousands(figure.p999_us)), &nothing)?;
        let ratio_of = |value: Option<f64>| value.map(|value| format!("{value:.2}"));
        self.table(f, "written per byte put", &|figure| ratio_of(figure.written_per_byte), &nothing)?;
        if self
            .rows
            .iter()
            .flat_map(|row| &row.cells)
            .flatten()
            .any(|figure| figure.syncs_per_commit.is_some())
        {
            let syncs = |figure: &Figure| figure.syncs_per_commit.map(|syncs| format!("{syncs:.3}"));
            self.table(f, "syncs per commit", &syncs, &nothing)?;
        }
        let loaded = |row: &Row| Some(row.cells.first()?.as_ref()?.operations as f64 / self.keys as f64);
        let mebibytes = |bytes: Option<u64>| bytes.map(|bytes| (bytes >> 20).to_string());
        let lines: [(&str, Format<'_>); 6] = [
            ("loaded at random, %", &|row| loaded(row).map(|share| format!("{:.0}", share * 100.0))),
            ("written, all updates", &|row| ratio_of(row.write_amplification)),
            ("file bytes per live byte", &|row| ratio_of(row.space_amplification)),
            ("open after a kill, ms", &|row| row.reopen_seconds.map(|seconds| thousands(seconds * 1000.0))),
            ("peak memory, MiB", &|row| mebibytes(row.peak_bytes)),
            ("heap at the end, MiB", &|row| mebibytes(row.anonymous_bytes)),
        ];
        for (label, of) in lines {
            self.line(f, label, of)?;
            writeln!(f)?;
        }
        for row in self.rows.iter().filter(|row| row.busy_cells > 0) {
            writeln!(f, "{} still worked 10 s after {} cells", row.name, row.busy_cells)?;
        }
        for row in &self.rows {
            row.failure.iter().chain(&row.uncounted).try_for_each(|why| writeln!(f, "{why}"))?;
        }
        writeln!(f)
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let limit = if self.is_limited {
            format!("{} MiB of memory for each store, page cache included", self.memory_bytes >> 20)
        } else {
            "MEMORY IS NOT LIMITED: the page cache holds all data".to_owned()
        };
        let direct = if self.direct_io { " Bristlecone with direct I/O." } else { "" };
        writeln!(
            f,
            "{limit}; {} MiB of it for caches and write buffers (LMDB: page cache only).{direct} Pairs of {} bytes on {}. Cells of {} s, median of {} \
             rounds (slowest and fastest: --json), the stores in turn. Load: batches of {} in random order for at most {} s, then the rest in key order. \"50/50\": half gets, half puts, \
             zipfian; \"update\": puts, uniform.\n",
            self.cache_bytes >> 20,
            self.pair_bytes,
            self.backing.display(),
            self.seconds,
            self.rounds,
            crate::work::LOAD_BATCH,
            self.load_seconds,
        )?;
        self.parts.iter().try_for_each(|part| write!(f, "{part}"))?;
        let settings = |part: &Part| part.rows.iter().map(|row| (row.name, row.setting)).collect::<Vec<_>>();
        let mut settings: Vec<_> = self.parts.iter().flat_map(settings).collect();
        settings.sort_unstable();
        settings.dedup();
        settings.iter().try_for_each(|(name, setting)| writeln!(f, "{name}: {setting}"))?;
        writeln!(
            f,
            "\nBytes written are those of /proc/self/io of the store's process (all its threads): pages at the moment they become dirty, and \
             direct writes, without pages of files that were removed before they were written back; read after the store's background work and \
             a syncfs. Every answer was right. After a kill (SIGKILL) every store had the newest version of every value.\n"
        )?;
        for Target { target, is_met, found } in &self.targets {
            let verdict = match is_met {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "not judged",
            };
            writeln!(f, "{verdict:11}{target}: {found}")?;
        }
        if self.others_missing {
            writeln!(
                f,
                "\nTo measure LMDB, RocksDB, redb, fjall and Berkeley DB in the same run, build with `--features competitors` (two are the \
                 system's: apt-get install librocksdb-dev libdb5.3-dev)."
            )?;
        }
        Ok(())
    }
}
