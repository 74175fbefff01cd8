//! The kernel: what every index over durable memory shares. An engine embeds a [`Kernel`] and implements [`Index`]; its life cycle, its
//! write groups and its atomic batches are here, once.
//!
//! * [`kernel`]: the parts of an index, its states, the writer's lock.
//! * [`group`]: open, commit, close, fail: the life of an index, and one commit for the changes of many.
//! * [`batch`]: writes of several keys as one step. [`images`]: what readers see beside them.
//! * [`snapshot`]: the index as it was at one moment.
//! * [`schema`]: what keys and values are. [`entry`]: how they stand in a leaf. [`write`](mod@write): what is asked of a writer.
//! * [`chain`]: what indexes over one list of leaves share besides.
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
pub mod chain;
pub mod check;
pub mod entry;
pub mod group;
pub mod images;
pub mod kernel;
pub mod moves;
pub mod owner;
pub mod region;
pub mod schema;
pub mod snapshot;
pub mod sorting;
pub mod write;

pub use batch::{Batching, Pair};
pub use check::Report;
pub use entry::{Entry, LongTail, TAIL_MAX, Tail};
pub use group::Life;
pub use kernel::{Guard, Index, Kernel, Phase, Writer};
pub use pmem::{Error, Result};
pub use schema::{Fixed, Keyed, Prefixed, Schema, Words};
pub use snapshot::{Snapshot, Snapshots};
pub use write::{Decision, Write, WriteOf, WriteOptions};
