//! Pairs of 64-bit words.

use std::cmp::Ordering;

use crate::error::Result;
use crate::pairs::{Changes, Group, Pairs, RECORD_BYTES};
use crate::record::{Dead, Kept};
use crate::search::{narrow, partition};

/// 64-bit keys to 64-bit values. A run of them is an array, or one of each.
#[derive(Clone, Copy, Debug)]
pub struct Words;

const WORD: usize = size_of::<u64>();
const _: () = assert!(RECORD_BYTES == 2 * WORD);

/// A leaf.
#[derive(Debug)]
pub struct WordLeaf {
    keys: Box<[u64]>,
    values: Box<[u64]>,
}

/// A key and its value, if it has one.
type WordRecord<'a> = (&'a u64, Option<&'a u64>);

fn search(keys: &[u64], key: u64) -> std::result::Result<usize, usize> {
    let at = partition(keys, |own| *own < key);
    if keys.get(at) == Some(&key) { Ok(at) } else { Err(at) }
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
    fn with<'a>(
        before: Option<&'a Self>,
        (key, value): WordRecord<'_>,
        _word: Kept,
    ) -> Option<(Self, Option<WordRecord<'a>>)> {
        let empty = || Self { keys: [0; GROUP], values: [0; GROUP], count: 0, deleted: 0 };
        let mut group = before.cloned().unwrap_or_else(empty);
        let known = group.position(*key);
        let i = known.unwrap_or(usize::from(group.count));
        if i == GROUP {
            return None;
        }
        group.count = group.count.max(i as u8 + 1);
        group.keys[i] = *key;
        group.values[i] = value.copied().unwrap_or(0);
        group.deleted = group.deleted & !(1 << i) | u8::from(value.is_none()) << i;
        Some((group, known.and_then(|i| before?.get(i))))
    }
    #[inline(always)]
    fn find(&self, key: &u64) -> Option<WordRecord<'_>> {
        self.position(*key).and_then(|i| self.get(i))
    }
    #[inline(always)]
    fn get(&self, i: usize) -> Option<WordRecord<'_>> {
        (i < usize::from(self.count)).then(|| (&self.keys[i], self.value(i)))
    }
    #[inline(always)]
    fn count(&self) -> usize {
        usize::from(self.count)
    }
}

impl Pairs for Words {
    type Key = u64;
    type KeyBuf = u64;
    type Fence = u64;
    type Value = u64;
    type ValueBuf = u64;
    type Record<'a> = WordRecord<'a>;
    type Fresh = (u64, Option<u64>);
    type Group = WordGroup;
    type Leaf = WordLeaf;
    type Keys = Box<[u64]>;

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
    fn separator(_left: &u64, right: &u64) -> u64 {
        *right
    }

    #[inline(always)]
    fn fresh(key: &u64, value: Option<&u64>) -> (u64, Option<u64>) {
        (*key, value.copied())
    }
    #[inline(always)]
    fn record(fresh: &(u64, Option<u64>)) -> WordRecord<'_> {
        (&fresh.0, fresh.1.as_ref())
    }
    #[inline(always)]
    fn record_key<'a>(record: Self::Record<'a>) -> &'a u64 {
        record.0
    }
    #[inline(always)]
    fn record_value<'a>(record: Self::Record<'a>) -> Option<&'a u64> {
        record.1
    }
    #[inline(always)]
    fn record_memory(_record: WordRecord<'_>) -> usize {
        0
    }
    #[inline(always)]
    fn dead(_record: WordRecord<'_>) -> Option<Dead> {
        None
    }

    fn leaf(records: &[WordRecord<'_>], _low: Option<&u64>, _high: Option<&u64>, _word: Kept) -> WordLeaf {
        let values = records.iter().filter_map(|record| record.1.copied());
        WordLeaf { keys: records.iter().map(|record| *record.0).collect(), values: values.collect() }
    }
    /// What is between two changes is copied at once.
    fn merged<'a>(
        leaf: &'a WordLeaf,
        changes: Changes<'a, Self>,
        _word: Kept,
    ) -> (WordLeaf, Vec<WordRecord<'a>>) {
        let WordLeaf { keys, values } = leaf;
        let (changes, _) = changes.sorted();
        let places: Vec<_> = changes.iter().map(|(key, _)| search(keys, **key)).collect();
        let inserted = places.iter().zip(&changes).filter(|(at, (_, value))| at.is_err() && value.is_some());
        let deleted = places.iter().zip(&changes).filter(|(at, (_, value))| at.is_ok() && value.is_none());
        let count = keys.len() + inserted.count() - deleted.count();
        let (mut new_keys, mut new_values) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut from = 0;
        for (at, (key, value)) in places.into_iter().zip(changes) {
            let (end, behind) = at.map_or_else(|at| (at, at), |at| (at, at + 1));
            new_keys.extend_from_slice(&keys[from..end]);
            new_values.extend_from_slice(&values[from..end]);
            if let Some(value) = value {
                new_keys.push(*key);
                new_values.push(*value);
            }
            from = behind;
        }
        new_keys.extend_from_slice(&keys[from..]);
        new_values.extend_from_slice(&values[from..]);
        (WordLeaf { keys: new_keys.into(), values: new_values.into() }, Vec::new())
    }
    #[inline(always)]
    fn len(leaf: &WordLeaf) -> usize {
        leaf.keys.len()
    }
    #[inline(always)]
    fn at(leaf: &WordLeaf, i: usize) -> WordRecord<'_> {
        (&leaf.keys[i], Some(&leaf.values[i]))
    }
    #[inline(always)]
    fn lookup<'a>(leaf: &'a WordLeaf, key: &u64) -> Option<WordRecord<'a>> {
        let WordLeaf { keys, values } = leaf;
        let (from, count) = narrow(keys, &|own| own < key);
        // The value's line is on its way while the keys are.
        std::hint::black_box(values.get(from + count / 2).copied());
        let at = from + keys[from..from + count].iter().map(|own| usize::from(own < key)).sum::<usize>();
        (keys.get(at) == Some(key)).then(|| Self::at(leaf, at))
    }
    fn leaf_memory(leaf: &WordLeaf) -> usize {
        size_of_val(&*leaf.keys) + size_of_val(&*leaf.values)
    }

    fn separators(keys: &[&u64], _low: Option<&u64>, _high: Option<&u64>) -> Box<[u64]> {
        keys.iter().map(|key| **key).collect()
    }
    fn count(keys: &Box<[u64]>) -> usize {
        keys.len()
    }
    fn separator_at(keys: &Box<[u64]>, i: usize) -> &u64 {
        &keys[i]
    }
    #[inline(always)]
    fn not_above(keys: &Box<[u64]>, key: &u64) -> usize {
        partition(keys, |own| own <= key)
    }
    fn below(keys: &Box<[u64]>, key: &u64) -> usize {
        partition(keys, |own| own < key)
    }

    fn fence(key: &u64) -> u64 {
        *key
    }
    #[inline(always)]
    fn compare(fence: &u64, key: &u64) -> Ordering {
        fence.cmp(key)
    }
    fn key_bytes(_key: &u64) -> usize {
        WORD
    }
    fn keys_memory(keys: &Box<[u64]>) -> usize {
        size_of_val(&**keys)
    }
    fn fence_memory(_fence: &u64) -> usize {
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
            let borrowed = changes.iter().map(|(key, value)| (key, value.as_ref())).collect();
            let leaf = WordLeaf { keys: keys.into(), values: values.into() };
            let (WordLeaf { keys, values }, _) = Words::merged(&leaf, Changes(borrowed), Kept::in_a_test());
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
                assert_eq!(search(&keys, key), keys.binary_search(&key), "{key} in {keys:?}");
                let leaf = WordLeaf { keys: keys.clone(), values: keys.clone() };
                let found = Words::lookup(&leaf, &key).and_then(|record| record.1.copied());
                assert_eq!(found, keys.binary_search(&key).ok().map(|_| key));
                assert_eq!(Words::not_above(&keys, &key), keys.partition_point(|own| *own <= key));
            }
        }
    }
}
