//! The mutation run: leave out each flush and fence in turn, and some image must break.
//!
//! A mutant that survives must be argued equivalent, in a table beside the subject. An entry is matched by the *source
//! text* of the site's line: the table includes the source file at compile time (`include_str!`), so that it follows the
//! code when lines move, also in an installed program. Where the text alone is not telling, a trailing comment on the
//! line is a label: `medium.fence(Fence::Commit); // [lap-fence]`. An entry that matches no survivor is stale, and a
//! failure too.

use std::fmt;
use std::sync::Arc;

use crate::explore::{Options, explore_all, explore_changed, explore_mutant};
use crate::mutate::{Kind, Mutant};
use crate::points::Mutated;
use crate::report::{Report, Violation};
use crate::subject::{Subject, Workload};
use crate::workers::Stage;

/// A mutant named by the text of its source line.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    /// What is changed.
    pub kind: Kind,
    /// How the source file's path ends.
    pub file_suffix: &'static str,
    /// That file: `include_str!`.
    pub source: &'static str,
    /// Part of the line.
    pub contains: &'static str,
}

impl Spot {
    /// All of it.
    pub const fn new(
        kind: Kind,
        file_suffix: &'static str,
        source: &'static str,
        contains: &'static str,
    ) -> Self {
        Self { kind, file_suffix, source, contains }
    }

    /// Every mutant of a kind.
    pub const fn anywhere(kind: Kind) -> Self {
        Self::new(kind, "", "", "")
    }

    /// Whether `mutant` is this one.
    pub fn matches(&self, mutant: &Mutant) -> bool {
        if self.contains.is_empty() {
            return mutant.kind == self.kind;
        }
        let line = || self.source.lines().nth(mutant.site.line() as usize - 1);
        mutant.kind == self.kind
            && mutant.site.file().ends_with(self.file_suffix)
            && line().is_some_and(|line| line.contains(self.contains))
    }

    /// The mutants of this spot that a run could have.
    pub fn find(&self, report: &Report) -> Vec<Mutant> {
        report.mutants.iter().filter(|mutant| self.matches(mutant)).copied().collect()
    }
}

/// A mutant that no image can break, and why.
#[derive(Clone, Copy, Debug)]
pub struct Argued {
    /// Which.
    pub spot: Spot,
    /// The invariant that makes it so.
    pub why: &'static str,
}

/// Of the allocator that all engines share: a chunk is taken out of the free ones.
pub const FREE_CHUNK: Argued = Argued::new(
    Kind::SwapPublish,
    "pmem/src/heap/alloc/allocator.rs",
    include_str!("../../../pmem/src/heap/alloc/allocator.rs"),
    "medium.publish(at, 0);",
    "A3: the chunk was free before the operation began, so its class may be void at any time. The publish has to be durable before the \
     chunk's bitmap is overwritten, and this mutant does not change that",
);

impl Argued {
    /// The mutant of this line, and why.
    pub const fn new(
        kind: Kind,
        file_suffix: &'static str,
        source: &'static str,
        contains: &'static str,
        why: &'static str,
    ) -> Self {
        Self { spot: Spot::new(kind, file_suffix, source, contains), why }
    }
}

/// Every mutant of a run: all flush, fence and publish sites that did something.
pub fn mutants(run: &Report) -> Vec<Mutant> {
    run.mutants.iter().copied().collect()
}

/// What became of the mutants.
#[derive(Clone, Debug, Default)]
pub struct MutationReport {
    /// The run without a mutant: it must not be violated. It says which mutants there are.
    pub base: Report,
    /// Caught, and by what.
    pub killed: Vec<(Mutant, Violation)>,
    /// Not caught, but argued equivalent.
    pub argued: Vec<(Mutant, &'static str)>,
    /// Not caught.
    pub survived: Vec<Mutant>,
    /// Arguments that no survivor needs.
    pub stale: Vec<Argued>,
    /// Each trial, and the mutants that it killed and no trial before it did.
    pub kills: Vec<(String, Vec<Mutant>)>,
    /// Mutants that were not tried, being outside the share.
    pub left_out: usize,
    /// Images explored for all mutants.
    pub images: u64,
}

/// Which of the mutants are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Share {
    /// All of them.
    All,
    /// One in so many, chosen by this seed.
    OneIn(usize, u64),
    /// By turns: one in `basic` of the basic kinds (whole flushes and fences left out, publishes swapped with the fence before them or
    /// split), and one in `others` of the other kinds (syncs, single lines, publishes that are early); 0 is none.
    Turns {
        /// One in so many of the basic kinds.
        basic: u64,
        /// One in so many of the others.
        others: u64,
        /// Which.
        turn: u64,
    },
    /// Those whose name contains this text.
    Named(String),
}

impl Share {
    /// One in `one_in` by the seed in `BRISTLECONE_SEED` (1 without it); all with `BRISTLECONE_MUTANTS=all`; with any other text
    /// there, the mutants whose name contains it.
    ///
    /// # Panics
    /// The seed is no number.
    pub fn of_environment(one_in: usize) -> Self {
        match std::env::var("BRISTLECONE_MUTANTS") {
            Ok(all) if all == "all" => Self::All,
            Ok(name) => Self::Named(name),
            Err(_) => {
                let seed = std::env::var("BRISTLECONE_SEED").map(|seed| seed.parse().expect("a number"));
                Self::OneIn(one_in, seed.unwrap_or(1))
            }
        }
    }

    /// A share of `mutants`, in their order.
    fn of(&self, mutants: &[Mutant]) -> Vec<Mutant> {
        match self {
            Self::All => mutants.to_vec(),
            Self::OneIn(one_in, seed) => {
                let mut rng = fastrand::Rng::with_seed(*seed);
                mutants.iter().filter(|_| rng.usize(..*one_in) == 0).copied().collect()
            }
            Self::Turns { basic, others, turn } => {
                use crate::Kind::{DropFence, DropFlush, SplitPublish, SwapPublish};
                let has_turn = |(number, mutant): &(u64, &Mutant)| {
                    let is_basic =
                        matches!(mutant.kind, DropFlush | DropFence(_) | SwapPublish | SplitPublish);
                    let one_in = if is_basic { *basic } else { *others };
                    one_in > 0 && (number + turn).is_multiple_of(one_in)
                };
                (0..).zip(mutants).filter(has_turn).map(|(_, mutant)| *mutant).collect()
            }
            Self::Named(name) => {
                mutants.iter().filter(|mutant| mutant.to_string().contains(name)).copied().collect()
            }
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => write!(f, "all mutants"),
            Self::OneIn(one_in, seed) => {
                write!(
                    f,
                    "one mutant in {one_in} by BRISTLECONE_SEED={seed}; BRISTLECONE_MUTANTS=all tries all"
                )
            }
            Self::Turns { basic, others, turn } => write!(
                f,
                "at turn {turn} one in {basic} of the flushes and fences left out and of the publishes swapped or split, one in {others} \
                 of the others"
            ),
            Self::Named(name) => write!(f, "the mutants that BRISTLECONE_MUTANTS='{name}' names"),
        }
    }
}

impl MutationReport {
    /// All mutants that there are, tried or not.
    pub fn found(&self) -> usize {
        self.base.mutants.len()
    }

    /// True if the base run is clean, no mutant survived without an argument, and every argument is needed.
    pub fn is_good(&self) -> bool {
        !self.base.is_violated() && self.survived.is_empty() && self.stale.is_empty()
    }
}

impl fmt::Display for MutationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = (self.killed.len(), self.argued.len(), self.survived.len());
        write!(
            f,
            "{} mutants killed, {} argued, {} survived, {} not tried; {} images",
            counts.0, counts.1, counts.2, self.left_out, self.images
        )?;
        self.base
            .violations
            .iter()
            .try_for_each(|violation| write!(f, "\n  without a mutant: {violation}"))?;
        self.survived.iter().try_for_each(|mutant| write!(f, "\n  survived: {mutant}"))?;
        let stale = |argued: &Argued| {
            write!(f, "\n  stale argument: {:?} `{}`", argued.spot.kind, argued.spot.contains)
        };
        self.stale.iter().try_for_each(stale)
    }
}

/// What a mutant is tried on: an exploration with bounds of its own, whatever its subject.
pub struct Trial {
    name: String,
    explore: Box<dyn Fn(Option<Mutated>) -> Report + Send + Sync>,
}

impl Trial {
    /// An exploration by its name. Without a mutant it has to remember its crash points ([`Options::remember`]).
    pub fn new(
        name: impl Into<String>,
        explore: impl Fn(Option<Mutated>) -> Report + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), explore: Box::new(explore) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A workload, explored until one image breaks.
    pub fn of<S>(name: impl Into<String>, options: Options, workload: Workload<S>) -> Self
    where
        S: Subject<Op: Send + Sync, Config: Send + Sync> + 'static,
    {
        let options = Options { violations_max: 1, ..options };
        Self::new(name, move |mutated: Option<Mutated>| {
            let options = Options { remember: mutated.is_none(), ..options.clone() };
            explore_changed(&workload, &options, mutated)
        })
    }
}

/// Explores `trials` without a mutant, then each mutant on the trials in which it changes something, in their order, until
/// one breaks. `stage` is asked for the threads of each of the two.
pub fn run_mutants<'a>(
    trials: &[Trial],
    argued: &[Argued],
    stage: impl Fn(&'static str) -> Stage<'a>,
) -> MutationReport {
    run_some_mutants(trials, argued, &Share::All, &[], stage)
}

/// As [`run_mutants`] with a share of the mutants, and `always` those of some spots, such as the canary's. An argument is stale only if all mutants that it is for were tried.
pub fn run_some_mutants<'a>(
    trials: &[Trial],
    argued: &[Argued],
    share: &Share,
    always: &[Spot],
    stage: impl Fn(&'static str) -> Stage<'a>,
) -> MutationReport {
    let name = |trial: &Trial| trial.name.clone();
    let mut bases = stage("runs without a mutant").map(trials, name, |trial| (trial.explore)(None));
    let known: Vec<_> = bases.iter_mut().map(|base| Arc::new(std::mem::take(&mut base.points))).collect();
    let mut report = MutationReport::default();
    bases.iter().for_each(|base| report.base.merge(base.clone()));
    if report.base.is_violated() {
        return report;
    }
    let all = mutants(&report.base);
    let mut mutants = share.of(&all);
    mutants.extend(all.iter().filter(|mutant| always.iter().any(|spot| spot.matches(mutant))));
    mutants.sort_unstable();
    mutants.dedup();
    report.left_out = all.len() - mutants.len();
    let is_left_out = |mutant: &&Mutant| mutants.binary_search(mutant).is_err();
    let mut needed: Vec<bool> = argued
        .iter()
        .map(|argued| all.iter().filter(is_left_out).any(|mutant| argued.spot.matches(mutant)))
        .collect();
    let tried = stage("mutants").map(&mutants, Mutant::to_string, |mutant| {
        let mut images = 0;
        let changed = bases.iter().enumerate().filter(|(_, base)| base.mutants.contains(mutant));
        let killer = changed.into_iter().find_map(|(number, _)| {
            let mutated = Mutated { mutant: *mutant, known: known[number].clone() };
            let explored = (trials[number].explore)(Some(mutated));
            images += explored.images + explored.nested_images;
            explored.violations.into_iter().next().map(|violation| (number, violation))
        });
        (killer, images)
    });
    report.kills = trials.iter().map(|trial| (trial.name.clone(), Vec::new())).collect();
    for (mutant, (killer, images)) in mutants.into_iter().zip(tried) {
        report.images += images;
        match (killer, argued.iter().position(|argued| argued.spot.matches(&mutant))) {
            (Some((number, violation)), _) => {
                report.kills[number].1.push(mutant);
                report.killed.push((mutant, violation));
            }
            (None, Some(index)) => {
                needed[index] = true;
                report.argued.push((mutant, argued[index].why));
            }
            (None, None) => report.survived.push(mutant),
        }
    }
    report.stale =
        argued.iter().zip(needed).filter(|(_, needed)| !needed).map(|(argued, _)| *argued).collect();
    report
}

/// The first violation that `mutant` causes.
fn kill<S: Subject>(workloads: &[Workload<S>], options: &Options, mutant: Mutant) -> Option<Violation> {
    workloads
        .iter()
        .find_map(|workload| explore_mutant(workload, options, Some(mutant)).violations.into_iter().next())
}

/// Breaks the subject at `spot` on purpose, and returns how each such mutant was caught.
///
/// # Errors
/// The workloads are violated as they are, `spot` names no site that does anything, or a mutant there is not caught: the
/// exploration is not to be trusted.
pub fn canary<S: Subject>(
    workloads: &[Workload<S>],
    options: &Options,
    spot: &Spot,
) -> Result<Vec<Violation>, String> {
    let options = Options { violations_max: 1, ..options.clone() };
    let base = explore_all(workloads, &options);
    if let Some(violation) = base.violations.first() {
        return Err(format!("without the canary: {violation}"));
    }
    let found = spot.find(&base);
    if found.is_empty() {
        return Err(format!("no {:?} at `{}` in {}", spot.kind, spot.contains, spot.file_suffix));
    }
    let caught = |mutant| kill(workloads, &options, mutant).ok_or_else(|| format!("{mutant} is not caught"));
    found.into_iter().map(caught).collect()
}
