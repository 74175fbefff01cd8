//! The directory: a B+-tree of volatile inner nodes over the leaves.
//!
//! One writer changes it. Readers take no lock: [`index::leaf_list::Core::changes`] is odd during a change, and a reader whose descent
//! overlapped a change tries again. A descent through nodes that are being changed ends at some address or at 0, never in a fault: node
//! numbers are checked, and the number of levels is bounded.
//!
//! Invariants:
//! * D1: the children of the lowest level are leaves of the list, in key order, each once. The separator of a leaf is its lower bound.
//!   While the index is loading, the directory may lack leaves (`load`); otherwise it has all of them.
//! * D2: the first child of a node stays its first child until the node joins its left neighbour. So the separator of a node is always the
//!   lower bound of its first leaf.

use std::sync::OnceLock;

use index::Schema;
use index::leaf_list::Following;
use pmem::simd::{Body, Vectors};
use pmem::sync::{AtomicU64, Ordering};
use pmem::{LINE, Medium};

use crate::node::{Child, Node, Nodes, fanout, node_bytes};

/// Nodes of the first chunk; each further chunk has twice as many as the one before.
const FIRST_CHUNK: u64 = 64;
/// Number of chunks: space for almost 2^38 nodes.
const CHUNKS: usize = 32;
/// Maximum number of levels. With two children in each node, this number of levels lead to more leaves than fit into a region.
const LEVELS_MAX: u64 = 48;
/// Maximum number of children of a node after the directory was built from the list.
const fn fill<S: Schema>() -> usize {
    fanout::<S>() * 3 / 4
}

/// Number of descents that advance together.
const TOGETHER: usize = 16;
/// A node with fewer children is merged with a neighbour if both together have at most [`fill`].
const fn sparse<S: Schema>() -> usize {
    fanout::<S>() / 4
}

/// A node on the way to a leaf, and the position of the child that was taken.
#[derive(Clone, Copy, Debug)]
struct Stop {
    node: u64,
    i: usize,
}

/// The directory. See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    chunks: [OnceLock<Nodes>; CHUNKS],
    /// Number of the root node, and the number of levels in the lowest 8 bits. The number of a node is its position in its chunk times
    /// [`CHUNKS`], plus the chunk's number.
    root: AtomicU64,
    leaves: AtomicU64,
    nodes: AtomicU64,
}

/// The unused nodes. Only the writer uses it.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    /// Numbers of nodes that were in use.
    free: Vec<u64>,
    /// Count of all nodes that were ever in use.
    next: u64,
}

impl Directory {
    #[inline(always)]
    fn node(&self, number: u64) -> Option<Node<'_>> {
        let (chunk, i) = (number % CHUNKS as u64, number / CHUNKS as u64);
        self.chunks[chunk as usize].get()?.get(i as usize)
    }

    #[inline(always)]
    fn root(&self) -> (u64, u64) {
        let root = self.root.load(Ordering::Acquire);
        (root >> 8, root & 0xFF)
    }

    /// Number of leaves.
    pub(crate) fn leaves(&self) -> u64 {
        self.leaves.load(Ordering::Relaxed)
    }

    /// Bytes of the nodes.
    pub(crate) fn memory<S: Schema>(&self) -> u64 {
        self.nodes.load(Ordering::Relaxed) * node_bytes::<S>() as u64
    }

    /// The leaf of a key; if `below` is set, of the keys strictly below it. Any address or 0 during a change. O(levels).
    #[inline(always)]
    pub(crate) fn leaf_of<M: Medium, S: Schema>(
        &self,
        medium: &M,
        vectors: Option<Vectors>,
        key: &S::Key,
        below: bool,
    ) -> u64 {
        let (mut at, levels) = self.root();
        for level in 1..=levels {
            let Some(node) = self.node(at) else { return 0 };
            if level == levels {
                // The nodes above are in the cache.
                node.prefetch::<true, S>();
            }
            at = node.child::<S>(node.position::<M, S>(medium, vectors, key, below));
        }
        at * LINE
    }

    /// As [`Directory::leaf_of`]. Sets `following` to the leaves after this one in the same node.
    #[inline(always)]
    pub(crate) fn leaf_to_scan<M: Medium, S: Schema>(
        &self,
        medium: &M,
        vectors: Option<Vectors>,
        (key, below): (&S::Key, bool),
        following: &mut Following,
    ) -> u64 {
        let (mut at, levels) = self.root();
        let mut lowest = None;
        for _ in 0..levels {
            let Some(node) = self.node(at) else { return 0 };
            node.prefetch::<true, S>();
            let i = node.position::<M, S>(medium, vectors, key, below);
            at = node.child::<S>(i);
            lowest = Some((node, i));
        }
        if let Some((node, i)) = lowest {
            let leaf = |i| node.child::<S>(i) * LINE;
            if following.is_descending() {
                following.set((0..i).rev().map(leaf));
            } else {
                following.set((i + 1..node.count::<S>()).map(leaf));
            }
        }
        at * LINE
    }

    /// Replaces each key's entry in `leaves` by its leaf, as [`Directory::leaf_of`] returns it. The descents advance together, so their
    /// cache misses overlap.
    #[inline(always)]
    pub(crate) fn leaves_of<M: Medium, S: Schema>(
        &self,
        medium: &M,
        vectors: Option<Vectors>,
        keys: &[&S::Key],
        leaves: &mut [u64],
    ) {
        let (root, levels) = self.root();
        leaves.fill(root);
        for (keys, leaves) in keys.chunks(TOGETHER).zip(leaves.chunks_mut(TOGETHER)) {
            let (mut nodes, mut positions) = ([self.node(root); TOGETHER], [0; TOGETHER]);
            for level in 1..=levels {
                for ((key, node), i) in keys.iter().zip(&nodes).zip(&mut positions) {
                    if let Some(node) = node {
                        *i = node.position::<M, S>(medium, vectors, key, false);
                        node.prefetch_child::<S>(*i);
                    }
                }
                for ((at, node), i) in leaves.iter_mut().zip(&mut nodes).zip(&positions) {
                    *at = node.map_or(0, |node| node.child::<S>(*i));
                    if level < levels {
                        *node = self.node(*at);
                        if let Some(node) = node {
                            node.prefetch::<false, S>();
                        }
                    }
                }
            }
        }
        leaves.iter_mut().for_each(|at| *at *= LINE);
    }

    /// The last leaf. Any address or 0 during a change.
    pub(crate) fn last_leaf<S: Schema>(&self) -> u64 {
        let (mut at, levels) = self.root();
        for _ in 0..levels {
            let Some(node) = self.node(at) else { return 0 };
            at = node.child::<S>(node.count::<S>().saturating_sub(1));
        }
        at * LINE
    }

    /// The left neighbour of a key's leaf, the leaf, and its right neighbour. A neighbour is 0 if it is not in the same node of the lowest
    /// level. Only the writer calls this.
    pub(crate) fn siblings<M: Medium, S: Schema>(
        &self,
        medium: &M,
        vectors: Option<Vectors>,
        key: &S::Key,
    ) -> (u64, u64, u64) {
        let path = self.path::<M, S>(medium, vectors, key);
        let Some((node, i)) = path.last().and_then(|stop| Some((self.node(stop.node)?, stop.i))) else {
            return (0, 0, 0);
        };
        let left = if i > 0 { node.child::<S>(i - 1) } else { 0 };
        let right = if i + 1 < node.count::<S>() { node.child::<S>(i + 1) } else { 0 };
        (left * LINE, node.child::<S>(i) * LINE, right * LINE)
    }

    fn path<M: Medium, S: Schema>(&self, medium: &M, vectors: Option<Vectors>, key: &S::Key) -> Vec<Stop> {
        match vectors {
            Some(vectors) if M::SHOWS_LINES => vectors.run_body(Path::<M, S>(self, medium, key)),
            _ => Path::<M, S>(self, medium, key).run(None),
        }
    }

    /// Builds the directory of these leaves, which are in key order. Only the writer calls this, during a change.
    pub(crate) fn build<M: Medium, S: Schema>(&self, medium: &M, spare: &mut Spare, leaves: Vec<Child>) {
        *spare = Spare::default();
        self.nodes.store(0, Ordering::Relaxed);
        self.leaves.store(leaves.len() as u64, Ordering::Relaxed);
        let (mut level, mut levels) = (leaves, 0);
        while level.len() > 1 || levels == 0 {
            level =
                level.chunks(fill::<S>()).map(|children| self.add::<M, S>(medium, spare, children)).collect();
            levels += 1;
        }
        let root = level.first().map_or(0, |root| root.at);
        self.root.store(root << 8 | levels, Ordering::Release);
    }

    /// Adds a node with these children. Returns it as a child of the level above.
    fn add<M: Medium, S: Schema>(&self, medium: &M, spare: &mut Spare, children: &[Child]) -> Child {
        let number = spare.free.pop().unwrap_or_else(|| {
            let shifted = spare.next + FIRST_CHUNK;
            let chunk = (shifted / FIRST_CHUNK).ilog2();
            let nodes = FIRST_CHUNK << chunk;
            spare.next += 1;
            self.chunks[chunk as usize].get_or_init(|| Nodes::new::<S>(nodes as usize));
            (shifted - nodes) * CHUNKS as u64 + u64::from(chunk)
        });
        if let Some(node) = self.node(number) {
            node.fill::<M, S>(medium, children);
        }
        self.nodes.fetch_add(1, Ordering::Relaxed);
        Child { bound: children.first().map_or(0, |first| first.bound), at: number }
    }

    fn drop_node(&self, spare: &mut Spare, number: u64) {
        self.nodes.fetch_sub(1, Ordering::Relaxed);
        spare.free.push(number);
    }

    /// Adds a leaf with the lower bound `key` after the leaf that held this key until now. Only the writer calls this, during a change.
    pub(crate) fn insert<M: Medium, S: Schema>(
        &self,
        (medium, vectors): (&M, Option<Vectors>),
        spare: &mut Spare,
        key: &S::Key,
        leaf: Child,
    ) {
        let path = self.path::<M, S>(medium, vectors, key);
        self.leaves.fetch_add(1, Ordering::Relaxed);
        let mut child = leaf;
        for stop in path.iter().rev() {
            let Some(node) = self.node(stop.node) else { return };
            if node.count::<S>() < fanout::<S>() {
                return node.insert::<M, S>(medium, stop.i + 1, child);
            }
            let mut children = node.children::<S>();
            children.insert(stop.i + 1, child);
            // If leaves are added in key order, the left node keeps most of its children.
            let is_append = stop.i + 1 == fanout::<S>();
            let right = children.split_off(if is_append { fill::<S>() } else { fanout::<S>() / 2 });
            node.fill::<M, S>(medium, &children);
            child = self.add::<M, S>(medium, spare, &right);
        }
        let (root, levels) = self.root();
        debug_assert!(levels < LEVELS_MAX);
        // Only the first leaf of the list has no bound, and it is in the root's first child.
        let new = self.add::<M, S>(medium, spare, &[Child { bound: 0, at: root }, child]);
        self.root.store(new.at << 8 | (levels + 1), Ordering::Release);
    }

    /// Removes the leaf whose lower bound is `key`. It must not be the first child of its node. Only the writer calls this, during a
    /// change.
    pub(crate) fn remove<M: Medium, S: Schema>(
        &self,
        (medium, vectors): (&M, Option<Vectors>),
        spare: &mut Spare,
        key: &S::Key,
    ) {
        let path = self.path::<M, S>(medium, vectors, key);
        self.leaves.fetch_sub(1, Ordering::Relaxed);
        let mut gone = path.last().copied();
        for up in (0..path.len()).rev() {
            let Some(stop) = gone.take() else { return };
            let Some(node) = self.node(stop.node) else { return };
            node.remove::<S>(stop.i);
            if node.count::<S>() >= sparse::<S>() || up == 0 {
                break;
            }
            let above = path[up - 1];
            let Some(parent) = self.node(above.node) else { return };
            // The children of the right node of two neighbours move to the left node.
            for right in [above.i, above.i + 1] {
                if right == 0 || right >= parent.count::<S>() {
                    continue;
                }
                let (left_at, right_at) = (parent.child::<S>(right - 1), parent.child::<S>(right));
                let (Some(left), Some(of_right)) = (self.node(left_at), self.node(right_at)) else {
                    return;
                };
                if left.count::<S>() + of_right.count::<S>() <= fill::<S>() {
                    let mut children = left.children::<S>();
                    children.extend(of_right.children::<S>());
                    left.fill::<M, S>(medium, &children);
                    self.drop_node(spare, right_at);
                    gone = Some(Stop { node: above.node, i: right });
                    break;
                }
            }
            if gone.is_none() {
                break;
            }
        }
        loop {
            let (root, levels) = self.root();
            let Some(node) = self.node(root).filter(|node| levels > 1 && node.count::<S>() == 1) else {
                return;
            };
            self.root.store(node.child::<S>(0) << 8 | (levels - 1), Ordering::Release);
            self.drop_node(spare, root);
        }
    }
}

/// The way to the leaf of a key.
struct Path<'a, M, S: Schema>(&'a Directory, &'a M, &'a S::Key);

impl<M: Medium, S: Schema> Body for Path<'_, M, S> {
    type Out = Vec<Stop>;
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> Vec<Stop> {
        let Self(directory, medium, key) = self;
        let (mut at, levels) = directory.root();
        let mut path = Vec::with_capacity(levels as usize);
        for _ in 0..levels {
            let Some(node) = directory.node(at) else { break };
            node.prefetch::<true, S>();
            let i = node.position::<M, S>(medium, vectors, key, false);
            path.push(Stop { node: at, i });
            at = node.child::<S>(i);
        }
        path
    }
}
