//! Sorted nodes: link, number of entries, keys in order, payloads in the same order.
//!
//! m is the number of entries before the change, r the rank of the entry. The columns are fields of [`Change`]: *fresh*, words in unused
//! space; *over*, overwritten words in use:
//!
//! | change | fresh | over |
//! |---|---|---|
//! | insert | | m - r entries that move up by one position, the entry, the number of entries |
//! | delete | | m - 1 - r entries that move down by one position, the number of entries |
//! | new node of c entries | c entries, link, the number of entries | |
//! | split | | the new entry and the entries after it, if the new entry stays in the old node; the link, if the node is a leaf; the number of entries |
//!
//! The position after the last entry counts as in use, as in the paper: an insert logs every word that it moves.

use bptree::shape::Shape;

use super::{Change, Cut, LINK, Nodes, Run, entries};
use crate::costs::survey::Step;

/// Layout of sorted nodes. See the module's head.
pub struct Sorted;

const NUMBER: Run = Run::new(1, 1);

impl Nodes for Sorted {
    fn insert(&self, node: &Step) -> Change {
        let mut over = entries(&node.shape, node.rank..node.count() + 1);
        over.push(NUMBER);
        Change::over(node.node, over)
    }

    fn remove(&self, node: &Step) -> Change {
        let mut over = entries(&node.shape, node.rank..node.count() - 1);
        over.push(NUMBER);
        Change::over(node.node, over)
    }

    fn fill(&self, shape: &Shape, count: usize) -> Change {
        let mut fresh = entries(shape, 0..count);
        fresh.extend([LINK, NUMBER]);
        Change { fresh, ..Change::default() }
    }

    fn shrink(&self, node: &Step, cut: Cut) -> Change {
        let shifted = cut.join.map_or(0..0, |rank| rank..cut.keep + 1);
        let mut over = entries(&node.shape, shifted);
        over.extend(cut.relink.then_some(LINK));
        over.push(NUMBER);
        Change::over(node.node, over)
    }

    fn inserted(&self, node: &Step) -> Vec<u16> {
        (0..=node.count() as u16).collect()
    }

    fn kept(&self, _node: &Step, cut: Cut) -> Vec<u16> {
        (0..(cut.keep + usize::from(cut.join.is_some())) as u16).collect()
    }
}
