//! Redo logging of every word. A commit flushes its log records and passes a fence, then it stores the data words,
//! flushes their lines and passes a second fence. Full nodes are split one by one from the top down, each in a separate
//! commit, before the entry is inserted.
//!
//! | | words | flushes of log lines | flushes of data lines | fences |
//! |---|---|---|---|---|
//! | a commit of w words | 3 w (2 w in the log) | lines of w records, four to a line | lines of the w words | 2 |

use super::write_atomic::REDO_RECORDS_PER_LINE;
use super::{Bounds, Change, Parts, Price, Protocol, lines_of, split, words_of};
use crate::costs::survey::Way;
use crate::costs::tape::Spent;

/// Protocol of redo logging. See the module's head.
pub struct Redo;

fn logged(changes: &[Change]) -> Price {
    let words = changes.iter().map(|change| words_of(&change.all())).sum();
    Price {
        node_words: words,
        log_words: 2 * words,
        flushes: Bounds::of_records(words, REDO_RECORDS_PER_LINE),
        homes: changes.iter().map(|change| lines_of(&change.all())).sum(),
        fences: 2,
    }
}

impl Protocol for Redo {
    fn insert(&self, parts: &Parts, way: &Way) -> Price {
        logged(&[parts.leaf.insert(way.leaf())])
    }

    fn split(&self, parts: &Parts, way: &Way, after: &Way, _spent: &Spent) -> Price {
        let (commits, way) = split::stepwise(parts, way, after);
        let mut price = self.insert(parts, &way);
        commits.iter().for_each(|changes| price += logged(changes));
        price
    }

    fn delete(&self, parts: &Parts, way: &Way) -> Price {
        logged(&[parts.leaf.remove(way.leaf())])
    }

    fn awaits_homes(&self) -> bool {
        true
    }
}
