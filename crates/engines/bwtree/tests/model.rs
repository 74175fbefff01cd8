//! Trees with tiny pages, compared with `BTreeMap`: the same operations on both must return the same results and leave the same contents.
//!
//! `BRISTLECONE_SEED` changes the seeds of the long runs. proptest makes the short ones and shrinks failing cases.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Bound;

use crate::common::{Numbered, key_of, number_from, value_of};
use bwtree::{Bytes, Change, Error, KEY_BYTES_MAX, Options, Tree, Words};
use proptest::prelude::*;

type Model = BTreeMap<u64, u64>;

/// Compares all contents of a tree with the model.
fn compare<P: Numbered>(tree: &Tree<P>, model: &Model) {
    let check = tree.check();
    assert_eq!(check.problems, Vec::<String>::new());
    assert!(check.is_quiet);
    assert_eq!((check.records, tree.len()), (model.len() as u64, model.len() as u64));
    let pair = |(key, value): (P::KeyBuf, P::ValueBuf)| (key_of::<P>(&key), value_of::<P>(&value));
    let wanted = || model.iter().map(|(key, value)| (*key, *value));
    assert!(tree.iter().map(pair).eq(wanted()));
    let descending = tree.range_descending(Bound::Unbounded, Bound::Unbounded);
    assert!(descending.map(pair).eq(wanted().rev()));
}

fn bounds_of<P: Numbered>(bound: Bound<u64>) -> Bound<P::KeyBuf> {
    bound.map(P::key)
}

fn borrowed<P: Numbered>(bound: &Bound<P::KeyBuf>) -> Bound<&P::Key> {
    bound.as_ref().map(Borrow::borrow)
}

fn compare_range<P: Numbered>(tree: &Tree<P>, model: &Model, from: Bound<u64>, to: Bound<u64>) {
    let is_empty = match (from, to) {
        (Bound::Excluded(a), Bound::Excluded(b)) => a >= b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a > b,
        _ => false,
    };
    let wanted: Vec<u64> =
        if is_empty { Vec::new() } else { model.range((from, to)).map(|(key, _)| *key).collect() };
    let (from, to) = (bounds_of::<P>(from), bounds_of::<P>(to));
    let (from, to) = (borrowed::<P>(&from), borrowed::<P>(&to));
    let up: Vec<u64> = tree.range(from, to).map(|(key, _)| key_of::<P>(&key)).collect();
    assert_eq!(up, wanted, "{from:?} {to:?}");
    let mut down: Vec<u64> = tree.range_descending(from, to).map(|(key, _)| key_of::<P>(&key)).collect();
    down.reverse();
    assert_eq!(down, wanted, "{from:?} {to:?}, descending");
}

#[derive(Clone, Debug)]
enum Step {
    Put(u64),
    Insert(u64),
    Delete(u64),
    Update(u64),
    Get(u64),
    Range(Bound<u64>, Bound<u64>),
    Reclaim,
}

fn apply<P: Numbered>(tree: &Tree<P>, model: &mut Model, step: &Step, next: u64) {
    let key = |n: u64| P::key(n);
    let value = P::value(next);
    let value: &P::Value = value.borrow();
    match *step {
        Step::Put(n) => {
            assert_eq!(tree.put(key(n).borrow(), value), Ok(model.insert(n, next).is_some()));
        }
        Step::Insert(n) => {
            let is_new = !model.contains_key(&n);
            model.entry(n).or_insert(next);
            assert_eq!(tree.insert(key(n).borrow(), value), Ok(is_new));
        }
        Step::Delete(n) => assert_eq!(tree.delete(key(n).borrow()), Ok(model.remove(&n).is_some())),
        Step::Update(n) => {
            // The old value decides whether the key is kept, put or deleted.
            let decide = |old: Option<u64>| match old {
                Some(old) if old % 3 == 0 => Change::Keep,
                Some(old) if old % 3 == 1 => Change::Delete,
                _ => Change::Put(next),
            };
            let was_there = tree.update(key(n).borrow(), |old| match decide(old.map(P::number)) {
                Change::Keep => Change::Keep,
                Change::Delete => Change::Delete,
                Change::Put(next) => Change::Put(P::value(next)),
            });
            assert_eq!(was_there, Ok(model.contains_key(&n)));
            match decide(model.get(&n).copied()) {
                Change::Keep => {}
                Change::Delete => drop(model.remove(&n)),
                Change::Put(next) => drop(model.insert(n, next)),
            }
        }
        Step::Get(n) => {
            let found = tree.get(key(n).borrow()).map(|value| value_of::<P>(&value));
            assert_eq!(found, model.get(&n).copied());
            assert_eq!(tree.contains(key(n).borrow()), found.is_some());
        }
        Step::Range(from, to) => compare_range(tree, model, from, to),
        Step::Reclaim => {
            tree.reclaim();
            let stats = tree.stats();
            assert_eq!((stats.limbo_objects(), stats.limbo_bytes()), (0, 0));
        }
    }
}

fn bound(keys: u64) -> impl Strategy<Value = Bound<u64>> {
    prop_oneof![
        Just(Bound::Unbounded),
        (0..keys).prop_map(Bound::Included),
        (0..keys).prop_map(Bound::Excluded),
    ]
}

fn steps(keys: u64) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..keys).prop_map(Step::Put),
        2 => (0..keys).prop_map(Step::Insert),
        5 => (0..keys).prop_map(Step::Delete),
        2 => (0..keys).prop_map(Step::Update),
        2 => (0..keys).prop_map(Step::Get),
        1 => (bound(keys), bound(keys)).prop_map(|(from, to)| Step::Range(from, to)),
        1 => Just(Step::Reclaim),
    ];
    proptest::collection::vec(step, 1..200)
}

fn short<P: Numbered>(steps: &[Step]) {
    let tree = Tree::<P>::new(Options::tiny()).unwrap();
    let mut model = Model::new();
    for (step, next) in steps.iter().zip(1..) {
        apply(&tree, &mut model, step, next);
    }
    compare(&tree, &model);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn short_runs_of_words_are_a_map(steps in steps(40)) {
        short::<Words>(&steps);
    }

    #[test]
    fn short_runs_of_bytes_are_a_map(steps in steps(40)) {
        short::<Bytes>(&steps);
    }
}

/// A long run with alternating phases: more puts than deletes, then more deletes than puts.
fn long<P: Numbered>(options: Options, keys: u64, count: u64) {
    let seed = number_from("BRISTLECONE_SEED", 0);
    let mut random = fastrand::Rng::with_seed(seed);
    let (tree, mut model) = (Tree::<P>::new(options).unwrap(), Model::new());
    for next in 1..=count {
        let n = random.u64(..keys);
        let grows = (next / 5000).is_multiple_of(2);
        let step = match random.u8(..16) {
            0..6 if grows => Step::Put(n),
            0..8 if grows => Step::Insert(n),
            0..9 => Step::Delete(n),
            9 => Step::Update(n),
            10 | 11 => Step::Put(n),
            _ => Step::Get(n),
        };
        apply(&tree, &mut model, &step, next);
        if next % 2500 == 0 {
            compare(&tree, &model);
            let (from, to) = (random.u64(..keys), random.u64(..keys));
            compare_range(&tree, &model, Bound::Included(from), Bound::Excluded(to));
            compare_range(&tree, &model, Bound::Excluded(from), Bound::Included(to));
        }
    }
    let stats = tree.stats();
    println!("seed {seed}: {stats:?}");
    assert!(stats.splits > 0 && stats.merges > 0 && stats.root_splits > 0, "{stats:?}");
    // Delete all keys: one empty leaf must remain, and all other memory must be freed.
    for n in 0..keys {
        assert_eq!(tree.delete(P::key(n).borrow()), Ok(model.remove(&n).is_some()));
    }
    compare(&tree, &model);
    tree.reclaim();
    let stats = tree.stats();
    assert_eq!((stats.levels, stats.pids, stats.limbo_objects()), (1, 1, 0), "{stats:?}");
    assert_eq!(stats.retired_pids, stats.freed_pids);
}

#[test]
fn long_runs_of_words_in_tiny_pages_are_a_map() {
    long::<Words>(Options::tiny(), 2000, 40_000);
    long::<Words>(Options { leaf_chain: 7, ..Options::tiny() }, 2000, 40_000);
}

#[test]
fn long_runs_of_bytes_in_tiny_pages_are_a_map() {
    long::<Bytes>(Options::tiny(), 2000, 40_000);
    long::<Bytes>(Options { leaf_chain: 7, ..Options::tiny() }, 2000, 40_000);
}

#[test]
fn long_runs_in_pages_of_some_size_are_a_map() {
    let options = Options {
        leaf_split_bytes: 400,
        leaf_merge_bytes: 120,
        inner_split_bytes: 300,
        inner_merge_bytes: 100,
        ..Options::default()
    };
    long::<Words>(options, 5000, 60_000);
    long::<Bytes>(options, 5000, 60_000);
}

/// Fills and empties a tree in ascending and in descending order, which changes the ends of all levels.
#[test]
fn a_tree_that_was_filled_and_emptied_in_order_is_one_empty_leaf() {
    fn run<P: Numbered>(fill: impl Iterator<Item = u64>, empty: impl Iterator<Item = u64>) {
        let (tree, mut model) = (Tree::<P>::new(Options::tiny()).unwrap(), Model::new());
        for n in fill {
            apply(&tree, &mut model, &Step::Put(n), n + 1);
        }
        compare(&tree, &model);
        assert!(tree.stats().levels > 3);
        for n in empty {
            apply(&tree, &mut model, &Step::Delete(n), 0);
        }
        compare(&tree, &model);
        assert_eq!(tree.stats().levels, 1, "{:?}", tree.stats());
    }
    let n = 600;
    run::<Words>(0..n, 0..n);
    run::<Words>(0..n, (0..n).rev());
    run::<Words>((0..n).rev(), 0..n);
    run::<Bytes>((0..n).rev(), (0..n).rev());
    run::<Bytes>(0..n, 0..n);
}

#[test]
fn long_keys_empty_keys_and_large_values_come_out_as_they_went_in() {
    let tree = Tree::<Bytes>::new(Options::tiny()).unwrap();
    let mut model = BTreeMap::new();
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..600usize {
        let length = match round % 4 {
            0 => random.usize(..4),
            1 => random.usize(..40),
            2 => 1000 + random.usize(..3),
            _ => KEY_BYTES_MAX - random.usize(..3),
        };
        // Many keys have a long common prefix.
        let mut key = vec![b'x'; length];
        if let Some(last) = key.last_mut() {
            *last = random.u8(..);
        }
        let value = vec![round as u8; if round % 3 == 0 { random.usize(..20) } else { random.usize(..5000) }];
        if random.u8(..3) == 0 {
            assert_eq!(tree.delete(&key), Ok(model.remove(&key).is_some()));
        } else {
            let was_there = tree.put(&key, &value);
            assert_eq!(was_there, Ok(model.insert(key, value).is_some()));
        }
        if round % 50 == 0 {
            assert_eq!(tree.check().problems, Vec::<String>::new());
        }
    }
    assert!(model.contains_key(&Vec::new()) || tree.get(&[]).is_none());
    let wanted: Vec<_> = model.into_iter().collect();
    let up: Vec<_> = tree.iter().map(|(key, value)| (key.into_vec(), value)).collect();
    assert!(up == wanted);
    let mut down: Vec<_> = tree.range_descending(Bound::Unbounded, Bound::Unbounded).collect();
    down.reverse();
    assert!(down.into_iter().map(|(key, value)| (key.into_vec(), value)).eq(wanted));
    assert!(tree.stats().levels > 1);
}

#[test]
fn what_is_too_long_is_refused_and_changes_nothing() {
    let tree = Tree::<Bytes>::default();
    let key = vec![0; KEY_BYTES_MAX + 1];
    let refused = Error::KeyTooLong { bytes: KEY_BYTES_MAX + 1, max: KEY_BYTES_MAX };
    assert_eq!(tree.put(&key, b"x"), Err(refused.clone()));
    assert_eq!(tree.insert(&key, b"x"), Err(refused.clone()));
    assert_eq!(tree.delete(&key), Err(refused.clone()));
    assert_eq!(tree.update(&key, |_| Change::Put(vec![1])), Err(refused));
    assert_eq!(tree.get(&key), None);
    assert!(tree.is_empty() && tree.stats().updates == 0);
    assert_eq!(tree.put(&key[1..], b"x"), Ok(false));
    assert_eq!(tree.get(&key[1..]), Some(b"x".to_vec()));
}

#[test]
fn options_without_sense_are_refused() {
    let wrong: [fn(&mut Options); 7] = [
        |options| options.leaf_chain = 0,
        |options| options.leaf_chain = bwtree::LEAF_CHAIN_MAX + 1,
        |options| options.inner_chain = 0,
        |options| options.limbo = 0,
        |options| options.segment_entries = 3,
        |options| options.leaf_merge_bytes = options.leaf_split_bytes + 1,
        |options| options.inner_split_bytes = 1 << 30,
    ];
    for wrong in wrong {
        let mut options = Options::default();
        wrong(&mut options);
        assert!(matches!(Tree::<Words>::new(options), Err(Error::Option { .. })), "{options:?}");
    }
}

/// A value that one operation holds does not change while others change the tree.
#[test]
fn who_is_at_work_keeps_what_he_sees() {
    let tree = Tree::<Bytes>::new(Options::tiny()).unwrap();
    tree.put(b"a", &[1; 100]).unwrap();
    let was = tree.get_with(b"a", |value| {
        for n in 0..200u64 {
            tree.put(&n.to_be_bytes(), &[2; 100]).unwrap();
            tree.delete(b"a").unwrap();
        }
        tree.reclaim();
        assert!(tree.stats().limbo_bytes() > 0, "nothing waits for somebody at work");
        value.to_vec()
    });
    assert_eq!(was, Some(vec![1; 100]));
    tree.reclaim();
    assert_eq!(tree.stats().limbo_bytes(), 0);
}

/// A record is freed when it is deleted or replaced, no matter which pages it was in. The other records are freed with the tree, which
/// counts the freed bytes.
#[test]
fn large_values_are_freed_whatever_pages_they_went_through() {
    const VALUE: usize = 100_000;
    for options in [Options::tiny(), Options { leaf_chain: 7, ..Options::tiny() }, Options::default()] {
        let tree = Tree::<Bytes>::new(options).unwrap();
        let mut random = fastrand::Rng::with_seed(5);
        let mut model = BTreeMap::new();
        for round in 0..6000usize {
            let key = random.u64(..400).to_be_bytes();
            // The number of records first grows, then shrinks.
            if random.usize(..6000) > round {
                let value = vec![round as u8; VALUE];
                assert_eq!(tree.put(&key, &value).unwrap(), model.insert(key, value).is_some());
            } else {
                assert_eq!(tree.delete(&key).unwrap(), model.remove(&key).is_some());
            }
            if round % 500 == 0 {
                let check = tree.check();
                assert!(check.problems.is_empty() && check.is_quiet, "{check:?}");
                tree.reclaim();
                let memory = tree.memory();
                assert_eq!(memory.limbo_bytes, 0);
                // The slab of a leaf may still have replaced values.
                let values = memory.page_bytes as usize / VALUE;
                let most = model.len() + tree.stats().leaf_deltas as usize;
                assert!((model.len()..=most + 2).contains(&values), "{values} of {} values", model.len());
            }
        }
        assert!(
            tree.iter()
                .map(|(key, value)| (key.to_vec(), value))
                .eq(model.into_iter().map(|(key, value)| (key.to_vec(), value)))
        );
    }
}

/// A cursor continues after its last key when its page is split, merged or emptied meanwhile.
#[test]
fn a_cursor_goes_on_whatever_became_of_its_page() {
    fn run<P: Numbered>(descends: bool) {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..50 {
            let tree = Tree::<P>::new(Options::tiny()).unwrap();
            // Multiples of 4 exist throughout.
            for n in 0..80 {
                tree.put(P::key(n).borrow(), P::value(n).borrow()).unwrap();
            }
            let mut cursor = if descends {
                tree.range_descending(Bound::Unbounded, Bound::Unbounded)
            } else {
                tree.iter()
            };
            let mut seen = Vec::new();
            for (key, _) in cursor.by_ref() {
                seen.push(key_of::<P>(&key));
                for _ in 0..random.usize(..30) {
                    let n = random.u64(..80);
                    if !n.is_multiple_of(4) && random.bool() {
                        tree.delete(P::key(n).borrow()).unwrap();
                    } else {
                        tree.put(P::key(n).borrow(), P::value(n).borrow()).unwrap();
                    }
                }
            }
            assert!(seen.is_sorted_by(|a, b| if descends { a > b } else { a < b }), "{seen:?}");
            assert!((0..80).step_by(4).all(|n| seen.contains(&n)), "{seen:?}");
            assert!(cursor.next().is_none());
        }
    }
    for descends in [false, true] {
        run::<Words>(descends);
        run::<Bytes>(descends);
    }
}
