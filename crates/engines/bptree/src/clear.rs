//! Clear, and the freeing of the cleared structure: see [`index::garbage`].
//!
//! A clear is one change: an empty leaf becomes the root, and the old root becomes the garbage.
//!
//! A step of the freeing descends from the garbage's root along the last children. It frees the leaf at the end, and each inner node above
//! it that has no other child. The commit of the step removes the separator of the last child from the next node above. If there is no such
//! node, the commit removes the garbage's word (the word that references the garbage) from the root line (the line of the region with the
//! address of the root). If the leaf has too many records for one step, a step frees only some of them, and its commit stores the number of
//! entries freed so far in the garbage's word.

use index::garbage::{self, Garbage, free_entries};
use index::{Embed, Entry, Life, Schema, Target, WriteOptions};
use pmem::alloc::Kind;
use pmem::region::{GARBAGE_AT, ROOT_AT};
use pmem::sync::Ordering;
use pmem::{Error, LINE, Medium, Region, Result, record};

use crate::commit_protocol::{Change, CommitProtocol};
use crate::layout::Layouts;
use crate::search::Scalar;
use crate::shape::{LEVELS_MAX, Link, Node};
use crate::tree::{Tree, Writer};

/// The end of the garbage: its last children, from the root down.
struct Last<T> {
    /// Inner nodes, with the number of their separators and the last separator.
    inner: Vec<(Node, usize, Option<Entry<T>>)>,
    leaf: Node,
    /// Entries of the leaf whose blocks are not free yet.
    entries: Vec<Entry<T>>,
}

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    /// Removes every key in one step whose cost does not grow with the number of keys ([`index::garbage`]). Later steps free the blocks.
    /// Durable on return. With an open snapshot it removes the keys one by one.
    ///
    /// # Errors
    /// As [`Tree::delete`].
    pub fn clear(&self) -> Result<()> {
        garbage::clear(
            self,
            self.lines_of_operations(1, 0),
            || Ok(self.garbage()?.is_some()),
            |writer| self.switch_to_empty(writer),
            || self.clear_by_key(),
        )
    }

    /// Removes every key, from the greatest down. Keys that are written meanwhile may stay.
    fn clear_by_key(&self) -> Result<()> {
        let mut cursor = self.cursor().unsettled();
        cursor.seek(std::ops::Bound::Unbounded, true);
        let mut key = S::KeyBuf::default();
        while cursor.next_key(&mut key)? {
            self.delete_as(S::borrow(&key), WriteOptions { sync: false })?;
        }
        self.commit()
    }

    /// Makes an empty leaf the root.
    fn switch_to_empty(&self, writer: &mut Writer<S>) -> Result<()> {
        let old = self.root();
        let root = self.take_node(writer, 0).map_err(|error| self.give_up(writer, error))?;
        self.compose_new(writer, 0, root, &[], Link { node: Node(0), level: 0 });
        self.edit_garbage(writer, 1, Some(Garbage { node: old.0, done: 0 }));
        writer.edit(1).switch.push((ROOT_AT, Region::<M>::root_word(root.0)));
        if self.pending.is_none() {
            self.stripes.give_way();
        }
        self.stripes.lock_all(&mut writer.held); // U2 of `index::garbage`
        self.note_clear();
        if let Some(pending) = &self.pending {
            pending.note_node(root.0);
        }
        let outcome = D::commit(Change {
            region: &self.region,
            log: &mut writer.log,
            allocator: &mut writer.allocator,
            edits: &writer.own.edits[..2],
            apart: false,
        });
        if outcome.is_ok() {
            self.set_root(root);
            self.keys.store(0, Ordering::Release);
            self.counting.store(false, Ordering::Release);
            writer.own.counted_to = None;
            self.set_garbage(true);
            writer.allocator.finish(&self.region, &mut writer.log);
        } else {
            writer.allocator.abort(&self.region, &mut writer.log);
        }
        self.stripes.unlock(&mut writer.held);
        outcome
    }

    /// Writes edit `number`: sets or removes the garbage.
    fn edit_garbage(&self, writer: &mut Writer<S>, number: usize, garbage: Option<Garbage>) {
        let edit = writer.edit(number);
        edit.start(Node(ROOT_AT), LINE);
        edit.switch.push((GARBAGE_AT, Garbage::word(garbage)));
    }

    /// The garbage that a clear left.
    pub(crate) fn garbage(&self) -> Result<Option<Garbage>> {
        Garbage::read(self.region.medium(), GARBAGE_AT)
    }

    fn last_of(&self, garbage: Garbage) -> Result<Last<S::Tail>> {
        let (mut node, mut inner) = (Node(garbage.node), Vec::new());
        for _ in 0..LEVELS_MAX {
            let link = self.link(node)?;
            let order = self.order_at(link.level, node);
            if link.level == 0 {
                return Ok(Last { inner, leaf: node, entries: self.entries_from(node, garbage.done) });
            }
            let last = order.len().checked_sub(1).map(|rank| self.entry_at(link.level, node, order.at(rank)));
            inner.push((node, order.len(), last));
            node = self.child::<Scalar>(node, link.node, Target::Last).1;
        }
        Err(Error::Corrupt { what: "path deeper than any tree, at node", at: node.0 })
    }

    /// The entries of a leaf in the order of their numbers, without the first `done`. To sort them by key, the function would have to read
    /// records that may be free or in use for other data.
    fn entries_from(&self, leaf: Node, done: u64) -> Vec<Entry<S::Tail>> {
        let mut numbers: Vec<usize> = self.order_at(0, leaf).iter().collect();
        numbers.sort_unstable();
        numbers.into_iter().skip(done as usize).map(|index| self.entry_at(0, leaf, index)).collect()
    }

    /// Frees the last leaf of the garbage, or the blocks of some of its entries. False if nothing remains.
    pub(crate) fn free_last(&self, writer: &mut Writer<S>) -> Result<bool> {
        let Some(garbage) = self.garbage()? else { return Ok(false) };
        let last = self.last_of(garbage)?;
        let freed = free_entries(self.kernel(), writer, last.entries.iter().copied())?;
        if freed < last.entries.len() {
            let done = garbage.done + freed as u64;
            self.edit_garbage(writer, 0, Some(Garbage { done, ..garbage }));
            self.change(writer, 1)?;
            return Ok(true);
        }
        let edits = self.prepare_free(writer, garbage, &last).map_err(|error| self.give_up(writer, error))?;
        self.change(writer, edits)?;
        Ok(self.garbage()?.is_some())
    }

    /// Prepares the edits that remove a leaf from the garbage. Returns their number.
    fn prepare_free(&self, writer: &mut Writer<S>, garbage: Garbage, last: &Last<S::Tail>) -> Result<usize> {
        writer.allocator.give(&self.region, last.leaf.0)?;
        for (node, count, entry) in last.inner.iter().rev() {
            let Some(entry) = entry else {
                writer.allocator.give(&self.region, node.0)?;
                continue;
            };
            if let Some(block) = S::separator_block(entry.key) {
                writer.allocator.give(&self.region, block)?;
            }
            self.remove_separator(*node, count - 1, writer.edit(0));
            if garbage.done == 0 {
                return Ok(1);
            }
            self.edit_garbage(writer, 1, Some(Garbage { done: 0, ..garbage }));
            return Ok(2);
        }
        self.edit_garbage(writer, 0, None);
        Ok(1)
    }

    /// True if this block is at the end of the garbage, where the next step of the freeing begins (U1 of [`index::garbage`]).
    pub(crate) fn garbage_owns(&self, at: u64) -> bool {
        let Ok(Some(garbage)) = self.garbage() else { return false };
        self.last_of(garbage).is_ok_and(|last| {
            let mut inner = last.inner.iter();
            at == last.leaf.0
                || last.entries.iter().any(|entry| S::blocks_of(entry).any(|block| block == at))
                || inner.any(|(node, _, entry)| {
                    at == node.0 || entry.as_ref().and_then(|entry| S::separator_block(entry.key)) == Some(at)
                })
        })
    }

    /// The blocks of the garbage, with their kinds.
    pub(crate) fn blocks_of_garbage(&self) -> Result<Vec<(u64, Kind)>> {
        let Some(garbage) = self.garbage()? else { return Ok(Vec::new()) };
        let (medium, last) = (self.region.medium(), self.last_of(garbage)?);
        let mut owned = Vec::new();
        let mut open = vec![(Node(garbage.node), self.link(Node(garbage.node))?.level)];
        while let Some((node, level)) = open.pop() {
            let link = Link::read(medium, node).filter(|link| link.level == level);
            let link = link.ok_or(Error::Corrupt { what: "node of a cleared tree", at: node.0 })?;
            owned.push((node.0, if level == 0 { Kind::Leaf } else { Kind::Inner }));
            if level == 0 {
                let done = if node == last.leaf { garbage.done } else { 0 };
                let entries = self.entries_from(node, done);
                for block in entries.iter().flat_map(S::blocks_of) {
                    owned.push((block, Kind::Record));
                    owned.extend(record::pieces(&self.region, block).into_iter().map(|at| (at, Kind::Piece)));
                }
                continue;
            }
            open.push((link.node, level - 1));
            for entry in self.placed(level, node).into_iter().map(|placed| placed.entry) {
                owned.extend(S::separator_block(entry.key).map(|block| (block, Kind::Separator)));
                open.push((Node::of_payload(entry.payload), level - 1));
            }
        }
        Ok(owned)
    }
}
