//! Many writes as one version, and writes that look first.
//!
//! A batch is atomic for free while the allocator's ring names all blocks that it takes: it is a change like any other. A larger
//! one goes in *waves*. Each wave makes its entries durable and then the bits of its blocks, and the ring begins anew; the version
//! that all of them belong to is published at the end. Before the first wave a dead interval says that this version is to be
//! taken for one that was rolled back, should it never become current: its entries name their blocks then, so the collector
//! finds them.
//!
//! | fence passed | durable | after a crash |
//! |---|---|---|
//! | guard | the interval | the version is behind the current one: it is rolled back (M3) |
//! | payload of a wave | its entries; some of its bits | the same; the ring's blocks are asked for |
//! | commit of a wave | its entries and bits | the same |
//! | commit of the version | all of the batch | it is current: the interval is none (M2) |
//! | guard | the interval is off the list | nothing to do |
//!
//! Invariants:
//! * B1: the interval is off the list, durably, before another version is published: else it would count again.
//! * B2: what a wave began and a later one ends stays in its slot, ended at its own version, and so seen by nobody: a block whose bit is
//!   set is named until the collector gives it back.
//! * B3: nothing but damage can stop a batch between two waves: room for all of it is there beforehand. If it is stopped, the tree
//!   takes no more writes, and the next open takes it back. Over a medium of groups the group is taken back at once.

use std::borrow::Borrow;

use pmem::alloc::Kind;
use pmem::{Fence, Medium, Result, record};
use tree::insert::Decision;
use tree::{Pair, Schema, Write, WriteOptions};

use crate::meta::in_flight;
use crate::node::{Header, Node};
use crate::tree::{Change, Tree, Writer};
use crate::version::{Dead, Death, INTERVALS, Interval};

/// Writes that surely need no waves, however their nodes split: so many for each block of a wave.
const WRITES_OF_WAVE: usize = 8;
/// Blocks that an operation takes at most, before it is known that it takes none.
const NODES_MORE: u64 = 4;

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Tree<M, S> {
    /// Carries out all of the writes in their order as one version: after a crash all are there, or none. Says of each whether
    /// it found its key.
    ///
    /// # Errors
    /// As [`Tree::put`]; `TooLarge` if no group can hold them; `Unfinished` if damage was met half-way: the tree takes no more
    /// writes, and the next open takes back what was done.
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
        let mut writer = self.enter(writes.len() as u64, bytes_of::<S>(writes))?;
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
        let mut writer = self.enter(writes.len() as u64, bytes_of::<S>(&writes))?;
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

    /// All writes as one version.
    pub(crate) fn write_locked(
        &self,
        writer: &mut Writer,
        writes: &[Write<'_, S::Key, S::Value>],
    ) -> Result<Vec<bool>> {
        for write in writes {
            let (Write::Put(key, _) | Write::Delete(key)) = write;
            self.make_room(writer, key)?;
        }
        let mut found = Vec::with_capacity(writes.len());
        if writes.len() * WRITES_OF_WAVE > self.wave_blocks {
            self.write_in_waves(writer, writes, &mut found)?;
        } else {
            self.change_and_promote(writer, |change| {
                for write in writes {
                    found.push(self.write_in(change, write)?);
                }
                Ok(())
            })?;
        }
        Ok(found)
    }

    fn write_in(&self, change: &mut Change<'_>, write: &Write<'_, S::Key, S::Value>) -> Result<bool> {
        match write {
            Write::Put(key, value) => self.put_in(change, key, value),
            Write::Delete(key) => self.delete_in(change, key),
        }
    }

    fn write_in_waves(
        &self,
        writer: &mut Writer,
        writes: &[Write<'_, S::Key, S::Value>],
        found: &mut Vec<bool>,
    ) -> Result<()> {
        self.settle_doubt(writer)?;
        self.prepare(writer, writes)?;
        let before = writer.dead;
        // A group is whole or absent: there is nothing to be told of it.
        if self.pending.is_none() {
            self.free_interval(writer)?;
            let version = in_flight(writer.state.current, &writer.dead);
            let mut dead = writer.dead;
            dead.push(Interval { lo: version, hi: version, death: Death::RolledBack });
            self.write_dead(writer, dead);
        }
        let outcome = self.change_and_promote(writer, |change| {
            change.in_waves = true;
            for write in writes {
                found.push(self.write_in(change, write)?);
                if change.writer.allocator.named() >= self.wave_blocks {
                    self.end_wave(change);
                }
            }
            Ok(())
        });
        // (B1) Of one that was stopped it stays, and counts at the next open.
        if self.pending.is_none() && outcome.is_ok() {
            let mut dead = Dead::default();
            let all = writer.dead.intervals().iter();
            all.take(before.intervals().len()).for_each(|interval| dead.push(*interval));
            self.write_dead(writer, dead);
        }
        outcome
    }

    /// What was done so far is durable with its blocks, and seen by nobody: readers may look again.
    fn end_wave(&self, change: &mut Change<'_>) {
        let (medium, persist, writer) = (self.region.medium(), self.persist, &mut *change.writer);
        persist.fence(medium, Fence::Payload);
        if persist.faithful {
            medium.fence(Fence::Payload); // the allocator's intents
        }
        writer.allocator.flip(&self.region);
        medium.fence(Fence::Commit);
        writer.allocator.finish(&self.region, &mut writer.log);
        self.stripes.unlock(&mut writer.held);
        change.unfenced.clear();
    }

    /// Sees to it that a dead interval can be added.
    pub(crate) fn free_interval(&self, writer: &mut Writer) -> Result<()> {
        if writer.dead.intervals().len() == INTERVALS {
            self.sweep_locked(writer)?;
        }
        if writer.dead.intervals().len() == INTERVALS {
            return Err(pmem::Error::TooLarge { records: INTERVALS + 1, limit: INTERVALS });
        }
        Ok(())
    }

    /// Sees to it that these writes find room without the region having to grow, whatever they split.
    fn prepare(&self, writer: &mut Writer, writes: &[Write<'_, S::Key, S::Value>]) -> Result<()> {
        let chunk_bytes = self.region.geometry().chunk_bytes;
        let level = Header::read(self.region.medium(), Node(writer.state.root)).map_or(0, |root| root.level);
        let count = writes.len() as u64;
        // A new node is at least half empty of live entries, or came of that many writes: at most two a write in each level, and
        // those of the levels above come of these.
        let leaves = 2 * count + NODES_MORE;
        let inner = 2 * count + NODES_MORE * (level as u64 + 2);
        let key_bytes = |write: &Write<'_, S::Key, S::Value>| {
            let (Write::Put(key, _) | Write::Delete(key)) = write;
            S::key_bytes(key).as_ref().len() as u64
        };
        let longest = writes.iter().map(key_bytes).max().unwrap_or(0);
        let separator = record::needs(Kind::Separator, longest, 0, chunk_bytes)[0].1;
        let separators = if S::PLAIN { 0 } else { leaves + inner };
        let nodes = [
            (Kind::Leaf, self.shape.bytes, leaves),
            (Kind::Inner, self.shape.bytes, inner),
            (Kind::Separator, separator, separators),
        ];
        let records = writes.iter().filter(|_| !S::PLAIN).filter_map(|write| match write {
            Write::Put(_, value) => {
                let value_bytes = S::value_bytes(value).as_ref().len() as u64;
                Some(record::needs(Kind::Record, key_bytes(write), value_bytes, chunk_bytes))
            }
            Write::Delete(_) => None,
        });
        let needs = nodes.into_iter().chain(records.flatten()).filter(|(.., blocks)| *blocks > 0);
        writer.allocator.prepare(&self.region, &mut writer.log, needs)
    }
}

fn bytes_of<S: Schema>(writes: &[Write<'_, S::Key, S::Value>]) -> u64 {
    let bytes = |write: &Write<'_, S::Key, S::Value>| match write {
        Write::Put(key, value) => S::record_bytes(key, value),
        Write::Delete(_) => 0,
    };
    writes.iter().map(bytes).sum()
}
