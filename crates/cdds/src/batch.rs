//! Many writes as one step, and writes that look first.
//!
//! A batch is atomic for free while the allocator's ring names all blocks that it takes: it is one version, like any change. A
//! larger one goes in *waves*, each a version of its own with blocks of its own. A wave ends with a durable dead interval that
//! has all waves so far, as if they had been rolled back: should the machine stop, they are. At the end the last wave's version
//! becomes the current one, and all of them count.
//!
//! | fence passed | durable | after a crash |
//! |---|---|---|
//! | payload of a wave | its entries; some of its bits; its root; the interval or not | waves in the interval are rolled back, the next version is dead (M3) |
//! | its root's, if that changed | its root, which shows older versions the same | the same |
//! | the interval's | its entries and bits, the interval | the same |
//! | commit of the last wave's version | all of the batch | it is current: the interval is none (M2) |
//! | guard | the interval is off the list | nothing to do |
//!
//! Invariants:
//! * B1: the interval is off the list, durably, before another version is published: else it would count again.
//! * B2: nobody reads at a version inside a batch; so what one of its waves began and another ended is seen by nobody, and stays
//!   until the collector gives it back.
//! * B3: if a batch is stopped by an error, its waves are rolled back at once, as the next open would.

use std::borrow::Borrow;

use pmem::{Error, Fence, Medium, Result};
use tree::insert::Decision;
use tree::{Pair, Schema, Write, WriteOptions};

use crate::node::Node;
use crate::tree::{Change, Tree, Writer};
use crate::version::{Death, INTERVALS, Interval};

/// Dead intervals that a batch in waves may need.
const INTERVALS_OF_BATCH: usize = 2;

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Tree<M, S> {
    /// Carries out all of the writes in their order as one step: after a crash all are there, or none. Says of each whether
    /// it found its key.
    ///
    /// # Errors
    /// As [`Tree::put`]; `TooLarge` if no group can hold them, or if the tree has too many dead versions to note, which it could
    /// not remove.
    pub fn write_many(&self, writes: &[Write<'_, S::Key, S::Value>]) -> Result<Vec<bool>> {
        self.write_many_as(writes, WriteOptions::default())
    }

    /// As [`Tree::write_many`].
    ///
    /// # Errors
    /// As there.
    pub fn write_many_as(
        &self,
        writes: &[Write<'_, S::Key, S::Value>],
        how: WriteOptions,
    ) -> Result<Vec<bool>> {
        let bytes = bytes_of::<S>(writes);
        let mut writer = self.enter_for(|writer| self.lines_of_batch(writer, writes, bytes))?;
        let found = self.write_locked(&mut writer, writes)?;
        self.acknowledge(writer, how)?;
        Ok(found)
    }

    /// Puts and removes several keys in one step, if all of `expected` have these values (none: are absent). Of several writes of
    /// one key the last counts. False if it was not done because of a condition.
    ///
    /// # Errors
    /// As [`Tree::write_many`].
    pub fn batch(&self, writes: Vec<Pair<S>>, expected: &[Pair<S>], how: WriteOptions) -> Result<bool> {
        let pairs = tree::batch::last_of_each::<S>(writes);
        let writes: Vec<_> = pairs.iter().map(tree::batch::write_of::<S>).collect();
        let bytes = bytes_of::<S>(&writes);
        let mut writer = self.enter_for(|writer| self.lines_of_batch(writer, &writes, bytes))?;
        let view = self.view_now(&writer);
        let mut value = S::ValueBuf::default();
        let mut holds = true;
        for (key, wanted) in expected {
            let found = self.get_in(&view, S::borrow(key), Some(&mut value))?;
            let found = found.then(|| S::borrow_value(&value));
            holds &= found == wanted.as_ref().map(S::borrow_value);
        }
        if holds {
            self.write_locked(&mut writer, &writes)?;
        }
        // What was decided on may be of the running group.
        self.acknowledge(writer, how)?;
        Ok(holds)
    }

    /// Reads and changes one key in one step: no other write comes between.
    ///
    /// # Errors
    /// As [`Tree::put`].
    pub fn update<W: Borrow<S::Value>>(
        &self,
        key: &S::Key,
        mut decide: impl FnMut(Option<&S::Value>) -> Decision<W>,
        how: WriteOptions,
    ) -> Result<()> {
        let mut value = S::ValueBuf::default();
        let mut bytes = 0;
        loop {
            let mut writer = self.enter(1, bytes)?;
            let found = self.get_in(&self.view_now(&writer), key, Some(&mut value))?;
            match decide(found.then(|| S::borrow_value(&value))) {
                Decision::Keep => {}
                Decision::Put(new) => {
                    let needed = S::record_bytes(key, new.borrow());
                    if needed > bytes && self.pending.is_some() {
                        bytes = needed;
                        continue;
                    }
                    self.write_locked(&mut writer, &[Write::Put(key, new.borrow())])?;
                }
                Decision::Delete => _ = self.write_locked(&mut writer, &[Write::Delete(key)])?,
            }
            return self.acknowledge(writer, how);
        }
    }

    /// Removes every key, as one step and at no cost: an empty tree takes the old one's place, which is collected later.
    ///
    /// # Errors
    /// As [`Tree::put`].
    pub fn clear(&self) -> Result<()> {
        let mut writer = self.enter(1, 0)?;
        self.change(&mut writer, |change| self.clear_in(change))?;
        self.acknowledge(writer, WriteOptions::default())
    }

    /// All writes as one step.
    pub(crate) fn write_locked(
        &self,
        writer: &mut Writer,
        writes: &[Write<'_, S::Key, S::Value>],
    ) -> Result<Vec<bool>> {
        for write in writes {
            let (Write::Put(key, _) | Write::Delete(key)) = write;
            self.make_room(writer, key)?;
        }
        self.settle_doubt(writer)?;
        self.free_intervals(writer, INTERVALS_OF_BATCH)?;
        self.change_and_promote(writer, |change| {
            let mut found = Vec::with_capacity(writes.len());
            for write in writes {
                if change.writer.allocator.named() >= self.wave_blocks {
                    self.end_wave(change)?;
                }
                found.push(match write {
                    Write::Put(key, value) => self.put_in(change, key, value)?,
                    Write::Delete(key) => self.delete_in(change, key)?,
                });
            }
            Ok(found)
        })
    }

    /// What was done so far is durable with its blocks, and seen by nobody: readers may look again. The next version is the
    /// change's.
    pub(crate) fn end_wave(&self, change: &mut Change<'_>) -> Result<()> {
        self.give_dropped(change)?;
        let (medium, persist, writer) = (self.region.medium(), self.persist, &mut *change.writer);
        persist.fence(medium, Fence::Payload);
        if persist.faithful {
            medium.fence(Fence::Payload); // the allocator's intents
        }
        writer.allocator.flip(&self.region);
        if writer.state.root != change.state.root {
            self.switch_root(writer, Node(change.state.root));
        }
        let lo = *change.first_wave.get_or_insert(change.view.version);
        let mut dead = change.view.dead;
        dead.push(Interval { lo, hi: change.view.version, death: Death::RolledBack });
        self.note_dead(&dead);
        writer.allocator.finish(&self.region, &mut writer.log);
        self.stripes.unlock(&mut writer.held);
        change.unfenced.clear();
        change.view.version += 1;
        Ok(())
    }

    /// Sees to it that so many dead intervals can be added.
    ///
    /// # Errors
    /// `TooLarge` if pins keep what is dead from being removed.
    pub(crate) fn free_intervals(&self, writer: &mut Writer, count: usize) -> Result<()> {
        let have_room = |writer: &Writer| writer.dead.intervals().len() + count <= INTERVALS;
        if !have_room(writer) {
            self.sweep_locked(writer)?;
        }
        if !have_room(writer) {
            return Err(Error::TooLarge { records: writer.dead.intervals().len() + count, limit: INTERVALS });
        }
        Ok(())
    }
}

fn bytes_of<S: Schema>(writes: &[Write<'_, S::Key, S::Value>]) -> u64 {
    let bytes = |write: &Write<'_, S::Key, S::Value>| match write {
        Write::Put(key, value) => S::record_bytes(key, value),
        Write::Delete(_) => 0,
    };
    writes.iter().map(bytes).sum()
}
