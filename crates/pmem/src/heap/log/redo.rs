//! The log's records: written, committed, read back. The contract is in the head of [`crate::heap::log`].

use crate::error::{Error, Result};
use crate::heap::log::data_words;
use crate::heap::region::{GENERATION_AT, Geometry, LOG_AT, unchecked};
use crate::medium::traits::{Fence, LINE, Medium, WORD};

pub(super) const GENERATIONS: u64 = 1 << 12;
const ADDRESS_BITS: u32 = 39;
const FILTER_BITS: usize = 1 << 14;
/// Bytes of a grain of the filter: a node of many lines needs only a few filter lookups.
const GRAIN: u64 = 256;

/// The kind of records in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// New words only.
    Redo,
    /// Old words too.
    UndoRedo,
}

impl Format {
    /// Indices of the words of a line at which records begin.
    const fn begins(self) -> &'static [u64] {
        match self {
            Self::Redo => &[0, 2, 4, 6],
            Self::UndoRedo => &[0, 3, 6],
        }
    }

    /// Slots in a line.
    const fn per_line(self) -> u64 {
        self.begins().len() as u64
    }

    /// Offset of the record in a slot.
    pub(super) fn at(self, place: u64) -> u64 {
        let (line, place) = (place / self.per_line(), place % self.per_line());
        LOG_AT + line * LINE + self.begins()[place as usize] * WORD
    }

    /// True if the slot has space for an old word.
    fn holds_old(self, place: u64) -> bool {
        self == Self::UndoRedo && place % 3 < 2
    }

    /// Most slots that this many records need, wherever they begin.
    fn places(self, redo: usize, undo: usize) -> u64 {
        match self {
            Self::Redo => redo as u64,
            Self::UndoRedo => redo as u64 + undo as u64 + (undo as u64).div_ceil(2) + 1,
        }
    }
}

/// Volatile state of the log. The writer owns it.
#[derive(Debug)]
pub struct Log {
    pub(super) format: Format,
    pub(super) lines: u64,
    pub(super) places: u64,
    /// Generation in use.
    pub(super) generation: u64,
    /// Next free slot of the generation.
    pub(super) next: u64,
    /// Filter, with one hash function, of the grains with data words of records that are not truncated.
    pub(super) filter: Box<[u64; FILTER_BITS / 64]>,
    /// Lines of data words to flush: of the running commit, or of the generation.
    pub(super) data_lines: Vec<u64>,
}

/// The time at which the lines of a commit's data words are flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataLines {
    /// At once.
    Flushed,
    /// When the generation ends: each line once, however many commits changed it.
    Deferred,
}

impl Log {
    /// The log of a new region.
    pub fn new(geometry: Geometry, format: Format) -> Self {
        let lines = geometry.log_records / 4;
        let places = lines * format.per_line();
        Self {
            format,
            lines,
            places,
            generation: 1,
            next: 0,
            filter: Box::new([0; FILTER_BITS / 64]),
            data_lines: Vec::new(),
        }
    }

    /// Replays the commits that the last session did not truncate, and rolls back an uncommitted one. If a crash interrupted a
    /// wipe, it wipes again. It stores nothing if there was none of these.
    ///
    /// # Errors
    /// `Corrupt` if the word of the log generation is damaged, or if a record's data word lies outside the region or is never
    /// logged.
    pub fn recover<M: Medium>(medium: &M, geometry: Geometry, format: Format) -> Result<Self> {
        let settled = unchecked(medium.word(GENERATION_AT))
            .ok_or(Error::Corrupt { what: "log generation", at: GENERATION_AT })?;
        let mut log = Self { generation: settled + 1, ..Self::new(geometry, format) };
        let mut commit: Vec<Record> = Vec::new();
        let mut in_order = true;
        let mut used = false;
        for place in 0..log.places {
            let Some(record) = log.read(medium, place) else {
                // A slot that is too small for an old word may have been skipped.
                in_order &= log.format == Format::UndoRedo && !log.format.holds_old(place);
                continue;
            };
            used = true;
            if !in_order {
                continue;
            }
            commit.push(record);
            if record.tag.commit {
                if record.tag.count != commit.len() as u64 {
                    in_order = false;
                    continue;
                }
                for record in commit.drain(..) {
                    record.put(medium, record.new)?;
                }
            }
        }
        // The remaining records were not committed. Their old words are in the order in which they were overwritten.
        for record in commit.iter().rev() {
            if let Some(old) = record.old {
                record.put(medium, old)?;
            }
        }
        if log.is_for_wiping() {
            // A crash came between the truncation of the previous generation and the end of the wipe.
            if used {
                // An older version of this program wrote records in this generation. They were replayed above.
                medium.fence(Fence::Checkpoint);
            }
            log.wipe(medium);
        } else if used {
            log.next = 1; // the generation held records: L3
            log.truncate(medium);
        }
        Ok(log)
    }

    /// The record in a slot, if it is of the current generation.
    fn read<M: Medium>(&self, medium: &M, place: u64) -> Option<Record> {
        let at = self.format.at(place);
        let tag = Tag::of(medium.word(at));
        if tag.generation != self.generation % GENERATIONS || tag.data_at == 0 {
            return None;
        }
        let old = tag.undo && self.format.holds_old(place);
        let old = old.then(|| medium.word(at + 2 * WORD));
        Some(Record { at, tag, new: medium.word(at + WORD), old })
    }

    /// Most words that one redo-only commit may change.
    pub fn capacity(&self) -> usize {
        self.places as usize
    }

    /// Checks whether `redo` records without an old word and `undo` records with one fit into the empty log. Called before
    /// anything is changed.
    ///
    /// # Errors
    /// `TooLarge` if they do not fit.
    pub fn check_space(&self, redo: usize, undo: usize) -> Result<()> {
        if self.format.places(redo, undo) > self.places {
            return Err(Error::TooLarge {
                of: "words of the log",
                asked: (redo + undo) as u64,
                limit: self.places,
            });
        }
        Ok(())
    }

    /// Commits `writes` (offset, value) in one crash-atomic step. When it returns, the commit is durable and the data words are
    /// stored [wB+ figure 6: `WriteRedoOnly`, `CommitRedoWrites`].
    ///
    /// # Errors
    /// `TooLarge` if they do not fit in the log at all; nothing is changed then.
    pub fn commit<M: Medium>(&mut self, medium: &M, writes: &[(u64, u64)], lines: DataLines) -> Result<()> {
        self.make_space(medium, writes.len(), 0)?;
        let first = self.next;
        for (i, (data_at, new)) in writes.iter().enumerate() {
            let last = i + 1 == writes.len();
            self.append(medium, *data_at, *new, None, last.then_some(writes.len()));
        }
        self.flush_records(medium, first);
        medium.fence(Fence::Commit);
        for (data_at, value) in writes {
            data_words::store(medium, *data_at, *value);
            self.note(*data_at);
        }
        data_words::note_lines(writes.iter().map(|(data_at, _)| *data_at), &mut self.data_lines);
        if lines == DataLines::Flushed {
            data_words::flush(medium, &mut self.data_lines);
        }
        Ok(())
    }

    /// Commits `fresh` words of unused space and `overwritten` words in one crash-atomic step [wB+ figure 5]: `NewRedo` for each of the
    /// first, then `CommitNewRedo`, then `between`, then `WriteUndoRedo` for each of the others. Without fresh words, `CommitNewRedo` is
    /// omitted, unless `ordered` is true. The caller sets `ordered` if its earlier flushes must be durable before an overwritten word
    /// changes.
    ///
    /// # Errors
    /// `TooLarge` if they do not fit in the log at all; nothing is changed then.
    pub fn commit_undo_redo<M: Medium>(
        &mut self,
        medium: &M,
        fresh: &[(u64, u64)],
        overwritten: &[(u64, u64)],
        ordered: bool,
        between: impl FnOnce(),
    ) -> Result<()> {
        self.make_space(medium, fresh.len(), overwritten.len())?;
        let count = fresh.len() + overwritten.len();
        let first = self.next;
        for (i, (data_at, new)) in fresh.iter().enumerate() {
            self.append(medium, *data_at, *new, None, (i + 1 == count).then_some(count));
            data_words::store(medium, *data_at, *new);
            self.note(*data_at);
        }
        if ordered || !fresh.is_empty() {
            self.flush_records(medium, first);
            medium.fence(Fence::Payload);
        }
        between();
        for (i, (data_at, new)) in overwritten.iter().enumerate() {
            let last = fresh.len() + i + 1 == count;
            let place =
                self.append(medium, *data_at, *new, Some(medium.word(*data_at)), last.then_some(count));
            medium.flush(self.format.at(place), WORD);
            medium.fence(if last { Fence::Commit } else { Fence::Undo });
            data_words::store(medium, *data_at, *new);
            self.note(*data_at);
        }
        data_words::note_lines(
            fresh.iter().chain(overwritten).map(|(data_at, _)| *data_at),
            &mut self.data_lines,
        );
        data_words::flush(medium, &mut self.data_lines);
        Ok(())
    }

    /// Truncates the log if this generation has too little space.
    fn make_space<M: Medium>(&mut self, medium: &M, redo: usize, undo: usize) -> Result<()> {
        self.check_space(redo, undo)?;
        if self.next + self.format.places(redo, undo) > self.places {
            self.truncate(medium);
        }
        Ok(())
    }

    /// Writes a record in the next slot that has space for it. With `count`, it is the last record of a commit of `count`
    /// records. Returns the slot.
    fn append<M: Medium>(
        &mut self,
        medium: &M,
        data_at: u64,
        new: u64,
        old: Option<u64>,
        count: Option<usize>,
    ) -> u64 {
        while old.is_some() && !self.format.holds_old(self.next) {
            self.next += 1;
        }
        let place = self.next;
        self.next += 1;
        let at = self.format.at(place);
        medium.copy(at + WORD, new);
        if let Some(old) = old {
            medium.copy(at + 2 * WORD, old);
        }
        let tag = Tag {
            data_at: data_at / WORD,
            undo: old.is_some(),
            generation: self.generation % GENERATIONS,
            count: count.unwrap_or(0) as u64,
            commit: count.is_some(),
        };
        medium.publish(at, tag.word());
        place
    }

    /// Flushes the records from slot `first` on.
    fn flush_records<M: Medium>(&self, medium: &M, first: u64) {
        if self.next > first {
            let at = self.format.at(first);
            medium.flush(at, self.format.at(self.next - 1) + WORD - at);
        }
    }

    fn note(&mut self, data_at: u64) {
        let bit = filter_bit(data_at / GRAIN);
        self.filter[bit / 64] |= 1 << (bit % 64);
    }

    /// True if `at..at + bytes` may hold data words of records that are not truncated. False positives are possible, false
    /// negatives are not. O(bytes / 256).
    #[inline(always)]
    pub fn touches(&self, at: u64, bytes: u64) -> bool {
        self.next != 0
            && (at / GRAIN..(at + bytes).div_ceil(GRAIN)).any(|grain| {
                let bit = filter_bit(grain);
                self.filter[bit / 64] & 1 << (bit % 64) != 0
            })
    }
}

/// Data words below this offset are never logged.
const LENGTH_MIN: u64 = crate::heap::region::ROOT_AT;

#[inline]
fn filter_bit(grain: u64) -> usize {
    (grain.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50) as usize
}

const _: () = assert!(FILTER_BITS == 1 << (64 - 50));

/// A record as recovery reads it.
#[derive(Clone, Copy)]
struct Record {
    at: u64,
    tag: Tag,
    new: u64,
    old: Option<u64>,
}

impl Record {
    fn put<M: Medium>(&self, medium: &M, value: u64) -> Result<()> {
        let data_at = self.tag.data_at * WORD;
        if data_at < LENGTH_MIN || data_at >= medium.len() {
            return Err(Error::Corrupt { what: "log record", at: self.at });
        }
        medium.copy(data_at, value);
        medium.flush(data_at, WORD);
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Tag {
    data_at: u64,
    undo: bool,
    generation: u64,
    count: u64,
    commit: bool,
}

impl Tag {
    fn word(self) -> u64 {
        assert!(self.data_at < 1 << ADDRESS_BITS && self.count < 1 << 11);
        self.data_at
            | u64::from(self.undo) << ADDRESS_BITS
            | self.generation << 40
            | self.count << 52
            | u64::from(self.commit) << 63
    }

    fn of(word: u64) -> Self {
        Self {
            data_at: word & ((1 << ADDRESS_BITS) - 1),
            undo: word >> ADDRESS_BITS & 1 != 0,
            generation: word >> 40 & (GENERATIONS - 1),
            count: word >> 52 & 0x7FF,
            commit: word >> 63 != 0,
        }
    }
}
