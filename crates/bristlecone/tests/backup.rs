//! Backups beside writers: their contents, their state when opened, and what a failed or interrupted backup leaves.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{existing, pairs};
use bristlecone::registry::{self, Open};
use bristlecone::store_dir::{FILE_NAME, JOURNAL_NAME};
use bristlecone::{
    Durability, Error, Fixed, Options, Store, StoreFixed, StoreOf, StoreU64, WriteOptions, backup,
};
use tempfile::TempDir;

/// A directory on a disk, or with `memory` in a memory file system if there is one.
fn scratch(memory: bool) -> TempDir {
    if memory { crate::common::scratch() } else { tempfile::tempdir().unwrap() }
}

/// The medium below an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Under {
    Mapped,
    Journal,
}

fn options(engine: &str, under: Under) -> Options {
    crate::common::options(engine, under == Under::Journal)
}

/// Makes a store with some history, backs it up while it is open, and compares both.
fn back_up<K: Open>(options: Options, put: impl Fn(&StoreOf<K>, u64), delete: impl Fn(&StoreOf<K>, u64))
where
    K::ValueBuf: PartialEq,
{
    let (dir, target) = (scratch(true), scratch(true));
    let said = format!("{options:?}");
    let store = StoreOf::<K>::open(dir.path(), options).unwrap();
    (0..700).for_each(|n| put(&store, n));
    (0..700).step_by(3).for_each(|n| delete(&store, n));
    (100..200).for_each(|n| put(&store, n));
    let before = pairs(&store);
    let to = target.path().join("new").join("backup");
    let told = AtomicU64::new(0);
    let made = store
        .backup(&to, |done, total| {
            assert!(done <= total);
            told.store(done, Ordering::Relaxed);
        })
        .unwrap();
    assert_eq!(made.keys, before.len() as u64, "{said}");
    assert!(told.load(Ordering::Relaxed) > 0);
    // Both stores take further writes, independently of each other.
    put(&store, 10_000);
    let copy = StoreOf::<K>::open(&to, existing()).unwrap();
    let stats = copy.stats();
    assert_eq!(
        (stats.opened.as_str(), stats.keys, stats.keys_pending),
        ("clean", made.keys, false),
        "{said}"
    );
    assert_eq!((stats.engine, stats.kind), (store.stats().engine, store.stats().kind));
    assert_eq!(stats.journal.map(|j| j.bytes), store.stats().journal.map(|j| j.bytes), "{said}");
    assert!(pairs(&copy) == before, "{said}");
    assert_eq!(copy.check().unwrap().problems, Vec::<String>::new(), "{said}");
    put(&copy, 20_000);
    copy.close().unwrap();
    assert_eq!(pairs(&store).len(), before.len() + 1);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new(), "{said}");
}

#[test]
fn a_backup_of_every_engine_holds_what_the_store_holds_and_is_found_closed() {
    for engine in registry::names().filter(|name| registry::find(name).unwrap().about.durable) {
        for under in [Under::Mapped, Under::Journal] {
            let quick = WriteOptions { sync: false };
            back_up(
                options(engine, under),
                |store: &Store, n| {
                    let value = vec![n as u8; 5 + n as usize % 300];
                    store.with(quick).put(format!("key {n}").as_bytes(), &value).unwrap();
                },
                |store, n| _ = store.with(quick).delete(format!("key {n}").as_bytes()).unwrap(),
            );
            back_up(
                options(engine, under),
                |store: &StoreU64, n| _ = store.with(quick).put(&n, &(n * n)).unwrap(),
                |store, n| _ = store.with(quick).delete(&n).unwrap(),
            );
            if registry::find(engine).unwrap().capabilities.fixed_values {
                let options = options(engine, under).value_bytes(24);
                back_up::<Fixed>(
                    options,
                    |store: &StoreFixed, n| _ = store.with(quick).put(&n, &[n as u8; 24]).unwrap(),
                    |store, n| _ = store.with(quick).delete(&n).unwrap(),
                );
            }
        }
    }
}

/// Large values, which are stored in pieces.
#[test]
fn a_backup_has_values_of_any_length() {
    let (dir, target) = (scratch(true), scratch(true));
    let store = Store::open(dir.path(), options("wbtree", Under::Mapped)).unwrap();
    store.put(b"large", &vec![7; 3_000_000]).unwrap();
    store.put(b"empty", b"").unwrap();
    store.backup(target.path(), |_, _| {}).unwrap();
    let copy = Store::open(target.path(), existing()).unwrap();
    assert_eq!(copy.get(b"large").unwrap().unwrap(), vec![7; 3_000_000]);
    assert_eq!(copy.get(b"empty").unwrap().unwrap(), b"");
    assert!(copy.check().unwrap().problems.is_empty());
}

/// Number of writers. Write `n` of writer `w` has the key `w n`. Its value contains the number of writes of each writer that were
/// acknowledged when it began. Each writer also overwrites one key of its own, which must be of the same moment.
const WRITERS: usize = 3;

#[derive(Default)]
struct Writers {
    acknowledged: [AtomicU64; WRITERS],
    rests: AtomicBool,
    ends: AtomicBool,
}

impl Writers {
    fn write_until_the_end(&self, store: &Store, writer: usize) {
        let mut n = 0_u64;
        while !self.ends.load(Ordering::Relaxed) {
            if self.rests.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let seen: Vec<u8> = self
                .acknowledged
                .iter()
                .flat_map(|count| count.load(Ordering::SeqCst).to_le_bytes())
                .collect();
            store.put(&Self::key(writer, n), &seen).unwrap();
            store.put(format!("newest {writer}").as_bytes(), &n.to_le_bytes()).unwrap();
            n += 1;
            self.acknowledged[writer].store(n, Ordering::SeqCst);
            if n.is_multiple_of(32) {
                std::thread::sleep(Duration::from_micros(500)); // processor time for the copy
            }
        }
    }

    fn key(writer: usize, n: u64) -> Vec<u8> {
        format!("{writer} {n:09}").into_bytes()
    }

    fn counts(&self) -> Vec<u64> {
        self.acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).collect()
    }

    /// Checks the writes of each writer in a backup. They are a prefix of its writes, and contain all writes that were acknowledged before
    /// the backup began. With each write the backup has all writes that its value counts as acknowledged.
    fn judge(store: &Store, before: &[u64]) {
        let mut held = [0; WRITERS];
        let mut told: BTreeMap<(usize, u64), Vec<u64>> = BTreeMap::new();
        for (writer, held) in held.iter_mut().enumerate() {
            for pair in store.scan_prefix(format!("{writer} ").as_bytes()) {
                let (key, value) = pair.unwrap();
                assert_eq!(key, Self::key(writer, *held), "a gap");
                let words = value.as_chunks().0.iter().map(|bytes: &[u8; 8]| u64::from_le_bytes(*bytes));
                told.insert((writer, *held), words.collect());
                *held += 1;
            }
            let newest = store.get(format!("newest {writer}").as_bytes()).unwrap();
            let newest = newest.map_or(0, |n| u64::from_le_bytes(n.try_into().unwrap()) + 1);
            assert!(newest == *held || newest + 1 == *held, "{newest} beside {held}: of two moments");
            assert!(*held >= before[writer], "writer {writer}: {held} of {} acknowledged", before[writer]);
        }
        for ((writer, n), seen) in told {
            let missing = (0..WRITERS).find(|other| seen[*other] > held[*other]);
            assert_eq!(missing, None, "write {n} of {writer} without what was acknowledged before it");
        }
    }
}

fn beside_writers(memory: bool, under: Under, rounds: usize) {
    let (dir, target) = (scratch(memory), scratch(memory));
    let store = Store::open(dir.path(), options("wbtree", under)).unwrap();
    // Enough data for several steps of the copy.
    let quick = store.with(WriteOptions { sync: false });
    (0..200_u32).for_each(|n| _ = quick.put(format!("filler {n}").as_bytes(), &[n as u8; 60_000]).unwrap());
    store.commit().unwrap();
    let all_writers = Writers::default();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, all_writers) = (store.clone(), &all_writers);
            scope.spawn(move || all_writers.write_until_the_end(&store, writer));
        }
        let advanced = AtomicU64::new(0);
        for round in 0..rounds {
            all_writers.rests.store(false, Ordering::Relaxed);
            let before = all_writers.counts();
            let to = target.path().join(round.to_string());
            let made = store.backup(&to, |_, _| {
                // Reads continue, and over a journal writes do, too. A copy of the live file from before and after a write would be torn.
                assert!(store.get(b"filler 7").unwrap().is_some());
                let counts = all_writers.counts();
                for _ in 0..if under == Under::Journal { 50 } else { 0 } {
                    std::thread::sleep(Duration::from_millis(1));
                    if all_writers.counts() != counts {
                        advanced.fetch_add(1, Ordering::Relaxed);
                        break; // otherwise the journal is full
                    }
                }
            });
            let made = made.unwrap_or_else(|error| {
                all_writers.ends.store(true, Ordering::Relaxed);
                panic!("{error}");
            });
            // Writers pause while the backup is judged.
            all_writers.rests.store(true, Ordering::Relaxed);
            let copy = Store::open(&to, existing()).unwrap();
            assert_eq!((copy.stats().opened.as_str(), copy.stats().keys), ("clean", made.keys));
            Writers::judge(&copy, &before);
            assert!(copy.check().unwrap().problems.is_empty());
        }
        all_writers.ends.store(true, Ordering::Relaxed);
        assert!(under == Under::Mapped || advanced.load(Ordering::Relaxed) > 1, "writers go on");
    });
    Writers::judge(&store, &all_writers.counts());
}

#[test]
fn a_backup_beside_writers_is_of_one_moment_over_a_journal_in_memory() {
    beside_writers(true, Under::Journal, crash::by_tier(1, 3));
}

#[test]
fn a_backup_beside_writers_is_of_one_moment_over_a_journal_on_a_disk() {
    beside_writers(false, Under::Journal, 2);
}

#[test]
fn a_backup_beside_writers_is_of_one_moment_in_mapped_memory() {
    beside_writers(true, Under::Mapped, 4);
}

/// A former defect: writers waited until the copy was complete, in mapped memory always, over a journal once it was full.
#[test]
fn a_writer_writes_several_journals_while_one_backup_is_made() {
    const WRITES: u64 = 400;
    for (engine, under) in [
        ("wbtree", Under::Mapped),
        ("wbtree", Under::Journal),
        ("vlab", Under::Mapped),
        ("cdds", Under::Mapped),
    ] {
        let (dir, target) = (scratch(true), scratch(true));
        let store = Store::open(dir.path(), options(engine, under)).unwrap();
        store.put(b"before", b"1").unwrap();
        let (asked, written) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                while !asked.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                // Many times the journal's 4 MiB.
                for n in 0..WRITES {
                    store.put(format!("while {n}").as_bytes(), &[n as u8; 60_000]).unwrap();
                    written.fetch_add(1, Ordering::SeqCst);
                }
            });
            let made = store.backup(target.path().join("b"), |_, _| {
                asked.store(true, Ordering::SeqCst);
                // Bounded, so that the test fails and does not hang if the writer waits for the backup.
                for _ in 0..6000 {
                    if written.load(Ordering::SeqCst) == WRITES {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            assert_eq!(written.load(Ordering::SeqCst), WRITES, "{engine}, {under:?}: writers waited");
            assert_eq!(made.unwrap().keys, 1);
            writer.join().unwrap();
        });
        assert_eq!(store.len().keys, WRITES + 1);
        assert!(store.check().unwrap().problems.is_empty());
        drop(store);
        let store = Store::open(dir.path(), existing()).unwrap();
        assert_eq!(store.get(b"while 399").unwrap().unwrap(), [143; 60_000]);
        let copy = Store::open(target.path().join("b"), existing()).unwrap();
        assert_eq!(pairs(&copy), [(b"before".to_vec(), b"1".to_vec())]);
        assert!(copy.check().unwrap().problems.is_empty());
    }
}

/// A named version is durable, and a backup contains it.
#[test]
fn a_backup_keeps_named_versions() {
    for under in [Under::Mapped, Under::Journal] {
        let (dir, target) = (scratch(true), scratch(true));
        let store = Store::open(dir.path(), options("cdds", under)).unwrap();
        store.put(b"k", b"old").unwrap();
        store.keep("monday").unwrap();
        store.put(b"k", b"new").unwrap();
        store.backup(target.path().join("b"), |_, _| {}).unwrap();
        let copy = Store::open(target.path().join("b"), existing()).unwrap();
        assert_eq!(copy.get(b"k").unwrap().unwrap(), b"new");
        assert_eq!(copy.snapshot_named("monday").unwrap().get(b"k").unwrap().unwrap(), b"old");
    }
}

#[test]
fn a_backup_suits_the_file_system_that_it_is_made_on() {
    let (memory, disk) = (scratch(true), scratch(false));
    let journaled = |dir: &Path| dir.join(JOURNAL_NAME).exists();
    let at = |dir: &TempDir, name: &str| -> PathBuf { dir.path().join(name) };
    let store = Store::open(at(&memory, "store"), Options::default()).unwrap();
    store.put(b"k", b"v").unwrap();
    store.backup(at(&memory, "copy"), |_, _| {}).unwrap();
    store.backup(at(&disk, "backup"), |_, _| {}).unwrap();
    backup(&at(&disk, "backup"), &at(&memory, "restored"), &|_, _| {}).unwrap();
    backup(&at(&disk, "backup"), &at(&disk, "again"), &|_, _| {}).unwrap();
    let plain = Options::default().durability(Durability::Process);
    Store::open(at(&disk, "plain"), plain).unwrap().put(b"k", b"v").unwrap();
    backup(&at(&disk, "plain"), &at(&disk, "plain copy"), &|_, _| {}).unwrap();
    // Without a memory file system, both directories are on a disk.
    if store.stats().medium == "memory file system" {
        assert!(!journaled(&at(&memory, "copy")) && !journaled(&at(&memory, "restored")));
    }
    assert!(journaled(&at(&disk, "backup")) && journaled(&at(&disk, "again")));
    assert!(!journaled(&at(&disk, "plain copy")));
    for dir in [at(&memory, "copy"), at(&disk, "backup"), at(&memory, "restored"), at(&disk, "again")] {
        let store = Store::open(&dir, existing()).unwrap();
        assert_eq!(store.get(b"k").unwrap().as_deref(), Some(b"v".as_slice()), "{dir:?}");
        assert_eq!(store.stats().opened, "clean", "{dir:?}");
    }
}

#[test]
fn a_backups_journal_is_not_taken_for_the_stores() {
    let (dir, target) = (scratch(true), scratch(true));
    let store = Store::open(dir.path(), options("wbtree", Under::Journal)).unwrap();
    store.put(b"k", b"v").unwrap();
    store.backup(target.path(), |_, _| {}).unwrap();
    drop(store);
    fs::copy(dir.path().join(JOURNAL_NAME), target.path().join(JOURNAL_NAME)).unwrap();
    let error = Store::open(target.path(), existing()).err().unwrap().to_string();
    assert!(error.contains("belongs to another store"), "{error}");
}

#[test]
fn nothing_looks_like_a_backup_before_it_is_one_and_what_a_crash_leaves_is_overwritten() {
    for under in [Under::Mapped, Under::Journal] {
        let (dir, target) = (scratch(true), scratch(true));
        let store = Store::open(dir.path(), options("wbtree", under)).unwrap();
        store.put(b"k", b"v").unwrap();
        // The contents of the directory at each step, as a crash would leave them.
        let left = Mutex::new(Vec::new());
        let to = target.path().join("b");
        store
            .backup(&to, |_, _| {
                let error = Store::open(&to, existing()).err().unwrap();
                assert!(matches!(error, Error::Missing { .. }), "{error}");
                let names: Vec<_> = fs::read_dir(&to).unwrap().map(|e| e.unwrap().path()).collect();
                assert!(!names.is_empty() && names.iter().all(|name| !name.ends_with(FILE_NAME)));
                let contents = names.iter().map(|name| (name.clone(), fs::read(name).unwrap()));
                left.lock().unwrap().push(contents.collect::<Vec<_>>());
            })
            .unwrap();
        let states = left.into_inner().unwrap();
        assert!(!states.is_empty());
        for state in states {
            fs::remove_dir_all(&to).unwrap();
            fs::create_dir(&to).unwrap();
            state.iter().for_each(|(name, content)| fs::write(name, content).unwrap());
            store.backup(&to, |_, _| {}).unwrap();
            assert_eq!(Store::open(&to, existing()).unwrap().get(b"k").unwrap().unwrap(), b"v");
        }
        // As after a crash between the two renames.
        fs::rename(to.join(FILE_NAME), to.join("store.bristlecone.new")).unwrap();
        fs::write(to.join(JOURNAL_NAME), b"whatever").unwrap();
        store.backup(&to, |_, _| {}).unwrap();
        assert_eq!(Store::open(&to, existing()).unwrap().get(b"k").unwrap().unwrap(), b"v");
    }
}

#[test]
fn a_directory_with_anything_in_it_is_refused_and_left_alone() {
    let (dir, target) = (scratch(true), scratch(true));
    let store = Store::open(dir.path(), options("wbtree", Under::Mapped)).unwrap();
    store.put(b"k", b"v").unwrap();
    let refused = |to: &Path, words: &str| {
        let before: Vec<_> = fs::read_dir(to).into_iter().flatten().map(|e| e.unwrap().file_name()).collect();
        let error = store.backup(to, |_, _| panic!("nothing is copied")).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        let after: Vec<_> = fs::read_dir(to).into_iter().flatten().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(before, after);
    };
    refused(dir.path(), "already holds a store");
    fs::write(target.path().join("letter"), "dear").unwrap();
    refused(target.path(), "is not empty (letter is there)");
    refused(&target.path().join("letter"), "cannot inspect");
    let alone = scratch(true);
    fs::write(alone.path().join(JOURNAL_NAME), "of a store whose file is elsewhere").unwrap();
    refused(alone.path(), "is not empty");
    store.backup(target.path().join("b"), |_, _| {}).unwrap();
    refused(&target.path().join("b"), "already holds a store");
    // A volatile engine, a closed store.
    let volatile = Store::open(scratch(true).path(), Options::default().engine("btree"));
    let error = volatile.unwrap().backup(target.path().join("c"), |_, _| {}).unwrap_err().to_string();
    assert!(error.contains("btree keeps nothing") && !target.path().join("c").exists(), "{error}");
    store.close().unwrap();
    let error = store.backup(target.path().join("d"), |_, _| {}).unwrap_err().to_string();
    assert!(error.contains("the store is closed") && !target.path().join("d").exists(), "{error}");
}

#[test]
fn a_store_that_was_not_closed_is_backed_up_and_not_changed() {
    for under in [Under::Mapped, Under::Journal] {
        let (dir, crashed, target) = (scratch(true), scratch(true), scratch(true));
        let store = Store::open(dir.path(), options("wbtree", under)).unwrap();
        (0..500_u32).for_each(|n| _ = store.put(&n.to_be_bytes(), &[n as u8; 50]).unwrap());
        // The files as a crash of the process leaves them.
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.iter().for_each(|name| _ = fs::copy(dir.path().join(name), crashed.path().join(name)).unwrap());
        let bytes =
            || names.iter().map(|name| fs::read(crashed.path().join(name)).unwrap()).collect::<Vec<_>>();
        let before = bytes();
        let made = backup(crashed.path(), &target.path().join("b"), &|_, _| {}).unwrap();
        assert_eq!(made.keys, 500);
        assert!(bytes() == before, "{under:?}");
        let copy = Store::open(target.path().join("b"), existing()).unwrap();
        assert_eq!((copy.stats().opened.as_str(), copy.len().keys), ("clean", 500));
        assert!(pairs(&copy) == pairs(&store));
        let found = Store::open(crashed.path(), existing()).unwrap();
        assert_eq!(found.stats().opened, "recovered", "it was still as the crash left it");
    }
    let nowhere = scratch(true);
    let error = backup(&nowhere.path().join("no"), &nowhere.path().join("b"), &|_, _| {}).unwrap_err();
    assert!(matches!(error, Error::Missing { .. }) && !nowhere.path().join("b").exists());
}
