//! The report of `bench readers`: one row per case, and ratios between cases.

use std::path::PathBuf;

use super::{Case, Done, Options};
use crate::median;

/// Target for two readers without a writer: factor over the lookups of one reader.
const TARGET_ALONE: f64 = 1.8;
/// Target for two readers with a writer at full speed: factor over the lookups of one reader with a writer.
const TARGET_BESIDE_WRITER: f64 = 1.5;

/// Result of a case in a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    gets_per_second: f64,
    /// Lookups per second of processor time, mean of the readers.
    gets_per_cpu_second: f64,
    writes_per_second: Option<f64>,
}

impl Sample {
    pub fn new(readers: &[Done], writer: Option<Done>) -> Self {
        let per_second = |done: &Done| done.operations as f64 / done.seconds;
        let operations: u64 = readers.iter().map(|done| done.operations).sum();
        let cpu_seconds: f64 = readers.iter().map(|done| done.cpu_seconds).sum();
        Self {
            gets_per_second: readers.iter().map(per_second).sum(),
            gets_per_cpu_second: operations as f64 / cpu_seconds,
            writes_per_second: writer.as_ref().map(per_second),
        }
    }
}

/// Medians of a case.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// Number of readers.
    pub readers: usize,
    /// True if a writer runs continuously.
    pub beside_writer: bool,
    /// True if there are more threads than cores, so that threads share cores.
    pub threads_exceed_cores: bool,
    /// Lookups per second of all readers; median of the rounds.
    pub gets_per_second: f64,
    /// Lookups per second of processor time; median of the rounds.
    pub gets_per_cpu_second: f64,
    /// Writes per second; median of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes_per_second: Option<f64>,
}

/// Comparison of two cases: medians of the ratios of the rounds.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Ratio {
    /// Names of the cases.
    pub name: String,
    /// Ratio of lookups per second.
    pub ratio: f64,
    /// Estimated ratio with a core for every reader: the ratio of (lookups per second of processor time) × readers.
    pub ratio_by_cpu_time: f64,
    /// Minimum, if there is a target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// True if `ratio` reaches the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// True if one of the two cases has more threads than cores.
    pub threads_exceed_cores: bool,
}

/// The results of the benchmark.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Engine.
    pub engine: String,
    /// Number of keys in the store.
    pub keys: u64,
    /// Number of rounds.
    pub rounds: usize,
    /// Duration of each case in a round, in milliseconds.
    pub milliseconds: u64,
    /// Failure that acknowledged writes survive.
    pub durability: String,
    /// True if the writer does not wait for durability.
    pub unsynced: bool,
    /// Number of keys of a scan, which counts as one lookup; 0 for lookups of single keys.
    pub scan: usize,
    /// The medium of the store.
    pub medium: String,
    /// Directory of the files.
    pub backing: PathBuf,
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Load average of the last minute before and after the run, if the system provides it.
    pub load_average: [Option<f64>; 2],
    /// One row per case.
    pub rows: Vec<Row>,
    /// Comparisons of cases.
    pub ratios: Vec<Ratio>,
}

impl Report {
    pub(super) fn new(
        options: &Options,
        stats: &bristlecone::Stats,
        cases: &[Case],
        samples: &[Vec<Sample>],
        load_average: [Option<f64>; 2],
    ) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let rows = cases.iter().zip(samples).map(|(case, samples)| row(*case, samples, cores)).collect();
        Self {
            engine: stats.engine.clone(),
            keys: options.keys,
            rounds: options.rounds,
            milliseconds: options.milliseconds,
            durability: stats.durability.clone(),
            unsynced: options.unsynced,
            scan: options.scan,
            medium: stats.medium.clone(),
            backing: options.backing.clone(),
            cores,
            load_average,
            rows,
            ratios: ratios(cases, samples, cores),
        }
    }
}

fn row(case: Case, samples: &[Sample], cores: usize) -> Row {
    let of = |get: fn(&Sample) -> f64| median(samples.iter().map(get).collect());
    let written: Vec<f64> = samples.iter().filter_map(|sample| sample.writes_per_second).collect();
    Row {
        readers: case.readers,
        beside_writer: case.beside_writer,
        threads_exceed_cores: case.threads() > cores,
        gets_per_second: of(|sample| sample.gets_per_second),
        gets_per_cpu_second: of(|sample| sample.gets_per_cpu_second),
        writes_per_second: case.beside_writer.then(|| median(written)),
    }
}

/// Ratios of several readers to one, with and without a writer; and of one reader with a writer to one without.
fn ratios(cases: &[Case], samples: &[Vec<Sample>], cores: usize) -> Vec<Ratio> {
    let of = |case: Case| cases.iter().position(|other| *other == case).map(|at| (case, &samples[at][..]));
    let one = |beside_writer| of(Case { readers: 1, beside_writer });
    let mut ratios = Vec::new();
    for beside_writer in [false, true] {
        for case in cases.iter().filter(|case| case.beside_writer == beside_writer && case.readers > 1) {
            let target = match (case.readers, beside_writer) {
                (2, false) => Some(TARGET_ALONE),
                (2, true) => Some(TARGET_BESIDE_WRITER),
                _ => None,
            };
            ratios.extend(
                of(*case).zip(one(beside_writer)).map(|(above, below)| ratio(above, below, target, cores)),
            );
        }
    }
    ratios.extend(one(true).zip(one(false)).map(|(above, below)| ratio(above, below, None, cores)));
    ratios
}

fn ratio(
    (above, of_above): (Case, &[Sample]),
    (below, of_below): (Case, &[Sample]),
    target: Option<f64>,
    cores: usize,
) -> Ratio {
    let rounds = || of_above.iter().zip(of_below);
    let ratio = median(rounds().map(|(a, b)| a.gets_per_second / b.gets_per_second).collect());
    let readers = above.readers as f64 / below.readers as f64;
    let by_cpu_time = rounds().map(|(a, b)| readers * a.gets_per_cpu_second / b.gets_per_cpu_second);
    Ratio {
        name: format!("{} / {}", above.name(), below.name()),
        ratio,
        ratio_by_cpu_time: median(by_cpu_time.collect()),
        target,
        holds: target.map(|target| ratio >= target),
        threads_exceed_cores: above.threads().max(below.threads()) > cores,
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { engine, keys, rounds, milliseconds, durability, medium, cores, .. } = self;
        writeln!(
            f,
            "{engine}, {keys} keys, {durability} durability, {medium} ({}); median of {rounds} rounds of {milliseconds} ms a case",
            self.backing.display()
        )?;
        if self.scan > 0 {
            writeln!(f, "a get is a scan of {} keys", self.scan)?;
        }
        if self.unsynced {
            writeln!(f, "the writer does not wait until its writes are durable")?;
        }
        write!(f, "{cores} cores")?;
        if let [Some(before), Some(after)] = self.load_average {
            write!(
                f,
                ", load average {before:.1} before and {after:.1} after, this run's own threads included"
            )?;
        }
        writeln!(f, "\n\n{:28}{:>14}{:>22}{:>14}", "", "gets/s", "gets per CPU second", "writes/s")?;
        for row in &self.rows {
            let case = Case { readers: row.readers, beside_writer: row.beside_writer };
            let mark = if row.threads_exceed_cores { " *" } else { "" };
            let writes = row.writes_per_second.map(|writes| format!("{writes:.0}")).unwrap_or_default();
            let name = format!("{}{mark}", case.name());
            let (gets, by_cpu) = (row.gets_per_second, row.gets_per_cpu_second);
            writeln!(f, "{name:28}{gets:>14.0}{by_cpu:>22.0}{writes:>14}")?;
        }
        writeln!(f, "\n{:56}{:>8}{:>14}  target", "", "ratio", "by CPU time")?;
        for ratio in &self.ratios {
            let mark = if ratio.threads_exceed_cores { " *" } else { "" };
            let verdict = match (ratio.target, ratio.holds) {
                (Some(target), Some(holds)) => {
                    format!("  {target:.1}: {}", if holds { "holds" } else { "does not hold" })
                }
                _ => String::new(),
            };
            let name = format!("{}{mark}", ratio.name);
            writeln!(f, "{name:56}{:>8.2}{:>14.2}{verdict}", ratio.ratio, ratio.ratio_by_cpu_time)?;
        }
        writeln!(
            f,
            "\nBeside a writer there is a thread more: one reader and the writer are two threads, two readers and the writer three, and \
             they share the cores that are there."
        )?;
        if self.rows.iter().any(|row| row.threads_exceed_cores) {
            writeln!(
                f,
                "* more threads than the {cores} cores: they take turns, and gets/s tell of that first. By CPU time is what it \
                 would be with a core for each reader, as far as they then share caches as they do here."
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Case = Case { readers: 1, beside_writer: false };
    const TWO: Case = Case { readers: 2, beside_writer: false };
    const BESIDE: Case = Case { readers: 1, beside_writer: true };
    const TWO_BESIDE: Case = Case { readers: 2, beside_writer: true };

    fn samples(gets: [f64; 3], per_cpu: f64) -> Vec<Sample> {
        let sample = |gets_per_second| Sample {
            gets_per_second,
            gets_per_cpu_second: per_cpu,
            writes_per_second: Some(7.0),
        };
        gets.map(sample).to_vec()
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_held_against_the_targets() {
        // The machine is half as fast in the second round, and other load runs in the last one.
        let cases = [ONE, BESIDE, TWO, TWO_BESIDE];
        let samples = [
            samples([100.0, 50.0, 100.0], 100.0),
            samples([80.0, 40.0, 80.0], 80.0),
            samples([190.0, 95.0, 20.0], 95.0),
            samples([112.0, 56.0, 90.0], 76.0),
        ];
        let ratios = ratios(&cases, &samples, 2);
        let names: Vec<_> = ratios.iter().map(|ratio| ratio.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "2 readers / 1 reader",
                "2 readers beside a writer / 1 reader beside a writer",
                "1 reader beside a writer / 1 reader"
            ]
        );
        let near = |found: f64, wanted: f64| (found - wanted).abs() < 1e-9;
        let found: Vec<_> = ratios.iter().map(|ratio| (ratio.ratio, ratio.ratio_by_cpu_time)).collect();
        for ((ratio, by_cpu), (wanted, wanted_by_cpu)) in
            found.iter().zip([(1.9, 1.9), (1.4, 1.9), (0.8, 0.8)])
        {
            assert!(near(*ratio, wanted) && near(*by_cpu, wanted_by_cpu), "{found:?}");
        }
        let verdicts: Vec<_> = ratios.iter().map(|ratio| (ratio.target, ratio.holds)).collect();
        assert_eq!(verdicts, [(Some(1.8), Some(true)), (Some(1.5), Some(false)), (None, None)]);
        let exceeds: Vec<_> = ratios.iter().map(|ratio| ratio.threads_exceed_cores).collect();
        assert_eq!(exceeds, [false, true, false], "three threads on two cores");
    }

    #[test]
    fn other_numbers_of_readers_have_no_target_and_one_alone_has_nothing_to_be_held_against() {
        let many = Case { readers: 8, beside_writer: false };
        let all = [samples([1.0; 3], 1.0), samples([6.0; 3], 0.75)];
        let found = ratios(&[ONE, many], &all, 8);
        assert_eq!((found.len(), found[0].name.as_str()), (1, "8 readers / 1 reader"));
        assert_eq!((found[0].target, found[0].ratio, found[0].ratio_by_cpu_time), (None, 6.0, 6.0));
        assert!(ratios(&[ONE], &all[..1], 8).is_empty());
    }

    #[test]
    fn what_is_printed_has_verdicts_and_says_where_threads_exceed_cores() {
        let cases = [ONE, BESIDE, TWO, TWO_BESIDE];
        let all: Vec<_> = [100.0, 80.0, 190.0, 112.0].map(|gets| samples([gets; 3], gets)).to_vec();
        let report = |cores| Report {
            engine: "wbtree".into(),
            keys: 10,
            rounds: 3,
            milliseconds: 5,
            durability: "process".into(),
            unsynced: true,
            scan: 100,
            medium: "memory file system".into(),
            backing: "somewhere".into(),
            cores,
            load_average: [Some(0.5), Some(2.0)],
            rows: cases.iter().zip(&all).map(|(case, samples)| row(*case, samples, cores)).collect(),
            ratios: ratios(&cases, &all, cores),
        };
        let text = report(2).to_string();
        for part in [
            "2 cores, load average 0.5 before and 2.0 after",
            "1.8: holds",
            "1.5: does not hold",
            "2 readers beside a writer *",
            "* more threads than the 2 cores",
            "share the cores that are there",
            "a get is a scan of 100 keys",
            "does not wait until its writes",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(!text.contains("2 readers *") && !report(3).to_string().contains('*'), "{text}");
    }
}
