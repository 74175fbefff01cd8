//! Time and number of comparisons of a lookup in VLAB, by the distribution of the keys. VLAB's search calculates the position of a bucket,
//! which is easy for evenly distributed keys. The baseline is `wb-4k`, whose search does not depend on the distribution.
//!
//! Both indexes hold the same set of keys at the same time and look up the same keys in turns, so that other load on the machine affects
//! both. Every answer is checked.

use std::collections::BTreeSet;
use std::fmt::{Display, Formatter};
use std::path::{Path, PathBuf};
use std::time::Instant;

use pmem::Durability;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};

use super::phases::{self, NODE_LINES, workloads};
use super::{Experiment, Options, Outcome, Progress, Step};
use crate::keys::Random as _;
use crate::measured::{Making, Measured, of_words};
use crate::scratch::{Instructions, medium};
use crate::verdict::Verdict;
use crate::{Error, median, wrong};

const OURS: &str = "vlab";
const OTHER: &str = "wb-4k";
/// Maximum ratio of the time of a lookup in VLAB to that in the other index.
const OVER: f64 = 1.2;
/// Maximum number of keys whose comparisons are counted.
const COMPARED: usize = 100_000;

/// A set of keys.
struct Set {
    name: &'static str,
    about: &'static str,
    /// Keys in insertion order.
    keys: Vec<u64>,
    /// True if some keys are looked up far more often than others.
    zipfian: bool,
}

/// Results of a set.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// Name of the set.
    pub set: &'static str,
    /// Description of its distribution.
    pub about: &'static str,
    /// Number of keys.
    pub keys: u64,
    /// Nanoseconds per lookup in VLAB and in `wb-4k`, medians of the rounds.
    pub ns: [f64; 2],
    /// Time in VLAB divided by the time in `wb-4k` in the same round: median, minimum and maximum of the rounds.
    pub ratio: [f64; 3],
    /// Comparisons to find the bucket of a key in VLAB; for `wb-4k`, the minimum that distinguishes its leaves.
    pub comparisons: [f64; 2],
}

/// Results of the experiment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Description of the experiment.
    pub about: &'static str,
    /// Lookups per round.
    pub operations: u64,
    /// Number of rounds.
    pub rounds: usize,
    /// Directory that backed the indexes.
    pub backing: PathBuf,
    /// Seed of keys and their order.
    pub seed: u64,
    /// One row per set.
    pub rows: Vec<Row>,
    /// Omitted sets, with reasons.
    pub left_out: Vec<&'static str>,
    /// The requirements, judged.
    pub claims: Vec<Verdict>,
}

/// Runs the experiment.
///
/// # Errors
/// Errors of the file system; `Wrong` for a wrong answer; `Words` or `Trace` if a file cannot be read.
pub fn run(of: &'static Experiment, options: &Options, progress: &Progress<'_>) -> Result<Outcome, Error> {
    let (keys, operations) = options.scaled_apart();
    let mut sets = made_sets(keys, options.seed);
    let mut left_out = Vec::new();
    match &options.words {
        Some(path) => sets.push(words(path, options.seed)?),
        None => left_out.push("words: no list of words was given (--words)"),
    }
    match &options.trace {
        Some(path) => sets.push(retail(path, options.seed)?),
        None => left_out.push("retail: no trace was given (--trace)"),
    }
    let total = sets.len() as u64;
    let mut rows = Vec::new();
    for (done, set) in sets.iter().enumerate() {
        let what = format!("{}: {} keys", set.name, set.keys.len());
        progress(Step { done: done as u64, total, what });
        rows.push(measure(set, operations, options)?);
    }
    Ok(Outcome::Keys(Report {
        experiment: of.name,
        about: of.about,
        operations,
        rounds: options.rounds,
        backing: options.backing.clone(),
        seed: options.seed,
        left_out,
        claims: rows.iter().map(judge).collect(),
        rows,
    }))
}

fn judge(row: &Row) -> Verdict {
    Verdict {
        claim: format!("{}: a lookup takes at most {OVER} times as long as in {OTHER}", row.set),
        ours: format!("{:.2} times", row.ratio[0]),
        holds: row.ratio[0] <= OVER,
    }
}

fn shuffled(keys: impl IntoIterator<Item = u64>, seed: u64) -> Vec<u64> {
    // Sort first, so that the order depends on the seed alone.
    let each_once: BTreeSet<u64> = keys.into_iter().collect();
    let mut keys: Vec<u64> = each_once.into_iter().collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut keys);
    keys
}

/// Generated sets of about `count` keys.
fn made_sets(count: u64, seed: u64) -> Vec<Set> {
    let mut random = fastrand::Rng::with_seed(seed);
    let uniform = u64::range(seed, 0, count);
    // Four fifths of the keys are in a thousandth of the range.
    let narrow = u64::MAX / 1000;
    let base = random.u64(..u64::MAX - narrow);
    let clustered: Vec<u64> =
        uniform.iter().map(|key| if random.u8(..5) == 0 { *key } else { base + key % narrow }).collect();
    let skewed: Vec<u64> = (0..count).map(|_| (random.f64() * 63.9).exp2() as u64).collect();
    let set = |name, about, keys| Set { name, about, keys, zipfian: false };
    vec![
        set("uniform", "keys and lookups spread evenly", uniform.clone()),
        Set { zipfian: true, ..set("zipfian", "the same keys, some looked up far more often", uniform) },
        set("sequential", "numbers one above the other, stored in order", (1..=count).collect()),
        set("clustered", "80 % of the keys in 0.1 % of the range", shuffled(clustered, seed)),
        set(
            "skewed",
            "as many keys below each power of two as above it and below the next",
            shuffled(skewed, seed),
        ),
    ]
}

/// Words as numbers in the same order. The digits of the number system are the bytes that occur, and a smallest digit for the end of a
/// word. A key has as many digits as fit. Words with the same digits are one key.
fn words(path: &Path, seed: u64) -> Result<Set, Error> {
    let failed = |why: String| Error::Words { path: path.to_owned(), why };
    let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').filter(|word| !word.is_empty()).collect();
    if lines.is_empty() {
        return Err(failed("there is nothing in it".to_owned()));
    }
    let keys = shuffled(numbers(&lines), seed);
    Ok(Set { name: "words", about: "a list of words", keys, zipfian: false })
}

fn numbers(words: &[&[u8]]) -> Vec<u64> {
    let occurring: BTreeSet<u8> = words.iter().copied().flatten().copied().collect();
    let base = occurring.len() as u64 + 1;
    let mut digit_of = [0; 256];
    occurring.iter().zip(1..).for_each(|(byte, digit)| digit_of[usize::from(*byte)] = digit);
    // The maximum number of digits that fit.
    let digits = std::iter::successors(Some(1_u64), |all| all.checked_mul(base)).count() - 1;
    let number = |word: &&[u8]| {
        let letters = word.iter().map(|byte| digit_of[usize::from(*byte)]).chain(std::iter::repeat(0));
        letters.take(digits).fold(0, |number, digit| number * base + digit)
    };
    words.iter().map(number).collect()
}

/// An index from the items of a shop to their baskets: the item's number in the upper bits, the basket's number in the lower bits.
fn retail(path: &Path, seed: u64) -> Result<Set, Error> {
    let keys = workloads::trace(&phases::given_trace(path)?).after;
    Ok(Set {
        name: "retail",
        about: "items of a shop, and the baskets with them",
        keys: shuffled(keys, seed),
        zipfian: false,
    })
}

/// The keys to look up in each round.
fn queries(set: &Set, operations: u64, seed: u64) -> Vec<u64> {
    if set.zipfian {
        let zipf = Zipf::new(set.keys.len() as f64, workloads::EXPONENT)
            .expect("a set has keys, and the exponent is positive");
        let mut random = SmallRng::seed_from_u64(seed);
        return (0..operations).map(|_| set.keys[zipf.sample(&mut random) as usize - 1]).collect();
    }
    let mut random = fastrand::Rng::with_seed(seed);
    (0..operations).map(|_| set.keys[random.usize(..set.keys.len())]).collect()
}

fn measure(set: &Set, operations: u64, options: &Options) -> Result<Row, Error> {
    let mut indexes = [filled(OURS, set, options)?, filled(OTHER, set, options)?];
    let mut ns = [Vec::new(), Vec::new()];
    for round in 0..options.rounds {
        let asked = queries(set, operations, options.seed + 1 + round as u64);
        // The order alternates between rounds.
        for which in [round % 2, 1 - round % 2] {
            let index = &mut indexes[which];
            let start = Instant::now();
            let found = index.get(&asked)?;
            ns[which].push(start.elapsed().as_nanos() as f64 / asked.len() as f64);
            if found != asked.len() as u64 {
                return Err(wrong(index.name(), format!("{found} of {} keys of {}", asked.len(), set.name)));
            }
        }
    }
    let asked = queries(set, operations.min(COMPARED as u64), options.seed);
    let mut comparisons = [f64::NAN; 2];
    for (index, comparisons) in indexes.iter_mut().zip(&mut comparisons) {
        let of = index.anatomy(&asked).ok_or(Error::Unfit(OTHER))?;
        *comparisons = of.comparisons.unwrap_or((of.leaves as f64).log2());
    }
    let ratios: Vec<f64> = ns[0].iter().zip(&ns[1]).map(|(ours, other)| ours / other).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    Ok(Row {
        set: set.name,
        about: set.about,
        keys: set.keys.len() as u64,
        ns: ns.map(median),
        ratio: [median(ratios), least, most],
        comparisons,
    })
}

/// Makes an index with the keys of a set.
fn filled(tree: &'static str, set: &Set, options: &Options) -> Result<Box<dyn Measured>, Error> {
    let bytes = (64 << 20) + set.keys.len() as u64 * 128;
    let medium = medium(&options.backing, tree, bytes, Durability::Power, Instructions::Best)?;
    let making = Making {
        name: tree.into(),
        medium,
        node_lines: NODE_LINES,
        durability: Durability::Power,
        payload_words: 1,
    };
    let mut index = of_words(phases::found(tree)?, making)?;
    match index.insert(&set.keys)? {
        new if new == set.keys.len() as u64 => Ok(index),
        new => Err(wrong(tree, format!("{new} of {} keys of {} were new", set.keys.len(), set.name))),
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}: {}", self.experiment, self.about)?;
        writeln!(
            f,
            "{} lookups a round, median of {} rounds in turns, nodes of 4 KiB, entries of 16 bytes, on {}; seed {}\n",
            self.operations,
            self.rounds,
            self.backing.display(),
            self.seed
        )?;
        writeln!(
            f,
            "{:<12}{:>10}{:>10}{:>10}{:>26}{:>32}",
            "set", "keys", OURS, OTHER, "ratio (least..most)", "comparisons (wb-4k at least)"
        )?;
        for row in &self.rows {
            let [ratio, least, most] = row.ratio;
            let ratio = format!("{ratio:.2} ({least:.2}..{most:.2})");
            let comparisons = format!("{:.2} ({:.2})", row.comparisons[0], row.comparisons[1]);
            writeln!(
                f,
                "{:<12}{:>10}{:>7.0} ns{:>7.0} ns{ratio:>26}{comparisons:>32}   {}",
                row.set, row.keys, row.ns[0], row.ns[1], row.about
            )?;
        }
        self.left_out.iter().try_for_each(|why| writeln!(f, "left out: {why}"))?;
        writeln!(f)?;
        let claims: Vec<String> = self.claims.iter().map(Verdict::to_string).collect();
        write!(f, "{}", claims.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_numbers_in_their_order() {
        let words: Vec<&[u8]> = vec![b"a", b"a\'s", b"ab", b"abacus", b"b", "\u{e9}tude".as_bytes()];
        let keys = numbers(&words);
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
        let long: Vec<&[u8]> =
            vec![b"abababababababababababababababababababababababababababababababababababa", b"b"];
        let [first, second] = numbers(&long)[..] else { panic!("two words") };
        assert!(0 < first && first < second);
    }

    #[test]
    fn sets_are_spread_as_they_say() {
        let sets = made_sets(20_000, 3);
        for set in &sets {
            let each_once: BTreeSet<_> = set.keys.iter().collect();
            assert_eq!(each_once.len(), set.keys.len(), "{}", set.name);
        }
        let of = |name: &str| {
            let mut keys = sets.iter().find(|set| set.name == name).unwrap().keys.clone();
            keys.sort_unstable();
            keys
        };
        let clustered = of("clustered");
        let narrow = u64::MAX / 1000;
        let most =
            clustered.iter().map(|low| clustered.partition_point(|key| key - low.min(key) <= narrow)).max();
        let near = clustered.windows(2).filter(|two| two[1] - two[0] < narrow / 1000).count();
        assert!(most.is_some() && near > 15_000, "{near} keys are near the next");
        let skewed = of("skewed");
        let below = |bits: u32| skewed.partition_point(|key| *key < 1 << bits) as f64;
        assert!((below(60) - below(50)) / (below(50) - below(40)) < 1.2, "{} {}", below(40), below(60));
        let asked = queries(&sets[1], 10_000, 1);
        let most_asked = asked.iter().filter(|key| **key == sets[1].keys[0]).count();
        assert!(most_asked > 500, "{most_asked}");
    }

    #[test]
    fn a_ratio_is_judged_by_what_is_wanted() {
        let row = |ratio| Row {
            set: "uniform",
            about: "",
            keys: 1,
            ns: [1.0; 2],
            ratio: [ratio; 3],
            comparisons: [1.0; 2],
        };
        assert!(judge(&row(1.2)).holds && !judge(&row(1.21)).holds);
    }
}
