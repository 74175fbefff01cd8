//! Deletes: an entry of the other sign behind the last. In a full leaf the sign of the entry itself changes, where it stands.
//!
//! So taking a key away never needs room, of which a full store has none. A leaf in which little is left is replaced afterwards, if it can
//! be ([`replace`](crate::replace)).

use chain::prelude::*;
use pmem::sync::Ordering;
use pmem::{Error, Fence, Medium, Result, WORD};
use tree::Schema;

use crate::index::{NvTree, Writer};
use crate::leaf::Leaf;

impl<M: Medium, S: Schema> NvTree<M, S> {
    pub(crate) fn delete_in_leaf(&self, writer: &mut Writer, key: &S::Key) -> Result<bool> {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let probe = S::probe(key);
        let leaf = Leaf(self.sound_leaf_of(key)?);
        let Some(log) = leaf.log(medium, shape) else {
            return Err(Error::Corrupt { what: "leaf", at: leaf.0 });
        };
        let Some(slot) = leaf.find::<M, S>(medium, shape, probe) else { return Ok(false) };
        let entry = leaf.entry::<M, S::Tail>(medium, shape, slot);
        self.give_blocks(writer, &entry)?;
        self.note_key(key);
        self.lock(writer, leaf.0);
        if log.count < shape.capacity() {
            let at = leaf.fill_negative::<M, S>(medium, shape, log.count, (probe, slot));
            medium.flush(at, WORD);
            medium.fence(Fence::Payload);
            writer.allocator.flip(&self.region);
            leaf.publish_count(medium, &log, log.count + 1, 1);
        } else {
            if writer.allocator.has_pending() {
                medium.fence(Fence::Payload); // the allocator's intents
                writer.allocator.flip(&self.region);
            }
            leaf.publish_sign(medium, &log, slot);
        }
        self.end_append(writer);
        self.keys.fetch_sub(1, Ordering::AcqRel);
        // What is wrong with a neighbour is told to whoever reads it, and room may be lacking: the key is gone.
        let _ = self.thin_out(writer, key, leaf);
        self.rebuild_some(writer);
        Ok(true)
    }
}
