//! Delete [wB+ §4.4].
//!
//! If a delete leaves a leaf too empty, a merge may follow in a commit of its own. A delete that would empty a leaf other than the root
//! removes the leaf in the same commit.

use pmem::{Medium, Result};

use crate::commit_protocol::CommitProtocol;
use crate::layout::{Layout, Layouts};
use crate::search::{Search, dispatch};
use crate::tree::{Tree, Writer};
use index::Schema;
use index::Target;
use index::{Batching, Life, WriteOptions};

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    #[inline(always)]
    fn delete_with<V: Search>(&self, writer: &mut Writer<S>, key: &S::Key) -> Result<bool> {
        let (medium, shape) = (self.region.medium(), &self.leaf_for::<V>());
        let probe = S::probe(key);
        let leaf = self.descend::<V>(writer, Target::Holding(probe))?;
        let located = L::Leaf::place::<_, S, V>(medium, shape, leaf, probe);
        let Some(index) = located.hit else {
            self.confirm_leaf::<V>(leaf, located.rank, probe)?;
            return Ok(false);
        };
        let count = L::Leaf::count(medium, shape, leaf);
        let old = shape.entry(medium, leaf, index);
        self.give_entry(writer, &old)?;
        if count == 1 && leaf != self.root() {
            // T3: an empty leaf must not exist after this commit. A crash would keep it, and recovery finds the owner of a leaf by the
            // leaf's keys.
            let parent = self.merge_once(writer, Some(leaf))?;
            self.count_key(writer, key, false);
            // The key is removed. A further merge only saves space, so its failure does not matter.
            let _ = parent.map_or(Ok(()), |parent| self.merge_up(writer, parent));
            return Ok(true);
        }
        let mut leaf = leaf;
        if D::COPIES_LEAVES {
            leaf = self.remove_from_copy(writer, leaf, index)?;
        } else {
            L::Leaf::remove::<_, S>(medium, shape, leaf, located.rank, index, &mut writer.own.edits[0]);
            self.change(writer, 1)?;
        }
        self.count_key(writer, key, false);
        if count - 1 <= shape.capacity / 4 {
            // As above.
            let _ = self.merge_up(writer, leaf);
        }
        Ok(true)
    }

    #[inline(always)]
    pub(crate) fn delete_locked(&self, writer: &mut Writer<S>, key: &S::Key) -> Result<bool> {
        dispatch!(self, V => self.delete_with::<V>(writer, key))
    }

    /// Removes `key`. True if it was present. Durable on return.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Failed`: nothing has changed. If a change copies its leaf ([`CommitProtocol::COPIES_LEAVES`]), also `NoSpace`
    /// and `Full`. `Corrupt` if the path is damaged, or a neighbour of a leaf that the delete would empty: nothing
    /// has changed.
    pub fn delete(&self, key: &S::Key) -> Result<bool> {
        self.delete_as(key, WriteOptions::default())
    }

    /// As [`Tree::delete`], with the durability that `how` selects.
    ///
    /// # Errors
    /// As [`Tree::delete`], and as [`Life::commit`].
    pub fn delete_as(&self, key: &S::Key, how: WriteOptions) -> Result<bool> {
        let mut writer = self.enter(0)?;
        self.save_image(key)?;
        self.note_key(key);
        let was_there = self.delete_locked(&mut writer, key)?;
        // If the key was absent, a delete in the running group may be the reason. So this waits, too.
        self.leave(writer, how)?;
        Ok(was_there)
    }
}
