//! Slot+bitmap nodes: link, bitmap words, a slot array (one byte for the number of entries and one for each entry), entries in any order.
//!
//! m is the number of entries before the change. The columns are fields of [`Change`]: *fresh*, words in unused space; *guarded*, words
//! that are meaningful only while the valid bit of the slot array is set; *over*, overwritten words in use:
//!
//! | change | fresh | guarded | over |
//! |---|---|---|---|
//! | insert | the entry | ⌈(m + 2) / 8⌉ slot words | the entry's bitmap word |
//! | delete | | ⌈m / 8⌉ slot words | the entry's bitmap word |
//! | new node of c entries | c entries, ⌈(c + 1) / 8⌉ slot words, link, bitmap | | |
//! | split | | | the new entry, if it stays in the old node; slot and bitmap words that differ; the link, if the node is a leaf |
//!
//! At a split the old node has no free position. If the new entry belongs to the old node, it takes the lowest position of the entries that
//! move to the new node.

use bptree::shape::Shape;

use super::{
    Change, Cut, GROUP, LINK, Nodes, Run, bitmap_words, differing, entries, entry, free_place, newcomer,
};
use crate::costs::survey::Step;

/// Layout of slot+bitmap nodes. See the module's head.
pub struct Slotted {
    /// Number of words of the bitmap.
    pub groups: usize,
}

impl Slotted {
    fn slots_at(&self) -> u64 {
        1 + self.groups as u64
    }

    fn slots(&self, entries: usize) -> Run {
        Run::new(self.slots_at(), (entries as u64 + 1).div_ceil(8))
    }

    fn change(&self, node: &Step, place: u16, fresh: Vec<Run>, entries: usize) -> Change {
        Change {
            node: node.node,
            fresh,
            guard: true,
            guarded: vec![self.slots(entries)],
            over: vec![Run::new(1 + u64::from(place / GROUP), 1)],
        }
    }
}

impl Nodes for Slotted {
    fn insert(&self, node: &Step) -> Change {
        let place = free_place(&node.numbers);
        self.change(node, place, entry(&node.shape, place.into()), node.count() + 1)
    }

    fn remove(&self, node: &Step) -> Change {
        self.change(node, node.numbers[node.rank], Vec::new(), node.count() - 1)
    }

    fn fill(&self, shape: &Shape, count: usize) -> Change {
        let mut fresh = entries(shape, 0..count);
        fresh.extend([self.slots(count), LINK, Run::new(1, self.groups as u64)]);
        Change { fresh, ..Change::default() }
    }

    fn shrink(&self, node: &Step, cut: Cut) -> Change {
        let kept = self.kept(node, cut);
        let mut over = newcomer(node, cut, &kept);
        over.extend(differing(self.slots_at(), &slot_words(&node.numbers), &slot_words(&kept)));
        over.extend(cut.relink.then_some(LINK));
        let bitmap = |numbers: &[u16]| bitmap_words(numbers, self.groups);
        over.extend(differing(1, &bitmap(&node.numbers), &bitmap(&kept)));
        Change::over(node.node, over)
    }
}

/// The slot array of these entries, eight bytes per word, padded with zeros.
fn slot_words(numbers: &[u16]) -> Vec<[u8; 8]> {
    let mut bytes = vec![numbers.len() as u8];
    bytes.extend(numbers.iter().map(|number| *number as u8));
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.as_chunks().0.to_vec()
}
