//! Splits: the upper half of a full bucket moves to a new bucket [VLAB §5.2.4].
//!
//! These are the paper's six steps, with the flag in the bitmap's last bit:
//!
//! | step | stored | after a crash before the next step is durable |
//! |---|---|---|
//! | 1 | the flag | flagged, nothing to drop: the flag is cleared |
//! | 2, 3 | the new bucket: entries, bounds, link | the same; the new bucket's block has no owner |
//! | 4 | the link to the new bucket | entries at or above the new `min` are dropped, `max` is set, the flag is cleared |
//! | 5 | bitmap, then `max` | the same |
//! | 6 | the flag cleared | nothing to do |
//!
//! By default all steps except 2 and 3 are stores to one line, which keep their order (K3 of `bucket`). So two fences suffice: after the
//! new bucket and after the last step. The new bucket is linked after the bucket that it came from, in the one list. So a combine changes
//! volatile memory only.
//!
//! Under `faithful` each write has its own fence. The new bucket is linked into a second list, as in the paper. A combine merges the two
//! lists and rewrites the links ([`crate::combine`]). Under `faithful`, step 4 stores to a different line than the other steps, so each
//! fence is needed.

use index::Entry;
use index::Schema;
use index::leaf_list::bound::bound;
use index::leaf_list::prelude::*;
use index::sorting::sort_unstable_by_first;
use pmem::alloc::Kind;
use pmem::region::{checked, unchecked};
use pmem::{Error, Fence, Medium, Result, WORD};

use crate::braids::Item;
use crate::bucket::{BIT_WORDS, Bits, Bucket, Links, MAX, NXT, slots};
use crate::index::{View, Vlab, Writer};

impl<M: Medium, S: Schema> Vlab<M, S> {
    /// The entries of a bucket with their slots, in key order.
    ///
    /// # Errors
    /// `Corrupt` if a key cannot be read.
    pub(crate) fn sorted(&self, bucket: Bucket) -> Result<Vec<(usize, Entry<S::Tail>)>> {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let entries = slots(&bucket.bits(medium, shape))
            .map(|slot| (slot, bucket.entry::<M, S::Tail>(medium, shape, slot)));
        if S::PLAIN {
            let mut keyed: Vec<_> = entries.map(|(slot, entry)| (entry.key[0], (slot, entry))).collect();
            sort_unstable_by_first(&mut keyed);
            return Ok(keyed.into_iter().map(|(_, entry)| entry).collect());
        }
        let mut keyed = Vec::new();
        for (slot, entry) in entries {
            let mut key = S::KeyBuf::default();
            if !S::read_key(medium, entry.key, &mut key) {
                return Err(Error::Corrupt { what: "key of record", at: entry.payload });
            }
            keyed.push((key, (slot, entry)));
        }
        sort_unstable_by_first(&mut keyed);
        Ok(keyed.into_iter().map(|(_, entry)| entry).collect())
    }

    /// Splits a bucket in half.
    ///
    /// # Errors
    /// Errors of the allocator; `Corrupt`. Then nothing has changed.
    pub(crate) fn split(&self, writer: &mut Writer<S>, bucket: Bucket) -> Result<()> {
        let entries = self.sorted(bucket)?;
        let half = entries.len() / 2;
        if half == 0 {
            return Err(Error::Corrupt { what: "bucket", at: bucket.0 });
        }
        let (stay, go) = entries.split_at(half);
        let old = bucket.bits(self.region.medium(), &self.shape);
        let mut new = [0; BIT_WORDS];
        stay.iter().for_each(|(slot, _)| new[slot / 64] |= 1 << (slot % 64));
        let bounds = (&stay[half - 1].1, &go[0].1);
        self.link_right(writer, bucket, bounds, go.iter().map(|(_, entry)| *entry), (old, new))?;
        writer.turnover.splits += 1;
        Ok(())
    }

    /// Begins a new bucket for a key above all keys of a full last bucket. The old bucket stays full. False if the bucket is not the last,
    /// if the key is not above all others, or under `faithful`.
    ///
    /// # Errors
    /// As [`Vlab::split`].
    pub(crate) fn append_bucket(
        &self,
        writer: &mut Writer<S>,
        bucket: Bucket,
        key: &S::Key,
        value: &S::Value,
    ) -> Result<bool> {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let bits = bucket.bits(medium, shape);
        let is_below = |slot| S::compare(medium, bucket.slot_at(shape, slot), S::probe(key)).is_lt();
        if self.faithful || bucket.nxt(medium) != Some(0) || !slots(&bits).all(is_below) {
            return Ok(false);
        }
        let entries = self.sorted(bucket)?;
        let Some((_, greatest)) = entries.last() else { return Ok(false) };
        let entry = self.make(writer, key, value)?;
        self.note_key(key);
        self.link_right(writer, bucket, (greatest, &entry), [entry].into_iter(), (bits, bits))?;
        writer.turnover.appends += 1;
        self.keys.fetch_add(1, pmem::sync::Ordering::AcqRel);
        self.combine_some(writer);
        Ok(true)
    }

    /// Links a new bucket with these entries after `bucket`, whose bitmap changes from `old` to `new`. `bounds` are the entries below and
    /// above the new bucket's `min`.
    fn link_right(
        &self,
        writer: &mut Writer<S>,
        bucket: Bucket,
        bounds: (&Entry<S::Tail>, &Entry<S::Tail>),
        entries: impl ExactSizeIterator<Item = Entry<S::Tail>>,
        (old, new): (Bits, Bits),
    ) -> Result<()> {
        let (region, medium, shape) = (&self.region, self.region.medium(), &self.shape);
        self.check_bucket(bucket)?;
        let max = medium.word(bucket.0 + MAX);
        let upper = if max == 0 { None } else { Some(bound::<M, S>(medium, max)?) };
        let right = writer.allocator.take(region, &mut writer.log, Kind::Leaf, shape.bytes());
        let right = Bucket(right.map_err(|error| self.give_up(writer, error))?);
        let low = S::separate(region, &mut writer.allocator, &mut writer.log, bounds.0, bounds.1)
            .map_err(|error| self.give_up(writer, error))?;
        let min = S::separator_block(low).unwrap_or(low[0]);
        let key = bound::<M, S>(medium, min).map_err(|error| self.give_up(writer, error))?;
        let link_at = self.link_to(bucket, S::borrow(&key));
        let Some(nxt) = unchecked(medium.word(link_at)).map(|nxt| nxt * WORD) else {
            return Err(self.give_up(writer, Error::Corrupt { what: "link to a bucket", at: link_at }));
        };

        self.lock(writer, bucket.0);
        self.lock(writer, link_at);
        self.lock(writer, right.0);
        bucket.publish_bits(medium, BIT_WORDS - 1, old[BIT_WORDS - 1], true);
        self.end_step(bucket.0, Fence::Guard);
        right.compose(medium, shape, Links { nxt, min, max }, entries);
        medium.fence(Fence::Payload);
        writer.allocator.flip(region);
        medium.publish(link_at, checked(right.0 / WORD));
        self.end_step(link_at, Fence::Commit);
        bucket.publish_changed(medium, &old, &new);
        medium.copy(bucket.0 + MAX, min);
        self.end_step(bucket.0, Fence::Home);
        bucket.publish_bits(medium, BIT_WORDS - 1, new[BIT_WORDS - 1], false);
        bucket.flush_header(medium);
        medium.fence(Fence::Commit);
        writer.allocator.finish(region, &mut writer.log);
        self.show_new(writer, key, upper.as_ref(), right);
        self.stripes.unlock(&mut writer.held);
        Ok(())
    }

    /// Offset of the word that will reference a new bucket. It is in the bucket that the new one came from. With two lists, it is in the
    /// preceding bucket of the second list.
    fn link_to(&self, bucket: Bucket, key: &S::Key) -> u64 {
        if !self.faithful {
            return bucket.0 + NXT;
        }
        let view = self.view();
        view.braids.find(key, true).0.map_or(self.meta().second_at(), |item| item.at + NXT)
    }

    /// The paper's fence after a step, under `faithful`. Otherwise the order of stores to one line suffices.
    fn end_step(&self, at: u64, why: Fence) {
        if self.faithful {
            self.region.medium().flush(at, WORD);
            self.region.medium().fence(why);
        }
    }

    /// Publishes a view with a new bucket that is in the list.
    fn show_new(&self, writer: &mut Writer<S>, key: S::KeyBuf, upper: Option<&S::KeyBuf>, right: Bucket) {
        let view = self.view();
        let most = self.braid_limit(&view);
        let (low, high) = (S::borrow(&key), upper.map(|key| S::borrow(key)));
        let mut braids = view.braids.clone();
        braids.insert(Item::new(key.clone(), right.0), most);
        let (places, _) = view.directory.redirect::<S>(low, high, right.0);
        view.directory.note_split::<S>(low);
        if let Some(rebuild) = writer.rebuild.as_mut().filter(|rebuild| rebuild.is_past(low)) {
            rebuild.directory.redirect::<S>(low, high, right.0);
            rebuild.directory.note_split::<S>(low);
            rebuild.late.insert(Item::new(key, right.0), most);
        }
        let way = self.follow(&mut writer.wiring, &view, places, right);
        self.show(View { directory: view.directory.clone(), way, braids });
    }
}
