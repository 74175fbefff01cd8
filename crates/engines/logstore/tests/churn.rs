//! Four threads change data of four times the memory budget. Again and again the store ends without a close, as in a killed process, and is
//! opened again. Then it has exactly the writes that returned.
//!
//! `BRISTLECONE_ROUNDS` multiplies the operations (default 1). `BRISTLECONE_SEED` changes the seeds.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use faults::mix;
use logstore::{Settings, StoreStats};

use crate::common::life::number_from;
use crate::common::{Dir, Model, compare, create, delete, get, open, put};

const THREADS: u64 = 4;
const LIVES: u64 = 4;
const KEYS: u32 = 4000;

fn settings() -> Settings {
    // 16,000 keys with values of about 500 bytes: 8 MB.
    Settings { survives_power: false, memory_bytes: 2 << 20, log_bytes: 1 << 20, ..Settings::default() }
}

/// Random operations of one thread on its own keys.
fn operate(store: &logstore::Store<bwtree::Bytes>, model: &mut Model, thread: u64, seed: u64, count: u64) {
    let mut random = fastrand::Rng::with_seed(mix(seed, thread));
    for _ in 0..count {
        // Two of three operations are on an eighth of the keys.
        let number = if random.u32(..3) > 0 { random.u32(..KEYS / 8) } else { random.u32(..KEYS) };
        let key = format!("{number:05} of {thread}").into_bytes();
        match random.u32(..14) {
            10..=13 => {
                let value = (random.u32(..5) > 0).then(|| vec![random.u8(..); random.usize(..1000)]);
                let found = store.set(&key, value.as_deref(), true).unwrap();
                let was_there = match value {
                    Some(value) => model.insert(key, value).is_some(),
                    None => model.remove(&key).is_some(),
                };
                assert!(found.is_none_or(|found| found == was_there));
            }
            0..=4 => {
                let value = vec![random.u8(..); random.usize(..1000)];
                assert_eq!(put(store, &key, &value).unwrap(), model.insert(key, value).is_some());
            }
            5 => assert_eq!(delete(store, &key).unwrap(), model.remove(&key).is_some()),
            _ => assert!(get(store, &key).unwrap().as_ref() == model.get(&key), "{key:?}"),
        }
    }
}

/// A store with little data keeps few images that are not needed, because its segments are small.
#[test]
fn the_space_of_a_small_store_is_in_proportion_to_its_data() {
    const SLACK: u64 = 24 << 20;
    let dir = Dir::new("space");
    let mut store = create(&dir.0, Settings { memory_bytes: u64::MAX, ..settings() });
    let mut random = fastrand::Rng::with_seed(1);
    let mut most = 0;
    for round in 0..25_u8 {
        for _ in 0..10_000 {
            put(&store, &random.u32(..10_000).to_be_bytes(), &[round; 600]).unwrap();
            if random.u32(..1000) == 0 {
                store.upkeep().unwrap();
            }
        }
        let StoreStats { segment_bytes, live_bytes, .. } = store.stats();
        assert!(segment_bytes < live_bytes / 5 * 8 + SLACK, "{segment_bytes} bytes, {live_bytes} live");
        most = most.max(live_bytes);
        if round == 12 {
            drop(store);
            store = open(&dir.0, Settings { memory_bytes: u64::MAX, ..settings() }).unwrap();
        }
    }
    assert!(most > 4 << 20 && store.stats().image_bytes_written > 3 * SLACK, "{:?}", store.stats());
}

#[test]
fn files_are_for_their_owner_alone() {
    let (dir, copy) = (Dir::on_disk("owner"), Dir::on_disk("owner-copy"));
    let store = create(&dir.0, Settings { direct_io: true, ..settings() });
    (0..100u32).for_each(|key| _ = put(&store, &key.to_be_bytes(), &[1; 100]).unwrap());
    store.checkpoint().unwrap();
    store.copy_to(&copy.0, &|_, _| ()).unwrap();
    for dir in [&dir.0, &copy.0] {
        let files: Vec<_> = std::fs::read_dir(dir).unwrap().map(Result::unwrap).collect();
        assert!(files.len() >= 3, "{files:?}");
        for file in files {
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
        }
    }
}

/// While the files are copied, leaves are evicted, so reads and updates go on within the budget. The copy has the state at its beginning.
#[test]
fn a_copy_does_not_stop_the_eviction() {
    let (dir, copy) = (Dir::new("copied"), Dir::new("copy"));
    let settings = || Settings { memory_bytes: 2 << 20, ..settings() };
    let store = Arc::new(create(&dir.0, settings()));
    let key = |number: u32| number.to_be_bytes();
    let mut model = Model::new();
    for number in 0..8000 {
        put(&store, &key(number), &[1; 600]).unwrap();
        model.insert(key(number).to_vec(), vec![1; 600]);
    }
    // Another thread, so that the test fails if this one waits for the copy.
    let ((begin, parts), (end, done)) = (mpsc::channel::<u32>(), mpsc::channel());
    let own = Arc::clone(&store);
    let worker = std::thread::spawn(move || {
        for part in parts {
            for number in (part * 500..part * 500 + 500).map(|number| number % 8000) {
                put(&own, &key(number), &[2; 600]).unwrap();
                assert!(get(&own, &key(7999 - number)).unwrap().is_some());
            }
            own.upkeep().unwrap();
            let memory = own.stats().memory;
            assert!(memory.page_bytes + memory.table_bytes <= 2 << 20, "{memory:?}");
            end.send(()).unwrap();
        }
    });
    let (parts, made) = (std::cell::Cell::new(0u32), store.stats().checkpoints);
    let during = |_, _| {
        begin.send(parts.replace(parts.get() + 1)).unwrap();
        done.recv_timeout(Duration::from_secs(60)).expect("reads and updates go on");
    };
    store.copy_to(&copy.0, &during).unwrap();
    drop(begin);
    worker.join().unwrap();
    let stats = store.stats();
    assert!(parts.get() >= 5 && stats.checkpoints == made, "{} parts, {stats:?}", parts.get());
    store.upkeep().unwrap();
    assert!(store.stats().checkpoints > made, "after the copy the log is long enough");
    compare(&open(&copy.0, settings()).unwrap(), &model);
    (0..8000).for_each(|number| assert_eq!(get(&store, &key(number)).unwrap().unwrap().len(), 600));
}

#[test]
fn data_larger_than_memory_survives_threads_and_crashes() {
    let (rounds, seed) = (number_from("BRISTLECONE_ROUNDS", 1), number_from("BRISTLECONE_SEED", 0));
    // Direct I/O needs a disk.
    let dir = Dir::on_disk("churn");
    let mut store = create(&dir.0, settings());
    let mut models: Vec<Model> = vec![Model::new(); THREADS as usize];
    for (thread, model) in models.iter_mut().enumerate() {
        for number in 0..KEYS {
            let key = format!("{number:05} of {thread}").into_bytes();
            put(&store, &key, &[1; 600]).unwrap();
            model.insert(key, vec![1; 600]);
        }
    }
    for life in 0..LIVES * rounds {
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let upkeep = scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    std::thread::sleep(store.upkeep().unwrap());
                }
            });
            let writers: Vec<_> = models
                .iter_mut()
                .zip(0..THREADS)
                .map(|(model, thread)| {
                    let store = &store;
                    scope.spawn(move || operate(store, model, thread, mix(seed, life), 8000))
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            is_done.store(true, Ordering::Relaxed);
            upkeep.join().unwrap();
        });
        let StoreStats { memory, unsaved_bytes, paged_in, evictions, .. } = store.stats();
        assert!(memory.page_bytes + memory.table_bytes <= settings().memory_bytes, "{memory:?}");
        println!(
            "life {life}: {paged_in} page-ins, {evictions} evictions, {unsaved_bytes} bytes of unsaved changes"
        );
        assert!(paged_in > 1000 && evictions > 1000);
        drop(store);
        // In every second life with direct I/O.
        store = open(&dir.0, Settings { direct_io: life % 2 == 0, ..settings() }).unwrap();
        let all: Model = models.iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect();
        compare(&store, &all);
        let bytes: usize = all.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(bytes as u64 > 3 * settings().memory_bytes, "{bytes} bytes of data");
    }
}
