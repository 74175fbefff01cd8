//! Changes of different leaves that share their fences.
//!
//! A write that finds space in its leaf is *stored* first: whatever its commit word needs to be durable. Then that word is published. Writes
//! come in *write groups*: as many as go to different leaves are stored, one fence is passed, their words are published, and another fence
//! makes these durable. One write alone is a write group of one. What shares a leaf with an earlier write of its write group, or finds no space in it, is
//! done by itself behind the write group; so writes of one key keep their order. Each is whole or absent after a crash, whatever became of the
//! others: a write group is no atomic batch.
//!
//! | fence passed | durable | after a crash |
//! |---|---|---|
//! | none | what was stored, of some | nothing: no word leads to it; blocks named are nobody's |
//! | payload | what was stored, of all; the commit words of some | those are there, and the others not; whoever owns a block has it |
//! | commit | everything | nothing to do |
//!
//! Over groups a group has done all that, and writes are made one after the other.

use pmem::region::INTENTS;
use pmem::{Fence, Medium, Result};

use super::core::{KeyOf, LeafList, SchemaOf, ValueOf, Writer};
use crate::batch::Batching;
use crate::write::{Write, record_bytes};

/// Writes of a write group: a bit each.
pub(super) const GROUP_WRITES: usize = 64;
/// Blocks that a write group may name, with those of one write more: fewer than an operation's intents.
const GROUP_BLOCKS: usize = INTENTS - 8;
/// Writes whose leaves are asked for before they are looked at.
const LANES: usize = 16;
/// Records beyond this are written alone: in pieces, with fences of their own.
const RECORD_BYTES_MAX: u64 = 4096;

/// A write of an index.
pub type WriteOf<'a, T> = Write<'a, KeyOf<T>, ValueOf<T>>;

/// A write that is stored but for the word that commits it. The stripe of its leaf is odd.
#[derive(Debug)]
pub struct Stored<C> {
    /// What is to be published.
    pub change: C,
    /// Its key was there.
    pub was_there: bool,
    /// Something of it has to be durable first.
    pub has_payload: bool,
}

/// What became of a write.
#[derive(Debug)]
pub enum Step<C> {
    /// It waits for its commit word.
    Stored(Stored<C>),
    /// There is nothing to change.
    Absent,
    /// Nothing was stored: it needs space, or more than one word.
    Apart,
}

/// Writes together. See the module's head.
pub(crate) trait WriteGroups: LeafList {
    /// Carries out writes in their order where they are of one leaf, and says of each whether it found its key.
    ///
    /// # Errors
    /// As of [`Writes::put`](super::write::Writes::put): some of them are done then, others not.
    fn write_groups(
        &self,
        writer: &mut Writer<Self::Own>,
        writes: &[WriteOf<'_, Self>],
        was_there: &mut [bool],
    ) -> Result<()> {
        for (writes, was_there) in writes.chunks(GROUP_WRITES).zip(was_there.chunks_mut(GROUP_WRITES)) {
            self.save_images(writes)?;
            let mut alone = u64::MAX;
            if writes.len() > 1 && self.pending.is_none() {
                alone = self.write_together(writer, writes, was_there);
            }
            for (i, write) in writes.iter().enumerate().filter(|(i, _)| alone >> i & 1 == 1) {
                was_there[i] = self.write_locked(writer, write)?;
            }
        }
        Ok(())
    }

    /// Does together what can be; the others' bits are set in what it returns.
    fn write_together(
        &self,
        writer: &mut Writer<Self::Own>,
        writes: &[WriteOf<'_, Self>],
        was_there: &mut [bool],
    ) -> u64 {
        let mut alone = 0_u64;
        let mut leaves = [0; GROUP_WRITES];
        let mut stored: Vec<(usize, Stored<Self::Change>)> = Vec::with_capacity(writes.len());
        for from in (0..writes.len()).step_by(LANES) {
            let end = writes.len().min(from + LANES);
            for i in from..end {
                leaves[i] = self.leaf_of(writes[i].key(), false);
            }
            for i in from..end {
                let (write, leaf) = (&writes[i], leaves[i]);
                let is_large = record_bytes::<SchemaOf<Self>>(write) > RECORD_BYTES_MAX;
                let names_many = writer.allocator.named() > GROUP_BLOCKS;
                // Behind another write of this leaf, or in the place of one that could not go along.
                if is_large || names_many || leaves[..i].contains(&leaf) || !self.is_leaf(leaf) {
                    alone |= 1 << i;
                    continue;
                }
                match self.store(writer, write, leaf) {
                    Ok(Step::Stored(one)) => stored.push((i, one)),
                    Ok(Step::Absent) => was_there[i] = false,
                    Ok(Step::Apart) => alone |= 1 << i,
                    // Nothing was published, and nothing stored leads anywhere. One after the other there may be space, for blocks
                    // that the first of them gives back; or it is told which of them cannot be done.
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

    /// One write, with whatever comes of it.
    fn write_locked(&self, writer: &mut Writer<Self::Own>, write: &WriteOf<'_, Self>) -> Result<bool> {
        match write {
            Write::Put(key, value) => self.put_locked(writer, key, value),
            Write::Delete(key) => self.delete_locked(writer, key),
        }
    }
}

impl<T: LeafList> WriteGroups for T {}

/// Commits of what was stored.
pub trait Commits: LeafList {
    /// Makes what was stored durable, publishes it and makes that durable; the operation ends with it.
    #[inline]
    fn commit_stored<'a>(
        &self,
        writer: &mut Writer<Self::Own>,
        stored: impl Iterator<Item = &'a Stored<Self::Change>> + Clone,
    ) where
        Self::Change: 'a,
    {
        let medium = self.region.medium();
        // Of what only takes away there is nothing but the allocator's intents.
        if stored.clone().any(|one| one.has_payload) || writer.allocator.has_pending() {
            medium.fence(Fence::Payload);
            writer.allocator.flip(&self.region);
        }
        stored.for_each(|one| self.publish(&one.change));
        medium.fence(Fence::Commit);
        writer.allocator.finish(&self.region, &mut writer.log);
        self.stripes.unlock(&mut writer.held);
    }

    /// Commits one write, and does what comes of it. True if its key was there.
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
