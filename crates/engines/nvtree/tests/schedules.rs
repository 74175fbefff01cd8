//! The suite `schedules` for the NV-Tree. In the schedules, full leaves are replaced and inner nodes are rebuilt.

#[path = "../../../index/tests/shared/schedules.rs"]
mod shared;

use pmem::omission::Omission;
use shared::{CRASHES, Engine, KEYED, KEYED_JOURNALED, LIES, WHOLE, WORDS, WORDS_JOURNALED, live, notice_in};

const ENGINES: &[Engine] = &[WORDS, KEYED, WORDS_JOURNALED, KEYED_JOURNALED];

#[test]
fn what_everybody_is_told_can_be_explained_and_outlasts_a_crash() {
    live(ENGINES, crash::by_tier(500, 1600), &["appends", "copies"]);
}

#[test]
fn a_part_of_the_protocols_that_is_left_out_is_noticed() {
    notice_in(
        ENGINES,
        &[
            (Some(Omission::Settled), WHOLE, ""),
            (Some(Omission::Changes), WHOLE, ""),
            (None, LIES, "after a crash"),
        ],
    );
    notice_in(
        &[WORDS, KEYED],
        &[(Some(Omission::Batches), WHOLE, ""), (Some(Omission::FirstRead), CRASHES, "after a crash")],
    );
    // Over a journal, readers without this check do not notice a running batch. Its changes are not durable, and then durable at once.
    notice_in(
        &[WORDS_JOURNALED, KEYED_JOURNALED],
        &[(Some(Omission::FirstRead), WHOLE, ""), (Some(Omission::DirtyMarks), CRASHES, "after a crash")],
    );
    notice_in(&[KEYED, KEYED_JOURNALED], &[(Some(Omission::Validation), WHOLE, "")]);
    // Entries of words never change in place. A reader without the second validation returns correct values that are not durable yet. (Over
    // a journal that is an error only beside a commit that fails and is rolled back.)
    notice_in(&[WORDS], &[(Some(Omission::Validation), CRASHES, "after a crash")]);
}
