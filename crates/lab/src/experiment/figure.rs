//! Searches, inserts and deletes on bulk-loaded trees.
//!
//! * 70 % full: every round searches, inserts and deletes what it inserted, each on all trees before the next, so that what
//!   neighbours do to the machine meets all of them and no tree finds the last batch's lines in the cache.
//! * 100 % full: splits change a tree, so each is loaded anew in each round: deletes of loaded keys, the same keys put back
//!   (not measured), inserts of new ones.
//! * As many trees as fit into half of the free memory are loaded at once; the volatile tree is in every group, and times are
//!   also given as multiples of it, taken round by round.
//! * Every batch's answers are checked, and at the end every key and value of every tree.

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

/// Most keys of a tree on which operations are counted.
const KEYS_COUNTED_MAX: u64 = 100_000;

/// A tree of a figure.
#[derive(Debug)]
pub struct Subject {
    /// Name in the figure.
    pub name: &'static str,
    /// Engine of the roster.
    pub engine: &'static str,
    /// How it holds keys.
    pub keys: Form,
    /// Fewest and most cache lines of the nodes that it is shown with.
    pub lines: (u64, u64),
}

impl Subject {
    /// The roster's line.
    pub fn about(&self) -> &'static About {
        crate::engine(self.engine).expect("subjects are trees of the roster")
    }
}

/// Kinds of keys that a figure's trees may hold.
pub trait Sample: Random {
    /// Bytes that a key takes in a tree, at most and roughly: to see what fits into memory.
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

/// Keys of an experiment.
pub struct Plan<K> {
    /// Loaded keys, ascending.
    pub keys: Vec<K>,
    operations: usize,
    seed: u64,
}

impl<K: Sample> Plan<K> {
    /// So many random keys, and batches of so many of them.
    pub fn new(keys: u64, operations: u64, seed: u64) -> Self {
        let mut keys = K::range(seed, 0, keys);
        keys.sort_unstable();
        Self { keys, operations: operations as usize, seed }
    }

    /// The keys of a round.
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

    /// What a tree holds that was loaded full, after a round.
    pub fn after_100(&self, draw: &Draw<K>) -> Vec<K> {
        let mut keys = [self.keys.as_slice(), &draw.fresh].concat();
        keys.sort(); // two runs, one of them sorted
        keys
    }
}

/// The keys of a round.
pub struct Draw<K> {
    /// Loaded ones, in random order.
    there: Vec<K>,
    /// New ones.
    fresh: Vec<K>,
    /// The new ones in another order.
    fresh_again: Vec<K>,
}

/// What a batch does with each of its keys. All of them succeed.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Search.
    Get,
    /// Insert.
    Insert,
    /// Delete.
    Delete,
}

/// A batch to run: its name if it is measured.
type Task<'a, K> = (Option<Batch>, &'a [K], Operation);

impl<K> Draw<K> {
    /// The batches of a tree 70 % full.
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
    /// Runs it; nanoseconds an operation.
    ///
    /// # Errors
    /// `Wrong` if it did not succeed with every key.
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

/// A run: what its stages share.
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
                // The volatile tree has a row of its own once.
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

    /// All batches of a group of trees, in rounds.
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
            // Another tree begins in each round: who begins meets a cache that the keys' making has filled.
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

/// # Errors
/// `Wrong` if a tree does not hold just these keys with their values.
pub fn verify<K>(tree: &mut dyn measured::Measured<K>, keys: &[K]) -> Result<(), Error> {
    match tree.fault(keys)? {
        None => Ok(()),
        Some(fault) => Err(wrong(tree.name(), fault)),
    }
}

/// The subjects that are shown with nodes of so many lines, `group` at once, the volatile tree with each group.
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
