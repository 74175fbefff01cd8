//! Merges: a sparse bucket joins a neighbour, and one bucket is freed. (In the paper and under `faithful` buckets are never freed.)
//!
//! | fence passed ([`pmem::Fence`]) | durable | after a crash |
//! |---|---|---|
//! | none | perhaps entries in free slots | nothing to do: their bits are clear |
//! | payload | the entries; the intents (the list of the blocks that are freed) | the same |
//! | payload, while the header changes | the entries; a prefix of these stores to the header, in this order (K3 of `bucket`): set the flag, set the bits, `nxt`, `max`, clear the flag | see below |
//! | commit | everything | nothing to do |
//!
//! A crash in the third row may leave the bucket flagged. If the new `nxt` is not durable, the left bucket still leads to the right one,
//! and recovery removes all entries of the left bucket at or above the `min` of the right one: these are the copies. If the new `nxt` is
//! durable, it leads to the bucket after the two, and no entry is at or above the `min` of that bucket. Afterwards recovery sets `max` and
//! clears the flag.

use index::Schema;
use index::leaf_list::bound::bound;
use index::leaf_list::prelude::*;
use pmem::region::checked;
use pmem::{Error, Fence, Medium, Result, WORD, record};

use crate::bucket::{BIT_WORDS, Bucket, MAX, MIN, NXT, slots};
use crate::index::{View, Vlab, Writer};

impl<M: Medium, S: Schema> Vlab<M, S> {
    /// Merges a key's sparse bucket with a neighbour, if both together are at most half full.
    ///
    /// # Errors
    /// Errors of the allocator; `Corrupt` if a neighbour or a bound is damaged. Then nothing has changed.
    pub(crate) fn thin_out(&self, writer: &mut Writer<S>, key: &S::Key, bucket: Bucket) -> Result<()> {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let held = bucket.count(medium, shape);
        if self.faithful || held * 4 > shape.capacity() {
            return Ok(());
        }
        // Another write of the same write group may have removed the bucket.
        if self.bucket_of(key)? != bucket {
            return Ok(());
        }
        let fits = |other: Bucket| (other.count(medium, shape) + held) * 2 <= shape.capacity();
        let min = medium.word(bucket.0 + MIN);
        if min != 0 {
            let key = bound::<M, S>(medium, min)?;
            let left = self.locate(&self.view(), S::borrow(&key), true).bucket;
            if left != bucket && fits(self.check_bucket(left)?) {
                return self.merge(writer, left, bucket);
            }
        }
        match bucket.nxt(medium) {
            Some(nxt) if nxt != 0 && fits(self.check_bucket(Bucket(nxt))?) => {
                self.merge(writer, bucket, Bucket(nxt))
            }
            _ => Ok(()),
        }
    }

    /// Moves the entries of `right` to its left neighbour `left`, and frees `right`.
    fn merge(&self, writer: &mut Writer<S>, left: Bucket, right: Bucket) -> Result<()> {
        let (region, medium, shape) = (&self.region, self.region.medium(), &self.shape);
        let corrupt = Error::Corrupt { what: "order of buckets", at: left.0 };
        let (min, max) = (medium.word(right.0 + MIN), medium.word(right.0 + MAX));
        let Some(nxt) = right.nxt(medium).filter(|_| left.nxt(medium) == Some(right.0) && min != 0) else {
            return Err(corrupt);
        };
        let key = bound::<M, S>(medium, min)?;
        let upper = if max == 0 { None } else { Some(bound::<M, S>(medium, max)?) };
        let old = left.bits(medium, shape);
        let mut new = old;
        let mut moves = Vec::new();
        for slot in slots(&right.bits(medium, shape)) {
            let Some(to) = shape.free_slot(&new) else { return Err(corrupt) };
            new[to / 64] |= 1 << (to % 64);
            moves.push((slot, to));
        }
        writer.allocator.give(region, right.0).map_err(|error| self.give_up(writer, error))?;
        if !S::PLAIN {
            record::give(region, &mut writer.allocator, min).map_err(|error| self.give_up(writer, error))?;
        }

        self.lock(writer, left.0);
        self.lock(writer, right.0);
        for (from, to) in moves {
            let entry = right.entry::<M, S::Tail>(medium, shape, from);
            left.fill(medium, shape, to, &entry);
            left.flush_slot(medium, shape, to);
        }
        medium.fence(Fence::Payload);
        writer.allocator.flip(region);
        left.publish_bits(medium, BIT_WORDS - 1, old[BIT_WORDS - 1], true);
        left.publish_changed(medium, &old, &new);
        medium.publish(left.0 + NXT, checked(nxt / WORD));
        medium.copy(left.0 + MAX, max);
        left.publish_bits(medium, BIT_WORDS - 1, new[BIT_WORDS - 1], false);
        left.flush_header(medium);
        medium.fence(Fence::Commit);
        writer.allocator.finish(region, &mut writer.log);
        self.show_gone(writer, S::borrow(&key), upper.as_ref(), (left, right));
        writer.turnover.merges += 1;
        self.stripes.unlock(&mut writer.held);
        Ok(())
    }

    /// Publishes a view in which `left` replaces `right`, which is no longer in the list.
    fn show_gone(
        &self,
        writer: &mut Writer<S>,
        key: &S::Key,
        upper: Option<&S::KeyBuf>,
        (left, right): (Bucket, Bucket),
    ) {
        let view = self.view();
        let upper = upper.map(|key| S::borrow(key));
        let mut braids = view.braids.clone();
        braids.remove(key, right.0);
        let (places, fresh) = view.directory.redirect::<S>(key, upper, left.0);
        writer.aliases += fresh;
        if let Some(rebuild) = writer.rebuild.as_mut() {
            rebuild.late.remove(key, right.0);
            rebuild.aliases += rebuild.directory.redirect::<S>(key, upper, left.0).1;
        }
        let way = self.follow(&mut writer.wiring, &view, places, left);
        self.show(View { directory: view.directory.clone(), way, braids });
    }
}
