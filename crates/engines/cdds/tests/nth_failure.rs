//! The suite `nth_failure` for CDDS. (Crashes just after a failed operation are in the suite `mutants`.)

#[path = "../../../index/tests/shared/nth_failure.rs"]
mod shared;

use cdds::hash::Hashed;
use cdds::{Inlined, Ordered, Unsorted};
use crash::has_turn;
use index::{Keyed, Words};

use crate::common::engine::Of;
use crate::common::{Tested, options};

fn fails<X: Tested>(growths: u64) {
    shared::the_nth_growth_or_sync_fails(&Of::<X, _>::new(options(2)), growths);
}

#[test]
fn the_nth_growth_or_sync_fails_over_words() {
    fails::<Ordered<Words>>(3);
    fails::<Ordered<Words, Unsorted>>(3);
    fails::<Hashed<Words>>(3);
}

/// Trees and the table take turns, because a growth for every few values takes long.
#[test]
fn the_nth_growth_or_sync_fails_over_byte_strings() {
    if has_turn(0, 2) {
        fails::<Ordered<Inlined>>(20);
    }
    if has_turn(1, 2) {
        fails::<Ordered<Inlined, Unsorted>>(20);
        fails::<Hashed<Keyed>>(20);
    }
}
