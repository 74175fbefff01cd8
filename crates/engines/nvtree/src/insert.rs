//! Inserts and updates: an entry is appended, and a new count includes it.

use index::leaf_list::prelude::*;
use index::leaf_list::write_group::{Step, Stored};
use index::{Schema, Write};
use pmem::{Error, Medium, Result};

use crate::index::{NvTree, Writer};
use crate::leaf::{Leaf, Log};

/// The store that commits a write to one leaf.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    pub(crate) leaf: Leaf,
    pub(crate) log: Log,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// The new count, and the number of negative entries among the new ones.
    Append { count: usize, negatives: usize },
    /// Makes the entry of this slot negative.
    Sign(usize),
}

impl<M: Medium, S: Schema> NvTree<M, S> {
    pub(crate) fn put_in_leaf(&self, writer: &mut Writer, key: &S::Key, value: &S::Value) -> Result<bool> {
        loop {
            let leaf = Leaf(self.sound_leaf_of(key)?);
            if let Step::Stored(stored) = self.store_value(writer, leaf, key, value)? {
                return Ok(self.commit_alone(writer, &Write::Put(key, value), &stored));
            }
            let is_there = leaf.find::<M, S>(self.region.medium(), &self.shape, S::probe(key)).is_some();
            if !is_there && self.append_leaf(writer, leaf, key, value)? {
                return Ok(false);
            }
            self.make_space(writer, key)?;
        }
    }

    /// Appends an entry. Returns [`Step::Apart`] if there is no space.
    pub(crate) fn store_value(
        &self,
        writer: &mut Writer,
        leaf: Leaf,
        key: &S::Key,
        value: &S::Value,
    ) -> Result<Step<Change>> {
        S::check_value(value, self.shape.entries.payload_words)?;
        let (medium, shape) = (self.region.medium(), &self.shape);
        let probe = S::probe(key);
        let Some(log) = leaf.log(medium, shape) else {
            return Err(Error::Corrupt { what: "leaf", at: leaf.0 });
        };
        let found = leaf.find::<M, S>(medium, shape, probe);
        // With keys that are words the newest entry wins. With byte strings the old entry needs a negative one, because its record is
        // freed.
        let taken = found.filter(|_| !S::PLAIN);
        let slot = log.count + usize::from(taken.is_some());
        if slot >= shape.capacity() {
            return Ok(Step::Apart);
        }
        let old = taken.map(|taken| leaf.entry::<M, S::Tail>(medium, shape, taken));
        let entry = self.make(writer, key, value)?;
        if let Some(old) = &old {
            self.give_blocks(writer, old)?;
        }
        self.note_key(key);
        self.lock(writer, leaf.0);
        let mut from = leaf.slot_at(shape, slot);
        let to = from + shape.entry_bytes();
        if let Some(taken) = taken {
            from = leaf.fill_negative::<M, S>(medium, shape, log.count, (probe, taken));
        }
        leaf.fill(medium, shape, slot, &entry);
        medium.flush(from, to - from);
        let what = What::Append { count: slot + 1, negatives: usize::from(taken.is_some()) };
        let change = Change { leaf, log, what };
        Ok(Step::Stored(Stored { change, was_there: found.is_some(), has_payload: true }))
    }
}
