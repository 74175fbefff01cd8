//! The work that is compiled for vectors ([`pmem::simd::Body`]): searches, and copies of a leaf.

use index::Schema;
use index::leaf_list::{LeafList, Pages};
use pmem::Medium;
use pmem::simd::{Body, Vectors};

use crate::index::Line;
use crate::leaf::{Leaf, Slot, entry_of};

/// The leaf of a key, or of the keys strictly below it. Begins to load the leaf.
pub(crate) struct Lead<'a, M: Medium, S: Schema>(pub &'a Line<M, S>, pub &'a S::Key, pub bool);

impl<M: Medium, S: Schema> Body for Lead<'_, M, S> {
    type Out = u64;
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> u64 {
        let leaf = self.0.lead(vectors, self.1, self.2);
        self.0.region.medium().prefetch(leaf, self.0.leaf_bytes());
        leaf
    }
}

/// Finds the leaf of a key, calls a function with its address, and then reads the key's slot. Returns all three results.
pub(crate) struct LeadAndFind<'a, M: Medium, S: Schema, F>(pub &'a Line<M, S>, pub &'a S::Key, pub F);

impl<M: Medium, S: Schema, V, F: FnOnce(u64) -> V> Body for LeadAndFind<'_, M, S, F> {
    type Out = (V, u64, Option<Slot>);
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> Self::Out {
        let leaf = Lead(self.0, self.1, false).run(vectors);
        let seen = (self.2)(leaf);
        let slot = Find(self.0, Leaf(leaf), self.1).run(vectors);
        (seen, leaf, slot.map(|slot| Leaf(leaf).slot::<M, S>(self.0.region.medium(), slot)))
    }
}

/// The slot of a key in a leaf.
pub(crate) struct Find<'a, M: Medium, S: Schema>(pub &'a Line<M, S>, pub Leaf, pub &'a S::Key);

impl<M: Medium, S: Schema> Body for Find<'_, M, S> {
    type Out = Option<usize>;
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> Option<usize> {
        self.1.find::<M, S>(self.0.region.medium(), &self.0.shape, vectors, self.2)
    }
}

/// The free slots of a leaf, a bit each.
pub(crate) struct Free<'a, M: Medium, S: Schema>(pub &'a Line<M, S>, pub Leaf);

impl<M: Medium, S: Schema> Body for Free<'_, M, S> {
    type Out = u64;
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> u64 {
        self.1.free::<M, S>(self.0.region.medium(), &self.0.shape, vectors)
    }
}

/// The slot of a key in a leaf, if it is present, or else the free slots.
pub(crate) struct FindOrFree<'a, M: Medium, S: Schema>(pub &'a Line<M, S>, pub Leaf, pub &'a S::Key);

impl<M: Medium, S: Schema> Body for FindOrFree<'_, M, S> {
    type Out = (Option<usize>, u64);
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> Self::Out {
        match Find(self.0, self.1, self.2).run(vectors) {
            Some(slot) => (Some(slot), 0),
            None => (None, Free(self.0, self.1).run(vectors)),
        }
    }
}

/// Most slots of a leaf of 64-bit keys.
const PLAIN_SLOTS: usize = 32;

/// Appends the entries of a leaf of 64-bit keys, in key order. The position of an entry is the number of smaller keys: counting them has no
/// branches to mispredict. False if a key cannot be read.
pub(crate) struct Sort<'a, M: Medium, S: Schema>(pub &'a Line<M, S>, pub Leaf, pub &'a mut Pages<S>);

impl<M: Medium, S: Schema> Body for Sort<'_, M, S> {
    type Out = bool;
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> bool {
        let Self(index, leaf, page) = self;
        let medium = index.region.medium();
        let mut slots = [[u64::MAX; 2]; PLAIN_SLOTS];
        let mut keys = [u64::MAX; PLAIN_SLOTS];
        let mut count = 0;
        for (_, words) in leaf.used::<M, S>(medium, &index.shape, vectors) {
            keys[count % PLAIN_SLOTS] = words[0];
            slots[count % PLAIN_SLOTS] = words;
            count += 1;
        }
        let mut order = [0_u8; PLAIN_SLOTS];
        for (i, key) in keys.iter().enumerate().take(count) {
            let rank: u64 = keys.iter().map(|other| u64::from(other < key)).sum();
            order[rank as usize % PLAIN_SLOTS] = i as u8;
        }
        // The greatest key has as many smaller ones as there are other entries, so unused places are not read. (During a change keys may
        // repeat. The reader's validation detects that.)
        order.iter().take(count).fold(true, |sound, i| {
            let entry = entry_of::<S>(slots[usize::from(*i) % PLAIN_SLOTS]);
            let mut key = S::KeyBuf::default();
            let is_key = S::read_key(medium, entry.key, &mut key);
            page.push((key, entry));
            sound & is_key
        })
    }
}
