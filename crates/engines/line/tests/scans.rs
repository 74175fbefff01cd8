//! Ranges of leaves whose order is kept from earlier scans: between changes, and beside damaged records.

use std::collections::BTreeMap;
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
    assert!(extra() >= without_orders + leaves_of_chunk * 64, "the scan kept no order");
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

/// A search in a kept order reads few records. A damaged one could mislead it, so that the range begins at a wrong key.
#[test]
fn a_range_in_a_leaf_with_a_damaged_record_is_right_or_fails() {
    const KEYS: u32 = 50;
    let key = |n: u32| format!("{n:03}-the-key").into_bytes();
    let (index, _) = counted::<Keyed>(8);
    for n in (0..KEYS).map(|n| n * 7 % KEYS) {
        index.put(&key(n), &key(n)).unwrap();
    }
    let (mut read_key, mut read_value) = (Vec::new(), Vec::new());
    let mut cursor = index.cursor();
    cursor.seek(Bound::Unbounded, false);
    while cursor.next(&mut read_key, &mut read_value).unwrap() {}
    let head = index.head().unwrap();
    let entries = <line::Line<pmem::Observed, Keyed> as LeafList>::salvage(&index.region, head);
    assert_eq!(entries.len() as u32, KEYS, "all keys are in one leaf");
    let medium = index.region.medium();
    let (mut right, mut failed) = (0, 0);
    for entry in entries {
        // The third word of a record has the first bytes of the key.
        let at = entry.payload + 16;
        let sound = medium.word(at);
        let damaged = String::from_utf8(sound.to_le_bytes()[..3].to_vec()).unwrap().parse().unwrap();
        for flipped in [0x08, 0x80] {
            medium.publish(at, sound ^ flipped);
            for (from, descending) in (0..KEYS).flat_map(|from| [(from, false), (from, true)]) {
                cursor.seek(Bound::Included(key(from)), descending);
                let expected: Vec<u32> =
                    if descending { (0..=from).rev().collect() } else { (from..KEYS).collect() };
                for n in expected.into_iter().take(4) {
                    match cursor.next(&mut read_key, &mut read_value) {
                        Ok(more) => {
                            assert!(
                                more && n != damaged && read_key == key(n),
                                "from {from}, damaged {damaged}"
                            );
                            right += 1;
                        }
                        Err(_) => {
                            failed += 1;
                            break;
                        }
                    }
                }
            }
        }
        medium.publish(at, sound);
    }
    assert!(failed > 500 && right > 10_000, "{failed} failed, {right} were right");
}
