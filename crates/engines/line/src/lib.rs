//! The line engine: durable leaves, linked in key order, under volatile inner nodes. A change of one key publishes one word of a leaf.
//!
//! An entry never moves inside its leaf. With 64-bit keys an insert stores the value first, in the same cache line as the key, and then
//! publishes the key. So the insert costs one flush and one fence. A leaf has no bitmap: a slot that holds the leaf's *empty word* is free.
//! A split writes the new right leaf, publishes one link, and then frees the slots of the moved entries.
//!
//! * [`leaf`]: a leaf's words.
//! * [`node`], [`directory`]: the inner nodes.
//! * [`index`](mod@index): the index. `load`: fills the directory after an open.
//! * [`change`]: inserts, updates and deletes. [`split`]: splits and merges, and their recovery.
//! * `search`, `check`: the other operations. `family`: the engine's types for the registry.
//! * `orders`: the key order of leaves, kept for scans.
//! * `vectored`: the parts that are compiled for vector instructions.
//! * Batches, write groups, lookups and scans are those of [`::index::leaf_list`].
#![forbid(unsafe_code)]

pub mod change;
mod check;
mod digest;
pub mod directory;
mod family;
#[cfg(test)]
#[path = "../../../pmem/src/format_page.rs"]
mod format_page;
pub mod index;
pub mod leaf;
mod load;
pub mod node;
mod orders;
mod search;
pub mod split;
mod vectored;

use ::index::engine::About;

/// The engine's entry in the registry.
pub const ABOUT: About = About {
    name: ENGINE,
    about: "each change is one word in one cache line of a leaf; volatile inner nodes",
    leaf: "slots without order",
    inner: "volatile",
    commit_protocol: "one word",
    durable: true,
    lines: (2, leaf::LINES_MAX),
    default_lines: leaf::LINES_MAX,
};

pub use self::family::LineFamily;
pub use self::index::{ENGINE, Line};
