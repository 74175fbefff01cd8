//! The line engine: leaves in durable memory, of which every change is one word in one cache line, under volatile inner nodes.
//!
//! A write to a leaf publishes one word. With 64-bit keys the value is stored before it in the same line, so an insert costs one flush and
//! one fence. No entry of a leaf ever moves. Which slots are used follows from the slots themselves: a free slot has a key that cannot
//! belong to its leaf. A split writes the new right leaf, publishes one link, and then frees the slots of the moved entries.
//!
//! * [`leaf`]: a leaf's words. `meta`: the head of the list.
//! * [`node`], [`directory`]: the inner nodes.
//! * [`index`](mod@index): the index. `load`: its directory after an open. [`change`]: inserts, updates and deletes. [`split`]: splits, merges, and what a crash leaves of them.
//! * `search`, `check`: the other operations. `family`: the engine for the registry.
//! * Batches, groups, lookups and scans are those of [`::index::leaf_list`].
#![forbid(unsafe_code)]

pub mod change;
mod check;
pub mod directory;
mod family;
pub mod index;
pub mod leaf;
mod load;
mod meta;
pub mod node;
mod search;
pub mod split;

use ::index::engine::About;

/// The engine's entry in the registry.
pub const ABOUT: About = About {
    name: ENGINE,
    about: "leaves of which every change is one word in one cache line, volatile inner nodes",
    leaf: "slots without order",
    inner: "volatile",
    commit_protocol: "one word",
    durable: true,
    lines: (2, leaf::LINES_MAX),
    default_lines: leaf::LINES_MAX,
};

pub use self::family::LineFamily;
pub use self::index::{ENGINE, Line};
