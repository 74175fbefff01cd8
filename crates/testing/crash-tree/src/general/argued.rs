//! Equivalent mutants with their reasons, and the injected fault.

use crash::{Argued, FREE_CHUNK, Kind, Spot};
use index::About;
use pmem::Fence;

const CORE: &str = include_str!("../../../../index/src/leaf_list/core.rs");

/// True for the engines over a list of leaves.
fn is_list(about: &About) -> bool {
    [vlab::ENGINE, nvtree::ENGINE].contains(&about.name)
}

/// Returns the equivalent mutants of an engine that is not a tree.
pub fn argued(about: &About) -> Vec<Argued> {
    // It is unknown which fences the first operation of another engine has.
    let first_root = is_list(about).then(|| {
        Argued::new(
            Kind::DropFence(Fence::Commit),
            "index/src/leaf_list/core.rs",
            CORE,
            "medium.fence(Fence::Commit); // [format]",
            "without its root an index opens as a new one, which it is until the next operation; and that has passed a fence before \
             it names a block: an insert's own, or the one with which the first chunk of records is opened",
        )
    });
    let early = Argued { spot: Spot { kind: Kind::EarlyPublish, ..FREE_CHUNK.spot }, ..FREE_CHUNK };
    first_root.into_iter().chain([FREE_CHUNK, early]).collect()
}

/// Returns the injected fault that must be detected: the fence between an entry and the word that commits it is missing. For an engine that
/// this module does not know, all payload fences are missing.
pub fn injected_fault(about: &About) -> Spot {
    if !is_list(about) {
        return Spot::anywhere(Kind::DropFence(Fence::Payload));
    }
    let source = include_str!("../../../../index/src/leaf_list/write_group.rs");
    Spot::new(
        Kind::DropFence(Fence::Payload),
        "index/src/leaf_list/write_group.rs",
        source,
        "medium.fence(Fence::Payload);",
    )
}
