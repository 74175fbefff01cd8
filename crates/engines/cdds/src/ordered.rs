//! The parts of the tree: the data of its structure, of a change, and of a pass of its collector.

use std::collections::HashSet;
use std::marker::PhantomData;

use pmem::alloc::Kind;
use pmem::sync::AtomicU64;

use crate::entry_order::Sorted;
use crate::node::Node;
use crate::structure::{self, Versioned};
use crate::version::Interval;

/// A CDDS B-Tree over a medium.
pub type Tree<M, S, O = Sorted> = Versioned<M, Ordered<S, O>>;
pub(crate) type Writer = structure::Writer<Pass>;
pub(crate) type Change<'a> = structure::Change<'a, Pass, Part>;

/// The structure with ordered keys. `O` is the order of the entries in a node.
pub struct Ordered<S, O = Sorted> {
    /// Number of nodes that were replaced since the open. Only the writer uses it.
    pub(crate) retired: AtomicU64,
    pub(crate) parts: PhantomData<fn() -> (S, O)>,
}

/// The tree's part of a change.
pub struct Part {
    pub(crate) horizon: u64,
    /// Blocks that lost the reference of an entry of this version. Other references are searched for at the end.
    pub(crate) dropped: Vec<(Kind, u64)>,
    /// Nodes that got entries since the last fence.
    pub(crate) unfenced: Vec<Node>,
    /// True if nodes are split for a key above all others.
    pub(crate) appends: bool,
}

/// A pass through the tree.
#[derive(Debug, Default)]
pub struct Pass {
    /// Bytes of the next leaf's lower bound; `None`: the first leaf.
    pub(crate) next: Option<Vec<u8>>,
    /// Dead intervals whose traces this pass removes.
    pub(crate) removes: Vec<Interval>,
    /// Number of replaced nodes when the pass began.
    pub(crate) retired: u64,
    /// True if it also removes the traces of the version in flight.
    pub(crate) doubt: bool,
    /// Nodes of retained versions that were cleaned.
    pub(crate) met: HashSet<Node>,
}
