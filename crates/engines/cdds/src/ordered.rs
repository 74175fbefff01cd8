//! The parts of the tree: what its structure, a change of it and a pass of its collector keep.

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

/// Keys have an order, and `O` says whether the entries of a node are kept in it.
pub struct Ordered<S, O = Sorted> {
    /// Nodes that were replaced since open. Only the writer's.
    pub(crate) retired: AtomicU64,
    pub(crate) parts: PhantomData<fn() -> (S, O)>,
}

/// What a change of a tree keeps.
pub struct Part {
    pub(crate) horizon: u64,
    /// Blocks that an entry of this version named and names no more; who else does is asked at the end.
    pub(crate) dropped: Vec<(Kind, u64)>,
    /// Nodes that were inserted into since the last fence.
    pub(crate) unfenced: Vec<Node>,
    /// Nodes are being split by a key above all others.
    pub(crate) appends: bool,
}

/// A pass through the tree.
#[derive(Debug, Default)]
pub struct Pass {
    /// Key word's bytes of the next leaf's lower bound; none: the first leaf.
    pub(crate) next: Option<Vec<u8>>,
    /// Dead intervals whose traces this pass removes.
    pub(crate) removes: Vec<Interval>,
    /// Nodes that had been replaced when it began.
    pub(crate) retired: u64,
    /// It removes the traces of the version in flight, too.
    pub(crate) doubt: bool,
    /// Nodes of retained versions that were cleaned.
    pub(crate) met: HashSet<Node>,
}
