//! Several threads: writers of their own keys, batches over all of them, readers, and the upkeep.

use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bwtree::Change;
use logstore::Settings;

use crate::common::{Dir, Model, compare, create, delete, get, open, put, small};

#[test]
fn threads_lose_nothing_and_readers_see_whole_batches() {
    let dir = Dir::new("threads");
    let store = create(&dir.0, small(false));
    let is_done = AtomicBool::new(false);
    let mut model: Model = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3u64)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || {
                    let (mut random, mut model) = (fastrand::Rng::with_seed(thread), Model::new());
                    for _ in 0..4000 {
                        let key = format!("{:03} {thread}", random.u32(..150)).into_bytes();
                        if random.u32(..3) > 0 {
                            let value = vec![random.u8(..); random.usize(..40)];
                            assert_eq!(put(store, &key, &value).unwrap(), model.insert(key, value).is_some());
                        } else {
                            assert_eq!(delete(store, &key).unwrap(), model.remove(&key).is_some());
                        }
                    }
                    model
                })
            })
            .collect();
        let batches = scope.spawn(|| {
            for i in 0..600u32 {
                let keys = ["000 all", "050 all", "149 all"];
                let value = i.to_be_bytes().to_vec();
                let writes = keys.iter().map(|key| (key.as_bytes().into(), Some(value.clone()))).collect();
                assert!(store.batch(writes, &[], i % 2 == 0).unwrap().is_done);
            }
        });
        scope.spawn(|| {
            let mut last = None;
            while !is_done.load(Ordering::Relaxed) {
                let keys: [&[u8]; 3] = [b"149 all", b"000 all", b"050 all"];
                let found = store.get_each(&keys).unwrap();
                assert!(found[0] == found[1] && found[1] == found[2], "half of a batch: {found:?}");
                assert!(found[0] >= last, "{found:?} after {last:?}");
                last = found[0].clone();
            }
        });
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let _ = store.upkeep();
                store.checkpoint().unwrap();
            }
        });
        let models = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        batches.join().unwrap();
        is_done.store(true, Ordering::Relaxed);
        models
    });
    for key in ["000 all", "050 all", "149 all"] {
        model.insert(key.into(), 599u32.to_be_bytes().to_vec());
    }
    compare(&store, &model);
    drop(store);
    let store = open(&dir.0, small(false)).unwrap();
    compare(&store, &model);
    assert_eq!(get(&store, b"000 all").unwrap(), Some(599u32.to_be_bytes().to_vec()));
}

/// A scan waits until a leaf is durable. Meanwhile a writer that never pauses changes it. Each wait is for a pair all the same, so the number
/// of syncs is in proportion to the pairs.
#[test]
fn scans_of_a_leaf_that_is_written_without_end_need_few_syncs() {
    // On a disk, where syncs take long.
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("scans-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let dir = Dir(dir);
    let store = create(&dir.0, Settings { survives_power: true, ..Settings::default() });
    let key = |number: u8| [b'k', number];
    (0..6).for_each(|number| _ = put(&store, &key(number), b"first").unwrap());
    let (done, writes) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in (0..6).cycle().take_while(|_| !done.load(Ordering::Acquire)) {
                store.update(&key(number), |_| Change::Put(&b"next"[..]), false).unwrap();
                writes.fetch_add(1, Ordering::Release);
            }
        });
        let (scans, before) = (40, store.stats().log.syncs);
        for round in 0..scans {
            // The processor may be another thread's for long. Without a change that is not durable, a scan needs no sync. The scan before may
            // have synced a change that is counted only now.
            let seen = writes.load(Ordering::Acquire);
            while writes.load(Ordering::Acquire) < seen + 2 {
                assert!(!writer.is_finished());
                std::thread::yield_now();
            }
            let mut cursor = store.range(Bound::Unbounded, Bound::Unbounded, round % 2 == 0);
            let mut pairs = 0;
            while cursor.next_pair().unwrap().is_some() {
                pairs += 1;
            }
            assert_eq!(pairs, 6);
        }
        let syncs = store.stats().log.syncs - before;
        done.store(true, Ordering::Release);
        println!("{syncs} syncs");
        // A leaf may also change directly after the scan has found it.
        assert!((scans..scans * 7 * 5).contains(&syncs), "{syncs} syncs for {scans} scans of 6 pairs");
    });
}
