//! Lookups at any pinned version, concurrent with the writer [thesis algorithm 1].
//!
//! A lookup validates each node when it has read the node. It need not read the nodes above it again, because the entries of a pinned
//! version stay valid (T1 of `tree`). Only a root may be freed while a reader uses it: when the tree loses a level, the root is freed and
//! its only child becomes the root. When the tree loses another level, that child is freed, too.

use index::Schema;
use index::Target;
use pmem::simd::Wide;
use pmem::stripe::Version;
use pmem::sync::Ordering;
use pmem::{Error, Medium, Result};

use crate::entry_order::{Look, Order};
use crate::node::{Entry, Header, LEVELS_MAX, Node, compare_words};
use crate::ordered::Tree;
use crate::version::View;

/// The result of a search in an inner node.
pub(crate) struct Turn {
    pub child: Node,
    /// Key word of the child.
    pub low: u64,
    /// Key word of the next child.
    pub high: Option<u64>,
}

/// The path from the root to a leaf.
pub(crate) struct Way {
    nodes: [Node; LEVELS_MAX],
    length: usize,
}

impl Way {
    /// The leaf at the end of the path.
    pub(crate) fn leaf(&self) -> Node {
        self.nodes[self.length - 1]
    }
}

impl std::ops::Deref for Way {
    type Target = [Node];
    fn deref(&self) -> &[Node] {
        &self.nodes[..self.length]
    }
}

/// A leaf, as a reader found it.
pub(crate) struct Leaf {
    pub node: Node,
    pub version: Version,
    /// Key word of its lower bound, unless it is the first leaf.
    pub low: Option<u64>,
    /// Key word of its upper bound, unless it is the last leaf.
    pub high: Option<u64>,
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>, O: Order> Tree<M, S, O> {
    /// The entry of `key` in a view of a pinned version or of a newer one.
    pub(crate) fn find_in(&self, view: &View, key: &S::Key) -> Result<Option<Entry>> {
        self.wide(
            #[inline(always)]
            || {
                let probe = S::probe(key);
                let mut tries = self.stripes.tries();
                loop {
                    let leaf = self.find_leaf(view, Target::Holding(probe))?;
                    let entry = self.seen_at(leaf.node, view, probe).next().map(|(_, entry)| entry);
                    if self.stripes.check(leaf.version) {
                        return Ok(entry);
                    }
                    tries.fail()?;
                }
            },
        )
    }

    /// Runs `body`. If nodes are compared by vector instructions ([`crate::simd_scan`]), `body` is compiled for them.
    #[inline(always)]
    pub(crate) fn wide<R>(&self, body: impl FnOnce() -> R) -> R {
        match self.vectors() {
            Some(vectors) => vectors.run(body),
            None => body(),
        }
    }

    /// The vector instructions for nodes. `None` on a medium that counts reads: its numbers must be the same on every processor.
    #[inline(always)]
    fn vectors(&self) -> Option<Wide> {
        self.shape.vectors.filter(|_| M::SHOWS_LINES && (S::PLAIN || S::LEADING))
    }

    /// Entries of a leaf with this key that the view sees. After a crash there may be a copy of the entry.
    #[inline(always)]
    pub(crate) fn seen_at<'a>(
        &'a self,
        leaf: Node,
        view: &'a View,
        probe: S::Probe<'a>,
    ) -> impl Iterator<Item = (usize, Entry)> {
        let look = self.look(leaf, view);
        O::holding::<M, S>(look, probe).map(move |slot| (slot, leaf.entry(look.medium, slot)))
    }

    /// The child of an inner node for `target`. `None` if there is none (a race, or damage).
    #[inline(always)]
    pub(crate) fn turn(&self, view: &View, node: Node, target: Target<S::Probe<'_>>) -> Option<Turn> {
        let (link, next) = O::links::<M, S>(self.look(node, view), target)?;
        Some(Turn { child: Node(link.payload), low: link.key, high: next.map(|next| next.key) })
    }

    #[inline]
    pub(crate) fn look<'a>(&'a self, node: Node, view: &'a View) -> Look<'a, M> {
        Look { node, medium: self.region.medium(), shape: &self.shape, view }
    }

    /// Slots that are not void, with their entries, by key and start.
    pub(crate) fn used_by_key(&self, node: Node, view: &View) -> impl Iterator<Item = (usize, Entry)> {
        let medium = self.region.medium();
        O::by_key::<M, S>(medium, node.used(medium, &self.shape, view))
    }

    /// Slots and entries that the view sees, by key, each entry once.
    pub(crate) fn seen_by_key(&self, node: Node, view: &View) -> Vec<(usize, Entry)> {
        let medium = self.region.medium();
        O::by_key::<M, S>(medium, node.seen(medium, &self.shape, view).into_iter()).collect()
    }

    /// The leaf for `target`, and its lock version, which was read before the leaf was validated as the right one.
    #[inline(always)]
    pub(crate) fn find_leaf(&self, view: &View, target: Target<S::Probe<'_>>) -> Result<Leaf> {
        let medium = self.region.medium();
        let mut tries = self.stripes.tries();
        'again: loop {
            let mut node = Node(self.root.load(Ordering::Acquire));
            let mut version = self.stripes.read(node.0);
            if self.root.load(Ordering::Acquire) != node.0 {
                continue; // the root may have been freed before its version was read
            }
            let (mut low, mut high) = (None, None);
            // The level and the lower bound that the node has according to the link. If the node does not match, the link is damaged: it
            // leads to a sound node without the key.
            let mut promised: Option<(usize, u64)> = None;
            loop {
                let header = Header::read(medium, node);
                let level = header.map(|header| header.level);
                let fits = promised.is_none_or(|(level, low)| {
                    header.is_some_and(|header| header.level + 1 == level && self.is_bound(&header, low))
                });
                let turn = match level {
                    Some(1..) => self.turn(view, node, target),
                    _ => None,
                };
                if level == Some(0) && fits {
                    // The caller reads the leaf and validates it.
                    return Ok(Leaf { node, version, low, high });
                }
                // The child's version must be read before this node is validated: if the node is valid then, the child was in its place.
                // (When a root is freed and its child becomes the root, the child may be freed next and its block reused.)
                let child = turn.as_ref().map(|turn| {
                    self.ask_for(turn.child);
                    self.stripes.read(turn.child.0)
                });
                if !self.stripes.check(version) {
                    tries.fail()?;
                    continue 'again;
                }
                let (Some(turn), Some(child)) = (turn.filter(|_| fits), child) else {
                    return Err(Error::Corrupt { what: "node", at: node.0 });
                };
                // A node's lowest key is that of its first child, so the first child's key is no new bound.
                low = if turn.low == header.map_or(0, |header| header.low) { low } else { Some(turn.low) };
                high = turn.high.or(high);
                promised = level.map(|level| (level, turn.low));
                (node, version) = (turn.child, child);
            }
        }
    }

    /// True if a node's lowest key is the key of the link to it. Comparing the words suffices and reads no other line, unless two
    /// separators have equal keys.
    #[inline(always)]
    fn is_bound(&self, header: &Header, low: u64) -> bool {
        header.low == low || self.is_same_bound(header.low, low)
    }

    #[cold]
    fn is_same_bound(&self, left: u64, right: u64) -> bool {
        compare_words::<M, S>(self.region.medium(), [left, 0], [right, 0]).is_eq()
    }

    /// Prefetches a node that will be searched next. The vector search reads all lines at once, so it needs no prefetch.
    #[inline]
    fn ask_for(&self, node: Node) {
        if self.vectors().is_none() {
            self.region.medium().prefetch(node.0, self.shape.bytes);
        }
    }

    /// As [`Tree::path_in`], for callers outside of [`Tree::wide`].
    pub(crate) fn path(&self, view: &View, root: u64, probe: S::Probe<'_>) -> Result<Way> {
        self.wide(
            #[inline(always)]
            || self.path_in(view, root, probe),
        )
    }

    /// The writer's path from the root to the leaf for `probe`.
    ///
    /// # Errors
    /// `Corrupt` if a node is damaged.
    #[inline(always)]
    pub(crate) fn path_in(&self, view: &View, root: u64, probe: S::Probe<'_>) -> Result<Way> {
        let medium = self.region.medium();
        let mut node = Node(root);
        let corrupt = |node: Node| Error::Corrupt { what: "node", at: node.0 };
        let mut level = Header::read(medium, node).ok_or_else(|| corrupt(node))?.level;
        let mut way = Way { nodes: [node; LEVELS_MAX], length: 1 };
        while level > 0 {
            let turn = self.turn(view, node, Target::Holding(probe)).ok_or_else(|| corrupt(node))?;
            (node, level) = (turn.child, level - 1);
            self.ask_for(node);
            let header = Header::at_level(medium, node, level)?;
            if !self.is_bound(&header, turn.low) {
                return Err(corrupt(node));
            }
            way.nodes[way.length] = node;
            way.length += 1;
        }
        Ok(way)
    }
}
