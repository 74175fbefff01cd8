//! Shared parts of the tests: the samples for indexes that are one list of leaves, and how an NV-Tree is made and opened.

#[path = "../../../../index/tests/shared/engine.rs"]
pub mod engine;
#[path = "../../../../index/tests/shared/engine_of_lists.rs"]
mod engine_of_lists;
#[path = "../../../../index/tests/shared/samples.rs"]
pub mod samples;

use std::path::Path;

#[allow(unused_imports)]
pub use nvtree::{NvTree as Index, Options};
use pmem::{Durability, Geometry, Medium, Observed, Result};
pub use samples::*;

/// Number of words in use in the meta block.
#[allow(dead_code)]
pub const META_WORDS: u64 = 1;
/// Words of a header that are checked.
#[allow(dead_code)]
pub const CHECKED: &[(u64, &str)] = &[(0, "nxt"), (1, "count"), (2, "min"), (3, "seal")];

/// Small chunks, few stripes, and parents of few leaves, which are soon full. `_faithful` has no effect.
pub fn options<S: Sample>(lines: u64, _faithful: bool) -> Options {
    Options {
        payload_words: S::PAYLOAD_WORDS,
        geometry: Geometry::tiny(),
        stripes: 2,
        space: 4,
        ..Options::new(lines, Durability::Power)
    }
}

/// Opens the index in memory.
#[allow(dead_code)]
pub fn open<S: Sample>(medium: &Observed, lines: u64) -> Index<Observed, S> {
    Index::open(medium.clone(), Path::new("memory"), &options::<S>(lines, false)).unwrap().0
}

/// Rebuilds the inner nodes at once.
#[allow(dead_code)]
pub fn rebuild<M: Medium, S: Sample>(index: &Index<M, S>) -> Result<()> {
    index.rebuild()
}

/// Maximum number of leaves of an index without keys. Each parent of leaves keeps one leaf.
#[allow(dead_code)]
pub fn leaves_of_empty<M: Medium, S: Sample>(index: &Index<M, S>) -> Option<u64> {
    Some(index.paths().parents as u64)
}
