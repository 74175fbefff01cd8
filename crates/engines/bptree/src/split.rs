//! Splits [wB+ §4.3]: all levels in one commit, or one node per commit from the top down.
//!
//! New nodes are written whole into unused space. Nodes that change keep their entries in place as far as the layout allows. With one
//! commit for all levels, the entry to insert is part of the split. With one commit per node, each split leaves a complete tree, and the
//! entry is inserted when its leaf has space.

use pmem::{Error, Medium, Result};

use crate::commit_protocol::CommitProtocol;
use crate::layout::{Layout, Layouts};
use crate::search::Scalar;
use crate::shape::{Link, Node, Placed};
use crate::tree::{Tree, Writer};
use index::Entry;
use index::Schema;
use index::Target;

/// The separator and the nodes that a split hands to the parent.
pub(crate) struct Rising {
    /// The separator.
    pub(crate) key: [u64; 2],
    /// The node to the left of the separator, if it is not the same as before.
    pub(crate) left: Option<Node>,
    /// The node to the right of the separator.
    pub(crate) right: Node,
    /// True if the split adds entries above all others. Then the left nodes stay almost full, for loads in ascending order.
    pub(crate) appending: bool,
}

/// Number of edits, and the new root if there is one.
pub(crate) type Prepared = (usize, Option<Node>);

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    /// Splits the full leaf at the end of `writer.own.path` and inserts `entry`.
    #[cold]
    pub(crate) fn split_leaf(
        &self,
        writer: &mut Writer<S>,
        leaf: Node,
        probe: S::Probe<'_>,
        entry: Entry<S::Tail>,
    ) -> Result<()> {
        let prepared = self.prepare_split(writer, 0, leaf, probe, Some(entry));
        self.change_prepared(writer, prepared)
    }

    /// Splits a full leaf and the full nodes above it, from the top down, until the key's leaf has space.
    #[cold]
    pub(crate) fn split_stepwise(
        &self,
        writer: &mut Writer<S>,
        mut leaf: Node,
        probe: S::Probe<'_>,
    ) -> Result<()> {
        let is_full = |level, node| self.count_at(level, node) >= self.shape_at(level).capacity;
        while is_full(0, leaf) {
            let steps = writer.own.path.steps();
            let above = steps.iter().rev().take_while(|(node, _)| is_full(1, *node)).count();
            let prepared = if above == 0 {
                self.prepare_split(writer, 0, leaf, probe, None)
            } else {
                let topmost = steps.len() - above + 1;
                let appending = steps.iter().all(|(node, rank)| *rank == self.count_at(1, *node));
                writer.own.path.truncate(topmost);
                self.prepare_inner_split(writer, appending)
            };
            self.change_prepared(writer, prepared)?;
            leaf = self.descend::<Scalar>(writer, Target::Holding(probe))?;
        }
        Ok(())
    }

    /// Commits prepared edits, or aborts the operation.
    #[cold]
    #[inline(never)]
    pub(crate) fn change_prepared(&self, writer: &mut Writer<S>, prepared: Result<Prepared>) -> Result<()> {
        let (edits, root) = prepared.map_err(|error| self.give_up(writer, error))?;
        self.change_and(writer, edits, false, || root.into_iter().for_each(|root| self.set_root(root)))
    }

    /// Writes edits from number `first` on. They split the full leaf at the end of `writer.own.path`, and insert `entry` if it is given.
    pub(crate) fn prepare_split(
        &self,
        writer: &mut Writer<S>,
        first: usize,
        leaf: Node,
        probe: S::Probe<'_>,
        entry: Option<Entry<S::Tail>>,
    ) -> Result<Prepared> {
        let link = self.link(leaf)?;
        let mut entries = self.placed(0, leaf);
        let rank = self.locate_at(0, leaf, probe).rank;
        let appending = link.node.0 == 0 && rank == entries.len();
        if let Some(entry) = entry {
            entries.insert(rank, Placed::new(entry));
        }
        let middle = if appending { entries.len() - 1 } else { entries.len() / 2 };
        let (left, right) = entries.split_at(middle);
        let sibling = self.take_node(writer, 0)?;
        let (below, above) = (&left[left.len() - 1].entry, &right[0].entry);
        let key = S::separate(&self.region, &mut writer.allocator, &mut writer.log, below, above)?;
        self.compose_new(writer, first, sibling, right, link);
        let to_sibling = Link { node: sibling, level: 0 };
        let (edits, copy) = if D::COPIES_LEAVES {
            let (edits, copy) = self.copy_leaf(writer, first + 1, leaf, left, to_sibling)?;
            (edits, Some(copy))
        } else {
            self.compose(leaf, left, to_sibling, writer.edit(first + 1));
            (first + 2, None)
        };
        self.raise(writer, edits, Rising { key, left: copy, right: sibling, appending })
    }

    /// Splits the full inner node at the end of the path. Its parent has space.
    fn prepare_inner_split(&self, writer: &mut Writer<S>, appending: bool) -> Result<Prepared> {
        let (node, _) = writer.own.path.pop().ok_or(Error::Corrupt { what: "path", at: self.root().0 })?;
        let link = self.link(node)?;
        let entries = self.placed(link.level, node);
        let rising = self.divide(writer, 0, node, &entries, link, appending)?;
        self.raise(writer, 2, rising)
    }

    /// Inserts a split's separator into the parents. Splits full parents and makes a new root if needed. The first `edits` edits exist
    /// already.
    pub(crate) fn raise(
        &self,
        writer: &mut Writer<S>,
        mut edits: usize,
        mut rising: Rising,
    ) -> Result<Prepared> {
        while let Some((parent, rank)) = writer.own.path.pop() {
            let link = self.link(parent)?;
            let entry = Entry::new(rising.key, rising.right.0);
            if self.count_at(link.level, parent) < self.inner.capacity {
                self.insert_separator(parent, rank, &entry, writer.edit(edits));
                if let Some(left) = rising.left {
                    let pointer = self.pointer(parent, rank, left)?;
                    writer.edit(edits).switch.push(pointer);
                }
                return Ok((edits + 1, None));
            }
            let mut entries = self.placed(link.level, parent);
            let mut leftmost = link.node;
            match (rising.left, rank.checked_sub(1)) {
                (None, _) => {}
                (Some(left), None) => leftmost = left,
                (Some(left), Some(rank)) => {
                    entries[rank] = Placed::new(Entry::new(entries[rank].entry.key, left.0));
                }
            }
            let at_end = rising.appending && rank == entries.len();
            entries.insert(rank, Placed::new(entry));
            let link = Link { node: leftmost, ..link };
            rising = self.divide(writer, edits, parent, &entries, link, at_end)?;
            edits += 2;
        }
        let old = rising.left.unwrap_or_else(|| self.root());
        let level = self.link(self.root())?.level + 1;
        let root = self.take_node(writer, level)?;
        let only = Placed::new(Entry::new(rising.key, rising.right.0));
        self.compose_new(writer, edits, root, &[only], Link { node: old, level });
        self.edit_root(writer, edits + 1, root);
        Ok((edits + 2, Some(root)))
    }

    /// Splits an inner node's entries between the node and a new right sibling: two edits from `first` on.
    fn divide(
        &self,
        writer: &mut Writer<S>,
        first: usize,
        node: Node,
        entries: &[Placed<S::Tail>],
        link: Link,
        appending: bool,
    ) -> Result<Rising> {
        let middle = if appending { entries.len() - 2 } else { entries.len() / 2 };
        let promoted = entries[middle].entry;
        let sibling = self.take_node(writer, link.level)?;
        let right_link = Link { node: Node(promoted.payload), level: link.level };
        self.compose_new(writer, first, sibling, &entries[middle + 1..], right_link);
        self.compose(node, &entries[..middle], link, writer.edit(first + 1));
        Ok(Rising { key: promoted.key, left: None, right: sibling, appending })
    }

    /// The word of an inner node that references child `rank`, and its new content.
    pub(crate) fn pointer(&self, parent: Node, rank: usize, child: Node) -> Result<(u64, u64)> {
        let medium = self.region.medium();
        let link = self.link(parent)?;
        Ok(match rank.checked_sub(1) {
            None => (parent.0, Link { node: child, ..link }.word()),
            Some(rank) => {
                let index = L::Inner::nth::<_, S>(medium, &self.inner, parent, rank);
                (self.inner.payload_at(parent, index), child.0)
            }
        })
    }

    /// A node's link.
    pub(crate) fn link(&self, node: Node) -> Result<Link> {
        Link::read(self.region.medium(), node).ok_or(Error::Corrupt { what: "node", at: node.0 })
    }
}
