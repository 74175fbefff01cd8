//! The header copies of the journal and the first page of the data file: they pair the two files and say which generations are
//! live.
//!
//! ```text
//! data file     0      page: magic, version, id of the pair (2 words), crc32c
//!               4096   the region's bytes
//! journal file  0      header copy A: magic, version, id, sequence, bytes of a half, oldest generation, first group, crc32c
//!               (the top bit of the oldest generation: closed)
//!               4096   header copy B
//!               8192   half 0: groups of even generations
//!               8192+h half 1: groups of odd generations
//!               8192+2h annex: a group that is larger than a half, header and body, while its generation is live
//! ```
//!
//! Two generations are live: the oldest and the next. The writer reuses the half of the oldest generation only after the header
//! durably records the next generation as the oldest.
//!
//! Invariants:
//! * H1: a header copy is changed only while the other copy is complete and durable. A change of the header writes both copies. A change
//!   first writes and syncs the copy that the previous change wrote second. The other copy becomes durable with the sync of the next group,
//!   before any group in the freed half is acknowledged. No group follows a close, so a close syncs the second copy, too. An open may find
//!   a header that is only in the page cache. It then rewrites the same bytes to the same sector and syncs them before it changes anything.
//! * H2: the salt of a generation follows from the pair's random id and the generation's number. No number is used again, so bytes
//!   that an earlier generation left in a half are never taken for a group.
//! * H3: when a pair of files is made, the data file's page is written last. A data file with that page has a complete journal.
//! * H4: a header that says closed is written when everything is durable in the data file. An open writes another header before the first
//!   group is appended. So the open of a closed pair does not search for groups.

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};
use crate::file::{REGION_MAGIC, io};
use crate::medium::journal::group::{SECTOR, put, word};
use crate::medium::journal::sizes::{CAPACITY_MAX, CAPACITY_MIN, REGION_MAX};
use crate::medium::journal::storage::{Disk, Files, Storage};
use crate::system;

/// Format version of both files.
pub(super) const VERSION: u64 = 3;
/// The oldest version that is read. Its groups have another format (`group`). Opening a pair writes the present version.
const VERSION_MIN: u64 = 2;
/// Bytes before the region in the data file.
pub(super) const DATA_AT: u64 = 4096;
/// Offset of the first half in the journal.
pub(super) const HALVES_AT: u64 = 8192;
const COPIES: [u64; 2] = [0, 4096];

const DATA_MAGIC: u64 = u64::from_le_bytes(*b"BRSTLJD\x01");
const JOURNAL_MAGIC: u64 = u64::from_le_bytes(*b"BRSTLJL\x01");
const WORDS: usize = 9;

/// The content of a complete header copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub id: [u64; 2],
    sequence: u64,
    /// Bytes of a half: whole pages.
    pub half_bytes: u64,
    /// The oldest generation that may hold groups that are not checkpointed.
    pub oldest: u64,
    /// Number of the first group of the oldest generation: all groups before it are checkpointed.
    pub first: u64,
    /// True if the journal contains no groups (H4).
    pub closed: bool,
    /// The copy with this content. It is durable after [`Header::settle`].
    newest: usize,
}

/// The first generation is in half 0; generation 0 does not exist.
const FIRST_GENERATION: u64 = 2;

/// Bit in the word of the oldest generation.
const CLOSED: u64 = 1 << 63;

impl Header {
    pub fn new(id: [u64; 2], half_bytes: u64) -> Self {
        Self { id, sequence: 1, half_bytes, oldest: FIRST_GENERATION, first: 1, closed: false, newest: 0 }
    }

    /// Salt of a generation (H2).
    pub fn salt(&self, generation: u64) -> u64 {
        mix(mix(self.id[0] ^ generation) ^ self.id[1])
    }

    /// Offset in the journal of the half of a generation.
    pub fn half_at(&self, generation: u64) -> u64 {
        HALVES_AT + generation % 2 * self.half_bytes
    }

    /// Offset in the journal of the annex. It is the file's length without an annex.
    pub fn annex_at(&self) -> u64 {
        HALVES_AT + 2 * self.half_bytes
    }

    /// Removes the annex from the journal file; its group is checkpointed. On failure the next group that needs an annex uses the
    /// present one.
    pub fn cut_annex(&self, files: &Files) {
        if files.journal.len().is_ok_and(|len| len > self.annex_at()) {
            let _ = files.journal.shorten(self.annex_at());
        }
    }

    /// True if both have the same content.
    pub fn is_same(&self, other: &Self) -> bool {
        self.encode() == other.encode()
    }

    /// Makes the copy that was read durable (H1) by writing it: after a failed sync the kernel may treat a page as clean that the
    /// disk never received.
    ///
    /// # Errors
    /// `Io`; nothing more may be written then.
    pub fn settle(&self, files: &Files) -> Result<()> {
        files.write(&files.journal, COPIES[self.newest], &self.encode())?;
        files.sync(&files.journal)
    }

    /// Makes durable that `oldest` and the next generation are live, so the half of the generation before them is free.
    ///
    /// `advance` calls `discard` after that is durable. `discard` returns whether it punched holes into the data file. If it did, the
    /// header gets another sequence number, so a reader of both files notices the punch (V4 of `copy`).
    ///
    /// # Errors
    /// `Io` if a copy cannot be written or synced. Whether the other half is free is then unknown.
    pub fn advance(
        &mut self,
        files: &Files,
        oldest: u64,
        first: u64,
        discard: impl FnOnce() -> bool,
    ) -> Result<()> {
        (self.oldest, self.first, self.closed) = (oldest, first, false);
        self.write(files, discard)
    }

    /// Makes durable that there are no groups (H4). The caller has checkpointed everything.
    ///
    /// # Errors
    /// `Io`; nothing more may be written then.
    pub fn close(&mut self, files: &Files) -> Result<()> {
        self.closed = true;
        let written = self.write(files, || false).and_then(|()| files.sync(&files.journal));
        self.closed = written.is_ok();
        written
    }

    fn write(&mut self, files: &Files, discard: impl FnOnce() -> bool) -> Result<()> {
        self.sequence += 1;
        let first = 1 - self.newest;
        files.write(&files.journal, COPIES[first], &self.encode())?;
        files.sync(&files.journal)?;
        let other = std::mem::replace(&mut self.newest, first);
        self.sequence += u64::from(discard());
        files.write(&files.journal, COPIES[other], &self.encode())
    }

    /// Makes a new pair on empty files: the journal is complete and durable first, the data file's page is last (H3).
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub fn make(self, files: &Files) -> Result<()> {
        let journal_bytes = self.annex_at();
        let found = files.journal.len()?;
        if found < journal_bytes {
            files.journal.allocate(found, journal_bytes)?;
        }
        // Written once, so that syncs of groups change no metadata of the file.
        let zeros = vec![0; (1 << 20).min(self.half_bytes as usize)];
        let mut at = HALVES_AT;
        while at < journal_bytes {
            let bytes = &zeros[..zeros.len().min((journal_bytes - at) as usize)];
            files.write(&files.journal, at, bytes)?;
            at += bytes.len() as u64;
        }
        for copy in COPIES {
            files.write(&files.journal, copy, &self.encode())?;
        }
        files.sync(&files.journal)?;
        files.data.allocate(0, DATA_AT)?;
        self.write_data_page(files)?;
        files.sync(&files.data)
    }

    /// Writes the data file's page, or writes it again unchanged. Durable after a sync of the data file.
    ///
    /// # Errors
    /// `Io`.
    pub fn write_data_page(&self, files: &Files) -> Result<()> {
        files.write(&files.data, 0, &sealed(DATA_MAGIC, &[self.id[0], self.id[1]]))
    }

    /// Reads the header of a pair.
    ///
    /// # Errors
    /// `Foreign`, `Version`, `Journal` (of another store, damaged or truncated), `Io`.
    pub fn read(files: &Files) -> Result<Self> {
        let id = read_data_page(files)?;
        Self::read_journal(&files.journal, Some(id))
    }

    /// As [`Header::read`], for salvage: if the data file's page is damaged, the journal beside it is assumed to belong to it.
    ///
    /// # Errors
    /// As [`Header::read`], except for the page.
    pub fn read_to_look(files: &Files) -> Result<Self> {
        Self::read_journal(&files.journal, read_data_page(files).ok())
    }

    /// Reads the header of a journal without its data file.
    ///
    /// # Errors
    /// As [`Header::read`].
    pub fn read_alone(journal: Box<dyn Storage>) -> Result<Self> {
        Self::read_journal(&Disk::new(journal), None)
    }

    fn read_journal(file: &Disk, id: Option<[u64; 2]>) -> Result<Self> {
        let journal = |why| Error::Journal { path: file.path().to_owned(), why };
        let length = file.len()?;
        if length < HALVES_AT {
            return Err(journal("is too short to be a journal"));
        }
        let mut copies = [[0; SECTOR as usize]; 2];
        for (copy, at) in copies.iter_mut().zip(COPIES) {
            file.read(at, copy)?;
        }
        let whole = |copy: usize| is_sealed(&copies[copy], JOURNAL_MAGIC, WORDS);
        let newest = (0..2).filter(|copy| whole(*copy)).max_by_key(|copy| word(&copies[*copy], 4));
        let Some(newest) = newest else {
            let ours = copies.iter().any(|copy| word(copy, 0) == JOURNAL_MAGIC);
            return Err(journal(if ours { "has two damaged headers" } else { "is not a journal" }));
        };
        let bytes = &copies[newest];
        check_version(word(bytes, 1))?;
        let header = Self {
            id: [word(bytes, 2), word(bytes, 3)],
            sequence: word(bytes, 4),
            half_bytes: word(bytes, 5),
            oldest: word(bytes, 6) & !CLOSED,
            first: word(bytes, 7),
            closed: word(bytes, 6) & CLOSED != 0,
            newest,
        };
        if id.is_some_and(|id| header.id != id) {
            return Err(journal("belongs to another store"));
        }
        // Halves are read into memory, so a length is not trusted only because a sparse file has it.
        let sizes = CAPACITY_MIN / 2..=CAPACITY_MAX / 2;
        let sane = header.half_bytes.is_multiple_of(4096) && sizes.contains(&header.half_bytes);
        let near = header.oldest.max(header.first).max(header.sequence) < u64::MAX / 2;
        if !sane || !near || header.first == 0 {
            return Err(journal("has a header that no program wrote"));
        }
        if length < header.annex_at() {
            return Err(journal("is shorter than its header says"));
        }
        Ok(header)
    }

    fn encode(&self) -> [u8; SECTOR as usize] {
        let Self { id, sequence, half_bytes, oldest, first, closed, newest: _ } = *self;
        let oldest = if closed { oldest | CLOSED } else { oldest };
        sealed(JOURNAL_MAGIC, &[id[0], id[1], sequence, half_bytes, oldest, first])
    }
}

/// The pair's id from the data file's first page.
fn read_data_page(files: &Files) -> Result<[u64; 2]> {
    let foreign = |why| Error::Foreign { path: files.data.path().to_owned(), why };
    let length = files.data.len()?;
    if length < DATA_AT {
        return Err(foreign("it is too short for the page that names its journal"));
    }
    if length > DATA_AT + REGION_MAX {
        return Err(foreign("it is longer than the address space"));
    }
    let mut page = [0; SECTOR as usize];
    files.data.read(0, &mut page)?;
    if !is_sealed(&page, DATA_MAGIC, 5) {
        return Err(foreign("it does not begin with a whole page that names its journal"));
    }
    check_version(word(&page, 1))?;
    Ok([word(&page, 2), word(&page, 3)])
}

fn check_version(found: u64) -> Result<()> {
    match found {
        VERSION_MIN..=VERSION => Ok(()),
        _ => Err(Error::Version { found, known: VERSION }),
    }
}

/// A sector with magic, version, `words` and their checksum.
fn sealed(magic: u64, words: &[u64]) -> [u8; SECTOR as usize] {
    let mut bytes = [0; SECTOR as usize];
    for (i, value) in [magic, VERSION].iter().chain(words).enumerate() {
        put(&mut bytes, i, *value);
    }
    let last = words.len() + 2;
    let check = check_of(&bytes, last);
    put(&mut bytes, last, check);
    bytes
}

/// True if the sector has this magic and a correct checksum in the last of its `words` words.
fn is_sealed(bytes: &[u8], magic: u64, words: usize) -> bool {
    word(bytes, 0) == magic && word(bytes, words - 1) == check_of(bytes, words - 1)
}

/// True if this is the data file of a pair, complete or damaged: it has the magic of a data file, or it has no magic of a region
/// and a journal is beside it.
///
/// # Errors
/// `Io` if it cannot be read.
pub fn is_journaled(data: &File, path: &Path, journal_path: &Path) -> Result<bool> {
    let mut first = [0; 8];
    let count =
        system::read_at(data, path, 0, &mut first).map_err(|source| io("cannot read", path, source))?;
    let magic = u64::from_le_bytes(first);
    Ok(count == 8 && magic == DATA_MAGIC || magic != REGION_MAGIC && journal_path.exists())
}

fn check_of(bytes: &[u8], words: usize) -> u64 {
    u64::from(crc32c::crc32c(&bytes[..words * 8])) | 0xB215_4A0E << 32
}

/// The finaliser of splitmix64: every bit of the result depends on every bit of `word`.
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format_page::assert_row;

    #[test]
    fn the_format_page_has_the_offsets_of_the_journal() {
        let header = Header {
            id: [0; 2],
            sequence: 1,
            half_bytes: 1 << 20,
            oldest: FIRST_GENERATION,
            first: 1,
            closed: true,
            newest: 0,
        };
        let [first, second] = COPIES;
        assert_row(&format!("{DATA_AT} | region | `DATA_AT`"));
        assert_row(&format!("{first}, {second} | header copies | `COPIES`"));
        assert_row(&format!("{HALVES_AT} | … | `HALVES_AT`"));
        assert_row(&format!("{HALVES_AT} + h | … | `half_at`"));
        assert_row(&format!("{HALVES_AT} + 2 h | … | `annex_at`"));
        assert_eq!([0, 1].map(|generation| header.half_at(generation)), [HALVES_AT, HALVES_AT + (1 << 20)]);
        assert_eq!(header.annex_at(), HALVES_AT + (2 << 20));
    }
}
