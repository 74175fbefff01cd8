//! Garbage collection, bucket by bucket. It also clears the entries that a split left in their old bucket, and the traces of dead versions.
//! A *dead version* is one that a crash or a rollback made invisible. Its traces are the entries that begin with it, and the ends of
//! entries that end with it.
//!
//! An entry is removed, and its record freed, if no reader is or will be between its start and its end. A node without entries is freed,
//! too. A pass visits the buckets by number. A bucket that is added during the pass gets the highest number, so the pass visits it, too. A
//! bucket that is removed is cleaned when its entries move into its partner (the bucket that receives them). So at the end of a pass no
//! bucket has a trace of the versions that were dead at its beginning, and those versions are removed from the list of dead intervals.
//!
//! | fence passed ([`pmem::Fence`]) | durable | after a crash |
//! |---|---|---|
//! | none | some of the intents; some cleared slots that free no block; some reset ends | slots that free a block are unchanged |
//! | payload | intents; some of the cleared slots, links and allocation bits | a block is free if it has no reference |
//! | commit | slots, links and allocation bits | nothing to do |
//!
//! A slot or link with the last reference to a block is cleared only after the payload fence. Then the intent of the block is durable, so
//! recovery checks the block and frees it if nothing references it.

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

/// Intents that one entry may need, and the maximum number of changes that wait for a fence.
const RING_SPARE: usize = 4;
const WAITING_MAX: usize = 256;

/// A store that must follow the fence for its intents.
enum Waiting {
    Clear(Node, usize),
    /// This word gets a link that skips a node.
    Link(u64, u64),
}

/// The state of one step of the collector.
struct Sweep<'a> {
    writer: &'a mut Writer,
    directory: Directory,
    view: View,
    readers: Readers,
    /// True if garbage is removed; false if only traces of dead versions are.
    collects: bool,
    /// True if nodes without entries are freed.
    unlinks: bool,
    waiting: Vec<Waiting>,
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Table<M, S> {
    /// Does one step of the collector, which visits up to `buckets` buckets. In a sparse table, the step also removes up to `buckets`
    /// buckets.
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

    /// Removes one bucket if the buckets are sparse, as an operation of its own.
    pub(crate) fn shrink_alone(&self) -> Result<bool> {
        let mut writer =
            self.enter_for(|writer| Ok(self.lines_of_resize(writer)? + self.lines_besides(1, 0)))?;
        let is_less = self.shrink_if_sparse(&mut writer)?;
        self.acknowledge(writer, WriteOptions { sync: false })?;
        Ok(is_less)
    }

    /// Removes the traces of dead versions from the whole table, and no garbage [thesis algorithm 6].
    pub(crate) fn sweep_locked(&self, writer: &mut Writer) -> Result<()> {
        writer.pass = None;
        self.pass_some(writer, u64::MAX, false).map(drop)
    }

    /// Does one step of a pass. True at the end of the pass.
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

    /// Does the waiting stores, and ends the allocator's operation.
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

    /// Ends the operation if the intent ring or the list of waiting stores is nearly full.
    fn make_way(&self, sweep: &mut Sweep<'_>) {
        if sweep.writer.allocator.named() + RING_SPARE > INTENTS || sweep.waiting.len() > WAITING_MAX {
            self.leave(sweep);
        }
    }

    /// Removes the entries of one bucket that no reader needs.
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
            // Not a trace of a dead version, so a sweep keeps it.
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
