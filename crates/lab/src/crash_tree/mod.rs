//! `lab crash --tree`: the durable trees under the crash explorer.
//!
//! * [`subject`]: a tree as the explorer's subject.
//! * [`workloads`]: what it is driven by; [`laps`]: the log alone, over more laps than its tags have.
//! * [`suite`]: which workloads an engine gets, and the mutation run over them.
//! * [`argued`]: mutants that nothing can break, and why.
//!
//! A run is good only if no image breaks, every mutant is caught or argued, the canary is caught, and no fewer states were
//! explored than the engine's recorded floor: a test that silently stops testing fails.

pub mod argued;
pub mod laps;
pub mod subject;
pub mod suite;
pub mod workloads;

use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use crash::Mutant;

/// The durable trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// The wB+-Tree of words and of byte strings with inline prefixes.
    Wbtree,
    /// The wB+-Tree of key pointers.
    WbtreeKeyptr,
}

impl Engine {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Wbtree, Self::WbtreeKeyptr];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wbtree => "wbtree",
            Self::WbtreeKeyptr => "wbtree-keyptr",
        }
    }

    /// Fewest states that a default run may explore. May only be raised.
    pub fn floor(self) -> u64 {
        match self {
            Self::Wbtree => 0,
            Self::WbtreeKeyptr => 0,
        }
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|engine| engine.name() == name)
            .ok_or(format!("no durable tree `{name}`; there are {known}"))
    }
}

/// What to explore.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which tree.
    pub engine: Engine,
    /// Operations of each random run.
    pub ops: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// Only nodes of this many lines (the floor does not apply then).
    pub node_lines: Option<u64>,
}

impl Options {
    /// Random runs of this length when nothing else is said.
    pub const OPS: usize = 400;

    /// A default run.
    pub fn new(engine: Engine) -> Self {
        Self { engine, ops: Self::OPS, seed: 1, node_lines: None }
    }

    fn floor(&self) -> u64 {
        let whole = self.node_lines.is_none() && self.ops >= Self::OPS;
        if whole { self.engine.floor() } else { 0 }
    }
}

/// A mutant that was argued equivalent.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Excuse {
    /// Which.
    pub mutant: String,
    /// The invariant that makes it so.
    pub why: &'static str,
}

/// What was explored and found.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Which tree.
    pub engine: Engine,
    /// Seed.
    pub seed: u64,
    /// Operations of each random run.
    pub ops: usize,
    /// Crash points, inside recovery too.
    pub crash_points: u64,
    /// Images recovered and judged, without any mutant.
    pub states: u64,
    /// Of those, images of a crash inside recovery.
    pub nested_states: u64,
    /// Crash points with more images than were explored; these were sampled.
    pub sampled_points: u64,
    /// The fewest states that count as a run.
    pub floor: u64,
    /// States a second.
    pub states_per_second: f64,
    /// The crash point with the most images: workload, `phase@event`, images.
    pub worst: Option<(String, String, u64)>,
    /// What broke: workload and violation.
    pub violations: Vec<(String, String)>,
    /// Mutants caught.
    pub mutants_killed: usize,
    /// Mutants that nothing can catch.
    pub mutants_argued: Vec<Excuse>,
    /// Mutants that were not caught.
    pub mutants_survived: Vec<String>,
    /// Arguments that no mutant needs.
    pub stale_arguments: Vec<String>,
    /// Images judged for all mutants.
    pub mutant_states: u64,
    /// How the canary was caught.
    pub canary: Result<String, String>,
    /// Time of all, in seconds.
    pub seconds: f64,
}

impl Report {
    /// True if everything that had to be caught was, and nothing else was found.
    pub fn is_good(&self) -> bool {
        self.violations.is_empty()
            && self.mutants_survived.is_empty()
            && self.stale_arguments.is_empty()
            && self.canary.is_ok()
            && self.states >= self.floor
    }
}

/// Explores an engine, then its mutants, then its canary. `say` is told what is being done.
pub fn run(options: &Options, say: &dyn Fn(&str)) -> Report {
    let start = Instant::now();
    let (explored, worst, violations) = explore(options, say);
    let mutation = suite::mutation(options.engine, options.seed, say);
    say("canary");
    let canary = suite::canary(options.engine, &mutation);
    let name = |mutant: &Mutant| mutant.to_string();
    let excuse = |(mutant, why): &(Mutant, &'static str)| Excuse { mutant: name(mutant), why };
    let mut violations = violations;
    violations.extend(mutation.base.violations.iter().map(|violation| ("mutation run".to_owned(), violation.to_string())));
    Report {
        engine: options.engine,
        seed: options.seed,
        ops: options.ops,
        crash_points: explored.crash_points + explored.nested_points,
        states: explored.images + explored.nested_images,
        nested_states: explored.nested_images,
        sampled_points: explored.sampled_points,
        floor: options.floor(),
        states_per_second: explored.states_per_second(),
        worst,
        violations,
        mutants_killed: mutation.killed.len(),
        mutants_argued: mutation.argued.iter().map(excuse).collect(),
        mutants_survived: mutation.survived.iter().map(name).collect(),
        stale_arguments: mutation.stale.iter().map(|argued| argued.spot.contains.to_owned()).collect(),
        mutant_states: mutation.images,
        canary,
        seconds: start.elapsed().as_secs_f64(),
    }
}

type Explored = (crash::Report, Option<(String, String, u64)>, Vec<(String, String)>);

fn explore(options: &Options, say: &dyn Fn(&str)) -> Explored {
    let mut total = crash::Report::default();
    let mut worst: Option<(String, String, u64)> = None;
    let mut violations = Vec::new();
    for run in suite::exploration(options) {
        say(&run.name);
        let report = run.explore(&run.bounds(options.seed), None);
        if let Some(here) = report.worst
            && worst.as_ref().is_none_or(|worst| here.images > worst.2)
        {
            worst = Some((run.name.clone(), format!("{}@{}", here.phase, here.event), here.images));
        }
        violations.extend(report.violations.iter().map(|violation| (run.name.clone(), violation.to_string())));
        total.merge(report);
    }
    (total, worst, violations)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, seed {}, random runs of {} operations", self.engine.name(), self.seed, self.ops)?;
        writeln!(
            f,
            "{} states at {} crash points ({} inside recovery; {} points sampled), floor {}; {:.0} states/s",
            self.states,
            self.crash_points,
            self.nested_states,
            self.sampled_points,
            self.floor,
            self.states_per_second
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
        self.mutants_argued.iter().try_for_each(|excuse| writeln!(f, "  argued: {}: {}", excuse.mutant, excuse.why))?;
        self.mutants_survived.iter().try_for_each(|mutant| writeln!(f, "  survived: {mutant}"))?;
        self.stale_arguments.iter().try_for_each(|spot| writeln!(f, "  argued for nothing: `{spot}`"))?;
        match &self.canary {
            Ok(how) => writeln!(f, "canary caught: {how}")?,
            Err(why) => writeln!(f, "canary NOT caught: {why}")?,
        }
        self.violations.iter().try_for_each(|(name, violation)| writeln!(f, "VIOLATION in {name}: {violation}"))?;
        if self.states < self.floor {
            writeln!(f, "FEWER STATES than the floor")?;
        }
        write!(f, "{} in {:.0} s", if self.is_good() { "good" } else { "NOT GOOD" }, self.seconds)
    }
}
