//! `bench reopen`: time to open a store that was not closed, by number of keys.
//!
//! The benchmark measures the line engine, the wB+-Tree, and the CDDS B-Tree in two variants. After a crash, the CDDS B-Tree removes
//! the crash's traces during use (lazy), or before it opens (scan, algorithm 6 of the thesis).
//!
//! The tree is left as a killed process leaves it: without a close, with the pages of its file in the page cache. It is then mapped at
//! another address and opened. The measured time runs from before the mapping to the first key read. That key and its value are checked. In
//! the last round all keys are counted.
//!
//! A further open shows when lookups reach their full speed. One thread looks up random keys and checks their values. A second thread does
//! the index's background work; with the CDDS B-Tree it reads all pairs. The rate of lookups is measured in windows of 5 ms. The first
//! thread goes on for 60 windows after the second one has ended. Their median is the full rate. A window is slow if the median of it and the
//! next four is below 90 % of the full rate. Full speed begins after the last slow window.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::index::{Create, Form, Index, kind};
use bptree::{Slotted, Tree, TreeOptions, WriteAtomic};
use cdds::Recovery;
use index::Words;
use pmem::{Durability, Found, Medium, Native};

use crate::{Error, scratch, wrong};

/// Parameters of the benchmark.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of keys.
    pub keys: Vec<u64>,
    /// Number of times that each store is opened; medians are reported.
    pub rounds: usize,
    /// Directory for the files.
    pub backing: PathBuf,
}

/// Result for one number of keys.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// The tree and its recovery variant.
    pub tree: &'static str,
    /// Number of keys in the store.
    pub keys: u64,
    /// Median time from the mapping to the first key read, in microseconds.
    pub open_us: f64,
    /// Maximum time, in microseconds.
    pub open_us_max: f64,
    /// Time after that until all keys are counted and, with `line`, all leaves are in the directory, in microseconds; measured once, with
    /// no other work beside it. (With `cdds`, the time to read all pairs.)
    pub counted_us: f64,
    /// Lookups of random keys beside the background work: microseconds from before the mapping until they reach [`FULL_SHARE`] of their
    /// full rate and keep it.
    pub full_speed_us: f64,
    /// The full rate: lookups per second after the background work.
    pub full_rate: f64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// Addresses that each open reserves. No mapping is released before the end, and the addresses of a process end at 128 TiB.
const RESERVED_BYTES: u64 = 1 << 38;
/// Share of the full rate from which lookups have full speed.
pub const FULL_SHARE: f64 = 0.9;
/// Length of the windows in which lookups are counted.
const WINDOW: Duration = Duration::from_millis(5);
/// Number of windows after the background work. Their median is the full rate.
const WINDOWS_AFTER: usize = 60;

/// Results for all numbers of keys.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Directory of the files.
    pub backing: PathBuf,
    /// Number of times that each store was opened.
    pub rounds: usize,
    /// One row per tree and number of keys.
    pub rows: Vec<Row>,
}

/// A tree that this benchmark opens.
trait Subject: Sized + Sync {
    fn create(medium: Native) -> pmem::Result<Self>;
    fn open(medium: Native, recovery: Recovery) -> pmem::Result<(Self, Found)>;
    fn put(&self, key: u64, value: u64) -> pmem::Result<bool>;
    fn get(&self, key: u64, value: &mut u64) -> pmem::Result<bool>;
    /// Counts the keys.
    fn count(&self) -> pmem::Result<u64>;
    fn file_bytes(&self) -> u64;
}

const PATH: &str = "reopen";
const ENGINE: &str = "wbtree";
const NODE_LINES: u64 = 16;
type Wbtree = Tree<Native, Words, (Slotted, Slotted), WriteAtomic>;
type Line = line::Line<Native, Words>;
type Cdds = cdds::Tree<Native, Words>;

impl Subject for Wbtree {
    fn create(medium: Native) -> pmem::Result<Self> {
        Tree::create(medium, &TreeOptions::new(ENGINE, NODE_LINES, Durability::Process))
    }
    fn open(medium: Native, _: Recovery) -> pmem::Result<(Self, Found)> {
        Tree::open(medium, Path::new(PATH), ENGINE, Durability::Process, 1024)
    }
    fn put(&self, key: u64, value: u64) -> pmem::Result<bool> {
        self.put(&key, &value)
    }
    fn get(&self, key: u64, value: &mut u64) -> pmem::Result<bool> {
        self.get(&key, Some(value))
    }
    fn count(&self) -> pmem::Result<u64> {
        while self.count_some(1 << 16)? {}
        Ok(self.len().0)
    }
    fn file_bytes(&self) -> u64 {
        self.region().medium().len()
    }
}

impl Subject for Line {
    fn create(medium: Native) -> pmem::Result<Self> {
        Create::create(medium, &Form::new(line::ENGINE, line::ABOUT.default_lines, Durability::Process))
    }
    fn open(medium: Native, _: Recovery) -> pmem::Result<(Self, Found)> {
        let form = Form::new(line::ENGINE, line::ABOUT.default_lines, Durability::Process);
        Create::open(medium, Path::new(PATH), &form)
    }
    fn put(&self, key: u64, value: u64) -> pmem::Result<bool> {
        Index::<kind::U64>::put(self, &key, &value, ::index::WriteOptions::default())
    }
    fn get(&self, key: u64, value: &mut u64) -> pmem::Result<bool> {
        Index::<kind::U64>::get(self, &key, Some(value))
    }
    fn count(&self) -> pmem::Result<u64> {
        Index::<kind::U64>::count_all(self)?;
        Ok(Index::<kind::U64>::len(self).keys)
    }
    fn file_bytes(&self) -> u64 {
        self.region().medium().len()
    }
}

impl Subject for Cdds {
    fn create(medium: Native) -> pmem::Result<Self> {
        Self::create(medium, &cdds::Options::new(NODE_LINES, Durability::Process))
    }
    fn open(medium: Native, recovery: Recovery) -> pmem::Result<(Self, Found)> {
        let options = cdds::Options::new(NODE_LINES, Durability::Process);
        Self::open(medium, Path::new(PATH), &options, recovery)
    }
    fn put(&self, key: u64, value: u64) -> pmem::Result<bool> {
        self.put(&key, &value)
    }
    fn get(&self, key: u64, value: &mut u64) -> pmem::Result<bool> {
        self.get(&key, Some(value))
    }
    fn count(&self) -> pmem::Result<u64> {
        let (mut key, mut value, mut keys) = (0, 0, 0);
        let mut cursor = self.cursor();
        while cursor.next(&mut key, &mut value)? {
            keys += 1;
        }
        Ok(keys)
    }
    fn file_bytes(&self) -> u64 {
        self.region().medium().len()
    }
}

/// Runs the benchmark.
///
/// # Errors
/// `Pmem` or `File` if the backing cannot be used; `Wrong` if a reopened tree was closed, lacks the checked pair, or has another number of
/// keys.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Report, Error> {
    let mut rows = Vec::new();
    for &keys in &options.keys {
        rows.extend(measure::<Line>(options, keys, &[(line::ENGINE, Recovery::Lazy)], progress)?);
        rows.extend(measure::<Wbtree>(options, keys, &[(ENGINE, Recovery::Lazy)], progress)?);
        let both = [("cdds, lazy", Recovery::Lazy), ("cdds, scan", Recovery::Scan)];
        rows.extend(measure::<Cdds>(options, keys, &both, progress)?);
    }
    Ok(Report { backing: options.backing.clone(), rounds: options.rounds, rows })
}

fn measure<T: Subject>(
    options: &Options,
    keys: u64,
    kinds: &[(&'static str, Recovery)],
    progress: &dyn Fn(&str),
) -> Result<Vec<Row>, Error> {
    let name = kinds[0].0;
    progress(&format!("storing {keys} keys, {name}"));
    let file = scratch::file(&options.backing, PATH)?;
    let map = || -> Result<Native, Error> {
        let file: File =
            file.try_clone().map_err(|source| Error::File { path: options.backing.clone(), source })?;
        Ok(Native::map(file, Path::new(PATH), RESERVED_BYTES, Durability::Process)?)
    };
    let tree = T::create(map()?)?;
    let key = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for n in 0..keys {
        tree.put(key(n), n)?;
    }
    let file_bytes = tree.file_bytes();
    // A killed process runs no destructors. (The mapping stays until this process ends.)
    std::mem::forget(tree);
    let mut rows = Vec::new();
    for &(name, recovery) in kinds {
        let (mut times, mut counted_us) = (Vec::new(), 0.0);
        for round in 0..options.rounds {
            progress(&format!("opening {keys} keys, {name}, round {}", round + 1));
            let start = Instant::now();
            let (tree, found) = T::open(map()?, recovery)?;
            let mut value = 0;
            let there = tree.get(key(keys / 2), &mut value)?;
            times.push(start.elapsed().as_nanos() as f64 / 1000.0);
            if found != Found::InUse || !there || value != keys / 2 {
                return Err(wrong(name, format!("{found:?}, key {there}, value {value}")));
            }
            if round + 1 == options.rounds {
                let start = Instant::now();
                let met = tree.count()?;
                counted_us = start.elapsed().as_nanos() as f64 / 1000.0;
                if met != keys {
                    return Err(wrong(name, format!("{met} keys of {keys} after reopening")));
                }
            }
            std::mem::forget(tree);
        }
        progress(&format!("lookups after an open, {keys} keys, {name}"));
        let start = Instant::now();
        let (tree, _) = T::open(map()?, recovery)?;
        let (full_speed_us, full_rate) = full_speed(&tree, start, name, (keys, &key))?;
        std::mem::forget(tree);
        times.sort_by(f64::total_cmp);
        let (open_us, open_us_max) = (times[times.len() / 2], times[times.len() - 1]);
        rows.push(Row {
            tree: name,
            keys,
            open_us,
            open_us_max,
            counted_us,
            full_speed_us,
            full_rate,
            file_bytes,
        });
    }
    Ok(rows)
}

/// Looks up random keys of a tree that was just opened, while a second thread does its background work. Returns the microseconds from
/// `start` to the full speed, and the full rate.
fn full_speed<T: Subject>(
    tree: &T,
    start: Instant,
    name: &'static str,
    (keys, key): (u64, &dyn Fn(u64) -> u64),
) -> Result<(f64, f64), Error> {
    let (done, mut random) = (AtomicBool::new(false), fastrand::Rng::with_seed(7));
    // The start and the rate of each window.
    let mut windows: Vec<(Duration, f64)> = Vec::new();
    std::thread::scope(|scope| {
        let background = scope.spawn(|| {
            let counted = tree.count();
            done.store(true, Ordering::Release);
            counted
        });
        let (mut value, mut after) = (0, 0);
        while after < WINDOWS_AFTER {
            after += usize::from(done.load(Ordering::Acquire));
            let (begin, mut lookups) = (Instant::now(), 0_u32);
            while begin.elapsed() < WINDOW {
                for _ in 0..64 {
                    let n = random.u64(..keys);
                    let found = tree.get(key(n), &mut value)?;
                    if !found || value != n {
                        return Err(wrong(name, format!("key number {n}: found {found}, value {value}")));
                    }
                }
                lookups += 64;
            }
            windows.push((begin - start, f64::from(lookups) / begin.elapsed().as_secs_f64()));
        }
        background
            .join()
            .map_or_else(|panic| std::panic::resume_unwind(panic), |counted| Ok(counted.map(drop)?))
    })?;
    let mut last: Vec<f64> = windows.iter().rev().take(WINDOWS_AFTER).map(|(_, rate)| *rate).collect();
    last.sort_by(f64::total_cmp);
    let full_rate = last[last.len() / 2];
    let is_full = |at: usize| {
        // Other work of the machine may slow down a single window: the median of five counts.
        let mut rates: Vec<f64> = windows[at..].iter().take(5).map(|(_, rate)| *rate).collect();
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2] >= FULL_SHARE * full_rate
    };
    let slow = (0..windows.len() - WINDOWS_AFTER).rev().find(|at| !is_full(*at));
    let full = slow.map_or(0, |at| at + 1);
    Ok((windows[full].0.as_nanos() as f64 / 1000.0, full_rate))
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "opening a store that was not closed, on {}, median of {}\n",
            self.backing.display(),
            self.rounds
        )?;
        writeln!(
            f,
            "{:12}{:>12}{:>14}{:>14}{:>14}{:>16}{:>16}{:>16}",
            "tree", "keys", "open us", "slowest us", "counted us", "full speed us", "lookups/s", "file bytes"
        )?;
        for row in &self.rows {
            writeln!(
                f,
                "{:12}{:>12}{:>14.0}{:>14.0}{:>14.0}{:>16.0}{:>16.0}{:>16}",
                row.tree,
                row.keys,
                row.open_us,
                row.open_us_max,
                row.counted_us,
                row.full_speed_us,
                row.full_rate,
                row.file_bytes
            )?;
        }
        Ok(())
    }
}
