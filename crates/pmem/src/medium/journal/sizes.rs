//! Sizes of a journal: what a caller may choose, what follows from it, and the figures of a journal.

use crate::error::{Error, Result};
use crate::medium::view::PAGE;
use crate::system;

/// Most bytes of a region: what the address space surely holds. A range of twice as much is all that it has.
pub(super) const REGION_MAX: u64 = 1 << 46;
/// Smallest journal in bytes, without its header pages: each half holds any group of 114 lines.
pub const CAPACITY_MIN: u64 = 16 << 10;
/// Usual size of a journal in bytes: each half holds any group of 472,597 lines.
pub const CAPACITY: u64 = 64 << 20;
/// Largest journal in bytes: a half's groups are held in memory while they go home.
pub const CAPACITY_MAX: u64 = 1 << 30;

/// A data file that is smaller than this gets what it needs.
pub(super) const GROWTH_EXACT: u64 = 1 << 20;
/// A growth of a larger one doubles it, but adds no more than so many bytes,
pub(super) const GROWTH_DOUBLES: u64 = 16 << 20;
/// or this part of it,
pub(super) const GROWTH_PART: u64 = 16;
/// and never more than these.
pub(super) const GROWTH_MAX: u64 = 256 << 20;

/// Most bytes of an annex that are allocated before it is known how many are needed.
pub(super) const RESERVED_MAX: u64 = 96 << 20;
/// Smallest bound of a journal's memory in bytes.
pub const MEMORY_MIN: u64 = 16 << 20;
/// A lap's pages take no more than this part of it, the running group's neither, and what the one on its way takes besides.
pub(super) const MEMORY_PART: u64 = 4;
/// Memory that a line of a group takes, besides its page: what it held, what it holds, and that once more as it is written.
pub(super) const LINE_MEMORY: u64 = 240;

/// Sizes of a new pair of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of the journal, both halves together, from [`CAPACITY_MIN`] to [`CAPACITY_MAX`], rounded up to 8 KiB. Opening
    /// after a crash reads this much.
    pub capacity_bytes: u64,
    /// Addresses reserved for the region, in bytes, at most 64 TiB: it can grow to this size until it is opened again.
    pub max_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { capacity_bytes: CAPACITY, max_bytes: 1 << 40 }
    }
}

/// What a checkpoint did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Groups that went home.
    pub groups: u64,
    /// Distinct lines that were written to the data file.
    pub lines: u64,
    /// Pages of the image that were given up.
    pub pages_dropped: u64,
}

/// What a journal did since it was opened, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Groups that were made durable.
    pub groups: u64,
    /// Syncs of either file that succeeded, those of making or opening the pair among them.
    pub syncs: u64,
    /// Halves that went home.
    pub checkpoints: u64,
    /// Bytes of groups that are not home: what opening would have to replay now.
    pub waiting_bytes: u64,
}

/// Bytes of a half, of a journal of `capacity_bytes`.
pub(super) fn half_of(capacity_bytes: u64) -> Result<u64> {
    if !(CAPACITY_MIN..=CAPACITY_MAX).contains(&capacity_bytes) {
        return Err(Error::Durability("a journal has from 16 KiB to 1 GiB"));
    }
    Ok((capacity_bytes / 2).next_multiple_of(PAGE))
}

/// Refuses more than there are addresses for, before anything is computed with it or changed.
pub(super) fn check_maximum(max_bytes: u64) -> Result<()> {
    if max_bytes > REGION_MAX {
        return Err(Error::Durability("a region over a journal has at most 64 TiB"));
    }
    Ok(())
}

/// The usual bound of a journal's memory: a quarter of what the process may have, the machine's or its control group's.
pub fn memory_default() -> u64 {
    (system::memory_bytes() / 4).max(MEMORY_MIN)
}
