//! Opening: the list is read from its head on, what a crash cut short is settled, and the directory is built.
//!
//! Every header is read, no entry but those of a flagged bucket, of which a crash leaves one: what is at or above the next bucket's `min`
//! is dropped, `max` is set, the flag is cleared. Then the list says who owns the blocks that the last operation named.

use std::sync::Arc;

use pmem::alloc::{self, Class, Kind};
use pmem::sync::Ordering;
use pmem::{Error, Fence, Found, Medium, Result, record};
use tree::Schema;

use crate::braids::Braids;
use crate::bucket::{BIT_WORDS, Bucket, MAX, MIN, bound, slots};
use crate::directory::Directory;
use crate::vlab::{View, Vlab};

impl<M: Medium, S: Schema> Vlab<M, S> {
    /// Reads the list and makes the view.
    ///
    /// # Errors
    /// `Corrupt` if it is not a list of buckets whose bounds ascend.
    pub(crate) fn load(&self, found: Found) -> Result<()> {
        let medium = self.region.medium();
        let mut buckets: Vec<(S::KeyBuf, u64)> = Vec::new();
        let mut keys = 0;
        let mut next = self.meta.head(medium)?;
        while next != 0 {
            let bucket = Bucket(next);
            let (key, nxt) = self.read_header(bucket)?;
            let ascends = buckets.last().is_none_or(|(last, _)| *last < key);
            if !ascends || (buckets.is_empty() != (medium.word(bucket.0 + MIN) == 0)) {
                return Err(Error::Corrupt { what: "order of buckets", at: next });
            }
            if bucket.is_flagged(medium) {
                if matches!(found, Found::Clean { .. }) {
                    return Err(Error::Corrupt { what: "bucket of a store that was closed", at: next });
                }
                self.settle_flag(bucket, nxt)?;
            }
            keys += bucket.count(medium, &self.shape) as u64;
            buckets.push((key, next));
            next = nxt;
        }
        if buckets.is_empty() {
            return Err(Error::Corrupt { what: "head of the list", at: self.meta.0 });
        }
        self.keys.store(keys, Ordering::Release);
        self.view.store(Arc::new(view_of::<S>(&buckets)));
        self.changes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// The lower bound of a bucket, and the next one's address.
    fn read_header(&self, bucket: Bucket) -> Result<(S::KeyBuf, u64)> {
        let medium = self.region.medium();
        let corrupt = Error::Corrupt { what: "bucket", at: bucket.0 };
        let class = alloc::class_of(&self.region, bucket.0);
        let is_bucket =
            class.is_some_and(|class| class.kind == Kind::Leaf && class.block_bytes == self.shape.bytes());
        let Some(nxt) = bucket.nxt(medium).filter(|_| is_bucket) else { return Err(corrupt) };
        Ok((bound::<M, S>(medium, medium.word(bucket.0 + MIN))?, nxt))
    }

    /// Brings a split or merge to an end that a crash cut short, in either direction.
    fn settle_flag(&self, bucket: Bucket, nxt: u64) -> Result<()> {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let old = bucket.bits(medium, shape);
        let (mut new, mut max) = (old, 0);
        if nxt != 0 {
            let (upper, _) = self.read_header(Bucket(nxt))?;
            max = medium.word(nxt + MIN);
            let probe = S::probe(S::borrow(&upper));
            for slot in slots(&old) {
                if S::compare(medium, bucket.slot_at(shape, slot), probe).is_ge() {
                    new[slot / 64] &= !(1 << (slot % 64));
                }
            }
        }
        bucket.publish_changed(medium, &old, &new);
        medium.publish(bucket.0 + MAX, max);
        bucket.publish_bits(medium, BIT_WORDS - 1, new[BIT_WORDS - 1], false);
        bucket.flush_header(medium);
        medium.fence(Fence::Home);
        Ok(())
    }

    /// Settles the allocator's intents by asking the list.
    pub(crate) fn recover_blocks(&self) -> Result<()> {
        alloc::recover(
            &self.region,
            |class, at| Ok(self.meta.0 != 0 && self.owns(class, at)),
            |class, at| {
                if class.kind.has_pieces() { record::pieces(&self.region, at) } else { Vec::new() }
            },
        )
    }

    /// True if the entry of this key leads to this record.
    fn owns_record(&self, key: &S::KeyBuf, at: u64) -> bool {
        let medium = self.region.medium();
        let (bucket, _) = self.locate(&self.view.load(), S::borrow(key), false);
        bucket.find::<M, S>(medium, &self.shape, S::probe(S::borrow(key))).is_some_and(|slot| {
            let entry = bucket.entry::<M, S::Tail>(medium, &self.shape, slot);
            S::blocks_of(&entry).any(|block| block == at)
        })
    }

    /// True if the index reaches this block.
    fn owns(&self, class: Class, at: u64) -> bool {
        let medium = self.region.medium();
        let mut key = S::KeyBuf::default();
        match class.kind {
            Kind::Inner => at == self.meta.0,
            Kind::Leaf => {
                let bucket = Bucket(at);
                // A bucket's own bound leads to it, if it is in the list.
                self.read_header(bucket)
                    .is_ok_and(|(key, _)| self.locate(&self.view.load(), S::borrow(&key), false).0 == bucket)
            }
            Kind::Batch => self.region.batch().is_ok_and(|batch| batch == at),
            Kind::Separator => {
                let mut bytes = Vec::new();
                record::read_key(medium, at, &mut bytes)
                    && S::key_of(&bytes).is_some_and(|key| {
                        let (bucket, _) = self.locate(&self.view.load(), S::borrow(&key), false);
                        medium.word(bucket.0 + MIN) == at
                    })
            }
            Kind::Record => S::key_of_block(medium, at, &mut key) && self.owns_record(&key, at),
            // Shares its record's fate; the ring may still hold the address of what was here before.
            Kind::Piece => {
                let record = medium.word(at);
                let class = alloc::class_of(&self.region, record).filter(|class| class.kind.has_pieces());
                class.is_some_and(|class| {
                    record::pieces(&self.region, record).contains(&at) && self.owns(class, record)
                })
            }
        }
    }
}

/// The view of a list of buckets: `min` and address of each.
fn view_of<S: Schema>(buckets: &[(S::KeyBuf, u64)]) -> View<S> {
    let begin = match (buckets.get(1), buckets.last()) {
        (Some((first, _)), Some((last, _))) if !S::PLAIN => Directory::common(
            S::key_bytes(S::borrow(first)).as_ref(),
            S::key_bytes(S::borrow(last)).as_ref(),
        ),
        _ => Vec::new(),
    };
    let mut directory = Directory::with_room::<S>(buckets.len(), begin);
    buckets.iter().for_each(|(key, at)| directory.push::<S>(S::borrow(key), *at));
    View { directory: directory.into(), braids: Braids::default() }
}
