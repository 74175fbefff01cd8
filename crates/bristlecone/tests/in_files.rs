//! Stores in files of their engine's own: restarts, crashes, backups, refusals, and contents that are larger than memory.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use bristlecone::{Compression, Durability, Error, Options, Store, StoreU64, backup, compact, salvage};

use crate::common::{existing, scratch};

const ENGINE: &str = "bwtree";

fn options() -> Options {
    Options::default().engine(ENGINE).durability(Durability::Process).memory_bytes(16 << 20)
}

fn key(number: u32) -> Vec<u8> {
    format!("key {:07}", number.wrapping_mul(2_654_435_761) % 10_000_000).into_bytes()
}

/// Copies the files of a store, which may be open. It is repeated if the background work replaced or removed a file meanwhile: then it is not
/// the state of one moment.
fn copy(from: &Path, to: &Path) {
    let files = || -> BTreeMap<_, _> {
        let entries = std::fs::read_dir(from).unwrap().flatten();
        entries.filter_map(|entry| Some((entry.file_name(), entry.metadata().ok()?.ino()))).collect()
    };
    for _ in 0..100 {
        let before = files();
        std::fs::remove_dir_all(to).unwrap();
        std::fs::create_dir(to).unwrap();
        let is_whole = before.keys().all(|name| std::fs::copy(from.join(name), to.join(name)).is_ok());
        if is_whole && files() == before {
            return;
        }
    }
    panic!("the files change all the time");
}

#[test]
fn the_size_is_that_of_all_files() {
    let dir = scratch();
    let store = Store::open(dir.path(), options()).unwrap();
    (0..5000).for_each(|number| _ = store.put(&key(number), &[1; 100]).unwrap());
    store.close().unwrap();
    let files = std::fs::read_dir(dir.path()).unwrap();
    let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes > 500_000 && store.stats().file_bytes == Some(bytes), "{bytes}, {:?}", store.stats());
}

/// The copy of the files of an open store is what a crash of its process leaves.
#[test]
fn every_write_that_returned_survives_a_crash() {
    let dir = scratch();
    let store = Store::open(dir.path(), options()).unwrap();
    let mut model = BTreeMap::new();
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..6 {
        for _ in 0..500 {
            let key = key(random.u32(..2000));
            if random.bool() {
                let value = vec![random.u8(..); random.usize(..100)];
                assert_eq!(store.put(&key, &value).unwrap(), model.insert(key, value).is_some());
            } else {
                assert_eq!(store.delete(&key).unwrap(), model.remove(&key).is_some());
            }
        }
        let crashed = scratch();
        copy(dir.path(), crashed.path());
        let found = Store::open(crashed.path(), existing()).unwrap();
        assert_eq!(found.stats().opened, "recovered", "round {round}");
        assert!(found.scan(..).map(Result::unwrap).eq(model.clone()));
        assert_eq!(found.check().unwrap().problems, Vec::<String>::new());
    }
    store.close().unwrap();
    drop(store);
    let store = Store::open(dir.path(), existing()).unwrap();
    let stats = store.stats();
    assert_eq!((stats.opened.as_str(), stats.engine.as_str()), ("clean", ENGINE));
    assert_eq!((stats.durability.as_str(), stats.keys), ("process", model.len() as u64));
    assert!(store.scan(..).descending().map(Result::unwrap).eq(model.into_iter().rev()));
}

#[test]
fn contents_four_times_the_memory_are_read_and_changed_by_several_threads() {
    let dir = scratch();
    let store = Store::open(dir.path(), options()).unwrap();
    let keys = 60_000u32;
    let value = |number: u32, round: u8| [&number.to_be_bytes()[..], &[round; 1000]].concat();
    std::thread::scope(|scope| {
        for thread in 0..2u32 {
            let store = &store;
            scope.spawn(move || {
                for number in (thread..keys).step_by(2) {
                    store.put(&number.to_be_bytes(), &value(number, 0)).unwrap();
                }
                for number in (thread..keys).step_by(14) {
                    store.put(&number.to_be_bytes(), &value(number, 1)).unwrap();
                }
            });
        }
    });
    let space = store.space();
    assert!(space.live_bytes + space.free_bytes > 0, "{space:?}");
    let mut random = fastrand::Rng::with_seed(1);
    let expected = |number: u32| value(number, u8::from((number % 2..keys).step_by(14).any(|n| n == number)));
    for _ in 0..2000 {
        let number = random.u32(..keys);
        assert!(store.get(&number.to_be_bytes()).unwrap() == Some(expected(number)), "{number}");
    }
    assert_eq!(store.scan(..).map(Result::unwrap).count(), keys as usize);
    let paging = store.stats().paging.unwrap();
    // Keys of 4 bytes, values of 1004, and one byte each for the table and the kind of value.
    let again: usize = (0..2).map(|thread| (thread..keys).step_by(14).count()).sum();
    assert_eq!(paging.put_bytes, (u64::from(keys) + again as u64) * 1010, "{paging:?}");
    assert!(paging.page_bytes < paging.memory_bytes && paging.memory_bytes == 16 << 20, "{paging:?}");
    let rates = (paging.hit_rate().unwrap(), paging.write_amplification().unwrap());
    assert!(
        rates.0 > 0.1 && rates.0 < 1.0 && rates.1 > 1.0 && paging.read_leaves > 0,
        "{rates:?}, {paging:?}"
    );
    store.close().unwrap();
    drop(store);
    let store = Store::open(dir.path(), existing().memory_bytes(16 << 20)).unwrap();
    let found = store.get(&7u32.to_be_bytes()).unwrap();
    assert!(found == Some(expected(7)));
    assert_eq!(store.check().unwrap().keys, u64::from(keys));
}

/// Compressed pages of text take less space. They are read without the option, and the store goes on with it.
#[test]
fn pages_are_compressed_if_a_store_is_asked_for_it() {
    const KEYS: u32 = 40_000;
    let value = |number: u32| format!("customer {number}, order {}, country DE; ", number / 3).repeat(16);
    let mut bytes = Vec::new();
    for compression in [Compression::None, Compression::Lz4] {
        let dir = scratch();
        let store = Store::open(dir.path(), options().compression(compression)).unwrap();
        for number in 0..KEYS {
            store.put(&key(number), value(number).as_bytes()).unwrap();
        }
        store.close().unwrap();
        let paging = store.stats().paging.unwrap();
        assert_eq!(paging.saved_bytes > 0, compression == Compression::Lz4);
        assert_eq!(paging.compression().is_some_and(|ratio| ratio > 2.0), compression == Compression::Lz4);
        bytes.push(store.space().live_bytes);
        drop(store);
        // The option need not be given again.
        let store = Store::open(dir.path(), existing().memory_bytes(16 << 20)).unwrap();
        for number in (0..KEYS).step_by(7) {
            assert!(store.get(&key(number)).unwrap().is_some_and(|found| found == value(number).as_bytes()));
        }
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
        assert_eq!(store.stats().paging.unwrap().compression(), None);
        // The store goes on as it is.
        for number in 0..KEYS / 4 {
            store.put(&key(number), value(number).as_bytes()).unwrap();
        }
        store.close().unwrap();
        drop(store);
        let compacted = compact(dir.path(), &|_, _| ()).unwrap();
        assert!(compacted.bytes < compacted.bytes_before, "{compacted:?}");
        let store = Store::open(dir.path(), existing()).unwrap();
        assert!(store.space().live_bytes < bytes[bytes.len() - 1] / 10 * 11);
        drop(store);
        // So does a store that is made by a salvage.
        let rescued = scratch();
        assert!(salvage(dir.path(), rescued.path(), &|_| ()).unwrap().complete);
        let store = Store::open(rescued.path(), existing()).unwrap();
        assert!(store.space().live_bytes < bytes[bytes.len() - 1] / 10 * 11);
    }
    assert!(bytes[1] * 2 < bytes[0], "{bytes:?}");
}

#[test]
fn options_of_pages_are_refused_where_they_would_do_nothing() {
    let compressed = |options: Options| options.compression(Compression::Lz4);
    let direct = |options: Options| options.direct_io(true);
    let cases: [(&dyn Fn(Options) -> Options, _); 2] =
        [(&compressed, "compression"), (&direct, "direct I/O")];
    for (set, name) in cases {
        // Direct I/O needs a disk.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let without = format!("open it without {name}");
        for engine in ["line", "wbtree"] {
            let error =
                Store::open(dir.path(), set(Options::default().engine(engine))).map(drop).unwrap_err();
            assert!(matches!(&error, Error::Option(why) if why.contains(&without)), "{error}");
        }
        let volatile = Options::default().engine(ENGINE);
        let error = Store::open(dir.path(), set(volatile)).map(drop).unwrap_err();
        assert!(matches!(&error, Error::Option(why) if why.contains("has no such files")), "{error}");
        let store = Store::open(dir.path(), set(options())).unwrap();
        store.put(b"key", name.as_bytes()).unwrap();
        store.close().unwrap();
        drop(store);
        let store = Store::open(dir.path(), existing()).unwrap();
        assert!(store.get(b"key").unwrap().is_some_and(|found| found == name.as_bytes()));
    }
}

/// A store of version 3 of the files: there, pages cannot be compressed. A server has put the values of `expected`, and removed a key.
#[test]
fn a_store_of_the_version_before_is_read_and_changed() {
    let (dir, golden) = (scratch(), Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files-v3"));
    for entry in std::fs::read_dir(golden).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let mut packed = flate2::read::GzDecoder::new(std::fs::File::open(entry.path()).unwrap());
        let mut file = std::fs::File::create(dir.path().join(name.trim_end_matches(".gz"))).unwrap();
        std::io::copy(&mut packed, &mut file).unwrap();
    }
    let key = |number: u64| format!("key:{number}");
    let expected = |number: u64| format!("{}{}", "value-".repeat(number as usize % 9), number * number);
    let version = |name: &str| std::fs::read(dir.path().join(name)).unwrap()[8..12].to_vec();
    for name in ["store.bristlecone", "store.bristlecone.checkpoint"] {
        assert_eq!(version(name), 3u32.to_le_bytes());
    }
    for compression in [Compression::None, Compression::Lz4, Compression::None] {
        let store = Store::open(dir.path(), existing().compression(compression)).unwrap();
        for number in 0..300 {
            let found = store.get(key(number).as_bytes()).unwrap();
            assert_eq!(found, (number != 7).then(|| expected(number).into_bytes()));
        }
        assert_eq!((store.count().unwrap(), store.check().unwrap().problems), (299, Vec::<String>::new()));
        for number in 0..300 {
            store.put(key(number).as_bytes(), expected(number).as_bytes()).unwrap();
        }
        store.delete(key(7).as_bytes()).unwrap();
        store.close().unwrap();
    }
    assert_eq!(version("store.bristlecone.checkpoint"), 4u32.to_le_bytes());
}

/// After a batch that needs more than the budget, its thread waits for the eviction, or does a part of it.
#[test]
fn waits_for_memory_are_counted() {
    let dir = scratch();
    let store = Store::open(dir.path(), options().memory_bytes(16 << 20)).unwrap();
    assert_eq!(store.stats().paging.unwrap().waits, 0);
    for round in 0..10u32 {
        let mut batch = store.batch();
        for number in 0..8000u32 {
            batch.put(&(round * 8000 + number).to_be_bytes(), &[1; 1000]);
        }
        batch.commit().unwrap();
    }
    let paging = store.stats().paging.unwrap();
    assert!(paging.waits > 0 && paging.waited_us > 0, "{paging:?}");
}

/// `set` and `unset` do not read pages that are not in memory, and the counts are right when they are asked for.
#[test]
fn keys_are_set_without_a_read_and_counted_later() {
    for has_tables in [false, true] {
        let dir = scratch();
        let store = Store::open(dir.path(), options().tables(has_tables)).unwrap();
        let (keys, mut model) = (40_000u32, BTreeMap::new());
        for number in 0..keys {
            store.put(&key(number), &[1; 1000]).unwrap();
            model.insert(key(number), vec![1; 1000]);
        }
        let (before, mut random) = (store.stats().paging.unwrap().read_leaves, fastrand::Rng::with_seed(1));
        for number in 0..4000 {
            let (key, value) = (key(random.u32(..2 * keys)), vec![2; random.usize(..100)]);
            match number % 4 {
                0 => {
                    store.unset(&key).unwrap();
                    model.remove(&key);
                }
                1 => {
                    let mut batch = store.batch();
                    batch.put(&key, &value).put(b"the last one", &value);
                    assert!(batch.commit().unwrap());
                    model.extend([(key, value.clone()), (b"the last one".to_vec(), value)]);
                }
                _ => {
                    store.set(&key, &value).unwrap();
                    model.insert(key, value);
                }
            }
        }
        let read = store.stats().paging.unwrap().read_leaves - before;
        assert!(read < 1000, "{read} leaves were read");
        assert!(store.len().pending);
        // A crash now, and a close, lose nothing of it.
        let crashed = scratch();
        copy(dir.path(), crashed.path());
        store.close().unwrap();
        drop(store);
        for dir in [&crashed, &dir] {
            let store = Store::open(dir.path(), existing().memory_bytes(16 << 20)).unwrap();
            assert_eq!(store.count().unwrap(), model.len() as u64);
            assert!(!store.len().pending);
            assert!(store.scan(..).map(Result::unwrap).eq(model.clone()));
            assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
            assert!(store.delete(b"the last one").unwrap());
            assert_eq!((store.len().keys, store.len().pending), (model.len() as u64 - 1, false));
        }
    }
}

/// A close stores the number of keys. A backup of the store after later writes and a crash does not keep this number.
#[test]
fn a_backup_of_a_crashed_store_counts_its_keys_when_it_is_opened() {
    let (dir, crashed, target) = (scratch(), scratch(), scratch());
    let put = |numbers: std::ops::Range<u32>| {
        let store = Store::open(dir.path(), options()).unwrap();
        numbers.for_each(|number| _ = store.put(&key(number), b"value").unwrap());
        store
    };
    put(0..500).close().unwrap();
    let store = put(500..800);
    copy(dir.path(), crashed.path());
    let made = backup(crashed.path(), &target.path().join("b"), &|_, _| {}).unwrap();
    assert!(made.keys_pending, "{made:?}");
    let copied = Store::open(target.path().join("b"), existing()).unwrap();
    assert_eq!(copied.count().unwrap(), 800);
    assert_eq!(copied.check().unwrap().problems, Vec::<String>::new());
    drop((store, copied));
}

#[test]
fn a_backup_of_an_open_store_and_of_a_closed_one_has_all_pairs() {
    let (dir, target) = (scratch(), scratch());
    let store = Store::open(dir.path(), options()).unwrap();
    for number in 0..3000 {
        store.put(&key(number), b"value").unwrap();
    }
    let pairs = |store: &Store| store.scan(..).map(Result::unwrap).collect::<Vec<_>>();
    let wanted = pairs(&store);
    let (open, closed) = (target.path().join("open"), target.path().join("closed"));
    let made = store.backup(&open, |done, all| assert!(done <= all)).unwrap();
    assert!(made.keys == wanted.len() as u64 && made.keys_pending && made.bytes > 0, "{made:?}");
    assert!(matches!(backup(dir.path(), &closed, &|_, _| {}), Err(Error::InUse { .. })));
    assert!(matches!(store.backup(&open, |_, _| {}), Err(Error::Option(_))));
    store.put(b"later", b"value").unwrap();
    store.close().unwrap();
    drop(store);
    backup(dir.path(), &closed, &|_, _| {}).unwrap();
    let (open, closed) = (Store::open(&open, existing()).unwrap(), Store::open(&closed, existing()).unwrap());
    assert_eq!(open.stats().opened, "clean");
    assert!(pairs(&open) == wanted);
    assert_eq!(pairs(&closed).len(), wanted.len() + 1);
}

fn bytes_in(dir: &Path) -> u64 {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

fn segment_bytes(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let segments = files.filter(|entry| entry.file_name().to_string_lossy().contains(".pages-"));
    segments.map(|entry| entry.metadata().unwrap().len()).sum()
}

#[test]
fn a_compaction_frees_the_space_of_removed_and_replaced_values() {
    let dir = scratch();
    let store = Store::open(dir.path(), options()).unwrap();
    for round in 0..3u8 {
        for number in 0..40_000u32 {
            store.put(&number.to_be_bytes(), &[round; 2000]).unwrap();
        }
    }
    (0..40_000u32).filter(|number| number % 8 > 0).for_each(|number| {
        assert!(store.delete(&number.to_be_bytes()).unwrap());
    });
    store.close().unwrap();
    drop(store);
    let (before, segments_before) = (bytes_in(dir.path()), segment_bytes(dir.path()));
    let done = compact(dir.path(), &|done, all| assert!(done <= all)).unwrap();
    assert_eq!((done.keys, done.bytes_before, done.bytes), (5000, before, bytes_in(dir.path())));
    // 5000 pairs of 2004 bytes, in images and segments that are nearly full. A small store frees much of its space by itself.
    let (before, after) = (segments_before, segment_bytes(dir.path()));
    assert!(after < 10_500_000 && (11_000_000..4 * after).contains(&before), "{before}, {after}, {done:?}");
    let store = Store::open(dir.path(), existing()).unwrap();
    let pairs: Vec<_> = store.scan(..).map(Result::unwrap).collect();
    assert!(pairs.len() == 5000 && pairs.iter().all(|(_, value)| *value == [2; 2000]));
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn salvage_of_a_damaged_store_keeps_tables_deadlines_and_all_intact_pairs() {
    let dir = scratch();
    let store = Store::open(dir.path(), options().tables(true)).unwrap();
    let key = |number: u32| number.to_be_bytes();
    let write = |from: u32, value: u8| {
        let table = store.table("rows").unwrap();
        for number in from..from + 3000 {
            table.put(&key(number), &[value; 200]).unwrap();
        }
    };
    write(0, 1);
    write(1000, 2);
    let long = std::time::Duration::from_secs(100_000);
    store.table("rows").unwrap().put_with(&key(7), b"short", long).unwrap();
    store.put(b"in the first table", b"value").unwrap();
    store.close().unwrap();
    drop(store);
    let rescued = scratch();
    let whole = salvage(dir.path(), &rescued.path().join("whole"), &|_| {}).unwrap();
    assert!(whole.complete && whole.from_leaves == 4001, "{whole:?}");
    assert!(salvage(dir.path(), &rescued.path().join("whole"), &|_| {}).is_err(), "it holds a store");
    // The middle of the largest segment.
    let files = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let segment = files.filter(|path| path.to_string_lossy().contains(".pages-"));
    let segment = segment.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let report = salvage(dir.path(), &rescued.path().join("rest"), &|_| {}).unwrap();
    assert!(!report.complete && report.damaged_leaves == 1, "{report:?}");
    assert!(report.from_leaves > 3800 && report.from_leaves < 4001, "{report:?}");
    for (name, keys) in [("whole", 4000), ("rest", report.from_leaves - 1)] {
        let store = Store::open(rescued.path().join(name), existing()).unwrap();
        let table = store.table("rows").unwrap();
        let found: Vec<_> = table.scan(..).map(Result::unwrap).collect();
        assert!(found.len() as u64 == keys || found.len() as u64 == keys + 1, "{name}: {}", found.len());
        for (found, value) in &found {
            let number = u32::from_be_bytes(found[..].try_into().unwrap());
            let expected =
                if number == 7 { b"short".to_vec() } else { vec![1 + u8::from(number >= 1000); 200] };
            assert!(*value == expected, "{name}, {number}");
        }
        let has_deadline = found.iter().any(|(found, _)| found[..] == key(7));
        assert_eq!(table.count_deadlines(10).unwrap(), u64::from(has_deadline), "{name}");
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

/// Without its identity, the order of its keys tells whether a store has integers or byte strings of the same length.
#[test]
fn the_kind_of_a_store_without_its_identity_is_guessed() {
    let new = |name: &str| {
        let (dir, rescued) = (scratch(), scratch());
        let to = rescued.path().join(name);
        (dir, rescued, to)
    };
    let lose_identity = |dir: &Path, to: &Path| {
        std::fs::remove_file(dir.join(bristlecone::store_dir::FILE_NAME)).unwrap();
        assert!(matches!(Store::open(dir, existing()).map(drop), Err(Error::Incomplete { .. })));
        assert_eq!(salvage(dir, to, &|_| {}).unwrap().from_leaves, 5000);
    };
    let keys: BTreeMap<u64, u64> =
        (0..5000).map(|n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n)).collect();
    let (dir, _rescued, to) = new("integers");
    let store = StoreU64::open(dir.path(), options()).unwrap();
    keys.iter().for_each(|(key, value)| _ = store.put(key, value).unwrap());
    store.close().unwrap();
    drop(store);
    lose_identity(dir.path(), &to);
    let store = StoreU64::open(&to, existing()).unwrap();
    assert!(store.scan(..).map(Result::unwrap).eq(keys.clone()));
    let (dir, _rescued, to) = new("bytes");
    let store = Store::open(dir.path(), options()).unwrap();
    let bytes = |(key, value): (u64, u64)| (key.to_be_bytes(), value.to_be_bytes());
    keys.clone().into_iter().map(bytes).for_each(|(key, value)| _ = store.put(&key, &value).unwrap());
    store.close().unwrap();
    drop(store);
    lose_identity(dir.path(), &to);
    let store = Store::open(&to, existing()).unwrap();
    let expected = keys.into_iter().map(bytes).map(|(key, value)| (key.to_vec(), value.to_vec()));
    assert!(store.scan(..).map(Result::unwrap).eq(expected));
}

#[test]
fn another_kind_engine_or_durability_and_a_second_opener_are_refused() {
    let dir = scratch();
    let store = StoreU64::open(dir.path(), options()).unwrap();
    store.put(&1, &2).unwrap();
    let refused = |result: Result<(), Error>| result.expect_err("it is refused").to_string();
    let open = |options| Store::open(dir.path(), options).map(drop);
    assert!(refused(StoreU64::open(dir.path(), options()).map(drop)).contains("in use by"));
    assert!(matches!(
        StoreU64::open(dir.path(), Options::default().read_only(true)).map(drop),
        Err(Error::InUse { .. })
    ));
    store.close().unwrap();
    drop(store);
    assert!(refused(open(existing())).contains("the kind \"u64\""));
    let other = refused(StoreU64::open(dir.path(), Options::default().engine("line")).map(drop));
    assert!(other.contains("engine bwtree") && other.contains("leave the engine out"), "{other}");
    let power = Options::default().durability(Durability::Power);
    assert!(refused(StoreU64::open(dir.path(), power).map(drop)).contains("made with process durability"));
    // A reader changes nothing and sees everything.
    let reader = StoreU64::open(dir.path(), Options::default().read_only(true)).unwrap();
    assert_eq!(reader.get(&1).unwrap(), Some(2));
    assert!(matches!(reader.put(&1, &3), Err(Error::Pmem(pmem::Error::ReadOnly))));
    drop(reader);
    // A store of another engine is not taken for one in files.
    let region = scratch();
    Store::open(region.path(), Options::default().engine("line")).unwrap().close().unwrap();
    assert!(refused(Store::open(region.path(), options()).map(drop)).contains("holds a durable store"));
}

#[test]
fn a_store_that_cannot_be_made_leaves_nothing_and_a_removed_one_neither() {
    let dir = scratch();
    let path = dir.path().join("store");
    let tiny = options().memory_bytes(1 << 20);
    assert!(Store::open(&path, tiny).is_err());
    assert!(!path.exists());
    let store = Store::open(&path, options()).unwrap();
    store.put(b"key", b"value").unwrap();
    drop(store);
    bristlecone::store_dir::StoreDir::remove(&path).unwrap();
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    // Files whose identity was moved away are not overwritten.
    let store = Store::open(&path, options()).unwrap();
    store.put(b"key", b"value").unwrap();
    drop(store);
    let (identity, aside) = (path.join(bristlecone::store_dir::FILE_NAME), dir.path().join("aside"));
    std::fs::rename(&identity, &aside).unwrap();
    for options in [options(), Options::default()] {
        let error = Store::open(&path, options).map(drop).expect_err("a store is lost").to_string();
        assert!(error.contains("put the store's file back"), "{error}");
    }
    std::fs::rename(&aside, &identity).unwrap();
    let store = Store::open(&path, existing()).unwrap();
    assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    drop(store);
    // A damaged identity is no reason to make a new store.
    let store = Store::open(&path, options()).unwrap();
    store.put(b"key", b"value").unwrap();
    drop(store);
    let file = path.join(bristlecone::store_dir::FILE_NAME);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[30] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let error = Store::open(&path, Options::default()).map(drop).expect_err("damaged").to_string();
    assert!(error.contains("its header is damaged"), "{error}");
}
