//! Stores and flushes of data words (the words of the index that a commit changes). A commit stores its data words before it
//! returns. The commit flushes their lines itself, or the log flushes them when the generation ends. Functions of this module
//! pass no fence.

use crate::medium::traits::{LINE, Medium};

/// Stores one data word.
pub(super) fn store<M: Medium>(medium: &M, data_at: u64, value: u64) {
    medium.copy(data_at, value);
}

/// Appends the lines of data words to `lines`. The words of one node are consecutive.
pub(super) fn note_lines(data_words: impl Iterator<Item = u64>, lines: &mut Vec<u64>) {
    for line in data_words.map(|data_at| data_at & !(LINE - 1)) {
        if lines.last() != Some(&line) {
            lines.push(line);
        }
    }
}

/// Flushes each line once and empties the list.
pub(super) fn flush<M: Medium>(medium: &M, lines: &mut Vec<u64>) {
    lines.sort_unstable();
    lines.dedup();
    for line in lines.drain(..) {
        medium.flush(line, LINE);
    }
}
