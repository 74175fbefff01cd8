//! `bench store`: Bristlecone compared with LMDB, RocksDB, redb, fjall and Berkeley DB, in one run, at the same durability.
//!
//! Keys are random strings of 20 bytes, values have 100 bytes. Every store is loaded with the same pairs in the same order. Each round then
//! runs every column (an operation and a number of threads) on every store in turn, starting with another store each time, so that other
//! load on the machine affects all stores. Medians of the rounds are reported. A second pass on new stores repeats the columns that write
//! and counts their syncs ([`competitors::syncs`]), because counting costs time.
//!
//! * S1: a wrong answer ends the run. Gets, scans and ranges are checked while they are measured. At the end every store is opened again
//!   and all its bytes are compared.
//! * S2: a column that writes inserts new keys, the same in every store. So all stores grow alike over the rounds.
//! * S3: the background work of a column ends before the turn of the next store. Its time is not measured.
//! * S4: all files are removed from the backing, also after an error.

mod report;
mod work;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use competitors::pairs::{Text, VALUE_BYTES};
use competitors::place::{Place, bytes_below, bytes_free};
use competitors::syncs::{self, Counter};
use competitors::{Competitor, Kind, Promise, chosen, ours};

pub use report::{Cell, Column, Report, Row, SyncCell, SyncRow};
pub use work::RANGE_PAIRS;

use crate::{Error, median};
use work::{Held, Work, measure, verify};

/// Single puts per column at power durability, where each put may wait for a disk.
const OPERATIONS_POWER: u64 = 500;
/// Minimum number of batches per column.
const BATCHES_MIN: u64 = 16;
/// Maximum number of lookups per column.
const READS_MAX: u64 = 200_000;
/// Number of lookups per range read.
const READS_PER_RANGE: u64 = 20;
/// Maximum number of keys of the stores whose syncs are counted. More keys do not change the syncs per commit.
const COUNTED_KEYS: u64 = 100_000;
/// Maximum bytes that a store needs per byte of a pair: half-full pages, or a log and two generations of tables.
const SPACE_PER_BYTE: u64 = 4;
/// Bytes that a store needs regardless of its contents: logs, journals.
const SPACE_EACH: u64 = 128 << 20;
/// Free bytes below which a file system counts as full.
const FULL: u64 = 16 << 20;

/// Parameters of the benchmark.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of keys loaded into each store.
    pub keys: u64,
    /// Single puts per column; 0 for a twentieth of the keys, at most 100,000, or for 500 at power durability.
    pub operations: u64,
    /// Number of rounds; medians are reported.
    pub rounds: usize,
    /// Thread counts. Each is measured as a separate column.
    pub writers: Vec<usize>,
    /// Number of puts in a batch.
    pub batch: usize,
    /// Directory for the files.
    pub backing: PathBuf,
    /// Failure that acknowledged writes survive.
    pub promise: Promise,
    /// Competitors to measure; `None` for all in this build.
    pub only: Option<Vec<String>>,
    /// Seed of keys and their order.
    pub seed: u64,
}

/// The operation of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Put,
    Batch,
    Get,
    Scan,
    Range,
}

const VERBS: [Verb; 5] = [Verb::Put, Verb::Batch, Verb::Get, Verb::Scan, Verb::Range];

/// The sizes that follow from the options.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    operations: u64,
    batched: u64,
    reads: u64,
    ranges: u64,
    /// Maximum number of pairs in a store at the end.
    pairs_max: u64,
}

impl Sizes {
    fn of(options: &Options) -> Self {
        let operations = match (options.operations, options.promise) {
            (0, Promise::Process) => (options.keys / 20).clamp(1, 100_000),
            (0, Promise::Power) => OPERATIONS_POWER,
            (operations, _) => operations,
        };
        let batch = options.batch as u64;
        let threads = options.writers.iter().copied().max().unwrap_or(1) as u64;
        // All threads do the same number of batches.
        let batches = (operations / batch).max(BATCHES_MIN).next_multiple_of(threads);
        let batched = batches * batch;
        let reads = (options.keys / 5).clamp(1, READS_MAX);
        let columns = options.rounds as u64 * options.writers.len() as u64;
        let pairs_max = options.keys + columns * (operations + batched);
        Self { operations, batched, reads, ranges: (reads / READS_PER_RANGE).max(1), pairs_max }
    }

    fn bytes_max(&self) -> u64 {
        self.pairs_max * (size_of::<Text>() + VALUE_BYTES) as u64
    }
}

/// A store that takes part in the benchmark.
struct Entrant {
    kind: Kind,
    folder: PathBuf,
    store: Box<dyn Competitor>,
    /// Pairs or ranges per second by column, one sample per round.
    samples: BTreeMap<usize, Vec<f64>>,
}

/// Runs the benchmark. Reports each step to `progress`.
///
/// # Errors
/// Before any work: `Place`, `Choice` and `Room`. Later: `Store`, `Wrong`, `File`, `Uncounted` or `Full`.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Report, Error> {
    let kinds = chosen(ours::KIND, options.only.as_deref())?;
    let sizes = Sizes::of(options);
    let place = Place::take(&options.backing)?;
    require_space(options, &sizes, kinds.len() as u64)?;
    let done = measured(options, &kinds, &sizes, &place, progress);
    done.map_err(|error| match bytes_free(&options.backing) {
        Ok(free) if free < FULL => Error::Full { path: options.backing.clone(), source: Box::new(error) },
        _ => error,
    })
}

fn require_space(options: &Options, sizes: &Sizes, stores: u64) -> Result<(), Error> {
    let needed = stores * (sizes.bytes_max() * SPACE_PER_BYTE + SPACE_EACH);
    let free = bytes_free(&options.backing)?;
    if free < needed {
        return Err(Error::Room { path: options.backing.clone(), free: free >> 20, needed: needed >> 20 });
    }
    Ok(())
}

fn columns(options: &Options) -> Vec<(Verb, usize)> {
    VERBS.into_iter().flat_map(|verb| options.writers.iter().map(move |threads| (verb, *threads))).collect()
}

fn measured(
    options: &Options,
    kinds: &[Kind],
    sizes: &Sizes,
    place: &Place,
    progress: &dyn Fn(&str),
) -> Result<Report, Error> {
    let mut held = Held::new(options.seed);
    let loaded = held.fresh(options.keys);
    let mut entrants = Vec::new();
    for kind in kinds {
        progress(&format!("loading {}", kind.name));
        let folder = place.folder(kind.name)?;
        let store = load(kind, &folder, options, sizes, &loaded)?;
        entrants.push(Entrant { kind: *kind, folder, store, samples: BTreeMap::new() });
    }
    held.add(loaded);
    let columns = columns(options);
    let mut random = fastrand::Rng::with_seed(options.seed);
    for round in 0..options.rounds {
        for (number, (verb, threads)) in columns.iter().enumerate() {
            progress(&format!(
                "round {} of {}, {}",
                round + 1,
                options.rounds,
                label(*verb, *threads, options)
            ));
            let keys = column_keys(*verb, sizes, &held, &mut random);
            let stores = entrants.len();
            for entrant in (0..stores).map(|turn| (turn + round + number) % stores) {
                let Entrant { kind, store, samples, .. } = &mut entrants[entrant];
                let work = work_of(*verb, &keys, &held, options);
                samples.entry(number).or_default().push(measure(store.as_ref(), kind.name, work, *threads)?);
                store.settle()?; // S3
            }
            if let Verb::Put | Verb::Batch = verb {
                held.add(keys);
            }
        }
    }
    let mut rows = Vec::new();
    let ours: Vec<f64> = (0..columns.len()).map(|column| median_of(&entrants[0], column)).collect();
    for entrant in &entrants {
        rows.push(row(entrant, options.promise, &ours));
    }
    for (row, entrant) in rows.iter().zip(entrants) {
        progress(&format!("comparing what {} holds", row.name));
        verify_reopened(entrant, options, sizes, &held)?;
    }
    for (row, kind) in rows.iter_mut().zip(kinds) {
        progress(&format!("counting the syncs of {}", row.name));
        let folder = place.folder(&format!("{}-counted", kind.name))?;
        let counted = syncs::counted(|counter| count(kind, &folder, options, sizes, counter));
        match counted {
            Ok(counts) => row.syncs = Some(counts?),
            Err(reason) => row.syncs_missing = Some(reason.to_string()),
        }
    }
    let about = |(verb, threads): &(Verb, usize)| Column {
        label: label(*verb, *threads, options),
        verb: word(*verb),
        threads: *threads,
    };
    Ok(Report {
        keys: options.keys,
        value_bytes: VALUE_BYTES,
        operations: sizes.operations,
        batched: sizes.batched,
        batch: options.batch,
        reads: sizes.reads,
        ranges: sizes.ranges,
        rounds: options.rounds,
        backing: options.backing.clone(),
        durability: options.promise.to_string(),
        seed: options.seed,
        pairs_at_end: held.keys.len() as u64,
        counted_keys: options.keys.min(COUNTED_KEYS),
        columns: columns.iter().map(about).collect(),
        rows,
        others_missing: competitors::KINDS.is_empty(),
    })
}

fn load(
    kind: &Kind,
    folder: &Path,
    options: &Options,
    sizes: &Sizes,
    keys: &[Text],
) -> Result<Box<dyn Competitor>, Error> {
    let store = (kind.open)(folder, &opening(options, sizes))?;
    measure(store.as_ref(), kind.name, Work::Batch(keys, options.batch), 1)?;
    store.settle()?;
    Ok(store)
}

fn opening(options: &Options, sizes: &Sizes) -> competitors::Options {
    competitors::Options { promise: options.promise, bytes_max: sizes.bytes_max(), memory_bytes: None }
}

fn column_keys(verb: Verb, sizes: &Sizes, held: &Held, random: &mut fastrand::Rng) -> Vec<Text> {
    match verb {
        Verb::Put => held.fresh(sizes.operations),
        Verb::Batch => held.fresh(sizes.batched),
        Verb::Get => held.some(random, sizes.reads),
        Verb::Range => held.some(random, sizes.ranges),
        Verb::Scan => Vec::new(),
    }
}

fn work_of<'a>(verb: Verb, keys: &'a [Text], held: &'a Held, options: &Options) -> Work<'a> {
    match verb {
        Verb::Put => Work::Put(keys),
        Verb::Batch => Work::Batch(keys, options.batch),
        Verb::Get => Work::Get(keys),
        Verb::Scan => Work::Scan(held),
        Verb::Range => Work::Range(keys, held),
    }
}

fn word(verb: Verb) -> &'static str {
    match verb {
        Verb::Put => "put",
        Verb::Batch => "batch",
        Verb::Get => "get",
        Verb::Scan => "scan",
        Verb::Range => "range",
    }
}

fn label(verb: Verb, threads: usize, options: &Options) -> String {
    let what = match verb {
        Verb::Put => "put".to_owned(),
        Verb::Batch => format!("batch of {}", options.batch),
        Verb::Get => "get".to_owned(),
        Verb::Scan => "scan of all".to_owned(),
        Verb::Range => format!("range of {RANGE_PAIRS}"),
    };
    format!("{what}, {threads} thread{}", if threads == 1 { "" } else { "s" })
}

fn median_of(entrant: &Entrant, column: usize) -> f64 {
    median(entrant.samples.get(&column).cloned().unwrap_or_default())
}

fn row(entrant: &Entrant, promise: Promise, ours: &[f64]) -> Row {
    let cell = |(column, ours): (usize, &f64)| {
        let samples = entrant.samples.get(&column).map_or(&[][..], Vec::as_slice);
        let per_second = median_of(entrant, column);
        Cell {
            per_second,
            slowest: samples.iter().copied().fold(f64::INFINITY, f64::min),
            fastest: samples.iter().copied().fold(0.0, f64::max),
            ratio: per_second / ours,
        }
    };
    Row {
        name: entrant.kind.name,
        setting: (entrant.kind.setting)(promise),
        cells: ours.iter().enumerate().map(cell).collect(),
        file_bytes: bytes_below(&entrant.folder),
        syncs: None,
        syncs_missing: None,
    }
}

/// S1: closes a store, opens it again, and verifies its contents.
fn verify_reopened(entrant: Entrant, options: &Options, sizes: &Sizes, held: &Held) -> Result<(), Error> {
    let Entrant { kind, folder, store, .. } = entrant;
    store.close()?;
    let store = (kind.open)(&folder, &opening(options, sizes))?;
    verify(store.as_ref(), kind.name, held)?;
    store.close()?;
    // Free the space for the next pass.
    std::fs::remove_dir_all(&folder).map_err(|source| Error::File { path: folder, source })
}

/// Counts the syncs of the columns that write, on a new store.
fn count(
    kind: &Kind,
    folder: &Path,
    options: &Options,
    sizes: &Sizes,
    counter: &Counter,
) -> Result<Vec<SyncRow>, Error> {
    let uncounted = |source| Error::Uncounted { store: kind.name, source };
    let mut held = Held::new(options.seed);
    let loaded = held.fresh(options.keys.min(COUNTED_KEYS));
    let store = load(kind, folder, options, sizes, &loaded)?;
    held.add(loaded);
    let mut random = fastrand::Rng::with_seed(options.seed);
    let mut rows = Vec::new();
    for (verb, threads) in columns(options) {
        let keys = column_keys(verb, sizes, &held, &mut random);
        let work = work_of(verb, &keys, &held, options);
        let commits = work.commits() as u64;
        if commits == 0 {
            continue;
        }
        counter.take().map_err(uncounted)?;
        measure(store.as_ref(), kind.name, work, threads)?;
        store.settle()?;
        let syncs = counter.take().map_err(uncounted)?;
        let cell = SyncCell { commits, syncs, per_commit: syncs.total() as f64 / commits as f64 };
        rows.push(SyncRow { label: label(verb, threads, options), cell });
        held.add(keys);
    }
    verify(store.as_ref(), kind.name, &held)?;
    store.close()?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's number for its memory file system.
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;

    fn options(backing: &Path, promise: Promise) -> Options {
        Options {
            keys: 3_000,
            operations: 40,
            rounds: 2,
            writers: vec![1, 3],
            batch: 10,
            backing: backing.to_owned(),
            promise,
            only: None,
            seed: 7,
        }
    }

    #[test]
    fn a_small_run_has_every_column_of_every_store_and_leaves_nothing() {
        for promise in [Promise::Process, Promise::Power] {
            let backing = tempfile::tempdir().unwrap();
            let report = run(&options(backing.path(), promise), &|_| {}).unwrap();
            assert_eq!(report.columns.len(), 10);
            assert_eq!(report.rows.len(), 1 + competitors::KINDS.len());
            assert_eq!(report.pairs_at_end, 3_000 + 2 * 2 * (40 + 180));
            for row in &report.rows {
                assert!(row.cells.iter().all(|cell| cell.per_second > 0.0 && cell.ratio > 0.0), "{row:?}");
                assert_eq!(row.cells.len(), report.columns.len());
                let syncs = row.syncs.as_ref().unwrap();
                let labels: Vec<_> = syncs.iter().map(|row| row.label.as_str()).collect();
                let expected =
                    ["put, 1 thread", "put, 3 threads", "batch of 10, 1 thread", "batch of 10, 3 threads"];
                assert_eq!(labels, expected);
                assert_eq!(syncs[0].cell.commits, 40);
                assert_eq!(syncs[2].cell.commits, 18);
            }
            assert!(report.to_string().contains("range of 100, 3 threads"));
            assert_eq!(std::fs::read_dir(backing.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn every_store_syncs_each_single_commit_for_power_and_none_for_process() {
        // Not in the directory for temporary files: that is often a memory file system, where Bristlecone needs no syncs.
        let backing = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let in_memory = rustix::fs::statfs(backing.path()).unwrap().f_type == TMPFS;
        for (promise, synced) in [(Promise::Process, false), (Promise::Power, true)] {
            let report = run(&Options { rounds: 1, ..options(backing.path(), promise) }, &|_| {}).unwrap();
            for row in &report.rows {
                let synced = synced && !(in_memory && row.name == ours::NAME);
                let alone = &row.syncs.as_ref().unwrap()[0];
                assert_eq!(alone.cell.per_commit >= 1.0, synced, "{}: {alone:?}", row.name);
                assert!(synced || alone.cell.syncs.total() == 0, "{}: {alone:?}", row.name);
            }
        }
    }

    #[test]
    fn names_are_known_and_what_is_not_built_says_how() {
        let backing = tempfile::tempdir().unwrap();
        let with = |name: &str| {
            let only = Some(vec![name.to_owned()]);
            run(&Options { only, ..options(backing.path(), Promise::Process) }, &|_| {})
        };
        assert!(with("sqlite").unwrap_err().to_string().contains("lmdb, rocksdb, redb, fjall"));
        match with("redb") {
            Ok(report) => assert_eq!(report.rows.len(), 2),
            Err(error) => assert!(error.to_string().contains("--features competitors"), "{error}"),
        }
    }

    #[test]
    fn too_little_space_is_said_before_anything_is_done() {
        let backing = tempfile::tempdir().unwrap();
        let much = Options { keys: 1 << 50, ..options(backing.path(), Promise::Process) };
        let error = run(&much, &|_| {}).unwrap_err().to_string();
        assert!(error.contains("--keys"), "{error}");
        assert_eq!(std::fs::read_dir(backing.path()).unwrap().count(), 0);
    }

    /// A store that loses every seventh put.
    struct Forgetful<'a>(&'a dyn Competitor);
    struct ForgetfulSession<'a>(Box<dyn competitors::Session + 'a>, u32);

    impl Competitor for Forgetful<'_> {
        fn session(&self) -> competitors::Result<Box<dyn competitors::Session + '_>> {
            Ok(Box::new(ForgetfulSession(self.0.session()?, 0)))
        }
        fn close(self: Box<Self>) -> competitors::Result<()> {
            Ok(())
        }
    }

    impl competitors::Session for ForgetfulSession<'_> {
        fn put(&mut self, key: &[u8], value: &[u8]) -> competitors::Result<()> {
            self.1 += 1;
            if self.1.is_multiple_of(7) { Ok(()) } else { self.0.put(key, value) }
        }
        fn batch(&mut self, pairs: &[(&[u8], &[u8])]) -> competitors::Result<()> {
            self.0.batch(pairs)
        }
        fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> competitors::Result<bool> {
            self.0.get(key, value)
        }
        fn delete(&mut self, key: &[u8]) -> competitors::Result<()> {
            self.0.delete(key)
        }
        fn scan(
            &mut self,
            from: &[u8],
            limit: u64,
            met: &mut dyn FnMut(&[u8], &[u8]),
        ) -> competitors::Result<u64> {
            self.0.scan(from, limit, met)
        }
    }

    #[test]
    fn a_store_that_forgets_a_put_is_found_out_by_gets_scans_and_the_last_look() {
        let backing = tempfile::tempdir().unwrap();
        let opening =
            competitors::Options { promise: Promise::Process, bytes_max: 1 << 20, memory_bytes: None };
        let store = (ours::KIND.open)(backing.path(), &opening).unwrap();
        let forgetful = Forgetful(store.as_ref());
        let mut held = Held::new(1);
        let keys = held.fresh(100);
        measure(&forgetful, "forgetful", Work::Put(&keys), 1).unwrap();
        held.add(keys);
        let refused = |work: Work<'_>| measure(&forgetful, "forgetful", work, 2).unwrap_err().to_string();
        assert!(refused(Work::Get(&held.keys)).contains("missing"));
        assert!(refused(Work::Scan(&held)).contains("86 pairs of 100"));
        assert!(refused(Work::Range(&held.keys[6..7], &held)).contains("a range from"));
        assert!(verify(&forgetful, "forgetful", &held).is_err());
    }
}
