//! Injected faults: each leaves out a step of the commit protocol, or makes syncs do nothing. The oracle of the power cuts must notice it.
//! The same lives without the fault are correct, so nothing else fails them.

use std::sync::{Arc, Mutex};

use bwtree::{Bytes, Change};
use faults::{Lie, mix};
use logstore::omission::{Omission, omit};
use logstore::{Settings, Store};
use pmem::system::Kind;

use crate::common::life::{Life, Tally};
use crate::common::{Dir, Model, compare, create, get, open, small};

/// Ends the injection also if the test fails.
struct Omitted;

impl Omitted {
    fn new(omission: impl Into<Option<Omission>>) -> Self {
        omit(omission);
        Self
    }
}

impl Drop for Omitted {
    fn drop(&mut self) {
        omit(None);
    }
}

fn random_life(seed: u64, lie: Lie, omission: Option<Omission>) -> Result<Tally, String> {
    let dir = Dir::new("omission");
    let mut life = Life::new(&dir.0, seed, lie, Vec::new());
    {
        let _omitted = Omitted::new(omission);
        let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let store = life.create();
            life.live(store, 120)
        }));
        lived.unwrap_or_else(|_| Err("the life panicked".to_owned()))?;
    }
    life.judge(seed, 7, 0)
}

/// The number of lives until the oracle notices the fault, and its message.
fn noticed(lie: Lie, omission: Option<Omission>) -> Option<(u64, String)> {
    (0..30).find_map(|number| {
        let why = random_life(mix(77, number), lie, omission).err()?;
        Some((number + 1, why.chars().take(300).collect()))
    })
}

#[test]
fn random_lives_notice_syncs_that_do_nothing_and_missing_steps() {
    for number in 0..2 {
        random_life(mix(77, number), Lie::None, None).unwrap();
    }
    let lies = [(Lie::Files, None), (Lie::Directories, None)];
    let omissions = [
        Omission::LogSync,
        Omission::ImageSync,
        Omission::Rename,
        Omission::Removal,
        Omission::Written,
        Omission::RecoveredLog,
    ];
    let faults = lies.into_iter().chain(omissions.map(|omission| (Lie::None, Some(omission))));
    for (lie, omission) in faults {
        let (lives, why) =
            noticed(lie, omission).unwrap_or_else(|| panic!("{lie:?}, {omission:?} was not noticed"));
        println!("{lie:?}, {omission:?}: noticed in life {lives}: {why}");
    }
}

/// All leaves stay in memory, so that the thread of the checkpoint needs no other one.
fn roomy() -> Settings {
    Settings { memory_bytes: u64::MAX, log_bytes: 1 << 20, ..small(true) }
}

/// While a checkpoint saves leaves, an update of the first leaf, which was saved, comes before an update of the last leaf, which was not.
/// Neither is synced. The checkpoint has the later one alone. So it must not be published before both are in the log.
fn update_during_a_checkpoint(omission: Option<Omission>) -> Result<Tally, String> {
    let dir = Dir::new("stable");
    let mut life = Life::new(&dir.0, 5, Lie::None, Vec::new());
    life.settings = roomy();
    let life = Arc::new(Mutex::new(life));
    let store = Arc::new(life.lock().unwrap().create());
    for number in 0..60u32 {
        life.lock().unwrap().put(&store, &number.to_be_bytes(), &[1; 40], number == 59).unwrap();
    }
    let mortal = Arc::clone(&life.lock().unwrap().mortal);
    {
        let (life, store) = (Arc::clone(&life), Arc::clone(&store));
        mortal.hook(Kind::Open, "pages", move || {
            for number in [0u32, 59] {
                life.lock().unwrap().put(&store, &number.to_be_bytes(), b"during", false).unwrap();
            }
        });
    }
    let _omitted = Omitted::new(omission);
    store.checkpoint().map_err(|error| error.to_string())?;
    drop(_omitted);
    drop(store);
    life.lock().unwrap().judge(5, 1, 0)
}

#[test]
fn a_checkpoint_waits_until_the_updates_in_its_images_are_durable() {
    println!("{:?}", update_during_a_checkpoint(None).unwrap());
    let why = update_during_a_checkpoint(Some(Omission::StableImages)).unwrap_err();
    assert!(why.contains("were expected"), "{why}");
}

/// A process is killed between the rename of a checkpoint and the sync of the directory. The next one must not remove the segments of the
/// checkpoint before, because that one may come back.
fn killed_after_the_rename(omission: Option<Omission>) -> Result<Tally, String> {
    let dir = Dir::new("rename");
    let mut life = Life::new(&dir.0, 8, Lie::None, Vec::new());
    // Without evictions few names change, so that every subset of them is judged.
    life.settings = roomy();
    let store = life.create();
    for value in 0..2 {
        // The images take more than a segment, so the second checkpoint frees one.
        (0..100u8).for_each(|key| life.put(&store, &[key], &[value; 60], key == 99).unwrap());
        if value == 1 {
            life.dies_after(Kind::Rename, "checkpoint");
        }
        assert_eq!(store.checkpoint().is_ok(), value == 0);
    }
    drop(store);
    let _omitted = Omitted::new(omission);
    life.revive();
    life.is_judged_from_here();
    let store = life.reopen()?;
    drop(_omitted);
    life.put(&store, b"key", b"value", true).unwrap();
    drop(store);
    life.judge(8, 1, 0)
}

#[test]
fn recovery_makes_a_checkpoint_durable_before_it_removes_segments() {
    println!("{:?}", killed_after_the_rename(None).unwrap_or_else(|why| panic!("{why}")));
    let why = killed_after_the_rename(Some(Omission::RecoveredNames)).unwrap_err();
    assert!(why.contains("a segment of the checkpoint is missing"), "{why}");
}

/// An insertion finds its key absent. Before it is visible, another thread inserts the key. So the record of the insertion is void.
fn a_void_record(store: &Store<Bytes>, key: &[u8]) {
    let mut is_first = true;
    let decide = |now: Option<&[u8]>| {
        if std::mem::take(&mut is_first) {
            std::thread::scope(|scope| {
                scope.spawn(|| crate::common::put(store, key, b"other").unwrap());
            });
            assert!(now.is_none());
        }
        if now.is_none() { Change::Put(&b"own"[..]) } else { Change::Keep }
    };
    assert!(store.update(key, decide, true).unwrap());
}

#[test]
fn a_void_record_is_not_replayed() {
    for (omission, expected) in [(None, b"other".to_vec()), (Some(Omission::Void), b"own".to_vec())] {
        let dir = Dir::new("void");
        let store = create(&dir.0, small(true));
        a_void_record(&store, b"key");
        store.commit().unwrap();
        drop(store);
        let _omitted = Omitted::new(omission);
        let store = open(&dir.0, small(true)).unwrap();
        assert_eq!(get(&store, b"key").unwrap(), Some(expected));
    }
}

/// A former defect: a block of void records alone was not synced, although it counted as durable. A checkpoint named its end, and after a
/// power cut the log was too short for the checkpoint.
#[test]
fn a_block_of_void_records_alone_is_durable_before_a_checkpoint_names_its_end() {
    let dir = Dir::new("void-block");
    let mut life = Life::new(&dir.0, 6, Lie::None, Vec::new());
    let store = life.create();
    life.starts(Model::from([(b"key".to_vec(), b"other".to_vec())]));
    a_void_record(&store, b"key");
    life.is_durable();
    store.checkpoint().unwrap();
    compare(&store, life.newest());
    drop(store);
    println!("{:?}", life.judge(6, 1, 0).unwrap_or_else(|why| panic!("{why}")));
}
