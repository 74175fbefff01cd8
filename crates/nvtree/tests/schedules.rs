//! Schedules of whole operations: see the shared module. Full leaves are replaced meanwhile, and inner nodes built anew.
#![cfg(shuttle)]

mod common;
#[path = "../../chain/tests/shared/schedules.rs"]
mod shared;

use pmem::canary::Canary;
use shared::{CRASHES, Engine, KEYED, KEYED_JOURNALED, LIES, WHOLE, WORDS, WORDS_JOURNALED, live, notice};

const ENGINES: &[Engine] = &[WORDS, KEYED, WORDS_JOURNALED, KEYED_JOURNALED];

#[test]
fn what_everybody_is_told_can_be_explained_and_outlasts_a_crash() {
    live(ENGINES, 1600, &["appends", "copies"]);
}

#[test]
fn a_part_of_the_protocols_that_is_left_out_is_noticed() {
    notice(
        WORDS.0,
        WORDS.1,
        &[
            // Entries of words never change where they stand: what a reader may see too early is not wrong, it is not durable.
            (Some(Canary::SecondLook), CRASHES, "after a crash"),
            (Some(Canary::Settled), WHOLE, ""),
            (Some(Canary::Changes), WHOLE, ""),
            (Some(Canary::Batches), WHOLE, ""),
            (Some(Canary::FirstLook), CRASHES, "after a crash"),
            (None, LIES, "after a crash"),
        ],
    );
    notice(
        KEYED.0,
        KEYED.1,
        &[
            (Some(Canary::SecondLook), WHOLE, ""),
            (Some(Canary::Settled), WHOLE, ""),
            (Some(Canary::Changes), WHOLE, ""),
            (Some(Canary::Batches), WHOLE, ""),
            (Some(Canary::FirstLook), CRASHES, "after a crash"),
            (None, LIES, "after a crash"),
        ],
    );
    // That a batch runs they need not ask over a journal: what it changed is not durable, and durable at once.
    notice(
        WORDS_JOURNALED.0,
        WORDS_JOURNALED.1,
        &[
            // A second look of words is missed only beside a commit that fails and is taken back.
            (Some(Canary::Settled), WHOLE, ""),
            (Some(Canary::Changes), WHOLE, ""),
            (Some(Canary::FirstLook), WHOLE, ""),
            (Some(Canary::Notes), CRASHES, "after a crash"),
            (None, LIES, "after a crash"),
        ],
    );
    notice(
        KEYED_JOURNALED.0,
        KEYED_JOURNALED.1,
        &[
            (Some(Canary::SecondLook), WHOLE, ""),
            (Some(Canary::Settled), WHOLE, ""),
            (Some(Canary::Changes), WHOLE, ""),
            (Some(Canary::FirstLook), WHOLE, ""),
            (Some(Canary::Notes), CRASHES, "after a crash"),
            (None, LIES, "after a crash"),
        ],
    );
}
