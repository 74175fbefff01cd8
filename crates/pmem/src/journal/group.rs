//! A group as it stands in the journal: the lines that it changed, whole.
//!
//! ```text
//! word 0   salt of the lap
//! word 1   number of the group
//! word 2   lines (low half), crc32c of addresses and contents (high half)
//! word 3   bytes of the region when the group was committed
//! word 4   crc32c of words 0..4 (low half), a constant (high half)
//! then     address of each line, ascending, a word each
//! then     content of each line, 64 bytes each
//! then     zeros up to the next sector of 512 bytes
//! ```
//!
//! Invariants:
//! * G1: a group begins and ends with a sector, so no sector of an acknowledged group is ever written again within its lap,
//!   but by recovery, with the bytes that it has.
//! * G2: the header checks itself, without the body: that a group with a higher number was *begun* is seen however torn it is.
//! * G3: what is decoded is bounded: lengths are compared with the half before they are believed.

use crate::medium::{LINE, WORD};

/// Bytes that a disk writes whole.
pub(super) const SECTOR: u64 = 512;
const HEADER_WORDS: usize = 5;
const HEADER_BYTES: u64 = HEADER_WORDS as u64 * WORD;
/// Bytes of a line in a group: address and content.
const ENTRY_BYTES: u64 = WORD + LINE;
const MARK: u64 = 0x6772_6F75;

/// Bytes of the journal that a group of so many lines takes.
pub(super) fn bytes_of(lines: u64) -> u64 {
    (HEADER_BYTES + lines * ENTRY_BYTES).next_multiple_of(SECTOR)
}

/// Most lines of a group that fits into `bytes`.
pub(super) fn lines_in(bytes: u64) -> u64 {
    bytes.saturating_sub(HEADER_BYTES) / ENTRY_BYTES
}

/// What a group's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub salt: u64,
    pub number: u64,
    pub lines: u64,
    pub region_bytes: u64,
    body_crc: u32,
}

impl Header {
    /// The header at the beginning of `bytes`, if one of a lap with this salt stands there.
    pub fn read(bytes: &[u8], salt: u64) -> Option<Self> {
        let words: &[u8; HEADER_BYTES as usize] = bytes.first_chunk()?;
        if word(words, 0) != salt || word(words, 4) != header_check(words) {
            return None;
        }
        let counts = word(words, 2);
        Some(Self {
            salt,
            number: word(words, 1),
            lines: counts & u64::from(u32::MAX),
            region_bytes: word(words, 3),
            body_crc: (counts >> 32) as u32,
        })
    }

    /// Bytes of the whole group.
    pub fn bytes(&self) -> u64 {
        bytes_of(self.lines)
    }

    /// True if all of the group stands at the beginning of `bytes`, as it was written.
    pub fn is_whole(&self, bytes: &[u8]) -> bool {
        let body = HEADER_BYTES as usize..(HEADER_BYTES + self.lines * ENTRY_BYTES) as usize;
        self.lines > 0 && bytes.get(body).is_some_and(|body| crc32c::crc32c(body) == self.body_crc)
    }

    /// Address of each line, with where its content begins in the group. The group must be whole.
    pub fn entries<'a>(&self, group: &'a [u8]) -> impl Iterator<Item = (u64, usize)> + use<'a> {
        let contents = (HEADER_BYTES + self.lines * WORD) as usize;
        (0..self.lines as usize).map(move |i| (word(group, HEADER_WORDS + i), contents + i * LINE as usize))
    }
}

/// Writes a group of `lines` (ascending addresses, contents) into `buffer`, which is emptied first.
pub(super) fn encode(
    buffer: &mut Vec<u8>,
    salt: u64,
    number: u64,
    region_bytes: u64,
    lines: &[(u64, [u64; 8])],
) {
    buffer.clear();
    buffer.resize(HEADER_BYTES as usize, 0);
    for (at, _) in lines {
        buffer.extend_from_slice(&at.to_le_bytes());
    }
    for content in lines.iter().flat_map(|(_, content)| content) {
        buffer.extend_from_slice(&content.to_le_bytes());
    }
    let body_crc = crc32c::crc32c(&buffer[HEADER_BYTES as usize..]);
    buffer.resize(bytes_of(lines.len() as u64) as usize, 0);
    put(buffer, 0, salt);
    put(buffer, 1, number);
    put(buffer, 2, lines.len() as u64 | u64::from(body_crc) << 32);
    put(buffer, 3, region_bytes);
    let check = header_check(buffer);
    put(buffer, 4, check);
}

fn header_check(bytes: &[u8]) -> u64 {
    u64::from(crc32c::crc32c(&bytes[..HEADER_BYTES as usize - WORD as usize])) | MARK << 32
}

/// Word `index` of `bytes`.
pub(super) fn word(bytes: &[u8], index: usize) -> u64 {
    let at = index * WORD as usize;
    u64::from_le_bytes(bytes[at..at + WORD as usize].try_into().expect("eight bytes"))
}

/// Stores word `index` of `bytes`.
pub(super) fn put(bytes: &mut [u8], index: usize, value: u64) {
    let at = index * WORD as usize;
    bytes[at..at + WORD as usize].copy_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: u64) -> Vec<(u64, [u64; 8])> {
        (0..count).map(|i| (i * 128, [i; 8])).collect()
    }

    #[test]
    fn a_group_is_read_as_it_was_written_and_every_flipped_bit_of_it_is_seen() {
        let mut bytes = Vec::new();
        encode(&mut bytes, 7, 3, 1 << 20, &lines(9));
        let header = Header::read(&bytes, 7).unwrap();
        assert_eq!((header.number, header.lines, header.region_bytes), (3, 9, 1 << 20));
        assert_eq!((header.bytes(), bytes.len()), (1024, 1024));
        assert!(header.is_whole(&bytes));
        for (i, (at, from)) in header.entries(&bytes).enumerate() {
            assert_eq!((at, word(&bytes[from..], 7)), (i as u64 * 128, i as u64));
        }
        assert!(Header::read(&bytes, 8).is_none() && Header::read(&bytes[..39], 7).is_none());
        for bit in 0..(HEADER_BYTES + 9 * ENTRY_BYTES) * 8 {
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            let whole = Header::read(&bytes, 7).is_some_and(|header| header.is_whole(&bytes));
            assert!(!whole, "bit {bit}");
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn as_many_lines_as_are_said_to_fit_do_fit() {
        for bytes in (SECTOR..64 * SECTOR).step_by(SECTOR as usize) {
            let lines = lines_in(bytes);
            assert!(bytes_of(lines) <= bytes && bytes_of(lines + 1) > bytes, "{bytes}");
        }
    }
}
