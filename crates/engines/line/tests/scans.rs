//! Scans of leaves that change between two scans, or during one, or that have damaged records. Orders of byte strings are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::counted;
use index::leaf_list::LeafList;
use index::leaf_list::prelude::*;
use index::{Keyed, Schema, Words};
use pmem::Medium;

/// A range from a bound of a map, in one direction.
fn range<'a, K: Ord, V>(
    map: &'a BTreeMap<K, V>,
    from: Bound<&'a K>,
    descending: bool,
) -> Box<dyn Iterator<Item = (&'a K, &'a V)> + 'a> {
    if descending {
        Box::new(map.range((Bound::Unbounded, from)).rev())
    } else {
        Box::new(map.range((from, Bound::Unbounded)))
    }
}

/// In each of `steps` steps, after some random writes, some pairs from a random key on are as in an ordered map.
fn ranges_are_as_in_a_map<S>(
    lines: u64,
    steps: u32,
    keys: u32,
    key: impl Fn(u32) -> S::KeyBuf,
    value: fn(u32) -> S::ValueBuf,
) where
    S: Schema<KeyBuf: Ord, ValueBuf: PartialEq>,
{
    let (index, _) = counted::<S>(lines);
    let extra = || LeafList::anatomy(&index, &mut std::iter::empty()).unwrap().extra_bytes;
    let mut model: BTreeMap<S::KeyBuf, S::ValueBuf> = BTreeMap::new();
    let mut rng = fastrand::Rng::with_seed(u64::from(steps) * 3 + lines);
    let (mut read_key, mut read_value) = (S::KeyBuf::default(), S::ValueBuf::default());
    for n in 0..keys / 2 {
        index.put(S::borrow(&key(n * 2)), S::borrow_value(&value(n))).unwrap();
        model.insert(key(n * 2), value(n));
    }
    let without_orders = extra();
    let mut cursor = index.cursor();
    cursor.seek(Bound::Unbounded, false);
    while cursor.next(&mut read_key, &mut read_value).unwrap() {}
    let leaves_of_chunk = index.region.geometry().chunk_bytes / index.leaf_bytes();
    if S::PLAIN {
        assert_eq!(extra(), without_orders, "scans sort words each time");
    } else {
        assert!(extra() >= without_orders + leaves_of_chunk * 64, "the scan kept no order");
    }
    for step in 0..steps {
        // The list shrinks, grows, and shrinks again.
        let grows = step / (steps / 3) == 1;
        // Many writes use the slots again that a split has freed, before a scan reads the leaf.
        for _ in 0..if rng.u8(..4) == 0 { 100 } else { 1 } {
            let one = key(rng.u32(..keys));
            if rng.u32(..10) < if grows { 9 } else { 1 } {
                index.put(S::borrow(&one), S::borrow_value(&value(step))).unwrap();
                model.insert(one, value(step));
            } else {
                assert_eq!(index.delete(S::borrow(&one)).unwrap(), model.remove(&one).is_some());
            }
        }
        let (from, descending) = (key(rng.u32(..keys)), rng.bool());
        let from = if rng.bool() { Bound::Included(from) } else { Bound::Excluded(from) };
        let mut expected = range(&model, from.as_ref(), descending);
        let mut cursor = index.cursor();
        cursor.seek(from.clone(), descending);
        for _ in 0..rng.u32(1..80) {
            let more = cursor.next(&mut read_key, &mut read_value).unwrap();
            let got = more.then_some((&read_key, &read_value));
            assert!(got == expected.next(), "step {step}");
            if !more {
                break;
            }
        }
    }
    assert!(index.turnover().splits > 0 && index.turnover().merges > 0, "{:?}", index.turnover());
}

#[test]
fn ranges_between_changes_are_as_in_a_map() {
    let value = |n: u32| n.to_le_bytes().to_vec();
    for lines in [2, 3, 8] {
        ranges_are_as_in_a_map::<Words>(lines, 3_000, 2_000, |n| u64::from(n) << 40, u64::from);
        let key = |n: u32| format!("{:x}/{:x}", u64::from(n / 50) * 0x1234_5678, n % 50).into_bytes();
        ranges_are_as_in_a_map::<Keyed>(lines, 3_000, 2_000, key, value);
    }
}

/// Flips bits of a record's key: the third word of a record has the first bytes of the key.
fn flip(medium: &impl Medium, record: u64, bits: u64) {
    medium.publish(record + 16, medium.word(record + 16) ^ bits);
}

/// Reads up to four pairs from a key on. Each must be the next one of `keys`, or the read fails. Returns the numbers of both outcomes.
fn is_right_or_fails<M: Medium>(
    index: &line::Line<M, Keyed>,
    keys: &BTreeMap<Vec<u8>, ()>,
    (from, descending): (&Vec<u8>, bool),
    damaged: &[u8],
) -> (u32, u32) {
    let (mut read_key, mut read_value) = (Vec::new(), Vec::new());
    let mut cursor = index.cursor();
    cursor.seek(Bound::Included(from.clone()), descending);
    let mut right = 0;
    for (expected, ()) in range(keys, Bound::Included(from), descending).take(4) {
        let Ok(more) = cursor.next(&mut read_key, &mut read_value) else { return (right, 1) };
        assert!(more && expected != damaged && read_key == *expected, "from {from:?}, damaged {damaged:?}");
        right += 1;
    }
    (right, 0)
}

/// A search in a kept order reads few records. A damaged one could mislead it: a range would begin at a wrong key, or a new key would get a
/// wrong place in the order.
#[test]
fn a_range_in_a_leaf_with_a_damaged_record_is_right_or_fails() {
    const KEYS: u32 = 50;
    let key = |n: u32| format!("{n:03}-the-key").into_bytes();
    let (index, _) = counted::<Keyed>(8);
    let mut keys = BTreeMap::new();
    for n in (0..KEYS).map(|n| n * 7 % KEYS) {
        index.put(&key(n), &key(n)).unwrap();
        keys.insert(key(n), ());
    }
    let scan = || {
        let mut cursor = index.cursor();
        cursor.seek(Bound::Unbounded, false);
        while cursor.next(&mut Vec::new(), &mut Vec::new()).unwrap() {}
    };
    let medium = index.region.medium();
    let entries =
        <line::Line<pmem::Observed, Keyed> as LeafList>::salvage(&index.region, index.head().unwrap());
    assert_eq!(entries.len() as u32, KEYS, "all keys are in one leaf");
    let (mut right, mut failed) = (0, 0);
    for entry in &entries {
        let mut damaged = Vec::new();
        assert!(Keyed::read_key(medium, entry.key, &mut damaged));
        for bits in [0x08, 0x80] {
            for new in [None, Some("012-new"), Some("024-new"), Some("037-new")] {
                let new = new.map(|key| key.as_bytes().to_vec());
                scan();
                if let Some(new) = &new {
                    index.put(new, new).unwrap();
                    keys.insert(new.clone(), ());
                }
                flip(medium, entry.payload, bits);
                for (from, descending) in (0..KEYS).flat_map(|from| [(key(from), false), (key(from), true)]) {
                    let (more, errors) = is_right_or_fails(&index, &keys, (&from, descending), &damaged);
                    (right, failed) = (right + more, failed + errors);
                }
                flip(medium, entry.payload, bits);
                if let Some(new) = &new {
                    assert!(index.delete(new).unwrap());
                    keys.remove(new);
                }
            }
        }
    }
    assert!(failed > 2_000 && right > 40_000, "{failed} failed, {right} were right");
}

/// A scan notes the leaves that follow. They may be split, merged or freed before it reads them.
fn a_scan_goes_on_over_changed_leaves<S: Schema<KeyBuf: Ord>>(
    key: impl Fn(u64) -> S::KeyBuf,
    value: &S::ValueBuf,
) {
    const KEYS: u64 = 3000;
    for (descending, grows) in [(false, true), (false, false), (true, true), (true, false)] {
        let (index, _) = counted::<S>(8);
        let put = |n: u64| _ = index.put(S::borrow(&key(n)), S::borrow_value(value)).unwrap();
        (0..KEYS).map(|n| n * 4).for_each(put);
        let (mut expected, mut seen) = (BTreeSet::new(), Vec::new());
        let (mut found, mut got) = (S::KeyBuf::default(), S::ValueBuf::default());
        let mut cursor = index.cursor();
        cursor.seek(Bound::Unbounded, descending);
        for _ in 0..KEYS / 2 {
            assert!(cursor.next(&mut found, &mut got).unwrap());
            seen.push(found.clone());
        }
        // The leaves beside the page are not changed, so that the scan reads the changed ones later.
        let near = KEYS * 2;
        for n in 0..KEYS * 4 {
            let is_ahead = if descending { n + 400 < near } else { n > near + 400 };
            let is_left = grows || !is_ahead || n % 64 == 0;
            match (n % 4 == 0, is_ahead && grows && n % 4 == 1, is_left) {
                (true, _, false) => _ = index.delete(S::borrow(&key(n))).unwrap(),
                (true, ..) => _ = expected.insert(key(n)),
                (_, true, _) => {
                    put(n);
                    expected.insert(key(n));
                }
                _ => {}
            }
        }
        while cursor.next(&mut found, &mut got).unwrap() {
            seen.push(found.clone());
        }
        if descending {
            seen.reverse();
        }
        assert!(seen.is_sorted_by(|a, b| a < b), "descending: {descending}, grows: {grows}");
        assert!(seen.iter().eq(&expected), "descending: {descending}, grows: {grows}");
    }
}

#[test]
fn a_scan_goes_on_over_leaves_that_were_split_or_merged() {
    a_scan_goes_on_over_changed_leaves::<Words>(|n| n, &7);
    a_scan_goes_on_over_changed_leaves::<Keyed>(|n| format!("key {n:09}").into_bytes(), &b"value".to_vec());
}
