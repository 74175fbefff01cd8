//! Snapshots, rollback and named versions of a store, over memory and over a journal, beside writers and across restarts.
//!
//! `BRISTLECONE_CHANGES` sets the number of changes beside a snapshot (default 60,000).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{number_from, scratch};
use bristlecone::{Durability, Error, Kind, Options, Retain, Scan, Store, StoreU64, WriteOptions, registry};

/// Every engine with versions, over memory and over a journal.
fn engines() -> impl Iterator<Item = (&'static str, bool)> {
    let has_past = |name: &&str| registry::find(name).unwrap().capabilities.versions;
    registry::names().filter(has_past).flat_map(|engine| [(engine, false), (engine, true)])
}

/// The pairs of a walk in key order.
fn by_key<K: Kind>(pairs: Scan<'_, K>) -> Vec<(K::KeyBuf, K::ValueBuf)> {
    let mut pairs: Vec<_> = pairs.map(Result::unwrap).collect();
    pairs.sort_by(|one, other| one.0.cmp(&other.0));
    pairs
}

fn options(engine: &str, journaled: bool) -> Options {
    let options = Options::default().engine(engine).max_bytes(1 << 32);
    match journaled {
        true => options.journal_bytes(16 << 20),
        false if engine == "btree" => options,
        false => options.durability(Durability::Process),
    }
}

/// All numbers of 0..n in a random order.
fn mixed(n: u64) -> impl Iterator<Item = u64> {
    (0..n).map(move |i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % n)
}

#[test]
fn a_snapshot_scans_the_same_beside_writers_and_its_space_comes_back() {
    for (engine, journaled) in engines() {
        let dir = scratch();
        let store = StoreU64::open(dir.path(), options(engine, journaled)).unwrap();
        let quick = store.with(WriteOptions { sync: false });
        let updates = number_from("BRISTLECONE_CHANGES", 60_000);
        let keys = updates / 3;
        (0..keys).for_each(|key| _ = quick.put(&key, &key).unwrap());
        let before = store.snapshot().unwrap();
        let expected: Vec<(u64, u64)> = (0..keys).map(|key| (key, key)).collect();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (i, key) in mixed(updates).enumerate() {
                    if i % 3 == 0 {
                        quick.delete(&(key % keys)).unwrap();
                    } else {
                        quick.put(&(key % keys), &(keys + i as u64)).unwrap();
                    }
                }
                is_done.store(true, Ordering::Release);
            });
            let mut scans = 0;
            while !is_done.load(Ordering::Acquire) || scans < 3 {
                let found = by_key(before.walk());
                assert!(found == expected, "{engine}, journaled: {journaled}");
                assert_eq!(before.get(&(scans * 77 % keys)).unwrap(), Some(scans * 77 % keys));
                scans += 1;
            }
        });
        if store.capabilities().ordered {
            let mut backward: Vec<_> = before.scan(..).descending().map(Result::unwrap).collect();
            backward.reverse();
            assert!(backward == expected);
        } else {
            let error = before.scan(..).next().unwrap().unwrap_err();
            assert!(matches!(error, Error::Unordered { .. }), "{error}");
        }
        assert_eq!((before.keys(), store.check().unwrap().problems), (Some(keys), Vec::new()));
        let with_past = store.space().live_bytes;
        drop(before);
        if !store.capabilities().ordered {
            // Nodes of buckets with keys stay and keep free slots. A round of updates takes space for its versions that are not durable
            // yet. Later rounds take no more.
            let sizes: Vec<u64> = (0..8)
                .map(|_| {
                    for (i, key) in mixed(updates).enumerate() {
                        quick.put(&(key % keys), &(i as u64)).unwrap();
                    }
                    store.commit().unwrap();
                    store.space().live_bytes
                })
                .collect();
            assert!(sizes[7] <= sizes[3] * 5 / 4, "{engine}, journaled: {journaled}: {sizes:?} bytes");
            assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
            continue;
        }
        // The collector runs concurrently, in its share of time.
        let mut now = with_past;
        for _ in 0..2400 {
            now = store.space().live_bytes;
            if now < with_past * 3 / 4 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert!(now < with_past * 3 / 4, "{now} of {with_past} bytes");
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn a_rollback_restores_what_was_there_and_younger_views_say_so() {
    for (engine, journaled) in engines() {
        let dir = scratch();
        // Versions of a store without tables know their number of keys.
        let plain = options(engine, journaled).tables(false);
        let store = Store::open(dir.path(), plain).unwrap();
        (0..500).for_each(|n| _ = store.with(WriteOptions { sync: false }).put(&key(n), b"old").unwrap());
        let before = store.snapshot().unwrap();
        store.keep("named before").unwrap();
        let mut batch = store.batch();
        (0..400).for_each(|n| _ = batch.put(&key(n), b"new"));
        (400..500).for_each(|n| _ = batch.delete(&key(n)));
        assert!(batch.commit().unwrap());
        let after = store.snapshot().unwrap();
        store.keep("named after").unwrap();
        store.put(b"more", b"").unwrap();
        store.roll_back(&before).unwrap();
        let found = by_key(store.walk());
        let expected: BTreeMap<_, _> = (0..500).map(|n| (key(n), b"old".to_vec())).collect();
        assert!(found.into_iter().eq(expected));
        assert_eq!((store.len().keys, store.check().unwrap().problems), (500, Vec::new()));
        for error in [after.get(b"more").unwrap_err(), store.roll_back(&after).unwrap_err()] {
            assert!(
                error.to_string().contains("removed by a rollback") || error.to_string().contains("not kept"),
                "{error}"
            );
        }
        let names = store.versions().unwrap().named;
        assert_eq!(names.iter().map(|named| named.name.as_str()).collect::<Vec<_>>(), ["named before"]);
        store.put(b"later", b"1").unwrap();
        store.close().unwrap();
        drop((before, after));
        drop(store);
        let store = Store::open(dir.path(), Options::default()).unwrap();
        let named = store.snapshot_named("named before").unwrap();
        assert_eq!((named.keys(), named.get(b"later").unwrap()), (Some(500), None));
        assert!(matches!(store.snapshot_named("named after"), Err(Error::Option(_))));
        store.roll_back(&named).unwrap();
        assert_eq!(store.get(b"later").unwrap(), None);
        store.forget("named before").unwrap();
        assert!(store.forget("named before").unwrap_err().to_string().contains("no version named"));
    }
}

fn key(n: u32) -> Vec<u8> {
    format!("key {n:05}").into_bytes()
}

#[test]
fn versions_are_retained_by_count_and_by_age() {
    engines().filter(|(_, journaled)| !journaled).for_each(|(engine, _)| retains(engine));
}

fn retains(engine: &str) {
    let dir = scratch();
    let store = StoreU64::open(dir.path(), options(engine, false)).unwrap();
    store.retain(Retain::Versions(50)).unwrap();
    (0..200).for_each(|n| _ = store.put(&1, &n).unwrap());
    let newest = store.versions().unwrap().newest;
    for back in 0..50 {
        assert_eq!(store.snapshot_at(newest - back).unwrap().get(&1).unwrap(), Some(199 - back));
    }
    store.retain(Retain::Age(std::time::Duration::from_secs(3600))).unwrap();
    let since = store.versions().unwrap().newest;
    (0..500).for_each(|n| _ = store.put(&1, &n).unwrap());
    assert_eq!(store.snapshot_at(since).unwrap().get(&1).unwrap(), Some(199));
    assert_eq!(store.snapshot_at(since + 400).unwrap().get(&1).unwrap(), Some(399));
    store.retain(Retain::Newest).unwrap();
    // The collector removes old versions with a delay.
    for n in 0.. {
        let Err(error) = store.snapshot_at(since) else {
            store.put(&1, &n).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
            continue;
        };
        assert!(error.to_string().contains("is not kept"), "{error}");
        break;
    }
}

/// Every engine with volatile snapshots, over memory and over a journal.
fn volatile() -> impl Iterator<Item = (&'static str, bool)> {
    let is_volatile = |name: &&str| {
        let can = registry::find(name).unwrap().capabilities;
        can.snapshots && !can.versions
    };
    registry::names().filter(is_volatile).flat_map(|engine| [(engine, false), (engine, true)])
}

#[test]
fn a_read_transaction_of_any_ordered_engine_shows_what_was_there() {
    let mut engines = 0;
    for (engine, journaled) in volatile() {
        if journaled && !registry::find(engine).unwrap().capabilities.durable {
            continue;
        }
        let dir = scratch();
        let options = options(engine, journaled).snapshot_bytes(40_000);
        let store = StoreU64::open(dir.path(), options).unwrap();
        let quick = store.with(WriteOptions { sync: false });
        (0..900).for_each(|key| _ = quick.put(&key, &key).unwrap());
        let before = store.read_transaction().unwrap();
        let mut batch = quick.batch();
        (0..100).for_each(|key| _ = batch.delete(&key));
        assert!(batch.commit().unwrap());
        (80..200).for_each(|key| _ = quick.put(&key, &0).unwrap());
        quick.delete(&250).unwrap();
        let expected: Vec<(u64, u64)> = (0..900).map(|key| (key, key)).collect();
        assert_eq!(by_key(before.scan(..)), expected, "{engine}");
        let down: Vec<_> = before.scan(10..=30).descending().map(|pair| pair.unwrap().0).collect();
        assert!(down.into_iter().eq((10..=30).rev()), "{engine}");
        assert!(before.contains(&250).unwrap() && !before.contains(&1000).unwrap());
        assert_eq!((before.get(&5).unwrap(), before.version()), (Some(5), None));
        let younger = store.snapshot().unwrap();
        (300..600).for_each(|key| _ = quick.put(&key, &0).unwrap());
        let error = before.get(&5).unwrap_err().to_string();
        assert!(
            error.contains("`snapshot_bytes`") && error.contains("--snapshot-memory"),
            "{engine}: {error}"
        );
        assert_eq!((younger.get(&5).unwrap(), younger.get(&400).unwrap()), (None, Some(400)), "{engine}");
        assert!(store.roll_back(&younger).unwrap_err().to_string().contains("keeps no versions"));
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
        engines += 1;
    }
    assert!(engines >= 4, "{engines} engines");
}

#[test]
fn an_engine_without_a_past_says_which_has_one() {
    let dir = scratch();
    let store = StoreU64::open(dir.path(), options("wbtree", false)).unwrap();
    let error = store.keep("now").unwrap_err().to_string();
    assert!(error.contains("wbtree keeps no versions") && error.contains("cdds"), "{error}");
}

/// Many threads write batches of two values that sum to zero. Snapshots are taken meanwhile.
#[test]
fn no_snapshot_sees_half_a_batch() {
    for (engine, journaled) in engines() {
        let dir = scratch();
        let store = StoreU64::open(dir.path(), options(engine, journaled)).unwrap();
        let store = store.with(WriteOptions { sync: false });
        let left = AtomicU64::new(3);
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let (store, left) = (&store, &left);
                scope.spawn(move || {
                    for n in 0..300_u64 {
                        let mut batch = store.batch();
                        batch.put(&(thread * 2), &n).put(&(thread * 2 + 1), &n.wrapping_neg());
                        assert!(batch.commit().unwrap());
                    }
                    left.fetch_sub(1, Ordering::Release);
                });
            }
            while left.load(Ordering::Acquire) > 0 {
                let snapshot = store.snapshot().unwrap();
                let pairs = by_key(snapshot.walk());
                assert_eq!(pairs.iter().fold(0_u64, |sum, (_, value)| sum.wrapping_add(*value)), 0);
                assert_eq!(pairs.len() % 2, 0);
            }
        });
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}
