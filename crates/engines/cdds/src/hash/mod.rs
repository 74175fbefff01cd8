//! The CDDS hash table: entries with versions in buckets. (The thesis mentions such a table in §4.5, without details.)
//!
//! Entries are in chains of nodes, one chain for each bucket of a linear hash table [Litwin 1980]. Entries, versions, dead intervals, pins
//! and the meta block are the same as in the CDDS B-Tree: an entry has a start version and an end version, and recovery declares the
//! version that was interrupted by a crash dead. A change is a version. It costs one or two lines and two fences: its entry goes into a
//! free slot, the replaced entry gets an end version, and the current version is published.
//!
//! The place of an entry has no version. Buckets are split and joined, and nodes are added and removed, in steps that no reader sees, at
//! any version. So old versions need no copies of the directory. A rollback to an older version undoes no split.
//!
//! | fence passed ([`pmem::Fence`]) | durable | after a crash |
//! |---|---|---|
//! | none, or some that new nodes need | any of the stored start and end versions, new nodes | the version of the change is declared dead; new nodes contain void entries |
//! | payload | the whole change; perhaps count and current version | the same; or nothing to do, if the current version is durable |
//! | commit | count, version, allocation bits | nothing to do |
//!
//! Invariants:
//! * H1: a view at the current version sees exactly the acknowledged writes. Every entry that a view at a pinned version sees is valid, and
//!   its node and record are allocated.
//! * H2: an entry counts if it is not void (V3 of [`crate::version`]) and if, by the number of buckets, its hash belongs to its bucket. The
//!   slots of other entries are equivalent to free slots. The table grows or shrinks by publishing that number. Before hashes return to a
//!   bucket, its leftover entries with these hashes are cleared.
//! * H3: between operations, an entry that counts is the only reference to its record, and a node is in one chain. S2 of
//!   [`crate::versioned`] says which blocks are allocated.
//! * H4: an entry is garbage if no reader is between its start and its end. So after a collection a key has no more old entries than there
//!   are versions that may still be read.
//! * H5: over a journal a move of entries is part of the running group. A reader at the durable version finds the entries at their new
//!   place. If the commit of the group fails, the words of entries and directory get the values that they had before the group, while all
//!   version locks are locked.
//!
//! * [`directory`]: the bucket of a hash, and the chain of a bucket.
//! * [`bucket`]: chains of nodes.
//! * [`table`]: the table and the commit of a change.
//! * [`read`], [`write`](mod@write), [`resize`], [`collect`], [`own`], [`check`]: the operations.

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

/// The engine's entry in the registry.
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
