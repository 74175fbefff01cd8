//! The N-th call on the files of a store fails, once or from then on, for every N. An acknowledged update is never lost. An update that
//! returned an error is there or absent. Only a failed sync, or a failed write of the log, ends the work of a store.
//!
//! `BRISTLECONE_ROUNDS` sets the number of rounds (default 1). `BRISTLECONE_SEED` changes the seeds.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bwtree::Bytes;
use faults::{Failing, Plan, mix};
use logstore::Store;
use pmem::system::{Kind, Verdict, Watch, watch};

use crate::common::life::{number_from, settings};
use crate::common::{Dir, ID, Model, STEM, compare, contents, get, open, put};

const ENOSPC: i32 = 28;

/// Notes the calls that fail.
struct Noting {
    failing: Arc<Failing>,
    failed: Mutex<Vec<(Kind, PathBuf, Verdict)>>,
}

impl Watch for Noting {
    fn before(&self, kind: Kind, path: &Path, file: Option<&File>) -> Verdict {
        let verdict = self.failing.before(kind, path, file);
        if verdict != Verdict::Go {
            self.failed.lock().unwrap().push((kind, path.to_owned(), verdict));
        }
        verdict
    }
}

/// The values that each key may have. The first one is durable if it is the only one.
#[derive(Clone, Default)]
struct Known(BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>);

impl Known {
    fn note(&mut self, key: &[u8], value: Option<Vec<u8>>, is_done: bool) {
        let values = self.0.entry(key.to_vec()).or_insert_with(|| vec![None]);
        if is_done {
            values.clear();
        }
        values.push(value);
    }

    fn explains(&self, found: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(), String> {
        for (key, values) in &self.0 {
            if !values.contains(&found.get(key).cloned()) {
                return Err(format!("key {key:?}: {:?}, but {values:?} were written", found.get(key)));
            }
        }
        match found.keys().find(|key| !self.0.contains_key(*key)) {
            Some(key) => Err(format!("key {key:?} was never written")),
            None => Ok(()),
        }
    }
}

/// A run of the program whose calls fail.
struct Run {
    dir: PathBuf,
    seed: u64,
    known: Known,
    is_made: bool,
    noting: Arc<Noting>,
    is_once: bool,
}

/// Updates of a run between two opens.
const UPDATES: usize = 70;

impl Run {
    fn has_failed(&self) -> bool {
        !self.noting.failed.lock().unwrap().is_empty()
    }

    /// Random updates, checkpoints and steps of the upkeep. Errors are noted.
    fn write(&mut self, store: &Store<Bytes>, random: &mut fastrand::Rng) -> Result<(), String> {
        let key = |random: &mut fastrand::Rng| format!("key {:03}", random.u32(..60)).into_bytes();
        let value = |random: &mut fastrand::Rng| {
            let length = if random.u32(..30) == 0 { 2500 } else { random.usize(..70) };
            vec![random.u8(..); length]
        };
        for _ in 0..UPDATES {
            match random.u32(..20) {
                0 => _ = store.checkpoint(),
                1..4 => _ = store.upkeep(),
                4..6 => {
                    let writes: BTreeMap<_, _> =
                        (0..4).map(|_| (key(random), random.bool().then(|| value(random)))).collect();
                    let batch = writes.iter().map(|(key, value)| (key.clone().into(), value.clone()));
                    let done = store.batch(batch.collect(), &[], true);
                    writes.into_iter().for_each(|(key, value)| self.known.note(&key, value, done.is_ok()));
                }
                6 => {
                    // A1: a value that was read stays.
                    let key = key(random);
                    let values = self.known.0.entry(key.clone()).or_insert_with(|| vec![None]);
                    match get(store, &key) {
                        Ok(found) if values.contains(&found) => *values = vec![found],
                        Ok(found) => return Err(format!("a read of {key:?}: {found:?} of {values:?}")),
                        Err(_) => {}
                    }
                }
                7..9 => {
                    let key = key(random);
                    let done = crate::common::delete(store, &key);
                    self.known.note(&key, None, done.is_ok());
                }
                _ => {
                    let (key, value) = (key(random), value(random));
                    let done = put(store, &key, &value);
                    self.known.note(&key, Some(value), done.is_ok());
                }
            }
        }
        if self.is_once { self.is_at_work(store) } else { Ok(()) }
    }

    /// One call has failed, or none. Durable values are readable. Later updates succeed, unless the failed call made that impossible.
    fn is_at_work(&mut self, store: &Store<Bytes>) -> Result<(), String> {
        for (key, values) in &mut self.known.0 {
            let mut found = get(store, key);
            if found.is_err() {
                // The read itself may have been the failed call.
                found = get(store, key);
            }
            match (found, &values[..]) {
                // A1: a value that was read stays.
                (Ok(found), _) if values.contains(&found) => *values = vec![found],
                (Err(_), [_, _, ..]) => {}
                (found, values) => return Err(format!("a read of {key:?}: {found:?} of {values:?}")),
            }
        }
        let is_log = |path: &Path| path.to_string_lossy().contains(".log-");
        let (key, value) = (b"work".to_vec(), vec![1; 20]);
        // The failed call may be one of these.
        let done = (0..2).map(|_| put(store, &key, &value)).find_map(Result::ok);
        self.known.note(&key, Some(value), done.is_some());
        let failed = self.noting.failed.lock().unwrap().clone();
        let may_end = failed.iter().any(|(kind, path, verdict)| match kind {
            Kind::Sync | Kind::SyncDirectory => true,
            Kind::Write => is_log(path) && *verdict != Verdict::Part,
            _ => false,
        });
        match done.is_some() || may_end {
            true => Ok(()),
            false => Err(format!("the work does not resume after {failed:?}")),
        }
    }

    fn create_and_write(&mut self) -> Result<(), String> {
        let Ok(store) = Store::<Bytes>::create(&self.dir, STEM, ID, settings(self.seed)) else {
            return Ok(());
        };
        self.is_made = true;
        let mut random = fastrand::Rng::with_seed(self.seed);
        self.write(&store, &mut random)?;
        let _ = store.close();
        Ok(())
    }

    /// Opens a store that was not closed, writes, closes it, and does so again.
    fn open_and_write(&mut self) -> Result<(), String> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        for closes in [true, false] {
            let store = match open(&self.dir, settings(self.seed)) {
                Ok(store) => store,
                Err(_) if self.has_failed() => continue,
                Err(error) => return Err(format!("it does not open: {error}")),
            };
            self.write(&store, &mut random)?;
            if closes && store.close().is_err() && !self.has_failed() {
                return Err("the close failed".to_owned());
            }
        }
        Ok(())
    }

    /// Opens the store without failures.
    fn judge(&mut self) -> Result<(), String> {
        let settings = || settings(self.seed);
        let store = match open(&self.dir, settings()) {
            Err(pmem::Error::Foreign { .. }) if !self.is_made => {
                Store::create(&self.dir, STEM, ID, settings())
                    .map_err(|error| format!("made again: {error}"))?
            }
            opened => opened.map_err(|error| format!("it does not open: {error}"))?,
        };
        let mut model = contents(&store).map_err(|error| error.to_string())?;
        self.known.explains(&model)?;
        compare(&store, &model);
        put(&store, b"later", b"value").map_err(|error| format!("it does not go on: {error}"))?;
        model.insert(b"later".to_vec(), b"value".to_vec());
        store.close().map_err(|error| format!("it does not close: {error}"))?;
        drop(store);
        compare(&open(&self.dir, settings()).map_err(|error| format!("opened again: {error}"))?, &model);
        Ok(())
    }
}

/// A store that was not closed, and its contents.
fn before(seed: u64) -> (Dir, Known) {
    let dir = Dir::new("before");
    let (noting, _watching) = noting(&dir.0, Plan::Never, seed);
    let mut run =
        Run { dir: dir.0.clone(), seed, known: Known::default(), is_made: false, noting, is_once: true };
    let store = Store::<Bytes>::create(&dir.0, STEM, ID, settings(seed)).unwrap();
    for _ in 0..3 {
        run.write(&store, &mut fastrand::Rng::with_seed(seed ^ 9)).unwrap();
    }
    (dir, run.known)
}

fn noting(dir: &Path, plan: Plan, seed: u64) -> (Arc<Noting>, pmem::system::Watching) {
    let (failing, watching) = Failing::below(dir, plan, seed);
    drop(watching);
    let noting = Arc::new(Noting { failing, failed: Mutex::default() });
    let watching = watch(dir, Arc::clone(&noting) as Arc<dyn Watch>);
    (noting, watching)
}

#[derive(Debug, Default)]
struct Swept {
    runs: u64,
    spaceless: u64,
    failed: BTreeMap<&'static str, u64>,
}

fn sweep(seed: u64, is_made: bool, live: fn(&mut Run) -> Result<(), String>, swept: &mut Swept) {
    let before = is_made.then(|| before(seed));
    for (plan, stride) in [(Plan::Once as fn(u64) -> Plan, 1), (Plan::From, 5)] {
        for call in (1..).step_by(stride) {
            let dir = Dir::new("failing");
            let mut known = Known::default();
            if let Some((made, old)) = &before {
                for entry in std::fs::read_dir(&made.0).unwrap() {
                    let entry = entry.unwrap();
                    std::fs::copy(entry.path(), dir.0.join(entry.file_name())).unwrap();
                }
                known = old.clone();
            }
            let (noting, watching) = noting(&dir.0, plan(call), mix(seed, call));
            let is_once = matches!(plan(call), Plan::Once(_));
            let noted = Arc::clone(&noting);
            let mut run = Run { dir: dir.0.clone(), seed, known, is_made, noting, is_once };
            let judge = || {
                live(&mut run)?;
                drop(watching);
                run.judge()
            };
            let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(judge));
            let failed = noted.failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let judged = judged.unwrap_or_else(|_| Err("panic".to_owned()));
            judged.unwrap_or_else(|why| panic!("seed {seed}, {:?}, {:?}: {why}", plan(call), failed.first()));
            let Some((_, _, first)) = failed.first() else { break };
            swept.runs += 1;
            swept.spaceless +=
                u64::from(matches!(first, Verdict::Fail(ENOSPC) | Verdict::PartThenFail(ENOSPC)));
            for (name, count) in noted.failing.failed() {
                *swept.failed.entry(name).or_default() += count;
            }
        }
    }
}

fn sweeps(name: &str, is_made: bool, runs_min: u64, live: fn(&mut Run) -> Result<(), String>) {
    let (rounds, seed) = (number_from("BRISTLECONE_ROUNDS", 1), number_from("BRISTLECONE_SEED", 0));
    let mut swept = Swept::default();
    for round in 0..rounds {
        sweep(mix(seed, round), is_made, live, &mut swept);
    }
    println!("{name}: {swept:?}");
    assert!(swept.runs >= runs_min * rounds && swept.spaceless > 0, "{swept:?}");
}

#[test]
fn a_store_that_is_made_while_a_call_fails_is_whole_or_can_be_made_again() {
    sweeps("make", false, 200, Run::create_and_write);
}

#[test]
fn nothing_acknowledged_is_lost_by_a_call_that_fails_and_work_resumes() {
    sweeps("write", true, 400, Run::open_and_write);
}

/// A disk without space for a while. Allocated space can be written.
#[derive(Default)]
struct Full(AtomicBool);

impl Watch for Full {
    fn before(&self, kind: Kind, path: &Path, _file: Option<&File>) -> Verdict {
        let needs_space = match kind {
            Kind::Allocate => true,
            Kind::Write => !path.to_string_lossy().contains(".log-"),
            _ => false,
        };
        match needs_space && self.0.load(Ordering::Relaxed) {
            true => Verdict::PartThenFail(ENOSPC),
            false => Verdict::Go,
        }
    }
}

/// A full disk refuses updates, and nothing of a refused update has happened. Reads go on. With space the work goes on.
#[test]
fn a_disk_that_is_full_for_a_while_loses_nothing_and_updates_are_refused_whole() {
    let (rounds, seed) = (number_from("BRISTLECONE_ROUNDS", 1), number_from("BRISTLECONE_SEED", 0));
    let (mut refused, mut done, mut opened) = (0u64, 0u64, 0u64);
    for number in 0..8 * rounds {
        let seed = mix(seed ^ 0xf011, number);
        let (dir, mut random, mut model) = (Dir::new("full"), fastrand::Rng::with_seed(seed), Model::new());
        let settings = settings(seed);
        let full = Arc::new(Full::default());
        let _watching = watch(&dir.0, Arc::clone(&full) as Arc<dyn Watch>);
        let mut store = Store::<Bytes>::create(&dir.0, STEM, ID, settings.clone()).unwrap();
        for turn in 0..600 {
            let is_full = turn % 150 >= 60 && turn % 150 < 140;
            full.0.store(is_full, Ordering::Relaxed);
            let key = format!("key {:03}", random.u32(..80)).into_bytes();
            let length = if random.u32(..20) == 0 { 3000 } else { random.usize(..60) };
            let value = vec![random.u8(..); length];
            let put = match random.bool() {
                true => put(&store, &key, &value).map(drop),
                false => {
                    let other = [value[..length.min(9)].to_vec(), vec![1]];
                    let write = |value: &Vec<u8>| (key.clone().into(), Some(value.clone()));
                    let writes = other.iter().chain([&value]).map(write).collect();
                    store.batch(writes, &[], true).map(drop)
                }
            };
            match put {
                Ok(()) => {
                    model.insert(key.clone(), value);
                    done += 1;
                }
                Err(pmem::Error::NoSpace { .. }) if is_full => refused += 1,
                Err(error) => panic!("seed {seed}, turn {turn}: {error}"),
            }
            assert_eq!(get(&store, &key).unwrap().as_ref(), model.get(&key), "seed {seed}, turn {turn}");
            match random.u32(..20) {
                0 => assert!(store.checkpoint().is_ok() || is_full, "seed {seed}, turn {turn}"),
                1..4 => _ = store.upkeep(),
                // An open needs no space.
                4 => {
                    opened += u64::from(is_full);
                    drop(store);
                    store = open(&dir.0, settings.clone()).unwrap();
                }
                _ => {}
            }
            if turn % 50 == 49 {
                compare(&store, &model);
            }
        }
        store.close().unwrap();
        drop(store);
        compare(&open(&dir.0, settings).unwrap(), &model);
    }
    println!("full disk: {refused} updates refused, {done} done, {opened} opens");
    assert!(
        refused > 100 * rounds && done > 1000 * rounds && opened > 30 * rounds,
        "{refused}, {done}, {opened}"
    );
}
