//! Snapshots, rollback and named versions of a store, over memory and over a journal, beside writers and across restarts. Snapshots of
//! several tables.
//!
//! `BRISTLECONE_CHANGES` sets the number of changes beside a snapshot (default 60,000).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{number_from, scratch};
use crate::tables;
use bristlecone::{
    Bytes, Durability, Error, ErrorKind, Kind, Options, Retain, Scan, Snapshot, Store, StoreU64,
    WriteOptions, registry,
};

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

/// Every engine with snapshots of tables, over memory and over a journal.
fn with_tables() -> impl Iterator<Item = (&'static str, bool)> {
    tables::engines(|can| can.snapshots && can.atomic_batch)
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().unwrap())
}

/// The sum of the values of two tables in a snapshot. A scan and gets must agree.
fn sum(snapshot: &Snapshot<'_, Bytes>, names: [&str; 2]) -> u64 {
    let of = |name| {
        let table = snapshot.table(name).unwrap().expect("the table was there");
        let pairs = by_key(table.scan(..));
        let is_same = |(key, value): &(Vec<u8>, Vec<u8>)| table.get(key).unwrap().as_ref() == Some(value);
        assert!(pairs.iter().all(is_same), "a get and a scan differ");
        pairs.iter().map(|(_, value)| number(value)).sum::<u64>()
    };
    names.map(of).into_iter().sum()
}

/// Threads move amounts between two tables. A reader opens snapshots of either table meanwhile.
#[test]
fn every_snapshot_shows_the_same_moment_of_all_tables() {
    const ACCOUNTS: u8 = 3;
    const START: u64 = 1000;
    const MOVES: u64 = 60;
    let names = ["here", "there"];
    let mut engines = 0;
    for (engine, journaled) in with_tables() {
        let dir = scratch();
        let store = Store::open(dir.path(), options(engine, journaled)).unwrap();
        let pair = names.map(|name| store.table(name).unwrap());
        for table in &pair {
            (0..ACCOUNTS).for_each(|account| _ = table.put(&[account], &START.to_le_bytes()).unwrap());
        }
        std::thread::scope(|scope| {
            let work = |thread: u64| {
                let pair = &pair;
                move || {
                    let mut random = fastrand::Rng::with_seed(thread);
                    for _ in 0..MOVES {
                        let from = random.usize(..2);
                        let keys = [random.u8(..ACCOUNTS), random.u8(..ACCOUNTS)];
                        let moved = pair[0].transaction(|all| {
                            let mut change = |table: usize, key: u8, by: i64| {
                                let mut table = all.table(&pair[table])?;
                                let old = number(&table.get(&[key])?.unwrap());
                                table.put(&[key], &old.saturating_add_signed(by).to_le_bytes())
                            };
                            change(from, keys[0], -1)?;
                            change(1 - from, keys[1], 1)
                        });
                        moved.unwrap();
                    }
                }
            };
            let writers = [0, 1].map(|thread| scope.spawn(work(thread)));
            // The reader may get no processor before the writers end. So it reads once more after them.
            let (mut snapshots, mut is_last) = (0, false);
            while !is_last {
                is_last = writers.iter().all(|writer| writer.is_finished());
                let snapshot = [&pair[0], &pair[1], &store][snapshots % 3].snapshot().unwrap();
                let total = 2 * u64::from(ACCOUNTS) * START;
                assert_eq!(sum(&snapshot, names), total, "{engine}, journaled: {journaled}");
                snapshots += 1;
            }
        });
        engines += 1;
    }
    assert!(engines >= 8, "{engines} engines");
}

/// The pairs of a table in a snapshot, read in every way. `None` if there was no such table.
fn shown(snapshot: &Snapshot<'_, Bytes>, name: &str) -> Option<BTreeMap<Vec<u8>, Vec<u8>>> {
    let table = snapshot.table(name).unwrap()?;
    let pairs: BTreeMap<_, _> = by_key(table.scan(..)).into_iter().collect();
    let mut down: Vec<_> = table.scan(..).descending().map(Result::unwrap).collect();
    down.reverse();
    assert!(pairs.iter().map(|(key, value)| (key.clone(), value.clone())).eq(down));
    let range = key(100)..key(200);
    let within = by_key(table.scan(range.clone())).into_iter().map(|(key, _)| key);
    assert!(within.eq(pairs.range(range).map(|(key, _)| key.clone())));
    assert_eq!(by_key(table.scan_prefix(b"key 001")).len(), pairs.range(key(100)..key(200)).count());
    for n in 0..TABLE_KEYS + 1 {
        assert_eq!(table.get(&key(n)).unwrap().as_ref(), pairs.get(&key(n)), "{name}, {n}");
        assert_eq!(table.contains(&key(n)).unwrap(), pairs.contains_key(&key(n)));
    }
    Some(pairs)
}

const TABLE_KEYS: u32 = 600;

/// Waits until the background has removed stored keys.
fn wait_for_removal(store: &Store, before: u64) {
    let end = Instant::now() + Duration::from_secs(10);
    while store.space().live_bytes >= before && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(store.space().live_bytes < before, "the background removes keys of dropped tables");
}

#[test]
fn what_becomes_of_tables_changes_nothing_in_an_older_snapshot() {
    for (engine, journaled) in with_tables() {
        let context = format!("{engine}, journaled: {journaled}");
        let dir = scratch();
        let now = Arc::new(AtomicU64::new(1000));
        let store = Store::open(dir.path(), options(engine, journaled).clock(tables::clock(&now))).unwrap();
        let quick = store.with(WriteOptions { sync: false });
        let fill = |name: &str, value: &[u8]| {
            let table = quick.table(name).unwrap();
            (0..TABLE_KEYS).for_each(|n| _ = table.put(&key(n), value).unwrap());
            table
        };
        let dropped = fill("dropped", b"of dropped");
        let cleared = fill("cleared", b"of cleared");
        fill("left", b"of left");
        fill("right", b"of right");
        quick.put(&key(5), b"of the default table").unwrap();
        // At the moment of the snapshot the first of these keys has expired, and the second has not.
        cleared.put_until(&key(7), b"", Some(1000)).unwrap();
        cleared.put_until(&key(8), b"8", Some(1001)).unwrap();
        let of = |value: &[u8]| (0..TABLE_KEYS).map(|n| (key(n), value.to_vec())).collect::<BTreeMap<_, _>>();
        let mut of_cleared = of(b"of cleared");
        of_cleared.remove(&key(7));
        of_cleared.insert(key(8), b"8".to_vec());
        let before = store.snapshot().unwrap();
        let live_bytes = store.space().live_bytes;

        assert!(store.drop_table("dropped").unwrap());
        cleared.clear().unwrap();
        assert!(store.swap_tables("left", "right").unwrap());
        fill("left", b"of right, and changed");
        fill("new", b"of new");
        store.clear().unwrap();
        now.store(2000, Ordering::SeqCst);
        if !store.capabilities().versions {
            let added: u64 = store.find_table("new").unwrap().unwrap().count().unwrap();
            assert_eq!(added, u64::from(TABLE_KEYS));
            store.drop_table("new").unwrap();
            wait_for_removal(&store, live_bytes);
        }
        fill("dropped", b"of another table with the same name");
        assert!(dropped.get(&key(1)).is_err(), "{context}: this handle is of the dropped table");

        let same = [("left", &b"of left"[..]), ("right", b"of right"), ("dropped", b"of dropped")];
        for (name, value) in same {
            assert_eq!(shown(&before, name), Some(of(value)), "{context}: {name}");
        }
        assert_eq!(shown(&before, "cleared"), Some(of_cleared), "{context}");
        assert_eq!(shown(&before, "new"), None, "{context}");
        let of_default = BTreeMap::from([(key(5), b"of the default table".to_vec())]);
        assert_eq!(shown(&before, ""), Some(of_default), "{context}");
        let left = before.table("left").unwrap().unwrap();
        assert_eq!(shown(&left, "right"), Some(of(b"of right")), "{context}: by another table's view");
        // A snapshot of this moment.
        let after = cleared.snapshot().unwrap();
        assert_eq!(shown(&after, "left"), Some(of(b"of right, and changed")), "{context}");
        assert_eq!(shown(&after, "right"), Some(of(b"of left")), "{context}");
        assert_eq!(shown(&after, "cleared"), Some(BTreeMap::new()), "{context}");
        assert_eq!(shown(&after, "dropped"), Some(of(b"of another table with the same name")), "{context}");
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new(), "{context}");
    }
}

#[test]
fn a_snapshot_that_lost_its_before_images_fails_in_every_table() {
    for (engine, journaled) in with_tables().filter(|(engine, _)| !engine.starts_with("cdds")) {
        let dir = scratch();
        let options = options(engine, journaled).snapshot_bytes(10_000);
        let store = Store::open(dir.path(), options).unwrap();
        let quick = store.with(WriteOptions { sync: false });
        let table = quick.table("users").unwrap();
        (0..TABLE_KEYS).for_each(|n| _ = table.put(&key(n), b"old").unwrap());
        let before = store.snapshot().unwrap();
        let users = before.table("users").unwrap().unwrap();
        (0..TABLE_KEYS).for_each(|n| _ = table.put(&key(n), b"new").unwrap());
        let errors = [
            users.get(&key(1)).unwrap_err(),
            users.scan(..).next().unwrap().unwrap_err(),
            before.table("users").unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Expired, "{engine}: {error}");
        }
        // A younger snapshot goes on.
        let after = store.snapshot().unwrap();
        assert_eq!(
            after.table("users").unwrap().unwrap().get(&key(1)).unwrap().as_deref(),
            Some(&b"new"[..])
        );
    }
}

#[test]
fn versions_show_all_tables_and_a_store_without_tables_says_so() {
    for (engine, journaled) in with_tables().filter(|(engine, _)| *engine == "cdds") {
        let dir = scratch();
        let store = Store::open(dir.path(), options(engine, journaled)).unwrap();
        store.table("users").unwrap().put(&key(1), b"old").unwrap();
        store.keep("before").unwrap();
        let version = store.versions().unwrap().newest;
        store.drop_table("users").unwrap();
        store.table("later").unwrap().put(&key(1), b"new").unwrap();
        let old = Some(BTreeMap::from([(key(1), b"old".to_vec())]));
        for before in [store.snapshot_named("before").unwrap(), store.snapshot_at(version).unwrap()] {
            assert_eq!((shown(&before, "users"), shown(&before, "later")), (old.clone(), None));
        }
        let after = store.snapshot().unwrap();
        let later = after.table("later").unwrap().unwrap();
        store.roll_back_to(version).unwrap();
        assert!(later.get(&key(1)).is_err() && after.table("later").is_err());
        assert_eq!(shown(&store.snapshot().unwrap(), "users"), old);
    }
    let dir = scratch();
    let store = Store::open(dir.path(), options("wbtree", false).tables(false)).unwrap();
    let error = store.snapshot().unwrap().table("users").unwrap_err();
    assert!(matches!(error, Error::NoTables), "{error}");
}
