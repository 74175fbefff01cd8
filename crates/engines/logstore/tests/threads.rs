//! Several threads: writers of their own keys, batches over all of them, readers, and the upkeep.

use std::sync::atomic::{AtomicBool, Ordering};

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
