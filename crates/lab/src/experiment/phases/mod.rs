//! The measurements of the VLAB paper: basic operations, phases of a database's life and a trace, on six indexes with nodes of 4 KiB [VLAB
//! §6].
//!
//! Each index is filled in random order, in its own file, and is alone in memory while it is measured. In a round the indexes are measured
//! one after the other, with the same sequence of single operations. A second pass on smaller indexes counts words, flushes and fences. All
//! answers and the final contents are known in advance and checked. (After updates, only the presence of the final keys is checked.)

mod claims;
mod report;
pub(super) mod workloads;

use std::collections::BTreeMap;
use std::path::Path;
use std::slice;
use std::sync::Arc;
use std::time::Instant;

use pmem::{Durability, Memory, Observed, Observer, WORD};

use super::counts::{Costs, Tally};
use super::{Experiment, Options, Outcome, Progress, Step};
use crate::measured::{Making, Measured, of_fixed};
use crate::scratch::{Instructions, medium};
use crate::verdict::Verdict;
use crate::{Error, engine, median, wrong};
use index::engine::Anatomy;
use workloads::{Act, DELETE_LOAD, INSERT_LOAD, MIXED, QUERY_LOAD, Stream, UPDATE_LOAD, Workload};

/// The paper's index, and its competitors in the order of the paper's tables.
const OURS: &str = "vlab";
const OTHERS: [&str; 5] = ["trad-4k", "bmp-4k", "cnt-4k", "wb-4k", "nvtree"];

/// Bytes of an entry: the key word and the value.
const ENTRY_BYTES: [u64; 3] = [32, 64, 128];
/// The size for experiments where the paper has only one.
const LARGE: [u64; 1] = [128];
/// Cache lines of a node.
pub(super) const NODE_LINES: u64 = 64;
/// Maximum number of keys of the indexes whose operations are counted.
const KEYS_COUNTED: u64 = 200_000;
/// Nanoseconds that a write takes longer than on this machine [VLAB §6.7].
const DELAYS: [u64; 3] = [0, 50, 180];

/// Results of an index under a workload.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// Name of the index.
    pub tree: &'static str,
    /// Name of the workload.
    pub workload: &'static str,
    /// Bytes of an entry.
    pub entry_bytes: u64,
    /// Nanoseconds per operation, median of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns: Option<f64>,
    /// Time as a multiple of VLAB's in the same round, median of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<f64>,
    /// Nanoseconds per operation without flushes and fences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare_ns: Option<f64>,
    /// Counts of an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
    /// Space statistics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anatomy: Option<Anatomy>,
}

/// Results of an experiment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Description of the experiment.
    pub about: &'static str,
    /// Number of keys in the largest index, before or after the operations.
    pub keys: u64,
    /// Number of operations.
    pub operations: u64,
    /// Number of keys of the indexes whose operations were counted.
    pub keys_counted: u64,
    /// Number of rounds.
    pub rounds: usize,
    /// Directory that backed the indexes.
    pub backing: std::path::PathBuf,
    /// Seed of keys and their order.
    pub seed: u64,
    /// Nanoseconds added per stored word, for claims about slower memory.
    pub delays: Vec<u64>,
    /// One row per index and workload.
    pub rows: Vec<Row>,
    /// The judged claims of the paper.
    pub claims: Vec<Verdict>,
}

/// The kinds of measurement.
#[derive(Clone, Copy, Default)]
struct What {
    times: bool,
    counts: bool,
    bare: bool,
    anatomy: bool,
}

/// The parts of an experiment.
struct Plan {
    streams: Vec<Stream>,
    /// Shorter streams, for counting.
    counted: Vec<Stream>,
    entry_bytes: &'static [u64],
    what: What,
    delays: &'static [u64],
}

/// Judges measured rows.
type Judge = fn(&[Row]) -> Vec<Verdict>;

/// Figure 15: queries by size of entry.
///
/// # Errors
/// For all functions of this module: errors of the file system; `Wrong` for a wrong answer; `Trace` if a trace cannot be read.
pub fn figure_15(
    of: &'static Experiment,
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Outcome, Error> {
    let what = What { times: true, ..What::default() };
    run(of, options, &generated(options, &[&QUERY_LOAD], &ENTRY_BYTES, what), claims::basic, progress)
}

/// Table 4: comparisons to find the last node.
///
/// # Errors
/// As [`figure_15`].
pub fn table_4(
    of: &'static Experiment,
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Outcome, Error> {
    let what = What { anatomy: true, ..What::default() };
    run(of, options, &generated(options, &[&QUERY_LOAD], &ENTRY_BYTES, what), claims::comparisons, progress)
}

/// Figure 16: words stored, by size of entry.
///
/// # Errors
/// As [`figure_15`].
pub fn figure_16(
    of: &'static Experiment,
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Outcome, Error> {
    let what = What { counts: true, ..What::default() };
    run(of, options, &generated(options, &CHANGES, &ENTRY_BYTES, what), claims::basic, progress)
}

/// Figure 17: time, flushes and fences.
///
/// # Errors
/// As [`figure_15`].
pub fn figure_17(
    of: &'static Experiment,
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Outcome, Error> {
    let what = What { times: true, counts: true, ..What::default() };
    run(of, options, &generated(options, &CHANGES, &LARGE, what), claims::with_flushes, progress)
}

/// Table 7: the cost of flushes and fences for an insert.
///
/// # Errors
/// As [`figure_15`].
pub fn table_7(
    of: &'static Experiment,
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Outcome, Error> {
    let what = What { times: true, bare: true, ..What::default() };
    run(of, options, &generated(options, &[&INSERT_LOAD], &LARGE, what), claims::degradation, progress)
}

/// Figure 18: mixed workloads.
///
/// # Errors
/// As [`figure_15`].
pub fn figure_18(
    of: &'static Experiment,
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Outcome, Error> {
    let what = What { times: true, counts: true, ..What::default() };
    let all: Vec<_> = MIXED.iter().collect();
    run(of, options, &generated(options, &all, &LARGE, what), claims::mixed, progress)
}

/// Figure 19: a real trace.
///
/// # Errors
/// As [`figure_15`].
pub fn figure_19(
    of: &'static Experiment,
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Outcome, Error> {
    let what = What { times: true, ..What::default() };
    run(of, options, &traced(options, what, &[])?, claims::trace, progress)
}

/// Figure 20: a real trace on memory whose writes take longer.
///
/// # Errors
/// As [`figure_15`].
pub fn figure_20(
    of: &'static Experiment,
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Outcome, Error> {
    let what = What { times: true, counts: true, ..What::default() };
    run(of, options, &traced(options, what, &DELAYS)?, claims::delayed, progress)
}

/// Table 8: memory in addition to the data.
///
/// # Errors
/// As [`figure_15`].
pub fn table_8(
    of: &'static Experiment,
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Outcome, Error> {
    let what = What { anatomy: true, ..What::default() };
    let mut plan = generated(options, &[&INSERT_LOAD, &DELETE_LOAD], &LARGE, what);
    plan.streams.extend(traced(options, what, &[])?.streams);
    run(of, options, &plan, claims::memory, progress)
}

const CHANGES: [&Workload; 3] = [&INSERT_LOAD, &DELETE_LOAD, &UPDATE_LOAD];

fn generated(options: &Options, workloads: &[&Workload], entry_bytes: &'static [u64], what: What) -> Plan {
    let (keys, operations) = options.scaled_apart();
    let make = |keys, operations| {
        workloads.iter().map(|of| workloads::stream(of, keys, operations, options.seed)).collect()
    };
    let counted = keys.min(KEYS_COUNTED);
    let part = counted as f64 / keys as f64;
    Plan {
        streams: make(keys, operations),
        counted: if what.counts { make(counted, (operations as f64 * part) as u64) } else { Vec::new() },
        entry_bytes,
        what,
        delays: &[],
    }
}

/// The user's trace, or a generated one with the statistics of the paper's trace.
fn traced(options: &Options, what: What, delays: &'static [u64]) -> Result<Plan, Error> {
    let baskets = match &options.trace {
        None => workloads::made_trace(options.scale, options.seed),
        Some(path) => given_trace(path)?,
    };
    let counted = if what.counts { vec![workloads::trace(&baskets)] } else { Vec::new() };
    Ok(Plan { streams: vec![workloads::trace(&baskets)], counted, entry_bytes: &LARGE, what, delays })
}

/// Reads the baskets from a file.
pub(super) fn given_trace(path: &Path) -> Result<Vec<Vec<u32>>, Error> {
    let failed = |why: String| Error::Trace { path: path.to_owned(), why };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let baskets = workloads::read_trace(&text).map_err(failed)?;
    if baskets.is_empty() {
        return Err(failed("there is nothing in it".to_owned()));
    }
    Ok(baskets)
}

fn run(
    of: &'static Experiment,
    options: &Options,
    plan: &Plan,
    judge: Judge,
    progress: &Progress<'_>,
) -> Result<Outcome, Error> {
    let trees: Vec<_> = std::iter::once(OURS).chain(OTHERS).collect();
    // Words are counted on other indexes.
    let rounds = if plan.what.times { options.rounds } else { usize::from(plan.what.anatomy) };
    let total = (plan.streams.len() * plan.entry_bytes.len() * trees.len() * rounds) as u64;
    let mut done = 0;
    let mut rows = Vec::new();
    for (stream, entry_bytes) in
        plan.streams.iter().flat_map(|of| plan.entry_bytes.iter().map(move |bytes| (of, *bytes)))
    {
        let mut samples: BTreeMap<&str, Samples> = BTreeMap::new();
        for round in 0..rounds {
            // Each index begins a round in turn: the previous index leaves the system's memory in a state that makes a file slower or
            // faster.
            for tree in in_turn(&trees, round) {
                progress(Step {
                    done,
                    total,
                    what: format!("{}, {entry_bytes} bytes, round {}: {tree}", stream.name, round + 1),
                });
                done += 1;
                let of = samples.entry(*tree).or_default();
                let taken = measure(tree, stream, entry_bytes, Durability::Power, plan.what, options)?;
                of.ns.push(taken.ns);
                of.anatomy = taken.anatomy;
                if plan.what.bare {
                    of.bare_ns.push(
                        measure(tree, stream, entry_bytes, Durability::Process, plan.what, options)?.ns,
                    );
                }
            }
        }
        let ours = samples.get(OURS).map(|ours| ours.ns.clone()).unwrap_or_default();
        let counted = plan.counted.iter().find(|counted| counted.name == stream.name);
        for tree in &trees {
            let of = samples.remove(tree).unwrap_or_default();
            let over = of.ns.iter().zip(&ours).map(|(ns, ours)| ns / ours).collect();
            let timed = |samples| plan.what.times.then(|| median(samples));
            rows.push(Row {
                tree,
                workload: stream.name,
                entry_bytes,
                ns: timed(of.ns),
                over: timed(over),
                bare_ns: plan.what.bare.then(|| median(of.bare_ns)),
                costs: counted.map(|counted| count(tree, counted, entry_bytes)).transpose()?,
                anatomy: of.anatomy,
            });
        }
    }
    let of_keys = |streams: &[Stream]| {
        streams.iter().map(|stream| stream.before.len().max(stream.after.len())).max().unwrap_or(0) as u64
    };
    Ok(Outcome::Phases(Report {
        experiment: of.name,
        about: of.about,
        keys: of_keys(&plan.streams),
        operations: plan.streams.iter().map(|stream| stream.deeds.len()).max().unwrap_or(0) as u64,
        keys_counted: of_keys(&plan.counted),
        rounds: rounds.max(1),
        backing: options.backing.clone(),
        seed: options.seed,
        delays: plan.delays.to_vec(),
        claims: judge(&rows),
        rows,
    }))
}

/// All trees, beginning with another one in each round.
fn in_turn<'t>(trees: &'t [&'static str], round: usize) -> impl Iterator<Item = &'t &'static str> {
    trees.iter().cycle().skip(round % trees.len()).take(trees.len())
}

#[derive(Default)]
struct Samples {
    ns: Vec<f64>,
    bare_ns: Vec<f64>,
    anatomy: Option<Anatomy>,
}

struct Taken {
    ns: f64,
    anatomy: Option<Anatomy>,
}

/// Measures an index under a workload: makes its file, fills it, runs the operations, checks it, removes it.
fn measure(
    tree: &'static str,
    stream: &Stream,
    entry_bytes: u64,
    durability: Durability,
    what: What,
    options: &Options,
) -> Result<Taken, Error> {
    let bytes = space(stream, entry_bytes);
    let medium = medium(&options.backing, tree, bytes, durability, Instructions::Best)?;
    let mut index = of_fixed(found(tree)?, making(tree, medium, entry_bytes, durability))?;
    fill(tree, &mut *index, stream)?;
    let start = Instant::now();
    let right = work(&mut *index, stream)?;
    let ns = start.elapsed().as_secs_f64() * 1e9 / stream.deeds.len() as f64;
    check(tree, &mut *index, stream, right)?;
    let anatomy = if what.anatomy { index.anatomy(&stream.after) } else { None };
    Ok(Taken { ns, anatomy })
}

/// Counts the operations of an index under a workload.
fn count(tree: &'static str, stream: &Stream, entry_bytes: u64) -> Result<Costs, Error> {
    let tally = Arc::new(Tally::default());
    let medium =
        Observed::new(Memory::new(space(stream, entry_bytes), 0), Arc::clone(&tally) as Arc<dyn Observer>);
    let mut index = of_fixed(found(tree)?, making(tree, medium, entry_bytes, Durability::Power))?;
    fill(tree, &mut *index, stream)?;
    tally.take(1, true);
    let right = work(&mut *index, stream)?;
    let costs = tally.take(stream.deeds.len() as u64, true);
    check(tree, &mut *index, stream, right)?;
    Ok(costs)
}

/// Maximum bytes of an index: nodes may be half empty, with a reserve.
fn space(stream: &Stream, entry_bytes: u64) -> u64 {
    let keys = stream.before.len() + stream.deeds.iter().filter(|deed| deed.act == Act::Insert).count();
    (64 << 20) + keys as u64 * (entry_bytes + 16) * 4
}

pub(super) fn found(tree: &'static str) -> Result<crate::Engine, Error> {
    engine(tree).map_err(|known| Error::UnknownTree { name: tree.into(), known })
}

fn making<M>(tree: &'static str, medium: M, entry_bytes: u64, durability: Durability) -> Making<M> {
    Making {
        name: tree.into(),
        medium,
        node_lines: NODE_LINES,
        durability,
        payload_words: (entry_bytes / WORD - 1) as usize,
    }
}

fn fill(tree: &str, index: &mut dyn Measured, stream: &Stream) -> Result<(), Error> {
    match index.insert(&stream.before)? {
        new if new == stream.before.len() as u64 => Ok(()),
        new => Err(wrong(tree, format!("{new} of {} keys were new", stream.before.len()))),
    }
}

/// Runs the operations. Returns how many answers were right.
fn work(index: &mut dyn Measured, stream: &Stream) -> Result<u64, Error> {
    let mut right = 0;
    for deed in &stream.deeds {
        let key = slice::from_ref(&deed.key);
        right += match deed.act {
            Act::Query => index.get(key)?,
            Act::Insert => index.insert(key)?,
            Act::Update => index.update(key, !deed.key)?,
            Act::Delete => index.delete(key)?,
        };
    }
    Ok(right)
}

fn check(tree: &str, index: &mut dyn Measured, stream: &Stream, right: u64) -> Result<(), Error> {
    if right != stream.deeds.len() as u64 {
        return Err(wrong(tree, format!("{right} of {} operations of {}", stream.deeds.len(), stream.name)));
    }
    // Updated keys have other values than their initial ones. Only their existence is checked.
    if !stream.keeps_values {
        let there = index.get(&stream.after)?;
        return if there == stream.after.len() as u64 {
            Ok(())
        } else {
            Err(wrong(tree, format!("{there} keys of {} after {}", stream.after.len(), stream.name)))
        };
    }
    index.fault(&stream.after)?.map_or(Ok(()), |fault| Err(wrong(tree, fault)))
}
