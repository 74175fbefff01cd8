//! The cost of a combine for inserts: percentiles of the time of an insert while a combine runs and while none runs, compared with inserts
//! into a wB+-Tree of 4 KiB nodes (`wb-4k`). A combine merges VLAB's directory and its braids (short lists of new buckets) into a new
//! directory.
//!
//! The work that a combine adds to one operation ([`vlab::combine`]) is bounded by a number of steps, independent of the number of buckets.
//! A new directory is built separately, with at most `combine_step` steps per operation. When it is complete, one word is published and the
//! new directory replaces the old one. Each later operation frees at most one part of the old directory. The steps are counted
//! ([`vlab::Work`]) and reported with the times.

use std::borrow::Borrow as _;
use std::fmt::{Display, Formatter};
use std::path::PathBuf;
use std::slice;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use index::Fixed;
use index::kind;
use index::leaf_list::prelude::*;
use pmem::{Durability, Native, WORD};
use vlab::{Vlab, Work};

use super::phases::{self, NODE_LINES};
use super::{Experiment, Options, Outcome, Progress, Step};
use crate::keys::{Key, Random as _};
use crate::measured::{Making, of_fixed};
use crate::scratch::{Instructions, medium};
use crate::{Error, wrong};

const OTHER: &str = "wb-4k";
/// The size in the paper.
const ENTRY_BYTES: u64 = 128;
const PAYLOAD_WORDS: usize = (ENTRY_BYTES / WORD) as usize - 1;
/// Maximum time in nanoseconds that is recorded.
const LONGEST_NS: u64 = 1 << 36;
/// Significant digits of a recorded time.
const DIGITS: u8 = 3;

/// Times of inserts, in nanoseconds.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Times {
    /// Description of the inserts.
    pub inserts: &'static str,
    /// Number of inserts.
    pub count: u64,
    /// Median.
    pub p50_ns: u64,
    /// Percentile 99.99.
    pub p9999_ns: u64,
    /// Maximum.
    pub max_ns: u64,
}

impl Times {
    fn of(inserts: &'static str, histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        let (p50_ns, p9999_ns) = (at(0.5), at(0.9999));
        Self { inserts, count: histogram.len(), p50_ns, p9999_ns, max_ns: histogram.max() }
    }
}

/// Results of the experiment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Description of the experiment.
    pub about: &'static str,
    /// Number of keys before the timed inserts.
    pub keys: u64,
    /// Number of buckets before and after the timed inserts.
    pub buckets: [u64; 2],
    /// Number of finished combines.
    pub combines: u64,
    /// Average number of comparisons to find the bucket of a key, at the end.
    pub comparisons: f64,
    /// Maximum number of combine steps per insert by design.
    pub step: u64,
    /// Maximum number of combine steps in one insert, as counted.
    pub most_steps: u64,
    /// Maximum number of parts of the replaced directory that one insert freed. The design's bound is 1.
    pub most_parts: u64,
    /// Directory that backed the indexes.
    pub backing: PathBuf,
    /// Seed of the keys.
    pub seed: u64,
    /// Times of VLAB's inserts during a combine, of its other inserts, and of the other index's inserts.
    pub times: Vec<Times>,
}

/// Runs the experiment.
///
/// # Errors
/// Errors of the file system; `Wrong` for a wrong answer.
pub fn run(of: &'static Experiment, options: &Options, progress: &Progress<'_>) -> Result<Outcome, Error> {
    let (keys, operations) = options.scaled_apart();
    let say = |done, what: &str| progress(Step { done, total: 4, what: what.to_owned() });
    let mut loaded = u64::range(options.seed, 0, keys);
    fastrand::Rng::with_seed(options.seed).shuffle(&mut loaded);
    let fresh = u64::range(options.seed, keys, operations);
    say(0, "filling vlab");
    let ours = Ours::filled(&loaded, options)?;
    say(1, "inserting into vlab");
    let taken = ours.insert_each(&fresh)?;
    let comparisons = ours.verify(&loaded, &fresh)?;
    drop(ours);
    say(2, "filling wb-4k");
    let other = other(&loaded, &fresh, options, &|| say(3, "inserting into wb-4k"))?;
    Ok(Outcome::Stalls(Report {
        experiment: of.name,
        about: of.about,
        keys,
        buckets: taken.buckets,
        combines: taken.combines,
        comparisons,
        step: taken.step,
        most_steps: taken.most.steps,
        most_parts: taken.most.parts,
        backing: options.backing.clone(),
        seed: options.seed,
        times: vec![
            Times::of("vlab, with a combine", &taken.met),
            Times::of("vlab, others", &taken.others),
            Times::of(OTHER, &other),
        ],
    }))
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LONGEST_NS, DIGITS).expect("the bounds are constants that it takes")
}

fn note(histogram: &mut Histogram<u64>, took: Duration) {
    histogram.saturating_record(took.as_nanos() as u64);
}

/// Maximum bytes of an index with this many keys.
fn space(keys: usize) -> u64 {
    (64 << 20) + keys as u64 * ENTRY_BYTES * 4
}

struct Ours {
    index: Vlab<Native, Fixed>,
    step: usize,
}

struct Taken {
    met: Histogram<u64>,
    others: Histogram<u64>,
    buckets: [u64; 2],
    combines: u64,
    step: u64,
    most: Most,
}

/// Maximum work of one insert.
#[derive(Clone, Copy, Default)]
struct Most {
    steps: u64,
    parts: u64,
}

impl Most {
    fn note(&mut self, before: &Work, after: &Work) {
        self.steps = self.steps.max(after.steps - before.steps);
        self.parts = self.parts.max(after.parts - before.parts);
    }
}

impl Ours {
    fn filled(keys: &[u64], options: &Options) -> Result<Self, Error> {
        let name = vlab::ENGINE;
        let medium =
            medium(&options.backing, name, space(keys.len() * 2), Durability::Power, Instructions::Best)?;
        let options = vlab::Options {
            payload_words: PAYLOAD_WORDS,
            ..vlab::Options::new(NODE_LINES, Durability::Power)
        };
        let ours = Self { index: Vlab::create(medium, &options)?, step: options.combine_step };
        keys.iter().try_for_each(|key| ours.put(key))?;
        Ok(ours)
    }

    fn put(&self, key: &u64) -> Result<(), Error> {
        let value = <u64 as Key<kind::Fixed>>::value(*key, PAYLOAD_WORDS);
        match self.index.put(key, value.borrow())? {
            false => Ok(()),
            true => Err(wrong(vlab::ENGINE, format!("{key} was new"))),
        }
    }

    fn buckets(&self) -> u64 {
        let paths = self.index.paths();
        (paths.directory + paths.in_braids) as u64
    }

    /// Times each insert. Between inserts it asks whether a combine is running.
    fn insert_each(&self, keys: &[u64]) -> Result<Taken, Error> {
        let mut taken = Taken {
            met: histogram(),
            others: histogram(),
            buckets: [self.buckets(); 2],
            combines: 0,
            step: self.step as u64,
            most: Most::default(),
        };
        let mut was_combining = self.index.is_combining();
        let mut before = self.index.work();
        for key in keys {
            let start = Instant::now();
            self.put(key)?;
            let took = start.elapsed();
            let after = self.index.work();
            let is_combining = self.index.is_combining();
            let ended = after.combines - before.combines;
            let met =
                was_combining || is_combining || after.steps + after.parts > before.steps + before.parts;
            note(if met { &mut taken.met } else { &mut taken.others }, took);
            taken.combines += ended;
            taken.most.note(&before, &after);
            (was_combining, before) = (is_combining, after);
        }
        taken.buckets[1] = self.buckets();
        Ok(taken)
    }

    /// Verifies every key. Returns the average number of comparisons to find a bucket.
    fn verify(&self, loaded: &[u64], fresh: &[u64]) -> Result<f64, Error> {
        let (mut found, mut comparisons) = (Vec::new(), 0);
        for key in loaded.iter().chain(fresh) {
            if !self.index.get(key, Some(&mut found))? || !<u64 as Key<kind::Fixed>>::is(&found, *key) {
                return Err(wrong(vlab::ENGINE, format!("{key} is there, with its value")));
            }
            comparisons += u64::from(self.index.comparisons(key));
        }
        Ok(comparisons as f64 / (loaded.len() + fresh.len()) as f64)
    }
}

/// Inserts the same keys into the other index.
fn other(
    loaded: &[u64],
    fresh: &[u64],
    options: &Options,
    filled: &dyn Fn(),
) -> Result<Histogram<u64>, Error> {
    let bytes = space(loaded.len() + fresh.len());
    let medium = medium(&options.backing, OTHER, bytes, Durability::Power, Instructions::Best)?;
    let making = Making {
        name: OTHER.into(),
        medium,
        node_lines: NODE_LINES,
        durability: Durability::Power,
        payload_words: PAYLOAD_WORDS,
    };
    let mut index = of_fixed(phases::found(OTHER)?, making)?;
    let mut new = index.insert(loaded)?;
    filled();
    let mut times = histogram();
    for key in fresh {
        let start = Instant::now();
        new += index.insert(slice::from_ref(key))?;
        note(&mut times, start.elapsed());
    }
    let all = (loaded.len() + fresh.len()) as u64;
    let there = index.get(loaded)? + index.get(fresh)?;
    if (new, there) != (all, all) {
        return Err(wrong(OTHER, format!("{new} keys were new and {there} are there of {all}")));
    }
    Ok(times)
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}: {}", self.experiment, self.about)?;
        writeln!(
            f,
            "{} keys in {} buckets, {} in the end, entries of {ENTRY_BYTES} bytes, durable at power on {}; seed {}; {} combines; {:.2} \
             comparisons to a key's bucket\n",
            self.keys,
            self.buckets[0],
            self.buckets[1],
            self.backing.display(),
            self.seed,
            self.combines,
            self.comparisons
        )?;
        writeln!(f, "{:<24}{:>12}{:>12}{:>14}{:>14}", "inserts", "times", "50 %", "99.99 %", "most")?;
        for of in &self.times {
            writeln!(
                f,
                "{:<24}{:>12}{:>9} ns{:>11} ns{:>11} ns",
                of.inserts, of.count, of.p50_ns, of.p9999_ns, of.max_ns
            )?;
        }
        write!(
            f,
            "\nbound of the design: an insert takes at most {} steps of a combine (`combine_step`), here {}, and gives back at most 1 part of \
             what it replaced, here {}:\na step is an entry of the directory or of the braids, or 64 cells of the table; a part is 1,024 \
             entries, or a braid. So a combine of {} buckets is spread over {} inserts or more",
            self.step,
            self.most_steps,
            self.most_parts,
            self.buckets[1],
            self.buckets[1].div_ceil(self.step),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserts_that_meet_a_combine_are_told_from_others() {
        let folder = tempfile::tempdir().unwrap();
        let experiment = super::super::find("vlab-stalls").unwrap();
        let options = Options {
            keys: 20_000,
            operations: 5_000,
            rounds: 1,
            node_lines: Vec::new(),
            backing: folder.path().to_owned(),
            trace: None,
            words: None,
            disk: folder.path().to_owned(),
            scale: 1.0,
            seed: 1,
            memory: pcm::Config::preset("pcm").unwrap(),
        };
        let outcome = (experiment.run)(experiment, &options, &|_| {}).unwrap();
        let Outcome::Stalls(report) = outcome else { panic!("another experiment's outcome") };
        let [met, others, other] = &report.times[..] else { panic!("three rows: {report}") };
        assert_eq!((met.count + others.count, other.count), (5_000, 5_000));
        assert_eq!((report.step, report.most_steps, report.most_parts), (64, 64, 1));
        assert!((1.0..11.0).contains(&report.comparisons), "{report}");
        // A combine processes at most 64 entries per insert.
        assert!(
            report.combines > 0 && met.count >= report.combines * (report.buckets[0] / report.step),
            "{report}"
        );
        assert!(met.count < others.count && report.buckets[1] > report.buckets[0], "{report}");
        for times in &report.times {
            assert!(
                0 < times.p50_ns && times.p50_ns <= times.p9999_ns && times.p9999_ns <= times.max_ns,
                "{report}"
            );
        }
    }
}
