//! The kernel: the part that all indexes over durable memory share.
//!
//! An engine embeds a [`Kernel`] and implements [`Embed`]. The life cycle, the commit groups and the atomic batches are implemented here,
//! once. Callers use an engine only through [`Index`].
//!
//! * [`engine`]: the interface of an engine (index, cursor, snapshot, versions) and its registry entry. [`kind`]: kinds of keys and values.
//! * [`kernel`]: the parts of an index, its phases, the writer's lock.
//! * `group`: the life cycle, and commit groups.
//! * [`batch`]: atomic batches. [`images`]: before-images for concurrent readers. [`snapshot`]: snapshots.
//! * [`garbage`]: removes all keys in one commit, and frees the old structure afterwards. [`moves`]: moves records out of sparse chunks.
//! * [`schema`]: keys and values. [`entry`]: the words of an entry. [`shape`]: the positions of entries in a node.
//!   [`write`](mod@write): write requests.
//! * [`leaf_list`]: the shared part of the indexes over one list of leaves.
//! * [`region`]: creates and opens the region of an index. [`owner`]: recovery of the allocation bits. [`check`]:
//!   verification. [`paging`]: counts of an index that is larger than memory.
//! * [`sorting`]: sort functions that all engines share, to keep the code small.
//! * [`tables`]: several tables, with deadlines of keys, in one ordered index.
//!
//! Invariants:
//! * K1: there is one writer at a time. It is the thread that holds a [`Guard`].
//! * K2: a panic under the writer's lock ends all writes, except a panic in a caller's closure ([`Guard::outside`]), or between two changes
//!   of a session over a list of leaves ([`leaf_list`]).
//!   With a journal, everything that is not durable is rolled back. Without a journal, a reader of a node that the
//!   incomplete change had locked gets [`Error::Failed`]. The next open recovers the index.
//! * K3: a region is marked clean only by [`Life::close`] of an index that never failed.
#![forbid(unsafe_code)]

pub mod batch;
pub mod check;
pub mod engine;
pub mod entry;
pub mod garbage;
mod group;
pub mod images;
pub mod kernel;
pub mod kind;
pub mod leaf_list;
pub mod moves;
pub mod owner;
pub mod paging;
pub mod region;
pub mod schema;
pub mod shape;
pub mod snapshot;
pub mod sorting;
pub mod tables;
pub mod write;

pub use batch::{Batching, Pair};
pub use check::Report;
pub use engine::{About, Create, Family, Form, Index, Lifecycle, Visitor, WithIndex};
pub use entry::{Entry, LongTail, TAIL_MAX, Tail};
pub use group::Life;
pub use kernel::{Embed, Guard, KEYS_UNKNOWN, Kernel, Phase, Writer};
pub use kind::{Kind, SchemaOf};
pub use pmem::{Error, Result};
pub use schema::{Fixed, Keyed, Prefixed, Schema, Words};
pub use shape::Target;
pub use snapshot::{Snapshot, SnapshotView, Snapshots};
pub use write::{Decision, Write, WriteOf, WriteOptions};
