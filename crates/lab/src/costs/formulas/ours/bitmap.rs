//! Bitmap-only nodes: link, bitmap words, entries in any order. The columns of the table are fields of [`Change`]: *fresh*, words in unused
//! space; *over*, overwritten words in use.
//!
//! | change | fresh | over |
//! |---|---|---|
//! | insert | the entry | its bitmap word |
//! | delete | | its bitmap word |
//! | new node of c entries | c entries, link, bitmap | |
//! | split | | the new entry, if it stays in the old node; the link, if the node is a leaf; bitmap words that differ |
//!
//! A full node has no free position: a new entry that stays in it takes the lowest position that a moving entry leaves.

use bptree::shape::Shape;

use super::{
    Change, Cut, GROUP, LINK, Nodes, Run, bitmap_words, differing, entries, entry, free_place, newcomer,
};
use crate::costs::survey::Step;

/// Layout of bitmap-only nodes. See the module's head.
pub struct Bitmap {
    /// Number of words of the bitmap.
    pub groups: usize,
}

fn bitmap_of(place: u16) -> Run {
    Run::new(1 + u64::from(place / GROUP), 1)
}

impl Nodes for Bitmap {
    fn insert(&self, node: &Step) -> Change {
        let place = free_place(&node.numbers);
        let fresh = entry(&node.shape, place.into());
        Change { fresh, ..Change::over(node.node, vec![bitmap_of(place)]) }
    }

    fn remove(&self, node: &Step) -> Change {
        Change::over(node.node, vec![bitmap_of(node.numbers[node.rank])])
    }

    fn fill(&self, shape: &Shape, count: usize) -> Change {
        let mut fresh = entries(shape, 0..count);
        fresh.extend([LINK, Run::new(1, self.groups as u64)]);
        Change { fresh, ..Change::default() }
    }

    fn shrink(&self, node: &Step, cut: Cut) -> Change {
        let kept = self.kept(node, cut);
        let mut over = newcomer(node, cut, &kept);
        over.extend(cut.relink.then_some(LINK));
        let bitmap = |numbers: &[u16]| bitmap_words(numbers, self.groups);
        over.extend(differing(1, &bitmap(&node.numbers), &bitmap(&kept)));
        Change::over(node.node, over)
    }
}
