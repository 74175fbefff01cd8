//! The suite `schedules` for VLAB. In the schedules, the writer also combines the directory with the braids (the lists of new buckets),
//! stepwise and with the paper's method.

#[path = "../../../index/tests/shared/schedules.rs"]
mod shared;

use pmem::omission::Omission;
use shared::{
    CRASHES, Engine, FAITHFUL, KEYED, KEYED_JOURNALED, LIES, WHOLE, WORDS, WORDS_JOURNALED, live, notice_in,
};

const ENGINES: &[Engine] = &[WORDS, KEYED, FAITHFUL, WORDS_JOURNALED, KEYED_JOURNALED];

#[test]
fn what_everybody_is_told_can_be_explained_and_outlasts_a_crash() {
    live(ENGINES, crash::by_tier(500, 1600), &["appends"]);
}

/// The fault `Settled` is not injected here. No operation waits for the path to the buckets: views are replaced and not changed, and an
/// entry of a directory is one word.
#[test]
fn a_part_of_the_protocols_that_is_left_out_is_noticed() {
    notice_in(
        ENGINES,
        &[
            (Some(Omission::Validation), WHOLE, ""),
            (Some(Omission::Changes), WHOLE, ""),
            (None, LIES, "after a crash"),
        ],
    );
    notice_in(
        &[WORDS, KEYED, FAITHFUL],
        &[(Some(Omission::Batches), WHOLE, ""), (Some(Omission::FirstRead), CRASHES, "after a crash")],
    );
    // Over a journal, readers without this check do not notice a running batch. Its changes are not durable, and then durable at once.
    notice_in(
        &[WORDS_JOURNALED, KEYED_JOURNALED],
        &[(Some(Omission::FirstRead), WHOLE, ""), (Some(Omission::DirtyMarks), CRASHES, "after a crash")],
    );
}
