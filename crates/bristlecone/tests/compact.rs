//! Compaction: the same pairs in a smaller file. A crash at any moment leaves the old store or the new one, complete.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use crate::common::{existing, options, pairs, scratch};
use bristlecone::registry::{self, Open};
use bristlecone::store_dir::{FILE_NAME, JOURNAL_NAME};
use bristlecone::{Error, Fixed, Options, Store, StoreFixed, StoreOf, StoreU64, WriteOptions, compact};
use crash::by_tier;

const NEW: &str = "store.bristlecone.new";

fn shrinks<K: Open>(
    options: Options,
    keys: u64,
    put: impl Fn(&StoreOf<K>, u64),
    delete: impl Fn(&StoreOf<K>, u64),
) where
    K::ValueBuf: PartialEq,
{
    let dir = scratch();
    let said = format!("{options:?}");
    let store = StoreOf::<K>::open(dir.path(), options.clone()).unwrap();
    (0..keys).for_each(|n| put(&store, n));
    (0..keys).filter(|n| n % 10 != 0).for_each(|n| delete(&store, n));
    let before = pairs(&store);
    let about = store.stats();
    drop(store);
    let done = compact(dir.path(), &|done, total| assert!(done <= total)).unwrap();
    assert_eq!(done.keys, before.len() as u64, "{said}");
    assert_eq!(done.bytes, fs::metadata(dir.path().join(FILE_NAME)).unwrap().len());
    assert!(!dir.path().join(NEW).exists());
    let store = StoreOf::<K>::open(dir.path(), existing()).unwrap();
    let stats = store.stats();
    assert_eq!(
        (stats.opened.as_str(), stats.keys, stats.keys_pending),
        ("clean", done.keys, false),
        "{said}"
    );
    assert_eq!(
        (&stats.engine, &stats.kind, stats.node_bytes),
        (&about.engine, &about.kind, about.node_bytes)
    );
    assert_eq!(stats.journal.map(|j| j.bytes), about.journal.map(|j| j.bytes), "{said}");
    let report = store.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new(), "{said}");
    // Each kind and size of block may have a chunk of 256 KiB that is only partly filled.
    assert!(done.bytes < done.bytes_before, "{said}: {done:?}");
    assert!(done.bytes < report.live_bytes * 13 / 10 + (8 << 18), "{said}: {done:?}, {report:?}");
    assert!(pairs(&store) == before, "{said}");
    (0..keys).filter(|n| n % 7 == 0).for_each(|n| put(&store, n));
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new(), "{said}");
    drop(store);
    let again = compact(dir.path(), &|_, _| {}).unwrap();
    let bytes = fs::metadata(dir.path().join(FILE_NAME)).unwrap().len();
    let store = StoreOf::<K>::open(dir.path(), existing()).unwrap();
    // A hash table splits its buckets depending on its own seed. So the size may differ by a chunk.
    let spare = if store.capabilities().ordered { 0 } else { 1 << 18 };
    assert!(bytes <= again.bytes_before + spare, "{said}: {again:?}");
    assert!(store.check().unwrap().problems.is_empty());
}

#[test]
fn a_store_of_every_engine_and_kind_keeps_its_pairs_and_shrinks_to_what_they_take() {
    let quick = WriteOptions { sync: false };
    let durable = registry::names().filter(|name| registry::find(name).unwrap().about.durable);
    for (number, engine) in durable.enumerate() {
        // With a journal or without, in turns.
        let first = (number as u64 + crash::turn()).is_multiple_of(2);
        for journaled in [first, !first].into_iter().take(by_tier(1, 2)) {
            shrinks(
                options(engine, journaled),
                by_tier(6_000, 16_000),
                |store: &Store, n| {
                    let value = vec![n as u8; 300 + n as usize % 60];
                    store.with(quick).put(format!("key {n}").as_bytes(), &value).unwrap();
                },
                |store, n| _ = store.with(quick).delete(format!("key {n}").as_bytes()).unwrap(),
            );
            shrinks(
                options(engine, journaled),
                by_tier(25_000, 60_000),
                |store: &StoreU64, n| _ = store.with(quick).put(&(n ^ 0x5555), &n).unwrap(),
                |store, n| _ = store.with(quick).delete(&(n ^ 0x5555)).unwrap(),
            );
            if registry::find(engine).unwrap().capabilities.fixed_values {
                let options = options(engine, journaled).value_bytes(120);
                shrinks::<Fixed>(
                    options,
                    by_tier(6_000, 12_000),
                    |store: &StoreFixed, n| _ = store.with(quick).put(&n, &[n as u8; 120]).unwrap(),
                    |store, n| _ = store.with(quick).delete(&n).unwrap(),
                );
            }
        }
    }
}

#[test]
fn values_of_any_length_and_a_store_without_keys_are_compacted() {
    for journaled in [false, true] {
        let dir = scratch();
        let store = Store::open(dir.path(), options("wbtree", journaled)).unwrap();
        let long = if journaled { 400_000 } else { 40_000_000 };
        (0..3_u8).for_each(|n| _ = store.put(&[n + 1], &vec![n; long]).unwrap());
        store.put(b"empty", b"").unwrap();
        store.close().unwrap();
        drop(store);
        assert_eq!(compact(dir.path(), &|_, _| {}).unwrap().keys, 4);
        let store = Store::open(dir.path(), existing()).unwrap();
        (0..3_u8).for_each(|n| assert!(store.get(&[n + 1]).unwrap() == Some(vec![n; long])));
        assert_eq!(store.get(b"empty").unwrap().unwrap(), b"");
        store.clear().unwrap();
        drop(store);
        let done = compact(dir.path(), &|_, _| {}).unwrap();
        assert!(done.keys == 0 && done.bytes < 2 << 20, "{done:?}");
        let store = Store::open(dir.path(), existing()).unwrap();
        assert_eq!(store.first().unwrap(), None);
        store.put(b"k", b"v").unwrap();
        assert!(store.check().unwrap().problems.is_empty());
    }
}

#[test]
fn an_idle_store_frees_what_a_clear_left() {
    for (number, about) in registry::engines().filter(|about| about.durable).enumerate() {
        let (engine, dir) = (about.name, scratch());
        let store = Store::open(dir.path(), options(engine, number % 2 == 0)).unwrap();
        let unsynced = store.with(WriteOptions { sync: false });
        (0..5000_u32).for_each(|n| _ = unsynced.put(&n.to_be_bytes(), &[7; 200]).unwrap());
        let full = store.space().live_bytes;
        store.clear().unwrap();
        let mut left = full;
        for _ in 0..1000 {
            left = store.space().live_bytes;
            if left < full / 4 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(left < full / 4, "{engine}: {left} bytes are left of {full}");
    }
}

/// All files of a directory.
fn state(dir: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    names.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn a_crash_at_any_moment_leaves_the_store_or_the_new_one() {
    for journaled in [false, true] {
        let dir = scratch();
        let store = Store::open(dir.path(), options("wbtree", journaled)).unwrap();
        let quick = store.with(WriteOptions { sync: false });
        (0..5000_u32).for_each(|n| _ = quick.put(&n.to_be_bytes(), &[n as u8; 200]).unwrap());
        (0..5000_u32).step_by(2).for_each(|n| _ = quick.delete(&n.to_be_bytes()).unwrap());
        let expected = pairs(&store);
        drop((store, quick));
        let closed = state(dir.path());
        let states = Mutex::new(vec![closed.clone()]);
        compact(dir.path(), &|_, _| states.lock().unwrap().push(state(dir.path()))).unwrap();
        let mut states = states.into_inner().unwrap();
        assert!(states.len() > 3 && states.iter().any(|state| state.iter().any(|(name, _)| name == NEW)));
        let after = state(dir.path());
        states.push(after.clone());
        // Just before the commit point: all files are complete, and the new file is not renamed yet.
        let new = after.iter().find(|(name, _)| name == FILE_NAME).unwrap().1.clone();
        let mut last = closed;
        last.push((NEW.into(), new));
        states.push(last);
        for state in states {
            let crashed = scratch();
            state.iter().for_each(|(name, content)| fs::write(crashed.path().join(name), content).unwrap());
            let store = Store::open(crashed.path(), existing()).unwrap();
            assert!(pairs(&store) == expected);
            assert!(store.check().unwrap().problems.is_empty());
            assert!(!crashed.path().join(NEW).exists(), "what was left over is removed");
            drop(store);
            compact(crashed.path(), &|_, _| {}).unwrap();
            assert!(pairs(&Store::open(crashed.path(), existing()).unwrap()) == expected);
        }
    }
}

#[test]
fn a_store_that_a_crash_left_is_recovered_first() {
    for journaled in [false, true] {
        let (dir, crashed) = (scratch(), scratch());
        let store = Store::open(dir.path(), options("wbtree", journaled)).unwrap();
        (0..500_u32).for_each(|n| _ = store.put(&n.to_be_bytes(), &[n as u8; 50]).unwrap());
        // The files as a crash leaves them.
        state(dir.path())
            .iter()
            .for_each(|(name, content)| fs::write(crashed.path().join(name), content).unwrap());
        assert_eq!(compact(crashed.path(), &|_, _| {}).unwrap().keys, 500);
        assert!(pairs(&Store::open(crashed.path(), existing()).unwrap()) == pairs(&store));
    }
}

#[test]
fn a_store_in_use_a_damaged_one_and_none_are_refused_and_left_alone() {
    let dir = scratch();
    let store = Store::open(dir.path(), options("wbtree", true)).unwrap();
    (0..100_u32).for_each(|n| _ = store.put(&n.to_be_bytes(), b"a value that can be found").unwrap());
    let error = compact(dir.path(), &|_, _| {}).unwrap_err();
    assert!(error.to_string().contains("in use by this process already"), "{error}");
    assert_eq!(store.put(b"k", b"v").ok(), Some(false));
    drop(store);
    let reader = Store::open(dir.path(), Options::default().read_only(true)).unwrap();
    let error = compact(dir.path(), &|_, _| {}).unwrap_err();
    assert!(error.to_string().contains("in use by this process already"), "{error}");
    drop(reader);
    // Damage to a record, which its checksum detects.
    let path = dir.path().join(FILE_NAME);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(25).position(|window| window == b"a value that can be found").unwrap();
    bytes[at] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = compact(dir.path(), &|_, _| {}).unwrap_err();
    assert!(error.to_string().contains("corrupt record"), "{error}");
    assert!(!dir.path().join(NEW).exists() && dir.path().join(JOURNAL_NAME).exists());
    assert_eq!(Store::open(dir.path(), existing()).unwrap().len().keys, 101);
    let error = compact(&dir.path().join("none"), &|_, _| {}).unwrap_err();
    assert!(matches!(error, Error::Missing { .. }), "{error}");
}
