//! The redo-only log of [wB+ §3.1, figure 6], with what the figure leaves out.
//!
//! A record is 16 bytes, within one line: the value word is copied first, the address word published after it, so a
//! record whose address word carries the current lap is whole. The address word holds
//!
//! ```text
//! bit 0..40  home word (offset / 8)   40..52  lap   52..63  records of the commit   63  commit mark
//! ```
//!
//! A commit is `n` records, the last one marked and counting them. Protocol and crash table:
//!
//! | step | may be on the medium at a crash | recovery |
//! |---|---|---|
//! | records written, flushed | any of them | incomplete count: ignored |
//! | fence (commit point: the last record of the commit to become durable) | all of them | replayed |
//! | home words written, flushed | any of them | replayed over them |
//! | settle: fence, lap word published, fence | all of them | next lap is empty |
//!
//! Invariants:
//! * L1: while a commit is unsettled, its home words change only through the log (`touches` tells; callers settle first).
//! * L2: a lap's tag is used again only after all records were wiped, so no stale record carries the current lap.
//! * L3: a lap that held anything at a crash is never written again.

use crate::error::{Error, Result};
use crate::medium::{Fence, LINE, Medium, WORD};
use crate::region::{Geometry, LAP_AT, LOG_AT, checked, unchecked};

const RECORD: u64 = 16;
const LAPS: u64 = 1 << 12;
const HOME_BITS: u32 = 40;
const FILTER_BITS: usize = 1 << 14;
/// Bytes that the filter tells apart: a few looks for a node of many lines.
const GRAIN: u64 = 256;

/// Volatile side of the log; owned by the writer.
#[derive(Debug)]
pub struct Log {
    records: u64,
    /// Lap in use.
    lap: u64,
    /// Next free record of the lap.
    next: u64,
    /// Grains with unsettled home words: a filter with one hash.
    filter: Box<[u64; FILTER_BITS / 64]>,
}

impl Log {
    /// The log of a freshly made region.
    pub fn new(geometry: Geometry) -> Self {
        Self { records: geometry.log_records, lap: 1, next: 0, filter: Box::new([0; FILTER_BITS / 64]) }
    }

    /// Replays the commits that the last session left unsettled; stores nothing if there were none.
    ///
    /// # Errors
    /// `Corrupt` if a committed record's home lies outside the region.
    pub fn recover<M: Medium>(medium: &M, geometry: Geometry) -> Result<Self> {
        let settled = unchecked(medium.word(LAP_AT)).ok_or(Error::Corrupt { what: "log lap", at: LAP_AT })?;
        let mut log = Self { lap: settled + 1, ..Self::new(geometry) };
        let mut commit = Vec::new();
        let mut in_order = true;
        let mut used = false;
        for index in 0..log.records {
            let at = LOG_AT + index * RECORD;
            let tag = Tag::of(medium.word(at + WORD));
            if tag.lap != log.lap % LAPS || tag.home == 0 {
                in_order = false;
                continue;
            }
            used = true;
            if !in_order {
                continue;
            }
            commit.push((tag.home * WORD, medium.word(at)));
            if tag.commit {
                if tag.count != commit.len() as u64 {
                    in_order = false;
                    continue;
                }
                for (home, value) in commit.drain(..) {
                    if home < LENGTH_MIN || home >= medium.len() {
                        return Err(Error::Corrupt { what: "log record", at });
                    }
                    medium.copy(home, value);
                    medium.flush(home, WORD);
                }
            }
        }
        if used {
            log.next = 1; // the lap held something: L3
            log.settle(medium);
        }
        Ok(log)
    }

    /// Most words that one commit may change.
    pub fn capacity(&self) -> usize {
        self.records as usize
    }

    /// Commits `writes` (offset, value) in one crash-atomic step: durable when it returns, home words written.
    ///
    /// # Errors
    /// `TooLarge` if they do not fit in the log at all; nothing is changed then.
    pub fn commit<M: Medium>(&mut self, medium: &M, writes: &[(u64, u64)]) -> Result<()> {
        let count = writes.len() as u64;
        if count > self.records {
            return Err(Error::TooLarge { records: writes.len(), limit: self.records as usize });
        }
        if self.next + count > self.records {
            self.settle(medium);
        }
        let first = LOG_AT + self.next * RECORD;
        for (i, (home, value)) in writes.iter().enumerate() {
            let at = first + i as u64 * RECORD;
            let last = i as u64 + 1 == count;
            let tag = Tag {
                home: home / WORD,
                lap: self.lap % LAPS,
                count: if last { count } else { 0 },
                commit: last,
            };
            medium.copy(at, *value);
            medium.publish(at + WORD, tag.word());
        }
        medium.flush(first, count * RECORD);
        medium.fence(Fence::Commit);
        self.next += count;
        for (home, value) in writes {
            medium.copy(*home, *value);
            let bit = filter_bit(home / GRAIN);
            self.filter[bit / 64] |= 1 << (bit % 64);
        }
        flush_homes(medium, writes);
        Ok(())
    }

    /// True if `at..at + bytes` may hold unsettled home words (never falsely false).
    #[inline(always)]
    pub fn touches(&self, at: u64, bytes: u64) -> bool {
        self.next != 0
            && (at / GRAIN..(at + bytes).div_ceil(GRAIN)).any(|grain| {
                let bit = filter_bit(grain);
                self.filter[bit / 64] & 1 << (bit % 64) != 0
            })
    }

    /// Makes all home words durable and the lap void, so that its home words may change by other means (L1).
    pub fn settle<M: Medium>(&mut self, medium: &M) {
        if self.next == 0 {
            return;
        }
        // Home lines were flushed when they were written; they must be durable before the lap is void.
        medium.fence(Fence::Checkpoint);
        medium.publish(LAP_AT, checked(self.lap));
        medium.flush(LAP_AT, WORD);
        medium.fence(Fence::Checkpoint);
        self.lap += 1;
        self.next = 0;
        self.filter.fill(0);
        if self.lap.is_multiple_of(LAPS) {
            self.wipe(medium);
        }
    }

    /// Clears every record before lap tags come round again (L2).
    fn wipe<M: Medium>(&mut self, medium: &M) {
        for index in 0..self.records {
            medium.copy(LOG_AT + index * RECORD + WORD, 0);
        }
        medium.flush(LOG_AT, self.records * RECORD);
        medium.fence(Fence::Checkpoint);
    }
}

/// Homes below this offset are never logged, except the root word.
const LENGTH_MIN: u64 = crate::region::ROOT_AT;

/// Flushes each home line once per run of neighbouring writes.
fn flush_homes<M: Medium>(medium: &M, writes: &[(u64, u64)]) {
    let mut flushed = u64::MAX;
    for (home, _) in writes {
        let line = home & !(LINE - 1);
        if line != flushed {
            medium.flush(line, LINE);
            flushed = line;
        }
    }
}

#[inline]
fn filter_bit(grain: u64) -> usize {
    (grain.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50) as usize
}

const _: () = assert!(FILTER_BITS == 1 << (64 - 50));

struct Tag {
    home: u64,
    lap: u64,
    count: u64,
    commit: bool,
}

impl Tag {
    fn word(&self) -> u64 {
        debug_assert!(self.home < 1 << HOME_BITS && self.count < 1 << 11);
        self.home | self.lap << 40 | self.count << 52 | u64::from(self.commit) << 63
    }

    fn of(word: u64) -> Self {
        Self {
            home: word & ((1 << HOME_BITS) - 1),
            lap: word >> 40 & (LAPS - 1),
            count: word >> 52 & 0x7FF,
            commit: word >> 63 != 0,
        }
    }
}
