//! The N-th system call on a store's files fails, alone or with all calls after it, for N = 1, 2, 3 … until a run has no failure.
//!
//! The stores have real files. Each run does the same task, a *life*: make a store; open, write, grow and close one; compact one; or back
//! one up. A failed call is reported as an error, never as a panic. After a failed sync a store takes no more writes. After a reopen
//! without failures, the store holds every acknowledged write. A refused write is present completely or not at all.
//!
//! `BRISTLECONE_ROUNDS` sets the number of sweeps of each life (default 1). `BRISTLECONE_SEED` changes the seeds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::common::{existing, number_from, pairs, scratch};
use bristlecone::store_dir::FILE_NAME;
use bristlecone::{Durability, Error, Options, Store, backup, compact};
use crash::by_tier;
use faults::{Failing, Plan, mix};
use tempfile::TempDir;

/// A value that a write may have left under a key.
type Value = Option<Vec<u8>>;

/// The possible contents of a store: the values that each key may have.
#[derive(Clone, Debug, Default)]
struct Known(BTreeMap<Vec<u8>, BTreeSet<Value>>);

impl Known {
    /// Records the result of a write to these keys.
    fn note<T>(&mut self, writes: &[(Vec<u8>, Value)], outcome: &Result<T, Error>) {
        for (key, value) in writes {
            let values = self.0.entry(key.clone()).or_insert_with(|| BTreeSet::from([None]));
            if outcome.is_ok() {
                values.clear();
            }
            values.insert(value.clone());
        }
    }

    /// Compares with the contents of a store.
    fn judge(&self, store: &Store) -> Result<(), String> {
        let found: BTreeMap<_, _> = pairs(store).into_iter().collect();
        if let Some(key) = found.keys().find(|key| !self.0.contains_key(*key)) {
            return Err(format!("a key that nobody wrote: {:?}", String::from_utf8_lossy(key)));
        }
        for (key, values) in &self.0 {
            if !values.contains(&found.get(key).cloned()) {
                let length = found.get(key).map(Vec::len);
                return Err(format!("{:?} holds {length:?} bytes", String::from_utf8_lossy(key)));
            }
        }
        let problems = store.check().map_err(|error| error.to_string())?.problems;
        if problems.is_empty() { Ok(()) } else { Err(format!("{problems:?}")) }
    }
}

/// The medium below the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Under {
    Journal,
    /// Mapped, with flushes, and with syncs of the bytes that the file grows by.
    Mapped,
}

impl Under {
    fn existing(self) -> Options {
        self.options().create(false).journal_bytes(None)
    }

    fn options(self) -> Options {
        Options::default()
            .journal_bytes((self == Under::Journal).then_some(4 << 20))
            .durability((self == Under::Mapped).then_some(Durability::Power))
            .max_bytes(1 << 30)
    }
}

fn key(number: usize) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

fn value(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (number * 7 + i) as u8).collect()
}

/// A store at the beginning of a life, and its contents.
struct Before {
    dir: TempDir,
    known: Known,
}

fn before(under: Under) -> Before {
    let dir = scratch();
    let store = Store::open(dir.path(), under.options()).unwrap();
    let mut known = Known::default();
    for number in 0..60 {
        let pair = (key(number), Some(value(number, 40 + number * 20)));
        let put = store.put(&pair.0, pair.1.as_ref().unwrap());
        known.note(&[pair], &put);
        put.unwrap();
    }
    // The files as a crash leaves them, so that the open has to recover.
    store.commit().unwrap();
    let copy = scratch();
    copy_dir(dir.path(), copy.path());
    Before { dir: copy, known }
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// The resources of a life: directories, contents of the store, and failures.
struct Life<'a> {
    under: Under,
    store_dir: PathBuf,
    other_dir: PathBuf,
    known: Known,
    failing: &'a Failing,
}

impl Life<'_> {
    /// Writes a value. Returns an error if the store accepts it after a failed sync.
    fn put(&mut self, store: &Store, number: usize, bytes: usize) -> Result<(), String> {
        let failed_before = self.failing.syncs_failed() > 0;
        let pair = (key(number), Some(value(number, bytes)));
        let put = store.put(&pair.0, pair.1.as_ref().unwrap());
        self.known.note(&[pair], &put);
        match put {
            Ok(_) if failed_before && self.under == Under::Journal => {
                Err("a write was taken after a failed sync".into())
            }
            _ => Ok(()),
        }
    }

    fn batch(&mut self, store: &Store, numbers: std::ops::Range<usize>, bytes: usize) {
        let writes: Vec<_> = numbers.map(|number| (key(number), Some(value(number, bytes)))).collect();
        let mut batch = store.batch();
        for (key, value) in &writes {
            batch.put(key, value.as_ref().unwrap());
        }
        let outcome = batch.commit();
        self.known.note(&writes, &outcome);
    }

    /// Makes a store and closes it.
    fn make(&mut self) -> Result<(), String> {
        let Ok(store) = Store::open(&self.store_dir, self.under.options()) else { return Ok(()) };
        self.put(&store, 1, 10)?;
        let _ = store.close();
        Ok(())
    }

    /// Opens the store, writes until the file grows and a half of the journal is full, and closes it.
    fn write(&mut self) -> Result<(), String> {
        let Ok(store) = Store::open(&self.store_dir, self.under.existing()) else { return Ok(()) };
        for number in 0..6 {
            self.put(&store, number, 30 + number)?;
        }
        self.batch(&store, 100..110, 50);
        // Together more than a half of the journal holds, which is two megabytes.
        for number in 200..223 {
            self.put(&store, number, 100_000)?;
        }
        // The same in one batch.
        self.batch(&store, 300..306, 400_000);
        // The open store still shows acknowledged writes, whichever call failed.
        if let Ok(Some(found)) = store.get(&key(3)) {
            let values = &self.known.0[&key(3)];
            if !values.contains(&Some(found)) {
                return Err("an open store shows a value that nobody wrote".into());
            }
        }
        let _ = store.close();
        Ok(())
    }

    fn compact(&mut self) -> Result<(), String> {
        let _ = compact(&self.store_dir, &|_, _| {});
        Ok(())
    }

    /// Backs the store up. An acknowledged backup is complete.
    fn back_up(&mut self) -> Result<(), String> {
        let made = backup(&self.store_dir, &self.other_dir, &|_, _| {});
        match made {
            Ok(made) if made.keys != self.known.0.len() as u64 => Err(format!("{made:?}")),
            _ => Ok(()),
        }
    }
}

/// Sweeps over a life. Returns the number of runs with a failure.
fn sweep(
    under: Under,
    seed: u64,
    begins_with_store: bool,
    live: fn(&mut Life<'_>) -> Result<(), String>,
    failed: &mut BTreeMap<&'static str, u64>,
) -> u64 {
    let before = before(under);
    let mut runs = 0;
    // Failures from call N on differ little from failures from call N + 1 on, so a few of them suffice. Among the calls that fail once, one
    // run tries every second call, and the next run tries the others.
    let first = by_tier(1 + crash::turn() % 2, 1);
    for (plan, first, stride) in
        [(Plan::Once as fn(u64) -> Plan, first, by_tier(2, 1)), (Plan::From, 1, by_tier(8, 4))]
    {
        for call in (first..).step_by(stride) {
            let scratch = scratch();
            let store_dir = scratch.path().join("store");
            if begins_with_store {
                copy_dir(before.dir.path(), &store_dir);
            }
            let (failing, watching) = Failing::below(scratch.path(), plan(call), mix(seed, call));
            let known = if begins_with_store { before.known.clone() } else { Known::default() };
            let other_dir = scratch.path().join("other");
            let mut life = Life { under, store_dir, other_dir, known, failing: &failing };
            let lived = live(&mut life);
            drop(watching);
            let name = || format!("{under:?}, seed {seed}, {:?}, {:?}", plan(call), failing.last());
            lived.unwrap_or_else(|why| panic!("{}: {why}", name()));
            judge(&life, begins_with_store).unwrap_or_else(|why| panic!("{}: {why}", name()));
            if !failing.was_met() {
                break;
            }
            runs += 1;
            failing.failed().into_iter().for_each(|(call, count)| *failed.entry(call).or_default() += count);
        }
    }
    runs
}

/// Opens the files of a life without failures, and judges them.
fn judge(life: &Life<'_>, must_exist: bool) -> Result<(), String> {
    let acknowledged = life.known.0.values().any(|values| !values.contains(&None));
    match Store::open(&life.store_dir, existing()) {
        Err(Error::Missing { .. }) if !must_exist && !acknowledged => {
            // A failed creation does not prevent another one.
            let store =
                Store::open(&life.store_dir, life.under.options()).map_err(|error| error.to_string())?;
            store.close().map_err(|error| error.to_string())?;
        }
        opened => {
            let store = opened.map_err(|error| format!("it does not open: {error}"))?;
            life.known.judge(&store)?;
            store.put(&key(900), &value(900, 10)).map_err(|error| format!("it does not go on: {error}"))?;
            store.close().map_err(|error| error.to_string())?;
        }
    }
    if life.other_dir.join(FILE_NAME).exists() {
        let copy =
            Store::open(&life.other_dir, existing()).map_err(|error| format!("the backup: {error}"))?;
        life.known.judge(&copy).map_err(|why| format!("the backup: {why}"))?;
    }
    Ok(())
}

fn sweeps(name: &str, begins_with_store: bool, least: u64, live: fn(&mut Life<'_>) -> Result<(), String>) {
    let (rounds, seed) = (number_from("BRISTLECONE_ROUNDS", 1), number_from("BRISTLECONE_SEED", 0));
    for round in 0..rounds {
        for under in [Under::Journal, Under::Mapped] {
            let mut failed = BTreeMap::new();
            let runs = sweep(under, mix(seed, round), begins_with_store, live, &mut failed);
            println!("{name}, {under:?}: {runs} runs with a failure: {failed:?}");
            assert!(runs >= least, "{runs} runs of at least {least}");
        }
    }
}

#[test]
fn a_store_that_is_made_while_a_call_fails_is_there_whole_or_not_at_all() {
    sweeps("make", false, by_tier(17, 35), |life| life.make());
}

#[test]
fn nothing_acknowledged_is_lost_by_a_call_that_fails_while_a_store_is_written() {
    sweeps("write", true, by_tier(30, 60), |life| life.write());
}

#[test]
fn a_compaction_in_which_a_call_fails_leaves_the_store_or_the_compacted_one() {
    sweeps("compact", true, by_tier(30, 60), |life| life.compact());
}

#[test]
fn a_backup_in_which_a_call_fails_leaves_the_store_and_a_whole_backup_or_none() {
    sweeps("backup", true, by_tier(17, 35), |life| life.back_up());
}
