//! NV-Tree: append-only leaves of signed entries in durable memory, under inner nodes that are volatile and contiguous [Yang et al.,
//! FAST 2015; as the VLAB paper describes it].
//!
//! Only the list of leaves has to be consistent after every store. A leaf is a log: an insert appends an entry and publishes the number
//! of entries, a delete appends an entry of the other sign. What search needs is built from the list when the index is opened.
//!
//! * [`leaf`]: a leaf's words. `meta`: the head of the list.
//! * [`inner`]: inner nodes and parents of leaves, addressed by calculation. [`rebuild`]: how they are built anew beside use.
//! * [`index`](mod@index): the index itself; the protocol of a change is read there.
//! * `insert`, `delete`: appends. [`replace`]: splits, compactions and merges by one switch of a link.
//! * [`search`], [`check`], `recover`: what else it does. `family`: as an engine of the registry. [`salvage`]: leaves without an index.
//! * Batches, groups, lookups and scans are those of [`::index::leaf_list`].
#![forbid(unsafe_code)]

pub mod check;
mod delete;
mod family;
pub mod index;
pub mod inner;
mod insert;
pub mod leaf;
mod meta;
pub mod rebuild;
mod recover;
pub mod replace;
pub mod salvage;
pub mod search;

use ::index::engine::About;

/// How it stands among the engines.
pub const ABOUT: About = About {
    name: ENGINE,
    about: "NV-Tree: append-only leaves of signed entries in durable memory, contiguous inner nodes in memory of the process",
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
