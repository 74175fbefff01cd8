//! A scan that has begun sees nothing of a batch that commits while the scan pauses. This holds in both directions, for every position in a
//! leaf, and for a batch that deletes all keys around the position, even if it empties leaves that the scan has not reached yet.

use std::collections::BTreeMap;

use crate::common::{options, scratch};
use bristlecone::Store;

const KEYS: u32 = 240;

fn key(number: u32) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Every tenth number is a key.
fn model() -> Model {
    (0..KEYS).map(|n| (key(n * 10), vec![n as u8; 20])).collect()
}

/// Changes the contents from `from` to `to` in one batch.
fn change(store: &Store, from: &Model, to: &Model) {
    let mut batch = store.batch();
    from.keys().filter(|key| !to.contains_key(*key)).for_each(|key| _ = batch.delete(key));
    let new = to.iter().filter(|(key, value)| from.get(*key) != Some(value));
    new.for_each(|(key, value)| _ = batch.put(key, value));
    assert!(batch.commit().unwrap());
}

/// The contents after a batch that deletes some of the next keys of a scan, updates some and inserts some.
fn changed(of: &Model, next: &[u32], goes: usize) -> Model {
    let mut changed = of.clone();
    for (i, n) in next.iter().take(goes + 6).enumerate() {
        if i < goes {
            changed.remove(&key(n * 10));
        } else if i % 2 == 0 {
            changed.insert(key(n * 10), vec![0xEE; 20]);
        } else {
            changed.insert(key(n * 10 + 5), vec![0xDD; 20]);
        }
    }
    changed
}

#[test]
fn a_scan_that_stands_still_sees_nothing_of_a_batch_that_takes_away_what_is_next() {
    let engines = ["wbtree", "wbtree-keyptr", "wbtree-slot", "btree-log", "ubmp-shadow", "wb-4k"];
    let mut scans = 0;
    for (engine, journaled) in engines.iter().flat_map(|engine| [(*engine, false), (*engine, true)]) {
        let dir = scratch();
        let store = Store::open(dir.path(), options(engine, journaled)).unwrap();
        let before = model();
        change(&store, &Model::new(), &before);
        let step = if journaled { 23 } else { 5 };
        for start in (0..KEYS).step_by(step) {
            for (goes, descending) in
                [2, 7, 19, 40].into_iter().flat_map(|goes| [(goes, false), (goes, true)])
            {
                let next: Vec<u32> =
                    if descending { (0..start).rev().collect() } else { (start + 1..KEYS).collect() };
                let after = changed(&before, &next, goes);
                let from = key(start * 10);
                let (mut scan, expected): (_, Vec<_>) = if descending {
                    (store.scan(..=from.clone()).descending(), before.range(..=from).rev().collect())
                } else {
                    (store.scan(from.clone()..), before.range(from..).collect())
                };
                let first = scan.next().unwrap().unwrap();
                change(&store, &before, &after);
                let seen: Vec<_> = std::iter::once(first).chain(scan.map(Result::unwrap)).collect();
                let said = format!("{engine}, journaled {journaled}, {goes} go behind {start}, {descending}");
                assert!(seen.iter().map(|(key, value)| (key, value)).eq(expected), "{said}: {seen:?}");
                assert!(crate::common::pairs(&store).into_iter().eq(after.clone()), "{said}");
                change(&store, &after, &before);
                scans += 1;
            }
        }
        assert!(store.check().unwrap().problems.is_empty());
    }
    println!("{scans} scans");
    assert!(scans > 2000);
}
