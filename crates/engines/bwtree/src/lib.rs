//! A latch-free Bw-tree in memory (Levandoski, Lomet, Sengupta: *The Bw-Tree*, ICDE 2013), with improvements from Wang et al.: *Building a
//! Bw-Tree Takes More Than Just Buzz Words*, SIGMOD 2018.
//!
//! * `table`: the mapping table, from a page id (PID) to the newest state of the page. Every change of a page is one exchange in this
//!   table.
//! * `node`: base pages, deltas, and their ownership. `slab`: changes in the block of a leaf. `page`: the meaning of a delta chain.
//! * [`pairs`]: the kinds of keys and values: [`Words`], [`Bytes`]. `record`: a byte-string key and its value. `fence`: a
//!   key that bounds pages. `search`: search in arrays.
//! * [`tree`]: the tree, and operations on single keys. [`scan`]: cursors.
//! * [`paged`]: leaves outside of memory. [`eviction`]: how they leave it. [`late`]: their changes without a read. `copies`: their records
//!   that were read. `digest`: which of two images has a key. [`guide`]: which part of an image. [`image`]: their contents as bytes.
//!   `ahead`: reads that saves and scans will need. [`restore`]: a tree from images.
//! * `structure`: consolidation, splits, index terms. `merge`: merges, and the shrink of the root.
//! * `epoch`: decides when retired memory can be freed. `limbo`: frees it. `pool`: an allocation pool for each thread slot.
//! * [`check`]: the structure checker. [`stats`]: counters.
//! * `sync`: the only module that imports atomics. They are the processor's, a model checker's or a scheduler's. [`omission`]: fault
//!   injection.
//!
//! No operation waits for another one. In a tree with images, operations wait for reads of evicted leaves, for the lock of the allocator, and
//! a merge of leaves for the exchange of an eviction. Only `table`, `node`, `slab`, `record`, `pool`, `epoch` and `limbo` contain unsafe code.

mod ahead;
pub mod bytes;
pub mod check;
mod copies;
mod digest;
mod epoch;
pub mod error;
pub mod eviction;
mod fence;
pub mod guide;
pub mod image;
pub mod late;
mod limbo;
mod merge;
mod node;
#[doc(hidden)]
pub mod omission;
pub mod options;
mod page;
pub mod paged;
pub mod pairs;
mod pool;
mod record;
pub mod restore;
pub mod save;
pub mod scan;
mod search;
mod slab;
pub mod stats;
mod structure;
mod sync;
mod table;
pub mod tree;
mod units;
pub mod words;

pub use bytes::{Bytes, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use check::Check;
pub use error::{Error, Result};
pub use eviction::{Eviction, Residence};
pub use image::{Address, Image, ImageKind, Late};
pub use late::Plan;
pub use options::{LEAF_CHAIN_MAX, Options};
pub use paged::Shelf;
pub use pairs::Pairs;
pub use restore::RestoredLeaf;
pub use save::SavedLeaf;
pub use scan::Cursor;
pub use stats::{Memory, Stats};
pub use tree::{Change, Recorder, Tree};
pub use words::Words;

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, loom))]
mod model_paged;
