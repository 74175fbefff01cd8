//! `bristlecone-lab crash --tree`: runs the crash explorer on the durable B+-trees of `bptree`, and on the other durable engines of the
//! registry except those of `cdds`, whose own tests explore them.
//!
//! * [`subject`]: a tree as the explorer's subject.
//! * [`workloads`]: the workloads of trees. [`generations`]: workloads of the log without a tree. Some of them continue until the tags of
//!   the log's generations repeat, after 4,096 generations.
//! * [`suite`]: the choice of workloads for an engine, and the mutation run over them.
//! * [`general`]: subject, workloads and suite of the engines that are not B+-trees.
//! * [`argued`]: equivalent mutants and their reasons.
//!
//! Runs and mutants are independent of each other and run on several threads. Except for the times, the report depends only on the seed and
//! the options. A run is good only if no image has a violation, every mutant is killed or has a reason, the *injected fault* (the mutant
//! without the most important fence of the commit protocol) is killed, and the number of explored states reaches the engine's recorded
//! minimum. So a run that explores less than before without notice is not good.

#![forbid(unsafe_code)]

pub mod argued;
pub mod general;
pub mod generations;
pub mod subject;
pub mod suite;
pub mod workloads;

use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use bptree::roster::TREES;
use crash::Mutant;
use crash::workers::{Say, Stage};
use index::About;

/// A durable engine of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Engine(&'static About);

/// Minimum number of states of a default run. It is a little below the measured number, because other seeds explore slightly fewer. It may
/// only be raised.
const FLOORS: &[(&str, u64)] = &[
    ("wbtree", 3_100_000),
    ("wbtree-keyptr", 2_420_000),
    ("wbtree-bmp", 2_760_000),
    ("wbtree-slot", 1_460_000),
    ("wbtree-line", 3_450_000),
    ("btree-log", 11_230_000),
    ("unsorted-log", 9_280_000),
    ("ubmp-log", 7_660_000),
    ("btree-shadow", 7_260_000),
    ("unsorted-shadow", 7_120_000),
    ("ubmp-shadow", 7_390_000),
    ("trad-4k", 5_670_000),
    ("trad-4k-shadow", 5_400_000),
    ("cnt-4k", 2_970_000),
    ("bmp-4k", 3_080_000),
    ("wb-4k", 2_250_000),
    ("bmp-all-4k", 1_760_000),
    ("buffer-pool", 8_210_000),
    ("vlab", 2_700_000),
    ("nvtree", 2_190_000),
    ("line", 500_000),
];

/// The minimum of an engine without a recorded one.
const FLOOR_OF_OTHERS: u64 = 100_000;

impl Engine {
    /// All durable engines.
    pub fn all() -> impl Iterator<Item = Self> {
        TREES.iter().filter(|about| about.durable).chain(general::engines()).map(Self)
    }

    /// The engine's name.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The engine's description.
    pub fn about(self) -> &'static About {
        self.0
    }

    /// The engine's minimum number of states.
    pub fn floor(self) -> u64 {
        FLOORS.iter().find(|(name, _)| *name == self.name()).map_or(FLOOR_OF_OTHERS, |(_, floor)| *floor)
    }
}

impl serde::Serialize for Engine {
    fn serialize<Z: serde::Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        serializer.serialize_str(self.name())
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known: Vec<_> = Self::all().map(Self::name).collect();
        Self::all()
            .find(|engine| engine.name() == name)
            .ok_or(format!("no durable tree `{name}`; there are {}", known.join(", ")))
    }
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The engine to explore.
    pub engine: Engine,
    /// Number of operations of each random run.
    pub ops: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// Explore only nodes of this many lines. The minimum number of states does not apply then.
    pub node_lines: Option<u64>,
    /// Maximum number of threads. Results do not depend on it.
    pub threads: usize,
    /// The mutants that are tried.
    pub share: crash::Share,
}

impl Options {
    /// Default number of operations of a random run.
    pub const OPS: usize = 400;

    /// The options of a default run.
    pub fn new(engine: Engine) -> Self {
        let threads = crash::workers::processors();
        Self { engine, ops: Self::OPS, seed: 1, node_lines: None, threads, share: crash::Share::All }
    }

    /// The minimum number of states of the run; 0 if it covers only a part of a default run.
    pub fn floor(&self) -> u64 {
        let whole = self.node_lines.is_none() && self.ops >= Self::OPS;
        if whole { self.engine.floor() } else { 0 }
    }
}

/// An equivalent mutant and its reason.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Excuse {
    /// The mutant.
    pub mutant: String,
    /// The invariant that makes it equivalent.
    pub why: &'static str,
}

/// The part of one run in an exploration.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Share {
    /// Name of the run.
    pub run: String,
    /// Number of crash points, including those inside recovery.
    pub crash_points: u64,
    /// Number of images judged.
    pub states: u64,
}

/// The result of a run: counts, violations and mutants.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// The engine.
    pub engine: Engine,
    /// Seed.
    pub seed: u64,
    /// Number of operations of each random run.
    pub ops: usize,
    /// Number of crash points, including those inside recovery.
    pub crash_points: u64,
    /// Number of images recovered and judged without a mutant.
    pub states: u64,
    /// Number of those images with a crash inside recovery.
    pub nested_states: u64,
    /// Number of nested states that were not executed, because the subject would read the same contents as from an image judged good.
    pub recalled_states: u64,
    /// Number of crash points of operations with more images than the cap. They were sampled.
    pub sampled_points: u64,
    /// The same inside recovery.
    pub nested_sampled_points: u64,
    /// Number of times that a line had more contents than the cap.
    pub capped_lines: u64,
    /// Minimum number of states of a valid run.
    pub floor: u64,
    /// States per second and thread.
    pub states_per_second: f64,
    /// The crash point with the most images: workload, `phase@event`, images.
    pub worst: Option<(String, String, u64)>,
    /// Counts of each run without a mutant.
    pub runs: Vec<Share>,
    /// Violations: workload and violation.
    pub violations: Vec<(String, String)>,
    /// Number of mutants killed.
    pub mutants_killed: usize,
    /// For each run, the mutants that it killed first.
    pub kills: Vec<Kills>,
    /// Equivalent mutants with their reasons.
    pub mutants_argued: Vec<Excuse>,
    /// Mutants that survived without a reason.
    pub mutants_survived: Vec<String>,
    /// Reasons that no mutant needs.
    pub stale_arguments: Vec<String>,
    /// Number of images judged for all mutants.
    pub mutant_states: u64,
    /// The violation that detected the injected fault, or why it was not detected.
    pub injected_fault: Result<String, String>,
    /// Duration in seconds.
    pub seconds: f64,
}

impl Report {
    /// True if there is no violation, every mutant and the injected fault have the required outcome, and the minimum number of states is
    /// reached.
    pub fn is_good(&self) -> bool {
        self.violations.is_empty()
            && self.mutants_survived.is_empty()
            && self.stale_arguments.is_empty()
            && self.injected_fault.is_ok()
            && self.states >= self.floor
    }
}

/// Explores an engine, then its mutants, and checks its injected fault. `say` is the progress callback.
pub fn run(options: &Options, say: &Say<'_>) -> Report {
    let start = Instant::now();
    let stage = |name| Stage { name, threads: options.threads, say };
    let Explored { report: explored, worst, runs, mut violations } =
        explore(options, stage("runs"), |run| run.bounds(options.seed));
    let mutation = suite::mutation(options, stage);
    let injected_fault = suite::injected_fault(options.engine, &mutation);
    let name = |mutant: &Mutant| mutant.to_string();
    let excuse = |(mutant, why): &(Mutant, &'static str)| Excuse { mutant: name(mutant), why };
    let kills = |(run, mutants): &(String, Vec<Mutant>)| Kills {
        run: run.clone(),
        mutants: mutants.iter().map(name).collect(),
    };
    violations.extend(
        mutation.base.violations.iter().map(|violation| ("mutation run".to_owned(), violation.to_string())),
    );
    Report {
        engine: options.engine,
        seed: options.seed,
        ops: options.ops,
        crash_points: explored.crash_points + explored.nested_points,
        states: explored.images + explored.nested_images,
        nested_states: explored.nested_images,
        recalled_states: explored.nested_recalled,
        sampled_points: explored.sampled_points,
        nested_sampled_points: explored.nested_sampled_points,
        capped_lines: explored.capped_lines,
        floor: options.floor(),
        states_per_second: explored.states_per_second(),
        worst,
        runs,
        violations,
        mutants_killed: mutation.killed.len(),
        kills: mutation.kills.iter().map(kills).collect(),
        mutants_argued: mutation.argued.iter().map(excuse).collect(),
        mutants_survived: mutation.survived.iter().map(name).collect(),
        stale_arguments: mutation.stale.iter().map(|argued| argued.spot.contains.to_owned()).collect(),
        mutant_states: mutation.images,
        injected_fault,
        seconds: start.elapsed().as_secs_f64(),
    }
}

/// The mutants that a run killed.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Kills {
    /// The run.
    pub run: String,
    /// The mutants.
    pub mutants: Vec<String>,
}

/// The result of the runs without a mutant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explored {
    /// The sum of their reports.
    pub report: crash::Report,
    /// The crash point with the most images: run, `phase@event`, images.
    pub worst: Option<(String, String, u64)>,
    /// Counts of each run.
    pub runs: Vec<Share>,
    /// Violations: run and violation.
    pub violations: Vec<(String, String)>,
}

/// Explores an engine's runs, each within its `bounds`.
pub fn explore(
    options: &Options,
    stage: Stage<'_>,
    bounds: impl Fn(&suite::Run) -> crash::Options + Sync,
) -> Explored {
    let runs = suite::exploration(options);
    let reports = stage.map(&runs, suite::Run::name, |run| run.explore(&bounds(run), None));
    let mut total = Explored::default();
    for (run, report) in runs.iter().zip(reports) {
        if let Some(here) = report.worst
            && total.worst.as_ref().is_none_or(|worst| here.images > worst.2)
        {
            total.worst = Some((run.name(), format!("{}@{}", here.phase, here.event), here.images));
        }
        total.runs.push(Share {
            run: run.name(),
            crash_points: report.crash_points + report.nested_points,
            states: report.images + report.nested_images,
        });
        let named = |violation: &crash::Violation| (run.name(), violation.to_string());
        total.violations.extend(report.violations.iter().map(named));
        total.report.merge(report);
    }
    total
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, seed {}, random runs of {} operations", self.engine.name(), self.seed, self.ops)?;
        writeln!(
            f,
            "{} states at {} crash points ({} states inside recovery, {} of them read as others), floor {}; {:.0} states/s and thread",
            self.states,
            self.crash_points,
            self.nested_states,
            self.recalled_states,
            self.floor,
            self.states_per_second
        )?;
        writeln!(
            f,
            "only sampled: {} points of operations, {} inside recovery; {} lines",
            self.sampled_points, self.nested_sampled_points, self.capped_lines
        )?;
        if let Some((name, place, images)) = &self.worst {
            writeln!(f, "worst crash point: {place} of {name} with {images} images")?;
        }
        writeln!(
            f,
            "{} mutants killed, {} argued, {} survived; {} states",
            self.mutants_killed,
            self.mutants_argued.len(),
            self.mutants_survived.len(),
            self.mutant_states
        )?;
        let kills: Vec<_> =
            self.kills.iter().map(|kills| format!("{} {}", kills.run, kills.mutants.len())).collect();
        writeln!(f, "  killed by: {}", kills.join(", "))?;
        self.mutants_argued
            .iter()
            .try_for_each(|excuse| writeln!(f, "  argued: {}: {}", excuse.mutant, excuse.why))?;
        self.mutants_survived.iter().try_for_each(|mutant| writeln!(f, "  survived: {mutant}"))?;
        self.stale_arguments.iter().try_for_each(|spot| writeln!(f, "  argued for nothing: `{spot}`"))?;
        match &self.injected_fault {
            Ok(how) => writeln!(f, "injected fault detected: {how}")?,
            Err(why) => writeln!(f, "injected fault NOT detected: {why}")?,
        }
        self.violations
            .iter()
            .try_for_each(|(name, violation)| writeln!(f, "VIOLATION in {name}: {violation}"))?;
        if self.states < self.floor {
            writeln!(f, "FEWER STATES than the floor")?;
        }
        write!(f, "{} in {:.0} s", if self.is_good() { "good" } else { "NOT GOOD" }, self.seconds)
    }
}
