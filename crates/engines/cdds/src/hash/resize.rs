//! Resizing: adds a bucket, removes a bucket, or replaces the top of the directory by one of twice the size (see [`super::directory`]).
//! Each of the three is a separate operation. It creates no version, because it does not change the entries that a reader sees. The cost of
//! adding or removing a bucket does not depend on the size of the table. The cost of a larger top depends on it, because a top has one word
//! for each segment.
//!
//! | step | fence passed | durable | after a crash |
//! |---|---|---|---|
//! | grow | none | some of the new nodes | the table has not grown; the blocks of the new nodes are free |
//! | | payload | new nodes, the new slot, perhaps the number of buckets | the table has grown or not; allocation bits are set to match |
//! | | commit | the number of buckets, allocation bits | nothing to do |
//! | shrink | none, or the first one of two | some copies, in the partner (the bucket that receives the entries) | not shrunk; the copies do not count (H2) |
//! | | payload | all copies, perhaps the number of buckets | the table has shrunk or not; allocation bits are set to match |
//! | | commit | the number of buckets, allocation bits | nothing to do |
//! | larger top | payload | the new top | the meta block references the old top or the new one |
//!
//! A shrink that adds a node to the partner's chain has two payload fences: one after the copies, and one after the link to the new node.
//! Growing copies entries to the new bucket and leaves them in the old bucket, too. A crash during shrinking can leave copies in the
//! partner. These leftovers do not count, because an entry counts only in the bucket of its hash (the table's H2). They are cleared before
//! their bucket is split again or joined with another one.

use index::Schema;
use pmem::alloc::Kind;
use pmem::region::INTENTS;
use pmem::{Error, Fence, Medium, Result, WORD};

use super::bucket::{Chain, compose};
use super::directory::{Directory, bucket_of, partner};
use super::table::{DIRECTORY, Table, Writer, stripe_of};
use crate::meta::State;
use crate::node::{Entry, Node};

/// Intents that an operation here may need besides those of nodes.
const RING_SPARE: usize = 4;
/// Maximum number of nodes that a bucket gets for the entries of another one. With a smaller bound one long last bucket could block
/// shrinking for a long time. With a larger bound, buckets with kept old versions would grow longer and longer.
const NODES_MORE: usize = 2;

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Table<M, S> {
    /// Adds a bucket if the buckets are two thirds full on average. A put calls this first. If there is no space, the chains get longer.
    pub(crate) fn grow_if_full(&self, writer: &mut Writer) -> Result<()> {
        let buckets = self.directory(writer)?.buckets;
        if writer.state.keys * 3 < buckets * self.shape.slots as u64 * 2 {
            return Ok(());
        }
        self.grow_or_not(writer).map(drop)
    }

    /// Adds a bucket if there is space for it. True if it was added.
    pub(crate) fn grow_or_not(&self, writer: &mut Writer) -> Result<bool> {
        match self.grow(writer) {
            Err(Error::Full { .. } | Error::NoSpace { .. } | Error::TooLarge { .. }) => Ok(false),
            other => other,
        }
    }

    /// Removes a bucket if the buckets are less than a quarter full on average, and if the entries of two buckets fit into one. A delete
    /// calls this first; the collector calls it, too. True if a bucket was removed.
    pub(crate) fn shrink_if_sparse(&self, writer: &mut Writer) -> Result<bool> {
        let buckets = self.directory(writer)?.buckets;
        if buckets == 1 || writer.state.keys * 4 >= buckets * self.shape.slots as u64 {
            return Ok(false);
        }
        match self.shrink(writer) {
            Err(Error::Full { .. } | Error::NoSpace { .. } | Error::TooLarge { .. }) => Ok(false),
            other => other,
        }
    }

    fn grow(&self, writer: &mut Writer) -> Result<bool> {
        if self.directory(writer)?.buckets == self.directory(writer)?.space() {
            self.operation(writer, |writer| self.enlarge_top(writer))?;
        }
        let from = partner(self.directory(writer)?.buckets);
        // Garbage must be freed before the move. Otherwise its records would have no reference and would leak.
        self.clean_alone(writer, &[from], false)?;
        self.operation(writer, |writer| self.grow_cleaned(writer, from))
    }

    fn grow_cleaned(&self, writer: &mut Writer, from: u64) -> Result<bool> {
        let (medium, persist, directory) = (self.region.medium(), self.persist, self.directory(writer)?);
        let (new, buckets) = (directory.buckets, directory.buckets + 1);
        let mut moved = self.entries_of(writer, &directory, from)?;
        moved.retain(|entry| bucket_of(self.hash_of(entry), buckets) == new);
        if moved.len().div_ceil(self.shape.slots) + RING_SPARE > INTENTS {
            return Ok(false);
        }
        let mut first = 0;
        for entries in moved.chunks(self.shape.slots) {
            let node = self.take_node(writer)?;
            compose(medium, persist, &self.shape, node, (new, first), entries);
            first = node.0;
        }
        let slot_at = if directory.begins_segment(new) {
            let (index, bytes) = (directory.index_of(new), directory.segment_bytes());
            let segment = writer.allocator.take(&self.region, &mut writer.log, Kind::Inner, bytes)?;
            directory.write_segment(medium, persist, index, segment);
            self.lock_resize(writer, from, new);
            medium.publish(directory.segment_at(index), segment);
            persist.flush(medium, directory.segment_at(index), WORD);
            directory.slot_in(segment, new)
        } else {
            self.lock_resize(writer, from, new);
            self.slot_of(&directory, new)?
        };
        // D1: no reader uses this slot yet.
        medium.publish(slot_at, first);
        persist.flush(medium, slot_at, WORD);
        self.fence_payload(writer, Fence::Payload);
        self.set_buckets(writer, &directory, buckets);
        Ok(true)
    }

    fn lock_resize(&self, writer: &mut Writer, partner: u64, last: u64) {
        for stripe in [DIRECTORY, stripe_of(partner), stripe_of(last)] {
            self.stripes.lock(stripe, &mut writer.held);
        }
    }

    /// Publishes the number of buckets: the commit point of growing and shrinking.
    fn set_buckets(&self, writer: &mut Writer, directory: &Directory, buckets: u64) {
        let medium = self.region.medium();
        let at = directory.top + WORD;
        medium.publish(at, buckets);
        self.persist.flush(medium, at, WORD);
        writer.allocator.flip(&self.region);
        medium.fence(Fence::Commit);
        writer.allocator.finish(&self.region, &mut writer.log);
    }

    /// The entries of a bucket that are not void and belong to it.
    fn entries_of(&self, writer: &Writer, directory: &Directory, bucket: u64) -> Result<Vec<Entry>> {
        let (medium, view) = (self.region.medium(), self.view_now(writer));
        let first = medium.word(self.slot_of(directory, bucket)?);
        let mut entries = Vec::new();
        for node in Chain::new(medium, bucket, first).all()? {
            let used = node.used(medium, &self.shape, &view).map(|(_, entry)| entry);
            entries.extend(used.filter(|entry| directory.bucket_of(self.hash_of(entry)) == bucket));
        }
        Ok(entries)
    }

    /// Makes a top with twice the space.
    fn enlarge_top(&self, writer: &mut Writer) -> Result<()> {
        let (medium, directory) = (self.region.medium(), self.directory(writer)?);
        let bytes = directory.doubled(0).top_bytes();
        let top = writer.allocator.take(&self.region, &mut writer.log, Kind::Inner, bytes)?;
        let segments: Vec<u64> =
            (0..directory.segments()).map(|index| medium.word(directory.segment_at(index))).collect();
        directory.doubled(top).write_top(medium, self.persist, directory.seed(medium), &segments);
        writer.allocator.give(&self.region, directory.top)?;
        self.stripes.lock(DIRECTORY, &mut writer.held);
        self.fence_payload(writer, Fence::Payload);
        writer.allocator.flip(&self.region);
        self.switch(writer, State { root: top, ..writer.state });
        writer.allocator.finish(&self.region, &mut writer.log);
        Ok(())
    }

    fn shrink(&self, writer: &mut Writer) -> Result<bool> {
        let last = self.directory(writer)?.buckets - 1;
        self.clean_alone(writer, &[partner(last), last], true)?;
        self.operation(writer, |writer| self.shrink_cleaned(writer, last))
    }

    fn shrink_cleaned(&self, writer: &mut Writer, last: u64) -> Result<bool> {
        let (medium, persist, directory) = (self.region.medium(), self.persist, self.directory(writer)?);
        let into = partner(last);
        let slot_at = self.slot_of(&directory, into)?;
        let first = medium.word(slot_at);
        let moved = self.entries_of(writer, &directory, last)?;
        let holes = self.cleared_slots(into, first)?;
        let (in_holes, rest) = moved.split_at(moved.len().min(holes.len()));
        let old = Chain::new(medium, last, medium.word(self.slot_of(&directory, last)?)).all()?;
        if rest.len() > NODES_MORE * self.shape.slots || old.len() + NODES_MORE + RING_SPARE > INTENTS {
            return Ok(false);
        }
        let mut longer = first;
        for entries in rest.chunks(self.shape.slots) {
            let node = self.take_node(writer)?;
            compose(medium, persist, &self.shape, node, (into, longer), entries);
            longer = node.0;
        }
        for node in &old {
            writer.allocator.give(&self.region, node.0)?;
        }
        if directory.begins_segment(last) {
            let segment = medium.word(directory.segment_at(directory.index_of(last)));
            writer.allocator.give(&self.region, segment)?;
        }
        self.lock_resize(writer, into, last);
        for ((node, slot), entry) in holes.iter().zip(in_holes) {
            node.fill(medium, *slot, entry);
            node.flush_slot(medium, persist, *slot);
        }
        if longer != first {
            self.fence_payload(writer, Fence::Guard);
            medium.publish(slot_at, longer);
            persist.flush(medium, slot_at, WORD);
        }
        self.fence_payload(writer, Fence::Payload);
        self.set_buckets(writer, &directory, last);
        Ok(true)
    }

    /// The free slots of a cleaned bucket.
    fn cleared_slots(&self, bucket: u64, first: u64) -> Result<Vec<(Node, usize)>> {
        let medium = self.region.medium();
        let mut holes = Vec::new();
        for node in Chain::new(medium, bucket, first).all()? {
            let cleared = (0..self.shape.slots).filter(|slot| node.start(medium, *slot) == 0);
            holes.extend(cleared.map(|slot| (node, slot)));
        }
        Ok(holes)
    }
}
