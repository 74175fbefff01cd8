//! Long random runs against an ordered map.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::common::{Home, Mapped, Sample, memory, open_in, options, pairs, rewired};
use index::chain::prelude::*;
use index::{Fixed, Keyed, Prefixed, Words};
use pmem::Durability;
use vlab::{Addressed, Guide, Options, Vlab};

fn run<S: Sample>(lines: u64, faithful: bool, seed: u64, steps: usize, keys: u32) {
    run_in::<S>(&memory(64 << 20).0, &options::<S>(lines, faithful), seed, steps, keys);
}

/// Returns how often the index was seen with a window and without.
fn run_in<S: Sample>(home: &impl Home, options: &Options, seed: u64, steps: usize, keys: u32) -> [usize; 2] {
    let faithful = options.faithful;
    let mut index: Vlab<_, S> = Vlab::create(home.medium(), options).unwrap();
    let mut ways = [0; 2];
    let mut model: BTreeMap<S::KeyBuf, S::ValueBuf> = BTreeMap::new();
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut most, mut merged) = (0, 0);
    for step in 0..steps {
        let (key, value) = (S::key(rng.u32(..keys)), S::value(rng.u32(..300)));
        // Grows and shrinks in turns.
        let grows = (step / (steps / 8)).is_multiple_of(2);
        if rng.u32(..100) < if grows { 70 } else { 25 } {
            let replaced = index.put(S::borrow(&key), S::borrow_value(&value)).unwrap();
            assert_eq!(replaced, model.insert(key, value).is_some());
        } else {
            // One that is there, as a rule: so that little is left in the end.
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
        ways[usize::from(matches!(index.addressed(), Addressed::Directory(_)))] += 1;
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
            index = open_in(home, options);
        }
    }
    assert!(merged > 0 || faithful, "nothing was ever merged");
    for key in model.keys() {
        assert!(index.delete(S::borrow(key)).unwrap());
    }
    let report = index.check();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(report.keys, 0);
    assert!(report.nodes == 1 || faithful, "an empty index has {} buckets", report.nodes);
    ways
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

#[test]
fn wide_values_are_as_in_a_map() {
    run::<Fixed>(3, false, 7, 8_000, 300);
    run::<Fixed>(5, true, 8, 8_000, 500);
    run::<Fixed>(33, false, 9, 16_000, 4_000);
}

/// The same through windows: splits, merges, combines and opens in between.
#[test]
fn words_behind_windows_are_as_in_a_map() {
    for (faithful, seed, steps, keys) in [(false, 21, 60_000, 9_000), (true, 22, 40_000, 9_000)] {
        let ways = run_in::<Words>(&Mapped::new(), &rewired::<Words>(faithful), seed, steps, keys);
        println!("{} looks through a window, {} without", ways[0], ways[1]);
        assert!(ways[0] > steps / 4, "{ways:?}");
    }
    let ways = run_in::<Fixed>(&Mapped::new(), &rewired::<Fixed>(false), 23, 40_000, 6_000);
    assert!(ways[0] > 10_000, "{ways:?}");
}

/// Buckets as splits make them, and not evenly spread words: what a search compares.
#[test]
fn a_search_among_many_buckets_of_uniform_keys_compares_few() {
    for (guide, most) in
        [(Guide::Halves, 22.0), (Guide::Once, 24.0), (Guide::Again, 24.0), (Guide::Table, 10.99)]
    {
        let (medium, _) = memory(256 << 20);
        let small = Options { guide, ..Options::new(2, Durability::Power) };
        let index: Vlab<_, Words> = Vlab::create(medium, &small).unwrap();
        let mut rng = fastrand::Rng::with_seed(10);
        (0..150_000).for_each(|n| assert!(!index.put(&rng.u64(..), &n).unwrap()));
        index.combine().unwrap();
        let compared: u64 = (0..10_000).map(|_| u64::from(index.comparisons(&rng.u64(..)))).sum();
        let (mean, buckets) = (compared as f64 / 1e4, index.paths().directory);
        println!("{guide:?}: {mean:.2} comparisons among {buckets} buckets");
        assert!(mean < most && buckets > 1 << 15, "{guide:?}: {mean} comparisons among {buckets} buckets");
    }
}

/// Production sizes: full buckets, braids and combines as in use.
#[test]
fn pages_are_as_in_a_map() {
    let (medium, _) = memory(256 << 20);
    let production = vlab::Options::new(64, pmem::Durability::Power);
    let index: Vlab<_, Words> = Vlab::create(medium, &production).unwrap();
    assert_eq!(index.shape().capacity(), 252);
    let mut rng = fastrand::Rng::with_seed(10);
    let mut model = BTreeMap::new();
    for i in 0..150_000 {
        let key = if i % 3 == 0 { i << 40 } else { rng.u64(..) };
        index.put(&key, &i).unwrap();
        model.insert(key, i);
    }
    assert!(pairs(&mut index.cursor(), Bound::Unbounded, false).into_iter().eq(model.clone()));
    let paths = index.paths();
    assert!(paths.directory > paths.in_braids && paths.braids <= 512, "{paths:?}");
    index.combine().unwrap();
    let combined = index.paths();
    assert_eq!((combined.directory, combined.in_braids), (paths.directory + paths.in_braids, 0));
    for key in model.keys().filter(|key| *key % 16 != 0) {
        assert!(index.delete(key).unwrap());
    }
    model.retain(|key, _| key % 16 == 0);
    assert!(pairs(&mut index.cursor(), Bound::Unbounded, false).into_iter().eq(model.clone()));
    let report = index.check();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert!(report.nodes * 252 < report.keys * 12, "{} buckets of {} keys", report.nodes, report.keys);
}
