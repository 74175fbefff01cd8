//! A latch-free Bw-tree in memory (Levandoski, Lomet, Sengupta: *The Bw-Tree*, ICDE 2013; with what Wang et al. learned of it:
//! *Building a Bw-Tree Takes More Than Just Buzz Words*, SIGMOD 2018).
//!
//! * `table`: the mapping table, from a page's number (PID) to its newest node. Every change of a page is one exchange there.
//! * `node`: base pages and deltas, and who owns them. `slab`: changes beside a leaf. `page`: what a chain of them means.
//! * [`pairs`]: what keys and values are: [`Words`], [`Bytes`]. `record`: a byte string's key and value. `search`: in arrays.
//! * [`tree`]: the tree, and operations on single keys. [`scan`]: cursors.
//! * `structure`: consolidation, splits, index terms. `merge`: merges, and the root's way down.
//! * `epoch`: when what was taken out can be freed. `limbo`: freeing it. `pool`: the memory that all of it lies in.
//! * [`check`]: the structure checker. [`stats`]: what is counted.
//! * `sync`: the one door to atomics: the processor's, a model checker's, a scheduler's. [`canary`]: protocols with a part left out.
//!
//! No operation waits for another one. Unsafe code is in `table`, `node`, `slab`, `record`, `pool`, `epoch` and `limbo` alone.

pub mod bytes;
#[doc(hidden)]
pub mod canary;
pub mod check;
mod epoch;
pub mod error;
mod limbo;
mod merge;
mod node;
pub mod options;
mod page;
pub mod pairs;
mod pool;
mod record;
pub mod scan;
mod search;
mod slab;
pub mod stats;
mod structure;
mod sync;
mod table;
pub mod tree;
pub mod words;

pub use bytes::{Bytes, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use check::Check;
pub use error::{Error, Result};
pub use options::{LEAF_CHAIN_MAX, Options};
pub use pairs::Pairs;
pub use scan::Cursor;
pub use stats::{Memory, Stats};
pub use tree::{Change, Tree};
pub use words::Words;

#[cfg(all(test, loom))]
mod model;
