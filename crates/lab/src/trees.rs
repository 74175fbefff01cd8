//! `bench trees`: search, insert, update, delete and scans, in nanoseconds and as multiples of the floor of the same run.
//!
//! All contenders are loaded with the same keys in the same random order; then every round measures every operation on
//! every contender, one after the other, so that what neighbours do to the machine meets all of them. Medians of the
//! rounds are reported. Every batch's answers are checked.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Instant;

use pmem::native::{FenceOp, FlushOp};
use pmem::{Durability, Native};
use tree::layout::Layout;
use tree::{Slotted, Sorted, Tree, TreeOptions, Volatile, WriteAtomic};

use crate::Error;
use crate::contender::{Contender, OurTree};
use crate::floor::Floor;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Keys in each tree.
    pub keys: u64,
    /// Operations of a batch; 0 for a tenth of the keys, at most a million.
    pub operations: u64,
    /// Rounds; medians are reported.
    pub rounds: usize,
    /// Cache lines of a node; several sizes are measured in one run, so that they can be compared.
    pub node_lines: Vec<u64>,
    /// Directory whose file system backs trees and floor.
    pub backing: PathBuf,
    /// Flush with clflush and fence with mfence, as the papers did.
    pub paper_instructions: bool,
    /// Seed of keys and order.
    pub seed: u64,
}

/// One contender's medians.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// Contender.
    pub name: String,
    /// Operation to nanoseconds.
    pub ns: BTreeMap<&'static str, f64>,
    /// Bytes of its file.
    pub bytes: Option<u64>,
}

/// The table.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Keys in each tree.
    pub keys: u64,
    /// Operations of a batch.
    pub operations: u64,
    /// Rounds.
    pub rounds: usize,
    /// Cache lines of a node, the sizes measured.
    pub node_lines: Vec<u64>,
    /// Directory that backed trees and floor.
    pub backing: PathBuf,
    /// Flush instruction.
    pub flush: String,
    /// A dependent cache-missing read, ns.
    pub read_ns: f64,
    /// A dependent read, then store, flush, fence, ns.
    pub flush_ns: f64,
    /// A dependent read within as many bytes as a tree's inner nodes have, ns: near R if the caches do not hold them.
    pub inner_ns: f64,
    /// Those bytes.
    pub inner_bytes: u64,
    /// One row a contender.
    pub rows: Vec<Row>,
}

/// Operations in the order of the table, with the floor that they are held against.
pub const OPERATIONS: [(&str, bool); 7] = [
    ("load", true),
    ("search hit", false),
    ("search miss", false),
    ("insert", true),
    ("update", true),
    ("delete", true),
    ("scan 100", false),
];

/// Runs it, telling `progress` what is going on.
///
/// # Errors
/// `Pmem` or `File` if the backing cannot be used; `Wrong` if a contender gives a wrong answer.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Report, Error> {
    let operations = match options.operations {
        0 => (options.keys / 10).clamp(1, 1_000_000),
        n => n,
    };
    let floor_bytes = (options.keys * 24).max(64 << 20).next_multiple_of(1 << 20);
    progress("measuring the floor");
    let floor_medium = open(options, "floor", floor_bytes * 2, Durability::Power)?;
    let floor = Floor::prepare(&floor_medium, floor_bytes, options.seed)?;
    // Of leaves 70 % full, one separator each in inner nodes 70 % full.
    let leaf = <Slotted>::shape(options.node_lines[0], 1, 1).capacity as u64 * 7 / 10;
    let inner_bytes = (options.keys / leaf * 16 * 10 / 7).next_multiple_of(4096).max(4096);
    let inner_medium = open(options, "inner", inner_bytes * 2, Durability::Power)?;
    let inner = Floor::prepare(&inner_medium, inner_bytes, options.seed)?;
    let mut contenders = contenders(options, floor_bytes)?;
    let mut keys = keys(options.seed, 0, options.keys);
    fastrand::Rng::with_seed(options.seed).shuffle(&mut keys);
    let mut times: Vec<BTreeMap<&str, Vec<f64>>> = vec![BTreeMap::new(); contenders.len()];
    for (contender, times) in contenders.iter_mut().zip(&mut times) {
        progress(&format!("loading {}", contender.name()));
        measure(contender.as_mut(), times, "load", &keys, |c| c.insert(&keys), options.keys)?;
    }
    let (mut reads, mut flushes, mut inners) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.rounds {
        progress(&format!("round {} of {}", round + 1, options.rounds));
        reads.push(floor.read_ns(&floor_medium, operations.max(1_000_000)));
        inners.push(inner.read_ns(&inner_medium, operations.max(1_000_000)));
        flushes.push(floor.flush_ns(&floor_medium, operations.max(1_000_000)));
        let mut random = fastrand::Rng::with_seed(options.seed + 1 + round as u64);
        let hits: Vec<u64> = (0..operations).map(|_| keys[random.usize(..keys.len())]).collect();
        let fresh = self::keys(options.seed, options.keys + round as u64 * operations, operations);
        let scans = &hits[..(operations as usize / 20).max(1)];
        let most = hits.len() as u64;
        for (contender, times) in contenders.iter_mut().zip(&mut times) {
            let c = contender.as_mut();
            measure(c, times, "search hit", &hits, |c| c.get(&hits), most)?;
            measure(c, times, "search miss", &fresh, |c| c.get(&fresh), 0)?;
            measure(c, times, "insert", &fresh, |c| c.insert(&fresh), operations)?;
            measure(c, times, "update", &hits, |c| c.update(&hits, round as u64), most)?;
            measure(c, times, "delete", &fresh, |c| c.delete(&fresh), operations)?;
            let start = Instant::now();
            let met = c.scan(scans, 100)?;
            times.entry("scan 100").or_default().push(start.elapsed().as_nanos() as f64 / scans.len() as f64);
            let greatest_scans = scans.len() as u64 * 100;
            if met > greatest_scans || met < greatest_scans.min(options.keys) / 2 {
                return Err(wrong(c, format!("{met} pairs in {} scans of 100", scans.len())));
            }
        }
    }
    let rows = contenders
        .iter()
        .zip(times)
        .map(|(contender, times)| Row {
            name: contender.name().into(),
            ns: times.into_iter().map(|(operation, ns)| (operation, median(ns))).collect(),
            bytes: contender.bytes(),
        })
        .collect();
    Ok(Report {
        keys: options.keys,
        operations,
        rounds: options.rounds,
        node_lines: options.node_lines.clone(),
        backing: options.backing.clone(),
        flush: format!("{:?}", floor_medium.flush_op()),
        read_ns: median(reads),
        flush_ns: median(flushes),
        inner_ns: median(inners),
        inner_bytes,
        rows,
    })
}

fn measure(
    contender: &mut dyn Contender,
    times: &mut BTreeMap<&str, Vec<f64>>,
    operation: &'static str,
    keys: &[u64],
    run: impl FnOnce(&mut dyn Contender) -> pmem::Result<u64>,
    expected: u64,
) -> Result<(), Error> {
    let start = Instant::now();
    let answer = run(contender)?;
    times.entry(operation).or_default().push(start.elapsed().as_nanos() as f64 / keys.len() as f64);
    if answer != expected {
        return Err(wrong(
            contender,
            format!("{operation}: {answer} of {} keys, expected {expected}", keys.len()),
        ));
    }
    Ok(())
}

fn wrong(contender: &dyn Contender, what: String) -> Error {
    Error::Wrong { who: contender.name().into(), what }
}

fn contenders(options: &Options, bytes: u64) -> Result<Vec<Box<dyn Contender>>, Error> {
    let medium = |name: &str, durability| open(options, name, bytes * 16, durability);
    let (process, power) = (Durability::Process, Durability::Power);
    let mut all: Vec<Box<dyn Contender>> = vec![Box::new(BTreeMap::new())];
    for &lines in &options.node_lines {
        let tree = |name: &str, durability| TreeOptions::new(name, lines, durability);
        let name = |name: &str| format!("{name} {}", lines * pmem::LINE);
        let btree = Tree::<_, _, (Sorted, Sorted), Volatile>::create(
            medium("btree", process)?,
            &tree("btree", process),
        )?;
        all.push(Box::new(OurTree::new(name("btree"), btree)));
        for (word, durability) in [("process", process), ("power", power)] {
            let made = medium(word, durability)?;
            let wbtree =
                Tree::<_, _, (Slotted, Slotted), WriteAtomic>::create(made, &tree("wbtree", durability))?;
            all.push(Box::new(OurTree::new(name(&format!("wbtree {word}")), wbtree)));
        }
    }
    Ok(all)
}

fn open(options: &Options, name: &str, max_bytes: u64, durability: Durability) -> Result<Native, Error> {
    let file = scratch_file(&options.backing, name)?;
    let medium = Native::map(file, Path::new(name), max_bytes, durability)?;
    Ok(if options.paper_instructions {
        medium.with_instructions(FlushOp::Clflush, FenceOp::Mfence)
    } else {
        medium
    })
}

/// A file of the backing that disappears with its last user.
pub(crate) fn scratch_file(backing: &Path, name: &str) -> Result<File, Error> {
    let path = backing.join(format!("bristlecone-bench-{}-{name}", std::process::id()));
    let made = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let file = made.map_err(|source| Error::File { path: path.clone(), source })?;
    std::fs::remove_file(&path).map_err(|source| Error::File { path, source })?;
    Ok(file)
}

/// Distinct pseudo-random keys: a bijection of the numbers `from..from + count`.
fn keys(seed: u64, from: u64, count: u64) -> Vec<u64> {
    (from..from + count)
        .map(|n| {
            // The finaliser of MurmurHash3, a bijection on 64 bits.
            let mut x = n.wrapping_add(seed << 40);
            x = (x ^ x >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
            x = (x ^ x >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
            x ^ x >> 33
        })
        .collect()
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} keys, batches of {}, median of {} rounds, {} on {}",
            self.keys,
            self.operations,
            self.rounds,
            self.flush,
            self.backing.display()
        )?;
        writeln!(
            f,
            "floor: R = {:.0} ns (dependent read), F = {:.0} ns (and store, flush, fence); {:.0} ns for a dependent read in \
             the {:.1} MB of a tree's inner nodes\n",
            self.read_ns,
            self.flush_ns,
            self.inner_ns,
            self.inner_bytes as f64 / 1e6
        )?;
        write!(f, "{:20}", "ns (xR, xF)")?;
        for (operation, _) in OPERATIONS {
            write!(f, "{operation:>20}")?;
        }
        writeln!(f)?;
        for row in &self.rows {
            write!(f, "{:20}", row.name)?;
            for (operation, _) in OPERATIONS {
                let ns = row.ns.get(operation).copied().unwrap_or(f64::NAN);
                let cell = format!("{ns:.0} ({:.2}R {:.2}F)", ns / self.read_ns, ns / self.flush_ns);
                write!(f, "{cell:>20}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
