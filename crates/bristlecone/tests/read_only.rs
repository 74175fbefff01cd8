//! Stores opened read-only: their contents, the operations that they refuse, and their files, which do not change.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{existing, options, pairs, scratch};
use bristlecone::registry;
use bristlecone::store_dir::{FILE_NAME, JOURNAL_NAME};
use bristlecone::{Change, Error, Options, Store, StoreU64, Write, WriteOptions, backup};

fn read_only() -> Options {
    Options::default().read_only(true)
}

/// Path, bytes, length and blocks, and times of each file.
type Trace = Vec<(String, Vec<u8>, [u64; 2], [i64; 4])>;

/// The properties of a directory that must not change while it is only read.
fn trace(dir: &Path) -> Trace {
    let mut all: Trace = fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let (entry, meta) = entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
            let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
            let content = fs::read(&entry).unwrap();
            (entry.display().to_string(), content, [meta.len(), meta.blocks()], times)
        })
        .collect();
    all.sort();
    all
}

/// Copies a store that may be open. Repeats the copy until nothing changes, because background work of the engine may still write.
fn copy(from: &Path, to: &Path) {
    let names: Vec<_> = fs::read_dir(from).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let read =
        |dir: &Path| -> Vec<Vec<u8>> { names.iter().map(|name| fs::read(dir.join(name)).unwrap()).collect() };
    while {
        names.iter().for_each(|name| _ = fs::copy(from.join(name), to.join(name)).unwrap());
        read(from) != read(to)
    } {}
}

fn fill(store: &Store) {
    let quick = store.with(WriteOptions { sync: false });
    for n in 0..800_u32 {
        quick.put(format!("key {n}").as_bytes(), &vec![n as u8; n as usize % 300]).unwrap();
    }
    (0..800).step_by(3).for_each(|n| _ = quick.delete(format!("key {n}").as_bytes()).unwrap());
    quick.put(b"large", &vec![7; 300_000]).unwrap();
    store.commit().unwrap();
}

/// Checks that every kind of write is refused.
fn assert_refuses_writes(store: &Store) {
    let refusals = [
        store.put(b"k", b"v").err(),
        store.delete(b"key 1").err(),
        store.update(b"key 1", |_| Change::Delete).err(),
        store.put_if_absent(b"k", b"v").err(),
        store.write_many(&[Write::Put(b"k", b"v"), Write::Delete(b"key 1")]).err(),
        store.clear().err(),
    ];
    for refusal in refusals {
        let error = refusal.expect("a write was taken");
        assert!(matches!(error, Error::Pmem(pmem::Error::ReadOnly)), "{error}");
        assert!(error.to_string().contains("opened read-only"), "{error}");
    }
    store.commit().unwrap();
    store.sync().unwrap();
}

#[test]
fn stores_of_every_engine_closed_or_crashed_are_read_whole_and_not_changed() {
    for engine in registry::engines().filter(|tree| tree.durable).map(|tree| tree.name) {
        for journaled in [false, true] {
            let (dir, crashed) = (scratch(), scratch());
            let store = Store::open(dir.path(), options(engine, journaled)).unwrap();
            fill(&store);
            let expected = pairs(&store);
            copy(dir.path(), crashed.path());
            drop(store);
            for (dir, opened) in [(&dir, "clean"), (&crashed, "recovered")] {
                fs::set_permissions(dir.path().join(FILE_NAME), fs::Permissions::from_mode(0o444)).unwrap();
                let before = trace(dir.path());
                let store = Store::open(dir.path(), read_only()).unwrap();
                assert_eq!(store.get(b"key 1").unwrap().unwrap(), [1]);
                assert_eq!(store.get(b"key 3").unwrap(), None);
                assert!(pairs(&store) == expected, "{engine}");
                assert_refuses_writes(&store);
                let report = store.check().unwrap();
                assert_eq!((report.problems, report.keys), (Vec::new(), expected.len() as u64), "{engine}");
                while store.len().pending {
                    std::thread::yield_now();
                }
                let stats = store.stats();
                assert_eq!((stats.opened.as_str(), stats.keys), (opened, expected.len() as u64), "{engine}");
                assert!(stats.read_only && (stats.durability == "power") == journaled);
                store.close().unwrap();
                assert_eq!(store.get(b"key 1").unwrap().unwrap(), [1], "reads go on");
                drop(store);
                assert!(trace(dir.path()) == before, "{engine}, journaled: {journaled}, {opened}");
                fs::set_permissions(dir.path().join(FILE_NAME), fs::Permissions::from_mode(0o644)).unwrap();
                let store = Store::open(dir.path(), existing()).unwrap();
                assert_eq!(store.stats().opened, opened, "{engine}: as it was left");
                assert!(pairs(&store) == expected);
            }
        }
    }
}

#[test]
fn readers_share_a_store_and_keep_writers_out_until_the_last_is_gone() {
    for journaled in [false, true] {
        let dir = scratch();
        Store::open(dir.path(), options("wbtree", journaled)).unwrap().put(b"k", b"v").unwrap();
        let readers: Vec<_> = (0..3).map(|_| Store::open(dir.path(), read_only()).unwrap()).collect();
        for reader in &readers {
            assert_eq!(reader.get(b"k").unwrap().unwrap(), b"v");
            let error = Store::open(dir.path(), existing()).err().unwrap();
            assert!(error.to_string().contains("is in use by this process already"), "{error}");
        }
        // A closed reader still reads. So it holds the store until it is dropped.
        readers.iter().for_each(|reader| reader.close().unwrap());
        assert!(Store::open(dir.path(), existing()).is_err());
        drop(readers);
        let store = Store::open(dir.path(), existing()).unwrap();
        store.put(b"k", b"w").unwrap();
    }
}

#[test]
fn beside_a_writer_a_store_without_a_journal_is_refused_with_what_to_do() {
    let (dir, target) = (scratch(), scratch());
    let store = Store::open(dir.path(), options("wbtree", false)).unwrap();
    store.put(b"k", b"v").unwrap();
    let errors = [
        Store::open(dir.path(), read_only()).err(),
        backup(dir.path(), &target.path().join("b"), &|_, _| {}).err(),
    ];
    for error in errors.map(Option::unwrap) {
        assert!(matches!(error, Error::InUse { .. }), "{error}");
        assert!(error.to_string().contains("stop that process first, or ask it"), "{error}");
    }
    assert!(!target.path().join("b").exists());
    assert_eq!(store.get(b"k").unwrap().unwrap(), b"v");
}

#[test]
fn beside_a_writer_a_journaled_store_is_read_as_of_one_moment() {
    let dir = scratch();
    let store = Store::open(dir.path(), options("wbtree", true)).unwrap();
    store.put(b"filler", &vec![3; 300_000]).unwrap();
    let (ends, rests, acknowledged) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    let (mut seen, mut busy) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0_u64.. {
                if ends.load(Ordering::SeqCst) {
                    break;
                }
                // Two keys for each number. The second key is never present without the first.
                store.put(format!("a {n:09}").as_bytes(), &[n as u8; 2000]).unwrap();
                store.put(format!("b {n:09}").as_bytes(), &n.to_le_bytes()).unwrap();
                acknowledged.store(n + 1, Ordering::SeqCst);
                // Pauses, because the data would grow faster than the reader reads it.
                while rests.load(Ordering::SeqCst) || n.is_multiple_of(4) {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    if !rests.load(Ordering::SeqCst) || ends.load(Ordering::SeqCst) {
                        break;
                    }
                }
            }
        });
        while seen < 12 {
            let before = acknowledged.load(Ordering::SeqCst);
            let reader = match Store::open(dir.path(), read_only()) {
                Err(Error::Pmem(pmem::Error::Busy { .. })) if busy < 200 => {
                    busy += 1;
                    continue;
                }
                other => other.inspect_err(|_| ends.store(true, Ordering::SeqCst)).unwrap(),
            };
            rests.store(true, Ordering::SeqCst);
            let count = |prefix: &[u8]| reader.scan_prefix(prefix).map(Result::unwrap).count() as u64;
            let (first, second) = (count(b"a "), count(b"b "));
            let sound = first >= before && (first == second || first == second + 1);
            let same = count(b"a ") == first;
            let report = reader.check().unwrap();
            if !sound || !same || !report.problems.is_empty() {
                ends.store(true, Ordering::SeqCst);
                panic!("{first} and {second} of {before}: {report:?}");
            }
            assert_refuses_writes(&reader);
            rests.store(false, Ordering::SeqCst);
            seen += 1;
        }
        ends.store(true, Ordering::SeqCst);
    });
    // The writer was not disturbed, and no reader holds its files.
    assert!(store.check().unwrap().problems.is_empty());
    drop(store);
    assert!(Store::open(dir.path(), existing()).is_ok());
}

#[test]
fn a_journal_with_a_torn_end_is_read_up_to_it_as_recovery_would() {
    let (dir, crashed) = (scratch(), scratch());
    let store = Store::open(dir.path(), options("wbtree", true)).unwrap();
    (0..50_u32).for_each(|n| _ = store.put(&n.to_be_bytes(), &[n as u8; 100]).unwrap());
    copy(dir.path(), crashed.path());
    drop(store);
    let path = crashed.path().join(JOURNAL_NAME);
    let whole = fs::read(&path).unwrap();
    let last = (8192..whole.len()).rev().find(|at| whole[*at] != 0).unwrap();
    let mut found = Vec::new();
    for cut in (0..8).map(|i| i * 300) {
        let mut bytes = whole.clone();
        bytes[last - cut] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let before = trace(crashed.path());
        let shown =
            Store::open(crashed.path(), read_only()).map(|store| pairs(&store)).map_err(|e| e.to_string());
        assert!(trace(crashed.path()) == before);
        let again = scratch();
        copy(crashed.path(), again.path());
        let recovered =
            Store::open(again.path(), existing()).map(|store| pairs(&store)).map_err(|e| e.to_string());
        assert_eq!(shown, recovered);
        found.push(shown.map(|pairs| pairs.len()).map_err(|error| error.contains("corrupt group")));
    }
    assert!(found.contains(&Ok(49)), "{found:?}");
}

#[test]
fn what_is_no_store_or_not_to_be_trusted_is_refused_as_ever_and_not_touched() {
    let refused = |dir: &Path, words: &str| {
        let before = trace(dir);
        let error = Store::open(dir, read_only()).err().unwrap().to_string();
        assert!(error.contains(words), "{error}");
        assert!(trace(dir) == before);
    };
    let dir = scratch();
    refused(dir.path(), "there is no store in");
    fs::write(dir.path().join(FILE_NAME), vec![b'x'; 50_000]).unwrap();
    refused(dir.path(), "is not a Bristlecone store");
    let dir = scratch();
    let store = StoreU64::open(dir.path(), options("wbtree", false)).unwrap();
    store.put(&1, &2).unwrap();
    drop(store);
    refused(dir.path(), "not with \"bytes\"");
    let dir = scratch();
    Store::open(dir.path(), options("wbtree", true)).unwrap().put(b"k", b"v").unwrap();
    let journal = fs::read(dir.path().join(JOURNAL_NAME)).unwrap();
    fs::remove_file(dir.path().join(JOURNAL_NAME)).unwrap();
    refused(dir.path(), "is missing");
    let other = scratch();
    Store::open(other.path(), options("wbtree", true)).unwrap().put(b"k", b"v").unwrap();
    fs::copy(other.path().join(JOURNAL_NAME), dir.path().join(JOURNAL_NAME)).unwrap();
    refused(dir.path(), "belongs to another store");
    fs::write(dir.path().join(JOURNAL_NAME), &journal).unwrap();
    assert!(Store::open(dir.path(), read_only()).unwrap().get(b"k").unwrap().is_some());
    let volatile = read_only().engine("btree");
    let error = Store::open(scratch().path(), volatile).err().unwrap().to_string();
    assert!(error.contains("btree keeps nothing"), "{error}");
}
