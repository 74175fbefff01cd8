//! `bench reopen`: how long a store that was not closed takes to open again, at growing numbers of keys.
//!
//! The tree is left as a killed process leaves it: in the middle of its life, with its file's pages in the page cache. It is
//! then mapped anew, elsewhere in memory, and opened; the time runs from before the mapping to the first key read. Every
//! reopened tree is counted to the end and compared with what was stored.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use pmem::{Durability, Native};
use tree::{Slotted, Tree, TreeOptions, Words, WriteAtomic};

use crate::Error;
use crate::scratch;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of keys.
    pub keys: Vec<u64>,
    /// Times that each store is opened; medians are reported.
    pub rounds: usize,
    /// Directory for the files.
    pub backing: PathBuf,
}

/// One size.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// Keys in the store.
    pub keys: u64,
    /// Microseconds from mapping to the first key read, median.
    pub open_us: f64,
    /// The slowest.
    pub open_us_max: f64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// All sizes.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Directory of the files.
    pub backing: PathBuf,
    /// Times that each store was opened.
    pub rounds: usize,
    /// One row a size.
    pub rows: Vec<Row>,
}

type Subject = Tree<Native, Words, (Slotted, Slotted), WriteAtomic>;
const ENGINE: &str = "wbtree";

/// Runs it.
///
/// # Errors
/// `Pmem` or `File` if the backing cannot be used; `Wrong` if a reopened store is not what was left.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Report, Error> {
    let mut rows = Vec::new();
    for &keys in &options.keys {
        progress(&format!("storing {keys} keys"));
        let file = scratch::file(&options.backing, "reopen")?;
        let map = || -> Result<Native, Error> {
            let file: File =
                file.try_clone().map_err(|source| Error::File { path: options.backing.clone(), source })?;
            Ok(Native::map(file, Path::new("reopen"), 1 << 40, Durability::Process)?)
        };
        let tree = Subject::create(map()?, &TreeOptions::new(ENGINE, 16, Durability::Process))?;
        let key = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for n in 0..keys {
            tree.put(&key(n), &n)?;
        }
        let file_bytes = pmem::Medium::len(tree.region().medium());
        // A killed process runs no destructor. (Its mapping stays behind until this one ends.)
        std::mem::forget(tree);
        let mut times = Vec::new();
        for round in 0..options.rounds {
            progress(&format!("opening {keys} keys, round {}", round + 1));
            let start = Instant::now();
            let (tree, found) =
                Subject::open(map()?, Path::new("reopen"), ENGINE, Durability::Process, 1024)?;
            let mut value = 0;
            let there = tree.get(&key(keys / 2), Some(&mut value))?;
            times.push(start.elapsed().as_nanos() as f64 / 1000.0);
            if found != pmem::Found::InUse || !there || value != keys / 2 {
                return Err(wrong(format!("{found:?}, key {there}, value {value}")));
            }
            if round + 1 == options.rounds {
                while tree.count_some(1 << 16)? {}
                if tree.len() != (keys, false) {
                    return Err(wrong(format!("{:?} keys of {keys}", tree.len())));
                }
            }
            std::mem::forget(tree);
        }
        times.sort_by(f64::total_cmp);
        let (open_us, open_us_max) = (times[times.len() / 2], times[times.len() - 1]);
        rows.push(Row { keys, open_us, open_us_max, file_bytes });
    }
    Ok(Report { backing: options.backing.clone(), rounds: options.rounds, rows })
}

fn wrong(what: String) -> Error {
    Error::Wrong { who: "reopened store".into(), what }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "opening a store that was not closed, on {}, median of {}\n",
            self.backing.display(),
            self.rounds
        )?;
        writeln!(f, "{:>12}{:>14}{:>14}{:>16}", "keys", "open us", "slowest us", "file bytes")?;
        for row in &self.rows {
            writeln!(
                f,
                "{:>12}{:>14.0}{:>14.0}{:>16}",
                row.keys, row.open_us, row.open_us_max, row.file_bytes
            )?;
        }
        Ok(())
    }
}
