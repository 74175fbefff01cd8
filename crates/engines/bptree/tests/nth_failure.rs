//! The suite `nth_failure` for the default tree.

#[path = "../../../index/tests/shared/nth_failure.rs"]
mod shared;

use bptree::TreeOptions;
use index::{Keyed, Prefixed, Words};
use pmem::{Durability, Geometry};

use crate::common::engine::Of;
use crate::common::samples::Sample;

fn fails<S: Sample>(growths: u64) {
    let options = TreeOptions { geometry: Geometry::tiny(), ..TreeOptions::new("t", 4, Durability::Power) };
    shared::the_nth_growth_or_sync_fails(&Of::<S, _>::new(options), growths);
}

#[test]
fn the_nth_growth_or_sync_fails_over_words() {
    fails::<Words>(3);
}

#[test]
fn the_nth_growth_or_sync_fails_over_key_pointers() {
    fails::<Keyed>(50);
}

#[test]
fn the_nth_growth_or_sync_fails_over_prefixes() {
    fails::<Prefixed>(50);
}
