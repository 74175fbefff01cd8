//! Searches, inserts and deletes on bulk-loaded trees.
//!
//! * 70 % full: each round searches, inserts, and deletes the inserted keys. Each batch runs on all trees before the next batch, so that
//!   other load on the machine affects all trees, and no tree finds the lines of its last batch in the cache.
//! * 100 % full: splits change a tree, so each tree is loaded anew in each round. First, some loaded keys are deleted. Then the same keys
//!   are inserted again, which is not measured. Then new keys are inserted.
//! * Trees run in groups. A group has as many trees as fit into half of the free memory; they are loaded at the same time. The volatile
//!   tree is in every group. Times are also given as multiples of its time in the same round.
//! * The answers of every batch are checked, and at the end all keys and values of every tree.

use std::path::Path;
use std::time::Instant;

use index::About;
use pmem::{Durability, FlushOp, Medium};

use super::claims::Claim;
use super::counts::{self, Costs};
use super::{Batch, Experiment, Form, Options, Outcome, Progress, Report, Row, Step};
use crate::keys::{Random, Text};
use crate::measured::{self, Making, of_pointers, of_prefixes, of_words};
use crate::scratch::{self, Instructions};
use crate::{Error, median, wrong};

/// Maximum number of keys of a tree whose operations are counted.
const KEYS_COUNTED_MAX: u64 = 100_000;

/// A tree of a figure.
#[derive(Debug)]
pub struct Subject {
    /// Name in the figure.
    pub name: &'static str,
    /// Name of its engine in the roster.
    pub engine: &'static str,
    /// Form of its keys.
    pub keys: Form,
    /// Minimum and maximum cache lines of the nodes that the figure shows.
    pub lines: (u64, u64),
}

impl Subject {
    /// The roster's entry of its engine.
    pub fn about(&self) -> &'static About {
        crate::engine(self.engine).expect("subjects are trees of the roster")
    }
}

/// Kinds of keys for the trees of a figure.
pub trait Sample: Random {
    /// Approximate maximum bytes of a key in a tree. Used to see what fits into memory.
    const BYTES: u64;
    /// Makes a tree.
    ///
    /// # Errors
    /// As [`crate::measured`].
    fn make<M: Medium>(
        subject: &Subject,
        making: Making<M>,
    ) -> Result<Box<dyn measured::Measured<Self>>, Error>;
}

impl Sample for u64 {
    const BYTES: u64 = 64;
    fn make<M: Medium>(
        subject: &Subject,
        making: Making<M>,
    ) -> Result<Box<dyn measured::Measured<Self>>, Error> {
        of_words(subject.about(), making)
    }
}

impl Sample for Text {
    const BYTES: u64 = 192;
    fn make<M: Medium>(
        subject: &Subject,
        making: Making<M>,
    ) -> Result<Box<dyn measured::Measured<Self>>, Error> {
        match subject.keys {
            Form::Prefix => of_prefixes(subject.about(), making),
            _ => of_pointers(subject.about(), making),
        }
    }
}

/// The keys of an experiment.
pub struct Plan<K> {
    /// Loaded keys in ascending order.
    pub keys: Vec<K>,
    operations: usize,
    seed: u64,
}

impl<K: Sample> Plan<K> {
    /// Makes `keys` random keys, for batches of `operations` operations.
    pub fn new(keys: u64, operations: u64, seed: u64) -> Self {
        let mut keys = K::range(seed, 0, keys);
        keys.sort_unstable();
        Self { keys, operations: operations as usize, seed }
    }

    /// Returns the keys of a round.
    pub fn draw(&self, round: usize) -> Draw<K> {
        let mut random = fastrand::Rng::with_seed(self.seed ^ (round as u64 + 1) << 32);
        let mut there = random.choose_multiple(self.keys.iter().copied(), self.operations);
        random.shuffle(&mut there);
        let first = self.keys.len() + round * self.operations;
        let fresh = K::range(self.seed, first as u64, self.operations as u64);
        let mut fresh_again = fresh.clone();
        random.shuffle(&mut fresh_again);
        Draw { there, fresh, fresh_again }
    }

    /// The contents of a tree that was loaded full, after a round.
    pub fn after_100(&self, draw: &Draw<K>) -> Vec<K> {
        let mut keys = [self.keys.as_slice(), &draw.fresh].concat();
        keys.sort(); // two runs, one of them is sorted
        keys
    }
}

/// The keys of a round.
pub struct Draw<K> {
    /// Loaded keys, in random order.
    there: Vec<K>,
    /// New keys.
    fresh: Vec<K>,
    /// The new keys in another order.
    fresh_again: Vec<K>,
}

/// The operation of a batch. It succeeds for every key.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Search.
    Get,
    /// Insert.
    Insert,
    /// Delete.
    Delete,
}

/// A batch to run. Its name is `None` if it is not measured.
type Task<'a, K> = (Option<Batch>, &'a [K], Operation);

impl<K> Draw<K> {
    /// The batches of a tree that is 70 % full.
    pub fn at_70(&self) -> [Task<'_, K>; 3] {
        [
            (Some(Batch::Search70), &self.there, Operation::Get),
            (Some(Batch::Insert70), &self.fresh, Operation::Insert),
            (Some(Batch::Delete70), &self.fresh_again, Operation::Delete),
        ]
    }

    /// The batches of a full tree.
    pub fn at_100(&self) -> [Task<'_, K>; 3] {
        [
            (Some(Batch::Delete100), &self.there, Operation::Delete),
            (None, &self.there, Operation::Insert),
            (Some(Batch::Insert100), &self.fresh, Operation::Insert),
        ]
    }
}

impl Operation {
    /// Runs the operation for all keys. Returns nanoseconds per operation.
    ///
    /// # Errors
    /// `Wrong` if the operation did not succeed for every key.
    pub fn run<K>(self, tree: &mut dyn measured::Measured<K>, keys: &[K]) -> Result<f64, Error> {
        let start = Instant::now();
        let answer = match self {
            Self::Get => tree.get(keys),
            Self::Insert => tree.insert(keys),
            Self::Delete => tree.delete(keys),
        }?;
        let ns = start.elapsed().as_nanos() as f64 / keys.len() as f64;
        if answer != keys.len() as u64 {
            return Err(wrong(tree.name(), format!("{self:?}: {answer} of {} keys", keys.len())));
        }
        Ok(ns)
    }
}

/// One measured batch.
struct Measured {
    subject: usize,
    batch: Batch,
    ns: f64,
}

/// State that the stages of a run share.
struct Run<'a, K> {
    options: &'a Options,
    plan: Plan<K>,
    progress: &'a Progress<'a>,
    done: u64,
    total: u64,
}

/// Runs a figure. The first subject is the volatile tree.
///
/// # Errors
/// `Pmem` or `File` if the backing cannot be used; `Wrong` if a tree gives a wrong answer.
pub fn run<K: Sample>(
    experiment: &'static Experiment,
    subjects: &'static [Subject],
    claims: fn(&[Row]) -> Vec<Claim>,
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Outcome, Error> {
    let (keys, operations) = options.scaled();
    let group = trees_at_once(keys * K::BYTES);
    let counted = keys.min(KEYS_COUNTED_MAX);
    let small = Plan::<K>::new(counted, (operations * counted / keys).max(1), options.seed);
    let mut run =
        Run { options, plan: Plan::<K>::new(keys, operations, options.seed), progress, done: 0, total: 0 };
    let sizes: Vec<(u64, Vec<Vec<&Subject>>)> =
        options.node_lines.iter().map(|lines| (*lines, groups(subjects, *lines, group))).collect();
    let trees: usize = sizes.iter().flat_map(|(_, groups)| groups).map(Vec::len).sum();
    run.total = (trees * (1 + 2 * (2 + 2 * options.rounds))) as u64;
    let mut rows = Vec::new();
    for (node_lines, groups) in &sizes {
        for (number, group) in groups.iter().enumerate() {
            let mut costs = Vec::new();
            for subject in group {
                run.step(format!("counting {}, {node_lines} lines", subject.name));
                costs.push(counts::count(subject, *node_lines, &small)?);
            }
            for instructions in [Instructions::Paper, Instructions::Best] {
                let measured = run.group(group, *node_lines, instructions)?;
                // The first group contributes the row of the volatile tree.
                let first = usize::from(number > 0);
                rows.extend(rows_of(&group[..], &costs, &measured, (*node_lines, instructions), first));
            }
        }
    }
    Ok(Outcome::Measured(Report {
        experiment: experiment.name,
        about: experiment.about,
        keys,
        operations,
        rounds: options.rounds,
        node_lines: options.node_lines.clone(),
        backing: options.backing.clone(),
        seed: options.seed,
        keys_counted: counted,
        groups: sizes.iter().map(|(_, groups)| groups.len()).max().unwrap_or(0),
        best_flush: format!("{:?}", FlushOp::detect()).to_lowercase(),
        vectors: pmem::simd::available() && subjects[0].keys == Form::Integer,
        claims: [Instructions::Paper, Instructions::Best]
            .into_iter()
            .flat_map(|with| {
                let rows: Vec<_> = rows.iter().filter(|row| row.instructions == with).cloned().collect();
                claims(&rows)
            })
            .collect(),
        rows,
    }))
}

impl<K: Sample> Run<'_, K> {
    fn step(&mut self, what: String) {
        (self.progress)(Step { done: self.done, total: self.total, what });
        self.done += 1;
    }

    fn make(
        &self,
        subject: &Subject,
        node_lines: u64,
        instructions: Instructions,
    ) -> Result<Box<dyn measured::Measured<K>>, Error> {
        let durability = if subject.about().durable { Durability::Power } else { Durability::Process };
        let max_bytes = (self.plan.keys.len() as u64 * 4096).max(1 << 30);
        let name = subject.name;
        let medium = scratch::medium(&self.options.backing, name, max_bytes, durability, instructions)?;
        K::make(subject, Making { name: name.into(), medium, node_lines, durability, payload_words: 1 })
    }

    fn load(&self, tree: &mut dyn measured::Measured<K>, fill: f64) -> Result<(), Error> {
        let keys = &self.plan.keys;
        let loaded = tree.load(keys, fill)?;
        let all = loaded == keys.len() as u64;
        all.then_some(()).ok_or_else(|| wrong(tree.name(), format!("load: {loaded} of {} keys", keys.len())))
    }

    /// Runs all batches of a group of trees, in rounds.
    fn group(
        &mut self,
        group: &[&Subject],
        node_lines: u64,
        instructions: Instructions,
    ) -> Result<Vec<Measured>, Error> {
        let mut measured = Vec::new();
        let what = |subject: &str, doing: &str| format!("{doing} {subject}, {node_lines} lines");
        let mut trees = Vec::new();
        for subject in group {
            self.step(what(subject.name, "loading"));
            let mut tree = self.make(subject, node_lines, instructions)?;
            self.load(tree.as_mut(), 0.7)?;
            trees.push(tree);
        }
        for round in 0..self.options.rounds {
            let draw = self.plan.draw(round);
            // Another tree begins in each round: making the keys has filled the cache for the first tree.
            let begins = round * trees.len() / self.options.rounds;
            for (batch, keys, operation) in draw.at_70() {
                for subject in (begins..trees.len()).chain(0..begins) {
                    let ns = operation.run(trees[subject].as_mut(), keys)?;
                    measured.extend(batch.map(|batch| Measured { subject, batch, ns }));
                }
            }
            for subject in group {
                self.step(what(subject.name, "measured 70% full:"));
            }
        }
        for tree in &mut trees {
            self.step(what(tree.name(), "verifying"));
            verify(tree.as_mut(), &self.plan.keys)?;
        }
        drop(trees);
        for round in 0..self.options.rounds {
            let draw = self.plan.draw(round);
            let last = round + 1 == self.options.rounds;
            let held = if last { self.plan.after_100(&draw) } else { Vec::new() };
            for (subject, made) in group.iter().enumerate() {
                self.step(what(made.name, "100% full:"));
                let mut tree = self.make(made, node_lines, instructions)?;
                self.load(tree.as_mut(), 1.0)?;
                for (batch, keys, operation) in draw.at_100() {
                    let ns = operation.run(tree.as_mut(), keys)?;
                    measured.extend(batch.map(|batch| Measured { subject, batch, ns }));
                }
                if last {
                    verify(tree.as_mut(), &held)?;
                }
            }
        }
        Ok(measured)
    }
}

/// Checks the contents of a tree.
///
/// # Errors
/// `Wrong` if a tree does not contain exactly these keys with their values.
pub fn verify<K>(tree: &mut dyn measured::Measured<K>, keys: &[K]) -> Result<(), Error> {
    match tree.fault(keys)? {
        None => Ok(()),
        Some(fault) => Err(wrong(tree.name(), fault)),
    }
}

/// The subjects with nodes of this size, in groups of `group`. The volatile tree is in each group.
fn groups(subjects: &'static [Subject], node_lines: u64, group: usize) -> Vec<Vec<&'static Subject>> {
    let shown: Vec<_> = subjects[1..]
        .iter()
        .filter(|subject| (subject.lines.0..=subject.lines.1).contains(&node_lines))
        .filter(|subject| subject.about().allows(node_lines))
        .collect();
    let durable_at_once = group.saturating_sub(1).max(1);
    shown.chunks(durable_at_once).map(|part| [&[&subjects[0]], part].concat()).collect()
}

/// Number of trees of `bytes` bytes that fit into half of the free memory.
fn trees_at_once(bytes: u64) -> usize {
    const UNKNOWN: u64 = 4 << 30;
    let told = std::fs::read_to_string(Path::new("/proc/meminfo")).unwrap_or_default();
    let line = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let free = kilobytes.map_or(UNKNOWN, |kilobytes| kilobytes << 10);
    (free / 2 / bytes.max(1)) as usize
}

fn rows_of(
    group: &[&'static Subject],
    costs: &[Vec<(Batch, Costs)>],
    measured: &[Measured],
    (node_lines, instructions): (u64, Instructions),
    first: usize,
) -> Vec<Row> {
    let samples = |number: usize, batch: Batch| -> Vec<f64> {
        measured.iter().filter(|one| (one.subject, one.batch) == (number, batch)).map(|one| one.ns).collect()
    };
    let mut rows = Vec::new();
    for (number, subject) in group.iter().enumerate().skip(first) {
        for batch in Batch::ALL {
            let (ns, volatile) = (samples(number, batch), samples(0, batch));
            let ratios = ns.iter().zip(&volatile).map(|(ns, volatile)| ns / volatile).collect();
            let costs = costs[number].iter().find(|(counted, _)| *counted == batch);
            rows.push(Row {
                tree: subject.name,
                leaf: subject.about().leaf,
                commit_protocol: subject.about().commit_protocol,
                keys: subject.keys,
                node_lines,
                instructions,
                batch,
                ns: median(ns),
                ratio: median(ratios),
                costs: costs.map(|(_, costs)| *costs).unwrap_or_default(),
            });
        }
    }
    rows
}
