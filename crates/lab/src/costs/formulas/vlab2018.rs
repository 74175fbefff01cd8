//! Table 2 of E. Sha, W. Jiang and others, *Towards the Design of Efficient and Consistent Index Structure with Minimal Write
//! Activities for Non-Volatile Memory*, IEEE Transactions on Computers 67(3), 2018.
//!
//! The formulas count written bytes (not words), flushes and fences, for entries of 16 bytes. N is the maximum number of entries of a node,
//! M the number in use, L the number of nodes that are split. Rules of counting:
//!
//! * Logging is redo-only: a logged word costs two words of log and itself (§5.2: 72 bytes for an entry and a counter). So the bytes of
//!   rows B to D are three times the changed bytes, except for the bitmap of row D (next rule).
//! * In row D, an insert counts one changed byte of the bitmap and its log record of 16 bytes (48 + 16 + 1 = 65). In row E, an insert
//!   counts the entry (16), the slot array (M + 2), and a whole word of the bitmap that is written twice (16): M + 34.
//! * The flushes of rows B to D are those of the log and of the data lines. An insert of rows C and D flushes two lines of log, the line of
//!   the entry, and the line of the counter or of the bitmap. Row B counts parts of lines: for the log its bytes / 64 plus one line, and
//!   for the data words their bytes / 64 plus 7/8 of a line for each run of words, because a run can begin at any word of a line.
//! * Fences: one for the log, one for the data words; two for each split node, which commits separately. Row E (the wB+-Tree) has three for
//!   an insert and two more for each split, while the wB+-Tree paper's own table has three for an insert with its splits.
//! * Row G, VLAB itself, counts the bytes whose value changes (§5.2.2: an entry and one byte of the bitmap): 17 for an insert, 1 for a
//!   delete. The paper's formula of a split does not include the insert that filled the bucket. It has five pairs of flush and fence
//!   (§5.2.4), N entries of 16 bytes, N bits, and 88 bytes. The formula in this module adds the insert. A split moves half of the entries,
//!   which are 8 N bytes. The paper's formula has 16 N bytes; the paper does not explain the difference.
//!
//! This module has no formulas for the paper's indexes A (shadowing) and F (all nodes have bitmaps).

use super::{Met, Paper};

/// B, traditional B+-Tree: insert without split.
pub fn trad_insert(met: &Met) -> Paper {
    let moved = 2.0 * met.moved_by_insert();
    Paper { written: 24.0 * moved + 72.0, flushes: 0.375 * moved + 3.0, fences: 2.0 }
}

/// B, traditional B+-Tree: insert with L splits.
pub fn trad_split(met: &Met) -> Paper {
    let insert = trad_insert(met);
    Paper {
        written: met.l * (36.0 * met.n + 144.0) + insert.written,
        flushes: met.l * (9.0 * met.n / 16.0 + 6.675) + insert.flushes,
        fences: 2.0 + 2.0 * met.l,
    }
}

/// B, traditional B+-Tree: delete without merge. The paper moves M / 2 entries here, half an entry more than the average of those that
/// remain.
pub fn trad_delete(met: &Met) -> Paper {
    let moved = met.moved.map_or(met.m, |moved| 2.0 * moved);
    Paper { written: 24.0 * moved + 24.0, flushes: 0.375 * moved + 2.25, fences: 2.0 }
}

/// C, leaves with a counter: insert without split.
pub fn cnt_insert(_met: &Met) -> Paper {
    Paper { written: 72.0, flushes: 4.0, fences: 2.0 }
}

/// C, leaves with a counter: insert with L splits.
pub fn cnt_split(met: &Met) -> Paper {
    Paper {
        written: met.l * (24.0 * met.n + 144.0) + 72.0,
        flushes: met.l * (0.375 * met.n + 7.5) + 4.0,
        fences: 2.0 + 2.0 * met.l,
    }
}

/// C, leaves with a counter: delete without merge. The last entry fills the hole, unless it is the deleted one; the counter changes.
pub fn cnt_delete(met: &Met) -> Paper {
    Paper { written: 48.0 * met.moved.unwrap_or(1.0) + 24.0, flushes: 4.0, fences: 2.0 }
}

/// D, leaves with a bitmap: insert without split.
pub fn bmp_insert(_met: &Met) -> Paper {
    Paper { written: 65.0, flushes: 4.0, fences: 2.0 }
}

/// D, leaves with a bitmap: insert with L splits.
pub fn bmp_split(met: &Met) -> Paper {
    Paper {
        written: met.l * (99.0 * met.n / 4.0 + 113.0) + 65.0,
        flushes: met.l * (99.0 * met.n / 256.0 + 6.25) + 4.0,
        fences: 2.0 + 2.0 * met.l,
    }
}

/// D, leaves with a bitmap: delete without merge.
pub fn bmp_delete(_met: &Met) -> Paper {
    Paper { written: 17.0, flushes: 3.0, fences: 2.0 }
}

/// E, wB+-Tree: insert without split.
pub fn wb_insert(met: &Met) -> Paper {
    Paper { written: met.m + 34.0, flushes: met.m / 64.0 + 97.0 / 32.0, fences: 3.0 }
}

/// E, wB+-Tree: insert with L splits.
pub fn wb_split(met: &Met) -> Paper {
    Paper {
        written: met.l * (10.0 * met.n + 78.0) + met.m + 34.0,
        flushes: met.l * (19.0 * met.n / 128.0 + 233.0 / 128.0) + met.m / 64.0 + 109.0 / 32.0,
        fences: 3.0 + 2.0 * met.l,
    }
}

/// E, wB+-Tree: delete without merge.
pub fn wb_delete(met: &Met) -> Paper {
    Paper { written: met.m + 16.0, flushes: met.m / 64.0 + 2.0, fences: 3.0 }
}

/// G, VLAB: insert without split, of entries of any size: the lines of the entry and of the bitmap.
pub fn vlab_insert(met: &Met) -> Paper {
    let lines = (met.entry_bytes / 64.0).max(1.0);
    Paper { written: met.entry_bytes + 1.0, flushes: lines + 1.0, fences: 2.0 }
}

/// G, VLAB: insert with a split.
pub fn vlab_split(met: &Met) -> Paper {
    let insert = vlab_insert(met);
    Paper {
        written: 88.0 + met.n * (met.entry_bytes + 0.125) + insert.written,
        flushes: 5.0 + met.n * met.entry_bytes / 64.0 + insert.flushes,
        fences: 5.0 + insert.fences,
    }
}

/// G, VLAB: delete.
pub fn vlab_delete(_met: &Met) -> Paper {
    Paper { written: 1.0, flushes: 1.0, fences: 1.0 }
}

/// Maximum bytes that an insert changes: all bytes of the formula.
pub fn vlab_insert_changed(met: &Met) -> f64 {
    vlab_insert(met).written
}

/// Maximum bytes that an insert with a split changes: the half of the entries that moves, a header, the old header's link, bound and
/// bitmap, the flag that is set and cleared, and the bytes of the insert.
pub fn vlab_split_changed(met: &Met) -> f64 {
    const HEADER: f64 = 64.0;
    const OLD: f64 = 8.0 + 8.0 + 32.0;
    const FLAG: f64 = 2.0;
    (met.n / 2.0).ceil() * met.entry_bytes + HEADER + OLD + FLAG + vlab_insert(met).written
}

/// Bytes that a delete changes.
pub fn vlab_delete_changed(met: &Met) -> f64 {
    vlab_delete(met).written
}

#[cfg(test)]
mod tests {
    use super::super::wbtree2015;
    use super::*;

    fn at(l: f64) -> Met {
        Met { n: 31.0, m: 21.0, l, entry_bytes: 16.0, ..Met::default() }
    }

    fn is(paper: Paper, written: f64, flushes: f64, fences: f64) {
        assert_eq!(paper, Paper { written, flushes, fences });
    }

    #[test]
    fn the_rows_at_31_entries_21_in_use() {
        is(trad_insert(&at(0.0)), 576.0, 10.875, 2.0);
        is(trad_split(&at(1.0)), 1836.0, 34.9875, 4.0);
        is(trad_delete(&at(0.0)), 528.0, 10.125, 2.0);
        is(cnt_insert(&at(0.0)), 72.0, 4.0, 2.0);
        is(cnt_split(&at(1.0)), 960.0, 23.125, 4.0);
        is(cnt_delete(&at(0.0)), 72.0, 4.0, 2.0);
        is(bmp_insert(&at(0.0)), 65.0, 4.0, 2.0);
        is(bmp_split(&at(1.0)), 945.25, 22.238_281_25, 4.0);
        is(bmp_delete(&at(0.0)), 17.0, 3.0, 2.0);
        is(wb_insert(&at(0.0)), 55.0, 3.359_375, 3.0);
        is(wb_split(&at(2.0)), 831.0, 16.578_125, 7.0);
        is(wb_delete(&at(0.0)), 37.0, 2.328_125, 3.0);
        is(vlab_insert(&at(0.0)), 17.0, 2.0, 2.0);
        is(vlab_insert(&Met { entry_bytes: 128.0, ..at(0.0) }), 129.0, 3.0, 2.0);
        is(vlab_split(&at(1.0)), 88.0 + 129.0 * 31.0 / 8.0 + 17.0, 5.0 + 31.0 / 4.0 + 2.0, 7.0);
        is(vlab_delete(&at(0.0)), 1.0, 1.0, 1.0);
        assert_eq!(vlab_split_changed(&Met { n: 252.0, ..at(1.0) }), 8.0 * 252.0 + 131.0);
    }

    #[test]
    fn both_papers_agree_on_a_wbtree_without_splits_and_differ_on_its_splits() {
        let met = Met { n: 29.0, ..at(1.0) };
        for (bytes, words) in [
            (wb_insert(&met), wbtree2015::wbtree_insert(&met)),
            (wb_delete(&met), wbtree2015::wbtree_delete(&met)),
        ] {
            assert_eq!(bytes, Paper { written: 8.0 * words.written, ..words });
        }
        let (bytes, words) = (wb_split(&met), wbtree2015::wbtree_split(&met));
        assert_eq!(8.0 * words.written - bytes.written, 32.0, "8.25 words against 34 bytes");
        assert_eq!((words.fences, bytes.fences), (3.0, 5.0));
    }
}
