//! `bristlecone-lab flush`: lines written back per second, by the size of the flushed object [CDDS thesis §5.2, figure 5.1].
//!
//! A region of 64 MiB is divided into objects of one size. The measurement stores to every line of an object. Then it flushes the object,
//! with a fence before and a fence after the flushes. The next object follows. The measurement repeats over the region until enough lines
//! were flushed.

use std::path::PathBuf;
use std::time::Instant;

use pmem::{Durability, Fence, LINE, Medium, Native};

use crate::scratch::{self, Instructions};
use crate::verdict::Verdict;
use crate::{Error, median};

/// Bytes of the region.
const REGION: u64 = 64 << 20;
/// Minimum bytes of an object: a line.
const LEAST: u64 = LINE;
/// Minimum number of lines of a sample.
const LINES_MIN: u64 = 2 * REGION / LINE;

/// Parameters of the measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of rounds; medians are reported.
    pub rounds: usize,
    /// Directory for the region.
    pub backing: PathBuf,
}

/// Result for one size of objects.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// Bytes of an object.
    pub bytes: u64,
    /// Millions of lines per second with clflush between two mfences, as in the thesis.
    pub paper: f64,
    /// Millions of lines per second with the best flush between two sfences.
    pub best: f64,
}

/// The results of all sizes.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// The best flush instruction of this processor.
    pub best_flush: String,
    /// Number of rounds.
    pub rounds: usize,
    /// Directory of the region.
    pub backing: PathBuf,
    /// One row per size.
    pub rows: Vec<Row>,
    /// The claims of the thesis.
    pub claims: Vec<Verdict>,
}

/// Runs the measurement. Reports each step to `progress`.
///
/// # Errors
/// `Pmem` or `File` if the backing cannot be used.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Report, Error> {
    let kinds = [Instructions::Paper, Instructions::Best];
    let region = |instructions| -> Result<Native, Error> {
        let medium = scratch::medium(&options.backing, "flush", REGION, Durability::Power, instructions)?;
        medium.grow(REGION)?;
        Ok(medium)
    };
    let media = [region(kinds[0])?, region(kinds[1])?];
    let mut rows = Vec::new();
    let mut bytes = LEAST;
    while bytes <= REGION {
        progress(&format!("objects of {bytes} bytes"));
        let mut samples = [const { Vec::new() }; 2];
        for _ in 0..options.rounds {
            for (medium, samples) in media.iter().zip(&mut samples) {
                samples.push(lines_a_second(medium, bytes) / 1e6);
            }
        }
        let [paper, best] = samples.map(median);
        rows.push(Row { bytes, paper, best });
        bytes *= 4;
    }
    let claims = claims(&rows);
    let best_flush = format!("{:?}", media[1].flush_op());
    Ok(Report { best_flush, rounds: options.rounds, backing: options.backing.clone(), rows, claims })
}

fn lines_a_second(medium: &Native, bytes: u64) -> f64 {
    let passes = LINES_MIN.div_ceil(REGION / LINE);
    let pass = |number: u64| {
        for object in (0..REGION).step_by(bytes as usize) {
            for line in (object..object + bytes).step_by(LINE as usize) {
                medium.copy(line, number);
            }
            medium.fence(Fence::Payload);
            medium.flush(object, bytes);
            medium.fence(Fence::Commit);
        }
    };
    pass(0);
    let start = Instant::now();
    (1..=passes).for_each(pass);
    (passes * REGION / LINE) as f64 / start.elapsed().as_secs_f64()
}

fn claims(rows: &[Row]) -> Vec<Verdict> {
    let of = |range: std::ops::RangeInclusive<u64>| {
        let rates = rows.iter().filter(|row| range.contains(&row.bytes)).map(|row| row.paper);
        rates.fold((f64::INFINITY, 0.0_f64), |(least, most), rate| (least.min(rate), most.max(rate)))
    };
    let (small, middle, large) = (of(LEAST..=LEAST), of(256..=8 << 20), of((8 << 20) + 1..=REGION));
    vec![
        Verdict {
            claim: "objects of one line are flushed slowest".into(),
            ours: format!("{:.1} of {:.1} to {:.1} million lines a second", small.0, middle.0, middle.1),
            holds: small.1 < middle.0,
        },
        Verdict {
            claim: "0.72 GB a second and more".into(),
            ours: format!(
                "{:.2} to {:.2}",
                small.0.min(large.0) * LINE as f64 / 1e3,
                middle.1 * LINE as f64 / 1e3
            ),
            holds: small.0.min(large.0) * LINE as f64 / 1e3 >= 0.72,
        },
        Verdict {
            claim: "objects beyond 8 MiB are flushed more slowly".into(),
            ours: format!("{:.1} million lines a second", large.0),
            holds: large.1 < middle.0,
        },
    ]
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "lines flushed a second, in millions, median of {} rounds, on {}\n",
            self.rounds,
            self.backing.display()
        )?;
        let best = format!("{}, sfence", self.best_flush);
        writeln!(f, "{:>14}{:>20}{best:>20}", "object, bytes", "clflush, mfence")?;
        for row in &self.rows {
            writeln!(f, "{:>14}{:>20.1}{:>20.1}", row.bytes, row.paper, row.best)?;
        }
        writeln!(f)?;
        self.claims.iter().try_for_each(|claim| writeln!(f, "{claim}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: u64, paper: f64) -> Row {
        Row { bytes, paper, best: paper }
    }

    #[test]
    fn the_thesis_s_own_figures_bear_out_its_claims() {
        let thesis = [row(64, 12.0), row(256, 16.0), row(1 << 20, 18.6), row(64 << 20, 11.5)];
        assert!(claims(&thesis).iter().all(|claim| claim.holds), "{:#?}", claims(&thesis));
        let flat = [row(64, 9.0), row(256, 9.0), row(1 << 20, 9.0), row(64 << 20, 9.0)];
        assert!(claims(&flat).iter().all(|claim| !claim.holds), "{:#?}", claims(&flat));
    }

    #[test]
    fn every_size_is_measured_up_to_the_region() {
        let backing = tempfile::tempdir().unwrap();
        let options = Options { rounds: 1, backing: backing.path().to_owned() };
        let report = run(&options, &|_| {}).unwrap();
        assert_eq!((report.rows[0].bytes, report.rows.last().unwrap().bytes), (LEAST, REGION));
        assert!(report.rows.iter().all(|row| row.paper > 0.0 && row.best > 0.0));
    }
}
