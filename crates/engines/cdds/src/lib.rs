//! The CDDS B-Tree: a B-Tree of versions that is consistent after every store and has no log [Venkataraman 2011, chapter 4].
//!
//! Each entry has a start version and an end version. A change stores its entries with a new version number, which no reader uses yet. Then
//! one publish makes this version current. After a crash, entries with a version above the current one belong to a change that was not
//! published.
//!
//! * [`version`]: tells which entries a reader at a version sees. *Dead versions*: those of changes that a crash interrupted or that were
//!   rolled back.
//! * [`node`]: the entries of a node, and their shifts. [`entry_order`]: entries sorted by key, or in order of arrival (`cdds-unsorted`).
//! * [`inlined`]: byte strings with their first bytes in the entry.
//! * [`meta`]: root, current version and number of keys in one line.
//! * [`pins`]: the versions that readers may still read.
//! * [`salvage`]: reads the entries of a leaf without the tree.
//! * [`persist`]: flushes and fences, as the thesis does them or with fewer fences.
//! * [`versioned`]: the part that the tree and the hash table share, with the steps of a change. [`structure`]: the interface that each of
//!   them implements.
//! * [`tree`](mod@tree): the tree.
//! * [`access`]: lookups, puts, deletes. [`upkeep`]: garbage collection, verification, clear.
//! * [`batch`](mod@batch): many writes as one atomic step. [`group`](mod@group): many versions with one commit of the medium.
//! * [`kept`]: named and retained versions. `maintain`: background work. [`family`]: the engines for the registry.
//! * [`hash`]: the hash table. The thesis mentions one in §4.5.
//! * [`simd_scan`]: compares all slots of a node at once. [`mask`]: sets of slots. [`ordered`]: the data types of the tree. `passes`: the
//!   state that the steps of background work share.
//! * [`search`], [`scan`], [`insert`], [`delete`], [`collect`], [`named`], [`snapshot`], [`check`]: the operations.
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

/// The registry entry of the tree without order in its nodes. It is the same code.
pub const ABOUT_UNSORTED: About = About {
    name: ENGINE_UNSORTED,
    about: "CDDS B-Tree without order in its nodes: an insert stores to one line of a leaf, a lookup reads all of its entries",
    leaf: "unsorted",
    inner: "unsorted",
    ..ABOUT
};

/// The engine's entry in the registry.
pub const ABOUT: About = About {
    name: ENGINE,
    about: "CDDS B-Tree: versioned entries, no log; snapshots, rollback, atomic batches without extra writes",
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
