//! Table 3 of S. Chen and Q. Jin, *Persistent B+-Trees in Non-Volatile Main Memory*, PVLDB 8(7), 2015.
//!
//! Words have 8 bytes. n is the maximum number of entries of a node (n' in a slot+bitmap or bitmap node), m the number in use, l the number
//! of levels that are split. By the table's own note, flushes are lower bounds: a record that spans two lines is flushed twice. Rules of
//! counting:
//!
//! * Logging: an overwritten word costs three words of log and the word itself, a new word two words of log and the word itself (§3.1,
//!   figure 5). Data words are not flushed.
//! * Shadowing: the copied leaf, two redo records (the parent's pointer and the left neighbour's link), and one logged allocation with its
//!   own flush and fence (§3.2, figure 7).
//! * wB+-Trees: allocation only in splits; a slot array in bytes, eight per word (§4.3, §4.4).

use super::{Met, Paper};

/// Cost of an overwritten word under undo-redo logging: 3 words of log and itself, a flush and a fence.
fn undo_redo(words: f64) -> Paper {
    Paper { written: 4.0 * words, flushes: words, fences: words }
}

/// B+-Tree, undo-redo logging: insert without split. Words of the moved entries, two of the new entry, one of the number: 4m + 12 words, m
/// + 3 flushes and fences on average.
pub fn btree_log_insert(met: &Met) -> Paper {
    undo_redo(2.0 * met.moved_by_insert() + 3.0)
}

/// B+-Tree, undo-redo logging: insert with l splits.
pub fn btree_log_split(met: &Met) -> Paper {
    Paper {
        written: met.l * (4.0 * met.n + 15.0) + 4.0 * met.m + 19.0,
        flushes: met.l * (0.375 * met.n + 3.25) + met.m + 4.125,
        fences: met.l * (0.25 * met.n + 2.0) + met.m + 5.0,
    }
}

/// B+-Tree, undo-redo logging: delete without merge. Words of the moved entries and of the number: 4m words, m flushes and fences on
/// average.
pub fn btree_log_delete(met: &Met) -> Paper {
    undo_redo(2.0 * met.moved_by_delete() + 1.0)
}

/// Unsorted leaves, packed or with a bitmap, undo-redo logging: insert without split. Two new words and an overwritten word.
pub fn unsorted_log_insert(_met: &Met) -> Paper {
    Paper { written: 10.0, flushes: 2.0, fences: 2.0 }
}

/// Packed unsorted leaves, undo-redo logging: insert with l splits.
pub fn unsorted_log_split(met: &Met) -> Paper {
    let sorted = btree_log_split(met);
    let quarter = 0.25 * met.n;
    Paper {
        written: sorted.written + met.n,
        flushes: sorted.flushes + quarter,
        fences: sorted.fences + quarter,
    }
}

/// Packed unsorted leaves, undo-redo logging: delete without merge. The last entry fills the hole, unless it is the deleted one; the number
/// changes.
pub fn unsorted_log_delete(met: &Met) -> Paper {
    undo_redo(2.0 * met.moved.unwrap_or(1.0) + 1.0)
}

/// Bitmap leaves, undo-redo logging: insert with l splits.
pub fn ubmp_log_split(met: &Met) -> Paper {
    let sorted = btree_log_split(met);
    let quarter = 0.25 * met.n;
    Paper {
        written: sorted.written - met.n,
        flushes: sorted.flushes - quarter,
        fences: sorted.fences - quarter,
    }
}

/// Bitmap leaves, undo-redo logging: delete without merge. The bitmap changes.
pub fn ubmp_log_delete(_met: &Met) -> Paper {
    undo_redo(1.0)
}

/// Cost of a copied leaf in addition to its own words: three for each pointer that is switched to it, one for its allocation.
fn around_a_copy(met: &Met) -> f64 {
    3.0 * met.pointers.unwrap_or(2.0) + 1.0
}

/// Any leaves, shadowing: insert without split. The copy, two pointers and an allocation: 2m + 11 words.
pub fn shadow_insert(met: &Met) -> Paper {
    Paper { written: 2.0 * met.m + 4.0 + around_a_copy(met), flushes: 0.25 * met.m + 2.5, fences: 2.0 }
}

/// Any leaves, shadowing: insert with l splits.
pub fn shadow_split(met: &Met) -> Paper {
    Paper {
        written: met.l * (2.0 * met.n + 5.0) + 2.0 * met.m + 12.0,
        flushes: met.l * (0.25 * met.n + 1.5) + 0.25 * met.m + 2.625,
        fences: 2.0,
    }
}

/// Any leaves, shadowing: delete without merge. 2m + 7 words.
pub fn shadow_delete(met: &Met) -> Paper {
    Paper { written: 2.0 * met.m + around_a_copy(met), flushes: 0.25 * met.m + 2.0, fences: 2.0 }
}

/// wB+-Tree: insert without split.
pub fn wbtree_insert(met: &Met) -> Paper {
    Paper { written: 0.125 * met.m + 4.25, flushes: met.m / 64.0 + 3.0 + 1.0 / 32.0, fences: 3.0 }
}

/// wB+-Tree: insert with l splits.
pub fn wbtree_split(met: &Met) -> Paper {
    Paper {
        written: met.l * (1.25 * met.n + 9.75) + 0.125 * met.m + 8.25,
        flushes: met.l * (19.0 / 128.0 * met.n + 1.0 + 105.0 / 128.0) + met.m / 64.0 + 3.0 + 13.0 / 32.0,
        fences: 3.0,
    }
}

/// wB+-Tree: delete without merge.
pub fn wbtree_delete(met: &Met) -> Paper {
    Paper { written: 0.125 * met.m + 2.0, flushes: met.m / 64.0 + 2.0, fences: 3.0 }
}

/// wB+-Tree with slot-only nodes or bitmap-only leaves: insert without split. Two words of the entry, one word that commits.
pub fn wbtree_one_word_insert(_met: &Met) -> Paper {
    Paper { written: 3.0, flushes: 2.0, fences: 2.0 }
}

/// wB+-Tree with slot-only nodes or bitmap-only leaves: delete without merge. One word that commits.
pub fn wbtree_one_word_delete(_met: &Met) -> Paper {
    Paper { written: 1.0, flushes: 1.0, fences: 1.0 }
}

/// wB+-Tree with bitmap-only leaves: insert with l splits.
pub fn wbtree_bmp_split(met: &Met) -> Paper {
    let slotted = met.l * (19.0 / 128.0 * met.n + 1.0 + 105.0 / 128.0);
    Paper {
        written: met.l * (1.25 * met.n + 9.75) - 0.25 * met.n + 0.125 * met.m + 7.5,
        flushes: slotted - 3.0 / 128.0 * met.n + met.m / 64.0 + 3.0 + 43.0 / 128.0,
        fences: 3.0,
    }
}

/// wB+-Tree with slot-only nodes: insert with l splits.
pub fn wbtree_slot_split(met: &Met) -> Paper {
    Paper {
        written: met.l * (met.n + 9.0) + 7.0,
        flushes: met.l * (0.125 * met.n + 1.75) + 2.375,
        fences: 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's example: 512-byte nodes, 70 % full. Values computed by hand.
    fn at(n: f64, l: f64) -> Met {
        Met { n, m: 21.0, l, ..Met::default() }
    }

    fn is(paper: Paper, written: f64, flushes: f64, fences: f64) {
        assert_eq!(paper, Paper { written, flushes, fences });
    }

    #[test]
    fn logging_at_the_papers_own_node() {
        is(btree_log_insert(&at(31.0, 0.0)), 96.0, 24.0, 24.0);
        is(btree_log_split(&at(31.0, 1.0)), 242.0, 40.0, 35.75);
        is(btree_log_split(&at(31.0, 2.0)), 381.0, 54.875, 45.5);
        is(btree_log_delete(&at(31.0, 0.0)), 84.0, 21.0, 21.0);
        is(unsorted_log_insert(&at(31.0, 0.0)), 10.0, 2.0, 2.0);
        is(unsorted_log_split(&at(31.0, 1.0)), 273.0, 47.75, 43.5);
        is(unsorted_log_delete(&at(31.0, 0.0)), 12.0, 3.0, 3.0);
        is(ubmp_log_split(&at(31.0, 1.0)), 211.0, 32.25, 28.0);
        is(ubmp_log_delete(&at(31.0, 0.0)), 4.0, 1.0, 1.0);
    }

    #[test]
    fn shadowing_at_the_papers_own_node() {
        is(shadow_insert(&at(31.0, 0.0)), 53.0, 7.75, 2.0);
        is(shadow_split(&at(31.0, 1.0)), 121.0, 17.125, 2.0);
        is(shadow_split(&at(31.0, 3.0)), 255.0, 35.625, 2.0);
        is(shadow_delete(&at(31.0, 0.0)), 49.0, 7.25, 2.0);
    }

    #[test]
    fn wbtrees_at_the_papers_own_node() {
        is(wbtree_insert(&at(29.0, 0.0)), 6.875, 3.359_375, 3.0);
        is(wbtree_split(&at(29.0, 1.0)), 56.875, 9.859_375, 3.0);
        is(wbtree_split(&at(29.0, 2.0)), 102.875, 15.984_375, 3.0);
        is(wbtree_delete(&at(29.0, 0.0)), 4.625, 2.328_125, 3.0);
        is(wbtree_one_word_insert(&at(29.0, 0.0)), 3.0, 2.0, 2.0);
        is(wbtree_bmp_split(&at(29.0, 1.0)), 48.875, 9.109_375, 3.0);
        is(wbtree_one_word_delete(&at(29.0, 0.0)), 1.0, 1.0, 1.0);
        is(wbtree_slot_split(&at(7.0, 1.0)), 23.0, 5.0, 2.0);
    }

    #[test]
    fn a_sorted_nodes_formula_is_the_mean_over_all_ranks() {
        let m = 21;
        let mean = |formula: fn(&Met) -> Paper, ranks: std::ops::Range<i32>, last: i32| {
            let count = f64::from(ranks.end - ranks.start);
            let each = ranks.map(|rank| Met { moved: Some(f64::from(last - rank)), ..at(31.0, 0.0) });
            each.map(|met| formula(&met).written).sum::<f64>() / count
        };
        assert_eq!(mean(btree_log_insert, 0..m + 1, m), 96.0);
        assert_eq!(mean(btree_log_delete, 0..m, m - 1), 84.0);
    }
}
