//! Replacement of leaves: splits, compactions, merges.
//!
//! * If more than half of a full leaf's entries are live, the leaf is split in two. Otherwise its live entries move to a new leaf. The live
//!   entries of the right neighbour move there, too, if all of them together fill at most half a leaf.
//! * After a delete a sparse leaf may be merged with either neighbour. A leaf without keys may be removed from the list.
//! * In every case the new leaves (if there are any) are written as a whole, and one word is published: the word in the preceding leaf or
//!   in the meta block that links to the first old leaf.
//!
//! | fence passed ([`pmem::Fence`]) | durable | after a crash |
//! |---|---|---|
//! | none | some of the new leaves | no link references them: their blocks are freed |
//! | payload | the new leaves, the allocator's intents | the same |
//! | commit | the link (one 8-byte store) | the old leaves' blocks are freed if they are not yet |
//!
//! Each block that the operation allocates or frees has an intent in a durable list ([`pmem::alloc`]). After a crash, a block stays
//! allocated only if the index references it. An old leaf's block can be reused when the operation has ended. A reader that still reads the
//! block finds that its version or `changes` has changed (C1 of [`::index::leaf_list`]).
//!
//! If the last leaf is full and an inserted key is above all other keys, this key begins a new leaf, with two fences. The old leaf stays as
//! it is.

use index::Entry;
use index::Schema;
use index::leaf_list::bound::bound;
use index::leaf_list::prelude::*;
use pmem::alloc::Kind;
use pmem::region::{checked, unchecked};
use pmem::sync::Ordering;
use pmem::{Error, Fence, Medium, Result, WORD, record};

use crate::index::{NvTree, Writer};
use crate::inner::Place;
use crate::leaf::{Leaf, NXT};
use crate::rebuild::Change;

/// Entries in key order.
type Run<S> = Vec<Entry<<S as Schema>::Tail>>;

impl<M: Medium, S: Schema> NvTree<M, S> {
    /// Replaces the full leaf of a key by one or two leaves that have space for at least two entries.
    ///
    /// # Errors
    /// Errors of the allocator; `Corrupt`. Then nothing has changed.
    pub(crate) fn make_space(&self, writer: &mut Writer, key: &S::Key) -> Result<()> {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let place = self.make_space_above(writer, key)?;
        let leaf = Leaf(self.inner().leaf(place));
        let mut live = leaf.sorted::<M, S>(medium, shape)?;
        if live.len() * 2 > shape.capacity() {
            let right = live.split_off(live.len() / 2);
            return self.switch(writer, place, None, &[live, right]);
        }
        if self.merge_right(writer, place, &live)? {
            return Ok(());
        }
        self.switch(writer, place, None, &[live])
    }

    /// Replaces a leaf and its right neighbour by one leaf that is at most half full. False if both hold too many entries, if there is no
    /// right neighbour, or if it is the only leaf of its parent.
    fn merge_right(&self, writer: &mut Writer, place: Place, live: &Run<S>) -> Result<bool> {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let inner = self.inner();
        let Some(right) = inner.behind(place).filter(|right| inner.entries_of(right.0) > 1) else {
            return Ok(false);
        };
        let mut others = Leaf(inner.leaf(right)).sorted::<M, S>(medium, shape)?;
        if (live.len() + others.len()) * 2 > shape.capacity() {
            return Ok(false);
        }
        let mut all = live.clone();
        all.append(&mut others);
        self.switch(writer, place, Some(right), &[all])?;
        Ok(true)
    }

    /// After a delete: replaces the leaf, or removes it from the list, if it is full or sparse.
    ///
    /// # Errors
    /// Errors of the allocator; `Corrupt`. Then nothing has changed.
    pub(crate) fn thin_out(&self, writer: &mut Writer, key: &S::Key, leaf: Leaf) -> Result<()> {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let capacity = shape.capacity();
        let Some(log) = leaf.log(medium, shape) else { return Ok(()) };
        let is_full = log.count == capacity;
        // An upper bound of the live entries: entries that replaced older ones are not subtracted.
        let most_left = log.count.saturating_sub(2 * log.negatives());
        // A batch reserved no space for a replacement after a delete.
        if self.images.is_running() || (!is_full && most_left * 4 > capacity) {
            return Ok(());
        }
        // If the neighbours are too full for a merge, this avoids an attempt with every delete.
        let is_time = is_full || most_left.is_power_of_two() || leaf.is_empty::<M, S>(medium, shape, &log);
        if !is_time {
            return Ok(());
        }
        let inner = self.inner();
        let place = self.place_in(&inner, key, false);
        // Another write of the same write group may have removed the leaf.
        if inner.leaf(place) != leaf.0 {
            return Ok(());
        }
        let live = leaf.sorted::<M, S>(medium, shape)?;
        if live.len() * 2 > capacity {
            return Ok(());
        }
        if self.merge_right(writer, place, &live)? {
            return Ok(());
        }
        let may_go = inner.entries_of(place.0) > 1;
        if let Some(before) = inner.before(place).filter(|_| may_go) {
            let of_left = Leaf(inner.leaf(before)).sorted::<M, S>(medium, shape)?;
            if (of_left.len() + live.len()) * 2 <= capacity {
                return self.merge_right(writer, before, &of_left).map(drop);
            }
            if live.is_empty() {
                return self.switch(writer, place, None, &[]);
            }
        }
        if is_full { self.switch(writer, place, None, &[live]) } else { Ok(()) }
    }

    /// Replaces a leaf, and its right neighbour `gone` if given, by up to two new leaves with these entries.
    fn switch(&self, writer: &mut Writer, place: Place, gone: Option<Place>, parts: &[Run<S>]) -> Result<()> {
        let (region, medium, shape) = (&self.region, self.region.medium(), &self.shape);
        let inner = self.inner();
        let old = Leaf(inner.leaf(place));
        let right = gone.map(|gone| Leaf(inner.leaf(gone)));
        let before = inner.before(place).map(|before| inner.leaf(before));
        let link_at = before.map_or(self.root_block(), |before| before + NXT);
        let corrupt = |at| Error::Corrupt { what: "link to a leaf", at };
        let leads_to = |at: u64| unchecked(medium.word(at)).map(|nxt| nxt * WORD);
        if leads_to(link_at) != Some(old.0) {
            return Err(corrupt(link_at));
        }
        if right.is_some_and(|right| leads_to(old.0 + NXT) != Some(right.0)) {
            return Err(corrupt(old.0));
        }
        let last = right.unwrap_or(old);
        let after = last.nxt(medium).ok_or(corrupt(last.0))?;
        let min = old.min(medium);
        let low = bound::<M, S>(medium, min)?;
        let low_gone = right.map(|right| bound::<M, S>(medium, right.min(medium))).transpose()?;

        let news = self.take_leaves(writer, parts, min)?;
        let olds = [Some(old), right];
        let bounds = [right, parts.is_empty().then_some(old)].into_iter().flatten();
        let bounds = bounds.filter(|_| !S::PLAIN).map(|leaf| leaf.min(medium));
        let given = olds.into_iter().flatten().try_for_each(|old| writer.allocator.give(region, old.0));
        let mut bounds = bounds;
        given
            .and_then(|()| bounds.try_for_each(|min| record::give(region, &mut writer.allocator, min)))
            .map_err(|error| self.give_up(writer, error))?;
        let bound_of_new = news.get(1).map(|(_, min)| bound::<M, S>(medium, *min)).transpose();
        let bound_of_new = bound_of_new.map_err(|error| self.give_up(writer, error))?;

        before.into_iter().for_each(|before| self.lock(writer, before));
        olds.into_iter().flatten().for_each(|old| self.lock(writer, old.0));
        news.iter().for_each(|(new, _)| self.lock(writer, new.0));
        let mut nxt = after;
        for ((new, min), entries) in news.iter().zip(parts).rev() {
            new.compose(medium, shape, (nxt, *min), entries.iter().copied());
            nxt = new.0;
        }
        medium.fence(Fence::Payload);
        writer.allocator.flip(region);
        medium.publish(link_at, checked(nxt / WORD));
        medium.flush(link_at, WORD);
        medium.fence(Fence::Commit);
        writer.allocator.finish(region, &mut writer.log);

        if let Some((gone, low)) = gone.zip(low_gone.as_ref()) {
            self.show(writer, (gone, S::borrow(low)), Change::Gone, S::borrow(low));
        }
        let at = (place, S::borrow(&low));
        match news.first() {
            None => self.show(writer, at, Change::Gone, S::borrow(&low)),
            Some((new, _)) => self.show(writer, at, Change::Replaced(new.0), S::borrow(&low)),
        }
        let turnover = &mut writer.turnover;
        match (gone, news.len()) {
            (Some(_), _) | (None, 0) => turnover.merges += 1,
            (None, 1) => turnover.copies += 1,
            (None, _) => turnover.splits += 1,
        }
        if let Some(((new, _), bound)) = news.get(1).zip(bound_of_new.as_ref()) {
            self.show(writer, at, Change::Behind(new.0), S::borrow(bound));
        }
        self.stripes.unlock(&mut writer.held);
        Ok(())
    }

    /// Allocates a block for each part and makes the word of its bound. The first part's bound is `min`.
    fn take_leaves(&self, writer: &mut Writer, parts: &[Run<S>], min: u64) -> Result<Vec<(Leaf, u64)>> {
        let mut news: Vec<(Leaf, u64)> = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            let new = writer.allocator.take(&self.region, &mut writer.log, Kind::Leaf, self.shape.bytes());
            let new = new.map_err(|error| self.give_up(writer, error))?;
            let least = match (i.checked_sub(1).and_then(|i| parts[i].last()), part.first()) {
                (Some(below), Some(above)) => self.separate(writer, below, above)?,
                _ => min,
            };
            news.push((Leaf(new), least));
        }
        Ok(news)
    }

    /// Makes the key word of a bound between two entries.
    fn separate(&self, writer: &mut Writer, below: &Entry<S::Tail>, above: &Entry<S::Tail>) -> Result<u64> {
        let low = S::separate(&self.region, &mut writer.allocator, &mut writer.log, below, above)
            .map_err(|error| self.give_up(writer, error))?;
        Ok(S::separator_block(low).unwrap_or(low[0]))
    }

    /// Begins a new leaf for a key above all others of a full last leaf. False if the leaf is not the last, if the key is not above all
    /// others, or if at most half of the leaf's entries are live.
    ///
    /// # Errors
    /// As [`NvTree::make_space`].
    pub(crate) fn append_leaf(
        &self,
        writer: &mut Writer,
        leaf: Leaf,
        key: &S::Key,
        value: &S::Value,
    ) -> Result<bool> {
        let (region, medium, shape) = (&self.region, self.region.medium(), &self.shape);
        if leaf.nxt(medium) != Some(0) {
            return Ok(false);
        }
        let live = leaf.sorted::<M, S>(medium, shape)?;
        let Some(greatest) = live.last().filter(|_| live.len() * 2 > shape.capacity()) else {
            return Ok(false);
        };
        let mut below = S::KeyBuf::default();
        if !S::read_key(medium, greatest.key, &mut below)
            || S::order_probe(S::probe(key), S::borrow(&below)).is_le()
        {
            return Ok(false);
        }
        let place = self.make_space_above(writer, key)?;
        let low = bound::<M, S>(medium, leaf.min(medium))?;
        let entry = self.make(writer, key, value)?;
        let new = writer.allocator.take(region, &mut writer.log, Kind::Leaf, shape.bytes());
        let new = Leaf(new.map_err(|error| self.give_up(writer, error))?);
        let min = self.separate(writer, greatest, &entry)?;
        let bound_of_new = bound::<M, S>(medium, min).map_err(|error| self.give_up(writer, error))?;
        self.note_key(key);
        self.lock(writer, leaf.0);
        self.lock(writer, new.0);
        new.compose(medium, shape, (0, min), [entry].into_iter());
        medium.fence(Fence::Payload);
        writer.allocator.flip(region);
        medium.publish(leaf.0 + NXT, checked(new.0 / WORD));
        medium.flush(leaf.0 + NXT, WORD);
        medium.fence(Fence::Commit);
        writer.allocator.finish(region, &mut writer.log);
        self.show(writer, (place, S::borrow(&low)), Change::Behind(new.0), S::borrow(&bound_of_new));
        writer.turnover.appends += 1;
        self.stripes.unlock(&mut writer.held);
        self.keys.fetch_add(1, Ordering::AcqRel);
        self.rebuild_some(writer);
        Ok(true)
    }
}
