//! Inserts and updates [VLAB §5.2.2].

use chain::group::Groups;
use pmem::sync::Ordering;
use pmem::{Error, Fence, Medium, Result, WORD};
use tree::Schema;

use crate::bucket::{Bucket, count};
use crate::index::{Vlab, Writer, is_one_word};

impl<M: Medium, S: Schema> Vlab<M, S> {
    pub(crate) fn put_in_bucket(
        &self,
        writer: &mut Writer<S>,
        key: &S::Key,
        value: &S::Value,
    ) -> Result<bool> {
        S::check_value(value, self.shape.entries.payload_words)?;
        let (medium, shape) = (self.region.medium(), &self.shape);
        let probe = S::probe(key);
        loop {
            let bucket = self.bucket_of(key)?;
            if let Some(slot) = bucket.find::<M, S>(medium, shape, probe) {
                if !self.update_slot(writer, bucket, slot, key, value)? {
                    self.split(writer, bucket)?;
                    continue;
                }
                return Ok(true);
            }
            let bits = bucket.bits(medium, shape);
            let Some(slot) = shape.free_slot(&bits) else {
                if self.append_bucket(writer, bucket, key, value)? {
                    return Ok(false);
                }
                self.split(writer, bucket)?;
                continue;
            };
            let entry = self.make(writer, key, value)?;
            self.note_key(key);
            self.lock(writer, bucket.0);
            bucket.fill(medium, shape, slot, &entry);
            bucket.flush_slot(medium, shape, slot);
            medium.fence(Fence::Payload);
            writer.allocator.flip(&self.region);
            self.commit_bits(writer, bucket, slot / 64, bits[slot / 64] | 1 << (slot % 64));
            self.keys.fetch_add(1, Ordering::AcqRel);
            self.combine_some(writer);
            return Ok(false);
        }
    }

    /// The commit of a change of one bitmap word: publishes it, and ends the operation.
    pub(crate) fn commit_bits(&self, writer: &mut Writer<S>, bucket: Bucket, i: usize, bits: u64) {
        let medium = self.region.medium();
        bucket.publish_bits(medium, i, bits, false);
        medium.flush(bucket.bits_at(i), WORD);
        medium.fence(Fence::Commit);
        writer.allocator.finish(&self.region, &mut writer.log);
        self.stripes.unlock(&mut writer.held);
    }

    /// Replaces the value in a slot; false if that needs a second slot under the same bitmap word and there is none.
    fn update_slot(
        &self,
        writer: &mut Writer<S>,
        bucket: Bucket,
        slot: usize,
        key: &S::Key,
        value: &S::Value,
    ) -> Result<bool> {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let entries = &shape.entries;
        if is_one_word::<S>() {
            let entry = self.make(writer, key, value)?;
            let at = entries.payload_at(tree::shape::Node(bucket.0), slot);
            self.note_key(key);
            self.lock(writer, bucket.0);
            medium.publish(at, entry.payload);
            medium.flush(at, WORD);
            medium.fence(Fence::Commit);
            self.stripes.unlock(&mut writer.held);
            return Ok(true);
        }
        let i = slot / 64;
        let bits = bucket.bits(medium, shape)[i];
        let free = !bits & shape.slots_of(i);
        if free == 0 {
            if count(&bucket.bits(medium, shape)) < 2 {
                return Err(Error::Corrupt { what: "bucket", at: bucket.0 });
            }
            return Ok(false);
        }
        let old = bucket.entry::<M, S::Tail>(medium, shape, slot);
        let entry = self.make(writer, key, value)?;
        self.give_blocks(writer, &old)?;
        let fresh = free.trailing_zeros() as usize;
        self.note_key(key);
        self.lock(writer, bucket.0);
        bucket.fill(medium, shape, i * 64 + fresh, &entry);
        bucket.flush_slot(medium, shape, i * 64 + fresh);
        medium.fence(Fence::Payload);
        writer.allocator.flip(&self.region);
        self.commit_bits(writer, bucket, i, bits & !(1 << (slot % 64)) | 1 << fresh);
        Ok(true)
    }
}
