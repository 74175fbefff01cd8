//! Bristlecone: an embedded, ordered key-value store whose index is durable.
//!
//! A [`Store`] is a directory with one region file and, on an ordinary file system, a journal. The index in durable memory is recoverable
//! after every store instruction of the processor. So an open does not rebuild the durable nodes. (Some engines also have inner nodes in
//! volatile memory, which they build again.) An acknowledged write survives every failure that the store's [`Durability`] covers.
//!
//! * [`store`]: [`Store`] (byte strings), [`StoreU64`], [`StoreFixed`], and scans. [`options`]: how a store is opened.
//! * [`batch`]: atomic writes of several keys. [`tickets`]: writes whose caller waits for durability later.
//! * `index`: the trait [`Index`] that every engine implements, and the capabilities of engines. [`stats`]: sizes and counts.
//! * `durable_engine`: an index with its files, journal and threads, as the engine of a store.
//! * [`store_dir`]: the directory and the file of a store, and the durability that they can provide.
//! * [`registry`]: the engines by name. A new engine is one crate and one line in the registry.
//! * [`mod@backup`]: copies the state of a store at one moment into a new store.
//! * [`mod@compact`]: rewrites a store, so that its file shrinks to the size of its pairs.
//! * [`mod@salvage`]: copies the intact records of a damaged store into a new store.
//! * [`snapshot`]: the state of a store at one moment, and durable versions.
//! * [`tables`]: several key spaces in one store, and deadlines after which keys expire. [`transaction`]: reads and writes of several keys
//!   in one atomic step.
//! * [`typed`]: tuples as keys.
//! * [`error`]: errors, and what the user can do about them.

// Some items are used only by some engines. The build with all engines reports dead code.
#![cfg_attr(not(feature = "all-engines"), allow(dead_code, unused_imports))]

pub mod backup;
pub mod batch;
#[cfg(feature = "bwtree")]
mod bw_files;
#[cfg(feature = "bwtree")]
mod bw_index;
mod committer;
pub mod compact;
mod durable_engine;
pub mod error;
mod in_files;
mod latency;
mod open_in_files;
pub mod options;
pub mod registry;
mod rewrite;
pub mod salvage;
#[cfg(feature = "bwtree")]
mod salvage_files;
pub mod snapshot;
pub mod stats;
pub mod store;
pub mod store_dir;
mod tabled;
pub mod tables;
pub mod tickets;
pub mod transaction;
pub mod typed;

pub use ::index::engine::{
    Capabilities, Change, Count, Cursor, Deadline, Expiring, History, KeyValue, NamedVersion, Next, Retain,
    Versions, View,
};
pub use ::index::kind::{Bytes, Fixed, KEY_BYTES_MAX, U64, VALUE_BYTES_MAX};
pub use ::index::tables::Clock;
pub use ::index::tables::{TABLE_KEY_BYTES_MAX, TABLE_VALUE_BYTES_MAX};
pub use ::index::{Index, Kind, Report as CheckReport, Write, WriteOptions};
pub use backup::{Backup, backup};
pub use batch::Batch;
pub use compact::{Compacted, compact};
pub use durable_engine::Engine;
pub use error::{Error, ErrorKind, Result};
pub use latency::{EVERY as TIMED_EVERY, LatencyStats, Percentiles};
pub use options::{Compression, Options};
/// Makes the process end with a message and an exit code if a page of a mapped store is not available (SIGBUS).
pub use pmem::bus::explain as explain_bus_errors;
pub use pmem::region::FORMAT_VERSION;
pub use pmem::{Durability, journal};
pub use salvage::{SalvageReport, salvage};
pub use snapshot::Snapshot;
pub use stats::{JournalActivity, JournalStats, LimboStats, PagingStats, Space, Stats};
pub use store::{Scan, Store, StoreFixed, StoreOf, StoreU64, prefix_range};
pub use tickets::{Durable, Ticket};
pub use transaction::{Transaction, TransactionTable};

/// Compiles the examples of the documents.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/embedding.md")]
struct Documents;
