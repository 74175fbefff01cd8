//! The mutation run: tries mutants one at a time. A mutant leaves out a flush, a fence or a sync, or it moves or splits a publish
//! (`mutate`). If the oracle rejects some image of a mutant, the mutant is killed. Otherwise it survives.
//!
//! A surviving mutant must be equivalent: it needs an entry, with a reason, in the table of equivalent mutants that belongs to the code
//! under test. An entry matches the *source text* of the call site's line, so it stays valid when lines move. The source file is part of
//! the program (`include_str!`), so an installed program needs no sources. If the text is ambiguous, a trailing comment on the line is a
//! label: `medium.fence(Fence::Commit); // [generation-fence]`. An entry without a matching survivor is stale and fails the run.

use std::fmt;
use std::sync::Arc;

use crate::explore::{Options, explore_all, explore_changed, explore_mutant};
use crate::mutate::{Kind, Mutant};
use crate::points::Mutated;
use crate::report::{Report, Violation};
use crate::subject::{Subject, Workload};
use crate::workers::Stage;

/// A call site and a kind of mutation. The text of the source line identifies the site.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    /// The kind of mutation.
    pub kind: Kind,
    /// Suffix of the source file's path.
    pub file_suffix: &'static str,
    /// Content of that file, by `include_str!`.
    pub source: &'static str,
    /// A part of the source line.
    pub contains: &'static str,
}

impl Spot {
    /// A spot with these fields.
    pub const fn new(
        kind: Kind,
        file_suffix: &'static str,
        source: &'static str,
        contains: &'static str,
    ) -> Self {
        Self { kind, file_suffix, source, contains }
    }

    /// All mutants of a kind.
    pub const fn anywhere(kind: Kind) -> Self {
        Self::new(kind, "", "", "")
    }

    /// True if `mutant` is at this spot and of its kind.
    pub fn matches(&self, mutant: &Mutant) -> bool {
        if self.contains.is_empty() {
            return mutant.kind == self.kind;
        }
        let line = || self.source.lines().nth(mutant.site.line() as usize - 1);
        mutant.kind == self.kind
            && mutant.site.file().ends_with(self.file_suffix)
            && line().is_some_and(|line| line.contains(self.contains))
    }

    /// The mutants of a run that match this spot.
    pub fn find(&self, report: &Report) -> Vec<Mutant> {
        report.mutants.iter().filter(|mutant| self.matches(mutant)).copied().collect()
    }
}

/// An equivalent mutant and its reason.
#[derive(Clone, Copy, Debug)]
pub struct Argued {
    /// The mutant.
    pub spot: Spot,
    /// The invariant that makes it equivalent.
    pub why: &'static str,
}

/// An equivalent mutant of the allocator, which all engines share: the publish that takes a free chunk moves before the preceding fence.
pub const FREE_CHUNK: Argued = Argued::new(
    Kind::SwapPublish,
    "pmem/src/heap/alloc/allocator.rs",
    include_str!("../../../pmem/src/heap/alloc/allocator.rs"),
    "medium.publish(at, 0);",
    "A3: the chunk was free before the operation began, so its class may be void at any time. The publish has to be durable before the \
     chunk's bitmap is overwritten, and this mutant does not change that",
);

impl Argued {
    /// The mutant of this source line, with its reason.
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

/// Returns every mutant of a run: all flush, fence and publish sites that had an effect.
pub fn mutants(run: &Report) -> Vec<Mutant> {
    run.mutants.iter().copied().collect()
}

/// The result of a mutation run.
#[derive(Clone, Debug, Default)]
pub struct MutationReport {
    /// The run without a mutant. It must have no violation. It determines the mutants.
    pub base: Report,
    /// Killed mutants, each with its first violation.
    pub killed: Vec<(Mutant, Violation)>,
    /// Surviving mutants with a reason why they are equivalent.
    pub argued: Vec<(Mutant, &'static str)>,
    /// Surviving mutants without a reason.
    pub survived: Vec<Mutant>,
    /// Entries that match no survivor.
    pub stale: Vec<Argued>,
    /// For each trial, the mutants that it killed first.
    pub kills: Vec<(String, Vec<Mutant>)>,
    /// Number of mutants outside the share. They were not tried.
    pub left_out: usize,
    /// Number of images explored for all mutants.
    pub images: u64,
}

/// The mutants that a run tries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Share {
    /// All of them.
    All,
    /// A random sample: one mutant in this number, by this seed.
    OneIn(usize, u64),
    /// By turns: one in `basic` of the basic kinds (whole flushes and fences left out, publishes swapped with the fence before them or
    /// split), and one in `others` of the other kinds (syncs, single lines, early publishes). 0 selects none.
    Turns {
        /// One in this number of the basic kinds.
        basic: u64,
        /// One in this number of the other kinds.
        others: u64,
        /// Number of the turn.
        turn: u64,
    },
    /// The mutants whose name contains this text.
    Named(String),
}

impl Share {
    /// One mutant in `one_in`, by the seed in `BRISTLECONE_SEED` (default 1). `BRISTLECONE_MUTANTS=all` selects all mutants; any other text
    /// selects the mutants whose name contains it.
    ///
    /// # Panics
    /// The seed is not a number.
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

    /// Returns the selected `mutants`, in their order.
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
    /// Number of mutants found, tried or not.
    pub fn found(&self) -> usize {
        self.base.mutants.len()
    }

    /// True if the base run has no violation, every survivor has a reason, and every reason is needed.
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

/// An exploration on which mutants are tried. It hides the type of its subject.
pub struct Trial {
    name: String,
    explore: Box<dyn Fn(Option<Mutated>) -> Report + Send + Sync>,
}

impl Trial {
    /// A trial with this name. Without a mutant, `explore` must record its crash points ([`Options::remember`]).
    pub fn new(
        name: impl Into<String>,
        explore: impl Fn(Option<Mutated>) -> Report + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), explore: Box::new(explore) }
    }

    /// The trial's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A trial that explores a workload until the first violation.
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

/// Explores `trials` without a mutant. Then explores each mutant on the trials in which it changes something, in their order, until one has
/// a violation. `stage` provides the threads for each of the two parts.
pub fn run_mutants<'a>(
    trials: &[Trial],
    argued: &[Argued],
    stage: impl Fn(&'static str) -> Stage<'a>,
) -> MutationReport {
    run_some_mutants(trials, argued, &Share::All, &[], stage)
}

/// Like [`run_mutants`], but tries only a share of the mutants, and those that match a spot of `always`, such as that of the injected
/// fault. An entry is stale only if all mutants that it matches were tried.
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

/// Returns the first violation that `mutant` causes.
fn kill<S: Subject>(workloads: &[Workload<S>], options: &Options, mutant: Mutant) -> Option<Violation> {
    workloads
        .iter()
        .find_map(|workload| explore_mutant(workload, options, Some(mutant)).violations.into_iter().next())
}

/// Injects a fault at `spot` and returns the violation that detects each such mutant.
///
/// # Errors
/// The workloads have a violation without the fault, `spot` matches no site with an effect, or a mutant is not detected. Then the
/// exploration cannot be trusted.
pub fn injected_fault<S: Subject>(
    workloads: &[Workload<S>],
    options: &Options,
    spot: &Spot,
) -> Result<Vec<Violation>, String> {
    let options = Options { violations_max: 1, ..options.clone() };
    let base = explore_all(workloads, &options);
    if let Some(violation) = base.violations.first() {
        return Err(format!("without the injected fault: {violation}"));
    }
    let found = spot.find(&base);
    if found.is_empty() {
        return Err(format!("no {:?} at `{}` in {}", spot.kind, spot.contains, spot.file_suffix));
    }
    let caught = |mutant| kill(workloads, &options, mutant).ok_or_else(|| format!("{mutant} is not caught"));
    found.into_iter().map(caught).collect()
}
