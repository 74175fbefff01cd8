//! Trees against a map: long random runs with old versions kept. Every snapshot is compared with the map at its moment. The hash table uses
//! the same code.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::common::samples::Sample as _;
use crate::common::{Pairs, Tested, memory, options, write_many};
use cdds::family::Indexed;
use cdds::structure::{ValueBufOf, ValueOf};
use cdds::{Inlined, Order, Ordered, Recovery, SnapshotOf, Sorted, Unsorted, Versioned};
use crash::by_tier;
use index::engine::Cursor;
use index::{Decision, Kind, Life, Schema, Words, WriteOptions};
use pmem::{Error, Observed};

type KeyBufOf<X> = <<X as cdds::Structure>::Schema as Schema>::KeyBuf;
type KindOf<X> = <<X as cdds::Structure>::Schema as crate::common::samples::Sample>::Kind;
type Map<X> = BTreeMap<KeyBufOf<X>, ValueBufOf<X>>;
/// A version and its expected contents.
type Kept<'a, X> = (SnapshotOf<'a, Observed, X>, Map<X>);

/// Compares ranges in key order, from both ends.
fn compare_parts<X: Tested>(mut cursor: Box<dyn Cursor<KindOf<X>> + '_>, map: &Map<X>, from: &KeyBufOf<X>) {
    let mut all = |bound: Bound<&KeyBufOf<X>>, down: bool| -> Pairs<X::Schema> {
        let (mut key, mut value, mut pairs) =
            (KeyBufOf::<X>::default(), ValueBufOf::<X>::default(), Vec::new());
        cursor.seek(bound.map(KindOf::<X>::key), down).unwrap();
        while cursor.next(&mut key, &mut value).unwrap() {
            pairs.push((key.clone(), value.clone()));
        }
        pairs
    };
    let own = |(key, value): (&KeyBufOf<X>, &ValueBufOf<X>)| (key.clone(), value.clone());
    assert!(all(Bound::Included(from), false).into_iter().eq(map.range(from..).map(own)));
    assert!(all(Bound::Excluded(from), true).into_iter().eq(map.range(..from).rev().map(own)));
    assert!(all(Bound::Unbounded, true).into_iter().eq(map.iter().rev().map(own)));
}

fn compare<X: Tested>(
    tree: &Versioned<Observed, X>,
    map: &Map<X>,
    kept: &[Kept<'_, X>],
    rng: &mut fastrand::Rng,
    keys: u32,
) {
    assert_eq!(tree.check().problems, Vec::<String>::new());
    assert_eq!(tree.len(), map.len() as u64);
    assert!(X::newest(tree).into_iter().eq(map.clone()));
    for (snapshot, map) in kept {
        assert_eq!(snapshot.keys(), Some(map.len() as u64));
        let pairs = X::pairs(snapshot).unwrap();
        assert!(pairs.into_iter().eq(map.clone()), "at {}", snapshot.version());
    }
    if X::ORDERED {
        compare_parts::<X>(<X as Indexed<_>>::cursor(tree), map, &X::Schema::key(rng.u32(..keys)));
        for (snapshot, map) in kept {
            compare_parts::<X>(X::cursor_at(snapshot), map, &X::Schema::key(rng.u32(..keys)));
        }
    }
    let mut value = ValueBufOf::<X>::default();
    for n in 0..keys {
        let key = X::Schema::key(n);
        let found = tree.get(X::Schema::borrow(&key), Some(&mut value)).unwrap();
        assert!(found.then_some(&value) == map.get(&key), "{key:?}");
        for (snapshot, map) in kept {
            let found = snapshot.get(X::Schema::borrow(&key), Some(&mut value)).unwrap();
            assert!(found.then_some(&value) == map.get(&key), "{key:?} at {}", snapshot.version());
        }
    }
}

/// `look` sees the structure at the end of each round, before the reopen.
pub fn run<X: Tested>(
    seed: u64,
    lines: u64,
    keys: u32,
    rounds: usize,
    mut look: impl FnMut(&Versioned<Observed, X>),
) {
    let (medium, _) = memory(32 << 20);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut map = Map::<X>::new();
    drop(Versioned::<_, X>::create(medium.clone(), &X::options(options(lines))).unwrap());
    for _ in 0..rounds {
        let recovery = if rng.bool() { Recovery::Lazy } else { Recovery::Scan };
        let tree = X::open_in(&medium, lines, recovery);
        let mut kept: Vec<Kept<'_, X>> = Vec::new();
        let mostly_puts = rng.bool();
        for _ in 0..rng.usize(1..600) {
            let (n, v) = (rng.u32(..keys), rng.u32(..200));
            let key = X::Schema::key(n);
            match rng.u32(..100) {
                0..60 if mostly_puts => {
                    let old = tree
                        .put(X::Schema::borrow(&key), X::Schema::borrow_value(&X::Schema::value(v)))
                        .unwrap();
                    assert_eq!(old, map.insert(key, X::Schema::value(v)).is_some());
                }
                0..33 => {
                    let old = tree
                        .put(X::Schema::borrow(&key), X::Schema::borrow_value(&X::Schema::value(v)))
                        .unwrap();
                    assert_eq!(old, map.insert(key, X::Schema::value(v)).is_some());
                }
                33..83 => {
                    assert_eq!(tree.delete(X::Schema::borrow(&key)).unwrap(), map.remove(&key).is_some())
                }
                83..86 => {
                    let decision = match v % 3 {
                        0 => Decision::Keep,
                        1 => Decision::Put(X::Schema::value(v)),
                        _ => Decision::Delete,
                    };
                    let old = map.get(&key).cloned();
                    match &decision {
                        Decision::Keep => {}
                        Decision::Put(value) => drop(map.insert(key.clone(), value.clone())),
                        Decision::Delete => drop(map.remove(&key)),
                    }
                    let decide = |found: Option<&ValueOf<X>>| {
                        assert_eq!(found, old.as_ref().map(X::Schema::borrow_value));
                        match &decision {
                            Decision::Keep => Decision::Keep,
                            Decision::Put(value) => Decision::Put(X::Schema::borrow_value(value)),
                            Decision::Delete => Decision::Delete,
                        }
                    };
                    tree.update(X::Schema::borrow(&key), decide, WriteOptions::default()).unwrap();
                }
                86..90 => {
                    let writes: Vec<_> = (0..rng.usize(..12))
                        .map(|_| {
                            (
                                X::Schema::key(rng.u32(..keys)),
                                rng.bool().then(|| X::Schema::value(rng.u32(..200))),
                            )
                        })
                        .collect();
                    let mut found = Vec::new();
                    let result = write_many(&tree, &writes).unwrap();
                    for (key, value) in writes {
                        found.push(match value {
                            Some(value) => map.insert(key, value).is_some(),
                            None => map.remove(&key).is_some(),
                        });
                    }
                    assert_eq!(result, found);
                }
                90..93 if kept.len() < 4 => kept.push((tree.snapshot(), map.clone())),
                93..96 if !kept.is_empty() => drop(kept.swap_remove(rng.usize(..kept.len()))),
                96 if !kept.is_empty() => {
                    let (snapshot, old) = &kept[rng.usize(..kept.len())];
                    let to = snapshot.version();
                    assert!(tree.roll_back(snapshot.mark()).unwrap());
                    map = old.clone();
                    for (newer, _) in kept.extract_if(.., |(other, _)| other.version() > to) {
                        let told = newer.get(X::Schema::borrow(&key), None);
                        assert!(
                            matches!(told, Err(Error::TakenBack { version }) if version == newer.version())
                        );
                    }
                }
                97 => _ = tree.collect_some(rng.usize(1..8)).unwrap(),
                98 => tree.collect_all().unwrap(),
                99 => compare(&tree, &map, &kept, &mut rng, keys),
                _ => {}
            }
        }
        compare(&tree, &map, &kept, &mut rng, keys);
        look(&tree);
        if rng.bool() {
            drop(kept);
            tree.close().unwrap();
        }
    }
    let tree = X::open_in(&medium, lines, Recovery::Lazy);
    tree.collect_all().unwrap();
    tree.collect_all().unwrap();
    assert_eq!(tree.dead_intervals(), 0);
    let live = tree.check();
    assert_eq!(live.problems, Vec::<String>::new());
    println!("{} keys in {} nodes, {} levels", live.keys, live.nodes, live.levels);
}

fn run_tree<S: crate::common::Sample, O: Order>(seed: u64, lines: u64, rounds: usize) {
    let slots = lines as usize * 2 - 1;
    run::<Ordered<S, O>>(seed, lines, 40 * lines as u32, rounds, |tree| {
        assert_eq!(tree.shape().slots, slots)
    });
}

#[test]
fn words_agree_with_a_map_at_every_kept_version() {
    for (seed, lines) in [(1, 2), (2, 3), (3, 4), (4, 8), (5, 16)] {
        run_tree::<Words, Sorted>(seed, lines, 40);
        run_tree::<Words, Unsorted>(seed, lines, 20);
    }
}

#[test]
fn byte_strings_agree_with_a_map_at_every_kept_version() {
    for (seed, lines) in [(11, 2), (12, 3), (13, 4), (14, 8)] {
        run_tree::<Inlined, Sorted>(seed, lines, by_tier(12, 30));
        run_tree::<Inlined, Unsorted>(seed, lines, by_tier(8, 15));
    }
}
