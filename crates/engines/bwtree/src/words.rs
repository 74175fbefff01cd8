//! Pairs of 64-bit words. A leaf is an array of keys and an array of values.

use std::cmp::Ordering;

use crate::error::Result;
use crate::pairs::{Pairs, RECORD_BYTES, Spot, Spotted, merged_count};
use crate::pool::{Array, Block, Space, array_bytes};
use crate::record::{Dead, Kept};
use crate::search::{LINE, Samples, beckon, count_left};

/// 64-bit keys to 64-bit values. A run of separators is one array; a run of records is an array of keys and an array of values.
#[derive(Clone, Copy, Debug)]
pub struct Words;

const WORD: usize = size_of::<u64>();
const _: () = assert!(RECORD_BYTES == 2 * WORD);

/// A leaf.
#[derive(Debug)]
pub struct WordLeaf {
    keys: WordKeys,
    values: Array<u64>,
}

/// A run of separators, or the keys of a leaf.
#[derive(Debug)]
pub struct WordKeys {
    samples: Samples,
    keys: Array<u64>,
}

/// A change of a leaf.
#[derive(Clone, Copy, Debug)]
pub struct WordChange {
    key: u64,
    value: u64,
}

/// A key and its value. `None`: the key is deleted.
type WordRecord<'a> = (&'a u64, Option<&'a u64>);

impl WordKeys {
    const fn space(count: usize) -> usize {
        Samples::bytes(count) + array_bytes::<u64>(count, LINE)
    }

    /// The number of keys for which `is_left` is true; these come first. `about` gets an early estimate, for a prefetch.
    #[inline(always)]
    fn partition(&self, about: impl FnOnce(usize), is_left: impl Fn(&u64) -> bool) -> usize {
        let from = self.samples.share(&is_left);
        about(from);
        from + count_left(&self.keys, from, is_left)
    }

    #[inline(always)]
    fn search(&self, key: u64) -> std::result::Result<usize, usize> {
        let at = self.partition(|_| (), |own| *own < key);
        if self.keys.get(at) == Some(&key) { Ok(at) } else { Err(at) }
    }

    fn new(space: &mut Space, count: usize, keys: impl Iterator<Item = u64>) -> Self {
        let samples = Samples::draft(space, count);
        let keys = space.collect(count, LINE, keys);
        Self { samples: Samples::done(samples, &keys, |key| *key), keys }
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
    type Change = WordChange;
    type Hint = ();
    type Leaf = WordLeaf;
    type Keys = WordKeys;

    fn check_key(_key: &u64) -> Result<()> {
        Ok(())
    }
    fn check_value(_value: &u64) -> Result<()> {
        Ok(())
    }

    fn write_key(key: &u64, to: &mut Vec<u8>) {
        to.extend(key.to_le_bytes());
    }
    fn write_value(value: &u64, to: &mut Vec<u8>) {
        to.extend(value.to_le_bytes());
    }
    fn read_key(bytes: &[u8]) -> Option<u64> {
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
    fn read_value(bytes: &[u8]) -> Option<u64> {
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
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
    fn fresh_space(_key: &u64, _value: Option<&u64>) -> usize {
        0
    }
    #[inline(always)]
    fn fresh(key: &u64, value: Option<&u64>, _block: Option<Block>) -> (u64, Option<u64>) {
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

    #[inline(always)]
    fn change((key, value): WordRecord<'_>, _word: Kept) -> WordChange {
        WordChange { key: *key, value: value.copied().unwrap_or(0) }
    }
    #[inline(always)]
    fn changed(change: &WordChange, is_there: bool) -> WordRecord<'_> {
        (&change.key, is_there.then_some(&change.value))
    }
    #[inline(always)]
    fn hint(_key: &u64) {}
    #[inline(always)]
    fn is_of(change: &WordChange, _hint: (), key: &u64) -> bool {
        change.key == *key
    }

    fn leaf_space(records: usize) -> usize {
        WordKeys::space(records) + array_bytes::<u64>(records, LINE)
    }
    fn leaf(
        records: &[WordRecord<'_>],
        _low: Option<&u64>,
        _high: Option<&u64>,
        _copied_bytes: usize,
        space: &mut Space,
        _word: Kept,
    ) -> WordLeaf {
        let keys = WordKeys::new(space, records.len(), records.iter().map(|record| *record.0));
        let values = records.iter().filter_map(|record| record.1.copied());
        WordLeaf { keys, values: space.collect(records.len(), LINE, values) }
    }
    /// Copies the records between two changes together.
    fn merged<'a>(
        leaf: &'a WordLeaf,
        changes: &[Spotted<'a, Self>],
        _copied_bytes: usize,
        space: &mut Space,
        _word: Kept,
    ) -> (WordLeaf, Vec<WordRecord<'a>>) {
        let WordLeaf { keys: run, values } = leaf;
        let (keys, count) = (&run.keys, merged_count::<Self>(leaf, changes));
        let samples = Samples::draft(space, count);
        let (mut new_keys, mut new_values) = (space.array(count, LINE), space.array(count, LINE));
        let mut from = 0;
        for &(spot, (key, value)) in changes {
            let (end, behind) = spot.records();
            new_keys.extend(&keys[from..end]);
            new_values.extend(&values[from..end]);
            if let Some(value) = value {
                new_keys.push(*key);
                new_values.push(*value);
            }
            from = behind;
        }
        new_keys.extend(&keys[from..]);
        new_values.extend(&values[from..]);
        let keys = new_keys.done();
        let keys = WordKeys { samples: Samples::done(samples, &keys, |key| *key), keys };
        (WordLeaf { keys, values: new_values.done() }, Vec::new())
    }
    #[inline(always)]
    fn len(leaf: &WordLeaf) -> usize {
        leaf.values.len()
    }
    #[inline(always)]
    fn at(leaf: &WordLeaf, i: usize) -> WordRecord<'_> {
        (&leaf.keys.keys[i], Some(&leaf.values[i]))
    }
    #[inline(always)]
    fn spot(leaf: &WordLeaf, key: &u64) -> Spot {
        Spot::new(leaf.keys.search(*key))
    }
    #[inline(always)]
    fn lookup<'a>(leaf: &'a WordLeaf, key: &u64) -> Option<WordRecord<'a>> {
        let WordLeaf { keys: WordKeys { samples, keys }, values } = leaf;
        let from = samples.share(|own| own < key);
        // The loads of the value's line and of the key's line overlap.
        beckon(values, from);
        let at = from + count_left(keys, from, |own| own < key);
        (keys.get(at) == Some(key)).then(|| Self::at(leaf, at))
    }

    fn keys_space<'a>(keys: impl Iterator<Item = &'a u64>) -> usize {
        WordKeys::space(keys.count())
    }
    fn separators(keys: &[&u64], _low: Option<&u64>, _high: Option<&u64>, space: &mut Space) -> WordKeys {
        WordKeys::new(space, keys.len(), keys.iter().map(|key| **key))
    }
    fn count(keys: &WordKeys) -> usize {
        keys.keys.len()
    }
    fn separator_at(keys: &WordKeys, i: usize) -> &u64 {
        &keys.keys[i]
    }
    #[inline(always)]
    fn not_above(keys: &WordKeys, key: &u64, about: impl FnOnce(usize)) -> usize {
        keys.partition(about, |own| own <= key)
    }
    fn below(keys: &WordKeys, key: &u64) -> usize {
        keys.partition(|_| (), |own| own < key)
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
    fn fence_memory(_fence: &u64) -> usize {
        0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pool::{BATCH, Depot, Pool};

    #[test]
    fn changes_are_merged_as_a_map_does_it() {
        let (mut random, mut pool, depot) = (fastrand::Rng::with_seed(1), Pool::new(), Depot::new(BATCH));
        for _ in 0..2000 {
            let count = random.u64(..40);
            let mut model: std::collections::BTreeMap<u64, u64> =
                (0..count).map(|_| (random.u64(..60), random.u64(..))).collect();
            let changes: std::collections::BTreeMap<u64, Option<u64>> = (0..random.u64(..9))
                .map(|_| (random.u64(..60), random.bool().then(|| random.u64(..))))
                .collect();
            let records: Vec<_> = model.iter().map(|(key, value)| (key, Some(value))).collect();
            let (before, _) = pool.take(Words::leaf_space(records.len()), &depot);
            let word = Kept::in_a_test();
            let leaf = Words::leaf(&records, None, None, 0, &mut Space::behind(&before, 0), word);
            let borrowed =
                changes.iter().map(|(key, value)| (Words::spot(&leaf, key), (key, value.as_ref())));
            let borrowed: Vec<_> = borrowed.collect();
            let (after, _) = pool.take(Words::leaf_space(records.len() + changes.len()), &depot);
            let (merged, _) = Words::merged(&leaf, &borrowed, 0, &mut Space::behind(&after, 0), word);
            for (key, value) in changes {
                match value {
                    Some(value) => _ = model.insert(key, value),
                    None => _ = model.remove(&key),
                }
            }
            let found = (0..Words::len(&merged)).map(|i| Words::at(&merged, i));
            assert!(found.eq(model.iter().map(|(key, value)| (key, Some(value)))));
            for key in 0..60 {
                let found = Words::lookup(&merged, &key).and_then(|record| record.1);
                assert_eq!(found, model.get(&key), "{key}");
            }
            pool.give(before, &depot);
            pool.give(after, &depot);
        }
    }

    #[test]
    fn a_key_is_found_where_a_plain_search_finds_it() {
        let (mut pool, depot) = (Pool::new(), Depot::new(BATCH));
        for count in (0..100u64).chain([255, 256, 513, 5000]) {
            let keys: Vec<u64> = (0..count).map(|i| 2 * i + 1).collect();
            let records: Vec<_> = keys.iter().map(|key| (key, Some(key))).collect();
            let (block, _) = pool.take(Words::leaf_space(keys.len()), &depot);
            let word = Kept::in_a_test();
            let leaf = Words::leaf(&records, None, None, 0, &mut Space::behind(&block, 0), word);
            for key in 0..=2 * count + 1 {
                assert_eq!(leaf.keys.search(key), keys.binary_search(&key), "{key} in {keys:?}");
                let found = Words::lookup(&leaf, &key).and_then(|record| record.1.copied());
                assert_eq!(found, keys.binary_search(&key).ok().map(|_| key));
                assert_eq!(
                    Words::not_above(&leaf.keys, &key, |_| ()),
                    keys.partition_point(|own| *own <= key)
                );
            }
            pool.give(block, &depot);
        }
    }
}
