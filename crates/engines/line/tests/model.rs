//! Large lists against an ordered map: directories of several levels, separators that begin alike, keys at the ends of the range.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::counted;
use index::leaf_list::LeafList;
use index::leaf_list::prelude::*;
use index::{Create, Keyed, Schema, Words};
use pmem::Medium;

/// Random puts and deletes with keys of `key`; the list grows, shrinks, and grows again.
fn equals_a_map<S>(
    lines: u64,
    steps: u32,
    keys: u32,
    key: impl Fn(u32) -> S::KeyBuf,
    value: fn(u32) -> S::ValueBuf,
) where
    S: Schema<KeyBuf: Ord, ValueBuf: PartialEq>,
{
    let (index, _) = counted::<S>(lines);
    let mut model: BTreeMap<S::KeyBuf, S::ValueBuf> = BTreeMap::new();
    let mut rng = fastrand::Rng::with_seed(u64::from(steps) + lines);
    let mut most_leaves = 0;
    for step in 0..steps {
        let grows = (step / (steps / 4)).is_multiple_of(2);
        let (one, new) = (key(rng.u32(..keys)), value(step));
        if rng.u32(..10) < if grows { 9 } else { 1 } {
            let was = model.insert(one.clone(), new.clone()).is_some();
            assert_eq!(index.put(S::borrow(&one), S::borrow_value(&new)).unwrap(), was, "step {step}");
        } else {
            let near = model.range(one.clone()..).next().map_or(one, |(near, _)| near.clone());
            let was = model.remove(&near).is_some();
            assert_eq!(index.delete(S::borrow(&near)).unwrap(), was, "step {step}");
        }
        let probe = key(rng.u32(..keys));
        let mut got = S::ValueBuf::default();
        let found = index.get(S::borrow(&probe), Some(&mut got)).unwrap();
        assert_eq!(found.then_some(&got), model.get(&probe), "step {step}");
        if step % (steps / 8) == steps / 8 - 1 {
            let report = index.check();
            assert!(report.problems.is_empty(), "step {step}: {:?}", report.problems);
            most_leaves = most_leaves.max(report.leaves);
            let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
            let mut cursor = index.cursor();
            cursor.seek(Bound::Unbounded, false);
            for (expected, of_key) in &model {
                assert!(cursor.next(&mut key, &mut value).unwrap());
                assert!(key == *expected && value == *of_key, "step {step}");
            }
            assert!(!cursor.next(&mut key, &mut value).unwrap());
        }
    }
    let left: Vec<_> = model.into_keys().collect();
    for key in &left {
        assert!(index.delete(S::borrow(key)).unwrap());
    }
    let report = index.check();
    assert!(report.problems.is_empty() && index.is_empty(), "{:?}", report.problems);
    // Inner nodes merge, too. One path and some neighbours remain.
    assert!(report.leaves * 20 < most_leaves, "{} of {most_leaves} leaves are left", report.leaves);
}

#[test]
fn words_are_as_in_a_map() {
    // Mixed, dense, and at both ends of the range.
    equals_a_map::<Words>(2, 40_000, 30_000, |n| u64::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15), u64::from);
    equals_a_map::<Words>(2, 40_000, 30_000, u64::from, u64::from);
    equals_a_map::<Words>(3, 40_000, 30_000, |n| u64::MAX - u64::from(n), u64::from);
    equals_a_map::<Words>(
        8,
        60_000,
        50_000,
        |n| if n % 2 == 0 { u64::from(n) } else { u64::MAX - (u64::from(n) << 40) },
        u64::from,
    );
}

#[test]
fn byte_strings_are_as_in_a_map() {
    let value = |n: u32| n.to_le_bytes().to_vec();
    equals_a_map::<Keyed>(2, 30_000, 20_000, |n| format!("user:{n:012}").into_bytes(), value);
    // Equal beginnings that are longer than a node's prefix.
    let long = |n: u32| format!("{}{n:08}", "the same beginning, again and again; ".repeat(3)).into_bytes();
    equals_a_map::<Keyed>(2, 20_000, 10_000, long, value);
    // Zeros at the end, the empty key, and lengths of all kinds.
    let zeros = |n: u32| {
        let mut key = (n / 6).to_be_bytes()[n as usize % 3..].to_vec();
        key.extend(vec![0; n as usize % 6]);
        if n == 0 { Vec::new() } else { key }
    };
    equals_a_map::<Keyed>(3, 30_000, 20_000, zeros, value);
    // Eight bytes and more in common only among neighbours.
    let mixed = |n: u32| format!("{:x}/{:x}", u64::from(n / 50) * 0x1234_5678_9ABC, n % 50).into_bytes();
    equals_a_map::<Keyed>(8, 40_000, 30_000, mixed, value);
}

/// Keys with few letters and of many lengths: many are equal in the bytes by which a scan orders a leaf, and many are prefixes of others.
#[test]
fn scans_from_every_key_are_those_of_a_map() {
    scans_equal_a_map(2, "", 0);
    scans_equal_a_map(8, "", 0);
    scans_equal_a_map(8, "the same beginning; ", 20);
    scans_equal_a_map(3, "seven b", 20);
    // The bounds of the first leaf and of the last one do not show what all keys share.
    for bytes in [8, 15, 56, 64, 65, 72, 256, 264, 300] {
        scans_equal_a_map(8, &"s".repeat(bytes), 0);
    }
}

/// A damaged slot references the record of a key that belongs to another leaf. The record is sound, so only its place shows the damage. A scan
/// ends with an error there, or omits the key of this slot. It returns all other keys up to there, in order, and no key twice.
#[test]
fn a_key_in_a_wrong_leaf_does_not_change_the_order_of_a_scan() {
    let (medium, _) = crate::observed();
    let index: line::Line<_, Keyed> = line::Line::create(medium.clone(), &crate::form(2)).unwrap();
    let key = |n: u32| format!("key {n:04}").into_bytes();
    for n in 0..1000 {
        index.put(&key(n), b"value").unwrap();
    }
    let words = |is: &dyn Fn(u64) -> bool| -> Vec<u64> {
        (0..1 << 20).step_by(8).filter(|at| is(medium.word(*at))).collect()
    };
    let record = |n: u32| {
        let at = words(&|word| word.to_le_bytes() == key(n)[..]);
        assert_eq!(at.len(), 1, "the key is stored once");
        at[0] - 16
    };
    let own = record(500);
    let slots = words(&|word| word & ((1 << 48) - 1) == own && word >> 48 != 0);
    let [slot] = *slots else { panic!("{slots:?}") };
    let mut errors = 0;
    for other in [3, 13, 577, 988] {
        medium.publish(slot, medium.word(slot) >> 48 << 48 | record(other));
        for (start, descending) in [(0, false), (400, false), (999, true), (600, true)] {
            let mut cursor = index.cursor();
            cursor.seek(Bound::Included(key(start)), descending);
            let up = (start..1000).filter(|_| !descending);
            let mut expected = up.chain((0..=start).rev().filter(|_| descending)).filter(|n| *n != 500);
            let (mut found, mut value) = (Vec::new(), Vec::new());
            loop {
                match cursor.next(&mut found, &mut value) {
                    Ok(true) => assert_eq!(found, key(expected.next().unwrap()), "{other} {start}"),
                    Ok(false) => break assert_eq!(expected.next(), None, "{other} {start}"),
                    Err(error) => break assert!(matches!(error, pmem::Error::Corrupt { .. }), "{error}"),
                }
            }
            errors += u32::from(expected.next().is_some());
        }
    }
    assert!(errors > 0, "no scan found the damage");
}

/// Compares scans of 700 keys that begin with `shared`; one in `exceptions` of them does not.
fn scans_equal_a_map(lines: u64, shared: &str, exceptions: u32) {
    let mut rng = fastrand::Rng::with_seed(5);
    let (index, _) = counted::<Keyed>(lines);
    let mut model = BTreeMap::new();
    for step in 0..700_u32 {
        let is_exception = exceptions > 0 && rng.u32(..exceptions) == 0;
        let mut key = if is_exception { Vec::new() } else { shared.as_bytes().to_vec() };
        for _ in 0..rng.usize(..26) {
            key.push(rng.u8(b'a'..=b'b'));
        }
        let value = step.to_le_bytes().to_vec();
        index.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut near: Vec<Vec<u8>> = model.keys().cloned().collect();
    near.extend(model.keys().map(|key| [key, &b"\0"[..]].concat()));
    for from in near {
        for from in [Bound::Included(from.clone()), Bound::Excluded(from)] {
            let mut cursor = index.cursor();
            cursor.seek(from.clone(), false);
            for (expected, of_key) in model.range((from.clone(), Bound::Unbounded)).take(70) {
                assert!(cursor.next(&mut key, &mut value).unwrap());
                assert!(key == *expected && value == *of_key, "{from:?}: {key:?}, not {expected:?}");
            }
            cursor.seek(from.clone(), true);
            for (expected, of_key) in model.range((Bound::Unbounded, from.clone())).rev().take(70) {
                assert!(cursor.next(&mut key, &mut value).unwrap());
                assert!(key == *expected && value == *of_key, "{from:?}: {key:?}, not {expected:?}");
            }
        }
    }
}
