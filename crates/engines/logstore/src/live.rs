//! The live bytes of segments.

use std::collections::BTreeMap;

use bwtree::{Image, RestoredLeaf};

use crate::segment::Parts;

/// Live bytes of each segment, by the images that a checkpoint names.
#[derive(Debug, Default)]
pub(crate) struct Live {
    by_segment: BTreeMap<u64, u64>,
    last: Option<Image>,
}

impl Live {
    /// Adds the next leaf of the checkpoint.
    pub(crate) fn add<K>(&mut self, leaf: &RestoredLeaf<K>) {
        // Two leaves may share an image, if they were merged while the checkpoint was made.
        if self.last != Some(leaf.image) {
            let Image { address, base } = leaf.image;
            for Parts { segment, bytes, .. } in [Some(address), base].into_iter().flatten().map(Parts::of) {
                *self.by_segment.entry(segment).or_insert(0) += if bytes > 0 { bytes } else { leaf.bytes };
            }
        }
        self.last = Some(leaf.image);
    }

    /// Live bytes of a segment.
    pub(crate) fn of(&self, segment: u64) -> u64 {
        self.by_segment.get(&segment).copied().unwrap_or(0)
    }

    /// Live bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.by_segment.values().sum()
    }
}
