//! `bench trees`: search, insert, update, delete and scan, in nanoseconds and as multiples of the baseline of the same run.
//!
//! All competitors get the same keys in the same random order. Each round measures every operation on every competitor in turn, so that
//! other load on the machine affects all of them. Medians of the rounds are reported. The answers of every batch are checked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bptree::Slotted;
use bptree::layout::Layout;
use index::About;
use index::Fixed;
use pmem::{Counter, Durability, Memory, Native, Observed, Observer};

use crate::floor::Floor;
use crate::keys::Random as _;
use crate::measured::{Making, Measured, of_fixed, of_words};
use crate::scratch::{self, Instructions};
use crate::{Error, median, wrong};

/// Parameters of the benchmark.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of keys in each tree.
    pub keys: u64,
    /// Operations of a batch; 0 for a tenth of the keys, at most a million.
    pub operations: u64,
    /// Number of rounds; medians are reported.
    pub rounds: usize,
    /// Engines to measure. Durable engines are measured at each durability.
    pub engines: Vec<&'static About>,
    /// Cache lines of a node; if empty, each engine's default. Several sizes are measured in one run, so that they are comparable. An
    /// engine that does not support a size is omitted there.
    pub node_lines: Vec<u64>,
    /// Bytes of a value: 8, or, stored inside the entries of 4 KiB nodes, a multiple of 8 up to 120.
    pub value_bytes: u64,
    /// Directory whose file system backs the trees and the baseline.
    pub backing: PathBuf,
    /// Instructions that make a change durable.
    pub instructions: Instructions,
    /// Counts the instructions of each operation, too, below Valgrind.
    pub count_instructions: bool,
    /// Seed of keys and their order.
    pub seed: u64,
}

/// Medians of one competitor.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// Name of the competitor.
    pub name: String,
    /// Nanoseconds by operation.
    pub ns: BTreeMap<&'static str, f64>,
    /// Bytes of its file after the load, which inserts all keys in random order.
    pub bytes: Option<u64>,
    /// Fences per insert, alone and in groups of [`GROUP`], counted on a tree of at most 400,000 keys. `None` except at power durability.
    pub fences: Option<[f64; 2]>,
    /// Lines flushed per insert, counted in the same way.
    pub flushes: Option<[f64; 2]>,
    /// Instructions by operation, counted on an index of at most 300,000 keys ([`crate::instructions`]). `None` if they were not counted,
    /// for the map of the standard library, and for a durable engine at process durability.
    pub executed: Option<BTreeMap<&'static str, f64>>,
}

/// The table of results.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Number of keys in each tree.
    pub keys: u64,
    /// Number of operations per batch.
    pub operations: u64,
    /// Number of rounds.
    pub rounds: usize,
    /// The measured numbers of cache lines of a node; empty for each engine's default.
    pub node_lines: Vec<u64>,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Directory that backed the trees and the baseline.
    pub backing: PathBuf,
    /// Flush instruction.
    pub flush: String,
    /// Nanoseconds of a dependent read with a cache miss.
    pub read_ns: f64,
    /// Nanoseconds of a dependent read, store, flush and fence.
    pub flush_ns: f64,
    /// Nanoseconds of a dependent read within [`inner_bytes`](Self::inner_bytes). Close to `read_ns` if the caches do not hold that many
    /// bytes.
    pub inner_ns: f64,
    /// Estimated bytes of the inner nodes of a tree.
    pub inner_bytes: u64,
    /// One row per competitor.
    pub rows: Vec<Row>,
}

/// Operations in the order of the table. True for operations that write: their baseline is F, that of the others R.
pub const OPERATIONS: [(&str, bool); 10] = [
    ("load", true),
    ("search hit", false),
    ("search miss", false),
    ("insert", true),
    ("update", true),
    ("delete", true),
    ("scan 100", false),
    ("get 64", false),
    ("insert 64", true),
    ("delete 64", true),
];

/// Number of keys per call of the last three operations.
pub const GROUP: usize = 64;
/// Maximum number of keys of the trees whose fences are counted.
const COUNTED_KEYS: u64 = 400_000;
/// Number of inserts whose fences are counted.
const COUNTED_INSERTS: u64 = 100 * GROUP as u64;

/// Runs the benchmark. Reports each step to `progress`.
///
/// # Errors
/// `Pmem` or `File` if the backing cannot be used; `ValueBytes` or `OneWord` for values of a size that no tree, or one of the engines, does
/// not support; `Wrong` if a competitor gives a wrong answer.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Report, Error> {
    let operations = match options.operations {
        0 => (options.keys / 10).clamp(1, 1_000_000),
        n => n,
    };
    let floor_bytes = (options.keys * 24).max(64 << 20).next_multiple_of(1 << 20);
    progress("measuring the floor");
    let floor_medium = open(options, "floor", floor_bytes * 2, Durability::Power)?;
    let floor = Floor::prepare(&floor_medium, floor_bytes, options.seed)?;
    // Assumes leaves that are 70 % full, and inner nodes that are 70 % full with one separator per leaf.
    let leaf =
        <Slotted>::shape(options.node_lines.first().copied().unwrap_or(16), 1, 1).capacity as u64 * 7 / 10;
    let inner_bytes = (options.keys / leaf * 16 * 10 / 7).next_multiple_of(4096).max(4096);
    let inner_medium = open(options, "inner", inner_bytes * 2, Durability::Power)?;
    let inner = Floor::prepare(&inner_medium, inner_bytes, options.seed)?;
    let mut competitors = competitors(options, floor_bytes)?;
    let mut keys = u64::range(options.seed, 0, options.keys);
    fastrand::Rng::with_seed(options.seed).shuffle(&mut keys);
    let mut times: Vec<BTreeMap<&str, Vec<f64>>> = vec![BTreeMap::new(); competitors.len()];
    // The rounds insert more keys and delete them again, so later the file is larger than these keys need.
    let mut loaded_bytes = Vec::new();
    for (competitor, times) in competitors.iter_mut().zip(&mut times) {
        progress(&format!("loading {}", competitor.name()));
        measure(competitor.as_mut(), times, "load", &keys, |c| c.insert(&keys), options.keys)?;
        loaded_bytes.push(competitor.bytes());
    }
    let (mut reads, mut flushes, mut inners) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.rounds {
        progress(&format!("round {} of {}", round + 1, options.rounds));
        reads.push(floor.read_ns(&floor_medium, operations.max(1_000_000)));
        inners.push(inner.read_ns(&inner_medium, operations.max(1_000_000)));
        flushes.push(floor.flush_ns(&floor_medium, operations.max(1_000_000)));
        let mut random = fastrand::Rng::with_seed(options.seed + 1 + round as u64);
        let hits: Vec<u64> = (0..operations).map(|_| keys[random.usize(..keys.len())]).collect();
        let fresh = u64::range(options.seed, options.keys + round as u64 * operations, operations);
        let scans = &hits[..(operations as usize / 20).max(1)];
        let most = hits.len() as u64;
        for (competitor, times) in competitors.iter_mut().zip(&mut times) {
            let c = competitor.as_mut();
            measure(c, times, "search hit", &hits, |c| c.get(&hits), most)?;
            measure(c, times, "search miss", &fresh, |c| c.get(&fresh), 0)?;
            measure(c, times, "insert", &fresh, |c| c.insert(&fresh), operations)?;
            measure(c, times, "update", &hits, |c| c.update(&hits, round as u64), most)?;
            measure(c, times, "delete", &fresh, |c| c.delete(&fresh), operations)?;
            let start = Instant::now();
            let met = c.scan(scans, 100)?;
            times.entry("scan 100").or_default().push(start.elapsed().as_nanos() as f64 / scans.len() as f64);
            let greatest_scans = scans.len() as u64 * 100;
            measure(c, times, "get 64", &hits, |c| c.get_many(&hits, GROUP), most)?;
            measure(c, times, "insert 64", &fresh, |c| c.insert_many(&fresh, GROUP), operations)?;
            measure(c, times, "delete 64", &fresh, |c| c.delete_many(&fresh, GROUP), operations)?;
            if met > greatest_scans || met < greatest_scans.min(options.keys) / 2 {
                return Err(wrong(c.name(), format!("{met} pairs in {} scans of 100", scans.len())));
            }
        }
    }
    let mut rows = Vec::new();
    for ((competitor, times), bytes) in competitors.iter().zip(times).zip(loaded_bytes) {
        let name = competitor.name();
        let counted = options.engines.iter().find_map(|engine| {
            let lines = lines_of(options, engine).into_iter().find(|l| name == power(engine, *l))?;
            Some((*engine, lines))
        });
        progress(&format!("counting the fences of {name}"));
        let counts = counted.map(|(engine, lines)| count_fences(options, engine, lines)).transpose()?;
        rows.push(Row {
            name: name.into(),
            ns: times.into_iter().map(|(operation, ns)| (operation, median(ns))).collect(),
            bytes,
            fences: counts.map(|[fences, _]| fences),
            flushes: counts.map(|[_, flushes]| flushes),
            executed: None,
        });
    }
    if options.count_instructions {
        count_instructions(options, &mut rows, progress)?;
    }
    Ok(Report {
        keys: options.keys,
        operations,
        rounds: options.rounds,
        node_lines: options.node_lines.clone(),
        value_bytes: options.value_bytes,
        backing: options.backing.clone(),
        flush: format!("{:?}", floor_medium.flush_op()),
        read_ns: median(reads),
        flush_ns: median(flushes),
        inner_ns: median(inners),
        inner_bytes,
        rows,
    })
}

/// Counts instructions for the rows of volatile trees and of trees at power durability.
fn count_instructions(options: &Options, rows: &mut [Row], progress: &dyn Fn(&str)) -> Result<(), Error> {
    let sizes = options.engines.iter().flat_map(|engine| {
        lines_of(options, engine).into_iter().map(move |node_lines| (*engine, node_lines))
    });
    let sizes: Vec<_> = sizes.collect();
    let counted = crate::instructions::count(options, &sizes, progress)?;
    for ((engine, lines), counts) in sizes.into_iter().zip(counted) {
        let name = if engine.durable { power(engine, lines) } else { volatile(engine, lines) };
        if let Some(row) = rows.iter_mut().find(|row| row.name == name) {
            row.executed = Some(counts);
        }
    }
    Ok(())
}

/// Name of the tree of a volatile engine.
fn volatile(engine: &About, node_lines: u64) -> String {
    format!("{} {}", engine.name, node_lines * pmem::LINE)
}

/// Name of the tree of an engine at power durability.
fn power(engine: &About, node_lines: u64) -> String {
    format!("{} power {}", engine.name, node_lines * pmem::LINE)
}

/// The numbers of cache lines with which an engine is measured.
fn lines_of(options: &Options, engine: &About) -> Vec<u64> {
    match options.node_lines.as_slice() {
        [] => vec![engine.default_lines],
        lines => lines.iter().copied().filter(|lines| engine.allows(*lines)).collect(),
    }
}

/// Fences and flushed lines per insert, each alone and in groups.
fn count_fences(options: &Options, engine: &'static About, node_lines: u64) -> Result<[[f64; 2]; 2], Error> {
    let counter = Arc::new(Counter::default());
    let payload_words = Fixed::words_of(options.value_bytes).ok_or(Error::ValueBytes(options.value_bytes))?;
    let keys_counted = options.keys.min(COUNTED_KEYS);
    // A node that has only a slot array holds seven entries, whatever its size.
    let entry_bytes = 64 + 16 * options.value_bytes + node_lines.min(16) * 16;
    let capacity = (16 << 20) + keys_counted * entry_bytes;
    let medium = Observed::new(Memory::new(capacity, 0), Arc::clone(&counter) as Arc<dyn Observer>);
    let (name, durability) = (engine.name.into(), Durability::Power);
    let making = Making { name, medium, node_lines, durability, payload_words };
    let mut tree = if payload_words > 1 { of_fixed(engine, making)? } else { of_words(engine, making)? };
    let mut keys = u64::range(options.seed, 0, keys_counted + 2 * COUNTED_INSERTS);
    fastrand::Rng::with_seed(options.seed).shuffle(&mut keys);
    let (loaded, fresh) = keys.split_at(keys_counted as usize);
    let (alone, grouped) = fresh.split_at(COUNTED_INSERTS as usize);
    tree.insert(loaded)?;
    counter.take();
    tree.insert(alone)?;
    let alone = counter.take();
    tree.insert_many(grouped, GROUP)?;
    let grouped = counter.take();
    let each = |count: u64| count as f64 / COUNTED_INSERTS as f64;
    Ok([[alone.fences_total(), grouped.fences_total()], [alone.flushes, grouped.flushes]]
        .map(|of| of.map(each)))
}

fn measure(
    competitor: &mut dyn Measured,
    times: &mut BTreeMap<&str, Vec<f64>>,
    operation: &'static str,
    keys: &[u64],
    run: impl FnOnce(&mut dyn Measured) -> pmem::Result<u64>,
    expected: u64,
) -> Result<(), Error> {
    let start = Instant::now();
    let answer = run(competitor)?;
    times.entry(operation).or_default().push(start.elapsed().as_nanos() as f64 / keys.len() as f64);
    if answer != expected {
        return Err(wrong(
            competitor.name(),
            format!("{operation}: {answer} of {} keys, expected {expected}", keys.len()),
        ));
    }
    Ok(())
}

fn competitors(options: &Options, bytes: u64) -> Result<Vec<Box<dyn Measured>>, Error> {
    let mut all: Vec<Box<dyn Measured>> = vec![Box::new(BTreeMap::new())];
    let payload_words = Fixed::words_of(options.value_bytes).ok_or(Error::ValueBytes(options.value_bytes))?;
    for engine in &options.engines {
        for node_lines in lines_of(options, engine) {
            let promises: &[_] = match engine.durable {
                true => &[(" process", Durability::Process), (" power", Durability::Power)],
                false => &[("", Durability::Process)],
            };
            for &(word, durability) in promises {
                let name = format!("{}{word} {}", engine.name, node_lines * pmem::LINE);
                let medium = open(options, engine.name, bytes * 16 * payload_words as u64, durability)?;
                let making = Making { name, medium, node_lines, durability, payload_words };
                all.push(if payload_words > 1 {
                    of_fixed(engine, making)?
                } else {
                    of_words(engine, making)?
                });
            }
        }
    }
    Ok(all)
}

fn open(options: &Options, name: &str, max_bytes: u64, durability: Durability) -> Result<Native, Error> {
    scratch::medium(&options.backing, name, max_bytes, durability, options.instructions)
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} keys, values of {} bytes, batches of {}, median of {} rounds, {} on {}",
            self.keys,
            self.value_bytes,
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
        write!(f, "{:24}", "ns (xR, xF)")?;
        for (operation, _) in OPERATIONS {
            write!(f, "{operation:>20}")?;
        }
        writeln!(f)?;
        for row in &self.rows {
            write!(f, "{:24}", row.name)?;
            for (operation, _) in OPERATIONS {
                let ns = row.ns.get(operation).copied().unwrap_or(f64::NAN);
                let cell = format!("{ns:.0} ({:.2}R {:.2}F)", ns / self.read_ns, ns / self.flush_ns);
                write!(f, "{cell:>20}")?;
            }
            writeln!(f)?;
        }
        for row in &self.rows {
            if let (Some([alone, grouped]), Some(flushed)) = (row.fences, row.flushes) {
                writeln!(
                    f,
                    "{}: {alone:.2} fences and {:.2} flushes an insert alone, {grouped:.3} and {:.2} in groups of {GROUP}",
                    row.name, flushed[0], flushed[1]
                )?;
            }
        }
        for row in &self.rows {
            if let Some(executed) = &row.executed {
                let counts = OPERATIONS
                    .iter()
                    .filter_map(|(operation, _)| Some((operation, executed.get(operation)?)));
                let counts: Vec<_> =
                    counts.map(|(operation, count)| format!("{operation} {count:.0}")).collect();
                writeln!(f, "{}: instructions: {}", row.name, counts.join(", "))?;
            }
        }
        Ok(())
    }
}
