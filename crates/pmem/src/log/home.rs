//! Home words of committed records: stored at once, their lines on the way to memory without anybody waiting for them.

use crate::medium::{LINE, Medium};

/// Stores one home word.
pub(super) fn store<M: Medium>(medium: &M, home: u64, value: u64) {
    medium.copy(home, value);
}

/// Starts writing back each home line, once, in whatever order its words come. `lines` is room to sort them in.
pub(super) fn flush<M: Medium>(medium: &M, homes: impl Iterator<Item = u64>, lines: &mut Vec<u64>) {
    lines.clear();
    lines.extend(homes.map(|home| home & !(LINE - 1)));
    lines.sort_unstable();
    lines.dedup();
    for line in lines {
        medium.flush(*line, LINE);
    }
}
