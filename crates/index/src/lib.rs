//! The kernel: what every index over durable memory shares. An engine embeds a [`Kernel`] and implements [`Embed`]; its life cycle, its
//! write groups and its atomic batches are here, once. To its callers it is an [`Index`], which is their one interface.
//!
//! * [`engine`]: the interface of an engine: index, cursor, snapshot, versions; its entry in the registry. [`kind`]: kinds of keys and
//!   values.
//! * [`kernel`]: the parts of an index, its states, the writer's lock.
//! * `group`: open, commit, close, fail: the life of an index, and one commit for the changes of many.
//! * [`batch`]: writes of several keys as one step. [`images`]: what readers see beside them.
//! * [`snapshot`]: the index as it was at one moment.
//! * [`schema`]: what keys and values are. [`entry`]: how they stand in a leaf. [`shape`]: where in a node. [`write`](mod@write): what is asked of a writer.
//! * [`leaf_list`]: what indexes over one list of leaves share besides.
//! * [`moves`]: records that leave sparse chunks.
//! * [`region`]: an index's file. [`owner`]: whom a block belongs to. [`check`]: verification.
//!
//! Invariants:
//! * K1: one writer at a time: whoever has a [`Guard`].
//! * K2: a panic under the writer's lock ends all writes. Over groups what is not durable is taken back; else readers that meet a node
//!   of the unfinished change get [`Error::Failed`]. The next open recovers.
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
pub mod region;
pub mod schema;
pub mod shape;
pub mod snapshot;
pub mod sorting;
pub mod write;

pub use batch::{Batching, Pair};
pub use check::Report;
pub use engine::{About, Create, Family, Form, Index, Lifecycle, Visitor, WithIndex};
pub use entry::{Entry, LongTail, TAIL_MAX, Tail};
pub use group::Life;
pub use kernel::{Embed, Guard, Kernel, Phase, Writer};
pub use kind::{Kind, SchemaOf};
pub use pmem::{Error, Result};
pub use schema::{Fixed, Keyed, Prefixed, Schema, Words};
pub use shape::Target;
pub use snapshot::{Snapshot, SnapshotView, Snapshots};
pub use write::{Decision, Write, WriteOf, WriteOptions};
