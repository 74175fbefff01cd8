//! The suite `threads` for VLAB, with and without windows: second mappings of the buckets' pages ([`vlab::rewired`]). During the tests, the
//! index removes its window and maps a new one again and again.

#[path = "../../../index/tests/shared/threads.rs"]
mod shared;

use crate::common::{Home, Mapped, Options, rewired};
use index::{Fixed, Words};

#[test]
fn readers_through_windows_beside_a_writer() {
    let sixteen = |options| Options { stripes: 16, ..options };
    shared::beside_in::<Words>(Mapped::new().medium(), &sixteen(rewired::<Words>(false)), 3_200);
    shared::beside_in::<Fixed>(Mapped::new().medium(), &sixteen(rewired::<Fixed>(false)), 1_600);
}
