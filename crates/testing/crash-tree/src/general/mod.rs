//! Crash exploration of indexes that are not trees of [`bptree::roster`]: VLAB (the default variant and the paper's variant), NV-Tree, and
//! every other durable engine of the registry that has no suite of its own.
//!
//! * [`subject`]: an index as the explorer's subject.
//! * [`workloads`]: the workloads of the indexes.
//! * `suite`: the choice of workloads for an index, and the mutation run. `argued`: equivalent mutants with their reasons, and for each
//!   engine the mutant that every run must detect (the injected fault).

pub(crate) mod argued;
pub mod subject;
pub(crate) mod suite;
pub mod workloads;

use bptree::roster::TREES;
use bristlecone::registry;
use index::About;

/// Engines that are explored by tests of their own crate.
const EXPLORED_ELSEWHERE: [&str; 3] = [cdds::ENGINE, cdds::ENGINE_UNSORTED, cdds::hash::ENGINE];

/// All engines that this module explores.
pub fn engines() -> impl Iterator<Item = &'static About> {
    registry::engines().filter(|about| about.durable && has(about))
}

/// True if this module explores the engine.
pub fn has(about: &About) -> bool {
    !TREES.iter().any(|tree| tree.name == about.name) && !EXPLORED_ELSEWHERE.contains(&about.name)
}
