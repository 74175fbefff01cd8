//! What was explored, what was found, and the one line that finds it again.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::mutate::Mutant;
use crate::points::Points;

/// Part of a workload.
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

/// One image: where the crash was, and what survived it.
///
/// Written as `phase@event:choices`, then `>event:choices` for a crash inside the recovery from that image; choices are
/// joined by dots. `2@5:0.1>3:1` is a crash in step 2 before event 5, where the first line that recovery read held its
/// content 0 and the second its content 1, and then a crash before event 3 of that recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Part of the workload.
    pub phase: Phase,
    /// The crash is just before this event of the phase; the number of events at its end.
    pub event: usize,
    /// Which content each line held, in the order in which they were read; 0 beyond.
    pub choices: Vec<usize>,
    /// A second crash inside recovery: before which of its events, and what survived.
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

/// An image, or a running subject, that broke a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Part of the workload.
    pub phase: Phase,
    /// The operation in flight.
    pub op: String,
    /// The image; `None` if the subject failed while it ran without any crash, or after a cut step.
    pub crash: Option<Crash>,
    /// What was wrong.
    pub message: String,
    /// The seed of the run.
    pub seed: u64,
    /// The mutant explored, if any.
    pub mutant: Option<Mutant>,
}

impl Violation {
    /// The options that show this image alone, on the same workload.
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
    /// Part of the workload.
    pub phase: Phase,
    /// Before which event.
    pub event: usize,
    /// How many images.
    pub images: u64,
}

/// What an exploration did and found. Counts of several reports add up with [`Report::merge`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Crash points in create, steps and close.
    pub crash_points: u64,
    /// Images recovered and judged at those points.
    pub images: u64,
    /// Crash points inside the recovery from an image.
    pub nested_points: u64,
    /// Images recovered and judged at those.
    pub nested_images: u64,
    /// Of these, images from which everything read would have been what was read from another: their verdict is its.
    pub nested_recalled: u64,
    /// Crash points in create, steps and close with more images than the cap: these were sampled beyond it.
    pub sampled_points: u64,
    /// The same inside recovery.
    pub nested_sampled_points: u64,
    /// How often a line with more contents than the cap was met at a crash point.
    pub capped_lines: u64,
    /// The crash point with the most images (nested ones not counted).
    pub worst: Option<Worst>,
    /// What broke.
    pub violations: Vec<Violation>,
    /// Every mutation that would have changed a recorded event list.
    pub mutants: BTreeSet<Mutant>,
    /// Crash points that were not explored, for the mutant changes nothing at them ([`Points`]).
    pub unchanged_points: u64,
    /// The crash points that were explored, if the options ask for them.
    pub points: Points,
    /// Time taken.
    pub elapsed: Duration,
}

impl Report {
    /// Images per second, nested ones included.
    pub fn states_per_second(&self) -> f64 {
        (self.images + self.nested_images) as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// True if some image broke.
    pub fn is_violated(&self) -> bool {
        !self.violations.is_empty()
    }

    /// Adds another run to this one.
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
