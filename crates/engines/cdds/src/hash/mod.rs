//! The CDDS hash table: entries of versions in buckets [thesis §4.5 names one, and no more].
//!
//! What the tree keeps in order of keys this keeps in chains of nodes, one chain for each bucket of a linear hash table
//! [Litwin 1980]. Entries, versions, dead intervals, pins and the meta block are the tree's. A change is a version, and costs a
//! line or two and two fences: its entry goes into a free slot, the one it replaces ends, and the current version is published.
//!
//! Where entries stand is of no version: buckets split and become one, nodes come and go, in steps that no reader sees, at
//! whatever version he reads. So the past needs no copies of the directory, and a rollback takes back no split.
//!
//! | fence passed | durable | after a crash |
//! |---|---|---|
//! | none, or some of new nodes | any of: ends, starts, new nodes | their version is dead; nodes lead to void entries |
//! | payload | all of the change | the same |
//! | commit | count, version, bits | nothing to do |
//!
//! Invariants:
//! * H1: what a view at the current version sees is exactly what was acknowledged. All that a view at a pinned version sees is
//!   whole, and its nodes and records allocated.
//! * H2: an entry is there if it is not void and the number of buckets says that its hash belongs to the bucket it stands in. What
//!   else stands there is as good as a free slot. Growing and shrinking are the publishing of that number; before a bucket gets
//!   hashes back, it has no entry of them.
//! * H3: an entry that is there names its record alone, and a node is in one chain: a block is allocated if and only if it is
//!   led to so (between operations).
//! * H4: an entry that no reader stands between the versions of is garbage, and nothing is kept for its sake: old versions of a
//!   key that changes often pile up only as far as snapshots tell them apart.
//! * H5: over a medium of groups a move of entries is part of the running group, and whoever reads at the durable version finds his
//!   entries where they were moved to. If the group fails, entries and directory are taken back together, under all stripes.
//!
//! * [`directory`]: which bucket a hash belongs to, and which chain a bucket has.
//! * [`bucket`]: chains of nodes.
//! * [`table`]: the table itself; how a change becomes true.
//! * [`read`], [`write`](mod@write), [`resize`], [`collect`], [`own`], [`check`]: what it does.

pub mod bucket;
pub mod check;
pub mod collect;
pub mod directory;
pub mod own;
mod pass;
pub mod read;
pub mod resize;
pub mod table;
pub mod write;

use ::index::engine::About;

pub use self::read::{Pairs, Snapshot};
pub use self::table::{ENGINE, Hashed, Options, Table};

/// How it stands among the engines.
pub const ABOUT: About = About {
    name: ENGINE,
    about: "CDDS hash table: entries of versions in buckets, no order and no scans; snapshots, rollback",
    leaf: "versions",
    inner: "directory",
    commit_protocol: "versions",
    durable: true,
    lines: (2, 64),
    default_lines: 4,
};
