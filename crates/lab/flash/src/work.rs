//! The work of the threads in a cell, and the checks of the store's answers.
//!
//! * W1: a get must return the value of the newest version that this process has put. Each thread uses keys of its own, so no other thread
//!   changes them meanwhile.
//! * W2: a scan must return pairs in ascending order, from the wanted key on, without an early end, and each value must begin like its key.
//! * W3: [`Subject::verify`] compares all bytes of all pairs, and the version of each value.
//!
//! The checks are part of the measured time. They take some nanoseconds for each pair, the same for every store.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use competitors::pairs::{Random as _, Text, VALUE_BYTES, first_word, value_of, version_of};
use competitors::{Competitor, Session};
use hdrhistogram::Histogram;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand_distr::{Distribution as _, Zipf};

use crate::protocol::{Cell, Measured, Verb};

/// Bytes of a key and its value.
pub const PAIR_BYTES: u64 = (size_of::<Text>() + VALUE_BYTES) as u64;
/// Number of puts in a batch of the load.
pub const LOAD_BATCH: u64 = 100;
/// Number of pairs of a scan.
const SCAN_PAIRS: u64 = 100;
/// YCSB's exponent of the Zipfian distribution.
const EXPONENT: f64 = 0.99;
/// A prime number. It scatters the ranks of the Zipfian distribution over the order of the load.
const SCATTER: u64 = 2_654_435_761;
/// The longest recorded duration of a call in nanoseconds, and the significant digits of a duration.
const LONGEST_NS: u64 = 600_000_000_000;
const DIGITS: u8 = 2;

/// Why a work ended early.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] competitors::Error),
    /// A wrong answer.
    #[error("{0}")]
    Wrong(String),
    /// An error of the system.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// A store with its expected contents.
pub struct Subject<'a> {
    /// The store.
    pub store: &'a dyn Competitor,
    seed: u64,
    /// The versions of the values, by the number of the key.
    versions: Vec<AtomicU8>,
    greatest: Text,
}

/// The work of one thread.
#[derive(Clone, Copy)]
pub struct Extent {
    pub cell: Cell,
    pub seconds: f64,
    pub operations_max: u64,
}

/// Results of one thread.
struct Part {
    start: Instant,
    end: Instant,
    operations: u64,
    puts: u64,
    commits: u64,
    durations: Histogram<u64>,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LONGEST_NS, DIGITS).expect("the bounds are constants that the histogram accepts")
}

/// Draws numbers of keys.
enum Draw {
    Uniform(fastrand::Rng),
    Zipfian(Zipf<f64>, SmallRng),
}

impl Draw {
    fn new(verb: Verb, count: u64, seed: u64) -> Self {
        match verb {
            Verb::GetZipfian | Verb::Mixed => Draw::Zipfian(
                Zipf::new(count as f64, EXPONENT).expect("a count of at least 1 and a positive exponent"),
                SmallRng::seed_from_u64(seed),
            ),
            _ => Draw::Uniform(fastrand::Rng::with_seed(seed)),
        }
    }

    /// A number below `count`.
    fn next(&mut self, count: u64) -> u64 {
        match self {
            Draw::Uniform(random) => random.u64(..count),
            Draw::Zipfian(zipf, random) => (zipf.sample(random) as u64 - 1).min(count - 1) * SCATTER % count,
        }
    }
}

/// A number that depends on a key and its version. The sum over all pairs identifies the contents of a store.
fn mark(key: &Text, version: u8) -> u64 {
    let mixed = (first_word(key) ^ u64::from(version) << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

/// Puts version 0 of the values of these keys, in one commit.
fn put_all(session: &mut dyn Session, keys: &[Text]) -> Result<(), Fault> {
    let values: Vec<_> = keys.iter().map(|key| value_of(key, 0)).collect();
    let pairs: Vec<_> =
        keys.iter().zip(&values).map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
    Ok(session.batch(&pairs)?)
}

impl<'a> Subject<'a> {
    /// A store with the versions of its values; version 0 of all keys if they are not given.
    ///
    /// # Errors
    /// If the file of the versions cannot be read.
    pub fn new(
        store: &'a dyn Competitor,
        keys: u64,
        seed: u64,
        versions: Option<&Path>,
    ) -> std::io::Result<Self> {
        let versions = versions.map_or_else(|| Ok(vec![0; keys as usize]), std::fs::read)?;
        let versions = versions.into_iter().map(AtomicU8::new).collect();
        let greatest = (0..keys).map(|number| Text::numbered(seed, number)).max().unwrap_or_default();
        Ok(Self { store, seed, versions, greatest })
    }

    fn keys(&self) -> u64 {
        self.versions.len() as u64
    }

    /// Writes the versions of the values to a file.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        let versions: Vec<u8> = self.versions.iter().map(|version| version.load(Ordering::Relaxed)).collect();
        std::fs::write(path, versions)
    }

    /// Looks up a key and checks its value.
    ///
    /// # Errors
    /// Errors of the store; `Wrong`.
    pub fn get(&self, session: &mut dyn Session, number: u64, value: &mut Vec<u8>) -> Result<(), Fault> {
        let key = Text::numbered(self.seed, number);
        if !session.get(&key, value)? {
            return Err(Fault::Wrong(format!("{} is missing", text(&key))));
        }
        let version = self.versions[number as usize].load(Ordering::Relaxed);
        if *value == value_of(&key, version) {
            return Ok(());
        }
        let found = version_of(&key, value);
        let found = found.map_or("no value of this key".to_owned(), |found| format!("version {found}"));
        Err(Fault::Wrong(format!("the value of {} is {found}, expected version {version}", text(&key))))
    }

    fn update(&self, session: &mut dyn Session, number: u64) -> Result<(), Fault> {
        let key = Text::numbered(self.seed, number);
        let version = &self.versions[number as usize];
        let next = version.load(Ordering::Relaxed).wrapping_add(1);
        session.put(&key, &value_of(&key, next))?;
        version.store(next, Ordering::Relaxed);
        Ok(())
    }

    fn scan(&self, session: &mut dyn Session, number: u64) -> Result<(), Fault> {
        let from = Text::numbered(self.seed, number);
        let (mut last, mut faults, mut first) = (None, 0, None);
        let count = session.scan(&from, SCAN_PAIRS, &mut |key, value| {
            let Ok(key) = Text::try_from(key) else {
                faults += 1;
                return;
            };
            let is_good = value.len() == VALUE_BYTES && first_word(value) == first_word(&key);
            faults += u64::from(!is_good || last.is_some_and(|last| last >= key));
            first.get_or_insert(key);
            last = Some(key);
        })?;
        let is_whole = count == SCAN_PAIRS || count < SCAN_PAIRS && last == Some(self.greatest);
        if is_whole && faults == 0 && first == Some(from) {
            return Ok(());
        }
        Err(Fault::Wrong(format!(
            "a scan from {} returned {count} pairs, {faults} of them wrong",
            text(&from)
        )))
    }

    /// Compares all bytes of all pairs with the expected ones.
    ///
    /// # Errors
    /// Errors of the store; `Wrong`.
    pub fn verify(&self) -> Result<(), Fault> {
        let expected = (0..).zip(&self.versions).fold(0_u64, |sum, (number, version)| {
            sum.wrapping_add(mark(&Text::numbered(self.seed, number), version.load(Ordering::Relaxed)))
        });
        let (mut sum, mut faults, mut last) = (0_u64, 0, None);
        let count = self.store.session()?.scan(&[], u64::MAX, &mut |key, value| {
            let found = Text::try_from(key).ok().and_then(|key| Some((key, version_of(&key, value)?)));
            let Some((key, version)) = found.filter(|(key, _)| last.is_none_or(|last| last < *key)) else {
                faults += 1;
                return;
            };
            sum = sum.wrapping_add(mark(&key, version));
            last = Some(key);
        })?;
        if (count, sum, faults) == (self.keys(), expected, 0) {
            return Ok(());
        }
        Err(Fault::Wrong(format!(
            "at the end the store has {count} pairs of {}, {faults} wrong or out of order; versions are right: {}",
            self.keys(),
            sum == expected
        )))
    }

    /// Puts keys in random order, in batches, until the time ends. Then puts the remaining keys in key order, so that each load ends soon.
    fn load(&self, extent: Extent) -> Result<Part, Fault> {
        let mut session = self.store.session()?;
        let mut part = Part::new();
        let end = part.start + Duration::from_secs_f64(extent.seconds);
        let mut last = part.start;
        let mut from = 0;
        while from < self.keys() && last < end && part.operations < extent.operations_max {
            let count = LOAD_BATCH.min(self.keys() - from);
            put_all(session.as_mut(), &Text::range(self.seed, from, count))?;
            from += count;
            part.operations += count;
            part.commits += 1;
            last = part.record(last);
        }
        part.end = last;
        part.commits += self.load_in_order(session.as_mut(), from)?;
        part.puts = self.keys();
        Ok(part)
    }

    /// Puts the keys from this number on in key order. Sorts only the keys with the same first letter at a time, to save memory. Returns the
    /// number of commits.
    fn load_in_order(&self, session: &mut dyn Session, from: u64) -> Result<u64, Fault> {
        let mut commits = 0;
        if from == self.keys() {
            return Ok(commits);
        }
        for first in b'0'..=b'~' {
            let all = (from..self.keys()).map(|number| Text::numbered(self.seed, number));
            let mut keys: Vec<_> = all.filter(|key| key[0] == first).collect();
            keys.sort_unstable();
            for keys in keys.chunks(LOAD_BATCH as usize) {
                put_all(session, keys)?;
                commits += 1;
            }
        }
        Ok(commits)
    }

    /// The work of one thread of a cell. `thread` uses the keys whose number has this rest.
    fn part(&self, extent: Extent, thread: u64, barrier: &Barrier) -> Result<Part, Fault> {
        let Extent { cell, seconds, operations_max } = extent;
        let count = self.keys() / cell.threads;
        let seed = self.seed ^ thread << 8 ^ fastrand::u64(..) << 16;
        let mut draw = Draw::new(cell.verb, count, seed);
        let mut coin = fastrand::Rng::with_seed(seed);
        let mut value = Vec::new();
        let session = self.store.session();
        // All threads reach the barrier, also those that fail later: the others wait for them.
        barrier.wait();
        let mut session = session?;
        let mut part = Part::new();
        let end = part.start + Duration::from_secs_f64(seconds);
        let mut last = part.start;
        while last < end && part.operations < operations_max {
            let number = draw.next(count) * cell.threads + thread;
            let updates = cell.verb == Verb::Update || cell.verb == Verb::Mixed && coin.bool();
            match cell.verb {
                _ if updates => self.update(session.as_mut(), number)?,
                Verb::Scan => self.scan(session.as_mut(), number)?,
                _ => self.get(session.as_mut(), number, &mut value)?,
            }
            part.puts += u64::from(updates);
            part.commits += u64::from(updates);
            part.operations += 1;
            last = part.record(last);
        }
        part.end = last;
        Ok(part)
    }

    /// Does the work of a cell. The result has no written bytes and no syncs yet.
    ///
    /// # Errors
    /// Errors of the store; `Wrong`.
    pub fn measure(&self, extent: Extent) -> Result<Measured, Fault> {
        let parts =
            if extent.cell.verb == Verb::Load { vec![self.load(extent)?] } else { self.parts(extent)? };
        let start = parts.iter().map(|part| part.start).min();
        let end = parts.iter().map(|part| part.end).max();
        let mut durations = histogram();
        for part in &parts {
            durations.add(&part.durations).expect("all histograms have the same bounds");
        }
        Ok(Measured {
            operations: parts.iter().map(|part| part.operations).sum(),
            puts: parts.iter().map(|part| part.puts).sum(),
            commits: parts.iter().map(|part| part.commits).sum(),
            seconds: start.zip(end).map_or(f64::NAN, |(start, end)| (end - start).as_secs_f64()).max(1e-9),
            p999_ns: durations.value_at_quantile(0.999),
            written_bytes: 0,
            is_idle: true,
            syncs: None,
        })
    }

    fn parts(&self, extent: Extent) -> Result<Vec<Part>, Fault> {
        let barrier = Barrier::new(extent.cell.threads as usize);
        let barrier = &barrier;
        std::thread::scope(|scope| {
            let threads = 0..extent.cell.threads;
            let running: Vec<_> =
                threads.map(|thread| scope.spawn(move || self.part(extent, thread, barrier))).collect();
            let joined = running.into_iter().map(|thread| thread.join());
            joined.map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    }
}

impl Part {
    fn new() -> Self {
        let start = Instant::now();
        Self { start, end: start, operations: 0, puts: 0, commits: 0, durations: histogram() }
    }

    /// Records the duration of a call that began at `last`. Returns the time.
    fn record(&mut self, last: Instant) -> Instant {
        let now = Instant::now();
        self.durations.saturating_record((now - last).as_nanos() as u64);
        now
    }
}
