//! Groups: over a journal, where a commit takes milliseconds, many versions become durable together.
//!
//! The writer continues from version to version in memory. Readers use the newest durable version. A failed commit does not roll back this
//! version, so readers never have to wait for a commit. There is one exception: a caller that wrote without waiting ([`WriteOptions`]) must
//! find its write. So a lookup that may find such a write also reads the newest version. The lookup waits for the commit if the two
//! versions differ in this key: the newest version has an entry of it that the durable version does not have, or the key was deleted after
//! the durable version.
//!
//! Invariants:
//! * G1: a group ends only between two changes. A batch is one change, even if it has several versions. So each version and each batch is
//!   in one group as a whole.
//! * G2: the horizon (the oldest version that may still be read) never passes the newest durable version (P1 of [`crate::pins`]). So
//!   everything that a rollback needs still exists.
//! * G3: after a failed commit nothing more is written. The remaining state is the durable state.

use index::{Guard, Life, Schema, Write, WriteOptions};
use pmem::sync::Ordering;
use pmem::{LINE, Medium, Result};

use crate::structure::Versioned;
use crate::structure::{Structure, WriteOf};

/// Lines besides nodes, log and chunk headers: the intents, the meta block, the superblock, and the allocation bits of all blocks in a full
/// intent ring.
const LINES_MORE: u64 = 192;
/// Chunks that an operation may open or free.
const CHUNKS: u64 = 4;

impl<M: Medium, X: Structure> Versioned<M, X> {
    /// Takes the writer's lock, with space in the running group for an operation that changes no entries.
    ///
    /// # Errors
    /// As [`Life::enter_for`].
    pub(crate) fn enter(&self) -> Result<Guard<'_, Self>> {
        self.enter_for(|writer| Ok(X::lines_of(self, writer, &[])? + self.lines_besides(1, 0)))
    }

    /// Takes the writer's lock for these writes as one step, with space for them in the running group.
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

    /// Ends an operation: releases the lock, and waits until the change is durable if `how` asks for it.
    ///
    /// # Errors
    /// As [`Life::commit`].
    pub(crate) fn acknowledge(&self, writer: Guard<'_, Self>, how: WriteOptions) -> Result<()> {
        if self.pending.is_some() && !how.sync {
            self.told.fetch_max(writer.state.current, Ordering::SeqCst);
        }
        self.leave(writer, how)
    }

    /// True if every acknowledged write was durable a moment ago. Then a read does not wait.
    pub fn is_quiet(&self) -> bool {
        self.told.load(Ordering::SeqCst) <= self.version()
    }

    /// Waits until all writes that were acknowledged without waiting are durable. If their commit fails, they are rolled back, and no
    /// reader has to wait for them.
    pub(crate) fn settle_told(&self) {
        if let Some(pending) = &self.pending
            && !self.is_quiet()
        {
            let ticket = pending.ticket();
            let _ = self.wait_until_durable(pending, ticket);
        }
    }

    /// Maximum lines that `count` operations change besides those of the structure. Their records have `bytes` bytes in total.
    pub(crate) fn lines_besides(&self, count: u64, bytes: u64) -> u64 {
        let geometry = self.region.geometry();
        let piece = geometry.chunk_bytes / 8;
        // Each record may straddle a line, and changes an allocation bit for itself and one for the record that it replaces.
        let records = bytes.div_ceil(LINE) + 3 * count + 3 * bytes.div_ceil(piece);
        let heads = CHUNKS * (geometry.chunk_bytes / 16 / 8).div_ceil(LINE);
        records + heads + geometry.log_records / 4 + LINES_MORE
    }
}
