//! Properties of the Bw-tree that other engines do not have, and properties that it lacks. The battery tests the shared properties.

use crate::common::{options, scratch};
use bristlecone::{Change, Error, Store, StoreU64};

#[test]
fn an_engine_without_batches_refuses_them_and_says_who_has_them() {
    let dir = scratch();
    let store = Store::open(dir.path(), options("bwtree", false)).unwrap();
    store.put(b"one", b"1").unwrap();
    let mut batch = store.batch();
    batch.put(b"one", b"2").put(b"two", b"2");
    let refused = batch.commit().unwrap_err();
    assert!(
        matches!(refused, Error::NoBatches { .. }) && refused.to_string().contains("wbtree"),
        "{refused}"
    );
    let mut batch = store.batch();
    batch.require(b"two", None).put(b"one", b"2");
    assert!(matches!(batch.commit(), Err(Error::NoBatches { .. })));
    assert!(store.batch().commit().unwrap(), "nothing to do");
    assert_eq!(store.walk().map(Result::unwrap).collect::<Vec<_>>(), [(b"one".to_vec(), b"1".to_vec())]);
}

#[test]
fn a_full_tree_refuses_writes_and_goes_on_reading_and_deleting() {
    let dir = scratch();
    let max_bytes = 8 << 20;
    let store = Store::open(dir.path(), options("bwtree", false).max_bytes(max_bytes)).unwrap();
    let key = |n: u32| n.to_be_bytes();
    let mut stored = 0;
    let refused = loop {
        match store.put(&key(stored), &[1; 1000]) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(refused.to_string().contains("maximum size of 8388608 bytes"), "{refused}");
    assert!((7000..9000).contains(&stored), "{stored} pairs of a thousand bytes");
    assert!(store.update(&key(0), |_| Change::Put(vec![2; 1000].into())).is_err());
    assert!((0..stored).all(|n| store.get(&key(n)).unwrap().is_some_and(|value| value == [1; 1000])));
    assert_eq!(store.check().unwrap().keys, u64::from(stored));
    let half = stored / 2;
    assert!((0..half).all(|n| store.delete(&key(n)).unwrap()));
    // Freed space is reused, any number of times.
    for round in 0..5 {
        (0..half - 500).for_each(|n| assert!(!store.put(&key(n), &[round; 1000]).unwrap()));
        (0..half - 500).for_each(|n| assert!(store.delete(&key(n)).unwrap()));
    }
    assert_eq!(store.check().unwrap().keys, u64::from(stored - half));
}

#[test]
fn what_waits_to_be_freed_is_told() {
    let dir = scratch();
    let store = StoreU64::open(dir.path(), options("bwtree", false)).unwrap();
    let mut scan = store.scan(..);
    (0..100_000).for_each(|key| _ = store.put(&key, &key).unwrap());
    (0..100_000).for_each(|key| assert!(store.delete(&key).unwrap()));
    assert!(scan.next().is_none());
    let (stats, space) = (store.stats(), store.space());
    let limbo = stats.limbo.unwrap().bytes;
    assert_eq!(space.live_bytes + space.free_bytes + space.overhead_bytes, stats.region_bytes);
    assert!(space.free_bytes >= limbo, "{space:?}");
    // The tree is empty. The space of 100,000 pairs is free, except for the remains of the last few pages.
    assert!(space.live_bytes < 10_000 && limbo < 100_000, "{space:?}");
}
