//! `bench bwtree`: the Bw-tree compared with other ordered maps in memory, on the paper's workloads and on uniform keys [Bw-tree §VI].
//!
//! Each map is made anew for each workload and thread count, filled as the workload requires, and measured alone. Each thread runs a
//! contiguous part of the stream of operations. The value of every lookup that finds its key is checked. A lookup that finds nothing is a
//! fault only in the uniform workload, where every key exists.
//!
//! Our tree alone can be measured on larger workloads in addition: others need minutes for them.

mod caches;
mod maps;
mod report;
mod streams;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bwtree::Tree;
use competitors::maps::{Handle, Kind, Map};

use crate::verdict::Verdict;
use crate::{Error, median, wrong};
pub use caches::{Loads, lookups};
use competitors::place::Place;
use maps::{Ours, Own, Stored};
use streams::{Keys, Stream, What, Workload};

/// Name of our tree in tables.
const OURS: &str = "bwtree";
const BERKELEY: &str = "Berkeley DB";
const SKIP_LIST: &str = "skip list";
const STD: &str = "BTreeMap";
/// Maximum bytes stored in Berkeley DB. Its cache has four times this size.
const BERKELEY_BYTES: u64 = 2 << 30;

/// Parameters of the benchmark.
#[derive(Clone, Debug)]
pub struct Options {
    /// Factor for the paper's numbers of operations.
    pub scale: f64,
    /// Number of keys of the uniform workload.
    pub keys: u64,
    /// Thread counts.
    pub threads: Vec<usize>,
    /// Factor for the workloads on which our tree alone is measured with each number of threads. 0: it is not.
    pub larger: u32,
    /// Number of rounds; medians are reported.
    pub rounds: usize,
    /// Maximum lengths of delta chains to compare; empty for no comparison.
    pub chains: Vec<u32>,
    /// Number of keys in the run under Valgrind, which counts the memory loads of lookups by cache level. `None` omits this run.
    pub caches: Option<u64>,
    /// Directory for the files of Berkeley DB and for the output of Callgrind. Berkeley DB does not read its files while its cache holds
    /// all data.
    pub backing: PathBuf,
    /// Seed of keys and their order.
    pub seed: u64,
}

/// A workload, a part of it, and a thread count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Cell {
    /// Name of the workload.
    pub workload: &'static str,
    /// Name of the part.
    pub part: &'static str,
    /// Number of threads.
    pub threads: usize,
}

/// Medians of a cell.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// The cell.
    #[serde(flatten)]
    pub cell: Cell,
    /// Operations per second by map.
    pub rate: BTreeMap<&'static str, f64>,
}

/// Statistics of our tree during a workload [Bw-tree table I], and its memory.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Inside {
    /// Name of the workload.
    pub workload: &'static str,
    /// Number of threads.
    pub threads: usize,
    /// Failed splits, consolidations and updates, each in percent of all.
    pub failed_percent: [f64; 3],
    /// Bytes of memory per record.
    pub bytes_per_record: f64,
    /// Bytes of key and value.
    pub pair_bytes: usize,
}

/// Rate for a maximum length of delta chains [Bw-tree figure 5].
#[derive(Clone, Debug, serde::Serialize)]
pub struct ChainLength {
    /// Name of the workload.
    pub workload: &'static str,
    /// Number of changes that a leaf holds before a writer consolidates it.
    pub length: u32,
    /// Operations per second with the largest thread count.
    pub rate: f64,
}

/// Speedup of pure arithmetic on independent threads over one thread. It shows the limit of the machine, for example if its logical
/// processors share a core, or if other virtual machines use the same processors.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Scaling {
    /// Number of threads.
    pub threads: usize,
    /// Speedup, median of as many samples as there are rounds, at least three.
    pub times: f64,
}

/// The results of the benchmark.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Factor for the paper's numbers of operations.
    pub scale: f64,
    /// Number of keys of the uniform workload.
    pub keys: u64,
    /// Number of rounds.
    pub rounds: usize,
    /// Name and description of each map.
    pub maps: Vec<(&'static str, &'static str)>,
    /// Speedups of the machine.
    pub machine: Vec<Scaling>,
    /// Rates by cell.
    pub rows: Vec<Row>,
    /// Factor for the workloads of `own`.
    pub larger: u32,
    /// Number of rounds of `own`; medians are reported.
    pub own_rounds: usize,
    /// Rates of our tree alone, on larger workloads.
    pub own: Vec<Row>,
    /// Statistics of our tree.
    pub inside: Vec<Inside>,
    /// Rates by length of delta chains.
    pub chains: Vec<ChainLength>,
    /// Loads by cache level.
    pub loads: Vec<Loads>,
    /// The claims of the paper and the targets of our tree, judged.
    pub claims: Vec<Verdict>,
    /// False if this build has no competitors.
    pub with_peers: bool,
}

impl Gathered {
    /// The medians.
    fn rows(&mut self) -> Vec<Row> {
        let rates = std::mem::take(&mut self.rates);
        let mut rates: BTreeMap<(Cell, &str), f64> =
            rates.into_iter().map(|(of, samples)| (of, median(samples))).collect();
        let cells = std::mem::take(&mut self.order).into_iter();
        cells
            .map(|cell| {
                let maps = self.maps.iter();
                let own = maps.filter_map(|(name, _)| Some((*name, rates.remove(&(cell.clone(), *name))?)));
                Row { rate: own.collect(), cell: cell.clone() }
            })
            .collect()
    }
}

/// Results that are collected during a run.
#[derive(Default)]
struct Gathered {
    rates: BTreeMap<(Cell, &'static str), Vec<f64>>,
    order: Vec<Cell>,
    inside: Vec<Inside>,
    maps: Vec<(&'static str, &'static str)>,
}

/// Runs the benchmark. Reports each step to `progress`.
///
/// # Errors
/// Before any work: `Place`. Later: `Store`, `Wrong`, `Own`, `Valgrind` or `File`.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Report, Error> {
    let place = Place::take(&options.backing)?;
    let mut gathered = Gathered::default();
    progress("arithmetic");
    let machine = machine(options);
    measure_all(options, Some(&place), &mut gathered, progress)?;
    let own_rounds = if options.larger > 0 { options.rounds.max(3) } else { 0 };
    let own = match options.larger {
        0 => Vec::new(),
        larger => {
            let scale = options.scale * f64::from(larger);
            let keys = options.keys * u64::from(larger);
            let options = Options { scale, keys, rounds: own_rounds, ..options.clone() };
            let mut own = Gathered::default();
            measure_all(&options, None, &mut own, progress)?;
            own.rows()
        }
    };
    let chains = chains(options, progress)?;
    let loads = options
        .caches
        .map(|keys| caches::count(keys, options.seed, &place, progress))
        .transpose()?
        .unwrap_or_default();
    let rows = gathered.rows();
    let Gathered { inside, maps, .. } = gathered;
    Ok(Report {
        scale: options.scale,
        keys: options.keys,
        rounds: options.rounds,
        claims: report::claims(&rows, (options.larger, &own), &loads),
        larger: options.larger,
        own_rounds,
        own,
        with_peers: maps.len() > 2,
        maps,
        machine,
        rows,
        inside,
        chains,
        loads,
    })
}

/// Measures the speedups of the machine. See [`Scaling`].
fn machine(options: &Options) -> Vec<Scaling> {
    let several = options.threads.iter().filter(|threads| **threads > 1);
    let of = |threads: &usize| {
        let samples = (0..options.rounds.max(3)).map(|_| arithmetic(*threads) / arithmetic(1));
        Scaling { threads: *threads, times: median(samples.collect()) }
    };
    several.map(of).collect()
}

/// Steps per second of threads that generate independent random numbers for a fifth of a second.
fn arithmetic(threads: usize) -> f64 {
    const PIECE: u64 = 100_000;
    let barrier = Barrier::new(threads);
    let work = |seed| {
        barrier.wait();
        let (mut rng, start, mut steps) = (fastrand::Rng::with_seed(seed), Instant::now(), 0);
        while start.elapsed() < Duration::from_millis(200) {
            (0..PIECE).for_each(|_| {
                std::hint::black_box(rng.u64(..));
            });
            steps += PIECE;
        }
        steps as f64 / start.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads as u64).map(|seed| scope.spawn(move || work(seed))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_default()).sum()
    })
}

/// Measures all workloads. Without a place, only our tree.
fn measure_all(
    options: &Options,
    place: Option<&Place>,
    gathered: &mut Gathered,
    progress: &dyn Fn(&str),
) -> Result<(), Error> {
    let (scale, seed) = (options.scale, options.seed);
    // One after the other: the largest stream needs as much memory as the map.
    let of_bytes = competitors::maps::of_bytes;
    measure(options, place, &streams::xbox(scale, seed), of_bytes, gathered, progress)?;
    measure(options, place, &streams::deduplication(scale, seed), of_bytes, gathered, progress)?;
    let of_words = competitors::maps::of_words;
    measure(options, place, &streams::synthetic(scale, seed), of_words, gathered, progress)?;
    measure(options, place, &streams::uniform(options.keys, seed), of_words, gathered, progress)
}

/// Measures a workload with all maps and thread counts. Without a place, only our tree.
fn measure<K: Own + ?Sized, S: Keys<Key = K, Value = K>>(
    options: &Options,
    place: Option<&Place>,
    workload: &Workload<S>,
    others: fn() -> Vec<Kind<K, K>>,
    gathered: &mut Gathered,
    progress: &dyn Fn(&str),
) -> Result<(), Error> {
    for round in 0..options.rounds {
        for threads in &options.threads {
            let mut say = |name: &'static str, what: &'static str| {
                progress(&format!("{}, round {}, {threads} threads: {name}", workload.name, round + 1));
                if !gathered.maps.iter().any(|(known, _)| *known == name) {
                    gathered.maps.push((name, what));
                }
            };
            let mut note = |name, parts: Vec<(&'static str, f64)>| {
                for (part, rate) in parts {
                    let cell = Cell { workload: workload.name, part, threads: *threads };
                    if !gathered.order.contains(&cell) {
                        gathered.order.push(cell.clone());
                    }
                    gathered.rates.entry((cell, name)).or_default().push(rate);
                }
            };
            say(OURS, "ours");
            let ours = Ours(Tree::<K::Pairs>::default());
            note(OURS, parts(OURS, &ours, workload, *threads)?);
            if round == 0 {
                gathered.inside.push(inside(workload, *threads, &ours.0));
            }
            drop(ours);
            let Some(place) = place else { continue };
            for kind in others() {
                say(kind.name, kind.what);
                let map = (kind.make)();
                note(kind.name, parts(kind.name, &*map, workload, *threads)?);
            }
            if let Some(kind) = competitors::plain(*threads) {
                say(
                    BERKELEY,
                    "5.3, B-tree, all in its cache; by one thread without locks, by several with the Concurrent Data Store",
                );
                let folder = place.folder("berkeley")?;
                let opening = competitors::Options {
                    promise: competitors::Promise::Process,
                    bytes_max: BERKELEY_BYTES,
                    memory_bytes: None,
                };
                let stored = Stored((kind.open)(&folder, &opening)?);
                note(BERKELEY, parts(BERKELEY, &stored, workload, *threads)?);
                stored.0.close()?;
                std::fs::remove_dir_all(&folder)
                    .map_err(|source| Error::File { path: folder.clone(), source })?;
            }
        }
    }
    Ok(())
}

/// Fills a map and measures the parts of the workload. Returns operations per second of each part.
fn parts<K: Own + ?Sized, S: Keys<Key = K, Value = K>>(
    name: &'static str,
    map: &dyn Map<K, K>,
    workload: &Workload<S>,
    threads: usize,
) -> Result<Vec<(&'static str, f64)>, Error> {
    rate(name, map, workload, &workload.before, 1)?;
    let parts = workload.parts.iter();
    parts.map(|(part, stream)| Ok((*part, rate(name, map, workload, stream, threads)?))).collect()
}

/// Runs a stream. Returns operations per second.
fn rate<K: Own + ?Sized, S: Keys<Key = K, Value = K>>(
    name: &'static str,
    map: &dyn Map<K, K>,
    workload: &Workload<S>,
    stream: &Stream<S>,
    threads: usize,
) -> Result<f64, Error> {
    let count = stream.keys.len();
    let (operations, faults) = (AtomicU64::new(0), AtomicU64::new(0));
    let barrier = Barrier::new(threads + 1);
    let elapsed = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let range = count * thread / threads..count * (thread + 1) / threads;
                let (operations, faults, barrier) = (&operations, &faults, &barrier);
                scope.spawn(move || {
                    let mut worker =
                        Worker { handle: map.handle(), stream, sizes: workload.sizes, done: 0, faults: 0 };
                    barrier.wait();
                    let start = Instant::now();
                    worker.work(range);
                    operations.fetch_add(worker.done, Ordering::Relaxed);
                    faults.fetch_add(worker.faults, Ordering::Relaxed);
                    start.elapsed()
                })
            })
            .collect();
        barrier.wait();
        // The time of the slowest thread. Each clock starts at the barrier.
        workers.into_iter().map(|worker| worker.join().unwrap_or_default()).max().unwrap_or_default()
    });
    match faults.into_inner() {
        0 => Ok(operations.into_inner() as f64 / elapsed.as_secs_f64()),
        faults => Err(wrong(name, format!("{faults} answers of {count}"))),
    }
}

/// The work of a thread.
struct Worker<'a, K: Own + ?Sized, S> {
    handle: Box<dyn Handle<K, K> + 'a>,
    stream: &'a Stream<S>,
    sizes: streams::Sizes,
    done: u64,
    faults: u64,
}

impl<K: Own + ?Sized, S: Keys<Key = K, Value = K>> Worker<'_, K, S> {
    fn work(&mut self, range: std::ops::Range<usize>) {
        use std::borrow::Borrow;
        let (mut value, mut found) = (S::value(self.sizes), S::value(self.sizes));
        self.done = range.len() as u64;
        for i in range {
            let (key, what) = (self.stream.keys.get(i), self.stream.what[i]);
            if what != What::Put {
                let is_there = self.handle.get(key, &mut found);
                let is_right =
                    if is_there { S::is_of(&found, key, self.sizes) } else { !self.stream.finds_all };
                self.faults += u64::from(!is_right);
                if what == What::Get || is_there {
                    continue;
                }
                self.done += 1;
            }
            S::fill(&mut value, key);
            self.handle.put(key, value.borrow());
        }
    }
}

fn inside<S: Keys, P: bwtree::Pairs>(workload: &Workload<S>, threads: usize, tree: &Tree<P>) -> Inside {
    let stats = tree.stats();
    let percent = |failed: u64, done: u64| 100.0 * failed as f64 / (failed + done).max(1) as f64;
    tree.reclaim();
    Inside {
        workload: workload.name,
        threads,
        failed_percent: [
            percent(stats.split_failures, stats.splits),
            percent(stats.consolidation_failures, stats.consolidations),
            percent(stats.update_failures, stats.updates),
        ],
        bytes_per_record: tree.memory().total() as f64 / stats.records.max(1) as f64,
        pair_bytes: workload.sizes.0 + workload.sizes.1,
    }
}

/// Measures our tree with delta chains of different maximum lengths [Bw-tree figure 5].
fn chains(options: &Options, progress: &dyn Fn(&str)) -> Result<Vec<ChainLength>, Error> {
    if options.chains.is_empty() {
        return Ok(Vec::new());
    }
    let mut chains = with_chains(options, &streams::xbox(options.scale, options.seed), progress)?;
    chains.extend(with_chains(options, &streams::synthetic(options.scale, options.seed), progress)?);
    Ok(chains)
}

fn with_chains<K: Own + ?Sized, S: Keys<Key = K, Value = K>>(
    options: &Options,
    workload: &Workload<S>,
    progress: &dyn Fn(&str),
) -> Result<Vec<ChainLength>, Error> {
    let threads = options.threads.iter().copied().max().unwrap_or(1);
    let mut samples = vec![Vec::new(); options.chains.len()];
    for round in 0..options.rounds {
        for (length, samples) in options.chains.iter().zip(&mut samples) {
            progress(&format!("{}, round {}: chains of {length}", workload.name, round + 1));
            // Only writers consolidate. If readers did too, their chain length would decide.
            let own =
                bwtree::Options { leaf_chain: *length, leaf_chain_read: 0, ..bwtree::Options::default() };
            let ours = Ours(
                Tree::<K::Pairs>::new(own)
                    .map_err(|error| Error::Own(bristlecone::Error::Option(error.to_string())))?,
            );
            samples.push(parts(OURS, &ours, workload, threads)?[0].1);
        }
    }
    let each = options.chains.iter().zip(samples);
    Ok(each
        .map(|(length, samples)| ChainLength {
            workload: workload.name,
            length: *length,
            rate: median(samples),
        })
        .collect())
}
