//! NV-Tree: append-only leaves of signed entries in durable memory, under volatile, contiguous inner nodes [Yang et al., FAST 2015, as
//! described in the VLAB paper].
//!
//! Only the list of leaves must be consistent after every store. A leaf is a log. An insert appends an entry and publishes the number of
//! entries. A delete appends a negative entry. The search structure is built from the list when the index is opened.
//!
//! * [`leaf`]: a leaf's words.
//! * [`inner`]: inner nodes and parents of leaves, addressed by calculation. [`rebuild`]: rebuilds them while the index is in use.
//! * [`index`](mod@index): the index and the steps of a change.
//! * `insert`, `delete`: appends. [`replace`]: splits, compactions and merges, each by one switch of a link.
//! * [`search`], [`check`], `recover`: the other operations. `family`: the engine's types for the registry. [`salvage`]: reads leaves
//!   without an index.
//! * Batches, write groups, lookups and scans are those of [`::index::leaf_list`].
#![forbid(unsafe_code)]

pub mod check;
mod delete;
mod family;
pub mod index;
pub mod inner;
mod insert;
pub mod leaf;
pub mod rebuild;
mod recover;
pub mod replace;
pub mod salvage;
pub mod search;

use ::index::engine::About;

/// The engine's entry in the registry.
pub const ABOUT: About = About {
    name: ENGINE,
    about: "NV-Tree: append-only leaves of signed entries in durable memory, contiguous inner nodes in volatile memory",
    leaf: "log",
    inner: "volatile",
    commit_protocol: "one word",
    durable: true,
    lines: (4, 64),
    default_lines: 32,
};

pub use self::family::NvTreeFamily;
pub use self::index::{ENGINE, NvTree, Options};

/// A position in key order.
pub type Cursor<'a, M, S> = ::index::leaf_list::Cursor<'a, NvTree<M, S>>;
