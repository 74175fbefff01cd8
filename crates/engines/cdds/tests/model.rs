//! Long random runs against a map, with old versions kept beside it: every snapshot is compared with the map as it was.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::common::{Sample, memory, open, options, pairs, write_many};
use cdds::Inlined;
use cdds::{Order, Recovery, Snapshot, Sorted, Tree, Unsorted};
use crash::by_tier;
use index::{Life, Words};
use pmem::{Error, Observed};

type Map<S> = BTreeMap<<S as index::Schema>::KeyBuf, <S as index::Schema>::ValueBuf>;
/// A version, and what is in it.
type Kept<'a, S, O> = (Snapshot<'a, Observed, S, O>, Map<S>);

fn compare<S: Sample, O: Order>(
    tree: &Tree<Observed, S, O>,
    map: &Map<S>,
    kept: &[Kept<'_, S, O>],
    rng: &mut fastrand::Rng,
    keys: u32,
) {
    let report = tree.check();
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(tree.len(), map.len() as u64);
    let check = |mut cursor: cdds::Cursor<'_, Observed, S, O>, map: &Map<S>, from: S::KeyBuf| {
        let all: Vec<_> = map.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        let seen = pairs(&mut cursor, Bound::Unbounded, false);
        assert!(
            seen == all,
            "{:?} {:?}",
            seen.iter().map(|p| &p.0).collect::<Vec<_>>(),
            all.iter().map(|p| &p.0).collect::<Vec<_>>()
        );
        let up: Vec<_> = map.range(from.clone()..).map(|(k, v)| (k.clone(), v.clone())).collect();
        assert!(pairs(&mut cursor, Bound::Included(from.clone()), false) == up);
        let mut down: Vec<_> = map.range(..from.clone()).map(|(k, v)| (k.clone(), v.clone())).collect();
        down.reverse();
        assert!(pairs(&mut cursor, Bound::Excluded(from), true) == down);
        let mut all = all;
        all.reverse();
        assert!(pairs(&mut cursor, Bound::Unbounded, true) == all);
    };
    check(tree.cursor(), map, S::key(rng.u32(..keys)));
    for (snapshot, map) in kept {
        assert_eq!(snapshot.keys(), Some(map.len() as u64));
        check(snapshot.cursor(), map, S::key(rng.u32(..keys)));
    }
    let mut value = S::ValueBuf::default();
    for n in 0..keys {
        let key = S::key(n);
        assert_eq!(tree.get(S::borrow(&key), Some(&mut value)).unwrap(), map.contains_key(&key));
        for (snapshot, map) in kept {
            let found = snapshot.get(S::borrow(&key), Some(&mut value)).unwrap();
            assert!(found.then_some(&value) == map.get(&key), "{key:?} at {}", snapshot.version());
        }
    }
}

fn run<S: Sample, O: Order>(seed: u64, lines: u64, keys: u32, rounds: usize) {
    let (medium, _) = memory(32 << 20);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut map = Map::<S>::new();
    drop(Tree::<Observed, S, O>::create(medium.clone(), &options(lines)).unwrap());
    for round in 0..rounds {
        let recovery = if rng.bool() { Recovery::Lazy } else { Recovery::Scan };
        let tree = open::<S, O>(&medium, lines, recovery);
        let mut kept: Vec<Kept<'_, S, O>> = Vec::new();
        let mostly_puts = rng.bool();
        for _ in 0..rng.usize(1..600) {
            let (n, v) = (rng.u32(..keys), rng.u32(..200));
            let key = S::key(n);
            match rng.u32(..100) {
                0..60 if mostly_puts => {
                    let old = tree.put(S::borrow(&key), S::borrow_value(&S::value(v))).unwrap();
                    assert_eq!(old, map.insert(key, S::value(v)).is_some());
                }
                0..35 => {
                    let old = tree.put(S::borrow(&key), S::borrow_value(&S::value(v))).unwrap();
                    assert_eq!(old, map.insert(key, S::value(v)).is_some());
                }
                35..85 => assert_eq!(tree.delete(S::borrow(&key)).unwrap(), map.remove(&key).is_some()),
                85..90 => {
                    let writes: Vec<_> = (0..rng.usize(..8))
                        .map(|_| (S::key(rng.u32(..keys)), rng.bool().then(|| S::value(rng.u32(..200)))))
                        .collect();
                    write_many(&tree, &writes).unwrap();
                    for (key, value) in writes {
                        match value {
                            Some(value) => drop(map.insert(key, value)),
                            None => drop(map.remove(&key)),
                        }
                    }
                }
                90..93 if kept.len() < 4 => kept.push((tree.snapshot(), map.clone())),
                93..96 if !kept.is_empty() => drop(kept.swap_remove(rng.usize(..kept.len()))),
                96 if !kept.is_empty() => {
                    let (snapshot, old) = &kept[rng.usize(..kept.len())];
                    let to = snapshot.version();
                    assert!(tree.roll_back(snapshot.mark()).unwrap());
                    map = old.clone();
                    for (newer, _) in kept.extract_if(.., |(other, _)| other.version() > to) {
                        let told = newer.get(S::borrow(&key), None);
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
        if rng.bool() {
            drop(kept);
            tree.close().unwrap();
        }
        assert!(tree.shape().slots == lines as usize * 2 - 1, "round {round}");
    }
    let tree = open::<S, O>(&medium, lines, Recovery::Lazy);
    tree.collect_all().unwrap();
    tree.collect_all().unwrap();
    assert_eq!(tree.dead_intervals(), 0);
    let live = tree.check();
    assert_eq!(live.problems, Vec::<String>::new());
    println!("{} keys in {} nodes, {} levels", live.keys, live.nodes, live.levels);
}

#[test]
fn words_agree_with_a_map_at_every_kept_version() {
    for (seed, lines) in [(1, 2), (2, 3), (3, 4), (4, 8), (5, 16)] {
        run::<Words, Sorted>(seed, lines, 40 * lines as u32, 40);
        run::<Words, Unsorted>(seed, lines, 40 * lines as u32, 20);
    }
}

#[test]
fn byte_strings_agree_with_a_map_at_every_kept_version() {
    for (seed, lines) in [(11, 2), (12, 3), (13, 4), (14, 8)] {
        run::<Inlined, Sorted>(seed, lines, 40 * lines as u32, by_tier(12, 30));
        run::<Inlined, Unsorted>(seed, lines, 40 * lines as u32, by_tier(8, 15));
    }
}
