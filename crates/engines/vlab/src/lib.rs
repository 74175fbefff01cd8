//! VLAB: a sorted list of buckets in durable memory. There are no inner nodes; a bucket is found by calculation [VLAB, TC 2018].
//!
//! Each bucket has unordered entries and a bitmap. So an insert stores its entry and one word, and a delete stores one word. The search
//! structures are volatile and are built from the list when the index is opened.
//!
//! * [`bucket`]: a bucket's words. `meta`: the heads of the lists.
//! * [`directory`]: the software page table, searched by calculation. `braids`: the buckets that were added after it was built.
//! * [`rewired`]: an alternative that uses the processor's page table: the buckets' pages are mapped in key order.
//! * [`index`](mod@index): the index and the steps of a change.
//! * `insert`, `delete`, `split`, `merge`: changes. [`combine`]: the directory takes in the braids.
//! * [`search`], [`check`], `recover`: the other operations. `family`: the engine's types for the registry. [`salvage`]: reads buckets
//!   without an index.
//! * Batches, write groups, lookups and scans are those of [`::index::leaf_list`].
#![forbid(unsafe_code)]

mod braids;
pub mod bucket;
pub mod check;
pub mod combine;
mod delete;
pub mod directory;
mod family;
pub mod index;
mod insert;
mod merge;
mod meta;
mod recover;
pub mod rewired;
pub mod salvage;
pub mod search;
mod split;

use ::index::engine::About;

/// The engine's entry in the registry.
pub const ABOUT: About = About {
    name: ENGINE,
    about: "VLAB: sorted buckets in durable memory and no inner nodes, found by calculation; fewest words written",
    leaf: "bitmap",
    inner: "none",
    commit_protocol: "one word",
    durable: true,
    lines: (4, 64),
    default_lines: 64,
};

pub use self::combine::Work;
pub use self::directory::Guide;
pub use self::family::VlabFamily;
pub use self::index::{ENGINE, Options, Vlab};
pub use self::rewired::{Addressed, Addressing, Why};
/// A position in key order.
pub type Cursor<'a, M, S> = ::index::leaf_list::Cursor<'a, Vlab<M, S>>;
