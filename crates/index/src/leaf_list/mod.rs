//! The shared part of the indexes over one list of leaves.
//!
//! An engine implements [`LeafList`]: how to read and change a leaf, and how to find the leaf of a key. Writers, readers and scans are
//! implemented here, once.
//!
//! * [`core`](mod@core): the parts of such an index. [`space`]: the lines that an operation may store to, and the locks
//!   of leaves.
//! * [`write`](mod@write): writes. [`write_group`]: writes that share their fences.
//! * [`read`]: lookups. [`scan`]: cursors. [`copy`](mod@copy): a cursor's copy of a leaf. `following`: the leaves that a
//!   cursor reads next.
//! * `index`: the implementation of the interface [`Index`](crate::Index).
//! * `garbage`: clearing. [`meta`]: the block that references the list.
//! * [`recover`]: recovery of the allocation bits. [`bound`]: bounds of leaves.

pub mod bound;
pub mod copy;
pub mod core;
mod following;
pub mod garbage;
mod index;
pub mod meta;
pub mod read;
pub mod recover;
pub mod scan;
mod session;
pub mod space;
pub mod write;
pub mod write_group;

pub use self::copy::{LeafCopy, slots_by_key};
pub use self::core::{Core, LeafList, Side, Turnover, Writer};
pub use self::following::Following;
pub use self::scan::Cursor;

/// All traits of such an index.
pub mod prelude {
    pub use super::core::LeafList;
    pub use super::read::Reads;
    pub use super::space::HasSpace;
    pub use super::write::Writes;
    pub use super::write_group::Commits;
    pub use crate::batch::Batching;
    pub use crate::group::Life;
    pub use crate::kernel::Embed;
    pub use crate::snapshot::Snapshots;
}
