//! Inserts and updates: an entry behind the last, and the count that reaches it.

use chain::prelude::*;
use pmem::sync::Ordering;
use pmem::{Error, Fence, Medium, Result};
use tree::Schema;

use crate::index::{NvTree, Writer};
use crate::leaf::Leaf;

impl<M: Medium, S: Schema> NvTree<M, S> {
    pub(crate) fn put_in_leaf(&self, writer: &mut Writer, key: &S::Key, value: &S::Value) -> Result<bool> {
        S::check_value(value, self.payload_words())?;
        let (medium, shape) = (self.region.medium(), &self.shape);
        let probe = S::probe(key);
        loop {
            let leaf = Leaf(self.sound_leaf_of(key)?);
            let corrupt = Error::Corrupt { what: "leaf", at: leaf.0 };
            let Some(log) = leaf.log(medium, shape) else { return Err(corrupt) };
            let found = leaf.find::<M, S>(medium, shape, probe);
            // Of plain keys the newest entry wins; of byte strings the old one has to be taken away, for its record is given back.
            let taken = found.filter(|_| !S::PLAIN);
            let slot = log.count + usize::from(taken.is_some());
            if slot >= shape.capacity() {
                if found.is_none() && self.append_leaf(writer, leaf, key, value)? {
                    return Ok(false);
                }
                self.make_room(writer, key)?;
                continue;
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
            medium.fence(Fence::Payload);
            writer.allocator.flip(&self.region);
            leaf.publish_count(medium, &log, slot + 1, usize::from(taken.is_some()));
            self.end_append(writer);
            self.keys.fetch_add(u64::from(found.is_none()), Ordering::AcqRel);
            self.rebuild_some(writer);
            return Ok(found.is_some());
        }
    }

    /// The count, or a sign, was published and is being written back: the fence that makes it durable, and the end of the operation.
    pub(crate) fn end_append(&self, writer: &mut Writer) {
        self.region.medium().fence(Fence::Commit);
        writer.allocator.finish(&self.region, &mut writer.log);
        self.stripes.unlock(&mut writer.held);
    }
}
