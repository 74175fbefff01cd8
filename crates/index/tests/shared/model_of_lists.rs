//! Long random runs that compare lists of leaves with an ordered map.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use crate::common::{Index, Options, Sample, leaves_of_empty, memory, options, pairs};
use index::leaf_list::prelude::*;
use index::{Fixed, Keyed, Prefixed, Words};
use pmem::{Durability, Medium, Observed};

fn run<S: Sample>(lines: u64, faithful: bool, seed: u64, steps: usize, keys: u32) {
    let (medium, _) = memory(64 << 20);
    run_in(
        || medium.clone(),
        &options::<S>(lines, faithful),
        (seed, steps, keys),
        |_: &Index<Observed, S>| {},
    );
}

/// Does random puts and deletes on an index, and reopens it now and then. `medium` returns a handle of the memory of the index. `look` gets
/// the index after each step.
pub fn run_in<M: Medium, S: Sample>(
    medium: impl Fn() -> M,
    options: &Options,
    (seed, steps, keys): (u64, usize, u32),
    mut look: impl FnMut(&Index<M, S>),
) {
    let mut index: Index<_, S> = Index::create(medium(), options).unwrap();
    let mut model: BTreeMap<S::KeyBuf, S::ValueBuf> = BTreeMap::new();
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut most, mut merged) = (0, 0);
    for step in 0..steps {
        let (key, value) = (S::key(rng.u32(..keys)), S::value(rng.u32(..300)));
        // The index grows and shrinks in turn.
        let grows = (step / (steps / 8)).is_multiple_of(2);
        if rng.u32(..100) < if grows { 70 } else { 25 } {
            let replaced = index.put(S::borrow(&key), S::borrow_value(&value)).unwrap();
            assert_eq!(replaced, model.insert(key, value).is_some());
        } else {
            // Usually a key that is present, so that few keys are left in the end.
            let there = model.range(key.clone()..).next().map(|(key, _)| key.clone());
            let key = there.filter(|_| !grows || rng.bool()).unwrap_or(key);
            let removed = index.delete(S::borrow(&key)).unwrap();
            assert_eq!(removed, model.remove(&key).is_some());
        }
        let probe = S::key(rng.u32(..keys));
        let mut got = S::ValueBuf::default();
        let found = index.get(S::borrow(&probe), Some(&mut got)).unwrap();
        assert_eq!(found.then_some(&got), model.get(&probe), "step {step}");
        assert_eq!(index.len(), model.len() as u64);
        look(&index);
        if step % 97 == 0 {
            let report = index.check();
            assert!(report.problems.is_empty(), "step {step}: {:?}", report.problems);
            if report.nodes < most {
                merged += 1;
            }
            most = report.nodes;
            let from = match rng.u32(..3) {
                0 => Bound::Included(probe.clone()),
                1 => Bound::Excluded(probe.clone()),
                _ => Bound::Unbounded,
            };
            let up = pairs(&mut index.cursor(), from.clone(), false);
            let expected = model.range((from.clone(), Bound::Unbounded));
            assert!(up.iter().map(|(key, value)| (key, value)).eq(expected), "step {step}");
            let down = pairs(&mut index.cursor(), from.clone(), true);
            let expected = model.range((Bound::Unbounded, from)).rev();
            assert!(down.iter().map(|(key, value)| (key, value)).eq(expected), "step {step}");
        }
        if step % 1009 == 1008 {
            if rng.bool() {
                index.close().unwrap();
            }
            drop(index);
            index = Index::open(medium(), Path::new("memory"), options).unwrap().0;
        }
    }
    let least = leaves_of_empty(&index);
    assert!(merged > 0 || least.is_none(), "nothing was ever merged");
    for key in model.keys() {
        assert!(index.delete(S::borrow(key)).unwrap());
    }
    let report = index.check();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(report.keys, 0);
    let least = leaves_of_empty(&index);
    assert!(least.is_none_or(|least| report.nodes <= least), "{} leaves, not {least:?}", report.nodes);
    assert_eq!(pairs(&mut index.cursor(), Bound::Unbounded, false).len(), 0);
    assert_eq!(pairs(&mut index.cursor(), Bound::Unbounded, true).len(), 0);
}

#[test]
fn words_are_as_in_a_map() {
    run::<Words>(2, false, 1, 12_000, 400);
    run::<Words>(3, true, 2, 12_000, 900);
    run::<Words>(17, false, 3, 24_000, 6_000);
}

#[test]
fn byte_strings_are_as_in_a_map() {
    run::<Keyed>(2, false, 4, 8_000, 300);
    run::<Keyed>(3, true, 5, 8_000, 500);
    run::<Keyed>(17, false, 6, 16_000, 3_000);
    run::<Prefixed>(3, false, 11, 8_000, 500);
    run::<Prefixed>(9, true, 12, 8_000, 1_500);
}

/// Keys that share more bytes than the bounds of their leaf show, with many entries in a leaf, and records of several pieces.
#[test]
fn byte_strings_that_begin_alike_are_scanned_in_order() {
    for (bytes, value_bytes) in [(0, 1), (61, 1), (72, 40 << 10), (300, 1)] {
        let (medium, _) = memory(256 << 20);
        let index: Index<_, Keyed> = Index::create(medium, &options::<Keyed>(33, false)).unwrap();
        let mut model = BTreeMap::new();
        for n in 0..500_u32 {
            let key = [&vec![b's'; bytes][..], format!("{:b}", n / 2).as_bytes(), &vec![0; n as usize % 2]]
                .concat();
            let value = vec![n as u8; if n % 50 == 0 { value_bytes } else { 1 }];
            index.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        assert!(pairs(&mut index.cursor(), Bound::Unbounded, false).into_iter().eq(model.clone()));
        for from in model.keys().step_by(17) {
            let down = pairs(&mut index.cursor(), Bound::Excluded(from.clone()), true);
            let expected = model.range::<Vec<u8>, _>((Bound::Unbounded, Bound::Excluded(from))).rev();
            assert!(down.iter().map(|(key, value)| (key, value)).eq(expected), "{bytes}");
        }
    }
}

#[test]
fn wide_values_are_as_in_a_map() {
    run::<Fixed>(3, false, 7, 8_000, 300);
    run::<Fixed>(5, true, 8, 8_000, 500);
    run::<Fixed>(33, false, 9, 16_000, 4_000);
}

/// A run with production sizes. `rebuild` rebuilds the path to the leaves and checks it.
pub fn pages(rebuild: impl FnOnce(&Index<Observed, Words>)) {
    let (medium, _) = memory(256 << 20);
    let index: Index<_, Words> = Index::create(medium, &Options::new(64, Durability::Power)).unwrap();
    assert_eq!(index.shape().capacity(), 252);
    let mut rng = fastrand::Rng::with_seed(10);
    let mut model = BTreeMap::new();
    for i in 0..150_000 {
        let key = if i % 3 == 0 { i << 40 } else { rng.u64(..) };
        index.put(&key, &i).unwrap();
        model.insert(key, i);
    }
    assert!(pairs(&mut index.cursor(), Bound::Unbounded, false).into_iter().eq(model.clone()));
    rebuild(&index);
    for key in model.keys().filter(|key| *key % 16 != 0) {
        assert!(index.delete(key).unwrap());
    }
    model.retain(|key, _| key % 16 == 0);
    assert!(pairs(&mut index.cursor(), Bound::Unbounded, false).into_iter().eq(model.clone()));
    let report = index.check();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert!(report.nodes * 252 < report.keys * 12, "{} leaves of {} keys", report.nodes, report.keys);
}

/// Keys with a common prefix. The search must read the separators themselves, among many leaves with the same first word.
#[test]
fn keys_that_differ_late_are_as_in_a_map() {
    let (medium, _) = memory(64 << 20);
    let index: Index<_, Prefixed> = Index::create(medium, &options::<Prefixed>(3, false)).unwrap();
    let mut model = BTreeMap::new();
    let mut rng = fastrand::Rng::with_seed(12);
    let key = |n: u32| format!("{}/and/all/the/same/{n:05}", ["alpha", "omega"][n as usize % 2]).into_bytes();
    for step in 0..12_000_u32 {
        let key = key(rng.u32(..1500));
        if rng.u8(..10) < 6 {
            let value = step.to_le_bytes().to_vec();
            index.put(&key, &value).unwrap();
            model.insert(key, value);
        } else {
            assert_eq!(index.delete(&key).unwrap(), model.remove(&key).is_some());
        }
    }
    let problems = index.check().problems;
    assert!(problems.is_empty(), "{problems:?}");
    assert!(pairs(&mut index.cursor(), Bound::Unbounded, false).into_iter().eq(model.clone()));
    assert!(pairs(&mut index.cursor(), Bound::Unbounded, true).into_iter().eq(model.into_iter().rev()));
}
