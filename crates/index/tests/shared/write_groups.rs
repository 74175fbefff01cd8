//! Does the same writes to an index in write groups and to an ordered map one by one, and compares the result for each key and the
//! contents.

use std::collections::BTreeMap;

use crate::common::{Index, Sample, memory, options, pairs};
use index::leaf_list::prelude::*;
use index::{Fixed, Keyed, Words, Write, WriteOptions};

/// Calls with random numbers of writes of keys below `keys`. Every second call repeats few keys. The index grows and shrinks in turn, so
/// that the leaf of one write may be joined with the leaf of another.
fn equal_one_by_one<S: Sample>(lines: u64, faithful: bool, keys: u32) {
    let (medium, _) = memory(64 << 20);
    let index = Index::<_, S>::create(medium, &options::<S>(lines, faithful)).unwrap();
    let mut model: BTreeMap<S::KeyBuf, S::ValueBuf> = BTreeMap::new();
    let mut rng = fastrand::Rng::with_seed(u64::from(keys) + lines);
    let mut together = 0;
    for call in 0..600_u32 {
        let puts = if call / 100 % 2 == 0 { 200 } else { 50 };
        let range = if call % 2 == 0 { keys } else { keys / 16 };
        let some: Vec<_> = (0..rng.usize(..90))
            .map(|_| {
                let value = (rng.u8(..) < puts).then(|| S::value(rng.u32(..300)));
                (S::key(rng.u32(..range)), value)
            })
            .collect();
        let writes: Vec<_> = some
            .iter()
            .map(|(key, value)| match value {
                Some(value) => Write::Put(S::borrow(key), S::borrow_value(value)),
                None => Write::Delete(S::borrow(key)),
            })
            .collect();
        together += writes.len();
        let found = index.write_many_as(&writes, WriteOptions::default()).unwrap();
        assert_eq!(found.len(), some.len());
        for ((key, value), found) in some.into_iter().zip(found) {
            let old = match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
            assert_eq!(found, old.is_some(), "call {call}");
        }
        assert_eq!(index.len(), model.len() as u64, "call {call}");
        if call % 7 == 0 {
            let problems = index.check().problems;
            assert!(problems.is_empty(), "call {call}: {problems:?}");
            let there = pairs(&mut index.cursor(), std::ops::Bound::Unbounded, false);
            assert!(there.into_iter().eq(model.clone()), "call {call}");
        }
    }
    assert!(together > 20_000 && !model.is_empty(), "{together} writes");
}

#[test]
fn words_at_once_are_as_one_by_one() {
    for (lines, keys) in [(2, 400), (4, 3000), (16, 3000)] {
        equal_one_by_one::<Words>(lines, false, keys);
        equal_one_by_one::<Words>(lines, true, keys);
    }
}

#[test]
fn wide_values_at_once_are_as_one_by_one() {
    equal_one_by_one::<Fixed>(5, false, 2000);
    equal_one_by_one::<Fixed>(5, true, 2000);
}

#[test]
fn byte_strings_at_once_are_as_one_by_one() {
    for (lines, keys) in [(2, 400), (4, 2000)] {
        equal_one_by_one::<Keyed>(lines, false, keys);
        equal_one_by_one::<Keyed>(lines, true, keys);
    }
}
