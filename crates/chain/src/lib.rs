//! What indexes over one list of leaves in durable memory share: an engine says how a leaf is read and changed and how the leaf of a
//! key is found ([`Chain`]), and its writers, groups, batches, readers and scans are written once.
//!
//! * [`core`](mod@core): the parts of an index and its life: open, closed, failed. [`group`]: one commit for the changes of many.
//! * [`batch`]: writes, and writes of several keys as one. [`wave`]: writes that share their fences.
//! * [`read`]: look-ups. [`scan`]: cursors.
//! * [`recover`]: who owns a block. [`check`]: what a verification needs. [`bound`]: keys as words.
#![forbid(unsafe_code)]

pub mod batch;
pub mod bound;
pub mod check;
pub mod core;
pub mod group;
pub mod read;
pub mod recover;
pub mod scan;
pub mod wave;

pub use self::core::{Chain, Core, Pages, Turnover, Writer};
pub use self::scan::Cursor;

/// What is here, file by file: for counting lines of code.
const SOURCES: [&str; 9] = [
    include_str!("batch.rs"),
    include_str!("bound.rs"),
    include_str!("check.rs"),
    include_str!("core.rs"),
    include_str!("group.rs"),
    include_str!("read.rs"),
    include_str!("recover.rs"),
    include_str!("scan.rs"),
    include_str!("wave.rs"),
];

/// An engine's own sources, and those here: `N` of them.
pub const fn sources<const N: usize>(own: &[&'static str]) -> [&'static str; N] {
    assert!(N == own.len() + SOURCES.len());
    let mut all = [""; N];
    let mut i = 0;
    while i < N {
        all[i] = if i < own.len() { own[i] } else { SOURCES[i - own.len()] };
        i += 1;
    }
    all
}

/// All that an index can be asked for.
pub mod prelude {
    pub use crate::batch::Writes;
    pub use crate::core::Chain;
    pub use crate::group::Groups;
    pub use crate::read::Reads;
    pub use crate::wave::Commits;
}
