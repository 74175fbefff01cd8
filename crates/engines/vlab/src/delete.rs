//! Deletes: one bit is cleared [VLAB §5.2.3]. For byte strings the record's allocation bit follows, which costs one fence more.

use index::leaf_list::prelude::*;
use index::leaf_list::write_group::{Step, Stored};
use index::{Schema, Write};
use pmem::{Medium, Result};

use crate::bucket::Bucket;
use crate::index::{Vlab, Writer};
use crate::insert::Change;

impl<M: Medium, S: Schema> Vlab<M, S> {
    pub(crate) fn delete_in_bucket(&self, writer: &mut Writer<S>, key: &S::Key) -> Result<bool> {
        let bucket = self.bucket_of(key)?;
        Ok(match self.store_removal(writer, bucket, key)? {
            Step::Stored(stored) => self.commit_alone(writer, &Write::Delete(key), &stored),
            _ => false,
        })
    }

    /// Prepares the removal of a key's entry: the bitmap word without its bit.
    pub(crate) fn store_removal(
        &self,
        writer: &mut Writer<S>,
        bucket: Bucket,
        key: &S::Key,
    ) -> Result<Step<Change>> {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let Some(slot) = bucket.find::<M, S>(medium, shape, S::probe(key)) else { return Ok(Step::Absent) };
        let entry = bucket.entry::<M, S::Tail>(medium, shape, slot);
        self.give_blocks(writer, &entry)?;
        self.note_key(key);
        self.lock(writer, bucket.0);
        let word = bucket.bits(medium, shape)[slot / 64] & !(1 << (slot % 64));
        let change = Change { bucket, at: bucket.bits_at(slot / 64), word };
        Ok(Step::Stored(Stored { change, was_there: true, has_payload: false }))
    }
}
