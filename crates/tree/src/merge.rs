//! Merging: an emptied tree gives its memory back [wB+ §4.4].
//!
//! A node that a delete left at most a quarter full is joined with a neighbour below the same parent if together they fill
//! at most three quarters of a node, or if one of them is empty. An inner node that lost its last separator and whose
//! neighbour is too full to be joined takes half of the neighbour's entries instead (T3). Each step is one commit through
//! the log and leaves a whole tree; a crash between two steps leaves a node emptier than it might be, nothing else.

use pmem::{Error, Medium, Result, WORD};

use crate::discipline::Discipline;
use crate::layout::Layout;
use crate::schema::Schema;
use crate::shape::{Entry, Link, Node, Placed};
use crate::tree::{Tree, Writer};

/// Two neighbours below one parent, and the rank of the separator between them.
struct Pair {
    parent: Node,
    rank: usize,
    separator: Entry,
    left: Node,
    right: Node,
}

impl<M: Medium, S: Schema, L: Layout, D: Discipline> Tree<M, S, L, D> {
    /// Joins `node` (below `writer.path`) and then its parents with their neighbours, as far as they are too empty.
    #[cold]
    pub(crate) fn merge_up(&self, writer: &mut Writer<S>, node: Node) -> Result<()> {
        let mut node = node;
        while let Some((parent, taken)) = writer.path.pop() {
            let count = L::count(self.region.medium(), &self.shape, node);
            if count > self.shape.capacity / 4 {
                return Ok(());
            }
            let Some(pair) = self.neighbours(writer, parent, taken)? else { break };
            let outcome = self.prepare_merge(writer, &pair);
            let edits = outcome.map_err(|error| self.give_up(writer, error))?;
            if edits == 0 {
                return Ok(());
            }
            self.change(writer, edits)?;
            node = parent;
        }
        self.shrink_root(writer)
    }

    fn neighbours(&self, writer: &mut Writer<S>, parent: Node, taken: usize) -> Result<Option<Pair>> {
        let medium = self.region.medium();
        let link = self.shape.link(medium, parent).ok_or(Error::Corrupt { what: "node", at: parent.0 })?;
        let entries = self.placed(writer, parent);
        if entries.is_empty() {
            return Ok(None);
        }
        let rank = taken.min(entries.len() - 1);
        let left = if rank == 0 { link.node } else { Node(entries[rank - 1].entry.payload) };
        let separator = entries[rank].entry;
        Ok(Some(Pair { parent, rank, separator, left, right: Node(separator.payload) }))
    }

    /// Writes the edits that join or level a pair; 0 if it is better left alone.
    fn prepare_merge(&self, writer: &mut Writer<S>, pair: &Pair) -> Result<usize> {
        let medium = self.region.medium();
        let link_of =
            |node: Node| self.shape.link(medium, node).ok_or(Error::Corrupt { what: "node", at: node.0 });
        let (left_link, right_link) = (link_of(pair.left)?, link_of(pair.right)?);
        let mut entries = self.placed(writer, pair.left);
        let left_count = entries.len();
        if left_link.level > 0 {
            // The separator comes down between them, leading to what was the right node's leftmost child.
            let down = Entry { key: pair.separator.key, payload: right_link.node.0 };
            entries.push(Placed { kept: None, entry: down });
        }
        let right = self.placed(writer, pair.right);
        entries.extend(right.iter().map(|p| Placed { kept: None, entry: p.entry }));
        let capacity = self.shape.capacity;
        let starved = left_count == 0 || right.is_empty();
        if entries.len() <= capacity * 3 / 4 || (starved && entries.len() <= capacity) {
            return self.prepare_join(writer, pair, &entries, left_link, right_link);
        }
        if left_link.level > 0 && starved {
            return self.prepare_level(writer, pair, &entries, left_count, left_link, right_link);
        }
        Ok(0)
    }

    /// The left node takes everything; the right node and the separator's place in the parent go.
    fn prepare_join(
        &self,
        writer: &mut Writer<S>,
        pair: &Pair,
        entries: &[Placed],
        left_link: Link,
        right_link: Link,
    ) -> Result<usize> {
        let medium = self.region.medium();
        writer.allocator.give(&self.region, pair.right.0)?;
        let link = if left_link.level == 0 {
            if let Some(block) = S::separator_block(pair.separator.key) {
                writer.allocator.give(&self.region, block)?;
            }
            right_link
        } else {
            left_link
        };
        L::compose(medium, &self.shape, pair.left, true, entries, link, writer.edit(0));
        self.lock_out(writer, 1, pair.right);
        L::order::<M, S>(medium, &self.shape, pair.parent, &mut writer.order);
        writer.edit(2);
        L::remove(medium, &self.shape, pair.parent, &writer.order, pair.rank, &mut writer.edits[2]);
        Ok(3)
    }

    /// Both nodes get half; the parent's separator changes to the one between the halves.
    fn prepare_level(
        &self,
        writer: &mut Writer<S>,
        pair: &Pair,
        entries: &[Placed],
        left_count: usize,
        left_link: Link,
        right_link: Link,
    ) -> Result<usize> {
        let medium = self.region.medium();
        let middle = entries.len() / 2;
        let promoted = entries[middle].entry;
        L::compose(medium, &self.shape, pair.left, true, &entries[..middle], left_link, writer.edit(0));
        // Entries that stay in the right node keep their places in it.
        let own = self.placed(writer, pair.right);
        let right: Vec<Placed> = (middle + 1..entries.len())
            .map(|i| match i.checked_sub(left_count + 1) {
                Some(rank) => own[rank],
                None => Placed { kept: None, entry: entries[i].entry },
            })
            .collect();
        let link = Link { node: Node(promoted.payload), level: right_link.level };
        L::compose(medium, &self.shape, pair.right, true, &right, link, writer.edit(1));
        L::order::<M, S>(medium, &self.shape, pair.parent, &mut writer.order);
        let index = writer.order.at(pair.rank);
        let at = self.shape.key_at(pair.parent, index);
        let edit = writer.edit(2);
        edit.start(pair.parent, self.shape.bytes());
        edit.switch.extend((0..S::KEY_WORDS).map(|i| (at + i as u64 * WORD, promoted.key[i])));
        Ok(3)
    }

    /// An edit without words: readers are kept from a node that leaves the tree.
    fn lock_out(&self, writer: &mut Writer<S>, number: usize, node: Node) {
        writer.edit(number).start(node, self.shape.bytes());
    }

    /// While the root is an inner node with one child, the child becomes the root.
    fn shrink_root(&self, writer: &mut Writer<S>) -> Result<()> {
        let medium = self.region.medium();
        loop {
            let root = self.root();
            let link = self.shape.link(medium, root).ok_or(Error::Corrupt { what: "node", at: root.0 })?;
            if link.level == 0 || L::count(medium, &self.shape, root) > 0 {
                return Ok(());
            }
            writer.allocator.give(&self.region, root.0).map_err(|error| self.give_up(writer, error))?;
            self.lock_out(writer, 0, root);
            self.edit_root(writer, 1, link.node);
            self.change_and(writer, 2, || self.set_root(link.node))?;
        }
    }
}
