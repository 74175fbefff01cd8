//! Write groups: writes to different leaves that share their fences.
//!
//! The writer first *stores* each write of the group in its leaf, except for the word that commits the write. Then the
//! writer passes one fence, publishes all commit words, and passes a second fence. A single write is a write group of
//! one.
//!
//! The writer applies a write by itself, after the group, if an earlier write goes to the same leaf, if the leaf has no
//! space, or if the write needs more than one commit word. The same holds for a write with a long record, and for the
//! remaining writes if the intents are nearly used up. If a write cannot be stored because of an error, the writer
//! applies all writes of the group one by one. In all cases, writes to the same leaf keep their order.
//!
//! Invariant: a crash leaves each write as a whole or not at all, independently of the others. A write group is not an atomic batch.
//!
//! The commit point of a write is the publish of its commit word ([`LeafList::publish`]).
//!
//! | fence passed ([`pmem::Fence`]) | may be on the medium | after a crash |
//! |---|---|---|
//! | none | some of the stored writes | no write is visible: no word references it, and its blocks have no owner |
//! | payload | all stored writes; some commit words | writes with a durable commit word are visible; each block has its owner |
//! | commit | everything | nothing to do |
//!
//! With a journal, the writes of a commit group share one commit already. So the writer applies them one by one.

use pmem::region::INTENTS;
use pmem::{Fence, Medium, Result};

use super::core::{KeyOf, LeafList, SchemaOf, ValueOf, Writer};
use crate::batch::Batching;
use crate::write::{Write, record_bytes};

/// Maximum number of writes of a write group: one bit each in a word.
pub(super) const GROUP_WRITES: usize = 64;
/// Maximum number of intents of a write group before its last write. The rest of the intents suffices for that write.
const GROUP_BLOCKS: usize = INTENTS - 8;
/// Number of writes whose leaves are prefetched together.
const LANES: usize = 16;
/// Longest record in bytes in a write group. A longer one is written in pieces, which have fences of their own.
const RECORD_BYTES_MAX: u64 = 4096;

/// A write of an index.
pub type WriteOf<'a, T> = Write<'a, KeyOf<T>, ValueOf<T>>;

/// A write that is stored, except for the word that commits it. The version of its leaf is locked.
#[derive(Debug)]
pub struct Stored<C> {
    /// The store that commits the write.
    pub change: C,
    /// True if the key was present.
    pub was_there: bool,
    /// True if some stores must be durable before the commit word.
    pub has_payload: bool,
}

/// The leaves of some keys, as they were found under the writer's lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The leaf of each key, or 0. Empty if no leaf is known.
    pub leaves: Vec<u64>,
    /// The number of structure changes before these leaves were found. After another change they may be wrong.
    pub changes: u64,
}

/// The outcome of storing a write.
#[derive(Debug)]
pub enum Step<C> {
    /// The write is stored and waits for its commit word.
    Stored(Stored<C>),
    /// The key is absent, so there is nothing to change.
    Absent,
    /// Nothing was stored. The write needs space, or more than one commit word.
    Apart,
}

/// Writes that share their fences. See the module's head.
pub(crate) trait WriteGroups: LeafList {
    /// Applies writes. `known` has the leaves of all their keys, or is empty. Writes to the same leaf keep their order. Sets `was_there` for
    /// each write: true if its key was present.
    ///
    /// # Errors
    /// As [`Writes::put`](super::write::Writes::put). Some of the writes are done then.
    fn write_groups(
        &self,
        writer: &mut Writer<Self::Own>,
        writes: &[WriteOf<'_, Self>],
        known: &Known,
        was_there: &mut [bool],
    ) -> Result<()> {
        let groups = writes.chunks(GROUP_WRITES).zip(was_there.chunks_mut(GROUP_WRITES));
        for (number, (writes, was_there)) in groups.enumerate() {
            let known_leaves = known.leaves.get(number * GROUP_WRITES..).unwrap_or_default();
            let is_current = self.changes.settled(&self.stripes) == known.changes;
            let known_leaves = if is_current { known_leaves } else { &[] };
            self.save_images(writes)?;
            let mut alone = u64::MAX;
            if writes.len() > 1 && self.pending.is_none() {
                alone = self.write_together(writer, writes, known_leaves, was_there);
            }
            for (i, write) in writes.iter().enumerate().filter(|(i, _)| alone >> i & 1 == 1) {
                was_there[i] = self.write_locked(writer, write)?;
            }
        }
        Ok(())
    }

    /// Applies the writes that can share fences. `known` has the leaf of each key, or 0, or is empty. Returns a word with one bit
    /// set for each other write.
    fn write_together(
        &self,
        writer: &mut Writer<Self::Own>,
        writes: &[WriteOf<'_, Self>],
        known: &[u64],
        was_there: &mut [bool],
    ) -> u64 {
        let mut alone = 0_u64;
        let mut leaves = [0; GROUP_WRITES];
        let mut stored: Vec<(usize, Stored<Self::Change>)> = Vec::with_capacity(writes.len());
        for from in (0..writes.len()).step_by(LANES) {
            let end = writes.len().min(from + LANES);
            match known.get(from..end) {
                Some(known) if !known.contains(&0) => leaves[from..end].copy_from_slice(known),
                _ => {
                    let mut keys = [writes[from].key(); LANES];
                    keys.iter_mut().zip(&writes[from..end]).for_each(|(key, write)| *key = write.key());
                    self.leaves_of(&keys[..end - from], &mut leaves[from..end]);
                }
            }
            for i in from..end {
                let (write, leaf) = (&writes[i], leaves[i]);
                let is_large = record_bytes::<SchemaOf<Self>>(write) > RECORD_BYTES_MAX;
                let names_many = writer.allocator.named() > GROUP_BLOCKS;
                // An earlier write goes to this leaf, or an earlier write to this leaf was left out.
                if is_large || names_many || leaves[..i].contains(&leaf) || !self.is_leaf(leaf) {
                    alone |= 1 << i;
                    continue;
                }
                match self.store(writer, write, leaf) {
                    Ok(Step::Stored(one)) => stored.push((i, one)),
                    Ok(Step::Absent) => was_there[i] = false,
                    Ok(Step::Apart) => alone |= 1 << i,
                    // Nothing was published, and nothing references the stores. One by one, the writes may find space: an early write may
                    // free blocks for a later one. Otherwise the failing write returns the error.
                    Err(_) => {
                        writer.allocator.abort(&self.region, &mut writer.log);
                        self.stripes.unlock(&mut writer.held);
                        return u64::MAX;
                    }
                }
            }
        }
        if !stored.is_empty() {
            self.commit_stored(writer, stored.iter().map(|(_, stored)| stored));
        }
        for (i, one) in &stored {
            was_there[*i] = one.was_there;
            self.conclude(writer, &writes[*i], one);
        }
        alone
    }

    /// Applies one write by itself.
    fn write_locked(&self, writer: &mut Writer<Self::Own>, write: &WriteOf<'_, Self>) -> Result<bool> {
        match write {
            Write::Put(key, value) => self.put_locked(writer, key, value),
            Write::Delete(key) => self.delete_locked(writer, key),
        }
    }
}

impl<T: LeafList> WriteGroups for T {}

/// Commits stored writes.
pub trait Commits: LeafList {
    /// Commits stored writes and ends the operation: passes a fence, publishes the commit words, and passes a second fence.
    #[inline]
    fn commit_stored<'a>(
        &self,
        writer: &mut Writer<Self::Own>,
        stored: impl Iterator<Item = &'a Stored<Self::Change>> + Clone,
    ) where
        Self::Change: 'a,
    {
        let medium = self.region.medium();
        // A write that only removes has no payload except for the allocator's intents.
        if stored.clone().any(|one| one.has_payload) || writer.allocator.has_pending() {
            medium.fence(Fence::Payload);
            writer.allocator.flip(&self.region);
        }
        stored.for_each(|one| self.publish(&one.change));
        medium.fence(Fence::Commit);
        writer.allocator.finish(&self.region, &mut writer.log);
        self.stripes.unlock(&mut writer.held);
    }

    /// Commits one write and concludes it. True if its key was present.
    #[inline]
    fn commit_alone(
        &self,
        writer: &mut Writer<Self::Own>,
        write: &WriteOf<'_, Self>,
        one: &Stored<Self::Change>,
    ) -> bool {
        self.commit_stored(writer, std::iter::once(one));
        self.conclude(writer, write, one);
        one.was_there
    }
}

impl<T: LeafList> Commits for T {}
