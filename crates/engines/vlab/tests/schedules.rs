//! Schedules of whole operations: see the shared module. Directories are combined with braids meanwhile, and once all is done by the
//! paper's ways.

#[path = "../../../index/tests/shared/schedules.rs"]
mod shared;

use pmem::canary::Canary;
use shared::{
    CRASHES, Engine, FAITHFUL, KEYED, KEYED_JOURNALED, LIES, WHOLE, WORDS, WORDS_JOURNALED, live, notice_in,
};

const ENGINES: &[Engine] = &[WORDS, KEYED, FAITHFUL, WORDS_JOURNALED, KEYED_JOURNALED];

#[test]
fn what_everybody_is_told_can_be_explained_and_outlasts_a_crash() {
    live(ENGINES, crash::by_tier(500, 1600), &["appends"]);
}

/// `Settled` is left out of these: nobody has to wait until what leads to the buckets is whole, for views are replaced and not changed, and
/// an entry of a directory is one word.
#[test]
fn a_part_of_the_protocols_that_is_left_out_is_noticed() {
    notice_in(
        ENGINES,
        &[
            (Some(Canary::SecondLook), WHOLE, ""),
            (Some(Canary::Changes), WHOLE, ""),
            (None, LIES, "after a crash"),
        ],
    );
    notice_in(
        &[WORDS, KEYED, FAITHFUL],
        &[(Some(Canary::Batches), WHOLE, ""), (Some(Canary::FirstLook), CRASHES, "after a crash")],
    );
    // That a batch runs they need not ask over a journal: what it changed is not durable, and durable at once.
    notice_in(
        &[WORDS_JOURNALED, KEYED_JOURNALED],
        &[(Some(Canary::FirstLook), WHOLE, ""), (Some(Canary::Notes), CRASHES, "after a crash")],
    );
}
