//! Bristlecone: an ordered key-value store that never loses its place.
//!
//! A [`Store`] is a directory with one region file in it. Its index lives in durable memory and is consistent after
//! every single store instruction, so an acknowledged write survives and reopening takes no time.
//!
//! * [`store`]: [`Store`] (byte strings), [`StoreU64`] and [`StoreFixed`]; scans. [`options`]: how to open them.
//! * [`batch`]: writes of several keys as one.
//! * `index`: the [`Index`] trait that every engine implements, and what it may declare. [`stats`]: sizes and counts.
//! * `durable_engine`: an index with its files, journal and threads, as the engine of a store.
//! * [`store_dir`]: the directory and file of a store, and which promise they can keep.
//! * [`registry`]: the engines by name. A new engine is one crate and one line there.
//! * [`mod@backup`]: a store's state as of one moment, made a store of its own.
//! * [`mod@compact`]: a store written anew in key order, so that its file has what its pairs take.
//! * [`mod@salvage`]: what is left of a damaged store, copied into a new one.
//! * [`snapshot`]: a store as it was at one version, for engines that keep versions.
//! * [`error`]: what can go wrong, and what to do.

// Some parts serve some engines only. A build with all engines is checked for what nothing uses.
#![cfg_attr(not(feature = "all-engines"), allow(dead_code, unused_imports))]

pub mod backup;
pub mod batch;
#[cfg(feature = "bwtree")]
mod bw_index;
pub mod compact;
mod durable_engine;
pub mod error;
mod latency;
pub mod options;
pub mod registry;
mod rewrite;
pub mod salvage;
pub mod snapshot;
pub mod stats;
pub mod store;
pub mod store_dir;

pub use ::index::engine::{
    Capabilities, Change, Count, Cursor, History, KeyValue, NamedVersion, Retain, Versions, View,
};
pub use ::index::kind::{Bytes, Fixed, KEY_BYTES_MAX, U64, VALUE_BYTES_MAX};
pub use ::index::{Index, Kind, Report as CheckReport, Write, WriteOptions};
pub use backup::{Backup, backup};
pub use batch::Batch;
pub use compact::{Compacted, compact};
pub use durable_engine::Engine;
pub use error::{Error, Result};
pub use latency::{EVERY as TIMED_EVERY, LatencyStats, Percentiles};
pub use options::Options;
/// Has the process end with a message and an exit code when a page of a mapped store cannot be had (SIGBUS).
pub use pmem::bus::explain as explain_bus_errors;
pub use pmem::region::FORMAT_VERSION;
pub use pmem::{Durability, journal};
pub use salvage::{SalvageReport, salvage};
pub use snapshot::Snapshot;
pub use stats::{JournalActivity, JournalStats, LimboStats, Space, Stats};
pub use store::{Scan, Store, StoreFixed, StoreOf, StoreU64, prefix_range};

/// The documents' examples compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/embedding.md")]
struct Documents;
