//! The report: one row per engine, node size, operation and number of split levels.

use std::collections::BTreeMap;

use pmem::observed::{Category, Counts};

use index::About;

use super::engines::{Claims, Source};
use super::formulas::Met;
use super::judge::Observation;
use super::measure::Operation;
use super::subject::Plan;

/// Maximum number of problems kept per row.
const PROBLEMS_MAX: usize = 3;

/// Mean, minimum and maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Minimum.
    pub min: u64,
    /// Maximum.
    pub max: u64,
}

/// Accumulates numbers for a [`Spread`].
#[derive(Clone, Copy, Debug, Default)]
struct Series {
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Series {
    fn push(&mut self, number: u64) {
        self.min = if self.count == 0 { number } else { self.min.min(number) };
        self.max = self.max.max(number);
        self.sum += number;
        self.count += 1;
    }

    fn mean(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }

    fn spread(&self) -> Spread {
        Spread { mean: self.mean(), min: self.min, max: self.max }
    }
}

/// One of the metrics N_w, N_clf and N_mf.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Metric {
    /// Measured values.
    pub measured: Spread,
    /// Mean of the expected costs; for flushes the minimum and the maximum.
    pub ours: [f64; 2],
    /// The paper's value at the mean m; N_w in words.
    pub paper: Option<f64>,
    /// Measured mean minus the paper's value.
    pub difference: Option<f64>,
}

/// Counts of one category.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Part {
    /// Words.
    pub words: Spread,
    /// Bytes whose value changed.
    pub bytes_changed: Spread,
    /// Flushes.
    pub flushes: Spread,
    /// Fences.
    pub fences: Spread,
}

/// Results of one operation of one engine.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// Name of the engine.
    pub engine: &'static str,
    /// Leaf layout, inner layout, commit protocol.
    pub made_of: String,
    /// Cache lines of a node.
    pub node_lines: u64,
    /// Bytes of an entry of a leaf.
    pub entry_bytes: u64,
    /// Maximum number of entries of a leaf.
    pub entries_max: u64,
    /// Kind of operation.
    pub operation: Operation,
    /// Number of levels that split.
    pub split_levels: usize,
    /// Number of operations.
    pub operations: u64,
    /// Mean of m: entries of the leaf, or of the node that receives the last separator of a split.
    pub entries: f64,
    /// N_w in words of 8 bytes.
    pub words: Metric,
    /// Bytes of nodes and log records whose value these words changed.
    pub bytes_changed: Spread,
    /// Maximum of changed bytes by the paper, if it counts them.
    pub bytes_changed_most: Option<f64>,
    /// N_clf.
    pub flushes: Metric,
    /// N_mf.
    pub fences: Metric,
    /// The paper of the formula.
    pub source: Option<Source>,
    /// Mean of the paper's value at the actual ranks, in words. Where the formula is exact, the measured mean must equal it.
    pub paper_words_met: Option<f64>,
    /// Difference between the paper's rules of counting and ours.
    pub note: &'static str,
    /// True if operations wait for their data lines. Then these are included in the flushes.
    pub awaits_homes: bool,
    /// Counts by category, without empty categories.
    pub parts: BTreeMap<&'static str, Part>,
    /// Number of operations that differ from their expected cost.
    pub failures: u64,
    /// The first few problems.
    pub problems: Vec<String>,
}

/// Collects the rows of an engine.
pub struct Rows {
    about: &'static About,
    plan: Plan,
    capacity: u64,
    claims: Option<Claims>,
    groups: BTreeMap<(Operation, usize), Group>,
    others: Others,
}

/// Checked operations that are in no row: splits in a measurement of leaves with space, and inserts without split in a measurement of full
/// leaves.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Others {
    /// Number of these operations.
    pub operations: u64,
    /// Number of these operations that differ from their expected cost.
    pub failures: u64,
    /// The first few problems.
    pub problems: Vec<String>,
}

impl Others {
    /// Adds other counts.
    pub fn merge(&mut self, more: Self) {
        self.operations += more.operations;
        self.failures += more.failures;
        keep_some(&mut self.problems, more.problems.into_iter());
    }
}

/// Appends problems up to the maximum.
fn keep_some(kept: &mut Vec<String>, more: impl Iterator<Item = String>) {
    let space = PROBLEMS_MAX.saturating_sub(kept.len());
    kept.extend(more.take(space));
}

#[derive(Default)]
struct Group {
    entries: Series,
    words: Series,
    bytes_changed: Series,
    flushes: Series,
    fences: Series,
    ours_words: Series,
    ours_flushes: [Series; 2],
    ours_fences: Series,
    paper_words: f64,
    awaits_homes: bool,
    parts: BTreeMap<Category, [Series; 4]>,
    failures: u64,
    problems: Vec<String>,
}

impl Rows {
    /// Makes rows without operations.
    pub fn new(about: &'static About, plan: Plan, capacity: u64, claims: Option<Claims>) -> Self {
        Self { about, plan, capacity, claims, groups: BTreeMap::new(), others: Others::default() }
    }

    /// Adds an operation. One that is not `wanted` counts in no row: only its problems are kept.
    pub fn note(
        &mut self,
        seen: &Observation,
        levels: usize,
        wanted: bool,
        counts: &Counts,
        problems: Vec<String>,
    ) {
        let describe = |problem: String| {
            format!("{} with m = {} and {levels} levels split: {problem}", seen.operation.name(), seen.met.m)
        };
        let failures = u64::from(!problems.is_empty());
        let problems = problems.into_iter().map(describe);
        if !wanted {
            self.others.merge(Others { operations: 1, failures, problems: problems.collect() });
            return;
        }
        let group = self.groups.entry((seen.operation, levels)).or_default();
        group.failures += failures;
        keep_some(&mut group.problems, problems);
        group.add(seen, counts);
        if let Some(claim) = self.claims.as_ref().and_then(|claims| seen.operation.claim(claims)) {
            group.paper_words += (claim.formula)(&seen.met).written;
        }
    }

    /// Returns the rows and the operations in no row.
    pub fn finish(mut self) -> (Vec<Row>, Others) {
        let groups = std::mem::take(&mut self.groups);
        let row = |((operation, levels), group)| self.row(operation, levels, group);
        let rows = groups.into_iter().map(row).collect();
        (rows, self.others)
    }

    fn row(&self, operation: Operation, levels: usize, group: Group) -> Row {
        let operations = group.words.count;
        let m = group.entries.mean();
        let entry_bytes = self.plan.entry_bytes as f64;
        let met = Met { n: self.capacity as f64, m, l: levels as f64, entry_bytes, ..Met::default() };
        let claim = self.claims.as_ref().and_then(|claims| operation.claim(claims));
        let paper = claim.map(|claim| (claim.formula)(&met));
        let source = claim.and(self.claims.as_ref()).map(|claims| claims.source);
        let bytes = if source == Some(Source::Vlab2018) { 8.0 } else { 1.0 };
        let metric = |measured: Series, ours: [Series; 2], paper: Option<f64>| Metric {
            measured: measured.spread(),
            ours: ours.map(|series| series.mean()),
            paper,
            difference: paper.map(|paper| measured.mean() - paper),
        };
        let about = self.about;
        Row {
            engine: about.name,
            made_of: format!("{} / {} / {}", about.leaf, about.inner, about.commit_protocol),
            node_lines: self.plan.node_lines,
            entry_bytes: self.plan.entry_bytes,
            entries_max: self.capacity,
            operation,
            split_levels: levels,
            operations,
            entries: m,
            words: metric(group.words, [group.ours_words; 2], paper.map(|paper| paper.written / bytes)),
            bytes_changed: group.bytes_changed.spread(),
            bytes_changed_most: claim.and_then(|claim| claim.changed).map(|changed| changed(&met)),
            flushes: metric(group.flushes, group.ours_flushes, paper.map(|paper| paper.flushes)),
            fences: metric(group.fences, [group.ours_fences; 2], paper.map(|paper| paper.fences)),
            source,
            paper_words_met: source.map(|_| group.paper_words / bytes / operations as f64),
            note: claim.map_or("", |claim| claim.note),
            awaits_homes: group.awaits_homes,
            parts: group.parts(),
            failures: group.failures,
            problems: group.problems,
        }
    }
}

impl Group {
    fn add(&mut self, seen: &Observation, counts: &Counts) {
        let (price, bounds) = (&seen.price, seen.flush_bounds());
        self.entries.push(seen.met.m as u64);
        self.words.push(seen.tally.words());
        self.bytes_changed.push(seen.tally.bytes_changed);
        self.flushes.push(seen.flushes());
        self.fences.push(seen.tally.fences);
        self.ours_words.push(price.node_words + price.log_words);
        self.ours_flushes[0].push(bounds.least);
        self.ours_flushes[1].push(bounds.most);
        self.ours_fences.push(price.fences);
        self.awaits_homes = seen.awaits_homes;
        for category in Category::ALL {
            let part = counts.part(category);
            let numbers = [part.words, part.bytes, part.flushes, part.fences_total()];
            let series = self.parts.entry(category).or_default();
            series.iter_mut().zip(numbers).for_each(|(series, number)| series.push(number));
        }
    }

    /// Counts by category.
    fn parts(&self) -> BTreeMap<&'static str, Part> {
        let some = |(_, series): &(&Category, &[Series; 4])| series.iter().any(|series| series.sum > 0);
        let part = |(category, series): (&Category, &[Series; 4])| {
            let [words, bytes_changed, flushes, fences] = series.map(|series| series.spread());
            (category.name(), Part { words, bytes_changed, flushes, fences })
        };
        self.parts.iter().filter(some).map(part).collect()
    }
}

/// The results of the measurement.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Fill factor of leaves for inserts without split and for deletes.
    pub fill: f64,
    /// Seed of all random choices.
    pub seed: u64,
    /// The rows.
    pub rows: Vec<Row>,
    /// Operations that are in no row.
    pub others: Others,
    /// Number of checked operations.
    pub operations: u64,
    /// Number of operations that differ from their expected cost.
    pub failures: u64,
}

impl Report {
    /// Makes a report of rows and other operations.
    pub fn new(fill: f64, seed: u64, rows: Vec<Row>, others: Others) -> Self {
        let operations = rows.iter().map(|row| row.operations).sum::<u64>() + others.operations;
        let failures = rows.iter().map(|row| row.failures).sum::<u64>() + others.failures;
        Self { fill, seed, rows, others, operations, failures }
    }

    /// True if no operation differs from its expected cost.
    pub fn is_good(&self) -> bool {
        self.failures == 0 && !self.rows.is_empty()
    }
}
