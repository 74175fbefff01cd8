//! What indexes over one list of leaves share besides: an engine says how a leaf is read and changed and how the leaf of a key is found
//! ([`LeafList`]), and its writers, readers and scans are written once.
//!
//! * [`core`](mod@core): the parts of such an index. [`space`]: what an operation may store.
//! * [`write`](mod@write): writes. [`write_group`]: writes that share their fences.
//! * [`read`]: gets. [`scan`]: cursors.
//! * `index`: such an index as one of the registry.
//! * `garbage`: clearing.
//! * [`recover`]: who owns a block. [`bound`]: keys as words.

pub mod bound;
pub mod core;
pub mod garbage;
mod index;
pub mod read;
pub mod recover;
pub mod scan;
pub mod space;
pub mod write;
pub mod write_group;

pub use self::core::{Core, LeafList, Pages, Side, Turnover, Writer};
pub use self::scan::Cursor;

/// All that such an index can be asked for.
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
