//! Which workloads an engine gets, and the mutation run over them.

use std::time::Duration;

use crash::{Argued, Mutant, MutationReport, Subject, Workload, explore_mutant};
use tree::{Keyed, Prefixed, Words};

use super::argued::{ARGUED, CANARY};
use super::laps;
use super::subject::{Sample, Sizes};
use super::workloads::{Maker, Work};
use super::{Engine, Options};

type Explore = dyn Fn(&crash::Options, Option<Mutant>) -> crash::Report;

/// How much of a crash point is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// Steps alone; create and close have workloads of their own.
    Steps,
    /// All, with small caps.
    Whole,
}

/// Workloads of one subject, explored together.
pub struct Run {
    /// What they are.
    pub name: String,
    depth: Depth,
    explore: Box<Explore>,
}

impl Run {
    fn new<S: Subject + 'static>(name: String, depth: Depth, workloads: Vec<Workload<S>>) -> Self {
        let explore = move |options: &crash::Options, mutant| {
            let mut total = crash::Report::default();
            for workload in &workloads {
                if total.violations.len() >= options.violations_max {
                    break;
                }
                total.merge(explore_mutant(workload, options, mutant));
            }
            total
        };
        Self { name, depth, explore: Box::new(explore) }
    }

    /// Explores the workloads one after the other until one is violated.
    pub fn explore(&self, options: &crash::Options, mutant: Option<Mutant>) -> crash::Report {
        (self.explore)(options, mutant)
    }

    /// Bounds of an exploration without mutants.
    pub fn bounds(&self, seed: u64) -> crash::Options {
        let base = crash::Options { seed, samples: 32, line_cap: 64, ..crash::Options::default() };
        match self.depth {
            Depth::Steps => crash::Options { cap: 512, nested_cap: 8, create: false, close: false, ..base },
            Depth::Whole => crash::Options { cap: 512, nested_cap: 16, ..base },
        }
    }
}

/// The sizes of nodes: least, straddling, production, and one whose slot array leaves the bitmap's line.
pub const NODE_LINES: [u64; 4] = [2, 3, 8, 16];

/// The workloads of an exploration.
pub fn exploration(options: &Options) -> Vec<Run> {
    let mut runs = Vec::new();
    for lines in options.node_lines.map_or(NODE_LINES.to_vec(), |lines| vec![lines]) {
        match options.engine {
            Engine::Wbtree => {
                add::<Words>(&mut runs, "words", lines, options);
                add::<Prefixed>(&mut runs, "prefixed", lines, options);
            }
            Engine::WbtreeKeyptr => add::<Keyed>(&mut runs, "keyed", lines, options),
        }
    }
    runs.push(Run::new("log laps".to_owned(), Depth::Whole, vec![laps::tags_come_round(), laps::short_laps()]));
    runs
}

fn add<S: Sample>(runs: &mut Vec<Run>, kind: &str, lines: u64, options: &Options) {
    let maker = Maker::new::<S>(Sizes::new(lines));
    let mut run = |name: &str, depth, workloads: Vec<Work<S>>| {
        runs.push(Run::new(format!("{kind}, {lines} lines: {name}"), depth, workloads));
    };
    run("pairs from empty", Depth::Steps, maker.from_empty());
    run("pairs from a full leaf and parent", Depth::Steps, maker.from_full());
    run("pairs before underflow", Depth::Steps, maker.from_low());
    run("lives", Depth::Whole, vec![maker.lives(options.seed, 30)]);
    run("bulk loads", Depth::Steps, vec![maker.bulk_loads()]);
    if lines <= 3 {
        run("levelling", Depth::Steps, vec![maker.levelling(false), maker.levelling(true)]);
    }
    if S::PLAIN {
        run("random", Depth::Steps, vec![maker.random(options.seed, options.ops, 60, 8)]);
    } else {
        run("random", Depth::Steps, vec![maker.random(options.seed, options.ops / 4, 40, 40)]);
        if lines <= 2 {
            let special = vec![maker.reused_chunk(), maker.large(), maker.long_bitmap(), maker.refused()];
            run("large records", Depth::Steps, special);
        }
    }
}

/// Leaves out every flush and fence in turn.
pub fn mutation(engine: Engine, seed: u64, say: &dyn Fn(&str)) -> MutationReport {
    let runs = mutation_runs(engine, seed);
    let options = crash::Options { seed, cap: 48, nested_cap: 8, samples: 16, line_cap: 32, ..crash::Options::default() };
    let mut report = MutationReport::default();
    for run in &runs {
        say(&format!("mutation run without a mutant: {}", run.name));
        report.base.merge(run.explore(&options, None));
    }
    if report.base.is_violated() {
        return report;
    }
    let mut needed = [false; ARGUED.len()];
    for mutant in crash::mutants(&report.base) {
        say(&mutant.to_string());
        let killed = runs.iter().find_map(|run| {
            let explored = run.explore(&options, Some(mutant));
            report.images += explored.images + explored.nested_images;
            explored.violations.into_iter().next()
        });
        match (killed, argued(&mutant)) {
            (Some(violation), _) => report.killed.push((mutant, violation)),
            (None, Some((number, argued))) => {
                needed[number] = true;
                report.argued.push((mutant, argued.why));
            }
            (None, None) => report.survived.push(mutant),
        }
    }
    report.stale = ARGUED.iter().zip(needed).filter(|(_, needed)| !needed).map(|(argued, _)| *argued).collect();
    report.base.elapsed = Duration::ZERO;
    report
}

fn argued(mutant: &Mutant) -> Option<(usize, &'static Argued)> {
    ARGUED.iter().enumerate().find(|(_, argued)| argued.spot.matches(mutant))
}

/// The workloads that find mutants, the quickest first.
fn mutation_runs(engine: Engine, seed: u64) -> Vec<Run> {
    let mut runs = vec![Run::new("log laps".to_owned(), Depth::Whole, vec![laps::tags_come_round()])];
    match engine {
        Engine::Wbtree => {
            add_for_mutants::<Words>(&mut runs, "words", seed);
            add_for_mutants::<Prefixed>(&mut runs, "prefixed", seed);
        }
        Engine::WbtreeKeyptr => add_for_mutants::<Keyed>(&mut runs, "keyed", seed),
    }
    runs
}

fn add_for_mutants<S: Sample>(runs: &mut Vec<Run>, kind: &str, seed: u64) {
    let least = Maker::new::<S>(Sizes::new(2));
    let most = Maker::new::<S>(Sizes::new(16));
    let mut run = |name: &str, workload: Work<S>| {
        runs.push(Run::new(format!("{kind}: {name}"), Depth::Whole, vec![workload]));
    };
    run("random", least.random(seed, 80, 30, 20));
    run("full slots", most.full_slots());
    run("lives", least.lives(seed, 30));
    run("levelling", least.levelling(true));
    if !S::PLAIN {
        run("reused chunk", least.reused_chunk());
        run("long bitmap", least.long_bitmap());
        run("refused", least.refused());
        run("large", least.large());
    }
    run("longer random", least.random(seed + 1, 300, 60, 20));
}

/// Whether the canary, one of the mutants, was caught: in words how, or why it counts as not caught.
///
/// # Errors
/// It was not there, or not caught.
pub fn canary(engine: Engine, mutation: &MutationReport) -> Result<String, String> {
    let found: Vec<_> = mutation.killed.iter().filter(|(mutant, _)| CANARY.matches(mutant)).collect();
    let survived = mutation.survived.iter().filter(|mutant| CANARY.matches(mutant)).count();
    match found.first() {
        Some((mutant, violation)) if survived == 0 => Ok(format!("{mutant}: {violation}")),
        _ => Err(format!("{} without `{}`", engine.name(), CANARY.contains)),
    }
}
