//! Splits by redo-only commit [wB+ §4.3]: any number of levels, one commit.
//!
//! New nodes are written whole into unused space; the nodes that change keep their entries where they are and only lose
//! some (the new slot arrays, bitmaps and links go through the log). The pending entry is part of the split. Two fences:
//! one for the new nodes, one for the log, whose last record is the commit point.

use pmem::{Medium, Result};

use crate::discipline::Discipline;
use crate::layout::Layout;
use crate::schema::Schema;
use crate::shape::{Entry, Link, Node, Placed};
use crate::tree::{Tree, Writer};

/// A separator and the node right of it, to be put into the parent.
struct Rising {
    key: [u64; 2],
    right: Node,
}

impl<M: Medium, S: Schema, L: Layout, D: Discipline> Tree<M, S, L, D> {
    /// The node's entries in order, each with its place.
    pub(crate) fn placed(&self, node: Node) -> Vec<Placed> {
        let medium = self.region.medium();
        let place = |index| Placed { kept: Some(index as u8), entry: self.shape.entry(medium, node, index) };
        L::order::<M, S>(medium, &self.shape, node).iter().map(place).collect()
    }

    /// Splits a full leaf on the way of `writer.path`, with `entry` joining at `rank`.
    #[cold]
    pub(crate) fn split_leaf(
        &self,
        writer: &mut Writer<S>,
        leaf: Node,
        rank: usize,
        entry: Entry,
    ) -> Result<()> {
        let outcome = self.prepare_split(writer, leaf, rank, entry);
        let (edits, root) = outcome.map_err(|error| self.give_up(writer, error))?;
        self.change_and(writer, edits, || root.into_iter().for_each(|root| self.set_root(root)))
    }

    fn prepare_split(
        &self,
        writer: &mut Writer<S>,
        leaf: Node,
        rank: usize,
        entry: Entry,
    ) -> Result<(usize, Option<Node>)> {
        let medium = self.region.medium();
        let link = self.shape.link(medium, leaf).ok_or(pmem::Error::Corrupt { what: "node", at: leaf.0 })?;
        let mut entries = self.placed(leaf);
        // Behind the last key of all: ascending loads fill their leaves.
        let appending = link.node.0 == 0 && rank == entries.len();
        entries.insert(rank, Placed { kept: None, entry });
        let middle = if appending { entries.len() - 1 } else { entries.len() / 2 };
        let (left, right) = entries.split_at(middle);
        let sibling = self.take_node(writer, 0)?;
        let key = S::separate(
            &self.region,
            &mut writer.allocator,
            &mut writer.log,
            &left[left.len() - 1].entry,
            &right[0].entry,
        )?;
        self.compose_new(writer, 0, sibling, right, link);
        let to_sibling = Link { node: sibling, level: 0 };
        L::compose(medium, &self.shape, leaf, true, left, to_sibling, writer.edit(1));
        self.raise(writer, 2, Rising { key, right: sibling }, appending)
    }

    /// Puts what rises from a split into the parents, splitting them in turn, and makes a new root above the old one if it
    /// comes to that. Returns the number of edits and the new root.
    pub(crate) fn raise_separator(
        &self,
        writer: &mut Writer<S>,
        edits: usize,
        key: [u64; 2],
        right: Node,
        appending: bool,
    ) -> Result<(usize, Option<Node>)> {
        self.raise(writer, edits, Rising { key, right }, appending)
    }

    fn raise(
        &self,
        writer: &mut Writer<S>,
        mut edits: usize,
        mut rising: Rising,
        appending: bool,
    ) -> Result<(usize, Option<Node>)> {
        let medium = self.region.medium();
        while let Some((parent, rank)) = writer.path.pop() {
            let entry = Entry { key: rising.key, payload: rising.right.0 };
            if L::count(medium, &self.shape, parent) < self.shape.capacity {
                let order = L::order::<M, S>(medium, &self.shape, parent);
                L::insert(medium, &self.shape, parent, &order, rank, &entry, writer.edit(edits));
                return Ok((edits + 1, None));
            }
            let link =
                self.shape.link(medium, parent).ok_or(pmem::Error::Corrupt { what: "node", at: parent.0 })?;
            let mut entries = self.placed(parent);
            let at_end = appending && rank == entries.len();
            entries.insert(rank, Placed { kept: None, entry });
            let middle = if at_end { entries.len() - 2 } else { entries.len() / 2 };
            let promoted = entries[middle].entry;
            let sibling = self.take_node(writer, link.level)?;
            let right_link = Link { node: Node(promoted.payload), level: link.level };
            self.compose_new(writer, edits, sibling, &entries[middle + 1..], right_link);
            L::compose(medium, &self.shape, parent, true, &entries[..middle], link, writer.edit(edits + 1));
            edits += 2;
            rising = Rising { key: promoted.key, right: sibling };
        }
        let old = self.root();
        let level = self.shape.link(medium, old).map_or(0, |link| link.level) + 1;
        let root = self.take_node(writer, level)?;
        let only = Placed { kept: None, entry: Entry { key: rising.key, payload: rising.right.0 } };
        self.compose_new(writer, edits, root, &[only], Link { node: old, level });
        self.edit_root(writer, edits + 1, root);
        Ok((edits + 2, Some(root)))
    }

    /// Writes a new node with these entries into edit `number`.
    pub(crate) fn compose_new(
        &self,
        writer: &mut Writer<S>,
        number: usize,
        node: Node,
        entries: &[Placed],
        link: Link,
    ) {
        let newcomers: Vec<Placed> = entries.iter().map(|p| Placed { kept: None, entry: p.entry }).collect();
        L::compose(self.region.medium(), &self.shape, node, false, &newcomers, link, writer.edit(number));
    }
}
