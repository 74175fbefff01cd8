//! Long random runs of the hash table against a map, with old versions kept beside it: every snapshot is compared with the map as
//! it was. And a table that everything was deleted from, which gives its space back.

use crate::common::{Sample, memory, write_many};
use crate::hash_common::{Map, open, options, pairs};
use cdds::Recovery;
use cdds::hash::{Snapshot, Table};
use crash::by_tier;
use index::Decision;
use index::{Keyed, Life, Words, WriteOptions};
use pmem::{Error, Observed};

fn compare<S: Sample>(
    table: &Table<Observed, S>,
    map: &Map<S>,
    kept: &[(Snapshot<'_, Observed, S>, Map<S>)],
    keys: u32,
) {
    assert_eq!(table.check().problems, Vec::<String>::new());
    assert_eq!(table.len(), map.len() as u64);
    assert!(pairs(&mut table.pairs()) == *map);
    for (snapshot, map) in kept {
        assert_eq!(snapshot.keys(), Some(map.len() as u64));
        assert!(pairs(&mut snapshot.pairs()) == *map, "at {}", snapshot.version());
    }
    let mut value = S::ValueBuf::default();
    for n in 0..keys {
        let key = S::key(n);
        let found = table.get(S::borrow(&key), Some(&mut value)).unwrap();
        assert!(found.then_some(&value) == map.get(&key), "{key:?}");
        for (snapshot, map) in kept {
            let found = snapshot.get(S::borrow(&key), Some(&mut value)).unwrap();
            assert!(found.then_some(&value) == map.get(&key), "{key:?} at {}", snapshot.version());
        }
    }
}

fn run<S: Sample>(seed: u64, lines: u64, keys: u32, rounds: usize) {
    let (medium, _) = memory(32 << 20);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut map = Map::<S>::new();
    drop(Table::<Observed, S>::create(medium.clone(), &options(lines)).unwrap());
    let mut most_buckets = 0;
    for _ in 0..rounds {
        let recovery = if rng.bool() { Recovery::Lazy } else { Recovery::Scan };
        let table = open::<S>(&medium, lines, recovery);
        let mut kept: Vec<(Snapshot<'_, Observed, S>, Map<S>)> = Vec::new();
        let mostly_puts = rng.bool();
        for _ in 0..rng.usize(1..600) {
            let (n, v) = (rng.u32(..keys), rng.u32(..200));
            let key = S::key(n);
            match rng.u32(..100) {
                0..60 if mostly_puts => {
                    let old = table.put(S::borrow(&key), S::borrow_value(&S::value(v))).unwrap();
                    assert_eq!(old, map.insert(key, S::value(v)).is_some());
                }
                0..33 => {
                    let old = table.put(S::borrow(&key), S::borrow_value(&S::value(v))).unwrap();
                    assert_eq!(old, map.insert(key, S::value(v)).is_some());
                }
                33..83 => assert_eq!(table.delete(S::borrow(&key)).unwrap(), map.remove(&key).is_some()),
                83..86 => {
                    let decision = match v % 3 {
                        0 => Decision::Keep,
                        1 => Decision::Put(S::value(v)),
                        _ => Decision::Delete,
                    };
                    let old = map.get(&key).cloned();
                    match &decision {
                        Decision::Keep => {}
                        Decision::Put(value) => drop(map.insert(key.clone(), value.clone())),
                        Decision::Delete => drop(map.remove(&key)),
                    }
                    let decide = |found: Option<&S::Value>| {
                        assert_eq!(found, old.as_ref().map(S::borrow_value));
                        match &decision {
                            Decision::Keep => Decision::Keep,
                            Decision::Put(value) => Decision::Put(S::borrow_value(value)),
                            Decision::Delete => Decision::Delete,
                        }
                    };
                    table.update(S::borrow(&key), decide, WriteOptions::default()).unwrap();
                }
                86..90 => {
                    let writes: Vec<_> = (0..rng.usize(..12))
                        .map(|_| (S::key(rng.u32(..keys)), rng.bool().then(|| S::value(rng.u32(..200)))))
                        .collect();
                    let mut found = Vec::new();
                    let result = write_many(&table, &writes).unwrap();
                    for (key, value) in writes {
                        found.push(match value {
                            Some(value) => map.insert(key, value).is_some(),
                            None => map.remove(&key).is_some(),
                        });
                    }
                    assert_eq!(result, found);
                }
                90..93 if kept.len() < 4 => kept.push((table.snapshot(), map.clone())),
                93..96 if !kept.is_empty() => drop(kept.swap_remove(rng.usize(..kept.len()))),
                96 if !kept.is_empty() => {
                    let (snapshot, old) = &kept[rng.usize(..kept.len())];
                    let version = snapshot.version();
                    assert!(table.roll_back(snapshot.mark()).unwrap());
                    map = old.clone();
                    let taken_back = |other: &Snapshot<'_, Observed, S>| other.version() > version;
                    for (other, _) in kept.iter().filter(|(other, _)| taken_back(other)) {
                        let told = other.get(S::borrow(&key), None);
                        assert!(matches!(told, Err(Error::TakenBack { .. })), "{told:?}");
                    }
                    kept.retain(|(other, _)| !taken_back(other));
                }
                97 => _ = table.collect_some(rng.usize(1..8)).unwrap(),
                98 => table.collect_all().unwrap(),
                99 => compare(&table, &map, &kept, keys),
                _ => {}
            }
        }
        compare(&table, &map, &kept, keys);
        most_buckets = most_buckets.max(table.buckets().unwrap());
        if rng.bool() {
            drop(kept);
            table.close().unwrap();
        }
    }
    let table = open::<S>(&medium, lines, Recovery::Lazy);
    table.collect_all().unwrap();
    assert_eq!(table.dead_intervals(), 0);
    let live = table.check();
    assert_eq!(live.problems, Vec::<String>::new());
    println!("{} keys in {} nodes; {most_buckets} buckets at most", live.keys, live.nodes);
    assert!(most_buckets > 8, "the directory has hardly grown");
}

#[test]
fn words_agree_with_a_map_at_every_kept_version() {
    for (seed, lines) in [(1, 2), (2, 3), (3, 4), (4, 8), (5, 16)] {
        run::<Words>(seed, lines, 40 * lines as u32, 40);
    }
}

#[test]
fn byte_strings_agree_with_a_map_at_every_kept_version() {
    for (seed, lines) in [(11, 2), (12, 3), (13, 4), (14, 8)] {
        run::<Keyed>(seed, lines, 40 * lines as u32, 30);
    }
}

/// Up to many keys and down to none, again and again: what is left is what an empty table has, and the region stays as large as
/// it was after the first time.
fn lives<S: Sample>(lines: u64, keys: u32) {
    let (medium, _) = memory(64 << 20);
    let table = Table::<Observed, S>::create(medium.clone(), &options(lines)).unwrap();
    let empty = table.check();
    let mut longest = 0;
    for turn in 0..4 {
        for n in 0..keys {
            assert!(!table.put(S::borrow(&S::key(n)), S::borrow_value(&S::value(n % 500))).unwrap());
        }
        let buckets = table.buckets().unwrap();
        assert!(buckets * table.shape().slots as u64 >= u64::from(keys), "{buckets} buckets");
        assert_eq!(table.check().problems, Vec::<String>::new());
        for n in 0..keys {
            assert!(table.delete(S::borrow(&S::key(n))).unwrap());
        }
        table.collect_all().unwrap();
        assert_eq!(table.buckets().unwrap(), 1);
        let now = table.check();
        assert_eq!((now.problems, now.nodes), (Vec::new(), 0));
        // The top keeps its size: a word for each segment that there was.
        let top = u64::from(keys).next_power_of_two() * 8;
        assert!(now.live_bytes <= empty.live_bytes + top, "{} bytes after all", now.live_bytes);
        let len = table.region().medium().memory().len();
        if turn == 0 {
            longest = len;
        }
        assert!(len <= longest, "turn {turn}: {len} bytes, {longest} in the first one");
    }
}

#[test]
fn space_comes_back_when_everything_is_deleted() {
    lives::<Words>(4, 600);
    lives::<Keyed>(4, 600);
}

/// With room for one node more when two buckets became one, a last bucket that was full by chance stood in the way of all others:
/// a table of ten million keys that were deleted had a quarter of a million buckets left.
#[test]
fn deletes_alone_make_a_large_table_small() {
    let (medium, _) = memory(128 << 20);
    let geometry = pmem::Geometry { chunk_bytes: 64 << 10, ..pmem::Geometry::tiny() };
    let common = cdds::Options { geometry, ..crate::common::options(4) };
    let options = cdds::hash::Options { segment_slots: 256, ..crate::common::hash_options(common) };
    let table = Table::<Observed, Words>::create(medium, &options).unwrap();
    let keys = by_tier(200_000, 800_000);
    for key in 0..keys {
        table.put(&key, &key).unwrap();
    }
    let slots = table.shape().slots as u64;
    assert!(table.buckets().unwrap() >= keys / slots);
    // Deletes in a row that found the table sparse and left it as large as it was.
    let (mut last, mut row, mut longest) = (table.buckets().unwrap(), 0, 0);
    for key in 0..keys {
        assert!(table.delete(&key).unwrap());
        let buckets = table.buckets().unwrap();
        let is_stuck = buckets == last && (keys - key) * 4 < buckets * slots;
        row = if is_stuck { row + 1 } else { 0 };
        (last, longest) = (buckets, longest.max(row));
    }
    assert!(longest < 100, "{longest} deletes were in vain");
    assert!(last < 20, "{last} buckets are left");
    assert_eq!(table.check().problems, Vec::<String>::new());
}
