//! What indexes over one list of leaves in durable memory share: an engine says how a leaf is read and changed and how the leaf of a
//! key is found ([`Chain`]), and its writers, groups, batches, readers and scans are written once.
//!
//! * [`core`](mod@core): the parts of an index and its life: open, closed, failed. [`group`]: one commit for the changes of many.
//! * [`batch`]: writes of several keys as one.
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

pub use self::core::{Chain, Core, Pages, Writer};
pub use self::scan::Cursor;

/// All that an index can be asked for.
pub mod prelude {
    pub use crate::batch::Writes;
    pub use crate::core::Chain;
    pub use crate::group::Groups;
    pub use crate::read::Reads;
}
