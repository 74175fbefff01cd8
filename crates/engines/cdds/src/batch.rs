//! Batches: many writes as one atomic step, and writes with a condition.
//!
//! If the allocator's intent ring can hold all blocks of a batch, the batch is one version, like any change, and needs nothing more for its
//! atomicity. A larger batch is done in *write groups*. Each write group is a version with blocks of its own. At the end of each write
//! group, a durable dead interval (an entry in the list of dead versions, [`crate::meta`]) covers all write groups so far, as if they had
//! been rolled back. So a crash rolls them back. At the end of the batch the last write group's version becomes the current one, and all
//! write groups count.
//!
//! | fence passed ([`pmem::Fence`]) | durable | after a crash |
//! |---|---|---|
//! | payload of a write group | its entries; perhaps some of its allocation bits, its root, the interval | see below |
//! | root of a write group (only if the write group changes the root) | its root, which shows older versions unchanged | the same |
//! | interval of a write group | its entries and allocation bits, the interval | the same |
//! | commit of the last write group's version | the whole batch | the batch is current: the interval does not count (M2) |
//! | removal of the interval (B1) | the list without the interval | nothing to do |
//!
//! After a crash in the first row, recovery rolls back the write groups in the interval and declares the next version dead. (M2 and M3 are
//! in [`crate::meta`].)
//!
//! Invariants:
//! * B1: the interval is durably removed from the list before another version is published. Otherwise the interval would count again.
//! * B2: no reader uses a version inside a batch. So an entry that one write group began and another ended is never seen. The collector
//!   frees it later.
//! * B3: if an error stops a batch, its write groups are rolled back at once, in the same way as by the next open.

use index::Decision;
use index::{Life, Pair, Schema, Write, WriteOptions};
use pmem::{Fence, Medium, Result};

use crate::meta::State;
use crate::structure::Versioned;
use crate::structure::{ChangeOf, KeyOf, Structure, ValueBufOf, ValueOf, WriteOf, WriterOf};
use crate::version::{Death, INTERVALS, Interval};
use crate::versioned::too_many_intervals;

/// Maximum dead intervals that a batch in write groups needs.
const INTERVALS_OF_BATCH: usize = 2;

impl<M: Medium, X: Structure> Versioned<M, X> {
    /// Does all writes in their order as one step: a crash keeps all of them or none. Returns for each write whether its key was present.
    ///
    /// # Errors
    /// As [`Versioned::put`]. `TooLarge` if no group can hold the writes, or if the list of dead versions is full and its intervals cannot
    /// be removed.
    pub fn write_many(&self, writes: &[WriteOf<'_, X>]) -> Result<Vec<bool>> {
        self.write_many_as(writes, WriteOptions::default())
    }

    /// As [`Versioned::write_many`]. `how` says whether the call waits until the writes are durable.
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

    /// Puts and deletes several keys in one step, if each key of `expected` has the given value (`None`: the key is absent). The last of
    /// several writes of one key counts. False if a condition was not met; then nothing has changed.
    ///
    /// # Errors
    /// As [`Versioned::write_many`].
    pub fn batch(
        &self,
        writes: Vec<Pair<X::Schema>>,
        expected: &[Pair<X::Schema>],
        how: WriteOptions,
    ) -> Result<bool> {
        self.batch_found(writes, expected, how, &mut Vec::new())
    }

    /// As [`Versioned::batch`]. Sets `present`: for each key of the batch, in ascending order, whether it was present before. Empty if a
    /// condition was not met.
    ///
    /// # Errors
    /// As there.
    pub fn batch_found(
        &self,
        writes: Vec<Pair<X::Schema>>,
        expected: &[Pair<X::Schema>],
        how: WriteOptions,
        present: &mut Vec<bool>,
    ) -> Result<bool> {
        present.clear();
        let pairs = index::sorting::last_of_each(writes);
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
            *present = self.write_locked(&mut writer, &writes)?;
        }
        // The values that were compared may belong to the running group, so this waits for it.
        self.acknowledge(writer, how)?;
        Ok(holds)
    }

    /// Reads and changes one key in one step, without another write in between. Over a journal `decide` may be called again, after space
    /// for its new value was reserved.
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

    /// Does all writes as one step.
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

    /// Ends a write group: the changes so far become durable with their blocks, but no reader sees them. Readers may read the nodes again.
    /// The change continues with the next version.
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

    /// Makes space for `count` more dead intervals.
    ///
    /// # Errors
    /// `TooLarge` if pins keep the traces of dead versions from being removed.
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
