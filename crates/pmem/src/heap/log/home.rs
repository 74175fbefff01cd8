//! Home words of committed records: stored at once; their lines are on the way to memory, at once or when the lap ends,
//! without anybody waiting for them.

use crate::medium::traits::{LINE, Medium};

/// Stores one home word.
pub(super) fn store<M: Medium>(medium: &M, home: u64, value: u64) {
    medium.copy(home, value);
}

/// Notes the lines of home words; those of one node come one after another.
pub(super) fn note_lines(homes: impl Iterator<Item = u64>, lines: &mut Vec<u64>) {
    for line in homes.map(|home| home & !(LINE - 1)) {
        if lines.last() != Some(&line) {
            lines.push(line);
        }
    }
}

/// Starts writing back each line noted, once, and forgets them.
pub(super) fn flush<M: Medium>(medium: &M, lines: &mut Vec<u64>) {
    lines.sort_unstable();
    lines.dedup();
    for line in lines.drain(..) {
        medium.flush(line, LINE);
    }
}
