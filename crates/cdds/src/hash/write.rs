//! Puts, deletes, updates, batches.
//!
//! An entry goes into any free slot of its bucket, best into the line of the entry that it replaces: then one line is written back
//! for both. Without a free slot the bucket gets a node more, in front; that is one word, and of no version: what the node
//! holds is void until the change is published.

use std::borrow::Borrow;

use pmem::alloc::Kind;
use pmem::{Error, Fence, LINE, Medium, Result, WORD, record};
use tree::insert::Decision;
use tree::{Schema, Write};

use super::bucket::{Chain, beside, compose};
use super::read::Probe;
use super::table::{Change, Table, Writer, of_schema, stripe_of};
use crate::node::{Entry, Node};
use crate::pins::Readers;
use crate::version::View;

/// A slot and where it is.
type Place = (Node, usize);

/// What a change found of a key.
struct Located {
    bucket: u64,
    /// Where the bucket's slot is, and what it holds.
    slot_at: u64,
    first: u64,
    /// The entry that the change's view sees.
    old: Option<(Place, Entry)>,
    /// A slot that may be filled.
    hole: Option<Place>,
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Table<M, S> {
    /// Puts a value under a key, and says whether it replaced one. Durable when it returns.
    ///
    /// # Errors
    /// `NoSpace` or `Full` if the region cannot grow, `Corrupt`, `Closed`; nothing has changed then.
    pub fn put(&self, key: &S::Key, value: &S::Value) -> Result<bool> {
        let mut writer = self.lock_writer()?;
        self.make_room(&mut writer, key)?;
        self.change(&mut writer, |change| self.put_in(change, key, value))
    }

    /// Removes a key, and says whether it was there. Durable when it returns.
    ///
    /// # Errors
    /// As [`Table::put`]; nothing has changed then.
    pub fn delete(&self, key: &S::Key) -> Result<bool> {
        let mut writer = self.lock_writer()?;
        self.shrink_if_sparse(&mut writer)?;
        self.change(&mut writer, |change| self.delete_in(change, key))
    }

    /// Reads and changes one key in one step: no other write comes between. `decide` must not use the table. Durable when it
    /// returns.
    ///
    /// # Errors
    /// As [`Table::put`]; nothing has changed then.
    pub fn update<V: Borrow<S::Value>>(
        &self,
        key: &S::Key,
        decide: impl FnOnce(Option<&S::Value>) -> Decision<V>,
    ) -> Result<()> {
        let mut writer = self.lock_writer()?;
        self.make_room(&mut writer, key)?;
        let mut value = S::ValueBuf::default();
        let found = self.get_in(&self.view_now(&writer), key, Some(&mut value))?;
        let decision = decide(found.then(|| S::borrow_value(&value)));
        self.change(&mut writer, |change| match decision {
            Decision::Keep => Ok(()),
            Decision::Put(value) => self.put_in(change, key, value.borrow()).map(drop),
            Decision::Delete => self.delete_in(change, key).map(drop),
        })
    }

    /// Carries out all of the writes in their order as one version: after a crash all are there, or none. Returns how many of
    /// them found their key.
    ///
    /// # Errors
    /// As [`Table::put`]; `TooLarge` if together they take or give back more blocks than an operation may.
    pub fn write_many(&self, writes: &[Write<'_, S::Key, S::Value>]) -> Result<u64> {
        let mut writer = self.lock_writer()?;
        for write in writes {
            self.make_room(&mut writer, write.key())?;
        }
        self.change(&mut writer, |change| {
            let mut found = 0;
            for write in writes {
                found += u64::from(match write {
                    Write::Put(key, value) => self.put_in(change, key, value)?,
                    Write::Delete(key) => self.delete_in(change, key)?,
                });
            }
            Ok(found)
        })
    }

    /// Before a change at `key`: one bucket more if they are full, and a free slot if garbage takes them all that has to be
    /// given back first.
    fn make_room(&self, writer: &mut Writer, key: &S::Key) -> Result<()> {
        self.grow_if_full(writer)?;
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

    fn put_in(&self, change: &mut Change<'_>, key: &S::Key, value: &S::Value) -> Result<bool> {
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
        change.keys += u64::from(located.old.is_none());
        Ok(located.old.is_some())
    }

    fn delete_in(&self, change: &mut Change<'_>, key: &S::Key) -> Result<bool> {
        let located = self.locate(change, &self.probe(key))?;
        let Some((old, entry)) = located.old else { return Ok(false) };
        self.stripes.lock(stripe_of(located.bucket), &mut change.writer.held);
        change.stored = true;
        self.end(change, old, &entry)?;
        old.0.flush_slot(self.region.medium(), self.persist, old.1);
        // The count may be damaged.
        change.keys = change.keys.saturating_sub(1);
        Ok(true)
    }

    /// Ends an entry at the change's version. One that began with it was never seen: it goes, with what it names. Not flushed.
    fn end(&self, change: &mut Change<'_>, (node, slot): Place, entry: &Entry) -> Result<()> {
        let medium = self.region.medium();
        if entry.start != change.view.version {
            node.put_end(medium, slot, change.view.version);
            return Ok(());
        }
        node.clear(medium, slot);
        for block in S::blocks_of(&of_schema::<S>(entry)) {
            record::give(&self.region, &mut change.writer.allocator, block)?;
        }
        Ok(())
    }

    /// A new first node of the bucket, with this entry.
    fn prepend(&self, change: &mut Change<'_>, located: &Located, entry: Entry) -> Result<()> {
        let medium = self.region.medium();
        let node = self.take_node(change.writer)?;
        compose(medium, self.persist, &self.shape, node, (located.bucket, located.first), &[entry]);
        // The node is whole, and its block known to recovery, before anything leads to it.
        self.fence_payload(change.writer, Fence::Guard);
        change.linked.push((located.slot_at, located.first));
        medium.publish(located.slot_at, node.0);
        self.persist.flush(medium, located.slot_at, WORD);
        Ok(())
    }

    pub(crate) fn take_node(&self, writer: &mut Writer) -> Result<Node> {
        writer.allocator.take(&self.region, &mut writer.log, Kind::Leaf, self.shape.bytes).map(Node)
    }

    /// Where a bucket's slot is.
    ///
    /// # Errors
    /// `Corrupt` if there is no such segment.
    pub(crate) fn slot_of(&self, directory: &super::directory::Directory, bucket: u64) -> Result<u64> {
        let slot_at = directory.slot_at(self.region.medium(), bucket);
        slot_at.ok_or(Error::Corrupt { what: "directory", at: directory.top })
    }

    /// Finds a key's entry as the change's view sees it, and a slot for another one.
    fn locate(&self, change: &Change<'_>, probe: &Probe<S::Probe<'_>>) -> Result<Located> {
        let (medium, view, slots) = (self.region.medium(), &change.view, self.shape.slots);
        let bucket = change.directory.bucket_of(probe.hash);
        let slot_at = self.slot_of(&change.directory, bucket)?;
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
            let is_here = || change.directory.bucket_of(self.hash_of(&entry)) == bucket;
            view.is_void(entry.start)
                || !is_here()
                || (S::PLAIN && is_unneeded(view, &change.readers, &entry))
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

/// True if nobody sees such an entry, which is not void, nor will: no reader is between its start and its end.
pub(crate) fn is_unneeded(view: &View, readers: &Readers, entry: &Entry) -> bool {
    let ends = entry.end != 0 && !view.is_dead(entry.end);
    view.is_dead(entry.start) || (ends && !readers.any_between(entry.start, entry.end))
}
