//! Bristlecone: an ordered key-value store that never loses its place.
//!
//! A [`Store`] is a directory with one region file in it. Its index lives in durable memory and is consistent after
//! every single store instruction, so an acknowledged write survives and reopening takes no time.
//!
//! * [`store`]: [`Store`] (byte strings), [`StoreU64`] and [`StoreFixed`]; [`Options`]; scans.
//! * [`batch`]: writes of several keys as one.
//! * [`engine`]: the [`Engine`] trait that every index implements, and what it may declare.
//! * [`place`]: the directory and file of a store, and which promise they can keep.
//! * [`registry`]: the engines by name. A new engine is one room and one line there.
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
mod bw_engine;
#[cfg(feature = "cdds")]
mod cdds_index;
#[cfg(any(feature = "vlab", feature = "paper-engines"))]
mod chain_index;
pub mod compact;
pub mod engine;
pub mod error;
mod house;
mod index;
mod latency;
pub mod place;
pub mod registry;
pub mod salvage;
pub mod snapshot;
pub mod store;
mod tree_index;

pub use ::index::{Write, WriteOptions};
pub use backup::{Backup, backup};
pub use batch::Batch;
pub use compact::{Compacted, compact};
pub use engine::{
    Bytes, Capabilities, Change, CheckReport, Count, Cursor, Engine, Fixed, History, JournalActivity,
    JournalStats, Kind, LimboStats, NamedVersion, Pair, Retain, Space, Stats, U64, Versions, View,
};
pub use error::{Error, Result};
pub use latency::{EVERY as TIMED_EVERY, LatencyStats, Percentiles};
/// Has the process end with a message and an exit code when a page of a mapped store cannot be had (SIGBUS).
pub use pmem::bus::explain as explain_bus_errors;
pub use pmem::region::FORMAT_VERSION;
pub use pmem::{Durability, journal};
pub use salvage::{SalvageReport, salvage};
pub use snapshot::Snapshot;
pub use store::{Options, Scan, Store, StoreFixed, StoreOf, StoreU64, prefix_range};

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
