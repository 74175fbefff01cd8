//! `bench readers` measures the throughput of lookups for several numbers of readers, with and without one concurrent writer.
//!
//! The benchmark uses a store of integers through its public API. A *case* is a number of readers, with or without the writer. The readers
//! look up random keys, or scan from random keys. The writer writes continuously. All cases run for the same time. A round runs every case
//! once. Each round begins with another case, so that other load on the machine affects all cases alike. The benchmark computes the ratio
//! of two cases in each round, and reports the median over the rounds.
//!
//! If there are more threads than cores, lookups per second of wall-clock time depend mainly on the scheduler. So the report also has
//! lookups per second of the readers' processor time. This figure shows how much other readers and the writer slow down a reader. It
//! excludes the time that a reader waits for a core.
//!
//! Invariants:
//!
//! * R1: a value identifies its key and the round in which it was written. The readers check every value during the measurement. A missing
//!   key or a wrong value ends the run.
//! * R2: the writer replaces the values of keys that the readers look up. It also inserts and deletes other keys. At the end of a case it
//!   deletes the keys that it inserted and that are left. After the last round the benchmark verifies the whole store.
//! * R3: the benchmark removes all its files from the directory `backing`, also after an error.

mod report;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bristlecone::{Durability, StoreU64, WriteOptions};
use competitors::place::{Place, bytes_free};
use rustix::time::{ClockId, clock_gettime};

pub use report::{Ratio, Report, Row};

use crate::keys::Random as _;
use crate::{Engine, Error, wrong};
use report::Sample;

/// Bytes of storage per key: half-full nodes, and space for growth.
const SPACE_PER_KEY: u64 = 64;
/// Bytes that a store needs regardless of its contents.
const SPACE: u64 = 256 << 20;
/// Number of lookups, or of writes, between two checks of the stop flag.
const STRETCH: u64 = 64;
/// Maximum number of keys that the writer has inserted and not deleted yet.
const EXTRA_KEYS: usize = 1000;
/// Number of low bits of a value that hold the round of its write. The other bits hold its key.
const ROUND_BITS: u32 = 16;

/// Parameters of the benchmark.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of keys in the store.
    pub keys: u64,
    /// Engine of the store.
    pub engine: Engine,
    /// Numbers of readers. One reader is always measured, because the others are compared with it.
    pub readers: Vec<usize>,
    /// Number of rounds; medians are reported.
    pub rounds: usize,
    /// Duration of each case in a round, in milliseconds.
    pub milliseconds: u64,
    /// Durability of acknowledged writes.
    pub durability: Durability,
    /// True if the writer does not wait for durability.
    pub unsynced: bool,
    /// Number of keys that a reader scans from a random key; 0 for lookups of single keys.
    pub scan: usize,
    /// Directory for the files.
    pub backing: PathBuf,
    /// Seed of keys and their order.
    pub seed: u64,
}

/// A number of readers, with or without a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    readers: usize,
    beside_writer: bool,
}

impl Case {
    fn threads(self) -> usize {
        self.readers + usize::from(self.beside_writer)
    }

    fn name(self) -> String {
        let readers = if self.readers == 1 { "1 reader".into() } else { format!("{} readers", self.readers) };
        if self.beside_writer { format!("{readers} beside a writer") } else { readers }
    }
}

/// The work of one thread.
#[derive(Clone, Copy, Debug)]
struct Done {
    operations: u64,
    seconds: f64,
    cpu_seconds: f64,
}

/// Runs the benchmark. Reports each step to `progress`.
///
/// # Errors
/// Before any work: `Place` and `Room`. Later: `Own` for an error of the store, `Wrong` for a wrong answer, `File`.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Report, Error> {
    let place = Place::take(&options.backing)?;
    let needed = options.keys * SPACE_PER_KEY + SPACE;
    let free = bytes_free(&options.backing)?;
    if options.engine.durable && free < needed {
        return Err(Error::Room { path: options.backing.clone(), free: free >> 20, needed: needed >> 20 });
    }
    // A volatile engine has no durability.
    let durability = options.engine.durable.then_some(options.durability);
    let opening = bristlecone::Options::default().engine(options.engine.name).durability(durability);
    let store = StoreU64::open(place.folder("readers")?, opening)?;
    load(&store, options, progress)?;
    let mut readers = options.readers.clone();
    readers.push(1);
    readers.sort_unstable();
    readers.dedup();
    let both = |readers| [false, true].map(|beside_writer| Case { readers, beside_writer });
    let cases: Vec<Case> = readers.into_iter().flat_map(both).collect();
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); cases.len()];
    let load_before = load_average();
    for round in 0..options.rounds {
        for turn in 0..cases.len() {
            let number = (round + turn) % cases.len();
            let case = cases[number];
            progress(&format!("round {} of {}, {}", round + 1, options.rounds, case.name()));
            samples[number].push(measure(&store, options, case, round as u64)?);
        }
    }
    progress("verifying");
    verify(&store, options)?;
    let stats = store.stats();
    let loads = [load_before, load_average()];
    store.close()?;
    Ok(Report::new(options, &stats, &cases, &samples, loads))
}

fn load(store: &StoreU64, options: &Options, progress: &dyn Fn(&str)) -> Result<(), Error> {
    // In batches: with a journal, each single put would be a sync.
    const GROUP: u64 = 1024;
    for from in (0..options.keys).step_by(GROUP as usize) {
        if from.is_multiple_of(GROUP * 256) {
            progress(&format!("loading {from} of {} keys", options.keys));
        }
        let keys = u64::range(options.seed, from, GROUP.min(options.keys - from));
        let pairs: Vec<(u64, u64)> = keys.into_iter().map(|key| (key, value_of(key, 0))).collect();
        store.put_many(&pairs.iter().map(|(key, value)| (key, value)).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// The value of a key that is written in this round.
fn value_of(key: u64, round: u64) -> u64 {
    let low = (1 << ROUND_BITS) - 1;
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) & !low) | (round & low)
}

/// True if the value was ever stored with this key.
fn belongs(key: u64, value: u64) -> bool {
    value >> ROUND_BITS == value_of(key, 0) >> ROUND_BITS
}

/// Measures a case in one round.
fn measure(store: &StoreU64, options: &Options, case: Case, round: u64) -> Result<Sample, Error> {
    let (start, stop) = (Barrier::new(case.threads() + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let reader = |number: usize| {
            let seed = options.seed ^ ((round << 16) + number as u64 + 1) << 8;
            let (start, stop) = (&start, &stop);
            scope.spawn(move || read(store, options, seed, start, stop))
        };
        let readers: Vec<_> = (0..case.readers).map(reader).collect();
        let (start, stop) = (&start, &stop);
        let writer =
            case.beside_writer.then(|| scope.spawn(move || write(store, options, round, start, stop)));
        start.wait();
        std::thread::sleep(Duration::from_millis(options.milliseconds));
        stop.store(true, Ordering::Relaxed);
        let mut done = Vec::with_capacity(case.readers);
        for reader in readers {
            done.push(reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        let written = writer
            .map(|writer| writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .transpose()?;
        Ok(Sample::new(&done, written))
    })
}

/// Runs `stretch` from the start until the stop flag is set, at least once. `stretch` returns its number of operations.
fn timed(
    start: &Barrier,
    stop: &AtomicBool,
    mut stretch: impl FnMut() -> Result<u64, Error>,
) -> Result<Done, Error> {
    start.wait();
    let (since, cpu_since) = (Instant::now(), cpu_seconds());
    let mut operations = 0;
    loop {
        operations += stretch()?;
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let (seconds, cpu_seconds) = (since.elapsed().as_secs_f64(), cpu_seconds() - cpu_since);
    Ok(Done { operations, seconds, cpu_seconds })
}

fn read(
    store: &StoreU64,
    options: &Options,
    seed: u64,
    start: &Barrier,
    stop: &AtomicBool,
) -> Result<Done, Error> {
    let (mut random, mut value) = (fastrand::Rng::with_seed(seed), 0);
    timed(start, stop, || {
        if options.scan > 0 {
            return scan(store, options, random.u64(..options.keys));
        }
        for _ in 0..STRETCH {
            let key = u64::numbered(options.seed, random.u64(..options.keys));
            if !store.get_into(&key, &mut value)? {
                return Err(wrong(options.engine.name, format!("{key:#x} is missing")));
            }
            if !belongs(key, value) {
                return Err(wrong(options.engine.name, format!("{key:#x} has the value {value:#x}")));
            }
        }
        Ok(STRETCH)
    })
}

/// Scans once from this key.
fn scan(store: &StoreU64, options: &Options, from: u64) -> Result<u64, Error> {
    for pair in store.scan(u64::numbered(options.seed, from)..).take(options.scan) {
        let (key, value) = pair?;
        if !belongs(key, value) {
            return Err(wrong(options.engine.name, format!("{key:#x} has the value {value:#x}")));
        }
    }
    Ok(1)
}

/// Half of the writes replace values, a quarter insert keys, a quarter delete inserted keys.
fn write(
    store: &StoreU64,
    options: &Options,
    round: u64,
    start: &Barrier,
    stop: &AtomicBool,
) -> Result<Done, Error> {
    let store = &store.with(WriteOptions { sync: !options.unsynced });
    let mut random = fastrand::Rng::with_seed(options.seed ^ round);
    let mut extra = VecDeque::with_capacity(EXTRA_KEYS);
    let mut next = options.keys;
    let failed = |key, what: &str| wrong(options.engine.name, format!("{key:#x} {what}"));
    let done = timed(start, stop, || {
        let mut writes = STRETCH / 2;
        for _ in 0..STRETCH / 2 {
            let key = u64::numbered(options.seed, random.u64(..options.keys));
            if !store.put(&key, &value_of(key, round + 1))? {
                return Err(failed(key, "was not there to be replaced"));
            }
            if extra.len() < EXTRA_KEYS && random.bool() {
                let key = u64::numbered(options.seed, next);
                next += 1;
                if store.put(&key, &value_of(key, round + 1))? {
                    return Err(failed(key, "was there before it was inserted"));
                }
                extra.push_back(key);
                writes += 1;
            } else if let Some(key) = extra.pop_front() {
                if !store.delete(&key)? {
                    return Err(failed(key, "was not there to be deleted"));
                }
                writes += 1;
            }
        }
        Ok(writes)
    })?;
    for key in extra {
        store.delete(&key)?;
    }
    Ok(done)
}

/// Checks that the store is sound and has the loaded keys.
fn verify(store: &StoreU64, options: &Options) -> Result<(), Error> {
    let report = store.check()?;
    if let Some(problem) = report.problems.into_iter().next() {
        return Err(wrong(options.engine.name, problem));
    }
    if [report.keys, store.len().keys] != [options.keys; 2] {
        let what = format!("{} keys at the end, {} were loaded", report.keys, options.keys);
        return Err(wrong(options.engine.name, what));
    }
    Ok(())
}

/// Processor time of this thread, in seconds.
fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Average number of running or runnable threads in the last minute, if the system provides it.
fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(backing: &std::path::Path, engine: &str) -> Options {
        Options {
            keys: 3000,
            engine: crate::engine(engine).unwrap(),
            readers: vec![3, 2],
            rounds: 2,
            milliseconds: 5,
            durability: Durability::Process,
            unsynced: false,
            scan: 0,
            backing: backing.to_owned(),
            seed: 1,
        }
    }

    #[test]
    fn every_case_is_measured_in_every_round_and_nothing_is_left() {
        let backing = tempfile::tempdir().unwrap();
        for (engine, durability) in [
            ("wbtree", Durability::Process),
            ("btree-log", Durability::Power), // on an ordinary file system, with a journal
            ("btree", Durability::Process),
        ] {
            let said = std::cell::RefCell::new(Vec::new());
            // Half of the cases scan, with a writer that does not sync.
            let more = usize::from(engine == "btree-log");
            let options = Options {
                durability,
                unsynced: more > 0,
                scan: more * 20,
                ..options(backing.path(), engine)
            };
            let report = run(&options, &|what| said.borrow_mut().push(what.to_owned())).unwrap();
            let cases: Vec<_> = report.rows.iter().map(|row| (row.readers, row.beside_writer)).collect();
            assert_eq!(cases, [(1, false), (1, true), (2, false), (2, true), (3, false), (3, true)]);
            for row in &report.rows {
                assert!(row.gets_per_second > 0.0 && row.gets_per_cpu_second > 0.0, "{row:?}");
                assert_eq!(row.writes_per_second.is_some(), row.beside_writer, "{row:?}");
            }
            for case in ["round 2 of 2, 1 reader", "round 1 of 2, 3 readers beside a writer", "verifying"] {
                assert!(said.borrow().iter().any(|line| line == case), "{case} in {said:?}");
            }
            assert_eq!(std::fs::read_dir(backing.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_value_of_another_key_or_a_key_that_is_gone_ends_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), "wbtree");
        let opening = bristlecone::Options::default().durability(Durability::Process);
        let store = StoreU64::open(dir.path().join("store"), opening).unwrap();
        load(&store, &options, &|_| {}).unwrap();
        let case = Case { readers: 2, beside_writer: true };
        measure(&store, &options, case, 0).unwrap();
        verify(&store, &options).unwrap();
        let keys = u64::range(options.seed, 0, options.keys);
        // Every second key has the value of its neighbour.
        keys.chunks(2).for_each(|pair| _ = store.put(&pair[0], &value_of(pair[1], 0)).unwrap());
        let alone = Case { readers: 1, beside_writer: false };
        let error = measure(&store, &options, alone, 0).unwrap_err().to_string();
        assert!(error.contains("wbtree answered wrongly") && error.contains("has the value"), "{error}");
        keys.iter().for_each(|key| _ = store.delete(key).unwrap());
        let error = measure(&store, &options, alone, 0).unwrap_err().to_string();
        assert!(error.contains("is missing"), "{error}");
        let error = verify(&store, &options).unwrap_err().to_string();
        assert!(error.contains("0 keys at the end, 3000 were loaded"), "{error}");
        // The writer detects this too: a value that it replaces is missing.
        let (start, stop) = (Barrier::new(1), AtomicBool::new(true));
        let error = write(&store, &options, 0, &start, &stop).unwrap_err().to_string();
        assert!(error.contains("was not there to be replaced"), "{error}");
    }

    #[test]
    fn values_tell_their_key_whatever_the_round() {
        let keys = u64::range(1, 0, 10_000);
        assert!(
            keys.iter().all(|key| belongs(*key, value_of(*key, 0)) && belongs(*key, value_of(*key, 70_000)))
        );
        assert!(!keys.windows(2).any(|pair| belongs(pair[0], value_of(pair[1], 0))));
    }
}
