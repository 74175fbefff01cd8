//! The log-structured store of a Bw-tree (Levandoski, Lomet, Sengupta: *The Bw-Tree*, ICDE 2013, §II, §V, §VI): data that is larger than
//! memory, on ordinary files, written by many threads at once, and safe from power cuts.
//!
//! * [`store`]: the store, and its recovery. `upkeep`: checkpoints, eviction, cleaning. `settings`: settings, limits, counts.
//! * [`batch`]: several writes in one step.
//! * `log`: the commit log. `turns`: its group commit. `replay`: its reading. `recovery`: the use of its records at an open. `buffer`: its
//!   buffers, which threads fill without a lock. `record`: the contents of its records.
//! * `segments`: images of leaves. `segment`: one file of them. `stream`: its end. `head`: the bytes before an image. `packed`: compression.
//!   `helper`: threads that ask the system for images, and write them. `fetched`: images that were read ahead, for direct I/O.
//!   `checkpoint`: the leaves of the store at a checkpoint.
//! * `pieces`: reads of files in pieces. `counts`: counts of operations.
//! * `gate`: single updates and batches exclude each other. `marks`: which keys have updates that are not durable yet.
//! * [`salvage`]: reads a damaged store.
//! * [`copy`]: copies of a store's files. [`omission`]: faults that tests inject.
//! * `header`: the first sector of every file. [`identity`]: the store's own file.
//! * `sync`: the only module that selects the atomics: the processor's, or those of a model checker.
//!
//! The tree itself, with eviction and page-in of leaves, is the crate `bwtree`.
#![forbid(unsafe_code)]

pub mod batch;
mod buffer;
mod checkpoint;
pub mod copy;
mod counts;
mod fetched;
mod gate;
mod head;
mod header;
mod helper;
pub mod identity;
mod live;
mod log;
mod marks;
pub mod omission;
mod packed;
mod pieces;
mod place;
mod record;
mod recovery;
mod replay;
pub mod salvage;
mod segment;
mod segments;
mod settings;
pub mod store;
mod stream;
mod sync;
mod turns;
mod upkeep;

pub use batch::{BatchDone, BatchWrite};
pub use log::LogStats;
pub use settings::{BATCH_BYTES_MAX, Opened, Settings, StoreStats, VALUE_BYTES_MAX};
pub use store::{Store, StoreCursor};
