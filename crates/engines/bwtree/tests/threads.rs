//! Tests with real threads: linearizable histories, and a longer run with concurrent scanners and the checker.
//!
//! Real threads cover few interleavings, but they also cover the reordering by compilers and processors. The models and schedules cover the
//! interleavings of single steps.
//!
//! `BRISTLECONE_ROUNDS` multiplies the number of histories (default 1). `BRISTLECONE_SEED` changes the seeds.

use std::borrow::Borrow;
use std::ops::Bound;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{Numbered, key_of, number_from, value_of};
use bwtree::{Bytes, Change, Options, Tree, Words};
use crash::{Found, History};

/// Number of histories for each kind of pairs.
const HISTORIES: u64 = 120;
/// Number of keys of a history.
const KEYS: u64 = 30;
/// Number of threads of a history, and of operations of each thread.
const THREADS: u64 = 3;
const STEPS: u64 = 60;

fn step<P: Numbered>(tree: &Tree<P>, history: &History, random: &mut fastrand::Rng, value: u64) {
    let n = if random.bool() { random.u64(5..8) } else { random.u64(..KEYS) };
    let (key, bytes) = (P::key(n), P::value(value));
    let (key, bytes): (&P::Key, &P::Value) = (key.borrow(), bytes.borrow());
    let called = history.now();
    match random.u8(..12) {
        0..3 => {
            let was_there = tree.put(key, bytes).unwrap();
            history.note(n, called, Some(Found::There(was_there)), Some(Some(value)));
        }
        3 => {
            let inserted = tree.insert(key, bytes).unwrap();
            history.note(n, called, Some(Found::There(!inserted)), inserted.then_some(Some(value)));
        }
        4..7 => {
            let was_there = tree.delete(key).unwrap();
            history.note(n, called, Some(Found::There(was_there)), Some(None));
        }
        7 => {
            let mut found = None;
            let put = |old: Option<&P::Value>| {
                found = old.map(P::number);
                Change::Put(P::value(value))
            };
            tree.update(key, put).unwrap();
            history.note(n, called, Some(Found::Value(found)), Some(Some(value)));
        }
        8..10 => {
            let found = tree.get(key).map(|value| value_of::<P>(&value));
            history.note(n, called, Some(Found::Value(found)), None);
        }
        choice => {
            let mut seen = vec![None; KEYS as usize];
            let all = (Bound::Unbounded, Bound::Unbounded);
            let cursor = if choice == 10 { tree.iter() } else { tree.range_descending(all.0, all.1) };
            for (key, value) in cursor {
                let twice = seen[key_of::<P>(&key) as usize].replace(value_of::<P>(&value));
                assert_eq!(twice, None, "a scan found a key twice");
            }
            for (n, value) in (0..).zip(seen) {
                history.note(n, called, Some(Found::Value(value)), None);
            }
        }
    }
}

fn histories<P: Numbered>() -> [u64; 3] {
    let (rounds, seed) = (number_from("BRISTLECONE_ROUNDS", 1), number_from("BRISTLECONE_SEED", 0));
    let tree = Tree::<P>::new(Options::tiny()).unwrap();
    let mut total = [0; 3];
    for round in 0..HISTORIES * rounds {
        let value = |n| tree.get(P::key(n).borrow()).map(|value| value_of::<P>(&value));
        let start: Vec<_> = (0..KEYS).map(value).collect();
        let (history, barrier) = (History::default(), Barrier::new(THREADS as usize));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (tree, history, barrier) = (&tree, &history, &barrier);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed << 32 | round << 8 | thread);
                    let first = 1 + (round * THREADS + thread) * STEPS;
                    for (step_number, value) in (0..STEPS).zip(first..) {
                        // The threads meet at a barrier from time to time, so that their operations overlap.
                        if step_number % 3 == 0 {
                            barrier.wait();
                        }
                        step(tree, history, &mut random, value);
                    }
                });
            }
        });
        (0..KEYS).for_each(|n| history.found_after(n, value(n)));
        let weight = history
            .judge(|n| start[n as usize])
            .unwrap_or_else(|why| panic!("seed {seed}, history {round}: {why}"));
        total = [total[0] + 1, total[1] + weight.operations, total[2] + weight.overlapping];
    }
    assert_eq!(tree.check().problems, Vec::<String>::new());
    total
}

#[test]
fn what_threads_are_told_can_be_explained() {
    let (words, bytes) = (histories::<Words>(), histories::<Bytes>());
    println!("histories, operations, of these overlapping: words {words:?}, bytes {bytes:?}");
    assert!(words[0] + bytes[0] >= 200 && words[2] > 0 && bytes[2] > 0);
}

/// Writers with disjoint keys, each with a map of its own keys; a scanner that also runs the checker.
fn stress<P: Numbered>(options: Options, keys: u64, steps: u64) {
    const WRITERS: u64 = 3;
    let seed = number_from("BRISTLECONE_SEED", 0);
    let tree = Tree::<P>::new(options).unwrap();
    let (ends, checks, scans) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    // Multiples of 10 exist throughout.
    for n in (0..keys).step_by(10) {
        tree.put(P::key(n).borrow(), P::value(n).borrow()).unwrap();
    }
    let fixed = |n: u64| n.is_multiple_of(10);
    let own = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|thread| {
                let tree = &tree;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed << 8 | thread);
                    let mut own = std::collections::BTreeMap::new();
                    for step in 0..steps {
                        // In phases: the tree grows, then shrinks to nearly nothing.
                        let grows = (step / (steps / 6)).is_multiple_of(2);
                        let n = random.u64(..keys / WRITERS) * WRITERS + thread;
                        if fixed(n) {
                            assert!(
                                tree.contains(P::key(n).borrow()),
                                "a key that is there throughout is gone"
                            );
                            continue;
                        }
                        let key = P::key(n);
                        if random.u8(..8) < if grows { 6 } else { 1 } {
                            let was_there = tree.put(key.borrow(), P::value(step).borrow()).unwrap();
                            assert_eq!(was_there, own.insert(n, step).is_some());
                        } else if random.bool() {
                            assert_eq!(tree.delete(key.borrow()), Ok(own.remove(&n).is_some()));
                        } else {
                            let found = tree.get(key.borrow()).map(|value| value_of::<P>(&value));
                            assert_eq!(found, own.get(&n).copied());
                        }
                    }
                    own
                })
            })
            .collect();
        let (tree, ends, checks, scans) = (&tree, &ends, &checks, &scans);
        scope.spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let check = tree.check();
                assert_eq!(check.problems, Vec::<String>::new());
                checks.fetch_add(1, Ordering::Relaxed);
                for descends in [false, true] {
                    let cursor = if descends {
                        tree.range_descending(Bound::Unbounded, Bound::Unbounded)
                    } else {
                        tree.iter()
                    };
                    let seen: Vec<u64> = cursor.map(|(key, _)| key_of::<P>(&key)).collect();
                    assert!(seen.is_sorted_by(|a, b| if descends { a > b } else { a < b }));
                    let count = seen.iter().filter(|n| fixed(**n)).count() as u64;
                    assert_eq!(count, keys.div_ceil(10), "a scan missed what was there throughout");
                    scans.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let own: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        ends.store(true, Ordering::Relaxed);
        own
    });
    let mut wanted: std::collections::BTreeMap<u64, u64> = (0..keys).step_by(10).map(|n| (n, n)).collect();
    own.into_iter().for_each(|own| wanted.extend(own.unwrap()));
    let found = tree.iter().map(|(key, value)| (key_of::<P>(&key), value_of::<P>(&value)));
    assert!(found.eq(wanted));
    let check = tree.check();
    assert!(check.problems.is_empty() && check.is_quiet, "{check:?}");
    tree.reclaim();
    let stats = tree.stats();
    assert_eq!((stats.limbo_objects(), stats.limbo_bytes()), (0, 0), "{stats:?}");
    println!("{checks:?} checks, {scans:?} scans beside {} updates: {stats:?}", stats.updates);
    assert!(checks.into_inner() > 1 && stats.splits > 100 && stats.merges > 10, "{stats:?}");
}

#[test]
fn writers_scanners_and_the_checker_beside_each_other() {
    stress::<Words>(Options::tiny(), 3000, 60_000);
    stress::<Words>(Options { leaf_chain: 7, ..Options::tiny() }, 3000, 60_000);
    stress::<Bytes>(Options::tiny(), 3000, 60_000);
    stress::<Bytes>(Options { leaf_chain: 7, ..Options::tiny() }, 3000, 60_000);
    let options = Options { leaf_split_bytes: 512, leaf_merge_bytes: 128, ..Options::default() };
    stress::<Words>(options, 20_000, 100_000);
    stress::<Bytes>(options, 20_000, 100_000);
}

/// A long operation keeps retired memory from being freed and blocks nothing else. The counters show the memory. It is freed after the
/// operation ends.
#[test]
fn who_stays_keeps_memory_and_stops_nobody() {
    let tree = Tree::<Bytes>::new(Options::tiny()).unwrap();
    tree.put(b"k", &[7; 40]).unwrap();
    let (stays, leaves) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let seen = tree.get_with(b"k", |value| {
                stays.wait();
                leaves.wait();
                value.to_vec()
            });
            assert_eq!(seen, Some(vec![7; 40]));
        });
        stays.wait();
        for n in 0..5000u64 {
            tree.put(&(n % 500).to_be_bytes(), &n.to_be_bytes()).unwrap();
        }
        tree.delete(b"k").unwrap();
        tree.reclaim();
        let stats = tree.stats();
        assert!(stats.limbo_bytes() > 100_000, "{stats:?}");
        assert_eq!((tree.len(), tree.check().problems.len()), (500, 0));
        leaves.wait();
    });
    tree.reclaim();
    assert_eq!(tree.stats().limbo_bytes(), 0);
}
