//! Mutants that no image can break, each with its reason; and the canary.

use crash::{Argued, FREE_CHUNK, Kind, Spot};
use index::About;
use pmem::Fence;

const CORE: &str = include_str!("../../../../index/src/leaf_list/core.rs");

/// True for the engines over a list of leaves.
fn is_list(about: &About) -> bool {
    [vlab::ENGINE, nvtree::ENGINE].contains(&about.name)
}

/// The arguments of an engine that is not a tree.
pub fn argued(about: &About) -> Vec<Argued> {
    // Of the first operation of another engine it is not known what it fences.
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

/// The fence between an entry and the word that commits it. Of an engine that is not known here, every fence of a payload.
pub fn canary(about: &About) -> Spot {
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
