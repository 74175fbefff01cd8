//! Undo-redo logging: a record `NewRedo` for each unused word, a record `WriteUndoRedo` for each word in use [wB+ §3.1].
//!
//! | | words | flushes | fences |
//! |---|---|---|---|
//! | f unused words | 3 f (2 f in the log) | lines of f records, three records in a line | 1, none if f is 0 |
//! | u words in use | 4 u (3 u in the log) | u | u |
//!
//! The last record carries the commit mark. A record is in one line of the log. A line has slots for three records: two of three words, one
//! of two words. Every line has the same slots, so it never holds more than three.

use super::{Bounds, Change, Parts, Price, Protocol, lines_of, split, words_of};
use crate::costs::survey::Way;
use crate::costs::tape::Spent;

/// Records per line of the log, with or without an old word.
const RECORDS_PER_LINE: u64 = 3;

/// Protocol of undo-redo logging. See the module's head.
pub struct UndoRedo;

fn logged(changes: &[Change]) -> Price {
    let fresh: u64 = changes.iter().map(|change| words_of(&change.fresh)).sum();
    let in_use: u64 = changes.iter().map(|change| words_of(&change.in_use())).sum();
    let records = if fresh == 0 { Bounds::default() } else { Bounds::of_records(fresh, RECORDS_PER_LINE) };
    Price {
        node_words: fresh + in_use,
        log_words: 2 * fresh + 3 * in_use,
        flushes: records + Bounds::exactly(in_use),
        homes: changes.iter().map(|change| lines_of(&change.all())).sum(),
        fences: u64::from(fresh > 0) + in_use,
    }
}

impl Protocol for UndoRedo {
    fn insert(&self, parts: &Parts, way: &Way) -> Price {
        logged(&[parts.leaf.insert(way.leaf())])
    }

    fn split(&self, parts: &Parts, way: &Way, _after: &Way, _spent: &Spent) -> Price {
        logged(&split::at_once(parts, way))
    }

    fn delete(&self, parts: &Parts, way: &Way) -> Price {
        logged(&[parts.leaf.remove(way.leaf())])
    }
}
