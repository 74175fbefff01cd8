//! Deletes [VLAB §5.2.3]: a bit is cleared. Of byte strings the record's bit in the allocator follows, for one fence more.

use pmem::sync::Ordering;
use pmem::{Fence, Medium, Result};
use tree::{Schema, WriteOptions};

use crate::index::{Vlab, Writer};

impl<M: Medium, S: Schema> Vlab<M, S> {
    /// Removes a key; false if it was absent.
    ///
    /// # Errors
    /// `Closed`, `Failed`, `Corrupt`: nothing has changed then.
    pub fn delete(&self, key: &S::Key) -> Result<bool> {
        self.delete_as(key, WriteOptions::default())
    }

    /// As [`Vlab::delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete_as(&self, key: &S::Key, how: WriteOptions) -> Result<bool> {
        let mut writer = self.enter(0)?;
        let found = self.delete_locked(&mut writer, key)?;
        self.leave(writer, how)?;
        Ok(found)
    }

    pub(crate) fn delete_locked(&self, writer: &mut Writer<S>, key: &S::Key) -> Result<bool> {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let bucket = self.bucket_of(key)?;
        let Some(slot) = bucket.find::<M, S>(medium, shape, S::probe(key)) else { return Ok(false) };
        let entry = bucket.entry::<M, S::Tail>(medium, shape, slot);
        self.give_blocks(writer, &entry)?;
        self.note_key(key);
        self.lock(writer, bucket);
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
