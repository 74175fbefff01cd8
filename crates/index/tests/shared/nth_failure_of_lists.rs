//! The suite `nth_failure` for indexes over a list of leaves.

#[path = "nth_failure.rs"]
mod nth_failure;

use crate::common::engine::Of;
use crate::common::options;
use index::{Keyed, Words};
use nth_failure::the_nth_growth_or_sync_fails;

#[test]
fn the_nth_growth_or_sync_fails_over_words() {
    the_nth_growth_or_sync_fails(&Of::<Words, _>::new(options::<Words>(2, false)), 3);
}

#[test]
fn the_nth_growth_or_sync_fails_over_byte_strings() {
    the_nth_growth_or_sync_fails(&Of::<Keyed, _>::new(options::<Keyed>(2, false)), 20);
}
