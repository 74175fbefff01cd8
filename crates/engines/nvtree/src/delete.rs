//! Deletes: a negative entry is appended. In a full leaf the sign of the entry itself is changed in place.
//!
//! So a delete never allocates a block, and works in a full store. A sparse leaf is replaced afterwards if possible
//! ([`replace`](crate::replace)).

use index::leaf_list::prelude::*;
use index::leaf_list::write_group::{Step, Stored};
use index::{Schema, Write};
use pmem::{Error, Medium, Result, WORD};

use crate::index::{NvTree, Writer};
use crate::insert::{Change, What};
use crate::leaf::Leaf;

impl<M: Medium, S: Schema> NvTree<M, S> {
    pub(crate) fn delete_in_leaf(&self, writer: &mut Writer, key: &S::Key) -> Result<bool> {
        let leaf = Leaf(self.sound_leaf_of(key)?);
        Ok(match self.store_removal(writer, leaf, key)? {
            Step::Stored(stored) => self.commit_alone(writer, &Write::Delete(key), &stored),
            _ => false,
        })
    }

    /// Stores a negative entry for a key if there is space. Otherwise prepares the change of the entry's sign.
    pub(crate) fn store_removal(
        &self,
        writer: &mut Writer,
        leaf: Leaf,
        key: &S::Key,
    ) -> Result<Step<Change>> {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let probe = S::probe(key);
        let Some(log) = leaf.log(medium, shape) else {
            return Err(Error::Corrupt { what: "leaf", at: leaf.0 });
        };
        let Some(slot) = leaf.find::<M, S>(medium, shape, probe) else { return Ok(Step::Absent) };
        let entry = leaf.entry::<M, S::Tail>(medium, shape, slot);
        self.give_blocks(writer, &entry)?;
        self.note_key(key);
        self.lock(writer, leaf.0);
        let has_space = log.count < shape.capacity();
        let what = if has_space {
            let at = leaf.fill_negative::<M, S>(medium, shape, log.count, (probe, slot));
            medium.flush(at, WORD);
            What::Append { count: log.count + 1, negatives: 1 }
        } else {
            What::Sign(slot)
        };
        let change = Change { leaf, log, what };
        Ok(Step::Stored(Stored { change, was_there: true, has_payload: has_space }))
    }
}
