//! Settings, limits and counts of a store.

use std::time::Duration;

use bwtree::Options;
use pmem::direct::BLOCK;

use crate::buffer::WORD;
use crate::log::{LogStats, Sizes};
use crate::segment::{SEGMENT, SEGMENT_MIN};

/// The buffers of the log take at most 1 / `LOG_PART` of the memory budget, unless that is less than [`WORDS_MIN`] for each.
const LOG_PART: u64 = 64;
/// A segment has this part of the live bytes, within its limits.
const SEGMENT_PART: u64 = 16;
/// Minimum words of a buffer of the log.
const WORDS_MIN: usize = (64 << 10) / WORD;

/// Settings of a store.
#[derive(Clone, Debug)]
pub struct Settings {
    /// True: an update that has returned survives a power cut. False: it survives the end of the process.
    pub survives_power: bool,
    /// Bytes of memory for pages, and for memory that waits to be freed.
    pub memory_bytes: u64,
    /// Bytes of log after which a checkpoint is made.
    pub log_bytes: u64,
    /// A checkpoint is also made if there was no update for this time, and the log is worth it: an eighth of the live bytes, but at least a
    /// sixteenth and at most a quarter of `log_bytes`.
    pub idle: Duration,
    /// Bytes of a leaf, with its records, above which it is split.
    pub page_bytes: usize,
    /// True if new images are compressed. `None`: as at the last checkpoint; not in a new store. Both forms are read in any case.
    pub compresses: Option<bool>,
    /// True if reads and writes of images bypass the page cache of the operating system.
    pub direct_io: bool,
    /// Sizes for tests: small buffers, log files, segments and pages.
    pub is_small: bool,
    /// True: the files are not changed, and updates are refused.
    pub read_only: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            survives_power: true,
            memory_bytes: u64::MAX,
            log_bytes: 64 << 20,
            idle: Duration::from_secs(10),
            page_bytes: 16 << 10,
            compresses: None,
            direct_io: false,
            is_small: false,
            read_only: false,
        }
    }
}

impl Settings {
    pub(crate) fn sizes(&self) -> Sizes {
        if self.is_small {
            return Sizes { buffers: 2, words: 64, file: 8 << 10 };
        }
        let sizes = Sizes::default();
        let words = (self.memory_bytes / LOG_PART) as usize / sizes.buffers / WORD;
        Sizes { words: words.clamp(WORDS_MIN, sizes.words), ..sizes }
    }

    /// Bytes of the next segments of a store with this number of live bytes. The space of a small store is in proportion to its data, too.
    pub(crate) fn segment(&self, live_bytes: u64) -> u64 {
        if self.is_small { 4 << 10 } else { (live_bytes / SEGMENT_PART).clamp(SEGMENT_MIN, SEGMENT) }
    }

    /// Bytes of which direct writes are multiples.
    pub(crate) fn block(&self) -> usize {
        if self.is_small { 512 } else { BLOCK }
    }

    /// Maximum bytes of images that were read ahead, with direct I/O. They are a part of the memory budget.
    pub(crate) fn fetched_bytes(&self) -> u64 {
        if self.direct_io && !self.is_small { (self.memory_bytes / 16).min(8 << 20) } else { 0 }
    }

    pub(crate) fn pages(&self) -> Options {
        let of_leaves = if self.is_small { 256 } else { self.page_bytes };
        let of_inner = if self.is_small { 64 } else { 4096 };
        let usual = if self.is_small { Options::tiny() } else { Options::default() };
        Options {
            leaf_split_bytes: of_leaves,
            leaf_merge_bytes: of_leaves / 4,
            inner_split_bytes: of_inner,
            inner_merge_bytes: of_inner / 4 * 3,
            weighs_records: true,
            leaf_chain: if self.is_small { usual.leaf_chain } else { 16 },
            ..usual
        }
    }
}

/// The greatest length of a key and its value together, in bytes. The sizes of pages are numbers of 31 bits.
pub const VALUE_BYTES_MAX: u64 = 64 << 20;
/// The greatest length of all records of a batch in bytes.
pub const BATCH_BYTES_MAX: u64 = 256 << 20;

/// The result of an open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Bytes of log that were read.
    pub log_bytes: u64,
    /// Records that were applied. 0 after a clean close.
    pub records: u64,
    /// Leaves of the checkpoint.
    pub leaves: u64,
}

/// Sizes and counts of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// The log.
    pub log: LogStats,
    /// Checkpoints since the open.
    pub checkpoints: u64,
    /// Bytes of checkpoint files since the open.
    pub checkpoint_bytes: u64,
    /// Bytes of images written since the open.
    pub image_bytes_written: u64,
    /// Bytes of images read since the open.
    pub image_bytes_read: u64,
    /// Bytes that compression has saved in the images written since the open.
    pub saved_bytes: u64,
    /// Bytes of all segments.
    pub segment_bytes: u64,
    /// Bytes of the images that the last checkpoint names.
    pub live_bytes: u64,
    /// Evicted leaves since the open.
    pub evictions: u64,
    /// Images that the cleaner moved since the open.
    pub moved_images: u64,
    /// Leaves that operations used since the open. A scan uses a leaf once for all its pairs.
    pub used_leaves: u64,
    /// Bytes of keys and values of updates since the open.
    pub put_bytes: u64,
    /// Leaves that were read from their images since the open.
    pub paged_in: u64,
    /// Bytes of changes that evicted leaves keep.
    pub unsaved_bytes: u64,
    /// Number of times that an operation waited for memory or for a checkpoint since the open, or evicted leaves or made a checkpoint itself.
    pub waits: u64,
    /// The time of these waits, of all threads together.
    pub waited: Duration,
    /// Memory of the pages.
    pub memory: bwtree::Memory,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_the_log_take_a_part_of_the_memory_budget() {
        let bytes = |memory_bytes| {
            let Sizes { buffers, words, .. } = Settings { memory_bytes, ..Settings::default() }.sizes();
            buffers * words * WORD
        };
        assert_eq!([1 << 20, 64 << 20, 128 << 20].map(bytes), [256 << 10, 1 << 20, 2 << 20]);
        assert_eq!([1 << 30, u64::MAX].map(bytes), [4 << 20; 2]);
    }
}
