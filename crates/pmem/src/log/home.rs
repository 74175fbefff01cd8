//! Home words of committed records: stored at once, their lines on the way to memory without anybody waiting for them.

use crate::medium::{LINE, Medium};

/// Stores one home word.
pub(super) fn store<M: Medium>(medium: &M, home: u64, value: u64) {
    medium.copy(home, value);
}

/// Starts writing back each home line, once per run of neighbouring words.
pub(super) fn flush<M: Medium>(medium: &M, homes: impl Iterator<Item = u64>) {
    let mut flushed = u64::MAX;
    for home in homes {
        let line = home & !(LINE - 1);
        if line != flushed {
            medium.flush(line, LINE);
            flushed = line;
        }
    }
}
