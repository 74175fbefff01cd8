//! The tables of `bench store`.

use std::fmt::{Display, Formatter, Result, Write as _};
use std::path::PathBuf;

use competitors::ours;
use competitors::syncs::Syncs;
use terminal::thousands;

use super::RANGE_PAIRS;

/// A column of the measurement. It is a line of the table.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Column {
    /// Description of the column.
    pub label: String,
    /// put, batch, get, scan or range.
    pub verb: &'static str,
    /// Number of threads.
    pub threads: usize,
}

/// The result of a store in a column.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Cell {
    /// Pairs per second, or ranges per second for ranges; median of the rounds.
    pub per_second: f64,
    /// The same value of the slowest round.
    pub slowest: f64,
    /// The same value of the fastest round.
    pub fastest: f64,
    /// The median divided by Bristlecone's median.
    pub ratio: f64,
}

/// Syncs of a column that writes, in numbers.
#[derive(Clone, Debug, serde::Serialize)]
pub struct SyncCell {
    /// Number of acknowledged commits.
    pub commits: u64,
    /// Number of calls by kind.
    pub syncs: Syncs,
    /// Number of all calls divided by the number of commits.
    pub per_commit: f64,
}

/// Syncs of a column that writes, with the name of the column.
#[derive(Clone, Debug, serde::Serialize)]
pub struct SyncRow {
    /// The column.
    pub label: String,
    /// The counts.
    #[serde(flatten)]
    pub cell: SyncCell,
}

/// Results of a store.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// Name.
    pub name: &'static str,
    /// Settings that give the store its durability.
    pub setting: &'static str,
    /// One cell per column.
    pub cells: Vec<Cell>,
    /// Bytes of its files at the end.
    pub file_bytes: u64,
    /// Counted syncs, one row per column that writes.
    pub syncs: Option<Vec<SyncRow>>,
    /// The reason why syncs could not be counted.
    pub syncs_missing: Option<String>,
}

/// The results of the benchmark.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Number of keys loaded into each store.
    pub keys: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Single puts per column.
    pub operations: u64,
    /// Puts per column of batches.
    pub batched: u64,
    /// Puts per batch.
    pub batch: usize,
    /// Lookups per column.
    pub reads: u64,
    /// Ranges per column.
    pub ranges: u64,
    /// Number of rounds.
    pub rounds: usize,
    /// Directory of the files.
    pub backing: PathBuf,
    /// Failure that acknowledged writes survive.
    pub durability: String,
    /// Seed of keys and their order.
    pub seed: u64,
    /// Number of pairs in every store at the end. All were compared.
    pub pairs_at_end: u64,
    /// Number of keys of the stores whose syncs were counted.
    pub counted_keys: u64,
    /// The columns.
    pub columns: Vec<Column>,
    /// The stores, Bristlecone first.
    pub rows: Vec<Row>,
    /// True if this build has no competitors.
    pub others_missing: bool,
}

const LABEL_WIDTH: usize = 26;
const CELL_WIDTH: usize = 22;

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(
            f,
            "{} keys of 20 bytes, values of {}, {} durability on {}; median of {} rounds (slowest and fastest: --json), \
             the stores in turn",
            thousands(self.keys as f64),
            self.value_bytes,
            self.durability,
            self.backing.display(),
            self.rounds
        )?;
        writeln!(
            f,
            "a column: {} puts, {} in batches, {} gets, {} ranges; pairs a second, ranges a second for \"range of {RANGE_PAIRS}\"; \
             x: by {}'s\n",
            thousands(self.operations as f64),
            thousands(self.batched as f64),
            thousands(self.reads as f64),
            thousands(self.ranges as f64),
            ours::NAME,
        )?;
        self.speeds(f)?;
        self.syncs(f)?;
        writeln!(f)?;
        for row in &self.rows {
            writeln!(f, "{}: {}", row.name, row.setting)?;
        }
        writeln!(
            f,
            "\nEvery answer was right; at the end every store was opened again and held the same {} pairs.",
            thousands(self.pairs_at_end as f64)
        )?;
        if self.others_missing {
            writeln!(
                f,
                "To measure LMDB, RocksDB, redb, fjall and Berkeley DB in the same run, build with `--features competitors` (two are the \
                 system's: apt-get install librocksdb-dev libdb5.3-dev)."
            )?;
        }
        Ok(())
    }
}

impl Report {
    fn head(&self, f: &mut Formatter<'_>, what: &str) -> Result {
        write!(f, "{what:LABEL_WIDTH$}")?;
        for row in &self.rows {
            write!(f, "{:>CELL_WIDTH$}", row.name)?;
        }
        writeln!(f)
    }

    fn speeds(&self, f: &mut Formatter<'_>) -> Result {
        self.head(f, "a second")?;
        for (number, column) in self.columns.iter().enumerate() {
            write!(f, "{:LABEL_WIDTH$}", column.label)?;
            for row in &self.rows {
                let text = row.cells.get(number).map_or_else(String::new, |cell| match row.name {
                    ours::NAME => thousands(cell.per_second),
                    _ => format!("{} {:>6.2}x", thousands(cell.per_second), cell.ratio),
                });
                write!(f, "{text:>CELL_WIDTH$}")?;
            }
            writeln!(f)?;
        }
        write!(f, "{:LABEL_WIDTH$}", "MB of files at the end")?;
        for row in &self.rows {
            write!(f, "{:>CELL_WIDTH$}", thousands(row.file_bytes as f64 / 1e6))?;
        }
        writeln!(f)
    }

    fn syncs(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(
            f,
            "\nSyncs a commit, counted in the kernel (a seccomp filter around each store's threads stops and counts fsync, \
             fdatasync,\nmsync that waits, sync_file_range, syncfs and writes to files opened for synchronous writing), in a pass \
             of its own\nover {} keys, so that counting costs no measured time:",
            thousands(self.counted_keys as f64)
        )?;
        self.head(f, "syncs a commit")?;
        let longest = self.rows.iter().filter_map(|row| row.syncs.as_ref()).max_by_key(|syncs| syncs.len());
        for (number, line) in longest.into_iter().flatten().enumerate() {
            write!(f, "{:LABEL_WIDTH$}", line.label)?;
            for row in &self.rows {
                let found = row.syncs.as_ref().and_then(|syncs| syncs.get(number));
                let text =
                    found.map_or_else(|| "-".to_owned(), |found| format!("{:.3}", found.cell.per_commit));
                write!(f, "{text:>CELL_WIDTH$}")?;
            }
            writeln!(f)?;
        }
        for row in &self.rows {
            if let Some(reason) = &row.syncs_missing {
                writeln!(f, "{}: not counted: {reason}", row.name)?;
            }
            let kinds = row.syncs.iter().flatten().fold(String::new(), |mut kinds, line| {
                let met = line.cell.syncs.named().into_iter().filter(|(_, count)| *count > 0);
                for (kind, count) in met {
                    let before = if kinds.is_empty() { "" } else { "; " };
                    // Writing to a string cannot fail.
                    let _ = write!(
                        kinds,
                        "{before}{count} {kind} in {} commits ({})",
                        line.cell.commits, line.label
                    );
                }
                kinds
            });
            if !kinds.is_empty() {
                writeln!(f, "{}: {kinds}", row.name)?;
            }
        }
        Ok(())
    }
}
