//! Reads the entries of a leaf alone, without the list of leaves to which it belonged.

use index::Entry;
use index::Schema;
use pmem::{Medium, Region};

use crate::leaf::{Leaf, Shape};

/// All live entries of the leaf at `at`, if there is one: for each key the newest entry, if it is positive.
pub fn entries<M: Medium, S: Schema>(region: &Region<M>, at: u64) -> Vec<Entry<S::Tail>> {
    let identity = region.identity();
    let shape =
        S::payload_words(&identity.kind).and_then(|words| Shape::new::<S>(identity.node_lines, words));
    let Some(shape) = shape else { return Vec::new() };
    Leaf(at).live::<M, S>(region.medium(), &shape).into_iter().map(|(_, entry)| entry).collect()
}
