//! Inserts and updates [VLAB §5.2.2].

use index::leaf_list::prelude::*;
use index::leaf_list::write_group::{Step, Stored};
use index::{Schema, Write};
use pmem::{Error, Medium, Result};

use crate::bucket::{Bucket, count};
use crate::index::{Vlab, Writer, is_one_word};

/// The word that commits a write to one bucket: a bitmap word, or the value itself.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    pub(crate) bucket: Bucket,
    pub(crate) at: u64,
    pub(crate) word: u64,
}

impl<M: Medium, S: Schema> Vlab<M, S> {
    pub(crate) fn put_in_bucket(
        &self,
        writer: &mut Writer<S>,
        key: &S::Key,
        value: &S::Value,
    ) -> Result<bool> {
        loop {
            let bucket = self.bucket_of(key)?;
            if let Step::Stored(stored) = self.store_value(writer, bucket, key, value)? {
                return Ok(self.commit_alone(writer, &Write::Put(key, value), &stored));
            }
            let (medium, shape) = (self.region.medium(), &self.shape);
            let is_there = bucket.find::<M, S>(medium, shape, S::probe(key)).is_some();
            if is_there && count(&bucket.bits(medium, shape)) < 2 {
                return Err(Error::Corrupt { what: "bucket", at: bucket.0 });
            }
            if !is_there && self.append_bucket(writer, bucket, key, value)? {
                return Ok(false);
            }
            self.split(writer, bucket)?;
        }
    }

    /// Stores an entry into a free slot, or finds the value's word. Returns [`Step::Apart`] if no suitable slot is free.
    pub(crate) fn store_value(
        &self,
        writer: &mut Writer<S>,
        bucket: Bucket,
        key: &S::Key,
        value: &S::Value,
    ) -> Result<Step<Change>> {
        S::check_value(value, self.shape.entries.payload_words)?;
        let (medium, shape) = (self.region.medium(), &self.shape);
        let bits = bucket.bits(medium, shape);
        let old = bucket.find::<M, S>(medium, shape, S::probe(key));
        let stored = |at, word, has_payload| {
            let change = Change { bucket, at, word };
            Ok(Step::Stored(Stored { change, was_there: old.is_some(), has_payload }))
        };
        if let Some(slot) = old.filter(|_| is_one_word::<S>()) {
            let entry = self.make(writer, key, value)?;
            self.note_key(key);
            self.lock(writer, bucket.0);
            let at = shape.entries.payload_at(index::shape::Node(bucket.0), slot);
            return stored(at, entry.payload, false);
        }
        // An update needs a second slot under the same bitmap word, so that one publish switches both bits.
        let fresh = match old {
            Some(slot) => {
                let free = !bits[slot / 64] & shape.slots_of(slot / 64);
                free.checked_ilog2().map(|_| slot / 64 * 64 + free.trailing_zeros() as usize)
            }
            None => shape.free_slot(&bits),
        };
        let Some(fresh) = fresh else { return Ok(Step::Apart) };
        let entry = self.make(writer, key, value)?;
        let mut word = bits[fresh / 64] | 1 << (fresh % 64);
        if let Some(slot) = old {
            self.give_blocks(writer, &bucket.entry::<M, S::Tail>(medium, shape, slot))?;
            word &= !(1 << (slot % 64));
        }
        self.note_key(key);
        self.lock(writer, bucket.0);
        bucket.fill(medium, shape, fresh, &entry);
        bucket.flush_slot(medium, shape, fresh);
        stored(bucket.bits_at(fresh / 64), word, true)
    }
}
