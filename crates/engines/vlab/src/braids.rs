//! Multi-braids: the buckets that were added after the directory was built, in key order, in short lists (braids) under one head [VLAB
//! §4.2.2].
//!
//! The head and each braid are arrays in key order. Both are searched by binary search. A change makes a new head and usually one new
//! braid. An insert that splits a braid makes two new braids. A removal that empties a braid makes no new one. The old head and braids stay
//! in memory as long as a reader uses them.
//!
//! Invariant: keys ascend through all braids, and no braid is empty.

use std::sync::Arc;

use index::Schema;
use index::leaf_list::bound::word_of;

/// A bucket in a braid.
#[derive(Debug)]
pub(crate) struct Item<S: Schema> {
    /// The first key word of `key`.
    low: u64,
    /// The bucket's `min`.
    pub key: S::KeyBuf,
    /// The bucket's address.
    pub at: u64,
}

impl<S: Schema> Clone for Item<S> {
    fn clone(&self) -> Self {
        Self { low: self.low, key: self.key.clone(), at: self.at }
    }
}

impl<S: Schema> Item<S> {
    /// An item for the bucket at `at`, whose `min` is `key`.
    pub(crate) fn new(key: S::KeyBuf, at: u64) -> Self {
        Self { low: word_of::<S>(S::borrow(&key)), key, at }
    }

    /// True if the item is at or below a key. With `below`: strictly below it.
    #[inline(always)]
    fn is_low(&self, word: u64, key: &S::Key, below: bool) -> bool {
        match self.low.cmp(&word) {
            std::cmp::Ordering::Equal if S::PLAIN => !below,
            std::cmp::Ordering::Equal => match S::order_probe(S::probe(key), S::borrow(&self.key)) {
                std::cmp::Ordering::Equal => !below,
                order => order.is_gt(),
            },
            order => order.is_lt(),
        }
    }
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Braids<S: Schema> {
    head: Vec<Arc<Vec<Item<S>>>>,
    count: usize,
}

impl<S: Schema> Clone for Braids<S> {
    fn clone(&self) -> Self {
        Self { head: self.head.clone(), count: self.count }
    }
}

impl<S: Schema> Default for Braids<S> {
    fn default() -> Self {
        Self { head: Vec::new(), count: 0 }
    }
}

impl<S: Schema> Braids<S> {
    /// Number of buckets.
    #[inline(always)]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of volatile memory, except for the bytes of keys that are byte strings.
    pub(crate) fn memory(&self) -> u64 {
        (self.count * size_of::<Item<S>>() + self.head.len() * size_of::<Arc<Vec<Item<S>>>>()) as u64
    }

    /// Number of braids.
    pub(crate) fn braids(&self) -> usize {
        self.head.len()
    }

    /// Number of braids at or below a key, number of items of the last of them at or below it, and number of comparisons. With `below`:
    /// strictly below the key.
    #[inline]
    fn place(&self, key: &S::Key, below: bool) -> (usize, usize, u32) {
        let word = word_of::<S>(key);
        let mut comparisons = 0;
        let mut is_low = |item: &Item<S>| {
            comparisons += 1;
            item.is_low(word, key, below)
        };
        let braids = self.head.partition_point(|braid| is_low(&braid[0]));
        let items = match braids {
            0 => 0,
            _ => self.head[braids - 1].partition_point(is_low),
        };
        (braids, items, comparisons)
    }

    /// The last bucket at or below a key (with `below`: strictly below it), and the number of comparisons.
    #[inline]
    pub(crate) fn find(&self, key: &S::Key, below: bool) -> (Option<&Item<S>>, u32) {
        let (braids, items, comparisons) = self.place(key, below);
        (if braids == 0 { None } else { self.head[braids - 1].get(items - 1) }, comparisons)
    }

    /// The first bucket.
    pub(crate) fn first(&self) -> Option<&Item<S>> {
        self.head.first()?.first()
    }

    /// The last bucket.
    pub(crate) fn last(&self) -> Option<&Item<S>> {
        self.head.last()?.last()
    }

    /// Adds a bucket. Splits a braid of more than `most` buckets in two.
    pub(crate) fn insert(&mut self, item: Item<S>, most: usize) {
        self.count += 1;
        let (braids, items, _) = self.place(S::borrow(&item.key), false);
        let Some(braid) = self.head.get_mut(braids.saturating_sub(1)) else {
            self.head.push(Arc::new(vec![item]));
            return;
        };
        let mut new: Vec<Item<S>> = Vec::with_capacity(braid.len() + 1);
        new.extend_from_slice(&braid[..items]);
        new.push(item);
        new.extend_from_slice(&braid[items..]);
        if new.len() <= most.max(1) {
            *braid = Arc::new(new);
            return;
        }
        let right = new.split_off(new.len() / 2);
        *braid = Arc::new(new);
        self.head.insert(braids.max(1), Arc::new(right));
    }

    /// Removes a bucket if it is present. True if it was.
    pub(crate) fn remove(&mut self, key: &S::Key, at: u64) -> bool {
        let (braids, items, _) = self.place(key, false);
        if braids == 0 || self.head[braids - 1][items - 1].at != at {
            return false;
        }
        self.count -= 1;
        if self.head[braids - 1].len() == 1 {
            self.head.remove(braids - 1);
            return true;
        }
        let mut new = Vec::clone(&self.head[braids - 1]);
        new.remove(items - 1);
        self.head[braids - 1] = Arc::new(new);
        true
    }

    /// Drops the last braid, and frees its memory if no reader has it. False if there is none.
    pub(crate) fn take_down(&mut self) -> bool {
        self.head.pop().is_some()
    }

    /// All buckets strictly above a key, in order. Without a key: all buckets.
    pub(crate) fn above(&self, key: Option<&S::Key>) -> impl Iterator<Item = &Item<S>> {
        let (braids, items, _) = key.map_or((0, 0, 0), |key| self.place(key, false));
        let skipped = self.head[..braids.saturating_sub(1)].len();
        self.head[skipped..].iter().flat_map(|braid| braid.iter()).skip(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use index::Words;

    #[test]
    fn braids_are_an_ordered_map_however_long_they_may_be() {
        for most in [1, 2, 5, 64] {
            let mut rng = fastrand::Rng::with_seed(most as u64);
            let (mut braids, mut model) = (Braids::<Words>::default(), std::collections::BTreeMap::new());
            for step in 0..2000_u64 {
                let key = rng.u64(..200);
                match model.get(&key).copied() {
                    Some(at) => {
                        assert!(!braids.remove(&key, at + 1));
                        assert!(braids.remove(&key, at));
                        model.remove(&key);
                    }
                    None => {
                        braids.insert(Item::new(key, step), most);
                        model.insert(key, step);
                    }
                }
                let probe = rng.u64(..210);
                let at = |item: Option<&Item<Words>>| item.map(|item| (item.key, item.at));
                let last = model.range(..=probe).next_back().map(|(key, at)| (*key, *at));
                assert_eq!(at(braids.find(&probe, false).0), last);
                let below = model.range(..probe).next_back().map(|(key, at)| (*key, *at));
                assert_eq!(at(braids.find(&probe, true).0), below);
                assert_eq!(braids.count(), model.len());
                assert!(braids.head.iter().all(|braid| (1..=most).contains(&braid.len())));
                let above: Vec<u64> = braids.above(Some(&probe)).map(|item| item.key).collect();
                assert_eq!(above, model.range(probe + 1..).map(|(key, _)| *key).collect::<Vec<_>>());
            }
            assert_eq!(braids.above(None).count(), model.len());
        }
    }
}
