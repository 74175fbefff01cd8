//! The batches of [`figure`] on simulated memory: cycles, energy and wear instead of times [wB+ §5.2, figures 11 and 12].
//!
//! Each tree has its own simulated caches and device. Loading is not counted. A batch begins with empty caches and a device that contains
//! the whole tree. Flushes and fences of the volatile tree are not executed. The results are deterministic: the same keys and parameters
//! give the same cycles on every machine. So one round is enough.

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use pcm::{Config, Pcm, Totals};
use pmem::observed::{Memory, Observed, Observer};
use pmem::{Durability, Medium};

use super::claims::Claim;
use super::counts::Costs;
use super::figure::{self, Plan, Sample, Subject};
use super::{Batch, Experiment, Options, Outcome, Progress, Row, Step};
use crate::measured::{Making, Measured};
use crate::scratch::Instructions;
use crate::{Error, wrong};

/// Average effects of one operation on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Device {
    /// Cycles.
    pub cycles: f64,
    /// Lines read from the device, including prefetched ones. (They are also included in the row's counts.)
    pub line_reads: f64,
    /// Lines written to the device.
    pub line_writes: f64,
    /// Written words that changed.
    pub words_new: f64,
    /// Written bits that changed: the wear.
    pub bits_new: f64,
    /// Energy in picojoules.
    pub pj: f64,
    /// Cycles that fences wait.
    pub fence_cycles: f64,
}

impl Device {
    fn of(totals: &Totals, operations: usize) -> Self {
        let each = |number: u64| number as f64 / operations as f64;
        Self {
            cycles: each(totals.cycles),
            line_reads: each(totals.line_reads),
            line_writes: each(totals.line_writes),
            words_new: each(totals.words_written),
            bits_new: each(totals.bits_written),
            pj: (totals.read_pj + totals.write_pj) / operations as f64,
            fence_cycles: each(totals.fence_cycles),
        }
    }
}

/// Results of one batch on one tree. The nanoseconds are those of the simulated clock.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Charged {
    /// The same fields as for a measured batch.
    #[serde(flatten)]
    pub row: Row,
    /// Effects on the device.
    #[serde(flatten)]
    pub device: Device,
}

/// Results of a simulated experiment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Description of the experiment.
    pub about: &'static str,
    /// Number of keys in each tree.
    pub keys: u64,
    /// Operations of a batch.
    pub operations: u64,
    /// Cache lines of a node.
    pub node_lines: Vec<u64>,
    /// Seed of keys and their order.
    pub seed: u64,
    /// Parameters of the hierarchy.
    pub memory: Vec<(&'static str, f64)>,
    /// One row per batch and tree.
    pub rows: Vec<Charged>,
    /// The judged claims of the paper.
    pub claims: Vec<Claim>,
}

/// The batches, trees and claims of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The trees. The first is the volatile one.
    pub subjects: &'static [Subject],
    /// The batches, in the order of tables.
    pub batches: &'static [Batch],
    /// Cache lines of a node; `None` for the sizes in the options.
    pub node_lines: Option<&'static [u64]>,
    /// The paper's claims.
    pub claims: fn(&[Charged], &Config) -> Vec<Claim>,
}

/// Bytes of simulated memory for a tree: leaves that are 70 % full, the inserts of a batch, and a reserve of the same size.
fn capacity(keys: u64) -> u64 {
    (64 << 20) + keys * 96
}

/// Runs a figure.
///
/// # Errors
/// `Pmem` if a tree outgrows the simulated memory; `Wrong` if a tree returns a wrong answer.
pub fn run(
    experiment: &'static Experiment,
    figure: &Figure,
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Outcome, Error> {
    let (keys, operations) = options.scaled();
    let plan = Plan::<u64>::new(keys, operations, options.seed);
    let mut node_lines = figure.node_lines.map_or_else(|| options.node_lines.clone(), <[u64]>::to_vec);
    node_lines.sort_unstable();
    node_lines.dedup();
    let shown = |lines: u64| {
        let fits = move |subject: &&Subject| {
            (subject.lines.0..=subject.lines.1).contains(&lines) && subject.about().allows(lines)
        };
        figure.subjects.iter().filter(fits)
    };
    let fills = [0.7, 1.0].map(|fill| (fill, batches_of(figure, fill)));
    let fills: Vec<_> = fills.into_iter().filter(|(_, batches)| !batches.is_empty()).collect();
    let total = node_lines.iter().map(|lines| shown(*lines).count() * fills.len()).sum::<usize>() as u64;
    let mut done = 0;
    let mut rows: Vec<Charged> = Vec::new();
    for &lines in &node_lines {
        let first = rows.len();
        for subject in shown(lines) {
            let of_tree = rows.len();
            for (fill, batches) in &fills {
                let what = format!("{}, {lines} lines, {:.0}% full", subject.name, fill * 100.0);
                progress(Step { done, total, what });
                done += 1;
                rows.extend(charge(subject, lines, &plan, &options.memory, *fill, batches)?);
            }
            // In the order of tables.
            rows[of_tree..].sort_by_key(|row| row.row.batch);
        }
        let volatile: Vec<_> = rows[first..].iter().take_while(|row| !is_durable(row)).cloned().collect();
        for row in &mut rows[first..] {
            let of = volatile.iter().find(|volatile| volatile.row.batch == row.row.batch);
            row.row.ratio = of.map_or(f64::NAN, |volatile| row.device.cycles / volatile.device.cycles);
        }
    }
    let claims = (figure.claims)(&rows, &options.memory);
    Ok(Outcome::Simulated(Report {
        experiment: experiment.name,
        about: experiment.about,
        keys,
        operations,
        node_lines,
        seed: options.seed,
        memory: options.memory.figures(),
        rows,
        claims,
    }))
}

fn is_durable(row: &Charged) -> bool {
    crate::engine(row.row.tree).is_ok_and(|about| about.durable)
}

fn batches_of(figure: &Figure, fill: f64) -> Vec<Batch> {
    let at_70 = [Batch::Search70, Batch::Insert70, Batch::Delete70];
    figure.batches.iter().copied().filter(|batch| at_70.contains(batch) == (fill < 1.0)).collect()
}

/// Charges the batches of a figure on one tree. The other batches run too.
fn charge(
    subject: &Subject,
    node_lines: u64,
    plan: &Plan<u64>,
    config: &Config,
    fill: f64,
    batches: &[Batch],
) -> Result<Vec<Charged>, Error> {
    let memory = Memory::new(capacity(plan.keys.len() as u64), 0);
    let pcm = Pcm::new(Arc::clone(&memory), *config, subject.about().durable);
    let medium = Observed::new(memory, Arc::clone(&pcm) as Arc<dyn Observer>);
    let mut tree = make(subject, node_lines, medium)?;
    if tree.load(&plan.keys, fill)? != plan.keys.len() as u64 {
        return Err(wrong(subject.name, "load: not all keys".into()));
    }
    let draw = plan.draw(0);
    let tasks = if fill < 1.0 { &draw.at_70()[..] } else { &draw.at_100()[..] };
    let mut rows = Vec::new();
    for (batch, keys, operation) in tasks {
        let batch = batch.filter(|batch| batches.contains(batch));
        if batch.is_some() {
            pcm.begin();
        }
        operation.run(tree.as_mut(), keys)?;
        pcm.end();
        let Some(batch) = batch else { continue };
        let totals = pcm.totals();
        let device = Device::of(&totals, keys.len());
        let each = |number: u64| number as f64 / keys.len() as f64;
        rows.push(Charged {
            row: Row {
                tree: subject.name,
                leaf: subject.about().leaf,
                commit_protocol: subject.about().commit_protocol,
                keys: subject.keys,
                node_lines,
                instructions: if config.flush_keeps { Instructions::Best } else { Instructions::Paper },
                batch,
                ns: device.cycles / config.ghz,
                ratio: f64::NAN,
                costs: Costs {
                    words: each(totals.stores),
                    flushes: each(totals.flushes),
                    fences: each(totals.fences),
                    lines_read: device.line_reads,
                },
            },
            device,
        });
    }
    let held = if fill < 1.0 { plan.keys.clone() } else { plan.after_100(&draw) };
    figure::verify(tree.as_mut(), &held)?;
    Ok(rows)
}

fn make<M: Medium>(subject: &Subject, node_lines: u64, medium: M) -> Result<Box<dyn Measured<u64>>, Error> {
    let name = subject.name.into();
    u64::make(subject, Making { name, medium, node_lines, durability: Durability::Power, payload_words: 1 })
}

impl Report {
    fn table(
        &self,
        f: &mut Formatter<'_>,
        lines: u64,
        head: &str,
        cell: impl Fn(&Charged) -> String,
    ) -> std::fmt::Result {
        let here: Vec<_> = self.rows.iter().filter(|row| row.row.node_lines == lines).collect();
        let columns: Vec<_> =
            Batch::ALL.into_iter().filter(|batch| here.iter().any(|row| row.row.batch == *batch)).collect();
        write!(f, "{head:26}")?;
        columns.iter().try_for_each(|batch| write!(f, "{:>26}", batch.name()))?;
        for row in &here {
            if row.row.batch == columns[0] {
                write!(f, "\n{:26}", row.row.tree)?;
            }
            write!(f, "{:>26}", cell(row))?;
        }
        writeln!(f, "\n")
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}: {}", self.experiment, self.about)?;
        writeln!(f, "{} keys, batches of {}, simulated; seed {}", self.keys, self.operations, self.seed)?;
        let figures: Vec<_> = self.memory.iter().map(|(name, figure)| format!("{name} {figure}")).collect();
        for figures in figures.chunks(8) {
            writeln!(f, "  {}", figures.join(", "))?;
        }
        writeln!(f)?;
        for &lines in &self.node_lines {
            writeln!(f, "nodes of {lines} lines")?;
            self.table(f, lines, "cycles (of btree's)", |row| {
                format!("{:.0} ({:.2})", row.device.cycles, row.row.ratio)
            })?;
            self.table(f, lines, "new bits/energy nJ", |row| {
                format!("{:.1}/{:.2}", row.device.bits_new, row.device.pj / 1000.0)
            })?;
            self.table(f, lines, "flushes/fences/reads/writes", |row| {
                let (costs, device) = (&row.row.costs, &row.device);
                format!(
                    "{:.1}/{:.1}/{:.1}/{:.1}",
                    costs.flushes, costs.fences, device.line_reads, device.line_writes
                )
            })?;
        }
        writeln!(f, "claims")?;
        self.claims.iter().try_for_each(|claim| writeln!(f, "{claim}"))
    }
}
