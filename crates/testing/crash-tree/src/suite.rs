//! Which workloads an engine gets, and the mutation run over them.

use std::sync::Arc;

use bptree::commit_protocol::CommitProtocol;
use bptree::layout::{Layout, Layouts};
use bptree::roster::{self, ByteStrings, Visitor};
use bptree::{Slotted, WriteAhead};
use crash::{Mutated, MutationReport, Stage, Subject, Trial, Workload, explore_changed};
use index::About;
use index::{Fixed, SchemaOf, Words, kind};
use pmem::log::Format;

use crate::argued;
use crate::general;
use crate::laps;
use crate::subject::Sampled;
use crate::workloads::{Maker, Plan, whole};
use crate::{Engine, Options};

type Explore = dyn Fn(&crash::Options, Option<Mutated>) -> crash::Report + Send + Sync;
/// Most panics of one operation.
const PANICS: u64 = 16;

type Panics = dyn Fn(usize) -> Result<crash::panics::Tally, String> + Send + Sync;

/// How much of a crash point is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Steps alone; create and close have workloads of their own.
    Steps,
    /// Create and close too.
    Whole,
    /// Steps that write so many lines that few of their crash points could be exhausted anyway, and from whose images
    /// recovery has much to write: low caps.
    Broad,
    /// Steps without number: least caps.
    Long,
    /// Indexes over a list, which are small, from their creation to their close.
    Lists,
    /// Of them the mutants that a few steps show: caps as high as images of that size allow.
    ListsDeep,
    /// For mutants that only a few steps show, where several lines at once have to go wrong: high caps.
    Deep,
    /// A region's creation and close, for which several lines have to be whole at once: of a line only what was durable, and all
    /// that was stored.
    Lines,
}

impl Depth {
    fn bounds(self, seed: u64) -> crash::Options {
        let base =
            crash::Options { seed, line_cap: 64, create: false, close: false, ..crash::Options::default() };
        match self {
            Self::Steps => crash::Options { cap: 4096, nested_cap: 16, samples: 32, ..base },
            Self::Whole => crash::Options { create: true, close: true, ..Self::Steps.bounds(seed) },
            Self::Broad => crash::Options { cap: 256, nested_cap: 4, samples: 8, ..base },
            Self::Long => crash::Options { cap: 3, nested_cap: 1, samples: 1, ..base },
            Self::Lists => crash::Options { cap: 64, nested_cap: 8, samples: 8, ..Self::Whole.bounds(seed) },
            Self::ListsDeep => crash::Options {
                cap: 4096,
                line_cap: 256,
                nested_cap: 4,
                samples: 8,
                ..Self::Whole.bounds(seed)
            },
            Self::Lines => crash::Options { cap: 4096, line_cap: 2, samples: 8, ..Self::Whole.bounds(seed) },
            Self::Deep => crash::Options { cap: 16_384, line_cap: 1024, nested_cap: 4, samples: 8, ..base },
        }
    }
}

/// Workloads of one subject, explored together.
pub struct Run {
    name: String,
    depth: Depth,
    explore: Box<Explore>,
    panics: Box<Panics>,
}

impl Run {
    pub(crate) fn new<S>(name: String, depth: Depth, workloads: Vec<Workload<S>>) -> Self
    where
        S: Subject<Op: Send + Sync, Config: Send + Sync> + 'static,
    {
        let workloads = Arc::new(workloads);
        let shared = Arc::clone(&workloads);
        let panics = move |operations: usize| {
            let mut total = crash::panics::Tally::default();
            for workload in &*shared {
                let tally = crash::panic_everywhere(
                    workload,
                    workload.steps.len().div_ceil(operations).max(1),
                    PANICS,
                )?;
                total.operations += tally.operations;
                total.panics += tally.panics;
            }
            Ok(total)
        };
        let explore = move |options: &crash::Options, mutated: Option<Mutated>| {
            let mut total = crash::Report::default();
            for workload in &*workloads {
                if total.violations.len() >= options.violations_max {
                    break;
                }
                total.merge(explore_changed(workload, options, mutated.clone()));
            }
            total
        };
        Self { name, depth, explore: Box::new(explore), panics: Box::new(panics) }
    }

    /// What they are.
    pub fn name(&self) -> String {
        self.name.clone()
    }

    /// Explores the workloads one after the other until one is violated.
    pub fn explore(&self, options: &crash::Options, mutated: Option<Mutated>) -> crash::Report {
        (self.explore)(options, mutated)
    }

    /// Has so many operations of each workload panic at every event ([`crash::panics`]).
    ///
    /// # Errors
    /// As there.
    pub fn panic_everywhere(&self, operations: usize) -> Result<crash::panics::Tally, String> {
        (self.panics)(operations)
    }

    /// Bounds of an exploration without mutants.
    pub fn bounds(&self, seed: u64) -> crash::Options {
        self.depth.bounds(seed)
    }

    /// Bounds of an exploration with one: low, for most break at once.
    pub fn bounds_for_mutants(&self, seed: u64) -> crash::Options {
        let bounds = self.depth.bounds(seed);
        if [Depth::Deep, Depth::ListsDeep, Depth::Lines, Depth::Long].contains(&self.depth) {
            return bounds;
        }
        crash::Options { cap: 32, nested_cap: 4, samples: 8, ..bounds }
    }
}

/// The sizes of nodes: least, straddling, the paper's, and production, whose slot array leaves the bitmap's line; as far as
/// the engine has them.
pub fn node_lines(engine: Engine) -> Vec<u64> {
    let about = engine.about();
    if general::has(about) {
        return general::suite::node_lines(about);
    }
    match about.default_lines {
        // Nodes of more lines than their entries fill have nothing new to show.
        2 => vec![2, 3],
        // Pages: as small as their layouts allow, and as they are.
        64 => vec![3, 64],
        // Only slot arrays leave their line in nodes of 16.
        lines if ![about.leaf, about.inner].contains(&<Slotted>::NAME) => vec![2, 3, lines],
        _ => vec![2, 3, 8, 16],
    }
}

/// The workloads of an exploration.
pub fn exploration(options: &Options) -> Vec<Run> {
    if general::has(options.engine.about()) {
        return general::suite::exploration(options);
    }
    roster::visit(options.engine.name(), Exploration { options }).expect("engines are trees of the roster")
}

struct Exploration<'a> {
    options: &'a Options,
}

impl Visitor for Exploration<'_> {
    type Out = Vec<Run>;

    fn visit<B: ByteStrings, L: Layouts, D: CommitProtocol>(self, about: &'static About) -> Vec<Run> {
        let mut runs = Vec::new();
        let options = self.options;
        for lines in options.node_lines.map_or_else(|| node_lines(options.engine), |lines| vec![lines]) {
            if has_words(options.engine) {
                add::<kind::U64, Words, L, D>(&mut runs, "words", lines, options);
            }
            add::<kind::Bytes, B, L, D>(&mut runs, "byte strings", lines, options);
            if const { L::PAGES } && lines == about.lines.0 {
                add::<kind::Fixed, Fixed, L, D>(&mut runs, "values of 24 bytes", lines, options);
            }
        }
        let mut laps = laps::around_a_wipe(D::LOG);
        laps.push(laps::short_laps(D::LOG));
        runs.push(Run::new("log laps".to_owned(), Depth::Whole, laps));
        runs
    }
}

/// Trees that differ in byte strings alone are explored with words once.
fn has_words(engine: Engine) -> bool {
    engine.name() != "wbtree-keyptr"
}

/// Workloads to be explored together, by their name.
type Named = (String, Depth, Vec<Plan>);

fn add<K: Sampled, S: SchemaOf<K>, L: Layouts, D: CommitProtocol>(
    runs: &mut Vec<Run>,
    kind: &str,
    lines: u64,
    options: &Options,
) {
    let logged = D::LOG == Format::UndoRedo || D::NAME == WriteAhead::NAME;
    let traits = Traits { logged, copies_leaves: D::COPIES_LEAVES, shares_fences: D::SHARES_FENCES };
    let maker = Maker::new::<K, S, L, D>(lines);
    runs.extend(explored(&maker, kind, lines, &traits, options).into_iter().map(run_of::<K, S, L, D>));
}

fn run_of<K: Sampled, S: SchemaOf<K>, L: Layouts, D: CommitProtocol>((name, depth, plans): Named) -> Run {
    Run::new(name, depth, plans.into_iter().map(Plan::of::<K, S, L, D>).collect())
}

/// What the choice of workloads depends on in a commit protocol.
struct Traits {
    /// A log that has much to say of each operation.
    logged: bool,
    copies_leaves: bool,
    shares_fences: bool,
}

fn explored(maker: &Maker, kind: &str, lines: u64, traits: &Traits, options: &Options) -> Vec<Named> {
    let about = options.engine.about();
    let mut runs = Vec::new();
    let mut run = |name: &str, depth, plans: Vec<Plan>| {
        runs.push((format!("{kind}, {lines} lines: {name}"), depth, plans));
    };
    // Pages, whose every image takes long to judge; a fence for every word that changes: many crash points a step; a pool,
    // whose lines stay on their way until the lap ends: many lines at every crash point.
    let steps = if lines > 16 || traits.logged { Depth::Broad } else { Depth::Steps };
    // Blocks and records beside the nodes, or a log of many lines: more lines a step.
    let broad = if maker.plain { steps } else { Depth::Broad };
    // Of pages, whose every image takes a thousand times as long to judge as a small tree's, one pair in so many; and the more
    // a step writes the more entries a node has, the fewer of its pairs. All of them in the smallest nodes.
    let one_in = match lines {
        17.. => 16,
        _ if lines > about.lines.0 && (traits.logged || traits.copies_leaves) => (lines * lines / 4) as usize,
        _ => 1,
    };
    let some = |all: Vec<_>| all.into_iter().step_by(one_in).collect();
    run("pairs from empty", steps, some(maker.from_empty()));
    run("pairs from a full leaf and parent", broad, some(maker.from_full()));
    run("pairs before underflow", steps, some(maker.from_low()));
    run("lives", Depth::Whole, vec![maker.lives(options.seed, 30)]);
    run("bulk loads", broad, vec![maker.bulk_loads()]);
    if traits.shares_fences {
        run("write_groups", broad, vec![maker.write_groups()]);
    }
    if lines <= 3 || lines == about.default_lines {
        run("batches", Depth::Broad, vec![maker.batches(options.seed)]);
    }
    if lines <= 3 {
        run("clears", Depth::Broad, vec![maker.clears()]);
        run("levelling", broad, vec![maker.levelling(false), maker.levelling(true)]);
    }
    let depth = if options.ops > OPS_LONG { Depth::Long } else { steps };
    let (keys, value_bytes) = if maker.plain { (60, 8) } else { (40, 24) };
    run("random", depth, vec![maker.random(options.seed, options.ops, keys, value_bytes)]);
    if !maker.plain && lines == about.lines.0 {
        let special = vec![
            maker.reused_chunk(),
            maker.emptied_chunk(),
            maker.large(),
            maker.long_bitmap(),
            maker.narrowed_chunk(),
            maker.narrowed_chunk_of_another_process(),
            maker.refused(),
            maker.moved_records(),
        ];
        run("large records", Depth::Broad, special);
    }
    runs
}

/// Random runs beyond this length get the least caps: they are there for what many operations leave behind.
pub(crate) const OPS_LONG: usize = 1000;

/// Changes every flush, fence, sync and publish in turn, as far as they are of the share. A mutant is tried on the runs in which it changes something, in their order,
/// until one breaks.
pub fn mutation<'a>(options: &Options, stage: impl Fn(&'static str) -> Stage<'a>) -> MutationReport {
    let trial = |run: Run| {
        let bounds = run.bounds_for_mutants(options.seed);
        Trial::new(run.name(), move |mutated: Option<Mutated>| {
            let bounds = crash::Options { remember: mutated.is_none(), ..bounds.clone() };
            run.explore(&bounds, mutated)
        })
    };
    let trials: Vec<Trial> = mutation_runs(options.engine, options.seed).into_iter().map(trial).collect();
    let about = options.engine.about();
    crash::run_some_mutants(&trials, &argued::argued(about), &options.share, &[argued::canary(about)], stage)
}

/// Has operations of every kind panic at every event; of each workload so many.
///
/// # Errors
/// The first panic that let a write through, or after which recovery found something else than what was before or after it.
pub fn panics(engine: Engine, operations: usize) -> Result<crash::panics::Tally, String> {
    let mut total = crash::panics::Tally::default();
    // Those of the log alone are no index's, and a creation has no writers.
    let of_index = |run: &Run| run.name != "log laps" && run.name != "creation";
    for run in mutation_runs(engine, 1).into_iter().filter(of_index) {
        let tally = run.panic_everywhere(operations).map_err(|why| format!("{}: {why}", run.name))?;
        total.operations += tally.operations;
        total.panics += tally.panics;
    }
    Ok(total)
}

/// The workloads that find mutants, those first that find many soon: a mutant is not tried on those behind its killer.
fn mutation_runs(engine: Engine, seed: u64) -> Vec<Run> {
    if general::has(engine.about()) {
        return general::suite::mutation_runs(engine, seed);
    }
    roster::visit(engine.name(), ForMutants { engine, seed }).expect("engines are trees of the roster")
}

struct ForMutants {
    engine: Engine,
    seed: u64,
}

impl Visitor for ForMutants {
    type Out = Vec<Run>;

    fn visit<B: ByteStrings, L: Layouts, D: CommitProtocol>(self, about: &'static About) -> Vec<Run> {
        let mut runs = vec![Run::new("log laps".to_owned(), Depth::Deep, laps::around_a_wipe(D::LOG))];
        let creation = whole(Maker::new::<kind::Bytes, B, L, D>(about.lines.0).sizes, Vec::new(), Vec::new());
        runs.push(run_of::<kind::Bytes, B, L, D>(("creation".to_owned(), Depth::Lines, vec![creation])));
        if has_words(self.engine) {
            add_for_mutants::<kind::U64, Words, L, D>(&mut runs, "words", self.seed, about);
        }
        add_for_mutants::<kind::Bytes, B, L, D>(&mut runs, "byte strings", self.seed, about);
        runs
    }
}

fn add_for_mutants<K: Sampled, S: SchemaOf<K>, L: Layouts, D: CommitProtocol>(
    runs: &mut Vec<Run>,
    kind: &str,
    seed: u64,
    about: &'static About,
) {
    let (least, most) = (Maker::new::<K, S, L, D>(about.lines.0), Maker::new::<K, S, L, D>(about.lines.1));
    let logged = D::LOG == Format::UndoRedo || D::NAME == WriteAhead::NAME;
    let traits = Traits { logged, copies_leaves: D::COPIES_LEAVES, shares_fences: D::SHARES_FENCES };
    let named = for_mutants(&least, &most, (kind, seed), about, &traits);
    runs.extend(named.into_iter().map(run_of::<K, S, L, D>));
}

/// With the fewest lines a node, and with the most.
fn for_mutants(
    least: &Maker,
    most: &Maker,
    (kind, seed): (&str, u64),
    about: &'static About,
    traits: &Traits,
) -> Vec<Named> {
    let mut runs = Vec::new();
    let mut run = |name: &str, depth, plan: Plan| runs.push((format!("{kind}: {name}"), depth, vec![plan]));
    run("random", Depth::Steps, least.random(seed, 80, 30, 16));
    run("lives", Depth::Whole, least.lives(seed, 20));
    if !least.plain {
        run("cuts", Depth::Steps, least.cuts(seed, 300));
        run("reused chunk", Depth::Steps, least.reused_chunk());
        run("emptied chunk", Depth::Steps, least.emptied_chunk());
        run("refused", Depth::Steps, least.refused());
    }
    if traits.shares_fences {
        run("write_groups", Depth::Steps, least.write_groups());
    }
    if traits.shares_fences && !least.plain {
        run("emptied chunks", Depth::Steps, least.emptied_chunks());
    }
    // Where each of its many changes has fences of its own, recovery from a batch has hundreds of crash points.
    let batches = if traits.logged { Depth::Long } else { Depth::Steps };
    run("batches", batches, least.batches(seed));
    // Three levels are freed a leaf at a time: many steps, each of few lines.
    run("clears", Depth::Broad, least.clears());
    run("levelling", Depth::Steps, least.levelling(true));
    run("levelling from the left", Depth::Steps, least.levelling(false));
    if !least.plain {
        run("long bitmap", Depth::Deep, least.long_bitmap());
        run("narrowed chunk", Depth::Deep, least.narrowed_chunk());
        // Closing a chunk shows only where the header's line and that of the others' list are both whole.
        run("closed chunk", Depth::Lines, least.emptied_chunk());
        // A pool writes lines back word by word: of so long a record too many images are possible to try all.
        if about.commit_protocol == WriteAhead::NAME {
            run("narrowed chunk in few lines", Depth::Deep, least.narrowed_chunk_in_few_lines());
        }
    }
    // What other leaves have of many entries, their smallest nodes have too.
    if about.leaf == <Slotted>::NAME {
        run("full slots", Depth::Broad, most.full_slots());
        if traits.shares_fences {
            run("full write_groups", Depth::Broad, most.full_groups());
        }
    }
    runs
}

/// Whether the canary, one of the mutants, was caught: in words how, or why it counts as not caught.
///
/// # Errors
/// It was not there, or not caught.
pub fn canary(engine: Engine, mutation: &MutationReport) -> Result<String, String> {
    let canary = argued::canary(engine.about());
    let found: Vec<_> = mutation.killed.iter().filter(|(mutant, _)| canary.matches(mutant)).collect();
    let survived = mutation.survived.iter().filter(|mutant| canary.matches(mutant)).count();
    match found.first() {
        Some((mutant, violation)) if survived == 0 => Ok(format!("{mutant}: {violation}")),
        _ => Err(format!("{} without `{}`", engine.name(), canary.contains)),
    }
}
