//! What the tests share: the samples and the subject of all indexes over one list, and how this one is made and opened.

#[path = "../../../chain/tests/shared/samples.rs"]
mod samples;
#[allow(dead_code)]
#[path = "../../../chain/tests/shared/subject.rs"]
pub mod subject;

use std::path::Path;

use pmem::{Durability, Geometry, Medium, Observed, Result};
pub use samples::*;
#[allow(unused_imports)]
pub use vlab::{Options, Vlab as Index};

/// Words of the meta block that say something.
#[allow(dead_code)]
pub const META_WORDS: u64 = 3;
/// Words of a header that are checked.
#[allow(dead_code)]
pub const CHECKED: &[(u64, &str)] = &[(0, "nxt"), (2, "min"), (3, "max")];

/// Small chunks, few stripes, short braids that are combined often and slowly.
pub fn options<S: Sample>(lines: u64, faithful: bool) -> Options {
    Options {
        payload_words: S::PAYLOAD_WORDS,
        geometry: Geometry::tiny(),
        stripes: 2,
        faithful,
        braids: 4,
        braid_buckets: Some(2),
        combine_step: 2,
        ..Options::new(lines, Durability::Power)
    }
}

/// Opens what is in memory.
#[allow(dead_code)]
pub fn open<S: Sample>(medium: &Observed, lines: u64) -> Index<Observed, S> {
    Index::open(medium.clone(), Path::new("memory"), &options::<S>(lines, false)).unwrap().0
}

/// Combines at once.
#[allow(dead_code)]
pub fn rebuild<M: Medium, S: Sample>(index: &Index<M, S>) -> Result<()> {
    index.combine()
}
