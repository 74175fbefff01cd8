//! Many writes as one step, and writes that look first.
//!
//! A batch is atomic for free while the allocator's ring names all blocks that it takes: it is one version, like any change. A
//! larger one goes in *write groups*, each a version of its own with blocks of its own. A write group ends with a durable dead interval that
//! has all write groups so far, as if they had been rolled back: should the machine stop, they are. At the end the last write group's version
//! becomes the current one, and all of them count.
//!
//! | fence passed | durable | after a crash |
//! |---|---|---|
//! | payload of a write group | its entries; some of its bits; its root; the interval or not | write groups in the interval are rolled back, the next version is dead (M3) |
//! | its root's, if that changed | its root, which shows older versions the same | the same |
//! | the interval's | its entries and bits, the interval | the same |
//! | commit of the last write group's version | all of the batch | it is current: the interval is none (M2) |
//! | guard | the interval is off the list | nothing to do |
//!
//! Invariants:
//! * B1: the interval is off the list, durably, before another version is published: else it would count again.
//! * B2: nobody reads at a version inside a batch; so what one of its write groups began and another ended is seen by nobody, and stays
//!   until the collector gives it back.
//! * B3: if a batch is stopped by an error, its write groups are rolled back at once, as the next open would.

use index::Decision;
use index::{Life, Pair, Schema, Write, WriteOptions};
use pmem::{Fence, Medium, Result};

use crate::meta::State;
use crate::structure::Versioned;
use crate::structure::{ChangeOf, KeyOf, Structure, ValueBufOf, ValueOf, WriteOf, WriterOf};
use crate::version::{Death, INTERVALS, Interval};
use crate::versioned::too_many_intervals;

/// Dead intervals that a batch in write groups may need.
const INTERVALS_OF_BATCH: usize = 2;

impl<M: Medium, X: Structure> Versioned<M, X> {
    /// Carries out all of the writes in their order as one step: after a crash all are there, or none. Says of each whether
    /// it found its key.
    ///
    /// # Errors
    /// As [`Versioned::put`]; `TooLarge` if no group can hold them, or if there are too many dead versions to note, which could
    /// not be removed.
    pub fn write_many(&self, writes: &[WriteOf<'_, X>]) -> Result<Vec<bool>> {
        self.write_many_as(writes, WriteOptions::default())
    }

    /// As [`Versioned::write_many`].
    ///
    /// # Errors
    /// As there.
    pub fn write_many_as(&self, writes: &[WriteOf<'_, X>], how: WriteOptions) -> Result<Vec<bool>> {
        X::prepare(self, writes)?;
        let mut writer = self.enter_to_write(writes)?;
        let found = self.write_locked(&mut writer, writes)?;
        self.acknowledge(writer, how)?;
        Ok(found)
    }

    /// Puts and removes several keys in one step, if all of `expected` have these values (none: are absent). Of several writes of
    /// one key the last counts. False if it was not done because of a condition.
    ///
    /// # Errors
    /// As [`Versioned::write_many`].
    pub fn batch(
        &self,
        writes: Vec<Pair<X::Schema>>,
        expected: &[Pair<X::Schema>],
        how: WriteOptions,
    ) -> Result<bool> {
        let pairs = index::batch::last_of_each::<X::Schema>(writes);
        let writes: Vec<_> = pairs.iter().map(index::batch::write_of::<X::Schema>).collect();
        X::prepare(self, &writes)?;
        let mut writer = self.enter_to_write(&writes)?;
        let view = self.view_now(&writer);
        let mut value = ValueBufOf::<X>::default();
        let mut holds = true;
        for (key, wanted) in expected {
            let found = self.get_in(&view, X::Schema::borrow(key), Some(&mut value))?;
            let found = found.then(|| X::Schema::borrow_value(&value));
            holds &= found == wanted.as_ref().map(X::Schema::borrow_value);
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
    /// As [`Versioned::put`].
    pub fn update<W: std::borrow::Borrow<ValueOf<X>>>(
        &self,
        key: &KeyOf<X>,
        mut decide: impl FnMut(Option<&ValueOf<X>>) -> Decision<W>,
        how: WriteOptions,
    ) -> Result<()> {
        let mut value = ValueBufOf::<X>::default();
        let mut bytes = 0;
        loop {
            let deletes = [Write::Delete(key)];
            let mut writer = self.enter_for(|writer| {
                Ok(X::lines_of(self, writer, &deletes)? + self.lines_besides(1, bytes))
            })?;
            let found = self.get_in(&self.view_now(&writer), key, Some(&mut value))?;
            match writer.outside(|| decide(found.then(|| X::Schema::borrow_value(&value)))) {
                Decision::Keep => {}
                Decision::Put(new) => {
                    let value = std::borrow::Borrow::borrow(&new);
                    let needed = X::Schema::record_bytes(key, value);
                    if needed > bytes && self.pending.is_some() {
                        bytes = needed;
                        continue;
                    }
                    self.write_locked(&mut writer, &[Write::Put(key, value)])?;
                }
                Decision::Delete => _ = self.write_locked(&mut writer, &[Write::Delete(key)])?,
            }
            return self.acknowledge(writer, how);
        }
    }

    /// All writes as one step.
    pub(crate) fn write_locked(
        &self,
        writer: &mut WriterOf<X>,
        writes: &[WriteOf<'_, X>],
    ) -> Result<Vec<bool>> {
        X::make_space(self, writer, writes)?;
        self.settle_doubt(writer)?;
        self.free_intervals(writer, INTERVALS_OF_BATCH)?;
        X::change(self, writer, |change| {
            let mut found = Vec::with_capacity(writes.len());
            for write in writes {
                if change.writer.allocator.named() >= self.group_blocks {
                    self.end_group(change)?;
                }
                found.push(match write {
                    Write::Put(key, value) => X::put_in(self, change, key, value)?,
                    Write::Delete(key) => X::delete_in(self, change, key)?,
                });
            }
            Ok(found)
        })
    }

    /// What was done so far is durable with its blocks, and seen by nobody: readers may look again. The next version is the
    /// change's.
    pub(crate) fn end_group(&self, change: &mut ChangeOf<'_, X>) -> Result<()> {
        X::finish(self, change)?;
        let writer = &mut *change.writer;
        self.fence_payload(writer, Fence::Payload);
        writer.allocator.flip(&self.region);
        if writer.state.root != change.state.root {
            self.switch(writer, State { root: change.state.root, ..writer.state });
        }
        let lo = *change.first_group.get_or_insert(change.view.version);
        let mut dead = change.view.dead.clone();
        dead.push(Interval { lo, hi: change.view.version, death: Death::RolledBack });
        self.note_dead(&dead);
        writer.allocator.finish(&self.region, &mut writer.log);
        self.stripes.unlock(&mut writer.held);
        X::next_group(&mut change.own);
        change.view.version += 1;
        Ok(())
    }

    /// Sees to it that so many dead intervals can be added.
    ///
    /// # Errors
    /// `TooLarge` if pins keep what is dead from being removed.
    pub(crate) fn free_intervals(&self, writer: &mut WriterOf<X>, count: usize) -> Result<()> {
        let have_space = |writer: &WriterOf<X>| writer.dead.intervals().len() + count <= INTERVALS;
        if !have_space(writer) {
            X::sweep(self, writer)?;
        }
        if !have_space(writer) {
            return Err(too_many_intervals(writer.dead.intervals().len() + count));
        }
        Ok(())
    }
}
