//! NV-Tree: a change is an append that one word commits. A full leaf is replaced by new leaves before the entry is appended.
//!
//! Each entry has a sign: positive for an insert, negative for a delete. c is the number of live entries:
//!
//! | | words | flushes | fences |
//! |---|---|---|---|
//! | insert | the entry, the count of entries | lines of the entry; the header | 2 |
//! | delete | a negative entry: its key and its sign; the count of entries | the key's line; the header | 2 |
//! | delete in a full leaf, which has no space for a negative entry | the sign of the deleted entry, in a word of the header | the header | 1 |
//! | a full leaf replaced | c entries, 8 words of header for each new leaf, one link | lines of the new leaves; the link's line | 2: the new leaves; the link |
//!
//! A full leaf becomes two leaves if more than half of its entries are live, else one. One case is different: the full leaf is the last
//! one, more than half of it is live, and the new key is above all others. Then the leaf does not change. The key begins a new leaf, which
//! completes the insert. A delete after which the leaf is full and at most half of its entries are live also replaces the leaf. (The
//! formulas do not include merges. Two neighbours are merged only if together they fill at most half a leaf. In the measured trees every
//! leaf is more than a quarter full, so no leaves are merged.)

use super::{Bounds, Change, Cut, Parts, Price, Protocol, lines_of, words_of, write_atomic};
use crate::costs::survey::{Step, Way};
use crate::costs::tape::Spent;

/// Protocol of NV-Tree. See the module's head.
pub struct Appended;

/// Cost of new leaves, and of the link to them.
fn switched(leaves: &[Change]) -> Price {
    let words: u64 = leaves.iter().map(|leaf| words_of(&leaf.fresh)).sum();
    let lines: u64 = leaves.iter().map(|leaf| lines_of(&leaf.fresh)).sum();
    Price { node_words: words + 1, flushes: Bounds::exactly(lines + 1), fences: 2, ..Price::default() }
}

/// True if a full leaf with this many live entries is replaced by more than one leaf.
fn is_split(step: &Step, live: usize) -> bool {
    live * 2 > step.shape.capacity
}

impl Protocol for Appended {
    fn insert(&self, parts: &Parts, way: &Way) -> Price {
        write_atomic::in_place(&parts.leaf.insert(way.leaf()), false)
    }

    fn split(&self, parts: &Parts, way: &Way, _after: &Way, _spent: &Spent) -> Price {
        let (leaf, step) = (&parts.leaf, way.leaf());
        let live = step.count();
        if !is_split(step, live) {
            let one = Step { logged: Some(live), ..step.clone() };
            let mut price = switched(&[leaf.fill(&step.shape, live)]);
            price += write_atomic::in_place(&leaf.insert(&one), false);
            return price;
        }
        if way.last && step.is_behind_all() {
            return switched(&[leaf.fill(&step.shape, 1)]);
        }
        let keep = live / 2;
        let cut = Cut { keep, join: None, relink: false };
        let mut price = switched(&[leaf.shrink(step, cut), leaf.fill(&step.shape, live - keep)]);
        let taken = if step.rank > keep { live - keep } else { keep };
        let half = Step { logged: Some(taken), ..step.clone() };
        price += write_atomic::in_place(&leaf.insert(&half), false);
        price
    }

    fn delete(&self, parts: &Parts, way: &Way) -> Price {
        let step = way.leaf();
        let mut price = write_atomic::in_place(&parts.leaf.remove(step), false);
        let (left, is_full) = (step.count() - 1, step.taken() + 1 >= step.shape.capacity);
        if is_full && !is_split(step, left) {
            price += switched(&[parts.leaf.fill(&step.shape, left)]);
        }
        price
    }
}
