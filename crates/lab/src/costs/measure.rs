//! The measurement bulk-loads a tree, then runs operations one by one. For each operation it reads the path from the root to the leaf, runs
//! the operation, counts its words, flushes and fences meanwhile, and compares the counts with the expected cost.
//!
//! Inserts without split and deletes without merge run on leaves loaded to the requested fill factor. Inserts with splits run on full
//! leaves. Keys are random, so their ranks in a leaf are uniform.

use pmem::observed::{Category, Counts};

use super::Options;
use super::engines::{Claims, Engine};
use super::formulas::ours::{self, Price};
use super::formulas::{Claim, Met};
use super::judge::{self, Observation};
use super::report::{Others, Row, Rows};
use super::subject::{Plan, Subject};
use super::survey::Way;
use super::tape::Spent;
use crate::Error;

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// An insert into a leaf with space.
    Insert,
    /// An insert with splits.
    InsertWithSplits,
    /// An insert with splits and a combine of the second list into the first.
    InsertWithCombine,
    /// A delete without merge.
    Delete,
}

impl Operation {
    /// Name of the operation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::InsertWithSplits => "insert with splits",
            Self::InsertWithCombine => "insert with combine",
            Self::Delete => "delete",
        }
    }

    /// The paper's formula for the operation, if it has one.
    pub fn claim(self, claims: &Claims) -> Option<&Claim> {
        match self {
            Self::Insert => Some(&claims.insert),
            Self::InsertWithSplits => Some(&claims.split),
            Self::InsertWithCombine => None,
            Self::Delete => Some(&claims.delete),
        }
    }

    /// The kind of an insert below this many full levels.
    fn of_insert(levels: usize, after: &Way) -> Self {
        match levels {
            0 => Self::Insert,
            _ if ours::has_combined(after) => Self::InsertWithCombine,
            _ => Self::InsertWithSplits,
        }
    }
}

/// The counts of one operation. The measurement compares them with the expected cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Words stored into nodes.
    pub node_words: u64,
    /// Words of log records.
    pub log_words: u64,
    /// Flushed lines of nodes and log records.
    pub flushes: u64,
    /// Flushed lines of the words that the log covers.
    pub homes: u64,
    /// Fences.
    pub fences: u64,
    /// Bytes of nodes and log records whose value changed.
    pub bytes_changed: u64,
}

impl Tally {
    /// Extracts the tally from the counts.
    pub fn of(counts: &Counts) -> Self {
        let [node, log, home] = [Category::Node, Category::Log, Category::Home].map(|part| counts.part(part));
        Self {
            node_words: node.words,
            log_words: log.words,
            flushes: node.flushes + log.flushes,
            homes: home.flushes,
            fences: node.fences_total() + log.fences_total() + home.fences_total(),
            bytes_changed: node.bytes + log.bytes,
        }
    }

    /// Words of nodes and log records.
    pub fn words(&self) -> u64 {
        self.node_words + self.log_words
    }
}

/// The loaded keys that are not taken yet, and a source of new keys.
struct Keys {
    loaded: Vec<u64>,
    random: fastrand::Rng,
}

impl Keys {
    fn new(count: u64, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut loaded: Vec<u64> = (0..count).map(|_| random.u64(..)).collect();
        loaded.sort_unstable();
        loaded.dedup();
        Self { loaded, random }
    }

    /// A key that is not in the tree, except with negligible probability.
    fn fresh(&mut self) -> u64 {
        self.random.u64(..)
    }

    /// Removes a random loaded key from the list and returns it.
    fn take_loaded(&mut self) -> u64 {
        let index = self.random.usize(..self.loaded.len());
        self.loaded.swap_remove(index)
    }
}

/// Measures an engine with nodes of `lines` cache lines and entries of `entry_bytes` bytes.
///
/// # Errors
/// Errors of the tree; `Wrong` for a wrong answer.
pub fn measure(
    engine: &Engine,
    lines: u64,
    entry_bytes: u64,
    options: &Options,
) -> Result<(Vec<Row>, Others), Error> {
    let mut bench = Bench::new(engine, lines, entry_bytes, options);
    bench.inserts(options.fill, &[Operation::Insert])?;
    bench.inserts(1.0, &[Operation::InsertWithSplits, Operation::InsertWithCombine])?;
    bench.deletes(options.fill)?;
    Ok(bench.rows.finish())
}

struct Bench<'a> {
    engine: &'a Engine,
    claims: Option<Claims>,
    plan: Plan,
    seed: u64,
    /// Maximum number of entries of a leaf.
    capacity: u64,
    keys: u64,
    rows: Rows,
}

impl<'a> Bench<'a> {
    fn new(engine: &'a Engine, node_lines: u64, entry_bytes: u64, options: &Options) -> Self {
        let plan = Plan { node_lines, entry_bytes, capacity: 0 };
        let capacity = engine.leaf_capacity(plan) as u64;
        // Enough leaves that inner nodes of all sizes fill up and split.
        let keys = options.keys.unwrap_or(capacity * 400);
        let claims = engine.claims(entry_bytes);
        let rows = Rows::new(engine.about, plan, capacity, claims);
        Self { engine, claims, plan, seed: options.seed, capacity, keys, rows }
    }

    /// Returns a loaded tree and its keys.
    fn loaded(&self, fill: f64) -> Result<(Box<dyn Subject>, Keys), Error> {
        let keys = Keys::new(self.keys, self.seed);
        let leaves = self.keys / ((self.capacity as f64 * fill) as u64).max(1) + 1;
        // Twice the leaves, plus inner nodes, copies, and chunks that are opened in advance.
        let capacity = leaves * self.plan.node_lines * pmem::LINE * 4 + (16 << 20);
        let mut subject = self.engine.make(Plan { capacity, ..self.plan })?;
        subject.bulk_load(&keys.loaded, fill)?;
        subject.take();
        Ok((subject, keys))
    }

    /// Inserts into leaves loaded to `fill`. Checks all inserts; makes rows for the kinds in `wanted`.
    fn inserts(&mut self, fill: f64, wanted: &[Operation]) -> Result<(), Error> {
        let (mut subject, mut keys) = self.loaded(fill)?;
        let operations = match wanted {
            [Operation::Insert] => self.keys / 10,
            _ => self.keys / self.capacity * 2,
        };
        for _ in 0..operations.max(1) {
            let (key, value) = (keys.fresh(), keys.fresh());
            let way = subject.way(key)?;
            if way.hit {
                continue;
            }
            if subject.put(key, value)? {
                return Err(self.wrong("a new key was called an old one"));
            }
            let spent = subject.take();
            let levels = way.full_levels();
            let after = if levels == 0 { way.clone() } else { subject.way(key)? };
            let operation = Operation::of_insert(levels, &after);
            let price = match operation {
                Operation::Insert => self.engine.parts.insert(&way),
                _ => self.engine.parts.split(&way, &after, &spent),
            };
            self.note(operation, levels, wanted, &way, price, &spent);
        }
        Ok(())
    }

    /// Deletes from leaves loaded to `fill`, while they are full enough not to be merged.
    fn deletes(&mut self, fill: f64) -> Result<(), Error> {
        let (mut subject, mut keys) = self.loaded(fill)?;
        for _ in 0..(self.keys / 10).max(1) {
            let key = keys.take_loaded();
            let way = subject.way(key)?;
            if !way.hit || way.leaf().count() - 1 <= way.leaf().shape.capacity / 4 {
                continue;
            }
            if !subject.delete(key)? {
                return Err(self.wrong("a loaded key was not there to be deleted"));
            }
            let spent = subject.take();
            let price = self.engine.parts.delete(&way);
            self.note(Operation::Delete, 0, &[Operation::Delete], &way, price, &spent);
        }
        Ok(())
    }

    fn note(
        &mut self,
        operation: Operation,
        levels: usize,
        wanted: &[Operation],
        way: &Way,
        price: Price,
        spent: &Spent,
    ) {
        let observation = Observation {
            operation,
            met: self.met(operation, levels, way),
            tally: Tally::of(&spent.counts),
            price,
            awaits_homes: self.engine.parts.protocol.awaits_homes(),
        };
        let problems = judge::problems(&observation, self.claims.as_ref());
        self.rows.note(&observation, levels, wanted.contains(&operation), &spent.counts, problems);
    }

    /// Arguments of the papers' formulas for an operation.
    fn met(&self, operation: Operation, levels: usize, way: &Way) -> Met {
        let leaf = way.leaf();
        let m = match operation {
            Operation::InsertWithSplits | Operation::InsertWithCombine => way.count_above_splits(),
            Operation::Insert | Operation::Delete => leaf.count(),
        };
        let moved = match (self.engine.about.leaf, operation) {
            ("sorted", Operation::Insert) => Some(leaf.count() - leaf.rank),
            ("sorted", Operation::Delete) => Some(leaf.count() - 1 - leaf.rank),
            ("counter", Operation::Delete) => {
                Some(usize::from(usize::from(leaf.numbers[leaf.rank]) + 1 < leaf.count()))
            }
            _ => None,
        };
        let pointers = 1 + usize::from(way.steps.len() > 1 && way.has_left_neighbour());
        Met {
            n: self.capacity as f64,
            m: m as f64,
            l: levels as f64,
            moved: moved.map(|moved| moved as f64),
            pointers: Some(pointers as f64),
            entry_bytes: self.plan.entry_bytes as f64,
        }
    }

    fn wrong(&self, what: &str) -> Error {
        Error::Wrong {
            who: format!("{} of {} lines", self.engine.about.name, self.plan.node_lines),
            what: what.to_owned(),
        }
    }
}
