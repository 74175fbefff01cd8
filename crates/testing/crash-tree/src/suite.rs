//! The choice of workloads for an engine, and the mutation run over them: it leaves out flushes and fences one at a time
//! ([`crash::mutants`](mod@crash::mutants)).

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
use crate::generations;
use crate::subject::Sampled;
use crate::workloads::{Maker, Plan, whole};
use crate::{Engine, Options};

type Explore = dyn Fn(&crash::Options, Option<Mutated>) -> crash::Report + Send + Sync;
/// Maximum number of panics injected into one operation.
const PANICS: u64 = 16;

type Panics = dyn Fn(usize) -> Result<crash::panics::Tally, String> + Send + Sync;

/// The bounds of an exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Steps only. Create and close have their own workloads.
    Steps,
    /// Create and close, too.
    Whole,
    /// Low caps, for steps that write many lines. Few of their crash points could be enumerated completely, and recovery from their images
    /// writes much.
    Broad,
    /// Minimal caps, for very long workloads.
    Long,
    /// Indexes over a list, which are small, from create to close.
    Lists,
    /// The same, for mutants that show within a few steps: caps as high as images of that size allow.
    ListsDeep,
    /// High caps, for mutants that show only within a few steps and only if several lines are wrong at once.
    Deep,
    /// A region's create and close, where several lines must be complete at once. Each line has two contents: the durable one, and the one
    /// with all stores.
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

/// The workloads of one subject that are explored together.
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

    /// Name of the run.
    pub fn name(&self) -> String {
        self.name.clone()
    }

    /// Explores the workloads one after the other until there are `violations_max` violations.
    pub fn explore(&self, options: &crash::Options, mutated: Option<Mutated>) -> crash::Report {
        (self.explore)(options, mutated)
    }

    /// Injects panics at every event of about `operations` operations of each workload ([`crash::panics`]).
    ///
    /// # Errors
    /// Those of [`crash::panic_everywhere`].
    pub fn panic_everywhere(&self, operations: usize) -> Result<crash::panics::Tally, String> {
        (self.panics)(operations)
    }

    /// The bounds of an exploration without a mutant.
    pub fn bounds(&self, seed: u64) -> crash::Options {
        self.depth.bounds(seed)
    }

    /// The bounds of an exploration with a mutant. They are low, because most mutants show at once.
    pub fn bounds_for_mutants(&self, seed: u64) -> crash::Options {
        let bounds = self.depth.bounds(seed);
        if [Depth::Deep, Depth::ListsDeep, Depth::Lines, Depth::Long].contains(&self.depth) {
            return bounds;
        }
        crash::Options { cap: 32, nested_cap: 4, samples: 8, ..bounds }
    }
}

/// The node sizes in lines, as far as the engine has them: the minimum, one whose arrays straddle lines, the paper's, and the production
/// size, whose slot array extends beyond the bitmap's line.
pub fn node_lines(engine: Engine) -> Vec<u64> {
    let about = engine.about();
    if general::has(about) {
        return general::suite::node_lines(about);
    }
    match about.default_lines {
        // Nodes with more lines than their entries fill show nothing new.
        2 => vec![2, 3],
        // Pages: the smallest size that their layouts allow, and the production size.
        64 => vec![3, 64],
        // Only slot arrays extend beyond their line in nodes of 16 lines.
        lines if ![about.leaf, about.inner].contains(&<Slotted>::NAME) => vec![2, 3, lines],
        _ => vec![2, 3, 8, 16],
    }
}

/// Returns the workloads of an exploration.
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
        let mut generations = generations::around_a_wipe(D::LOG);
        generations.push(generations::short_generations(D::LOG));
        runs.push(Run::new("log generations".to_owned(), Depth::Whole, generations));
        runs
    }
}

/// Trees that differ only in their byte strings are explored with words once.
fn has_words(engine: Engine) -> bool {
    engine.name() != "wbtree-keyptr"
}

/// Name, depth and workloads of a run.
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

/// The properties of a commit protocol that determine the choice of workloads.
struct Traits {
    /// True if the log has many records per operation.
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
    // Low caps in three cases. An image of pages takes long to judge. A fence for every changed word gives many crash points per step. A
    // buffer pool's lines stay pending until the log generation ends, so every crash point has many open lines.
    let steps = if lines > 16 || traits.logged { Depth::Broad } else { Depth::Steps };
    // Low caps if there are blocks and records besides the nodes, or a log of many lines: a step writes more lines.
    let broad = if maker.plain { steps } else { Depth::Broad };
    // One pair in `one_in` is explored. An image of pages takes a thousand times as long to judge as one of a small tree. In larger nodes a
    // step writes more, so fewer pairs are explored. The smallest nodes explore all.
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

/// Random runs longer than this get minimal caps. Their purpose is the state after many operations.
pub(crate) const OPS_LONG: usize = 1000;

/// Mutates every flush, fence, sync and publish of `options.share` in turn. A mutant is tried on the runs in which it changes something, in
/// their order, until the first violation.
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
    crash::run_some_mutants(
        &trials,
        &argued::argued(about),
        &options.share,
        &[argued::injected_fault(about)],
        stage,
    )
}

/// Injects panics at every event of about `operations` operations of each workload.
///
/// # Errors
/// The first panic after which a write was accepted, or recovery found contents other than those before or after the operation.
pub fn panics(engine: Engine, operations: usize) -> Result<crash::panics::Tally, String> {
    let mut total = crash::panics::Tally::default();
    // The workloads of the log alone have no index, and a creation has no writers.
    let of_index = |run: &Run| run.name != "log generations" && run.name != "creation";
    for run in mutation_runs(engine, 1).into_iter().filter(of_index) {
        let tally = run.panic_everywhere(operations).map_err(|why| format!("{}: {why}", run.name))?;
        total.operations += tally.operations;
        total.panics += tally.panics;
    }
    Ok(total)
}

/// Returns the workloads that find mutants. Those that find many quickly come first: a mutant is not tried on the runs after its killer.
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
        let mut runs =
            vec![Run::new("log generations".to_owned(), Depth::Deep, generations::around_a_wipe(D::LOG))];
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

/// `least` has the minimum number of lines per node, `most` the maximum.
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
    // If each of a batch's many changes has its own fences, recovery from the batch has hundreds of crash points.
    let batches = if traits.logged { Depth::Long } else { Depth::Steps };
    run("batches", batches, least.batches(seed));
    // A clear frees three levels one leaf at a time: many steps with few lines each.
    run("clears", Depth::Broad, least.clears());
    run("levelling", Depth::Steps, least.levelling(true));
    run("levelling from the left", Depth::Steps, least.levelling(false));
    if !least.plain {
        run("long bitmap", Depth::Deep, least.long_bitmap());
        run("narrowed chunk", Depth::Deep, least.narrowed_chunk());
        // Closing a chunk shows only in images where the header's line and the line with the list of other chunks are both complete.
        run("closed chunk", Depth::Lines, least.emptied_chunk());
        // A buffer pool writes lines back word by word. A long record has too many images to try them all.
        if about.commit_protocol == WriteAhead::NAME {
            run("narrowed chunk in few lines", Depth::Deep, least.narrowed_chunk_in_few_lines());
        }
    }
    // Other leaves show in their smallest nodes everything that large ones show.
    if about.leaf == <Slotted>::NAME {
        run("full slots", Depth::Broad, most.full_slots());
        if traits.shares_fences {
            run("full write_groups", Depth::Broad, most.full_groups());
        }
    }
    runs
}

/// The injected fault is one of the mutants. Returns the violation that detected it.
///
/// # Errors
/// The injected fault is not among the mutants, or it survived.
pub fn injected_fault(engine: Engine, mutation: &MutationReport) -> Result<String, String> {
    let injected_fault = argued::injected_fault(engine.about());
    let found: Vec<_> = mutation.killed.iter().filter(|(mutant, _)| injected_fault.matches(mutant)).collect();
    let survived = mutation.survived.iter().filter(|mutant| injected_fault.matches(mutant)).count();
    match found.first() {
        Some((mutant, violation)) if survived == 0 => Ok(format!("{mutant}: {violation}")),
        _ => Err(format!("{} without `{}`", engine.name(), injected_fault.contains)),
    }
}
