//! A life of a store on an observed directory, and the judgement of what a power cut leaves of it.
//!
//! A life notes the contents after each operation before the operation starts. One thread runs the operations, so the order of the log is
//! the order of the operations. Hence after a cut the contents must be those after some operation between the last acknowledged one and the
//! last one that started. A life also *kills* its store: all calls fail from some call on, and the store is opened again.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bwtree::{Bytes, Change};
use faults::{Cut, Disk, DiskImages, Lie, mix};
use logstore::{BatchWrite, Settings, Store, StoreStats};
use pmem::system::{Kind, Verdict, Watch, Watching, watch};

use super::{Dir, ID, Model, STEM, compare, contents, open, small};

const EIO: i32 = 5;

/// Passes calls to a [`Disk`] until the process is killed.
pub struct Mortal {
    disk: Arc<Disk>,
    /// Number of changing calls until the end.
    left: AtomicU64,
    /// Number of changing calls.
    calls: AtomicU64,
    /// Runs before the next call of this kind on a path with this text.
    hook: Mutex<Option<Hook>>,
}

type Hook = (Kind, &'static str, Box<dyn FnOnce() + Send>);

impl Mortal {
    pub fn hook(&self, kind: Kind, name: &'static str, run: impl FnOnce() + Send + 'static) {
        *self.hook.lock().unwrap() = Some((kind, name, Box::new(run)));
    }
}

impl Watch for Mortal {
    fn before(&self, kind: Kind, path: &Path, file: Option<&File>) -> Verdict {
        let hook = self
            .hook
            .lock()
            .unwrap()
            .take_if(|(of, name, _)| *of == kind && path.to_string_lossy().contains(*name));
        if let Some((_, _, run)) = hook {
            run();
        }
        if !matches!(kind, Kind::Read | Kind::Inspect) {
            self.calls.fetch_add(1, Ordering::Relaxed);
            let left = self.left.load(Ordering::Relaxed);
            self.left.store(left.saturating_sub(1), Ordering::Relaxed);
            if left == 1 && kind == Kind::Write {
                self.disk.before(kind, path, file);
                return Verdict::PartThenFail(EIO);
            }
        }
        if self.left.load(Ordering::Relaxed) == 0 {
            return Verdict::Fail(EIO);
        }
        self.disk.before(kind, path, file)
    }
}

/// A life of a store.
pub struct Life {
    pub dir: std::path::PathBuf,
    pub settings: Settings,
    pub keys: u32,
    /// Contents after each operation that started.
    pub states: Vec<Model>,
    /// The last operation that is durable.
    acknowledged: usize,
    random: fastrand::Rng,
    pub mortal: Arc<Mortal>,
    watching: Option<Watching>,
    pub tally: Tally,
    /// Cuts before this call are not judged.
    judged_from: u64,
    /// The operations, each with its number of changing calls and the newest state.
    notes: Vec<String>,
}

/// Counts of a campaign.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub images: DiskImages,
    /// Images that were judged.
    pub judged: u64,
    /// Images with more than the acknowledged operations.
    pub newer: u64,
    /// Images without a store.
    pub not_made: u64,
    /// Images of cuts during the recovery of an image, and behind it.
    pub second: u64,
    pub kills: u64,
    pub closes: u64,
    pub checkpoints: u64,
    pub evictions: u64,
    pub moved_images: u64,
    pub saved_bytes: u64,
    pub compactions: u64,
    /// Backups, each opened and compared.
    pub copies: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.images.add(&other.images);
        self.judged += other.judged;
        self.newer += other.newer;
        self.not_made += other.not_made;
        self.second += other.second;
        self.kills += other.kills;
        self.closes += other.closes;
        self.checkpoints += other.checkpoints;
        self.evictions += other.evictions;
        self.moved_images += other.moved_images;
        self.saved_bytes += other.saved_bytes;
        self.compactions += other.compactions;
        self.copies += other.copies;
    }

    fn count(&mut self, stats: &StoreStats) {
        self.checkpoints += stats.checkpoints;
        self.evictions += stats.evictions;
        self.moved_images += stats.moved_images;
        self.saved_bytes += stats.saved_bytes;
    }
}

/// True if the directories of these tests have direct I/O.
fn has_direct_io() -> bool {
    static HAS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *HAS.get_or_init(|| {
        let has = Dir::new("has").has_direct_io();
        if !has {
            println!("no life has direct I/O: this system's memory file system has none");
        }
        has
    })
}

/// Settings by a seed: a budget of memory of some leaves, and a short log.
pub fn settings(seed: u64) -> Settings {
    let mut random = fastrand::Rng::with_seed(seed);
    let (memory_bytes, log_bytes) = (random.u64(4..16) << 10, random.u64(1..4) << 10);
    let (compresses, direct_io) = (Some(random.bool()), random.bool() && has_direct_io());
    Settings { memory_bytes, log_bytes, compresses, direct_io, ..small(true) }
}

impl Life {
    /// A life in a directory, which has a store with one of the contents `states`, or with no such contents no store.
    pub fn new(dir: &Path, seed: u64, lie: Lie, states: Vec<Model>) -> Self {
        let (disk, watching) = Disk::below(dir, 1, lie);
        drop(watching);
        let mortal =
            Arc::new(Mortal { disk, left: u64::MAX.into(), calls: 0.into(), hook: Mutex::default() });
        let watching = watch(dir, Arc::clone(&mortal) as Arc<dyn Watch>);
        let life = Self {
            dir: dir.to_owned(),
            settings: settings(seed),
            keys: fastrand::Rng::with_seed(seed ^ 1).u32(20..200),
            states,
            acknowledged: 0,
            random: fastrand::Rng::with_seed(seed ^ 2),
            mortal,
            watching: Some(watching),
            tally: Tally::default(),
            judged_from: 0,
            notes: Vec::new(),
        };
        if !life.states.is_empty() {
            life.mark();
        }
        life
    }

    pub fn create(&mut self) -> Store<Bytes> {
        let store = Store::create(&self.dir, STEM, ID, self.settings.clone()).unwrap();
        self.states.push(Model::new());
        self.mark();
        store
    }

    fn mark(&self) {
        let started = self.states.len() as u64 - 1;
        self.mortal.disk.mark(1 + (started << 32 | self.acknowledged as u64));
    }

    /// The process is killed directly after the next call of this kind on a path with this text.
    pub fn dies_after(&self, kind: Kind, name: &'static str) {
        let mortal = Arc::clone(&self.mortal);
        self.mortal.hook(kind, name, move || mortal.left.store(2, Ordering::Relaxed));
    }

    /// Earlier cuts are not judged.
    pub fn is_judged_from_here(&mut self) {
        self.judged_from = self.mortal.disk.cuts().last().map_or(0, |cut| cut.number);
    }

    /// Another process may open the store.
    pub fn revive(&self) {
        self.mortal.left.store(u64::MAX, Ordering::Relaxed);
    }

    fn note(&mut self, what: String) {
        let calls = self.mortal.calls.load(Ordering::Relaxed);
        self.notes.push(format!("{what}: call {calls}, state {}", self.states.len()));
    }

    pub fn newest(&self) -> &Model {
        self.states.last().unwrap()
    }

    /// An operation with these contents starts.
    pub fn starts(&mut self, next: Model) {
        self.states.push(next);
        self.mark();
    }

    /// All operations that started are durable.
    pub fn is_durable(&mut self) {
        self.acknowledged = self.states.len() - 1;
        self.mark();
    }

    pub fn put(&mut self, store: &Store<Bytes>, key: &[u8], value: &[u8], sync: bool) -> pmem::Result<()> {
        let mut next = self.newest().clone();
        next.insert(key.to_vec(), value.to_vec());
        self.starts(next);
        if self.random.bool() {
            store.set(key, Some(value), sync)?;
        } else {
            store.update(key, |_| Change::Put(value), sync)?;
        }
        if sync {
            self.is_durable();
        }
        Ok(())
    }

    /// Runs a random operation.
    pub fn act(&mut self, store: &Store<Bytes>) -> pmem::Result<()> {
        let keys = self.keys;
        let key = |random: &mut fastrand::Rng| format!("key {:05}", random.u32(..keys)).into_bytes();
        let value = |random: &mut fastrand::Rng| {
            let length = if random.u32(..40) == 0 { random.usize(..3000) } else { random.usize(..60) };
            vec![random.u8(..); length]
        };
        let sync = self.random.u32(..3) > 0;
        let kind = self.random.u32(..100);
        self.note(format!("{kind} sync {sync}"));
        match kind {
            0..50 => {
                let (key, value) = (key(&mut self.random), value(&mut self.random));
                self.put(store, &key, &value, sync)?;
            }
            50..65 => {
                let (key, mut next) = (key(&mut self.random), self.newest().clone());
                next.remove(&key);
                self.starts(next);
                // The removal of an absent key has no record, and makes no other record durable.
                let has_record = match self.random.bool() {
                    true => store.set(&key[..], None, sync)? != Some(false),
                    false => store.update(&key[..], |_| Change::<&[u8]>::Delete, sync)?,
                };
                if has_record && sync {
                    self.is_durable();
                }
            }
            65..85 => {
                let mut next = self.newest().clone();
                let mut writes: Vec<BatchWrite<Bytes>> = Vec::new();
                for _ in 0..self.random.usize(1..7) {
                    let key = key(&mut self.random);
                    let value = self.random.bool().then(|| value(&mut self.random));
                    match &value {
                        Some(value) => _ = next.insert(key.clone(), value.clone()),
                        None => _ = next.remove(&key),
                    }
                    writes.push((key.into(), value));
                }
                self.starts(next);
                if self.random.bool() {
                    store.set_batch(writes, sync)?;
                } else {
                    assert!(store.batch(writes, &[], sync)?.is_done);
                }
                if sync {
                    self.is_durable();
                }
            }
            85 => {
                self.starts(Model::new());
                store.clear()?;
                self.is_durable();
            }
            86..88 => {
                store.commit()?;
                self.is_durable();
            }
            88..92 => {
                store.checkpoint()?;
                self.is_durable();
            }
            92..95 => _ = store.upkeep(),
            95..97 => {
                store.compact(&|_, _| ())?;
                self.tally.compactions += 1;
                self.is_durable();
            }
            97 => {
                let copy = Dir::new("copy");
                store.copy_to(&copy.0, &|_, _| ())?;
                self.is_durable();
                compare(&open(&copy.0, self.settings.clone())?, self.newest());
                self.tally.copies += 1;
            }
            _ => {
                let key = key(&mut self.random);
                let mut found = None;
                store.get(&key[..], |value| found = Some(value.to_vec()))?;
                assert_eq!(found.as_ref(), self.newest().get(&key));
            }
        }
        Ok(())
    }

    /// Opens the store. Its contents are those after some operation that started, and from then on they are durable.
    pub fn reopen(&mut self) -> Result<Store<Bytes>, String> {
        self.note("reopen".to_owned());
        let store = open(&self.dir, self.settings.clone()).map_err(|error| format!("reopen: {error}"))?;
        let found = contents(&store).map_err(|error| error.to_string())?;
        if !self.states[self.acknowledged..].contains(&found) {
            return Err("the contents after a reopen are not those of an operation".into());
        }
        self.starts(found);
        self.is_durable();
        Ok(store)
    }

    /// Runs random operations, with clean and unclean restarts.
    pub fn live(&mut self, mut store: Store<Bytes>, turns: usize) -> Result<(), String> {
        for _ in 0..turns {
            match self.random.u32(..80) {
                0 => {
                    store.close().map_err(|error| error.to_string())?;
                    self.is_durable();
                    self.tally.closes += 1;
                }
                1..3 => {
                    self.tally.kills += 1;
                    self.mortal.left.store(self.random.u64(1..25), Ordering::Relaxed);
                    for _ in 0..60 {
                        if self.act(&store).is_err() {
                            break;
                        }
                    }
                }
                _ => {
                    self.act(&store).map_err(|error| format!("an operation failed: {error}"))?;
                    continue;
                }
            }
            self.tally.count(&store.stats());
            drop(store);
            self.revive();
            store = self.reopen()?;
        }
        compare(&store, self.newest());
        self.tally.count(&store.stats());
        Ok(())
    }

    /// Judges images of one in `stride` cuts.
    ///
    /// # Errors
    /// The first image that the life does not explain.
    pub fn judge(&mut self, seed: u64, stride: u64, second: u64) -> Result<Tally, String> {
        let cuts = self.mortal.disk.cuts();
        self.watching = None;
        let last = cuts.len() as u64 - 1;
        let (scratch, mut tally) = (Dir::new("image"), self.tally);
        for (at, cut) in (0..).zip(&cuts) {
            let chosen = mix(seed, cut.number);
            if (!chosen.is_multiple_of(stride) && at != last) || cut.number < self.judged_from {
                continue;
            }
            let (mut images, mut number) = (tally.images, 0);
            let judged = images.each(cut, chosen, &scratch.0, |image| {
                number += 1;
                // Many changes of names have many subsets.
                if number > 16 && !mix(chosen, number).is_multiple_of(16) {
                    return Ok(());
                }
                let with_second = second > 0 && mix(chosen, number ^ 7).is_multiple_of(second);
                let judge = || self.judge_image(image, cut, mix(chosen, number), with_second, &mut tally);
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(judge))
                    .unwrap_or_else(|panic| Err(format!("panic: {:?}", panic.downcast_ref::<String>())))
            });
            tally.images = images;
            judged.map_err(|why| format!("seed {seed}, cut {at} of {last}: {why}"))?;
        }
        Ok(tally)
    }

    fn judge_image(
        &self,
        image: &Path,
        cut: &Cut,
        seed: u64,
        with_second: bool,
        tally: &mut Tally,
    ) -> Result<(), String> {
        tally.judged += 1;
        let Some(mark) = cut.mark().checked_sub(1) else { return self.judge_unmade(image, tally) };
        let (started, acknowledged) = ((mark >> 32) as usize, (mark & 0xffff_ffff) as usize);
        let allowed = &self.states[acknowledged..=started];
        if with_second {
            let mut next = Life::new(image, seed, Lie::None, allowed.to_vec());
            // Any of the states may be the contents.
            next.settings = self.settings.clone();
            let store = next.reopen()?;
            next.live(store, 12)?;
            let judged = next.judge(seed, 7, 0).map_err(|why| format!("behind the recovery: {why}"))?;
            tally.second += judged.judged;
            return Ok(());
        }
        let store =
            open(image, self.settings.clone()).map_err(|error| format!("it does not open: {error}"))?;
        let found = contents(&store).map_err(|error| format!("its contents: {error}"))?;
        let Some(state) = allowed.iter().position(|state| *state == found) else {
            let is_old = self.states.iter().rposition(|state| *state == found);
            return Err(format!(
                "{} keys of operation {is_old:?}; {acknowledged} to {started} were expected; {:#?}",
                found.len(),
                &self.notes[self.notes.len().saturating_sub(60)..]
            ));
        };
        tally.newer += u64::from(state > 0);
        let mut model = found;
        compare(&store, &model);
        let mut random = fastrand::Rng::with_seed(seed);
        for turn in 0..8 {
            super::step(&store, &mut model, self.keys, &mut random);
            if turn == 3 && random.bool() {
                store.checkpoint().map_err(|error| format!("its checkpoint: {error}"))?;
            }
            if turn == 5 && random.bool() {
                store.compact(&|_, _| ()).map_err(|error| format!("its compaction: {error}"))?;
            }
        }
        if random.bool() {
            store.close().map_err(|error| format!("its close: {error}"))?;
        }
        drop(store);
        let again = open(image, self.settings.clone()).map_err(|error| format!("opened again: {error}"))?;
        compare(&again, &model);
        Ok(())
    }

    /// Before the end of the creation there may be no store. Then another one can be made.
    fn judge_unmade(&self, image: &Path, tally: &mut Tally) -> Result<(), String> {
        match open(image, self.settings.clone()) {
            Ok(store) => compare(&store, &Model::new()),
            Err(pmem::Error::Foreign { .. }) => tally.not_made += 1,
            Err(error) => return Err(format!("before the end of the creation: {error}")),
        }
        let made = Store::<Bytes>::create(image, STEM, ID + 1, self.settings.clone());
        let store = made.map_err(|error| format!("made again: {error}"))?;
        super::put(&store, b"key", b"value").map_err(|error| error.to_string())?;
        drop(store);
        let (store, _) = Store::<Bytes>::open(image, STEM, ID + 1, self.settings.clone())
            .map_err(|error| format!("made again and opened: {error}"))?;
        compare(&store, &Model::from([(b"key".to_vec(), b"value".to_vec())]));
        Ok(())
    }
}

/// A number from an environment variable.
pub fn number_from(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text}")),
        Err(_) => default,
    }
}
