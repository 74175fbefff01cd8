//! Sequential and random writes, with and without flushes and fences, on simulated memory [wB+ §2.4, figure 4].
//!
//! The experiment writes one word to each line of an area. By default the area is ten times as large as the last cache level. Sequential
//! writes take the lines in the order of their addresses. Random writes follow a list through all lines, so each line must be read to find
//! the next.

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use pcm::{Config, Sim};
use pmem::observed::Memory;
use pmem::{LINE, WORD};

use super::claims::Claim;
use super::{Experiment, Options, Outcome, Progress, Step};
use crate::Error;
use crate::scratch::Instructions;

/// Maximum number of flushed lines between two fences.
pub(super) const FENCE_EVERY_MAX: u64 = 16;
/// Number of lines as a multiple of the lines of the last cache level.
const TIMES_CACHE: u64 = 10;
const TIMES_CACHE_MIN: f64 = 2.0;
const TIMES_CACHE_MAX: f64 = 100.0;
/// A smaller relative change counts as none.
const NEGLIGIBLE: f64 = 0.1;

/// The treatment of each written line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum After {
    /// No flush.
    Nothing,
    /// A flush.
    Flush,
    /// A flush, and a fence after this many lines.
    FenceEvery(u64),
}

impl After {
    fn all() -> impl Iterator<Item = Self> {
        [Self::Nothing, Self::Flush].into_iter().chain((1..=FENCE_EVERY_MAX).map(Self::FenceEvery))
    }
}

impl Display for After {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            After::Nothing => f.pad("written"),
            After::Flush => f.pad("flushed"),
            After::FenceEvery(lines) => f.pad(&format!("fence each {lines}")),
        }
    }
}

/// Cycles per line.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Point {
    /// The treatment of the lines.
    pub after: After,
    /// Cycles of sequential writes.
    pub sequential: f64,
    /// Cycles of random writes along a list.
    pub random: f64,
}

/// Results of the experiment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Description of the experiment.
    pub about: &'static str,
    /// Number of written lines.
    pub lines: u64,
    /// Seed of the list.
    pub seed: u64,
    /// Parameters of the hierarchy.
    pub memory: Vec<(&'static str, f64)>,
    /// Results per treatment.
    pub points: Vec<Point>,
    /// The judged claims of the paper.
    pub claims: Vec<Claim>,
}

/// Figure 4. `scale` changes the number of lines, from 2 to 100 times the lines of the last cache level.
///
/// # Errors
/// None.
pub fn figure_4(
    of: &'static Experiment,
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Outcome, Error> {
    let config = &options.memory;
    // Fewer lines would stay in the cache.
    let times = (TIMES_CACHE as f64 * options.scale).clamp(TIMES_CACHE_MIN, TIMES_CACHE_MAX);
    let lines = ((config.l3.bytes / LINE) as f64 * times) as u64;
    let mut order: Vec<u64> = (0..lines).collect();
    fastrand::Rng::with_seed(options.seed).shuffle(&mut order);
    let total = After::all().count() as u64;
    let points: Vec<_> = After::all()
        .zip(0..)
        .map(|(after, done)| {
            progress(Step { done, total, what: after.to_string() });
            let sequential = cycles(config, lines, 0..lines, false, after);
            Point { after, sequential, random: cycles(config, lines, order.iter().copied(), true, after) }
        })
        .collect();
    let claims = claims(&points);
    Ok(Outcome::Writes(Report {
        experiment: of.name,
        about: of.about,
        lines,
        seed: options.seed,
        memory: config.figures(),
        points,
        claims,
    }))
}

/// Cycles per line of writing all lines in this order.
fn cycles(config: &Config, lines: u64, order: impl Iterator<Item = u64>, linked: bool, after: After) -> f64 {
    let memory = Memory::new(lines * LINE, lines * LINE);
    let mut sim = Sim::new(Arc::clone(&memory), *config);
    sim.begin();
    for (line, number) in order.zip(1..) {
        if linked {
            sim.load(line);
        }
        sim.store(line);
        memory.poke(line * LINE + WORD, number);
        if after != After::Nothing {
            sim.flush(line);
        }
        if let After::FenceEvery(flushed) = after
            && number % flushed == 0
        {
            sim.fence();
        }
    }
    sim.totals().cycles as f64 / lines as f64
}

fn sum(of: &[f64]) -> f64 {
    of.iter().sum()
}

/// Claims of section 2.4 about the shape of the figure. The paper gives no numbers.
fn claims(points: &[Point]) -> Vec<Claim> {
    let [written, flushed] = [After::Nothing, After::Flush].map(|after| {
        let found = points.iter().find(|point| point.after == after);
        *found.expect("every point was taken")
    });
    let fenced: Vec<_> = points.iter().filter(|point| matches!(point.after, After::FenceEvery(_))).collect();
    let change = |of: fn(&Point) -> f64| of(&flushed) / of(&written);
    let (sequential, random) = (change(|point| point.sequential), change(|point| point.random));
    let by_fence = |of: fn(&Point) -> f64| of(fenced[0]) / of(&flushed);
    let fences = [by_fence(|point| point.sequential), by_fence(|point| point.random)];
    let rises = |of: fn(&Point) -> f64| fenced.windows(2).map(move |two| of(two[1]) / of(two[0]));
    let mut rises: Vec<f64> = rises(|point| point.sequential).chain(rises(|point| point.random)).collect();
    // A constant series must not count as falling.
    if fenced.iter().all(|point| (point.sequential, point.random) == (fenced[0].sequential, fenced[0].random))
    {
        rises.push(f64::NAN);
    }
    // NaN if any value is NaN.
    let least = |of: &[f64]| {
        of.iter().copied().min_by(f64::total_cmp).map_or(f64::NAN, |least| least + 0.0 * sum(of))
    };
    let most =
        |of: &[f64]| of.iter().copied().max_by(f64::total_cmp).map_or(f64::NAN, |most| most + 0.0 * sum(of));
    let claim = |text, paper: (Option<f64>, Option<f64>), ours: (f64, f64), reason: String| Claim {
        text,
        instructions: Instructions::Paper,
        paper,
        ours,
        decimals: 2,
        holds: ours.0.is_finite()
            && ours.1.is_finite()
            && paper.0.is_none_or(|bound| ours.0 >= bound)
            && paper.1.is_none_or(|bound| ours.1 <= bound),
        reason,
    };
    let cycles = |point: &Point| format!("{:.0} and {:.0} cycles", point.sequential, point.random);
    vec![
        claim(
            "random writes are slower than sequential ones",
            (Some(1.0 + NEGLIGIBLE), None),
            (written.random / written.sequential, written.random / written.sequential),
            format!("sequential and random: {}; a list is read before it is written", cycles(&written)),
        ),
        claim(
            "flushes significantly slow down sequential writes",
            (Some(1.0 + NEGLIGIBLE), None),
            (sequential, sequential),
            format!(
                "{:.0} to {:.0} cycles: a flush waits for its line",
                written.sequential, flushed.sequential
            ),
        ),
        claim(
            "flushes have negligible impact on random writes",
            (Some(1.0 - NEGLIGIBLE), Some(1.0 + NEGLIGIBLE)),
            (random, random),
            format!("{:.0} to {:.0} cycles: the line was read anyway", written.random, flushed.random),
        ),
        claim(
            "a fence behind every flush incurs significant overhead for both",
            (Some(1.0 + NEGLIGIBLE), None),
            (least(&fences), most(&fences)),
            format!("{} become {}: a fence waits for a write", cycles(&flushed), cycles(fenced[0])),
        ),
        claim(
            "the overhead falls as more lines are flushed between two fences",
            (None, Some(1.0)),
            (least(&rises), most(&rises)),
            format!("each step from a fence each line to one each {FENCE_EVERY_MAX}"),
        ),
    ]
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}: {}", self.experiment, self.about)?;
        writeln!(f, "{} lines, cycles a line, simulated; seed {}", self.lines, self.seed)?;
        writeln!(f, "\n{:16}{:>12}{:>12}", "", "sequential", "random")?;
        for point in &self.points {
            writeln!(f, "{:16}{:>12.1}{:>12.1}", point.after, point.sequential, point.random)?;
        }
        writeln!(f, "\nclaims")?;
        self.claims.iter().try_for_each(|claim| writeln!(f, "{claim}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(of: impl Fn(After) -> (f64, f64)) -> Vec<Point> {
        let point = |after| {
            let (sequential, random) = of(after);
            Point { after, sequential, random }
        };
        After::all().map(point).collect()
    }

    fn as_in_the_paper(after: After) -> (f64, f64) {
        match after {
            After::Nothing => (50.0, 300.0),
            After::Flush => (200.0, 305.0),
            After::FenceEvery(lines) => (200.0 + 400.0 / lines as f64, 310.0 + 400.0 / lines as f64),
        }
    }

    #[test]
    fn the_paper_s_shape_holds_and_each_claim_falls_with_its_points() {
        let all = claims(&points(as_in_the_paper));
        assert!(all.len() == 5 && all.iter().all(|claim| claim.holds), "{all:#?}");
        let other = |changed: After, to: (f64, f64)| {
            let points = points(|after| if after == changed { to } else { as_in_the_paper(after) });
            let judged = claims(&points);
            (0..5).filter(|claim| !judged[*claim].holds).collect::<Vec<_>>()
        };
        assert_eq!(other(After::Nothing, (300.0, 305.0)), [0, 1]);
        assert_eq!(other(After::Flush, (200.0, 400.0)), [2]);
        assert_eq!(other(After::FenceEvery(1), (205.0, 720.0)), [3, 4]);
        assert_eq!(other(After::FenceEvery(7), (200.0, 900.0)), [4]);
        let flat = claims(&points(|_| (200.0, 900.0)));
        assert!(!flat[4].holds && !flat[3].holds, "{flat:#?}");
        assert!(claims(&points(|_| (0.0, 0.0))).iter().all(|claim| !claim.holds));
    }
}
