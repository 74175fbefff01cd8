//! The CDDS B-Tree: a B-Tree of versions, consistent after every store, with no log [Venkataraman 2011, chapter 4].
//!
//! Each entry carries the version that began it and the one that ended it. A change writes entries of a version that nobody
//! reads yet, and becomes true when one word, the current version, is published. What a crash leaves of a version that
//! was not published is told by its number.
//!
//! * [`version`]: what an entry's versions mean to a reader at one version; dead versions.
//! * [`node`]: how a node keeps its entries; shifts.
//! * [`meta`]: root, current version and count in one line.
//! * [`pins`]: which versions somebody may still read.
//! * [`persist`]: how often one waits for memory.
//! * [`tree`](mod@tree): the tree itself; the protocol of a change is read there.
//! * [`hash`]: the same for a hash table, the thesis's second structure (§4.5).
//! * [`search`], [`scan`], [`insert`], [`delete`], [`collect`], [`named`], [`snapshot`], [`check`]: what it does.
#![forbid(unsafe_code)]

pub mod check;
pub mod collect;
pub mod delete;
pub mod hash;
pub mod insert;
pub mod meta;
pub mod named;
pub mod node;
pub mod persist;
pub mod pins;
pub mod scan;
pub mod search;
pub mod snapshot;
pub mod tree;
pub mod version;

pub use self::pins::Mark;
pub use self::scan::Cursor;
pub use self::snapshot::Snapshot;
pub use self::tree::{ENGINE, Options, Recovery, Tree};
