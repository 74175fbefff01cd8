//! Puts, deletes, the removal of all keys by an end version in each entry, and the growth before a batch.
//!
//! An entry goes into any free slot of its bucket. A slot in the line of the replaced entry is preferred, because then one line is flushed
//! for both entries. If the bucket has no free slot, it gets a new first node. The link to it is one word and needs no version: until the
//! change is published, no view sees the entries of the node.

use std::collections::HashSet;

use index::{Life, Schema, Write};
use pmem::alloc::Kind;
use pmem::{Error, Fence, LINE, Medium, Result, WORD, record};

use super::bucket::{Chain, beside, compose};
use super::directory::Directory;
use super::read::Probe;
use super::table::{Change, Hashed, Table, Writer, stripe_of};
use crate::node::{Entry, Node};
use crate::pins::Readers;
use crate::structure::Structure;
use crate::version::View;

/// A slot: node and number.
type Place = (Node, usize);

/// The result of the search for a key in a change.
struct Located {
    bucket: u64,
    /// Offset of the bucket's slot, and the slot's content.
    slot_at: u64,
    first: u64,
    /// The entry that the change's view sees.
    old: Option<(Place, Entry)>,
    /// A slot that the new entry may use.
    hole: Option<Place>,
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Table<M, S> {
    /// Before a batch: adds the buckets that the batch's new keys would need, each as an operation of its own, because no bucket is added
    /// during the batch. If there is no space, the chains get longer.
    pub(crate) fn grow_for(&self, writes: &[Write<'_, S::Key, S::Value>]) -> Result<()> {
        let slots = self.shape.slots as u64;
        let is_full = |directory: &Directory, keys: u64| keys * 3 >= directory.buckets * slots * 2;
        let enter = || self.enter_for(|writer| Ok(self.lines_of_resize(writer)? + self.lines_besides(1, 0)));
        let mut more = writes.iter().filter(|write| matches!(write, Write::Put(..))).count() as u64;
        {
            let writer = self.lock_writer()?;
            let directory = self.directory(&writer)?;
            if more < 2 || !is_full(&directory, writer.state.keys + more) {
                return Ok(());
            }
            // Counts the keys that are new.
            let view = self.view_now(&writer);
            let mut absent = HashSet::new();
            for write in writes.iter().filter(|write| matches!(write, Write::Put(..))) {
                if self.find_in(&view, write.key())?.is_none() {
                    absent.insert(self.hash(write.key()));
                }
            }
            more = absent.len() as u64;
        }
        loop {
            let mut writer = enter()?;
            let directory = self.directory(&writer)?;
            if !is_full(&directory, writer.state.keys + more) || !self.grow_or_not(&mut writer)? {
                return Ok(());
            }
        }
    }

    /// Before a change of `key`: makes a free slot if all slots are taken and garbage must first be freed.
    pub(crate) fn make_hole(&self, writer: &mut Writer, key: &S::Key) -> Result<()> {
        if S::PLAIN {
            return Ok(());
        }
        let (medium, view, directory) =
            (self.region.medium(), self.view_now(writer), self.directory(writer)?);
        let bucket = directory.bucket_of(self.hash(key));
        let mut chain = Chain::new(medium, bucket, medium.word(self.slot_of(&directory, bucket)?));
        let mut nodes = 0;
        while let Some(node) = chain.step()? {
            if (0..self.shape.slots).any(|slot| view.is_void(node.start(medium, slot))) {
                return Ok(());
            }
            nodes += 1;
        }
        if nodes > 0 { self.clean_alone(writer, &[bucket], false) } else { Ok(()) }
    }

    pub(crate) fn put_in(&self, change: &mut Change<'_>, key: &S::Key, value: &S::Value) -> Result<bool> {
        let (medium, probe) = (self.region.medium(), self.probe(key));
        let located = self.locate(change, &probe)?;
        let writer = &mut *change.writer;
        let made = S::make(&self.region, &mut writer.allocator, &mut writer.log, key, value)?;
        let entry = Entry { key: probe.word, payload: made.payload, start: change.view.version, end: 0 };
        self.stripes.lock(stripe_of(located.bucket), &mut change.writer.held);
        change.stored = true;
        let line_of = |(node, slot): Place| node.slot_at(slot) / LINE;
        if let Some((old, entry)) = &located.old {
            self.end(change, *old, entry)?;
            if located.hole.is_none_or(|hole| line_of(hole) != line_of(*old)) {
                old.0.flush_slot(medium, self.persist, old.1);
            }
        }
        match located.hole {
            Some((node, slot)) => {
                node.fill(medium, slot, &entry);
                node.flush_slot(medium, self.persist, slot);
            }
            None => self.prepend(change, &located, entry)?,
        }
        change.state.keys += u64::from(located.old.is_none());
        Ok(located.old.is_some())
    }

    pub(crate) fn delete_in(&self, change: &mut Change<'_>, key: &S::Key) -> Result<bool> {
        let located = self.locate(change, &self.probe(key))?;
        let Some((old, entry)) = located.old else { return Ok(false) };
        self.stripes.lock(stripe_of(located.bucket), &mut change.writer.held);
        change.stored = true;
        self.end(change, old, &entry)?;
        old.0.flush_slot(self.region.medium(), self.persist, old.1);
        // In a damaged table the count may be too small.
        change.state.keys = change.state.keys.saturating_sub(1);
        Ok(true)
    }

    /// Ends every entry that the change's view sees.
    pub(crate) fn clear_in(&self, change: &mut Change<'_>) -> Result<()> {
        let (medium, directory) = (self.region.medium(), change.own.directory);
        for bucket in 0..directory.buckets {
            for node in self.chain(&directory, bucket)? {
                for slot in 0..self.shape.slots {
                    let entry = node.entry(medium, slot);
                    let is_here = || directory.bucket_of(self.hash_of(&entry)) == bucket;
                    if change.view.sees(entry.start, entry.end) && is_here() {
                        self.stripes.lock(stripe_of(bucket), &mut change.writer.held);
                        self.end(change, (node, slot), &entry)?;
                        node.flush_slot(medium, self.persist, slot);
                    }
                }
            }
        }
        (change.stored, change.state.keys) = (true, 0);
        Ok(())
    }

    /// Ends an entry at the change's version. An entry that began at this version was never seen, so it is cleared and its record is freed.
    /// Not flushed.
    fn end(&self, change: &mut Change<'_>, (node, slot): Place, entry: &Entry) -> Result<()> {
        let medium = self.region.medium();
        if entry.start != change.view.version {
            node.put_end(medium, slot, change.view.version);
            return Ok(());
        }
        node.clear(medium, slot);
        for block in S::blocks_of(&Hashed::<S>::of_schema(entry)) {
            record::give(&self.region, &mut change.writer.allocator, block)?;
        }
        Ok(())
    }

    /// Adds a new first node with this entry to the bucket.
    fn prepend(&self, change: &mut Change<'_>, located: &Located, entry: Entry) -> Result<()> {
        let medium = self.region.medium();
        let node = self.take_node(change.writer)?;
        compose(medium, self.persist, &self.shape, node, (located.bucket, located.first), &[entry]);
        // The node must be durable and recovery must know its block before a word references it.
        self.fence_payload(change.writer, Fence::Guard);
        change.own.linked.push((located.slot_at, located.first));
        medium.publish(located.slot_at, node.0);
        self.persist.flush(medium, located.slot_at, WORD);
        Ok(())
    }

    pub(crate) fn take_node(&self, writer: &mut Writer) -> Result<Node> {
        writer.allocator.take(&self.region, &mut writer.log, Kind::Leaf, self.shape.bytes).map(Node)
    }

    /// Offset of a bucket's slot.
    ///
    /// # Errors
    /// `Corrupt` if there is no such segment.
    pub(crate) fn slot_of(&self, directory: &Directory, bucket: u64) -> Result<u64> {
        let slot_at = directory.slot_at(self.region.medium(), bucket);
        slot_at.ok_or(Error::Corrupt { what: "directory", at: directory.top })
    }

    /// Finds the entry of a key that the change's view sees, and a slot for a new entry.
    fn locate(&self, change: &Change<'_>, probe: &Probe<S::Probe<'_>>) -> Result<Located> {
        let (medium, view, slots) = (self.region.medium(), &change.view, self.shape.slots);
        let bucket = change.own.directory.bucket_of(probe.hash);
        let slot_at = self.slot_of(&change.own.directory, bucket)?;
        let first = medium.word(slot_at);
        let (mut old, mut hole) = (None, None);
        let mut chain = Chain::new(medium, bucket, first);
        while let Some(node) = chain.step()? {
            for slot in 0..slots {
                if view.is_void(node.start(medium, slot)) {
                    hole = hole.or(Some((node, slot)));
                } else if old.is_none() && self.shows(view, node, slot, probe) {
                    old = Some(((node, slot), node.entry(medium, slot)));
                }
            }
        }
        let is_free = |(node, slot): &Place| {
            let entry = node.entry(medium, *slot);
            let is_here = || change.own.directory.bucket_of(self.hash_of(&entry)) == bucket;
            view.is_void(entry.start)
                || !is_here()
                || (S::PLAIN && is_unneeded(view, &change.own.readers, &entry))
        };
        if let Some(((node, slot), entry)) = old {
            let neighbour = beside(slot).filter(|slot| *slot < slots).map(|slot| (node, slot));
            let own = Some((node, slot)).filter(|_| entry.start == view.version);
            hole = own.or(neighbour.filter(is_free)).or(hole);
        }
        let mut chain = Chain::new(medium, bucket, if hole.is_none() { first } else { 0 });
        while let (None, Some(node)) = (hole, chain.step()?) {
            hole = (0..slots).map(|slot| (node, slot)).find(is_free);
        }
        Ok(Located { bucket, slot_at, first, old, hole })
    }
}

/// True if no reader sees this entry, now or later: no reader is between its start and its end. The entry must not be void.
pub(crate) fn is_unneeded(view: &View, readers: &Readers, entry: &Entry) -> bool {
    let ends = entry.end != 0 && !view.is_dead(entry.end);
    view.is_dead(entry.start) || (ends && !readers.any_between(entry.start, entry.end))
}
