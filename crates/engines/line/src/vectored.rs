//! The work that is compiled for vector instructions ([`pmem::simd::Body`]): searches, and copies of a leaf.

use index::Schema;
use index::leaf_list::{LeafCopy, LeafList};
use pmem::Medium;
use pmem::simd::{Body, Vectors};

use crate::index::Line;
use crate::leaf::{Leaf, Slot, entry_of};

/// The leaf of a key; if the last field is true, of the keys strictly below it.
pub(crate) struct Lead<'a, M: Medium, S: Schema>(pub &'a Line<M, S>, pub &'a S::Key, pub bool);

impl<M: Medium, S: Schema> Body for Lead<'_, M, S> {
    type Out = u64;
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> u64 {
        self.0.lead(vectors, self.1, self.2)
    }
}

/// As [`Lead`], for a scan. The last field is true for a descending scan. Begins to load the following leaves of the same inner node, too.
pub(crate) struct LeadToScan<'a, M: Medium, S: Schema>(
    pub &'a Line<M, S>,
    pub &'a S::Key,
    pub bool,
    pub bool,
);

/// Number of leaves that a scan loads ahead.
const AHEAD: usize = 3;

impl<M: Medium, S: Schema> Body for LeadToScan<'_, M, S> {
    type Out = u64;
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> u64 {
        let Self(index, key, below, descending) = self;
        let medium = index.region.medium();
        if index.is_loading() {
            return Lead(index, key, below).run(vectors);
        }
        let ahead = if descending { -(AHEAD as isize)..=0 } else { 0..=AHEAD as isize };
        index.directory.leaf_with_others::<M, S>(medium, vectors, (key, below), ahead, |leaf| {
            medium.prefetch(leaf, index.leaf_bytes());
        })
    }
}

/// The leaves of several keys. Begins to load the leaves. If the last field is true, for lookups, it begins to load only the line that each
/// key prefers, and with byte strings the records in it that may hold the key.
pub(crate) struct LeadMany<'a, M: Medium, S: Schema>(
    pub &'a Line<M, S>,
    pub &'a [&'a S::Key],
    pub &'a mut [u64],
    pub bool,
);

impl<M: Medium, S: Schema> Body for LeadMany<'_, M, S> {
    type Out = ();
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) {
        let Self(index, keys, leaves, is_lookup) = self;
        let medium = index.region.medium();
        if index.is_loading() {
            for (key, leaf) in keys.iter().zip(leaves) {
                *leaf = Lead(index, key, false).run(vectors);
            }
            return;
        }
        index.directory.leaves_of::<M, S>(medium, vectors, keys, leaves);
        if !is_lookup {
            return leaves.iter().for_each(|leaf| medium.prefetch(*leaf, index.leaf_bytes()));
        }
        for (key, leaf) in keys.iter().zip(&*leaves) {
            Leaf(*leaf).prefetch_preferred::<M, S>(medium, &index.shape, key);
        }
        if !S::PLAIN {
            for (key, leaf) in keys.iter().zip(leaves) {
                Leaf(*leaf).prefetch_records::<M, S>(medium, &index.shape, vectors, key);
            }
        }
    }
}

/// Finds the leaf of a key, calls a function with its address, and then reads the key's slot. Returns all three results.
pub(crate) struct LeadAndFind<'a, M: Medium, S: Schema, F>(pub &'a Line<M, S>, pub &'a S::Key, pub F);

impl<M: Medium, S: Schema, V, F: FnOnce(u64) -> V> Body for LeadAndFind<'_, M, S, F> {
    type Out = (V, u64, Option<Slot>);
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> Self::Out {
        let leaf = self.0.lead(vectors, self.1, false);
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

/// The slot of a key in a leaf. If the key is absent, the free slots, a bit each.
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

/// Copies the entries of a leaf, in no order.
pub(crate) struct CopyEntries<'a, M: Medium, S: Schema>(
    pub &'a Line<M, S>,
    pub Leaf,
    pub &'a mut LeafCopy<S>,
);

impl<M: Medium, S: Schema> Body for CopyEntries<'_, M, S> {
    type Out = ();
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) {
        let Self(index, leaf, copy) = self;
        for (_, words) in leaf.used::<M, S>(index.region.medium(), &index.shape, vectors) {
            copy.push(entry_of::<S>(words));
        }
    }
}
