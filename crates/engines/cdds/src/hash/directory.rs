//! The directory: the table from buckets to their chains of nodes.
//!
//! ```text
//! top       word 0 tag, log2 of slots per segment, log2 of the maximum number of segments   word 1 number of buckets
//!           word 2 seed of the hash   from line 1: addresses of segments
//! segment   word 0 tag and index   from line 1: slots, each the address of a chain's first node; 0: an empty bucket
//! ```
//!
//! Linear hashing: of `n` buckets, bucket `n - 2^L` is the next one to split (L is the logarithm of `n`, rounded down). The number of
//! buckets determines the bucket of a hash. So one store to word 1 of the top grows or shrinks the table. If the top is full, a top of
//! twice the size replaces it; the new top copies the addresses of the segments, and no slots.
//!
//! Invariants:
//! * D1: segments and slots below the number of buckets are valid. Above it they may contain anything.
//! * D2: there is one directory for all versions of the store's contents. A change of the directory does not change the entries that a
//!   reader sees, whichever version it reads.

use pmem::{LINE, Medium, WORD};

use crate::persist::Persist;

const TOP_TAG: u64 = 0xCD7A;
const SEGMENT_TAG: u64 = 0xCD5E;
/// Maximum slots of a segment, so that it fits into a chunk of the default size.
pub const SEGMENT_SLOTS_MAX: u64 = 1 << 14;
const SEGMENTS_LOG2_MAX: u64 = 40;

/// A decoded top of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Address of the top.
    pub top: u64,
    /// Number of buckets.
    pub buckets: u64,
    slots_log2: u32,
    segments_log2: u32,
}

fn array_bytes(words: u64) -> u64 {
    LINE + (words * WORD).next_multiple_of(LINE)
}

/// The bucket of a hash in a table with this number of buckets.
#[inline]
pub fn bucket_of(hash: u64, buckets: u64) -> u64 {
    let level = buckets.ilog2();
    let low = hash & ((2 << level) - 1);
    if low < buckets { low } else { low & ((1 << level) - 1) }
}

/// The bucket that is split when bucket `last` is added. It takes the entries back when bucket `last` is removed.
pub fn partner(last: u64) -> u64 {
    last - (1 << last.ilog2())
}

/// Number of hash bits that lead to this bucket.
pub fn bits_of(bucket: u64, buckets: u64) -> u32 {
    let level = buckets.ilog2();
    let is_split = bucket < buckets - (1 << level) || bucket >= 1 << level;
    level + u32::from(is_split)
}

impl Directory {
    /// A directory with one bucket and space for one segment.
    pub fn first(top: u64, segment_slots: u64) -> Self {
        Self { top, buckets: 1, slots_log2: segment_slots.ilog2(), segments_log2: 0 }
    }

    /// The same directory in a top of twice the size.
    pub fn doubled(self, top: u64) -> Self {
        Self { top, segments_log2: self.segments_log2 + 1, ..self }
    }

    /// Reads a top's first line. `None` if there is no top.
    #[inline]
    pub fn read<M: Medium>(medium: &M, top: u64) -> Option<Self> {
        let word = medium.word(top);
        let (slots, segments) = (word >> 8 & 0xFF, word & 0xFF);
        let is_top = word >> 16 == TOP_TAG
            && top.is_multiple_of(LINE)
            && (1..=SEGMENT_SLOTS_MAX.ilog2().into()).contains(&slots)
            && segments <= SEGMENTS_LOG2_MAX;
        let buckets = medium.word(top + WORD);
        let directory = Self { top, buckets, slots_log2: slots as u32, segments_log2: segments as u32 };
        let fits = is_top && top < medium.len() && directory.top_bytes() <= medium.len() - top;
        (fits && (1..=directory.space()).contains(&buckets)).then_some(directory)
    }

    /// The seed of the hash.
    pub fn seed<M: Medium>(self, medium: &M) -> u64 {
        medium.word(self.top + 2 * WORD)
    }

    /// Writes a top that no word references yet, and flushes it.
    pub fn write_top<M: Medium>(self, medium: &M, persist: Persist, seed: u64, segments: &[u64]) {
        let word = TOP_TAG << 16 | u64::from(self.slots_log2) << 8 | u64::from(self.segments_log2);
        medium.copy(self.top, word);
        medium.copy(self.top + WORD, self.buckets);
        medium.copy(self.top + 2 * WORD, seed);
        for index in 0..1 << self.segments_log2 {
            medium.copy(self.segment_at(index), segments.get(index as usize).copied().unwrap_or(0));
        }
        persist.flush(medium, self.top, self.top_bytes());
    }

    /// Writes a segment of empty buckets that no word references yet, and flushes it.
    pub fn write_segment<M: Medium>(self, medium: &M, persist: Persist, index: u64, segment: u64) {
        medium.copy(segment, SEGMENT_TAG << 48 | index);
        for slot in 0..1 << self.slots_log2 {
            medium.copy(segment + LINE + slot * WORD, 0);
        }
        persist.flush(medium, segment, self.segment_bytes());
    }

    /// Bytes of the top.
    pub fn top_bytes(self) -> u64 {
        array_bytes(1 << self.segments_log2)
    }

    /// Bytes of a segment.
    pub fn segment_bytes(self) -> u64 {
        array_bytes(1 << self.slots_log2)
    }

    /// Maximum number of buckets of this top.
    pub fn space(self) -> u64 {
        1 << (self.slots_log2 + self.segments_log2)
    }

    /// Number of segments in use.
    pub fn segments(self) -> u64 {
        self.buckets.div_ceil(1 << self.slots_log2)
    }

    /// Index of the segment with a bucket's slot.
    pub fn index_of(self, bucket: u64) -> u64 {
        bucket >> self.slots_log2
    }

    /// True if the bucket's slot is the first of its segment.
    pub fn begins_segment(self, bucket: u64) -> bool {
        bucket.is_multiple_of(1 << self.slots_log2)
    }

    /// Offset of the word with the address of a segment.
    pub fn segment_at(self, index: u64) -> u64 {
        self.top + LINE + index * WORD
    }

    /// Offset of a bucket's slot. `None` if there is no segment.
    #[inline]
    pub fn slot_at<M: Medium>(self, medium: &M, bucket: u64) -> Option<u64> {
        let segment = medium.word(self.segment_at(self.index_of(bucket)));
        let can_be = segment != 0 && segment.is_multiple_of(LINE) && segment < medium.len();
        can_be.then(|| self.slot_in(segment, bucket))
    }

    /// Offset of a bucket's slot in a segment at this address.
    pub fn slot_in(self, segment: u64, bucket: u64) -> u64 {
        segment + LINE + (bucket & ((1 << self.slots_log2) - 1)) * WORD
    }

    /// The index in the header of a segment. `None` if there is no segment.
    pub fn index_in<M: Medium>(medium: &M, segment: u64) -> Option<u64> {
        let word = medium.word(segment);
        (word >> 48 == SEGMENT_TAG).then_some(word & ((1 << 48) - 1))
    }

    /// The bucket of a hash.
    #[inline]
    pub fn bucket_of(self, hash: u64) -> u64 {
        bucket_of(hash, self.buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_more_takes_hashes_from_its_partner_alone() {
        let mut rng = 1_u64;
        for buckets in 1..200_u64 {
            for _ in 0..50 {
                rng = rng.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                let hash = rng ^ rng >> 32;
                let (old, new) = (bucket_of(hash, buckets), bucket_of(hash, buckets + 1));
                assert!(new == old || (new == buckets && old == partner(buckets)));
                let bits = bits_of(old, buckets);
                assert_eq!(old, hash & ((1 << bits) - 1), "{hash:#x} of {buckets}");
            }
        }
    }
}
