//! Pairs of 64-bit words.

use std::cmp::Ordering;

use crate::error::Result;
use crate::pairs::{Group, KeyRef, Pairs, ValueRef};

/// 64-bit keys to 64-bit values. A run of them is an array.
#[derive(Clone, Copy, Debug)]
pub struct Words;

const WORD: usize = size_of::<u64>();

/// Parts that a run is divided into at a time.
const PARTS: usize = 8;
/// So few keys are counted one by one.
const FEW: usize = 40;

/// A part of a run with the end of the keys that `is_left` is true for in it or at its end: where it begins, and how many keys it
/// has. What is compared does not depend on each other, so the processor waits for all lines of a round at once.
#[inline(always)]
fn narrow(keys: &[u64], is_left: &impl Fn(u64) -> bool) -> (usize, usize) {
    let (mut from, mut count) = (0, keys.len());
    while count > FEW {
        let part = count / PARTS;
        let of = &keys[from..from + count];
        let left: usize = (1..PARTS).map(|i| usize::from(is_left(of[i * part - 1]))).sum();
        from += left * part;
        count = if left == PARTS - 1 { count - left * part } else { part };
    }
    (from, count)
}

/// How many of the keys `is_left` is true for: those at the beginning. Without branches: which way it goes is anybody's guess.
#[inline(always)]
fn partition(keys: &[u64], is_left: impl Fn(u64) -> bool) -> usize {
    let (from, count) = narrow(keys, &is_left);
    from + keys[from..from + count].iter().map(|key| usize::from(is_left(*key))).sum::<usize>()
}

/// Changes in a group at most.
const GROUP: usize = 8;

/// Changes of words.
#[derive(Clone, Debug)]
pub struct WordGroup {
    keys: [u64; GROUP],
    values: [u64; GROUP],
    count: u8,
    /// Of each a bit: it was deleted.
    deleted: u8,
}

impl WordGroup {
    #[inline(always)]
    fn position(&self, key: u64) -> Option<usize> {
        self.keys[..usize::from(self.count)].iter().position(|own| *own == key)
    }

    #[inline(always)]
    fn value(&self, i: usize) -> Option<&u64> {
        (self.deleted & 1 << i == 0).then(|| &self.values[i])
    }
}

impl Group<Words> for WordGroup {
    #[inline(always)]
    fn with(before: Option<&Self>, key: &u64, value: Option<&u64>) -> Option<Self> {
        let empty = || Self { keys: [0; GROUP], values: [0; GROUP], count: 0, deleted: 0 };
        let mut group = before.cloned().unwrap_or_else(empty);
        let i = group.position(*key).unwrap_or(usize::from(group.count));
        if i == GROUP {
            return None;
        }
        group.count = group.count.max(i as u8 + 1);
        group.keys[i] = *key;
        group.values[i] = value.copied().unwrap_or(0);
        group.deleted = group.deleted & !(1 << i) | u8::from(value.is_none()) << i;
        Some(group)
    }
    #[inline(always)]
    fn find(&self, key: &u64) -> Option<Option<&u64>> {
        self.position(*key).map(|i| self.value(i))
    }
    fn get(&self, i: usize) -> Option<(&u64, Option<&u64>)> {
        (i < usize::from(self.count)).then(|| (&self.keys[i], self.value(i)))
    }
    fn count(&self) -> usize {
        usize::from(self.count)
    }
}

impl Pairs for Words {
    type Key = u64;
    type KeyBuf = u64;
    type Value = u64;
    type ValueBuf = u64;
    type Held = u64;
    type Group = WordGroup;
    type Keys = Box<[u64]>;
    type Values = Box<[u64]>;

    fn check_key(_key: &u64) -> Result<()> {
        Ok(())
    }
    fn check_value(_value: &u64) -> Result<()> {
        Ok(())
    }

    fn own_key(key: &u64) -> u64 {
        *key
    }
    fn own_value(value: &u64) -> u64 {
        *value
    }
    fn separator(_left: KeyRef<'_, Self>, right: KeyRef<'_, Self>) -> u64 {
        right.to_buf()
    }
    fn hold(value: &u64, _large: usize) -> u64 {
        *value
    }
    fn held(held: &u64) -> &u64 {
        held
    }

    fn keys_of(keys: &[KeyRef<'_, Self>]) -> Box<[u64]> {
        keys.iter().map(|key| key.to_buf()).collect()
    }
    #[inline(always)]
    fn count(keys: &Box<[u64]>) -> usize {
        keys.len()
    }
    #[inline(always)]
    fn find(keys: &Box<[u64]>, key: &u64) -> std::result::Result<usize, usize> {
        let at = partition(keys, |own| own < *key);
        if keys.get(at) == Some(key) { Ok(at) } else { Err(at) }
    }
    #[inline(always)]
    fn lookup<'a>(keys: &'a Box<[u64]>, values: &'a Box<[u64]>, key: &u64) -> Option<ValueRef<'a, Self>> {
        let (from, count) = narrow(keys, &|own| own < *key);
        // The value's line is on its way while the keys are.
        std::hint::black_box(values.get(from + count / 2).copied());
        let before = keys[from..from + count].iter().map(|own| usize::from(own < key)).sum::<usize>();
        (keys.get(from + before) == Some(key)).then_some(ValueRef::In(values, from + before))
    }
    /// What is between two changes is copied at once.
    fn merged(
        keys: &Box<[u64]>,
        values: &Box<[u64]>,
        changes: &[(&u64, Option<&u64>)],
    ) -> Option<(Box<[u64]>, Box<[u64]>)> {
        let places: Vec<_> = changes.iter().map(|(key, _)| Self::find(keys, key)).collect();
        let inserted = places.iter().zip(changes).filter(|(at, (_, value))| at.is_err() && value.is_some());
        let deleted = places.iter().zip(changes).filter(|(at, (_, value))| at.is_ok() && value.is_none());
        let count = keys.len() + inserted.count() - deleted.count();
        let (mut new_keys, mut new_values) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut from = 0;
        for (at, (key, value)) in places.into_iter().zip(changes) {
            let (end, behind) = at.map_or_else(|at| (at, at), |at| (at, at + 1));
            new_keys.extend_from_slice(&keys[from..end]);
            new_values.extend_from_slice(&values[from..end]);
            if let Some(value) = value {
                new_keys.push(**key);
                new_values.push(**value);
            }
            from = behind;
        }
        new_keys.extend_from_slice(&keys[from..]);
        new_values.extend_from_slice(&values[from..]);
        Some((new_keys.into(), new_values.into()))
    }
    #[inline(always)]
    fn not_above(keys: &Box<[u64]>, key: &u64) -> usize {
        partition(keys, |own| own <= *key)
    }
    fn key_at(keys: &Box<[u64]>, i: usize) -> u64 {
        keys[i]
    }
    fn compare(keys: &Box<[u64]>, i: usize, key: &u64) -> Ordering {
        keys[i].cmp(key)
    }

    fn values_of(values: &[ValueRef<'_, Self>]) -> Box<[u64]> {
        values.iter().map(|value| *value.get()).collect()
    }
    #[inline(always)]
    fn value_at(values: &Box<[u64]>, i: usize) -> &u64 {
        &values[i]
    }

    fn key_bytes(_key: &u64) -> usize {
        WORD
    }
    fn key_bytes_at(_keys: &Box<[u64]>, _i: usize) -> usize {
        WORD
    }
    fn value_bytes_at(_values: &Box<[u64]>, _i: usize) -> usize {
        WORD
    }
    fn held_bytes(_held: &u64) -> usize {
        WORD
    }
    fn keys_memory(keys: &Box<[u64]>) -> usize {
        keys.len() * WORD
    }
    fn values_memory(values: &Box<[u64]>) -> usize {
        values.len() * WORD
    }
    fn key_memory(_key: &u64) -> usize {
        0
    }
    fn held_memory(_held: &u64) -> usize {
        0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn changes_are_merged_as_a_map_does_it() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..2000 {
            let count = random.u64(..40);
            let mut model: std::collections::BTreeMap<u64, u64> =
                (0..count).map(|_| (random.u64(..60), random.u64(..))).collect();
            let (keys, values): (Vec<_>, Vec<_>) = model.iter().map(|(key, value)| (*key, *value)).unzip();
            let changes: std::collections::BTreeMap<u64, Option<u64>> = (0..random.u64(..9))
                .map(|_| (random.u64(..60), random.bool().then(|| random.u64(..))))
                .collect();
            let borrowed: Vec<_> = changes.iter().map(|(key, value)| (key, value.as_ref())).collect();
            let (keys, values) = Words::merged(&keys.into(), &values.into(), &borrowed).unwrap();
            for (key, value) in changes {
                match value {
                    Some(value) => _ = model.insert(key, value),
                    None => _ = model.remove(&key),
                }
            }
            assert!(keys.iter().zip(&values).eq(&model) && keys.len() == model.len());
        }
    }

    #[test]
    fn a_key_is_found_where_a_plain_search_finds_it() {
        for count in (0..100u64).chain([255, 256, 513]) {
            let keys: Box<[u64]> = (0..count).map(|i| 2 * i + 1).collect();
            for key in 0..=2 * count + 1 {
                assert_eq!(Words::find(&keys, &key), keys.binary_search(&key), "{key} in {keys:?}");
                let found = Words::lookup(&keys, &keys, &key).map(|value| *value.get());
                assert_eq!(found, keys.binary_search(&key).ok().map(|_| key));
                assert_eq!(Words::not_above(&keys, &key), keys.partition_point(|own| *own <= key));
            }
        }
    }
}
