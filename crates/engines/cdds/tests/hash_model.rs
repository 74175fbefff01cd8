//! The hash table against a map: long random runs with old versions kept. Every snapshot is compared with the map at its moment. If all
//! keys of a table are deleted, its space becomes free.

use crate::common::{Sample, memory};
use crate::hash_common::options;
use cdds::hash::{Hashed, Table};
use crash::by_tier;
use index::{Keyed, Words};
use pmem::Observed;

fn run<S: Sample>(seed: u64, lines: u64, rounds: usize) {
    let mut most_buckets = 0;
    let look = |table: &Table<Observed, S>| most_buckets = most_buckets.max(table.buckets().unwrap());
    crate::model::run::<Hashed<S>>(seed, lines, 40 * lines as u32, rounds, look);
    println!("{most_buckets} buckets at most");
    assert!(most_buckets > 8, "the directory has hardly grown");
}

#[test]
fn words_agree_with_a_map_at_every_kept_version() {
    for (seed, lines) in [(1, 2), (2, 3), (3, 4), (4, 8), (5, 16)] {
        run::<Words>(seed, lines, 40);
    }
}

#[test]
fn byte_strings_agree_with_a_map_at_every_kept_version() {
    for (seed, lines) in [(11, 2), (12, 3), (13, 4), (14, 8)] {
        run::<Keyed>(seed, lines, 30);
    }
}

/// Up to many keys and down to none, several times. In the end the table takes as much as an empty one, and the region is as large as after
/// the first time.
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
        // The top level keeps its size: a word for each former segment.
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

/// A former defect: a merge of two buckets required space for one more node. A last bucket that was full by chance then blocked all merges.
/// A table whose ten million keys were deleted kept a quarter of a million buckets.
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
    // Consecutive deletes that left a sparse table as large as it was.
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
