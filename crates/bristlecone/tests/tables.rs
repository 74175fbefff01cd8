//! Tables and deadlines: a model of several tables on every engine, in memory and over a journal, across reopens, backups, compactions and
//! salvage; clocks that jump; transactions that scan.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{self, has_region, options, scratch};
use crate::power::Life;
use bristlecone::{
    Bytes, Capabilities, Clock, Count, Error, ErrorKind, Options, Store, StoreU64, compact, registry, salvage,
};
use crash::{Fault, Machine};

/// The engines that can have tables, each in memory and, if it is durable, over a journal or in files of its own.
pub fn engines(wanted: fn(&Capabilities) -> bool) -> impl Iterator<Item = (&'static str, bool)> {
    let ordered = common::engines(|can| can.ordered);
    let all: Vec<_> = common::engines(wanted).collect();
    ordered.filter(move |engine| all.contains(engine))
}

/// A clock that a test sets.
pub fn clock(now: &Arc<AtomicU64>) -> Clock {
    let now = Arc::clone(now);
    Clock::new(move || now.load(Ordering::SeqCst))
}

type Pairs = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

/// Tables as maps.
#[derive(Clone, Default, Debug)]
struct Model {
    tables: BTreeMap<String, Pairs>,
    now: u64,
}

impl Model {
    fn visible(&self, name: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let lives = |(_, (_, deadline)): &(&Vec<u8>, &(Vec<u8>, Option<u64>))| {
            deadline.is_none_or(|at| at > self.now)
        };
        let pairs = self.tables[name].iter().filter(lives);
        pairs.map(|(key, (value, _))| (key.clone(), value.clone())).collect()
    }

    fn get(&self, name: &str, key: &[u8]) -> Option<&(Vec<u8>, Option<u64>)> {
        self.tables[name].get(key).filter(|(_, deadline)| deadline.is_none_or(|at| at > self.now))
    }
}

fn check(store: &Store, model: &Model, context: &str) {
    let listed = store.list_tables().unwrap();
    assert!(listed.iter().map(|(name, _)| name).eq(model.tables.keys()), "{context}");
    for name in model.tables.keys() {
        let table = store.find_table(name).unwrap().unwrap();
        let found: BTreeMap<_, _> = table.scan(..).map(Result::unwrap).collect();
        assert_eq!(found, model.visible(name), "{context}, table {name:?}");
        assert!(common::visited(table.scan(..)).into_iter().eq(found.clone()), "{context}, table {name:?}");
        let back: Vec<_> = table.scan(..).descending().map(|pair| pair.unwrap().0).collect();
        assert!(back.iter().rev().eq(found.keys()), "{context}, table {name:?}");
        let (low, high) = (Bound::Excluded(b"k3".to_vec()), Bound::Included(b"k7".to_vec()));
        let part = common::visited(table.scan((low.clone(), high.clone())).descending());
        assert!(
            part.into_iter()
                .rev()
                .eq(found.range((low, high)).map(|(key, value)| (key.clone(), value.clone())))
        );
        for (key, (value, deadline)) in &model.tables[name] {
            let live = deadline.is_none_or(|at| at > model.now);
            assert_eq!(table.get(key).unwrap(), live.then(|| value.clone()), "{context}");
            assert_eq!(table.deadline(key).unwrap(), live.then_some(*deadline), "{context}");
        }
        // Keys whose deadline has passed count until they are removed.
        let keys = table.count().unwrap();
        let stored = model.tables[name].len() as u64;
        assert!(
            (found.len() as u64..=stored).contains(&keys),
            "{context}: {keys} keys of {name:?}, {stored} at most"
        );
    }
    let report = store.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new(), "{context}");
}

/// One random step on the store and the model.
fn step(
    store: &Store,
    model: &mut Model,
    now: &AtomicU64,
    rng: &mut fastrand::Rng,
    can_batch: bool,
    context: &str,
) {
    let names: Vec<_> = model.tables.keys().cloned().collect();
    let name = rng.choice(&names).unwrap().clone();
    let table = store.table(&name).unwrap();
    let key = format!("{}{}", ["k", "a rather longer key "][rng.usize(..2)], rng.u8(..24)).into_bytes();
    let value = vec![rng.u8(..); rng.usize(..100)];
    let deadline = rng.bool().then(|| model.now + rng.u64(1..40));
    let before = model.get(&name, &key).cloned();
    let pairs = model.tables.get_mut(&name).unwrap();
    match rng.u8(..20) {
        0..4 => {
            assert_eq!(table.put(&key, &value).unwrap(), before.is_some(), "{context}");
            pairs.insert(key, (value, None));
        }
        4..7 => {
            table.put_until(&key, &value, deadline).unwrap();
            pairs.insert(key, (value, deadline));
        }
        7 => {
            assert_eq!(table.expire_at(&key, deadline).unwrap(), before.is_some(), "{context}");
            if let Some((value, _)) = before {
                pairs.insert(key, (value, deadline));
            }
        }
        8 => {
            let had_one = before.as_ref().is_some_and(|(_, deadline)| deadline.is_some());
            assert_eq!(table.persist(&key).unwrap(), had_one, "{context}");
            if let Some((value, _)) = before {
                pairs.insert(key, (value, None));
            }
        }
        9..11 => {
            assert_eq!(table.delete(&key).unwrap(), before.is_some(), "{context}");
            pairs.remove(&key);
        }
        11 => {
            // An update keeps the deadline.
            let new = [before.as_ref().map_or(&[][..], |(value, _)| &value[..]), b"+"].concat();
            table.update(&key, |_| bristlecone::Change::Put(new.clone().into())).unwrap();
            pairs.insert(key, (new, before.and_then(|(_, deadline)| deadline)));
        }
        12..14 if can_batch => {
            // Two tables in one step, with a read and a scan.
            let other = rng.choice(&names).unwrap().clone();
            let second = store.table(&other).unwrap();
            let expected: Vec<_> = model.visible(&name).into_iter().collect();
            store
                .transaction(|transaction| {
                    let mut first = transaction.table(&table)?;
                    let mut seen = Vec::new();
                    first.scan(.., false, |key, value| {
                        seen.push((key.to_vec(), value.to_vec()));
                        true
                    })?;
                    assert_eq!(seen, expected, "{context}");
                    first.put_until(&key, &value, deadline)?;
                    assert_eq!(first.get_until(&key)?, Some((value.clone(), deadline)), "{context}");
                    transaction.table(&second)?.delete(b"k7")?;
                    Ok(())
                })
                .unwrap();
            model.tables.get_mut(&name).unwrap().insert(key, (value, deadline));
            model.tables.get_mut(&other).unwrap().remove(&b"k7"[..]);
        }
        14 => {
            table.clear().unwrap();
            pairs.clear();
        }
        15 => {
            let other = rng.choice(&names).unwrap().clone();
            assert!(store.swap_tables(&name, &other).unwrap());
            let (one, two) = (model.tables[&name].clone(), model.tables[&other].clone());
            model.tables.insert(name, two);
            model.tables.insert(other, one);
        }
        16 => {
            let new = format!("table {}", rng.u8(..4));
            assert!(store.table(&new).unwrap().has_tables());
            model.tables.entry(new).or_default();
        }
        17 => {
            assert!(store.drop_table(&name).unwrap());
            if name.is_empty() {
                model.tables.insert(name, Pairs::new());
            } else {
                assert!(matches!(table.get(&key), Err(Error::Pmem(pmem::Error::Dropped))), "{context}");
                assert_eq!(table.put(&key, &value).unwrap_err().kind(), ErrorKind::Closed);
                model.tables.remove(&name);
            }
        }
        _ => {
            model.now += rng.u64(..10);
            now.store(model.now, Ordering::SeqCst);
        }
    }
}

#[test]
fn tables_and_deadlines_agree_with_maps_across_reopens() {
    for (engine, journaled) in engines(|_| true) {
        // The year 2100: compaction and salvage judge by the wall clock, and must not remove what the test still has.
        let start = 4_102_444_800_000;
        let (dir, now) = (scratch(), Arc::new(AtomicU64::new(start)));
        let opts = || options(engine, journaled).tables(true).clock(clock(&now));
        let mut store = Store::open(dir.path(), opts()).unwrap();
        let (can_batch, is_durable) = (store.capabilities().atomic_batch, store.capabilities().durable);
        let mut model = Model { now: start, ..Model::default() };
        model.tables.insert(String::new(), Pairs::new());
        let mut rng = fastrand::Rng::with_seed(11);
        for round in 0..6 {
            for number in 0..crash::by_tier(60, 400) {
                let context = format!("{engine}, journal {journaled}, round {round}, step {number}");
                step(&store, &mut model, &now, &mut rng, can_batch, &context);
                if number % 30 == 0 {
                    check(&store, &model, &context);
                }
            }
            if is_durable {
                if round % 2 == 0 {
                    store.close().unwrap();
                }
                drop(store);
                store = Store::open(dir.path(), opts()).unwrap();
                check(&store, &model, &format!("{engine}, journal {journaled}, reopened in round {round}"));
            }
        }
        if !is_durable {
            continue;
        }
        let context = format!("{engine}, journal {journaled}");
        let copy = scratch();
        let backup = copy.path().join("backup");
        store.backup(&backup, |_, _| {}).unwrap();
        store.close().unwrap();
        drop(store);
        check(&Store::open(&backup, opts()).unwrap(), &model, &format!("{context}, the backup"));
        if !has_region(engine) {
            continue;
        }
        compact(&backup, &|_, _| {}).unwrap();
        check(&Store::open(&backup, opts()).unwrap(), &model, &format!("{context}, compacted"));
        let salvaged = copy.path().join("salvaged");
        let report = salvage(dir.path(), &salvaged, &|_| {}).unwrap();
        assert!(!report.superblock_lost, "{context}: {report:?}");
        let restored = Store::open(&salvaged, Options::default().clock(clock(&now))).unwrap();
        for name in model.tables.keys() {
            let table = restored.find_table(name).unwrap().unwrap();
            let found: BTreeMap<_, _> = table.scan(..).map(Result::unwrap).collect();
            assert_eq!(found, model.visible(name), "{context}, salvaged");
        }
    }
}

/// The background removes expired keys and their entries, the count follows, and a store without deadlines is left.
#[test]
fn expired_keys_are_removed_in_the_background_and_the_rest_stays() {
    for (engine, journaled) in engines(|_| true) {
        let (dir, now) = (scratch(), Arc::new(AtomicU64::new(5)));
        let opts = options(engine, journaled).tables(true).clock(clock(&now));
        let store = Store::open(dir.path(), opts).unwrap();
        for number in 0..300_u32 {
            store.put_until(&number.to_be_bytes(), b"v", Some(10 + u64::from(number % 2) * 1000)).unwrap();
        }
        // An overwritten deadline leaves no key that its old entry could remove.
        store.put(&0_u32.to_be_bytes(), b"stays").unwrap();
        now.store(11, Ordering::SeqCst);
        assert_eq!(store.scan(..).count(), 151, "{engine}: at once");
        until(|| store.len().keys == 151, || format!("{engine}: {:?}", store.len()));
        assert_eq!(store.get(&0_u32.to_be_bytes()).unwrap().as_deref(), Some(&b"stays"[..]));
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new(), "{engine}");
    }
}

fn until(mut is_done: impl FnMut() -> bool, state: impl Fn() -> String) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !is_done() {
        assert!(std::time::Instant::now() < end, "{}", state());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A clock that jumps forward expires keys early; one that jumps back shows keys again that were not removed yet, and no others.
#[test]
fn a_clock_that_jumps_moves_deadlines_and_loses_no_other_key() {
    let (dir, now) = (scratch(), Arc::new(AtomicU64::new(1_000_000)));
    let opts = Options::default().tables(true).clock(clock(&now));
    let store = Store::open(dir.path(), opts).unwrap();
    store.put_with(b"session", b"Ada", Duration::from_secs(60)).unwrap();
    store.put(b"lasting", b"value").unwrap();
    let left = || store.ttl(b"session").unwrap().flatten().map(|left| left.as_millis());
    assert_eq!((left(), store.deadline(b"session").unwrap()), (Some(60_000), Some(Some(1_060_000))));
    now.store(900_000, Ordering::SeqCst);
    assert_eq!(left(), Some(160_000));
    now.store(1_060_000, Ordering::SeqCst);
    assert_eq!(
        (store.get(b"session").unwrap(), store.deadline(b"session").unwrap(), left()),
        (None, None, None)
    );
    until(|| store.len().keys == 1, || format!("{:?}", store.len()));
    now.store(0, Ordering::SeqCst);
    assert_eq!(store.get(b"session").unwrap(), None, "it was removed");
    assert_eq!(store.get(b"lasting").unwrap().as_deref(), Some(&b"value"[..]));
}

/// Deadlines are listed in their order, in steps, over all tables. A key that was removed or got another deadline is listed once at most.
#[test]
fn expiring_keys_are_listed_by_deadline_in_steps() {
    let (dir, now) = (scratch(), Arc::new(AtomicU64::new(1_000_000)));
    let store = Store::open(dir.path(), Options::default().clock(clock(&now))).unwrap();
    let other = store.table("other").unwrap();
    assert!(store.expiring(&mut Vec::new(), 10).unwrap().is_empty());
    for number in 0..100_u64 {
        let (table, deadline) =
            (if number % 3 == 0 { &other } else { &store }, 2_000_000 + number * 37 % 100);
        table.put_until(&number.to_be_bytes(), b"v", Some(deadline)).unwrap();
    }
    store.delete(&1_u64.to_be_bytes()).unwrap();
    store.persist(&2_u64.to_be_bytes()).unwrap();
    other.put_until(&3_u64.to_be_bytes(), b"v", Some(1_999_999)).unwrap();
    let (mut position, mut all) = (Vec::new(), Vec::new());
    loop {
        let some = store.expiring(&mut position, 7).unwrap();
        assert!(some.len() <= 7);
        all.extend(some);
        if position.is_empty() {
            break;
        }
    }
    assert_eq!(all.len(), 98);
    assert!(all.is_sorted_by_key(|expiring| expiring.deadline));
    let number = |key: &[u8]| u64::from_be_bytes(key.try_into().unwrap());
    assert_eq!((number(&all[0].key), all[0].table.as_str(), all[0].deadline), (3, "other", 1_999_999));
    for expiring in &all[1..] {
        let key = number(&expiring.key);
        assert_eq!(expiring.deadline, 2_000_000 + key * 37 % 100);
        assert_eq!(expiring.table, if key % 3 == 0 { "other" } else { "" });
    }
    // After the last one, the list begins again. A store without tables has none.
    assert_eq!(store.expiring(&mut position, 1).unwrap()[0].deadline, 1_999_999);
    let plain = scratch();
    let plain = Store::open(plain.path(), Options::default().tables(false)).unwrap();
    assert!(matches!(plain.expiring(&mut Vec::new(), 1), Err(Error::NoTables)));
}

/// A cleared or dropped table frees its keys and later its number.
#[test]
fn the_background_removes_the_keys_of_cleared_and_dropped_tables() {
    let dir = scratch();
    let store = Store::open(dir.path(), Options::default().tables(true)).unwrap();
    let other = store.table("other").unwrap();
    for number in 0..5000_u32 {
        store.put(&number.to_be_bytes(), &[7; 50]).unwrap();
        other.put(&number.to_be_bytes(), &[7; 50]).unwrap();
    }
    let full = store.space().live_bytes;
    store.clear().unwrap();
    assert!(store.drop_table("other").unwrap() && !store.drop_table("other").unwrap());
    assert_eq!(store.len(), Count { keys: 0, pending: false });
    assert!(store.is_empty().unwrap());
    until(|| store.space().live_bytes < full / 20, || format!("{:?} of {full}", store.space()));
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// A rollback restores every table, its name, its deadlines and its count.
#[test]
fn a_rollback_restores_tables_and_deadlines() {
    for (engine, journaled) in engines(|can| can.versions) {
        let (dir, now) = (scratch(), Arc::new(AtomicU64::new(100)));
        let opts = options(engine, journaled).tables(true).clock(clock(&now));
        let store = Store::open(dir.path(), opts).unwrap();
        let table = store.table("kept").unwrap();
        table.put_until(b"a", b"old", Some(500)).unwrap();
        store.put(b"b", b"old").unwrap();
        let before = store.snapshot().unwrap();
        store.keep("before").unwrap();
        table.persist(b"a").unwrap();
        table.put(b"c", b"new").unwrap();
        store.clear().unwrap();
        store.table("later").unwrap().put(b"d", b"new").unwrap();
        store.drop_table("kept").unwrap();
        assert_eq!(store.snapshot_named("before").unwrap().get(b"b").unwrap().as_deref(), Some(&b"old"[..]));
        store.roll_back(&before).unwrap();
        let names: Vec<_> = store.list_tables().unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["", "kept"], "{engine}");
        let table = store.table("kept").unwrap();
        assert_eq!(table.deadline(b"a").unwrap(), Some(Some(500)), "{engine}");
        assert_eq!((table.get(b"c").unwrap(), store.get(b"b").unwrap()), (None, Some(b"old".to_vec())));
        assert_eq!((store.count().unwrap(), table.count().unwrap()), (1, 1), "{engine}");
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new(), "{engine}");
        now.store(500, Ordering::SeqCst);
        assert_eq!(table.get(b"a").unwrap(), None);
        until(|| table.len().keys == 0, || format!("{engine}: {:?}", table.len()));
    }
}

/// A transaction that read a range conflicts with a key that another writer adds to it, removes from it, or changes in it, and with nothing
/// outside of it.
#[test]
fn a_scan_in_a_transaction_is_protected_from_phantoms() {
    for (engine, journaled) in engines(|can| can.atomic_batch) {
        let dir = scratch();
        let store = Store::open(dir.path(), options(engine, journaled).tables(true)).unwrap();
        for key in 10..20_u8 {
            store.put(&[key], b"v").unwrap();
        }
        let range = || vec![10]..vec![15];
        let conflicts = |disturb: &dyn Fn()| {
            let mut transaction = bristlecone::Transaction::new(&store);
            let mut seen = 0;
            let count = |_: &[u8], _: &[u8]| {
                seen += 1;
                true
            };
            transaction.own().scan(range(), false, count).unwrap();
            transaction.put(b"sum", &[seen]).unwrap();
            disturb();
            !transaction.commit().unwrap()
        };
        assert!(!conflicts(&|| {}), "{engine}");
        assert!(!conflicts(&|| _ = store.put(&[15], b"outside").unwrap()), "{engine}");
        assert!(conflicts(&|| _ = store.put(&[12, 0], b"phantom").unwrap()), "{engine}");
        assert!(conflicts(&|| _ = store.delete(&[12, 0]).unwrap()), "{engine}");
        assert!(conflicts(&|| _ = store.put(&[14], b"changed").unwrap()), "{engine}");
        // A scan that stopped depends on nothing behind its last pair.
        let mut transaction = bristlecone::Transaction::new(&store);
        transaction.own().scan(.., true, |key, _| key != [18]).unwrap();
        transaction.put(b"sum", b"").unwrap();
        store.put(&[16], b"behind").unwrap();
        assert!(transaction.commit().unwrap(), "{engine}");
        // One that stopped at its own write, after it had met the end of the stored keys, depends on all of them.
        let mut transaction = bristlecone::Transaction::new(&store);
        transaction.put(&[205], b"own").unwrap();
        transaction.own().scan(vec![200]..vec![210], false, |_, _| false).unwrap();
        store.put(&[203], b"phantom").unwrap();
        assert!(!transaction.commit().unwrap(), "{engine}");
    }
}

/// Threads that insert the next number of a table, found by a scan: no number is given twice.
#[test]
fn transactions_with_scans_of_many_threads_are_serializable() {
    for (engine, journaled) in engines(|can| can.atomic_batch) {
        let dir = scratch();
        let store = Store::open(dir.path(), options(engine, journaled).tables(true)).unwrap();
        let log = store.table("log").unwrap();
        let given: Vec<u32> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let next = || {
                            store.transaction(|transaction| {
                                let mut log = transaction.table(&log)?;
                                let mut next = 0;
                                log.scan(.., true, |key, _| {
                                    next = u32::from_be_bytes(key.try_into().unwrap()) + 1;
                                    false
                                })?;
                                log.put(&next.to_be_bytes(), b"entry")?;
                                Ok(next)
                            })
                        };
                        (0..40).map(|_| next().unwrap()).collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let mut given = given;
        given.sort_unstable();
        assert_eq!(given, (0..120).collect::<Vec<_>>(), "{engine}, journal {journaled}");
        assert_eq!(log.count().unwrap(), 120);
    }
}

/// Writers of deadlines, of plain values and deletes on the same few keys: at the end every deadline has its entry, and the counts are exact.
#[test]
fn deadlines_of_many_threads_keep_their_entries_and_counts() {
    for (engine, journaled) in engines(|_| true) {
        let (dir, now) = (scratch(), Arc::new(AtomicU64::new(0)));
        let opts = options(engine, journaled).tables(true).clock(clock(&now));
        let store = Store::open(dir.path(), opts).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (store, now) = (&store, &now);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(thread);
                    for _ in 0..400 {
                        let key = [rng.u8(..6)];
                        match rng.u8(..8) {
                            0..3 => {
                                let deadline = now.load(Ordering::SeqCst) + rng.u64(..20);
                                store.put_until(&key, b"d", Some(deadline)).unwrap();
                            }
                            3 => _ = store.persist(&key).unwrap(),
                            4 => _ = store.delete(&key).unwrap(),
                            5 => _ = now.fetch_add(1, Ordering::SeqCst),
                            _ => _ = store.put(&key, b"plain").unwrap(),
                        }
                    }
                });
            }
        });
        let report = store.check().unwrap();
        assert_eq!(report.problems, Vec::<String>::new(), "{engine}, journal {journaled}");
        now.store(u64::MAX / 2, Ordering::SeqCst);
        let lasting = store.scan(..).count() as u64;
        until(
            || store.len().keys == lasting,
            || format!("{engine}: {:?}, {lasting} are visible", store.len()),
        );
    }
}

/// A change of the catalog whose sync fails is not visible.
#[test]
fn a_table_that_could_not_be_cleared_dropped_or_swapped_durably_keeps_its_keys() {
    type Change = fn(&Store) -> Result<(), Error>;
    type Values = [Option<&'static str>; 2];
    // Each change, and what it leaves of both tables.
    let changes: [(&str, Change, Values); 5] = [
        ("clear", |store| store.clear(), [None, Some("other")]),
        ("clear all", |store| store.clear_all(), [None, None]),
        ("clear all but one", |store| store.clear_all_but(&["other"]), [None, Some("other")]),
        ("drop", |store| store.drop_table("other").map(drop), [Some("value"), None]),
        ("swap", |store| store.swap_tables("", "other").map(drop), [Some("other"), Some("value")]),
    ];
    let before = [Some("value"), Some("other")];
    let values = |store: &Store| {
        let other = store.find_table("other").unwrap();
        let other = other.and_then(|other| other.get(b"key").unwrap());
        [store.get(b"key").unwrap(), other].map(|value| value.map(|value| String::from_utf8(value).unwrap()))
    };
    let is =
        |found: &[Option<String>; 2], expected: Values| found.each_ref().map(Option::as_deref) == expected;
    for (name, change, after) in changes {
        let mut failed = 0;
        for call in 1..6 {
            let machine = Machine::new(1);
            let store = Life::<Bytes>::new(registry::DEFAULT).make(&machine).unwrap();
            let other = store.table("other").unwrap();
            store.put(b"key", b"value").unwrap();
            other.put(b"key", b"other").unwrap();
            machine.fail_at(machine.calls() + call, Fault::Eio);
            let outcome = change(&store);
            if machine.fatal() == 0 {
                continue; // the store can do without this call, or did not make it
            }
            let place = format!("{name}, call {call}");
            // The background may make the failing call, after the change has returned.
            let was_durable = outcome.is_ok();
            if let Err(error) = outcome {
                failed += 1;
                let kind = error.kind();
                assert!(matches!(kind, ErrorKind::Io | ErrorKind::Failed), "{place}: {kind:?}");
                assert!(is(&values(&store), before), "{place}: {:?}", values(&store));
            }
            drop((store, other));
            // The files may have all of a failed change or nothing.
            let store = Life::<Bytes>::open(&machine.after_restart()).unwrap();
            let found = values(&store);
            assert!((!was_durable && is(&found, before)) || is(&found, after), "{place}: {found:?}");
            assert_eq!(store.check().unwrap().problems, Vec::<String>::new(), "{place}");
        }
        assert!(failed > 0, "{name}: no call failed it");
    }
}

#[test]
fn keys_and_values_that_tables_make_too_long_are_refused_and_the_longest_work() {
    let dir = scratch();
    let store = Store::open(dir.path(), Options::default().tables(true)).unwrap();
    let longest = vec![b'k'; bristlecone::KEY_BYTES_MAX - 15];
    store.put_until(&longest, b"v", Some(u64::MAX)).unwrap();
    assert_eq!(store.get(&longest).unwrap().as_deref(), Some(&b"v"[..]));
    for length in [longest.len() + 1, bristlecone::KEY_BYTES_MAX] {
        let key = vec![b'k'; length];
        let refused = [
            store.put(&key, b"v").unwrap_err(),
            store.put_until(&key, b"v", None).unwrap_err(),
            store.get(&key).unwrap_err(),
            store.delete(&key).unwrap_err(),
            store.update(&key, |_| bristlecone::Change::Delete).unwrap_err(),
            store.transaction(|transaction| transaction.put(&key, b"v")).unwrap_err(),
        ];
        assert!(refused.iter().all(|error| error.kind() == ErrorKind::TooLarge), "{refused:?}");
    }
    assert_eq!(store.count().unwrap(), 1);
    assert!(store.check().unwrap().problems.is_empty());
    let name = "n".repeat(256);
    assert_eq!(store.table(&name).unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn a_store_without_tables_says_so_and_opens_as_before() {
    let dir = scratch();
    let plain = Options::default().tables(false);
    let store = Store::open(dir.path(), plain).unwrap();
    store.put(b"key", b"value").unwrap();
    assert_eq!(store.stats().kind, "bytes");
    let refused = [
        store.table("t").map(drop).unwrap_err(),
        store.put_with(b"key", b"v", Duration::from_secs(1)).unwrap_err(),
        store.transaction(|transaction| transaction.own().scan(.., false, |_, _| true)).unwrap_err(),
    ];
    assert!(refused.iter().all(|error| matches!(error, Error::NoTables)), "{refused:?}");
    store.close().unwrap();
    drop(store);
    // The option concerns new stores only.
    let store = Store::open(dir.path(), Options::default().tables(true)).unwrap();
    assert!(!store.has_tables());
    assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    let numbers = scratch();
    let numbers = StoreU64::open(numbers.path(), Options::default().tables(true)).unwrap();
    assert!(matches!(numbers.list_tables(), Err(Error::NoTables)));
}
