//! Sizes of a journal: options of the caller, the limits that follow from them, and the statistics of a journal.

use crate::error::{Error, Result};
use crate::medium::view::PAGE;
use crate::system;

/// Most bytes of a region: half of the user address space, so that a range of a power of two fits.
pub(super) const REGION_MAX: u64 = 1 << 46;
/// Smallest journal in bytes, without its header pages: each half holds any group of 114 lines.
pub const CAPACITY_MIN: u64 = 16 << 10;
/// Default size of a journal in bytes: each half holds any group of 472,597 lines.
pub const CAPACITY: u64 = 64 << 20;
/// Largest journal in bytes. The groups of a half are in memory during a checkpoint.
pub const CAPACITY_MAX: u64 = 1 << 30;

/// A data file that needs fewer bytes than this gets exactly the bytes that it needs. A larger file grows ahead by the larger of
/// two amounts: the bytes that it needs, but at most [`GROWTH_DOUBLES`]; and these bytes divided by [`GROWTH_PART`]. In both
/// cases it grows ahead by at most [`GROWTH_MAX`].
pub(super) const GROWTH_EXACT: u64 = 1 << 20;
/// Up to this many bytes, a data file doubles when it grows.
pub(super) const GROWTH_DOUBLES: u64 = 16 << 20;
/// Divisor of the bytes of a large data file: the quotient is the number of bytes that it grows ahead.
pub(super) const GROWTH_PART: u64 = 16;
/// Most bytes that a data file grows ahead.
pub(super) const GROWTH_MAX: u64 = 256 << 20;

/// Most bytes of an annex that are allocated before the needed size is known.
pub(super) const RESERVED_MAX: u64 = 96 << 20;
/// Smallest bound of a journal's memory in bytes.
pub const MEMORY_MIN: u64 = 16 << 20;
/// Divisor of the memory bound. The pages of a generation, the running group, the buffers of the group that is being written, and the
/// pages that are kept after their checkpoint each take at most the quotient.
pub(super) const MEMORY_PART: u64 = 5;
/// Memory of a line of a group besides its page, in bytes: its old content, its new content, and that again in the encoded group.
pub(super) const LINE_MEMORY: u64 = 240;

/// Sizes of a new pair of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of the journal, both halves together, from [`CAPACITY_MIN`] to [`CAPACITY_MAX`], rounded up to a multiple of 8 KiB.
    /// Opening after a crash reads this many bytes.
    pub capacity_bytes: u64,
    /// Addresses reserved for the region, in bytes, at most 64 TiB. The region can grow to this size until it is opened again.
    pub max_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { capacity_bytes: CAPACITY, max_bytes: 1 << 40 }
    }
}

/// The statistics of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Groups that were checkpointed.
    pub groups: u64,
    /// Distinct lines that were written to the data file.
    pub lines: u64,
    /// Pages of the image that were dropped.
    pub pages_dropped: u64,
}

/// Statistics of a journal since it was opened, and its present content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Groups that were made durable.
    pub groups: u64,
    /// Successful syncs of either file, including those of making or opening the pair.
    pub syncs: u64,
    /// Halves that were checkpointed.
    pub checkpoints: u64,
    /// Bytes of groups that are not checkpointed: an open would have to replay them now.
    pub waiting_bytes: u64,
}

/// Bytes of a half of a journal of `capacity_bytes`.
pub(super) fn half_of(capacity_bytes: u64) -> Result<u64> {
    if !(CAPACITY_MIN..=CAPACITY_MAX).contains(&capacity_bytes) {
        return Err(Error::Durability("a journal has from 16 KiB to 1 GiB"));
    }
    Ok((capacity_bytes / 2).next_multiple_of(PAGE))
}

/// Refuses more bytes than there are addresses, before anything is computed or changed.
pub(super) fn check_maximum(max_bytes: u64) -> Result<()> {
    if max_bytes > REGION_MAX {
        return Err(Error::Durability("a region over a journal has at most 64 TiB"));
    }
    Ok(())
}

/// Most pages that are kept after their checkpoint, with this memory bound. None at the smallest bound.
pub(super) fn kept_pages_max(memory_bytes: u64) -> u64 {
    memory_bytes.saturating_sub(MEMORY_MIN) / MEMORY_PART / PAGE
}

/// The default bound of a journal's memory: a quarter of the memory of the machine or of the process's control group.
pub fn memory_default() -> u64 {
    (system::memory_bytes() / 4).max(MEMORY_MIN)
}
