//! Splits and merges of leaves, without a log.
//!
//! A split writes a new right leaf with the upper entries of the full leaf. If the entry to insert belongs to the right leaf, the split
//! writes it there, too. The split publishes the link to the new leaf. Then it frees the slots of the moved entries in the left leaf.
//!
//! A *stray* is an entry in the left leaf whose key belongs to the right leaf. No search looks for a stray. A split has strays from the
//! publish of its link until it has freed the last slot. A merge has strays from its first copy to the publish of its link.
//!
//! Crash table of a split. Intents are the durable list of the blocks that the operation allocates or frees ([`pmem::alloc`]):
//!
//! | fence passed ([`pmem::Fence`]) | durable | after a crash |
//! |---|---|---|
//! | none | some of the new leaf; some intents | the new leaf is not in the list: its block is freed |
//! | payload | the new leaf, all intents; some allocation bits; the link or not | without the link: as above. With the link: as below |
//! | commit | the link, all allocation bits; some of the moved entries' slots are free | recovery frees the slots of the strays |
//! | guard | the slots of all moved entries are free | nothing to do |
//!
//! A merge copies the entries of the right leaf into free slots of the left leaf. Then it publishes the left leaf's link to the leaf after
//! the right one. Its crash table:
//!
//! | fence passed ([`pmem::Fence`]) | durable | after a crash |
//! |---|---|---|
//! | none | some intents | nothing to do |
//! | guard | all intents; some of the copies | recovery frees the slots of the strays |
//! | payload | all intents, the copies outside of line 0; some allocation bits; the link or not | see below |
//! | commit | the link, all copies, all allocation bits | nothing to do |
//!
//! If a crash follows the payload fence, and the link is not durable, recovery frees the slots of the strays. If the link is durable, so
//! are the copies in line 0, which were stored to the link's line before it. In that case the right leaf is not in the list: recovery frees
//! its block and its separator.
//!
//! How recovery finds strays: the right leaf is the only leaf in the intents of the newest operation. If it is in the list, the leaf before
//! it may have strays. If it is not in the list, there are no strays. With byte strings a stray and an entry of the right leaf reference
//! the same record, so recovery can read the stray's key.
//!
//! Invariant S1: as long as a stray can be durable, the newest durable intents are those of its split or merge. A split publishes its link
//! after the fence that makes its intents durable. A merge copies its first entry after such a fence. The next operation writes its intents
//! after the last fence of the split or merge, when no stray is durable. Recovery passes a fence after it has freed strays, too.

use std::mem;

use index::leaf_list::bound::bound;
use index::leaf_list::prelude::*;
use index::leaf_list::recover::is_leaf_block;
use index::sorting::sort_unstable_by_first;
use index::{Entry, Schema};
use pmem::alloc::{self, Kind};
use pmem::region::checked;
use pmem::{Error, Fence, Medium, Result, WORD, record};

use crate::index::{Line, Writer};
use crate::leaf::{LINK, Leaf, Slot, entry_of, slot_of};
use crate::node::Child;
use crate::vectored::SortedSlots;

/// Keys with their slots.
type Sorted<S> = Vec<(<S as Schema>::KeyBuf, (usize, Slot))>;

/// The lower bound of the right leaf after the first split of an index of 64-bit keys, which splits an empty leaf (L3 of
/// [`leaf`](crate::leaf)).
const MIDDLE: u64 = 1 << 63;

impl<M: Medium, S: Schema> Line<M, S> {
    /// The used slots of a leaf in key order.
    ///
    /// # Errors
    /// `Corrupt` if there is no leaf, or a key cannot be read.
    fn sorted(&self, leaf: Leaf) -> Result<Sorted<S>> {
        let medium = self.region.medium();
        if leaf.next(medium).is_none() {
            return Err(Error::Corrupt { what: "leaf", at: leaf.0 });
        }
        if S::PLAIN {
            return Ok(self.sorted_words(leaf));
        }
        // The loop below reads one record after the other. After these prefetches their cache misses overlap.
        let used = leaf.used_slots::<M, S>(medium, &self.shape);
        used.for_each(|(_, words)| S::prefetch_key(medium, entry_of::<S>(words).key));
        let mut keys: Sorted<S> = Vec::with_capacity(self.shape.slots + 1);
        for (slot, words) in leaf.used_slots::<M, S>(medium, &self.shape) {
            let (entry, mut key) = (entry_of::<S>(words), S::KeyBuf::default());
            if !S::read_key(medium, entry.key, &mut key) {
                return Err(Error::Corrupt { what: "key of record", at: entry.payload });
            }
            keys.push((key, (slot, words)));
        }
        sort_unstable_by_first(&mut keys);
        Ok(keys)
    }

    /// As [`Line::sorted`], with 64-bit keys.
    fn sorted_words(&self, leaf: Leaf) -> Sorted<S> {
        let medium = self.region.medium();
        let (slots, count) = self.with_vectors(SortedSlots(self, leaf));
        let mut keys: Sorted<S> = Vec::with_capacity(self.shape.slots + 1);
        keys.extend(slots[..count].iter().map(|slot| {
            let (slot, mut key) = (usize::from(*slot), S::KeyBuf::default());
            let words = leaf.slot::<M, S>(medium, slot);
            S::read_key(medium, [words[0], 0], &mut key);
            (key, (slot, words))
        }));
        keys
    }

    /// Splits the leaf of an absent key. True if the key's entry is in the new right leaf; otherwise the left leaf has space for it.
    ///
    /// # Errors
    /// Errors of the allocator; `Corrupt`. Then nothing has changed.
    pub(crate) fn split(
        &self,
        writer: &mut Writer<S>,
        leaf: Leaf,
        key: &S::Key,
        value: &S::Value,
    ) -> Result<bool> {
        let (region, medium, shape) = (&self.region, self.region.medium(), &self.shape);
        let corrupt = Error::Corrupt { what: "leaf", at: leaf.0 };
        let mut keys = self.sorted(leaf)?;
        let next = leaf.next(medium).ok_or(corrupt)?;
        let is_below = |other: &S::KeyBuf| S::order_probe(S::probe(key), S::borrow(other)).is_lt();
        let rank = keys.iter().filter(|(other, _)| !is_below(other)).count();
        let newest = mem::take(&mut writer.newest);
        // If keys are inserted in ascending order, the left leaf keeps all its entries: the newest insert was the leaf's last key, and this
        // key is above it.
        let ascends = keys.last().is_some_and(|(_, (slot, _))| newest == (leaf.0, *slot));
        let middle = if rank == keys.len() && ascends { keys.len() } else { keys.len() / 2 };
        let moved = keys.split_off(middle);
        let goes_right = !keys.is_empty() && rank >= middle;

        let pending = goes_right.then(|| self.make(writer, key, value)).transpose()?;
        let new = writer.allocator.take(region, &mut writer.log, Kind::Leaf, shape.bytes());
        let new = Leaf(new.map_err(|error| self.give_up(writer, error))?);
        let mut slots: Vec<Slot> = moved.iter().map(|(_, (_, words))| *words).collect();
        let least = moved.first().map(|(_, (_, words))| entry_of::<S>(*words));
        let least = if rank == middle { pending.or(least) } else { least };
        if let Some(entry) = &pending {
            slots.push(slot_of::<S>(key, entry));
        }
        let below = keys.last().map(|(_, (_, words))| entry_of::<S>(*words));
        let low = match (below, least) {
            (Some(below), Some(least)) => self.separate(writer, &below, &least)?,
            _ => MIDDLE,
        };
        let low_key = bound::<M, S>(medium, low).map_err(|error| self.give_up(writer, error))?;

        if goes_right {
            self.note_key(key);
        }
        self.lock(writer, leaf.0);
        self.lock(writer, new.0);
        self.forget_order(leaf.0);
        self.forget_order(new.0);
        let last_slot = new.compose::<M, S>(medium, shape, (next, low), &slots);
        medium.fence(Fence::Payload);
        writer.allocator.flip(region);
        medium.publish(leaf.0 + LINK, checked(new.0 / WORD));
        medium.flush(leaf.0 + LINK, WORD);
        medium.fence(Fence::Commit);
        writer.allocator.finish(region, &mut writer.log);
        self.changes.begin();
        let child = Child::leaf(low, new.0);
        self.directory.insert::<M, S>(
            (medium, self.vectors),
            &mut writer.own.own.spare,
            S::borrow(&low_key),
            child,
        );
        self.changes.end();
        if !moved.is_empty() {
            leaf.free_slots::<M, S>(medium, moved.iter().map(|(_, (slot, _))| *slot));
            medium.fence(Fence::Guard); // S1
        }
        self.stripes.unlock(&mut writer.held);
        writer.turnover.splits += 1;
        if goes_right {
            writer.newest = (new.0, last_slot);
            self.count_key(writer, key, true);
        }
        Ok(goes_right)
    }

    /// Makes the word of a bound between two entries.
    fn separate(
        &self,
        writer: &mut Writer<S>,
        below: &Entry<S::Tail>,
        above: &Entry<S::Tail>,
    ) -> Result<u64> {
        let low = S::separate(&self.region, &mut writer.allocator, &mut writer.log, below, above)
            .map_err(|error| self.give_up(writer, error))?;
        Ok(S::separator_block(low).unwrap_or(low[0]))
    }

    /// After a delete that leaves a line sparse: merges a sparse leaf with a neighbour, if both together fill at most half a leaf.
    ///
    /// # Errors
    /// Errors of the allocator; `Corrupt`. Then nothing has changed.
    pub(crate) fn thin_out(&self, writer: &mut Writer<S>, key: &S::Key, leaf: Leaf) -> Result<()> {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let count = |leaf: Leaf| self.used(leaf);
        let left_over = count(leaf);
        // A batch reserved no space for a merge, and O2 forbids it while the index is loading. The test for a power of two avoids an
        // attempt with every delete if the neighbours are too full.
        if left_over * 4 > shape.slots
            || (left_over & (left_over.wrapping_sub(1))) != 0
            || self.images.is_running()
            || self.is_loading()
        {
            return Ok(());
        }
        let (left, here, right) = self.directory.siblings::<M, S>(medium, self.vectors, key);
        // Another write of the same write group may have removed the leaf.
        if here != leaf.0 {
            return Ok(());
        }
        for (left, right) in [(leaf, Leaf(right)), (Leaf(left), leaf)] {
            let is_pair = left.0 != 0 && right.0 != 0;
            if is_pair && (count(left) + count(right)) * 2 <= shape.slots {
                return self.merge(writer, left, right);
            }
        }
        Ok(())
    }

    /// Moves the entries of `right` into its left neighbour `left`, and removes `right` from the list.
    fn merge(&self, writer: &mut Writer<S>, left: Leaf, right: Leaf) -> Result<()> {
        let (region, medium, shape) = (&self.region, self.region.medium(), &self.shape);
        let corrupt = |leaf: Leaf| Error::Corrupt { what: "link to a leaf", at: leaf.0 };
        if left.next(medium) != Some(right.0) {
            return Err(corrupt(left));
        }
        let next = right.next(medium).ok_or(corrupt(right))?;
        let low = right.low(medium);
        if S::PLAIN && next == 0 && left.low(medium) == 0 {
            return Ok(()); // L3 of `leaf`
        }
        let low_key = bound::<M, S>(medium, low)?;
        let used: Vec<Slot> = right.used_slots::<M, S>(medium, shape).map(|(_, words)| words).collect();
        let mut free = left.free::<M, S>(medium, shape, None);
        if (free.count_ones() as usize) < used.len() {
            return Ok(());
        }
        let mut given = writer.allocator.give(region, right.0);
        if !S::PLAIN {
            given = given.and_then(|()| record::give(region, &mut writer.allocator, low));
        }
        given.map_err(|error| self.give_up(writer, error))?;

        self.lock(writer, left.0);
        self.lock(writer, right.0);
        medium.fence(Fence::Guard); // S1
        let mut lines = 0_u64;
        for words in used {
            // There is a free slot for each entry, as was checked above.
            let Some(slot) = shape.choose::<S>(free, words[0]) else { break };
            free &= !(1 << slot);
            left.fill::<M, S>(medium, slot, words);
            lines |= left.line_of::<S>(slot);
        }
        // Line 0 is flushed with the link, which is stored after the copies.
        left.flush_lines(medium, lines & !1);
        medium.fence(Fence::Payload);
        writer.allocator.flip(region);
        medium.publish(left.0 + LINK, checked(next / WORD));
        medium.flush(left.0 + LINK, WORD);
        medium.fence(Fence::Commit);
        writer.allocator.finish(region, &mut writer.log);
        self.changes.begin();
        self.directory.remove::<M, S>((medium, self.vectors), &mut writer.own.own.spare, S::borrow(&low_key));
        self.changes.end();
        self.stripes.unlock(&mut writer.held);
        writer.newest = (0, 0);
        writer.turnover.merges += 1;
        Ok(())
    }

    /// After a crash: frees the strays that a split or a merge left. Recovery has written nothing else yet. The directory may lack leaves.
    ///
    /// # Errors
    /// `Corrupt` if a bound or a key cannot be read.
    pub(crate) fn free_strays(&self) -> Result<()> {
        let medium = self.region.medium();
        for (class, at) in alloc::newest(&self.region) {
            let right = Leaf(at);
            if class.kind != Kind::Leaf || !is_leaf_block(self, at) || !right.is_sealed(medium) {
                continue;
            }
            let low = right.low(medium);
            // A leaf that never was complete, or that was freed, may have a bound that no longer exists.
            let Ok(low_key) = bound::<M, S>(medium, low) else { continue };
            let lead = |below| self.lead(None, S::borrow(&low_key), below);
            if low != 0 && lead(false) == at {
                self.free_strays_of(Leaf(lead(true)))?;
            }
        }
        Ok(())
    }

    /// Frees the slots of a leaf that have keys outside of its bounds.
    fn free_strays_of(&self, leaf: Leaf) -> Result<()> {
        let medium = self.region.medium();
        let low = bound::<M, S>(medium, leaf.low(medium))?;
        let high = match leaf.next(medium) {
            Some(next) if next != 0 => Some(bound::<M, S>(medium, Leaf(next).low(medium))?),
            _ => None,
        };
        let is_stray = |key: &S::KeyBuf| *key < low || high.as_ref().is_some_and(|high| key >= high);
        let keys = self.sorted(leaf)?;
        let strays: Vec<usize> =
            keys.iter().filter(|(key, _)| is_stray(key)).map(|(_, (slot, _))| *slot).collect();
        if !strays.is_empty() {
            leaf.free_slots::<M, S>(medium, strays.into_iter());
            medium.fence(Fence::Guard); // S1
        }
        Ok(())
    }
}
