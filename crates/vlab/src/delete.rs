//! Deletes [VLAB §5.2.3]: a bit is cleared. Of byte strings the record's bit in the allocator follows, for one fence more.

use chain::group::Groups;
use pmem::sync::Ordering;
use pmem::{Fence, Medium, Result};
use tree::Schema;

use crate::index::{Vlab, Writer};

impl<M: Medium, S: Schema> Vlab<M, S> {
    pub(crate) fn delete_in_bucket(&self, writer: &mut Writer<S>, key: &S::Key) -> Result<bool> {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let bucket = self.bucket_of(key)?;
        let Some(slot) = bucket.find::<M, S>(medium, shape, S::probe(key)) else { return Ok(false) };
        let entry = bucket.entry::<M, S::Tail>(medium, shape, slot);
        self.give_blocks(writer, &entry)?;
        self.note_key(key);
        self.lock(writer, bucket.0);
        if writer.allocator.has_pending() {
            medium.fence(Fence::Payload); // the allocator's intents
            writer.allocator.flip(&self.region);
        }
        let bits = bucket.bits(medium, shape)[slot / 64];
        self.commit_bits(writer, bucket, slot / 64, bits & !(1 << (slot % 64)));
        self.keys.fetch_sub(1, Ordering::AcqRel);
        // What is wrong with a neighbour is told to whoever reads it: the key is gone.
        let _ = self.thin_out(writer, bucket);
        self.combine_some(writer);
        Ok(true)
    }
}
