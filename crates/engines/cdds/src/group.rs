//! Groups: over a medium where a commit takes milliseconds, many versions become durable together.
//!
//! The writer goes on from version to version in memory; readers stay at the newest version that is durable. What they read there
//! cannot be taken back, so nothing has to be noted of what is on its way, and nobody waits but for what he was told of: who
//! wrote without waiting ([`WriteOptions`]) finds it, because a lookup that may meet such a write looks at the newest
//! version too, and waits if what it finds there began, or is gone, since the durable one.
//!
//! Invariants:
//! * G1: a group ends between two changes, so a version is in it whole or not at all, and so is a batch in write groups.
//! * G2: the horizon never passes the newest durable version (P1): what a crash could bring back is still there.
//! * G3: after a failed commit nothing more is written: what there is is what is durable.

use index::{Guard, Life, Schema, Write, WriteOptions};
use pmem::sync::Ordering;
use pmem::{LINE, Medium, Result};

use crate::structure::Versioned;
use crate::structure::{Structure, WriteOf};

/// Lines besides nodes, log and chunk heads: the intents, the meta block, the superblock's, the bits of all blocks of a ring.
const LINES_MORE: u64 = 192;
/// Chunks that an operation may open or return.
const CHUNKS: u64 = 4;

impl<M: Medium, X: Structure> Versioned<M, X> {
    /// The writer's side, with space in the running group for what changes no entries.
    ///
    /// # Errors
    /// As [`Life::enter_for`].
    pub(crate) fn enter(&self) -> Result<Guard<'_, Self>> {
        self.enter_for(|writer| Ok(X::lines_of(self, writer, &[])? + self.lines_besides(1, 0)))
    }

    /// The writer's side for these writes as one step, with space for them in the running group.
    ///
    /// # Errors
    /// As [`Life::enter_for`].
    pub(crate) fn enter_to_write(&self, writes: &[WriteOf<'_, X>]) -> Result<Guard<'_, Self>> {
        let bytes = |write: &WriteOf<'_, X>| match write {
            Write::Put(key, value) => X::Schema::record_bytes(key, value),
            Write::Delete(_) => 0,
        };
        self.enter_for(|writer| {
            let (count, bytes) = (writes.len() as u64, writes.iter().map(bytes).sum());
            Ok(X::lines_of(self, writer, writes)? + self.lines_besides(count, bytes))
        })
    }

    /// An operation is over: lets go of the lock, and waits until what was changed is durable, if asked.
    ///
    /// # Errors
    /// As [`Life::commit`].
    pub(crate) fn acknowledge(&self, writer: Guard<'_, Self>, how: WriteOptions) -> Result<()> {
        if self.pending.is_some() && !how.sync {
            self.told.fetch_max(writer.state.current, Ordering::SeqCst);
        }
        self.leave(writer, how)
    }

    /// True if everything was durable a moment ago: a read will not have to wait.
    pub fn is_quiet(&self) -> bool {
        self.told.load(Ordering::SeqCst) <= self.version()
    }

    /// Waits until what was written without waiting is durable. If that fails, it is taken back, and nobody has to wait for it.
    pub(crate) fn settle_told(&self) {
        if let Some(pending) = &self.pending
            && !self.is_quiet()
        {
            let ticket = pending.ticket();
            let _ = self.settle(pending, ticket);
        }
    }

    /// Most lines that so many operations change beside the structure's, with records of so many bytes together.
    pub(crate) fn lines_besides(&self, count: u64, bytes: u64) -> u64 {
        let geometry = self.region.geometry();
        let piece = geometry.chunk_bytes / 8;
        // Each may straddle a line, and changes a bit of its own and one of what it replaces.
        let records = bytes.div_ceil(LINE) + 3 * count + 3 * bytes.div_ceil(piece);
        let heads = CHUNKS * (geometry.chunk_bytes / 16 / 8).div_ceil(LINE);
        records + heads + geometry.log_records / 4 + LINES_MORE
    }
}
