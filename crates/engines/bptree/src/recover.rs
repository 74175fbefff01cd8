//! Recovery of blocks, after the region has replayed the log.
//!
//! The intent ring lists the blocks that the newest operation allocated or freed: at most [`INTENTS`](pmem::region::INTENTS). A crash may
//! leave their allocation bits wrong. Recovery sets the bit of each of these blocks that the tree or its garbage (an old tree that a clear
//! left) references. It clears the bits of the other blocks in the ring.
//!
//! For each block, recovery descends the tree at most once and the garbage at most once. So the number of visited nodes is bounded by the
//! size of the intent ring and the heights of the tree and of the garbage. It does not depend on the number of keys.

use index::{Schema, owner};
use pmem::alloc::{Class, Kind};
use pmem::{Medium, Result};

use crate::commit_protocol::CommitProtocol;
use crate::layout::Layouts;
use crate::search::Scalar;
use crate::shape::{LEVELS_MAX, Link, Node};
use crate::tree::Tree;
use index::Target;

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    /// Recovers the allocation bits of the blocks in the intent ring.
    pub(crate) fn recover_blocks(&self) -> Result<()> {
        owner::recover_blocks(&self.region, |class, at| {
            Ok(self.root().0 != 0 && (self.owns(class, at) || self.garbage_owns(at)))
        })
    }

    /// True if the tree references this block. The function descends with a key that the block itself contains. If the descent arrives at
    /// the block, the block is in the tree. A free block may contain any bytes. A descent with a key from these bytes does not arrive at
    /// the block.
    pub(crate) fn owns(&self, class: Class, at: u64) -> bool {
        match class.kind {
            Kind::Leaf | Kind::Inner => class.block_bytes == self.leaf.bytes() && self.owns_node(Node(at)),
            Kind::Batch => self.region.batch().is_ok_and(|batch| batch == at),
            Kind::Record | Kind::Separator => {
                let mut key = S::KeyBuf::default();
                S::key_of_block(self.region.medium(), at, &mut key) && self.owns_record(class.kind, at, &key)
            }
            // Recovery does not ask about pieces.
            Kind::Piece => false,
        }
    }

    fn owns_node(&self, node: Node) -> bool {
        if node == self.root() {
            return true;
        }
        let medium = self.region.medium();
        let Some(link) = Link::read(medium, node) else { return false };
        let order = self.order_at(link.level, node);
        if order.is_empty() {
            return false; // T3: only the root is empty
        }
        let entry = self.entry_at(link.level, node, order.at(0));
        let mut key = S::KeyBuf::default();
        if !S::read_key(medium, entry.key, &mut key) {
            return false;
        }
        self.walk_down(&key, |at, level, _| (level == link.level).then_some(at == node)).unwrap_or(false)
    }

    pub(crate) fn owns_record(&self, kind: Kind, at: u64, key: &S::KeyBuf) -> bool {
        let probe = S::probe(S::borrow(key));
        self.walk_down(key, |node, level, _| {
            let located = self.locate_at(level, node, probe);
            let entry = located.hit.map(|index| self.entry_at(level, node, index));
            match (kind, entry) {
                (Kind::Separator, Some(entry)) if level > 0 && S::separator_block(entry.key) == Some(at) => {
                    Some(true)
                }
                (Kind::Record, Some(entry)) if level == 0 => {
                    Some(S::blocks_of(&entry).any(|block| block == at))
                }
                _ => None,
            }
        })
        .unwrap_or(false)
    }

    /// Calls `visit` with each node from the root down to the leaf for `key`, until it returns an answer.
    fn walk_down<T>(
        &self,
        key: &S::KeyBuf,
        mut visit: impl FnMut(Node, usize, usize) -> Option<T>,
    ) -> Option<T> {
        let medium = self.region.medium();
        let probe = S::probe(S::borrow(key));
        let mut node = self.root();
        for depth in 0..LEVELS_MAX {
            let link = Link::read(medium, node)?;
            if let Some(answer) = visit(node, link.level, depth) {
                return Some(answer);
            }
            if link.level == 0 {
                return None;
            }
            node = self.child::<Scalar>(node, link.node, Target::Holding(probe)).1;
        }
        None
    }
}
