//! The report of an exploration: counts, violations, and for each violation one line that reproduces it.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::mutate::Mutant;
use crate::points::Points;

/// A phase of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Formatting fresh memory.
    Create,
    /// A step, counted from 0.
    Step(usize),
    /// The clean close.
    Close,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create => write!(f, "create"),
            Self::Step(index) => write!(f, "{index}"),
            Self::Close => write!(f, "close"),
        }
    }
}

/// One image: the crash point and the surviving contents.
///
/// Text form: `phase@event:choices`, then `>event:choices` for a crash inside the recovery from that image. Choices are joined by dots.
/// `2@5:0.1>3:1` is a crash in step 2 before event 5. The first line that recovery read held its content 0, the second its content 1. Then
/// a crash followed before event 3 of that recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The phase of the workload.
    pub phase: Phase,
    /// The crash is just before this event of the phase. At the phase's end it is the number of events.
    pub event: usize,
    /// Index of each line's content, in the order of the first reads. Lines after the last one have content 0.
    pub choices: Vec<usize>,
    /// A second crash inside recovery: the event after it, and the choices.
    pub inside: Option<(usize, Vec<usize>)>,
}

fn write_choices(f: &mut fmt::Formatter<'_>, event: usize, choices: &[usize]) -> fmt::Result {
    write!(f, "{event}:")?;
    for (index, choice) in choices.iter().enumerate() {
        write!(f, "{}{choice}", if index == 0 { "" } else { "." })?;
    }
    Ok(())
}

fn read_choices(text: &str) -> Option<(usize, Vec<usize>)> {
    let (event, choices) = text.split_once(':')?;
    let choices = choices.split('.').filter(|choice| !choice.is_empty()).map(|choice| choice.parse().ok());
    Some((event.parse().ok()?, choices.collect::<Option<_>>()?))
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@", self.phase)?;
        write_choices(f, self.event, &self.choices)?;
        if let Some((event, choices)) = &self.inside {
            write!(f, ">")?;
            write_choices(f, *event, choices)?;
        }
        Ok(())
    }
}

impl FromStr for Crash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (phase, rest) = text.split_once('@')?;
            let phase = match phase {
                "create" => Phase::Create,
                "close" => Phase::Close,
                index => Phase::Step(index.parse().ok()?),
            };
            let (outer, inner) = match rest.split_once('>') {
                Some((outer, inner)) => (outer, Some(read_choices(inner)?)),
                None => (rest, None),
            };
            let (event, choices) = read_choices(outer)?;
            Some(Self { phase, event, choices, inside: inner })
        };
        parse()
            .ok_or_else(|| format!("`{text}` is not a crash: write phase@event:choice.choice, as in 2@5:0.1"))
    }
}

/// An image, or a running subject, that violates a guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The phase of the workload.
    pub phase: Phase,
    /// The operation in flight.
    pub op: String,
    /// The image; `None` if the subject failed without a crash or after a cut step.
    pub crash: Option<Crash>,
    /// The error found.
    pub message: String,
    /// The seed of the run.
    pub seed: u64,
    /// The mutant explored, if any.
    pub mutant: Option<Mutant>,
}

impl Violation {
    /// Returns the options that explore only this image of the same workload.
    pub fn reproduction(&self) -> String {
        let only = match &self.crash {
            Some(crash) => format!(", only: Some(\"{crash}\".parse()?)"),
            None => String::new(),
        };
        let mutant = self.mutant.map(|mutant| format!(", with {mutant}")).unwrap_or_default();
        format!("Options {{ seed: {}{only}, .. }}{mutant}", self.seed)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.message.replace('\n', " ");
        write!(f, "{} {}: {message}; reproduce: {}", self.phase, self.op, self.reproduction())
    }
}

/// The crash point with the most images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worst {
    /// The phase of the workload.
    pub phase: Phase,
    /// The event after the crash point.
    pub event: usize,
    /// Number of images.
    pub images: u64,
}

/// Counts and violations of an exploration. [`Report::merge`] adds the counts of several reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of crash points in create, steps and close.
    pub crash_points: u64,
    /// Number of images recovered and judged at those points.
    pub images: u64,
    /// Number of crash points inside the recovery from an image.
    pub nested_points: u64,
    /// Number of images judged at those points.
    pub nested_images: u64,
    /// Number of nested images that were not executed, because the subject would read the same contents as from an earlier image. They have
    /// its verdict.
    pub nested_recalled: u64,
    /// Number of crash points in create, steps and close with more images than the cap. They were sampled.
    pub sampled_points: u64,
    /// The same inside recovery.
    pub nested_sampled_points: u64,
    /// Number of times that a line had more contents than the cap at a crash point.
    pub capped_lines: u64,
    /// The crash point with the most images, without nested ones.
    pub worst: Option<Worst>,
    /// The violations.
    pub violations: Vec<Violation>,
    /// Every mutant that would have changed a recorded event list.
    pub mutants: BTreeSet<Mutant>,
    /// Number of crash points skipped because the mutant changes nothing at them ([`Points`]).
    pub unchanged_points: u64,
    /// The explored crash points, if [`crate::Options::remember`] is set.
    pub points: Points,
    /// Duration of the exploration.
    pub elapsed: Duration,
}

impl Report {
    /// Images per second, nested ones included.
    pub fn states_per_second(&self) -> f64 {
        (self.images + self.nested_images) as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// True if there is a violation.
    pub fn is_violated(&self) -> bool {
        !self.violations.is_empty()
    }

    /// Adds the report of another run.
    pub fn merge(&mut self, other: Self) {
        self.crash_points += other.crash_points;
        self.images += other.images;
        self.nested_points += other.nested_points;
        self.nested_images += other.nested_images;
        self.nested_recalled += other.nested_recalled;
        self.sampled_points += other.sampled_points;
        self.nested_sampled_points += other.nested_sampled_points;
        self.capped_lines += other.capped_lines;
        if other.worst.map(|worst| worst.images) > self.worst.map(|worst| worst.images) {
            self.worst = other.worst;
        }
        self.violations.extend(other.violations);
        self.mutants.extend(other.mutants);
        self.unchanged_points += other.unchanged_points;
        self.points.merge(other.points);
        self.elapsed += other.elapsed;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} crash points, {} images; ", self.crash_points, self.images)?;
        write!(f, "inside recovery {} points, {} images, ", self.nested_points, self.nested_images)?;
        write!(f, "{} of them read as others; ", self.nested_recalled)?;
        if let Some(worst) = self.worst {
            write!(f, "worst {}@{} with {} images; ", worst.phase, worst.event, worst.images)?;
        }
        let sampled = (self.sampled_points, self.nested_sampled_points);
        write!(f, "{} points and {} inside recovery sampled, ", sampled.0, sampled.1)?;
        write!(f, "{} lines capped; ", self.capped_lines)?;
        write!(f, "{:.0} states/s; {} violations", self.states_per_second(), self.violations.len())?;
        self.violations.iter().try_for_each(|violation| write!(f, "\n  {violation}"))
    }
}
