//! Write-atomic: a change inside one node commits with one store, a change of several nodes commits through the redo-only log. Fresh,
//! guarded and over are the classes of words of [`Change`]. The cleared bit is the valid bit of a slot array, which the protocol clears
//! before it stores guarded words.
//!
//! | | words | flushes | fences |
//! |---|---|---|---|
//! | one node | cleared bit, fresh, guarded, over | the bit's line, lines of fresh, lines of guarded, lines of over | one for each of: cleared bit; fresh or guarded words; over |
//! | several nodes | fresh words; for each over or guarded word, the word and two words of its log record | lines of fresh; lines of records, four to a line | 2: fresh words and new nodes; the log |
//!
//! If the order of stores within a line is used ([`LineOrder`]), a cleared bit needs no flush and no fence of its own if all its guarded
//! words are in its line.
//!
//! Fresh words also go through the log if the log has a record of a word of the same node. The measured counts show whether this happened;
//! the formula does not compute it.

use super::{Bounds, Change, Parts, Price, Protocol, lines_of, offset, split, words_of};
use crate::costs::survey::Way;
use crate::costs::tape::Spent;

/// Records of two words per line of the log.
pub const REDO_RECORDS_PER_LINE: u64 = 4;

/// Protocol of write-atomic commits. See the module's head.
pub struct WriteAtomic;

/// Write-atomic with full nodes split one by one from the top down, each in a separate commit, before the entry is inserted.
pub struct Stepwise;

/// Write-atomic where the order of stores within a line replaces a fence.
pub struct LineOrder;

/// True if the guarded words are in the line of the valid bit, which is in the word that commits.
fn share_a_line(change: &Change) -> bool {
    lines_of(&[&change.guarded[..], &change.over].concat()) == lines_of(&change.over)
}

/// Cost of a change inside one node, committed by its last words.
pub fn in_place(change: &Change, line_order: bool) -> Price {
    let guard = u64::from(change.guard);
    let guard_fence = if line_order && share_a_line(change) { 0 } else { guard };
    let payload = !change.fresh.is_empty() || !change.guarded.is_empty();
    Price {
        node_words: guard + words_of(&change.fresh) + words_of(&change.guarded) + words_of(&change.over),
        flushes: Bounds::exactly(
            guard_fence + lines_of(&change.fresh) + lines_of(&change.guarded) + lines_of(&change.over),
        ),
        fences: guard_fence + u64::from(payload) + 1,
        ..Price::default()
    }
}

/// Cost of a change of several nodes in commit number `commit` of an operation, through the redo-only log.
pub fn through_redo_log(changes: &[Change], commit: usize, spent: &Spent) -> Price {
    let mut price = Price { fences: 2, ..Price::default() };
    let mut records = 0;
    for change in changes {
        let touched = change.node != 0
            && change.fresh.first().is_some_and(|run| !spent.is_direct(commit, offset(change.node, run)));
        let logged = if touched { change.all() } else { change.in_use() };
        if !touched {
            price.node_words += words_of(&change.fresh);
            price.flushes = price.flushes + Bounds::exactly(lines_of(&change.fresh));
        }
        records += words_of(&logged);
        price.homes += lines_of(&logged);
    }
    price.node_words += records;
    price.log_words = 2 * records;
    price.flushes = price.flushes + Bounds::of_records(records, REDO_RECORDS_PER_LINE);
    price
}

impl Protocol for WriteAtomic {
    fn insert(&self, parts: &Parts, way: &Way) -> Price {
        in_place(&parts.leaf.insert(way.leaf()), false)
    }

    fn split(&self, parts: &Parts, way: &Way, _after: &Way, spent: &Spent) -> Price {
        through_redo_log(&split::at_once(parts, way), 0, spent)
    }

    fn delete(&self, parts: &Parts, way: &Way) -> Price {
        in_place(&parts.leaf.remove(way.leaf()), false)
    }
}

impl Protocol for Stepwise {
    fn insert(&self, parts: &Parts, way: &Way) -> Price {
        WriteAtomic.insert(parts, way)
    }

    fn split(&self, parts: &Parts, way: &Way, after: &Way, spent: &Spent) -> Price {
        let (commits, way) = split::stepwise(parts, way, after);
        let mut price = WriteAtomic.insert(parts, &way);
        for (number, changes) in commits.iter().enumerate() {
            price += through_redo_log(changes, number, spent);
        }
        price
    }

    fn delete(&self, parts: &Parts, way: &Way) -> Price {
        WriteAtomic.delete(parts, way)
    }
}

impl Protocol for LineOrder {
    fn insert(&self, parts: &Parts, way: &Way) -> Price {
        in_place(&parts.leaf.insert(way.leaf()), true)
    }

    fn split(&self, parts: &Parts, way: &Way, after: &Way, spent: &Spent) -> Price {
        WriteAtomic.split(parts, way, after, spent)
    }

    fn delete(&self, parts: &Parts, way: &Way) -> Price {
        in_place(&parts.leaf.remove(way.leaf()), true)
    }
}
