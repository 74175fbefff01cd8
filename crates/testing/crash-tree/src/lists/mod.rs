//! The indexes over a list of leaves under the crash explorer: VLAB, by default and as its paper has it, and NV-Tree.
//!
//! * [`subject`]: an index as the explorer's subject.
//! * [`workloads`]: what it is driven by.
//! * `suite`: the runs of an exploration, and those that find mutants. `argued`: mutants that nothing can break, and the canary.

pub(crate) mod argued;
pub mod subject;
pub(crate) mod suite;
pub mod workloads;

use index::About;

/// All of them.
pub const LISTS: [&About; 2] = [&vlab::ABOUT, &nvtree::ABOUT];

/// True if the engine is one of these.
pub fn has(about: &About) -> bool {
    LISTS.iter().any(|list| list.name == about.name)
}
