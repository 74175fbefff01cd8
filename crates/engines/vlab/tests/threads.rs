//! The suite `threads` for VLAB, also with windows of remapped pages, which come and go.

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
