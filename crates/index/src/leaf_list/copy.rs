//! A copy of a leaf's entries, for scans. It reuses its buffers: a scan of byte strings would otherwise allocate each key.

use crate::entry::Entry;
use crate::schema::Schema;

use super::bound::leading;

type Pair<S> = (<S as Schema>::KeyBuf, Entry<<S as Schema>::Tail>);

/// Entries of a leaf with their keys.
pub struct LeafCopy<S: Schema> {
    /// The pairs, and after `len` unused pairs with buffers.
    pairs: Vec<Pair<S>>,
    len: usize,
    /// For sorting: of each key the eight bytes after those that all keys share, and its position.
    order: Vec<(u64, u32)>,
}

impl<S: Schema> Default for LeafCopy<S> {
    fn default() -> Self {
        Self { pairs: Vec::new(), len: 0, order: Vec::new() }
    }
}

impl<S: Schema> LeafCopy<S> {
    /// Removes all entries.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds an entry. The caller stores its key through the returned reference, which may hold an old key.
    #[inline(always)]
    pub fn push(&mut self, entry: Entry<S::Tail>) -> &mut S::KeyBuf {
        let i = self.len;
        self.len += 1;
        if i == self.pairs.len() {
            self.pairs.push((S::KeyBuf::default(), entry));
        }
        let (key, of_entry) = &mut self.pairs[i];
        *of_entry = entry;
        key
    }

    /// The keys with their entries.
    #[inline(always)]
    pub fn pairs(&mut self) -> &mut [Pair<S>] {
        &mut self.pairs[..self.len]
    }

    /// Keeps the pairs whose keys satisfy `is`, in their order.
    pub(crate) fn retain(&mut self, is: impl Fn(&S::KeyBuf) -> bool) {
        // Most copies keep all of their pairs.
        let Some(first) = self.pairs().iter().position(|(key, _)| !is(key)) else { return };
        let mut kept = first;
        for i in first + 1..self.len {
            if is(&self.pairs[i].0) {
                self.pairs.swap(kept, i);
                kept += 1;
            }
        }
        self.len = kept;
    }

    /// Sorts by key. Sorted pairs, as some engines copy them, cost O(n).
    pub(crate) fn sort(&mut self) {
        if self.pairs().is_sorted_by(|a, b| a.0 < b.0) {
            return;
        }
        let pairs = &mut self.pairs[..self.len];
        if S::PLAIN {
            return crate::sorting::sort_unstable_by_first(pairs);
        }
        // Most comparisons need only the bytes after those that all keys share. Pairs are moved once, after the sorting.
        fn bytes<S: Schema>(key: &S::KeyBuf) -> impl AsRef<[u8]> {
            S::key_bytes(S::borrow(key))
        }
        let first = bytes::<S>(&pairs[0].0);
        let shared = pairs.iter().map(|(key, _)| common(first.as_ref(), bytes::<S>(key).as_ref())).min();
        let shared = shared.unwrap_or(0);
        let leads = pairs.iter().map(|(key, _)| leading(&bytes::<S>(key).as_ref()[shared..]));
        self.order.clear();
        self.order.extend(leads.zip(0..));
        drop(first);
        self.order.sort_unstable_by(|(a, i), (b, j)| {
            a.cmp(b).then_with(|| pairs[*i as usize].0.cmp(&pairs[*j as usize].0))
        });
        for to in 0..self.order.len() {
            // The pair may have been swapped to the place of one that was moved before.
            let mut from = self.order[to].1 as usize;
            while from < to {
                from = self.order[from].1 as usize;
            }
            pairs.swap(to, from);
        }
    }
}

/// The number of first bytes that are equal.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Keyed, Words};

    #[test]
    fn byte_strings_are_sorted_by_all_their_bytes_and_keep_their_entries() {
        let mut copy = LeafCopy::<Keyed>::default();
        let mut random = fastrand::Rng::with_seed(3);
        for round in 0..200 {
            copy.clear();
            // Few letters and different lengths: many keys share more than eight bytes after their common prefix.
            let mut keys: Vec<Vec<u8>> = (0..random.usize(..60))
                .map(|_| {
                    b"key".iter().copied().chain((0..random.usize(..14)).map(|_| random.u8(..2))).collect()
                })
                .collect();
            for (i, key) in keys.iter().enumerate() {
                copy.push(Entry::new([i as u64, 0], i as u64)).clone_from(key);
            }
            let original = keys.clone();
            copy.sort();
            keys.sort();
            assert!(copy.pairs().iter().map(|(key, _)| key).eq(&keys), "round {round}");
            assert!(copy.pairs().iter().all(|(key, entry)| original[entry.payload as usize] == *key));
            copy.retain(|key| key.len() > 8);
            keys.retain(|key| key.len() > 8);
            assert!(copy.pairs().iter().map(|(key, _)| key).eq(&keys), "round {round}");
        }
    }

    #[test]
    fn words_are_sorted() {
        let mut copy = LeafCopy::<Words>::default();
        for key in [5, 1, u64::MAX, 0, 7] {
            *copy.push(Entry::new([key, 0], !key)) = key;
        }
        copy.sort();
        let pairs: Vec<_> = copy.pairs().iter().map(|(key, entry)| (*key, entry.payload)).collect();
        assert_eq!(pairs, [0, 1, 5, 7, u64::MAX].map(|key| (key, !key)));
    }
}
