//! Slot-only nodes: link, one word of slots, at most seven entries in any order. The columns of the table are fields of [`Change`]:
//! *fresh*, words in unused space; *over*, overwritten words in use.
//!
//! | change | fresh | over |
//! |---|---|---|
//! | insert | the entry | the slot word |
//! | delete | | the slot word |
//! | new node of c entries | c entries, link, the slot word | |
//! | split | | the new entry, if it stays in the old node; the link, if the node is a leaf; the slot word |
//!
//! A full node has no free position: a new entry that stays in it takes the lowest position that a moving entry leaves.

use bptree::shape::Shape;

use super::{Change, Cut, LINK, Nodes, Run, entries, entry, free_place, newcomer};
use crate::costs::survey::Step;

/// Layout of slot-only nodes. See the module's head.
pub struct SlotOnly;

const SLOTS: Run = Run::new(1, 1);

impl Nodes for SlotOnly {
    fn insert(&self, node: &Step) -> Change {
        let fresh = entry(&node.shape, free_place(&node.numbers).into());
        Change { fresh, ..Change::over(node.node, vec![SLOTS]) }
    }

    fn remove(&self, node: &Step) -> Change {
        Change::over(node.node, vec![SLOTS])
    }

    fn fill(&self, shape: &Shape, count: usize) -> Change {
        let mut fresh = entries(shape, 0..count);
        fresh.extend([LINK, SLOTS]);
        Change { fresh, ..Change::default() }
    }

    fn shrink(&self, node: &Step, cut: Cut) -> Change {
        let mut over = newcomer(node, cut, &self.kept(node, cut));
        over.extend(cut.relink.then_some(LINK));
        over.push(SLOTS);
        Change::over(node.node, over)
    }
}
