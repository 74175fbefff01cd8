//! The CDDS B-Tree: a B-Tree of versions, consistent after every store, with no log [Venkataraman 2011, chapter 4].
//!
//! Each entry carries the version that began it and the one that ended it. A change writes entries of a version that nobody
//! reads yet, and becomes true when one word, the current version, is published. What a crash leaves of a version that
//! was not published is told by its number.
//!
//! * [`version`]: what an entry's versions mean to a reader at one version; dead versions.
//! * [`node`]: how a node keeps its entries; shifts. [`entry_order`]: by key, or as they came (`cdds-unsorted`).
//! * [`inlined`]: byte strings with the first bytes in the entry.
//! * [`meta`]: root, current version and count in one line.
//! * [`pins`]: which versions somebody may still read.
//! * [`salvage`]: leaves without a tree.
//! * [`persist`]: how often one waits for memory.
//! * [`versioned`]: what the tree and the hash table have in common; the protocol of a change is read there. [`structure`]: what
//!   each has for its own.
//! * [`tree`](mod@tree): the tree itself.
//! * [`access`]: lookups, puts, deletes. [`upkeep`]: collection, verification, clearing.
//! * [`batch`](mod@batch): many writes as one version. [`group`](mod@group): many versions with one commit of the medium.
//! * [`kept`]: named and retained versions. `maintain`: work beside users. [`family`]: as engines of the registry.
//! * [`hash`]: the same for a hash table, the thesis's second structure (§4.5).
//! * [`simd_scan`]: all slots of a node at one look. [`mask`]: sets of slots. [`ordered`]: the parts of the tree. `passes`: what steps of the
//!   work beside users know of each other.
//! * [`search`], [`scan`], [`insert`], [`delete`], [`collect`], [`named`], [`snapshot`], [`check`]: what it does.
#![forbid(unsafe_code)]

pub mod access;
pub mod batch;
pub mod check;
pub mod collect;
pub mod delete;
pub mod entry_order;
pub mod family;
pub mod group;
pub mod hash;
pub mod inlined;
pub mod insert;
pub mod kept;
mod maintain;
pub mod mask;
pub mod meta;
pub mod named;
pub mod node;
pub mod ordered;
mod passes;
pub mod persist;
pub mod pins;
pub mod salvage;
pub mod scan;
pub mod search;
pub mod simd_scan;
pub mod snapshot;
pub mod structure;
pub mod tree;
pub mod upkeep;
pub mod version;
pub mod versioned;

use ::index::engine::About;

/// How the tree of nodes without order stands among the engines. It is the tree's code.
pub const ABOUT_UNSORTED: About = About {
    name: ENGINE_UNSORTED,
    about: "CDDS B-Tree without order in its nodes: an insert stores to one line of a leaf, a lookup looks at all of its entries",
    leaf: "unsorted",
    inner: "unsorted",
    ..ABOUT
};

/// How it stands among the engines.
pub const ABOUT: About = About {
    name: ENGINE,
    about: "CDDS B-Tree: entries of versions, no log; snapshots, rollback, batches at the price of their writes",
    leaf: "versions",
    inner: "versions",
    commit_protocol: "versions",
    durable: true,
    lines: (2, 64),
    default_lines: 16,
};

pub use self::entry_order::{Order, Sorted, Unsorted};
pub use self::family::{HashFamily, TreeFamily};
pub use self::inlined::Inlined;
pub use self::ordered::{Ordered, Tree};
pub use self::pins::{Kept, Mark};
pub use self::scan::{Cursor, Snapshot};
pub use self::snapshot::SnapshotOf;
pub use self::structure::Structure;
pub use self::structure::{Options, Versioned};
pub use self::tree::{ENGINE, ENGINE_UNSORTED};
pub use self::versioned::Recovery;
