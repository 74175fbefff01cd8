//! Inserts, updates and deletes: each publishes one word of a leaf.
//!
//! | change | stored before, in the same line | published: the commit point |
//! |---|---|---|
//! | insert, 64-bit keys | the value | the key |
//! | update, 64-bit keys | nothing | the value |
//! | insert, byte strings | nothing | the slot's word |
//! | update, byte strings | nothing | the slot's word, with the new record's address |
//! | delete | nothing | the empty word |
//!
//! Crash table for 64-bit keys:
//!
//! | fence passed ([`pmem::Fence`]) | durable | after a crash |
//! |---|---|---|
//! | none | of an insert: nothing, the value, or value and key; of an update or delete: the old word or the new one | nothing to do |
//! | commit | the change | nothing to do |
//!
//! Crash table for byte strings. Intents are the durable list of the blocks that the operation allocates or frees ([`pmem::alloc`]):
//!
//! | fence passed ([`pmem::Fence`]) | durable | after a crash |
//! |---|---|---|
//! | none | some of the new record; some intents | the new record's block has no owner and is freed |
//! | payload | the new record, all intents; some allocation bits; the old word or the new one | of the old and the new record, the one that the word does not reference is freed |
//! | commit | the word, all allocation bits | nothing to do |
//!
//! With 64-bit keys, a value that survives without its key is in a free slot, which nothing reads. A durable key has a durable value,
//! because the insert stored the value to the same line first.

use index::leaf_list::prelude::*;
use index::leaf_list::write_group::{Step, Stored};
use index::{Schema, Write};
use pmem::{Error, Medium, Result, WORD};

use crate::index::{Line, Writer};
use crate::leaf::{Leaf, entry_of, record_word};
use crate::vectored::{Find, FindPlace, LeadAndFind, LeadAndPlace, Place};

/// The store that commits a write.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The leaf.
    pub(crate) leaf: u64,
    /// Offset of the word.
    at: u64,
    /// Its new value.
    word: u64,
}

impl Change {
    /// Publishes and flushes the word. The flush covers the value that was stored to the same line.
    #[inline(always)]
    pub(crate) fn publish<M: Medium>(&self, medium: &M) {
        medium.publish(self.at, self.word);
        medium.flush(self.at, WORD);
    }

    /// After a delete: true if few entries are left in the line. A sparse leaf has such lines, and the last delete of a leaf leaves one. So
    /// the other lines of the leaf are counted only then: they are rarely in the cache.
    #[inline(always)]
    pub(crate) fn leaves_line_sparse<M: Medium, S: Schema>(&self, medium: &M) -> bool {
        Leaf(self.leaf).is_line_sparse::<M, S>(medium, self.at, self.word)
    }
}

impl<M: Medium, S: Schema> Line<M, S> {
    /// The leaf of a key, for the writer, after a search led to `leaf`. A complete directory leads to leaves only, so line 0 of the leaf is
    /// not read.
    #[inline(always)]
    fn checked_leaf(&self, leaf: u64) -> Result<Leaf> {
        if leaf == 0 || self.is_loading() && !self.is_leaf(leaf) {
            return Err(Error::Corrupt { what: "leaf", at: leaf });
        }
        Ok(Leaf(leaf))
    }

    #[inline(always)]
    pub(crate) fn put_in_leaf(&self, writer: &mut Writer<S>, key: &S::Key, value: &S::Value) -> Result<bool> {
        loop {
            let (leaf, place) = self.with_vectors(LeadAndPlace(self, key));
            let leaf = self.checked_leaf(leaf)?;
            if let Step::Stored(stored) = self.store_at(writer, (leaf, place), key, value)? {
                return Ok(self.commit_alone(writer, &Write::Put(key, value), &stored));
            }
            if self.split(writer, leaf, key, value)? {
                return Ok(false);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn delete_in_leaf(&self, writer: &mut Writer<S>, key: &S::Key) -> Result<bool> {
        let (leaf, slot) = self.with_vectors(LeadAndFind(self, key));
        let leaf = self.checked_leaf(leaf)?;
        Ok(match self.store_removal_at(writer, (leaf, slot), key)? {
            Step::Stored(stored) => self.commit_alone(writer, &Write::Delete(key), &stored),
            _ => false,
        })
    }

    /// Stores a value, except for the word that commits it. Returns [`Step::Apart`] if there is no space, or if the leaf must be split
    /// first because it is the only one (L3 of `leaf`).
    #[inline]
    pub(crate) fn store_value(
        &self,
        writer: &mut Writer<S>,
        leaf: Leaf,
        key: &S::Key,
        value: &S::Value,
    ) -> Result<Step<Change>> {
        let place = self.with_vectors(FindPlace(self, leaf, key));
        self.store_at(writer, (leaf, place), key, value)
    }

    /// As [`Line::store_value`], at this place of the leaf.
    #[inline(always)]
    fn store_at(
        &self,
        writer: &mut Writer<S>,
        (leaf, place): (Leaf, Place),
        key: &S::Key,
        value: &S::Value,
    ) -> Result<Step<Change>> {
        let medium = self.region.medium();
        let Place { slot: Some(slot), is_key } = place else { return Ok(Step::Apart) };
        let found = is_key.then_some(slot);
        if found.is_none() {
            let Some(next) = leaf.next(medium) else {
                return Err(Error::Corrupt { what: "leaf", at: leaf.0 });
            };
            // The only leaf has no bounds, so any key could equal its empty word.
            if S::PLAIN && next == 0 && leaf.low(medium) == 0 {
                return Ok(Step::Apart);
            }
        }
        let entry = self.make(writer, key, value)?;
        if !S::PLAIN && found.is_some() {
            self.give_blocks(writer, &entry_of::<S>(leaf.slot::<M, S>(medium, slot)))?;
        }
        self.note_key(key);
        self.lock(writer, leaf.0);
        let at = leaf.slot_at::<S>(slot);
        let (at, word) = match (S::PLAIN, found.is_some()) {
            (true, true) => (at + WORD, entry.payload),
            (true, false) => {
                medium.copy(at + WORD, entry.payload);
                (at, entry.key[0])
            }
            (false, _) => (at, record_word::<S>(key, entry.payload)),
        };
        if found.is_none() {
            writer.newest = (leaf.0, slot);
        }
        let change = Change { leaf: leaf.0, at, word };
        Ok(Step::Stored(Stored { change, was_there: found.is_some(), has_payload: !S::PLAIN }))
    }

    /// Prepares the removal of a key.
    #[inline]
    pub(crate) fn store_removal(
        &self,
        writer: &mut Writer<S>,
        leaf: Leaf,
        key: &S::Key,
    ) -> Result<Step<Change>> {
        let slot = self.with_vectors(Find(self, leaf, key));
        self.store_removal_at(writer, (leaf, slot), key)
    }

    /// As [`Line::store_removal`]. `slot` is the key's slot in the leaf.
    #[inline(always)]
    fn store_removal_at(
        &self,
        writer: &mut Writer<S>,
        (leaf, slot): (Leaf, Option<usize>),
        key: &S::Key,
    ) -> Result<Step<Change>> {
        let medium = self.region.medium();
        let Some(slot) = slot else {
            return leaf
                .next(medium)
                .map(|_| Step::Absent)
                .ok_or(Error::Corrupt { what: "leaf", at: leaf.0 });
        };
        // Only the first leaf has an empty word other than 0. This test does not read line 0 of the leaf.
        let empty = if S::PLAIN && self.head()? == leaf.0 { u64::MAX } else { 0 };
        self.give_blocks(writer, &entry_of::<S>(leaf.slot::<M, S>(medium, slot)))?;
        self.note_key(key);
        self.lock(writer, leaf.0);
        self.forget_order(leaf.0);
        let change = Change { leaf: leaf.0, at: leaf.slot_at::<S>(slot), word: empty };
        Ok(Step::Stored(Stored { change, was_there: true, has_payload: false }))
    }
}
