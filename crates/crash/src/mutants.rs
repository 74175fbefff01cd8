//! The mutation run: leave out each flush and fence in turn, and some image must break.
//!
//! A mutant that survives must be argued equivalent, in a table beside the subject. An entry is matched by the *source
//! text* of the site's line: the table includes the source file at compile time (`include_str!`), so that it follows the
//! code when lines move, also in an installed program. Where the text alone is not telling, a trailing comment on the
//! line is a label: `medium.fence(Fence::Commit); // [lap-fence]`. An entry that matches no survivor is stale, and a
//! failure too.

use std::fmt;

use crate::explore::{Options, explore_all, explore_mutant};
use crate::mutate::{Kind, Mutant};
use crate::report::{Report, Violation};
use crate::subject::{Subject, Workload};

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
    /// Whether `mutant` is this one.
    pub fn matches(&self, mutant: &Mutant) -> bool {
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
    /// Images explored for all mutants.
    pub images: u64,
}

impl MutationReport {
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
            "{} mutants killed, {} argued, {} survived; {} images",
            counts.0, counts.1, counts.2, self.images
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

/// Explores `workloads` without a mutant, then each mutant on the same workloads until one breaks.
pub fn run_mutants<S: Subject>(
    workloads: &[Workload<S>],
    options: &Options,
    argued: &[Argued],
) -> MutationReport {
    let options = Options { violations_max: 1, ..options.clone() };
    let mut report = MutationReport { base: explore_all(workloads, &options), ..MutationReport::default() };
    if report.base.is_violated() {
        return report;
    }
    let mut needed = vec![false; argued.len()];
    for mutant in mutants(&report.base) {
        let killed = kill(workloads, &options, mutant, &mut report.images);
        let argument = argued.iter().position(|argued| argued.spot.matches(&mutant));
        match (killed, argument) {
            (Some(violation), _) => report.killed.push((mutant, violation)),
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
fn kill<S: Subject>(
    workloads: &[Workload<S>],
    options: &Options,
    mutant: Mutant,
    images: &mut u64,
) -> Option<Violation> {
    workloads.iter().find_map(|workload| {
        let run = explore_mutant(workload, options, Some(mutant));
        *images += run.images + run.nested_images;
        run.violations.into_iter().next()
    })
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
    let caught =
        |mutant| kill(workloads, &options, mutant, &mut 0).ok_or_else(|| format!("{mutant} is not caught"));
    found.into_iter().map(caught).collect()
}
