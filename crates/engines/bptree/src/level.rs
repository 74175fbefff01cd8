//! Functions on nodes of either kind, for code that knows a node's level only at run time: splits, merges, recovery and the check.

use pmem::Medium;

use crate::commit_protocol::CommitProtocol;
use crate::layout::{Layout, Layouts, Located};
use crate::search::Scalar;
use crate::shape::{Edit, Link, Node, Order, Placed, Shape};
use crate::tree::{Tree, Writer};
use index::Entry;
use index::Schema;

/// Calls a function of a level's layout: `at_level!(tree, level, count(node))`. The function gets the tree's medium and the level's shape
/// as its first arguments.
macro_rules! at_level {
    ($tree:expr, $level:expr, $run:ident($($argument:expr),* $(,)?)) => {
        if $level == 0 {
            <L::Leaf>::$run($tree.region.medium(), &$tree.leaf, $($argument),*)
        } else {
            <L::Inner>::$run($tree.region.medium(), &$tree.inner, $($argument),*)
        }
    };
    ($tree:expr, $level:expr, $run:ident::<$($parameter:ty),*>($($argument:expr),* $(,)?)) => {
        if $level == 0 {
            <L::Leaf>::$run::<$($parameter),*>($tree.region.medium(), &$tree.leaf, $($argument),*)
        } else {
            <L::Inner>::$run::<$($parameter),*>($tree.region.medium(), &$tree.inner, $($argument),*)
        }
    };
}

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    /// Geometry of the nodes of a level.
    pub(crate) fn shape_at(&self, level: usize) -> &Shape {
        if level == 0 { &self.leaf } else { &self.inner }
    }

    /// Number of entries.
    pub(crate) fn count_at(&self, level: usize, node: Node) -> usize {
        at_level!(self, level, count(node))
    }

    /// Entry numbers in key order.
    #[inline(never)]
    pub(crate) fn order_at(&self, level: usize, node: Node) -> Order<L::Words> {
        at_level!(self, level, order::<_, S>(node))
    }

    /// Finds a key.
    #[inline(never)]
    pub(crate) fn locate_at(&self, level: usize, node: Node, probe: S::Probe<'_>) -> Located {
        at_level!(self, level, locate::<_, S, Scalar>(node, probe))
    }

    /// Reads an entry.
    pub(crate) fn entry_at(&self, level: usize, node: Node, index: usize) -> Entry<S::Tail> {
        self.shape_at(level).entry(self.region.medium(), node, index)
    }

    /// Describes a fault of the node alone. `None` if there is none.
    pub(crate) fn fault_at(&self, level: usize, node: Node) -> Option<&'static str> {
        at_level!(self, level, fault(node))
    }

    /// The node's entries in key order, each with its place.
    #[inline(never)]
    pub(crate) fn placed(&self, level: usize, node: Node) -> Vec<Placed<S::Tail>> {
        let place = |index| Placed { kept: Some(index as u8), entry: self.entry_at(level, node, index) };
        self.order_at(level, node).iter().map(place).collect()
    }

    /// Replaces the entries and the link of a node in use.
    #[inline(never)]
    pub(crate) fn compose(&self, node: Node, entries: &[Placed<S::Tail>], link: Link, edit: &mut Edit) {
        at_level!(self, link.level, compose(node, true, entries, link, edit));
    }

    /// Writes a new node with these entries into edit `number`.
    #[inline(never)]
    pub(crate) fn compose_new(
        &self,
        writer: &mut Writer<S>,
        number: usize,
        node: Node,
        entries: &[Placed<S::Tail>],
        link: Link,
    ) {
        let newcomers: Vec<_> = entries.iter().map(|placed| Placed::new(placed.entry)).collect();
        let edit = writer.edit(number);
        at_level!(self, link.level, compose(node, false, &newcomers, link, edit));
    }

    /// Inserts a separator with its right child at `rank` of a parent that has space.
    #[inline(never)]
    pub(crate) fn insert_separator(
        &self,
        parent: Node,
        rank: usize,
        entry: &Entry<S::Tail>,
        edit: &mut Edit,
    ) {
        let medium = self.region.medium();
        L::Inner::insert::<_, S, S::Tail>(medium, &self.inner, parent, rank, entry, edit);
    }

    /// Removes the separator with this rank from a parent.
    #[inline(never)]
    pub(crate) fn remove_separator(&self, parent: Node, rank: usize, edit: &mut Edit) {
        let medium = self.region.medium();
        let index = L::Inner::nth::<_, S>(medium, &self.inner, parent, rank);
        L::Inner::remove::<_, S>(medium, &self.inner, parent, rank, index, edit);
    }
}
