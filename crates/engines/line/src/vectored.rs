//! The work that is compiled for vector instructions ([`pmem::simd::Body`]): searches, and copies of a leaf.

use index::Schema;
use index::leaf_list::prelude::*;
use index::leaf_list::{Following, LeafCopy, slots_by_key};
use pmem::Medium;
use pmem::kept::Kept;
use pmem::simd::{Body, Vectors};

use crate::index::Line;
use crate::leaf::{Leaf, entry_of, pairs_of, slots_of};
use crate::orders::Order;

/// The leaf of a key; if the last field is true, of the keys strictly below it.
pub(crate) struct Lead<'a, M: Medium, S: Schema>(pub &'a Line<M, S>, pub &'a S::Key, pub bool);

impl<M: Medium, S: Schema> Body for Lead<'_, M, S> {
    type Out = u64;
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> u64 {
        self.0.lead(vectors, self.1, self.2)
    }
}

/// As [`Lead`], for a scan ([`LeafList::leaf_to_scan`]).
pub(crate) struct LeadToScan<'a, M: Medium, S: Schema>(
    pub &'a Line<M, S>,
    pub &'a S::Key,
    pub bool,
    pub &'a mut Following,
);

impl<M: Medium, S: Schema> Body for LeadToScan<'_, M, S> {
    type Out = u64;
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> u64 {
        let Self(index, key, below, following) = self;
        if index.is_loading() {
            return Lead(index, key, below).run(vectors);
        }
        let medium = index.region.medium();
        let leaf = index.directory.leaf_to_scan::<M, S>(medium, vectors, (key, below), following);
        index.prefetch_to_scan(leaf);
        leaf
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
        for (key, leaf) in keys.iter().zip(leaves) {
            Leaf(*leaf).prefetch_candidates::<M, S>(medium, &index.shape, vectors, key);
        }
    }
}

/// One attempt to look up a key ([`LeafList::look_once`]).
pub(crate) struct LookOnce<'a, M: Medium, S: Schema>(
    pub &'a Line<M, S>,
    pub &'a S::Key,
    pub Option<&'a mut S::ValueBuf>,
);

impl<M: Medium, S: Schema> Body for LookOnce<'_, M, S> {
    type Out = Option<(bool, u64)>;
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> Self::Out {
        let Self(index, key, value) = self;
        let changes = index.changes.settled(&index.stripes);
        let leaf = index.lead(vectors, key, false);
        LookAt(index, (leaf, changes), key, value).run(vectors)
    }
}

/// As [`LookOnce`], in a leaf with the number of changes from before it was found ([`LeafList::look_at`]).
pub(crate) struct LookAt<'a, M: Medium, S: Schema>(
    pub &'a Line<M, S>,
    pub (u64, u64),
    pub &'a S::Key,
    pub Option<&'a mut S::ValueBuf>,
);

impl<M: Medium, S: Schema> Body for LookAt<'_, M, S> {
    type Out = Option<(bool, u64)>;
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> Self::Out {
        let Self(index, (leaf, changes), key, value) = self;
        let seen = index.seen_at(leaf, changes);
        let slot = Find(index, Leaf(leaf), key).run(vectors);
        let entry = slot.map(|slot| entry_of::<S>(Leaf(leaf).slot::<M, S>(index.region.medium(), slot)));
        index.look_validated(&seen, (entry, index.has_found(entry.is_some(), leaf)), value)
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

/// Where a leaf stores a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The key's slot, or a free one. `None` if the key is absent and no slot is free.
    pub slot: Option<usize>,
    /// True if the slot has the key.
    pub is_key: bool,
}

/// The place of a key in a leaf.
pub(crate) struct FindPlace<'a, M: Medium, S: Schema>(pub &'a Line<M, S>, pub Leaf, pub &'a S::Key);

impl<M: Medium, S: Schema> Body for FindPlace<'_, M, S> {
    type Out = Place;
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> Place {
        let slot = Find(self.0, self.1, self.2).run(vectors);
        if slot.is_some() {
            return Place { slot, is_key: true };
        }
        // Not in a closure: a function of the standard library that calls it is compiled without the vector instructions.
        let free = Free(self.0, self.1).run(vectors);
        Place { slot: self.0.shape.choose::<S>(free, Leaf::first_word::<S>(self.2)), is_key: false }
    }
}

/// The leaf of a key, and the key's place in it.
pub(crate) struct LeadAndPlace<'a, M: Medium, S: Schema>(pub &'a Line<M, S>, pub &'a S::Key);

impl<M: Medium, S: Schema> Body for LeadAndPlace<'_, M, S> {
    type Out = (u64, Place);
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> Self::Out {
        let leaf = self.0.lead(vectors, self.1, false);
        (leaf, FindPlace(self.0, Leaf(leaf), self.1).run(vectors))
    }
}

/// The leaf of a key, and the key's slot in it.
pub(crate) struct LeadAndFind<'a, M: Medium, S: Schema>(pub &'a Line<M, S>, pub &'a S::Key);

impl<M: Medium, S: Schema> Body for LeadAndFind<'_, M, S> {
    type Out = (u64, Option<usize>);
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> Self::Out {
        let leaf = self.0.lead(vectors, self.1, false);
        (leaf, Find(self.0, Leaf(leaf), self.1).run(vectors))
    }
}

/// The used slots of a leaf with 64-bit keys in the order of their keys, and their number.
pub(crate) struct SortedSlots<'a, M: Medium, S: Schema>(pub &'a Line<M, S>, pub Leaf);

impl<M: Medium, S: Schema> Body for SortedSlots<'_, M, S> {
    type Out = ([u8; 64], usize);
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> Self::Out {
        let Self(index, leaf) = self;
        let medium = index.region.medium();
        let used = leaf.used::<M, S>(medium, &index.shape, vectors);
        slots_by_key(vectors, slots_of(used).map(|slot| (slot, medium.word(leaf.slot_at::<S>(slot)))))
    }
}

/// Copies the entries of a leaf. 64-bit keys are sorted. With byte strings the entries of the kept order come first, if there is one
/// ([`orders`](crate::orders)), then the others in no order.
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
        let medium = index.region.medium();
        let used = leaf.used::<M, S>(medium, &index.shape, vectors);
        let lines = if M::SHOWS_LINES { medium.lines(leaf.0, index.shape.lines as usize) } else { None };
        if S::PLAIN
            && let (Some(vectors), Some(lines)) = (vectors, lines)
        {
            return copy.set_sorted(vectors, &vectors.columns(lines, pairs_of(used)));
        }
        copy.clear();
        copy.reserve(index.shape.slots);
        let entry = |slot| {
            entry_of::<S>(match lines {
                Some(lines) => Leaf::slot_in::<S>(lines, slot),
                None => leaf.slot::<M, S>(medium, slot),
            })
        };
        if S::PLAIN {
            return slots_of(used).for_each(|slot| copy.push(entry(slot)));
        }
        // All slots of a kept order are used (W1 of `orders`), except during a race.
        let kept = index.orders.of(leaf.0).and_then(Kept::read).map(Order::of);
        let kept = kept.filter(|order| order.mask() & !used == 0);
        let known = kept.map_or(0, |order| order.mask());
        if let Some(order) = kept {
            copy.push_slots(order.slots(), entry);
            copy.set_ordered();
        }
        copy.push_slots(slots_of(used & !known), entry);
    }
}
