//! Garbage collection, and the removal of what dead versions and splits left, bucket by bucket.
//!
//! An entry that no reader is between the versions of, now or later, is removed, and what it names is given back; so is a node
//! without entries. A pass goes through the buckets by their numbers. A bucket that comes while it runs is the last one, and one
//! that goes was cleaned on its way into its partner, so at its end no bucket has a trace of the versions that were dead when it
//! began, and those are taken off the list.
//!
//! | fence passed | durable | after a crash |
//! |---|---|---|
//! | none | some of: intents | the slots are as they were |
//! | payload | intents; some of: cleared slots, links, bits | a block is free if nobody leads to it |
//! | commit | slots, links and bits | nothing to do |
//!
//! So a slot that is the last to name a block is cleared behind a fence: recovery has to know the block then.

use index::{Life, Schema, WriteOptions};
use pmem::region::INTENTS;
use pmem::{Fence, Medium, Result, WORD, record};

use super::bucket::{Chain, next_at};
use super::directory::Directory;
use super::pass::Pass;
use super::table::{Hashed, Table, Writer, stripe_of};
use super::write::is_unneeded;
use crate::node::Node;
use crate::pins::Readers;
use crate::structure::Structure;
use crate::version::View;

/// Space in the intent ring that one entry may need, and most changes that wait for a fence.
const RING_SPARE: usize = 4;
const WAITING_MAX: usize = 256;

/// What is done behind the fence that makes its intents durable.
enum Waiting {
    Clear(Node, usize),
    /// The word here leads past a node.
    Link(u64, u64),
}

/// One step of the collector.
struct Sweep<'a> {
    writer: &'a mut Writer,
    directory: Directory,
    view: View,
    readers: Readers,
    /// Whether garbage is removed, or only what dead versions left.
    collects: bool,
    /// Whether nodes without entries go.
    unlinks: bool,
    waiting: Vec<Waiting>,
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Table<M, S> {
    /// A step of the collector; of a sparse table, as many buckets go.
    pub(crate) fn collect_places(&self, buckets: usize) -> Result<bool> {
        let mut writer = self.enter_for(|writer| {
            let directory = self.directory(writer)?;
            let from = writer.pass.as_ref().map_or(0, |pass| pass.next);
            let some = (from..directory.buckets).take(buckets);
            Ok(self.lines_besides(buckets as u64, 0) + self.lines_of_buckets(&directory, some)?)
        })?;
        let done = self.pass_some(&mut writer, buckets as u64, true)?;
        self.acknowledge(writer, WriteOptions { sync: false })?;
        for _ in 0..buckets {
            if !self.shrink_alone()? {
                break;
            }
        }
        Ok(done)
    }

    /// One bucket less, if they are sparse, as a step of its own.
    pub(crate) fn shrink_alone(&self) -> Result<bool> {
        let mut writer =
            self.enter_for(|writer| Ok(self.lines_of_resize(writer)? + self.lines_besides(1, 0)))?;
        let is_less = self.shrink_if_sparse(&mut writer)?;
        self.acknowledge(writer, WriteOptions { sync: false })?;
        Ok(is_less)
    }

    /// Removes the traces of dead versions from all of the table, and nothing else [thesis algorithm 6].
    pub(crate) fn sweep_locked(&self, writer: &mut Writer) -> Result<()> {
        writer.pass = None;
        self.pass_some(writer, u64::MAX, false).map(drop)
    }

    /// Runs one step of a pass; true at its end.
    fn pass_some(&self, writer: &mut Writer, buckets: u64, collects: bool) -> Result<bool> {
        let mut pass = writer.pass.take().unwrap_or_else(|| Pass {
            next: 0,
            removes: writer.dead.intervals().to_vec(),
            doubt: writer.in_doubt,
        });
        let end = self.directory(writer)?.buckets;
        let until = pass.next.saturating_add(buckets).min(end);
        let range = pass.next..until;
        self.clean_range(writer, range, collects, collects)?;
        pass.next = until;
        if until < end {
            writer.pass = Some(pass);
            return Ok(false);
        }
        self.end_pass(writer, &pass.removes, pass.doubt);
        Ok(true)
    }

    /// Cleans some buckets as an operation of its own.
    pub(crate) fn clean_alone(&self, writer: &mut Writer, buckets: &[u64], unlinks: bool) -> Result<()> {
        self.clean_range(writer, buckets.iter().copied(), true, unlinks)
    }

    fn clean_range(
        &self,
        writer: &mut Writer,
        buckets: impl IntoIterator<Item = u64>,
        collects: bool,
        unlinks: bool,
    ) -> Result<()> {
        let directory = self.directory(writer)?;
        let (view, readers) = (self.view_now(writer), self.pins.readers(&self.visible));
        self.operation(writer, |writer| {
            let mut sweep =
                Sweep { writer, directory, view, readers, collects, unlinks, waiting: Vec::new() };
            for bucket in buckets {
                self.clean(&mut sweep, bucket)?;
            }
            self.leave(&mut sweep);
            Ok(())
        })
    }

    /// Does what waited, and ends the allocator's operation.
    fn leave(&self, sweep: &mut Sweep<'_>) {
        let medium = self.region.medium();
        let gives = sweep.writer.allocator.has_pending();
        if gives {
            medium.fence(Fence::Payload);
        }
        for waiting in sweep.waiting.drain(..) {
            match waiting {
                Waiting::Clear(node, slot) => {
                    node.clear(medium, slot);
                    node.flush_slot(medium, self.persist, slot);
                }
                Waiting::Link(at, next) => {
                    medium.publish(at, next);
                    self.persist.flush(medium, at, WORD);
                }
            }
        }
        if gives {
            sweep.writer.allocator.flip(&self.region);
            medium.fence(Fence::Commit);
            sweep.writer.allocator.finish(&self.region, &mut sweep.writer.log);
        }
        self.stripes.unlock(&mut sweep.writer.held);
    }

    /// Leaves, if the ring or the list of what waits is nearly full.
    fn make_way(&self, sweep: &mut Sweep<'_>) {
        if sweep.writer.allocator.named() + RING_SPARE > INTENTS || sweep.waiting.len() > WAITING_MAX {
            self.leave(sweep);
        }
    }

    /// Removes from one bucket what nobody needs.
    fn clean(&self, sweep: &mut Sweep<'_>, bucket: u64) -> Result<()> {
        let medium = self.region.medium();
        let mut link_at = self.slot_of(&sweep.directory, bucket)?;
        for node in Chain::new(medium, bucket, medium.word(link_at)).all()? {
            let mut entries = 0;
            for slot in 0..self.shape.slots {
                if node.start(medium, slot) != 0 {
                    entries += u64::from(!self.clean_slot(sweep, bucket, node, slot)?);
                }
            }
            if entries > 0 || !sweep.unlinks {
                link_at = next_at(node);
                continue;
            }
            self.make_way(sweep);
            self.stripes.lock(stripe_of(bucket), &mut sweep.writer.held);
            sweep.writer.allocator.give(&self.region, node.0)?;
            sweep.waiting.push(Waiting::Link(link_at, medium.word(next_at(node))));
        }
        Ok(())
    }

    /// True if the slot is clear, or will be.
    fn clean_slot(&self, sweep: &mut Sweep<'_>, bucket: u64, node: Node, slot: usize) -> Result<bool> {
        let (medium, view, entry) =
            (self.region.medium(), &sweep.view, node.entry(self.region.medium(), slot));
        let is_here = || sweep.directory.bucket_of(self.hash_of(&entry)) == bucket;
        let dead = view.dead.intervals();
        let is_removed =
            |version: u64| version > view.version || dead.iter().any(|interval| interval.holds(version));
        let removes = sweep.collects || is_removed(entry.start);
        let (clears, gives) = if view.is_void(entry.start) {
            (true, false)
        } else if !is_here() {
            // No trace of a dead version: a sweep leaves it.
            (sweep.collects, false)
        } else if removes && is_unneeded(view, &sweep.readers, &entry) {
            (true, !S::PLAIN)
        } else {
            (false, false)
        };
        let resets = !clears && entry.end != 0 && is_removed(entry.end) && is_here();
        if !clears && !resets {
            return Ok(false);
        }
        if gives {
            self.make_way(sweep);
            for block in S::blocks_of(&Hashed::<S>::of_schema(&entry)) {
                record::give(&self.region, &mut sweep.writer.allocator, block)?;
            }
            sweep.waiting.push(Waiting::Clear(node, slot));
        }
        self.stripes.lock(stripe_of(bucket), &mut sweep.writer.held);
        if resets {
            node.set_end(medium, self.persist, slot, 0);
        } else if !gives {
            node.clear(medium, slot);
            node.flush_slot(medium, self.persist, slot);
        }
        Ok(clears)
    }
}
