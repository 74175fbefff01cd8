//! VLAB: each change commits with one word of a bucket's header. A full bucket is split before the entry is inserted.
//!
//! c is the number of entries that move to the new bucket, b the number of bitmap words that change:
//!
//! | | words | flushes | fences |
//! |---|---|---|---|
//! | insert | the entry, its bitmap word | lines of the entry; the header | 2 |
//! | delete | a bitmap word | the header | 1 |
//! | split | the flag of a running split, twice; c entries and 8 words of header; the link, b bitmap words, a bound | lines of the new bucket; the header | 2, one after each of: the new bucket; the old bucket's header (its words are in one line, where stores keep their order without fences) |
//! | split in the stepwise variant | the same | lines of the new bucket; the header three times; the link's line | 5, one after each of: the flag; the new bucket; the link; the bitmap and the bound; the flag |
//! | combine of B buckets in the stepwise variant | 3 B + 4: all links three times; three words of the phase and one word of a list's head, both in the meta block | 2 B + 3 | 4 |
//!
//! A key above all others does not split a full last bucket: a new bucket begins with that key, which completes the insert, at the cost of
//! a split with c = 1 and b = 0. (The stepwise variant splits the bucket. It has a fence after each step of a split.)

use super::{Bounds, Change, Cut, Parts, Price, Protocol, lines_of, words_of, write_atomic};
use crate::costs::survey::{Step, Way};
use crate::costs::tape::Spent;

/// Protocol of VLAB. See the module's head.
pub struct OneWord {
    /// True for a fence after each step of a split, and for a second list that combines merge into the first.
    pub stepwise: bool,
}

/// True if the operation merged the second list into the first.
pub fn has_combined(after: &Way) -> bool {
    // The operation ended with a change of a bucket, and a split leaves a bucket in the second list.
    after.lists.is_some_and(|[_, second]| second == 0)
}

/// Cost of a combine of this many buckets.
fn combine(buckets: u64) -> Price {
    Price {
        node_words: 3 * buckets + 4,
        flushes: Bounds::exactly(2 * buckets + 3),
        fences: 4,
        ..Price::default()
    }
}

impl OneWord {
    /// Cost of a new bucket with these entries and of the changes in the old bucket.
    fn link_right(&self, filled: &Change, shrunk: &Change) -> Price {
        let (flags, headers, fences) = if self.stepwise { (2, 4, 5) } else { (2, 1, 2) };
        Price {
            node_words: flags + words_of(&filled.fresh) + words_of(&shrunk.over),
            flushes: Bounds::exactly(lines_of(&filled.fresh) + headers),
            fences,
            ..Price::default()
        }
    }
}

impl Protocol for OneWord {
    fn insert(&self, parts: &Parts, way: &Way) -> Price {
        write_atomic::in_place(&parts.leaf.insert(way.leaf()), false)
    }

    fn split(&self, parts: &Parts, way: &Way, after: &Way, _spent: &Spent) -> Price {
        let (leaf, step) = (&parts.leaf, way.leaf());
        let appending = !self.stepwise && way.last && step.is_behind_all();
        let keep = if appending { step.count() } else { step.count() / 2 };
        let go = if appending { 1 } else { step.count() - keep };
        let cut = Cut { keep, join: None, relink: true };
        let mut price = self.link_right(&leaf.fill(&step.shape, go), &leaf.shrink(step, cut));
        if !appending {
            // The smallest key that moves is the bound. Keys above it go to the new bucket.
            let half = if step.rank > keep {
                Step { numbers: leaf.filled(&step.shape, go), rank: step.rank - keep, ..step.clone() }
            } else {
                Step { numbers: leaf.kept(step, cut), ..step.clone() }
            };
            price += write_atomic::in_place(&leaf.insert(&half), false);
        }
        if self.stepwise && has_combined(after) {
            price += combine(after.lists.map_or(0, |[first, _]| first));
        }
        price
    }

    fn delete(&self, parts: &Parts, way: &Way) -> Price {
        write_atomic::in_place(&parts.leaf.remove(way.leaf()), false)
    }
}
