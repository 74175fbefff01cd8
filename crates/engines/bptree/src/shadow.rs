//! Shadow copies of leaves [wB+ §3.2, figure 7].
//!
//! A new leaf gets all entries of the old leaf, with the change. The pointers of the parent and of the left sibling are switched to it, and
//! the old leaf is freed. All of this is one commit.

use pmem::{Error, Medium, Result};

use crate::commit_protocol::CommitProtocol;
use crate::layout::Layouts;
use crate::search::Scalar;
use crate::shape::{LEVELS_MAX, Link, Node, Placed};
use crate::split::Prepared;
use crate::tree::{Tree, Writer};
use index::Entry;
use index::Schema;
use index::Target;

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    /// Replaces the leaf at the end of `writer.own.path` by a copy with `entry`.
    pub(crate) fn insert_into_copy(
        &self,
        writer: &mut Writer<S>,
        leaf: Node,
        probe: S::Probe<'_>,
        entry: Entry<S::Tail>,
    ) -> Result<()> {
        let mut entries = self.placed(0, leaf);
        let rank = self.locate_at(0, leaf, probe).rank;
        entries.insert(rank, Placed::new(entry));
        self.replace_leaf(writer, leaf, &entries).map(drop)
    }

    /// Replaces the leaf at the end of `writer.own.path` by a copy without the entry of this number. Returns the copy.
    pub(crate) fn remove_from_copy(&self, writer: &mut Writer<S>, leaf: Node, index: usize) -> Result<Node> {
        let mut entries = self.placed(0, leaf);
        entries.retain(|placed| placed.kept != Some(index as u8));
        self.replace_leaf(writer, leaf, &entries)
    }

    fn replace_leaf(&self, writer: &mut Writer<S>, leaf: Node, entries: &[Placed<S::Tail>]) -> Result<Node> {
        let prepared = self.prepare_replace(writer, leaf, entries);
        let copy = prepared.as_ref().map_or(leaf, |(copy, _)| *copy);
        self.change_prepared(writer, prepared.map(|(_, prepared)| prepared))?;
        Ok(copy)
    }

    fn prepare_replace(
        &self,
        writer: &mut Writer<S>,
        leaf: Node,
        entries: &[Placed<S::Tail>],
    ) -> Result<(Node, Prepared)> {
        let link = self.link(leaf)?;
        let parent = writer.own.path.steps().last().copied();
        let (edits, copy) = self.copy_leaf(writer, 0, leaf, entries, link)?;
        let Some((parent, rank)) = parent else {
            self.edit_root(writer, edits, copy);
            return Ok((copy, (edits + 1, Some(copy))));
        };
        let pointer = self.pointer(parent, rank, copy)?;
        let edit = writer.edit(edits);
        edit.start(parent, self.inner.bytes());
        edit.switch.push(pointer);
        Ok((copy, (edits + 1, None)))
    }

    /// Writes the edits, from `first` on, that replace a leaf by a copy with these entries and this link, except for the parent's pointer.
    /// Returns the number of edits and the copy.
    pub(crate) fn copy_leaf(
        &self,
        writer: &mut Writer<S>,
        first: usize,
        leaf: Node,
        entries: &[Placed<S::Tail>],
        link: Link,
    ) -> Result<(usize, Node)> {
        let copy = self.take_node(writer, 0)?;
        writer.allocator.give(&self.region, leaf.0)?;
        self.compose_new(writer, first, copy, entries, link);
        writer.edit(first + 1).start(leaf, self.leaf.bytes()); // this edit locks the version of the old leaf
        let Some(left) = self.left_neighbour(writer)? else { return Ok((first + 2, copy)) };
        let edit = writer.edit(first + 2);
        edit.start(left, self.leaf.bytes());
        edit.switch.push((left.0, Link { node: copy, level: 0 }.word()));
        Ok((first + 3, copy))
    }

    /// The leaf to the left of the one at the end of `writer.own.path`.
    fn left_neighbour(&self, writer: &Writer<S>) -> Result<Option<Node>> {
        let Some((parent, rank)) = writer.own.path.steps().iter().rev().find(|(_, rank)| *rank > 0) else {
            return Ok(None);
        };
        let (at, _) = self.pointer(*parent, rank - 1, Node(0))?;
        let mut node = Node::of_payload(self.region.medium().word(at));
        for _ in 0..LEVELS_MAX {
            let link = self.link(node)?;
            if link.level == 0 {
                return Ok(Some(node));
            }
            node = self.child::<Scalar>(node, link.node, Target::Last).1;
        }
        Err(Error::Corrupt { what: "path deeper than any tree, at node", at: node.0 })
    }
}
