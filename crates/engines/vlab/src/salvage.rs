//! Reads the entries of a bucket. The list that contained the bucket need not be readable.

use index::Entry;
use index::Schema;
use pmem::{Medium, Region};

use crate::bucket::{Bucket, Shape, slots};

/// All entries in use in the bucket at `at`, if there is one.
pub fn entries<M: Medium, S: Schema>(region: &Region<M>, at: u64) -> Vec<Entry<S::Tail>> {
    let (medium, identity, bucket) = (region.medium(), region.identity(), Bucket(at));
    let shape =
        S::payload_words(&identity.kind).and_then(|words| Shape::new::<S>(identity.node_lines, words));
    let Some(shape) = shape.filter(|_| bucket.nxt(medium).is_some()) else { return Vec::new() };
    slots(&bucket.bits(medium, &shape)).map(|slot| bucket.entry(medium, &shape, slot)).collect()
}
