//! A group as it stands in the journal: the words that it changed, line by line.
//!
//! ```text
//! word 0   salt of the lap
//! word 1   number of the group
//! word 2   words of the body (low half), their crc32c (high half)
//! word 3   bytes of the region when the group was committed
//! word 4   crc32c of words 0..4 (low half), a constant (high half)
//! body     for each changed line, addresses ascending: its head (address times four, and in the low byte a bit for each
//!          word that changed), then those words
//! then     zeros up to the next sector of 512 bytes
//! ```
//!
//! Words that a group did not change are what the groups before it, and the data file, say. So a line is right only on top of all
//! older ones: groups are laid over each other in their order, and over the data file.
//!
//! Invariants:
//! * G1: a group begins and ends with a sector, so no sector of an acknowledged group is ever written again within its lap,
//!   but by recovery, with the bytes that it has.
//! * G2: the header checks itself, without the body: that a group with a higher number was *begun* is seen however torn it is.
//! * G3: what is decoded is bounded: lengths are compared with the half before they are believed, and a body that is not heads with
//!   their words, to its end, is refused ([`Header::is_sound`]).

use crate::medium::{LINE, WORD};

/// Bytes that a disk writes whole.
pub(super) const SECTOR: u64 = 512;
const HEADER_WORDS: usize = 5;
const HEADER_BYTES: u64 = HEADER_WORDS as u64 * WORD;
/// Most bytes of a line in a group: its head, and all of it.
const ENTRY_BYTES_MAX: u64 = WORD + LINE;
const MARK: u64 = 0x6772_6F75;

/// A line that a group changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Changed {
    pub at: u64,
    /// A bit for each word that is another than before.
    pub mask: u8,
    /// What it holds now.
    pub words: [u64; 8],
}

impl Changed {
    /// The line at `at`, which held `before`; `None` if it does again.
    pub fn of(at: u64, before: &[u64; 8], words: [u64; 8]) -> Option<Self> {
        let mask = (0..8).fold(0, |mask, i| mask | u8::from(words[i] != before[i]) << i);
        (mask != 0).then_some(Self { at, mask, words })
    }
}

/// What the writer needs for a commit, kept for the next.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) lines: Vec<Changed>,
    pub(super) bytes: Vec<u8>,
}

/// A group whose lines are chosen, and where it goes.
pub(super) struct Closed {
    pub(super) lap: u64,
    /// Offset in the half of its lap.
    pub(super) at: u64,
    pub(super) number: u64,
    pub(super) group_bytes: u64,
    pub(super) region_bytes: u64,
    /// Pages that it is the first of its lap to change.
    pub(super) pages: u64,
}

/// A changed line as it is read back: words of it, in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patch<'a> {
    pub at: u64,
    mask: u8,
    words: &'a [u8],
}

impl<'a> Patch<'a> {
    /// The changed words: the number of each in its line, and its bytes.
    pub fn words(&self) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let mask = self.mask;
        (0..8).filter(move |i| mask & (1 << i) != 0).zip(self.words.chunks_exact(WORD as usize))
    }

    /// True if it says all of its line.
    pub fn is_whole(&self) -> bool {
        self.mask == u8::MAX
    }

    /// Lays the changed words over the line's bytes.
    pub fn lay_over(&self, line: &mut [u8]) {
        for (i, word) in self.words() {
            line[i * WORD as usize..][..WORD as usize].copy_from_slice(word);
        }
    }
}

/// Bytes of the journal that a group with a body of so many words takes.
fn bytes_of(body_words: u64) -> u64 {
    (HEADER_BYTES + body_words * WORD).next_multiple_of(SECTOR)
}

/// Bytes of the journal that a group of these lines takes.
pub(super) fn bytes_for(lines: &[Changed]) -> u64 {
    bytes_of(lines.iter().map(|line| 1 + u64::from(line.mask.count_ones())).sum())
}

/// Most lines of a group that fits into `bytes`, whatever of them changes.
pub(super) fn lines_in(bytes: u64) -> u64 {
    bytes.saturating_sub(HEADER_BYTES) / ENTRY_BYTES_MAX
}

/// What a group's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub salt: u64,
    pub number: u64,
    body_words: u64,
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
            body_words: counts & u64::from(u32::MAX),
            region_bytes: word(words, 3),
            body_crc: (counts >> 32) as u32,
        })
    }

    /// Bytes of the whole group.
    pub fn bytes(&self) -> u64 {
        bytes_of(self.body_words)
    }

    fn body<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        bytes.get(HEADER_BYTES as usize..(HEADER_BYTES + self.body_words * WORD) as usize)
    }

    /// True if all of the group stands at the beginning of `bytes`, as it was written.
    pub fn is_whole(&self, bytes: &[u8]) -> bool {
        self.body_words > 0 && self.body(bytes).is_some_and(|body| crc32c::crc32c(body) == self.body_crc)
    }

    /// True if the body of a whole group is what a writer makes: lines with their words, inside the region, to the end.
    pub fn is_sound(&self, group: &[u8]) -> bool {
        let patches = || self.patches(group);
        let words: usize = patches().map(|patch| 1 + patch.words.len() / WORD as usize).sum();
        words as u64 == self.body_words
            && patches().all(|patch| patch.mask != 0 && patch.at < self.region_bytes)
    }

    /// The lines of a whole group, in its order, up to one that is cut short.
    pub fn patches<'a>(&self, group: &'a [u8]) -> impl Iterator<Item = Patch<'a>> + use<'a> {
        let mut rest = self.body(group).unwrap_or_default();
        std::iter::from_fn(move || {
            let head = u64::from_le_bytes(*rest.first_chunk()?);
            let mask = head as u8;
            let behind = &rest[WORD as usize..];
            let (words, behind) = behind.split_at_checked(mask.count_ones() as usize * WORD as usize)?;
            rest = behind;
            Some(Patch { at: (head >> 8) * LINE, mask, words })
        })
    }
}

/// Writes a group of `lines` (ascending addresses) into `buffer`, which is emptied first.
pub(super) fn encode(buffer: &mut Vec<u8>, salt: u64, number: u64, region_bytes: u64, lines: &[Changed]) {
    buffer.clear();
    buffer.resize(HEADER_BYTES as usize, 0);
    for Changed { at, mask, words } in lines {
        buffer.extend_from_slice(&((at / LINE) << 8 | u64::from(*mask)).to_le_bytes());
        let changed = words.iter().enumerate().filter(|(i, _)| mask & (1 << i) != 0);
        changed.for_each(|(_, word)| buffer.extend_from_slice(&word.to_le_bytes()));
    }
    let body = &buffer[HEADER_BYTES as usize..];
    let (body_words, body_crc) = (body.len() as u64 / WORD, crc32c::crc32c(body));
    buffer.resize(bytes_of(body_words) as usize, 0);
    put(buffer, 0, salt);
    put(buffer, 1, number);
    put(buffer, 2, body_words | u64::from(body_crc) << 32);
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

    /// Of the line at `i * 128`, word 7 and those whose bits `i` has.
    fn lines(count: u64) -> Vec<Changed> {
        (0..count)
            .filter_map(|i| Changed::of(i * 128, &[i; 8], std::array::from_fn(|j| i + changes(i, j))))
            .collect()
    }

    fn changes(i: u64, j: usize) -> u64 {
        u64::from(j == 7 || i & 1 << j != 0)
    }

    #[test]
    fn a_group_is_read_as_it_was_written_and_every_flipped_bit_of_it_is_seen() {
        let mut bytes = Vec::new();
        encode(&mut bytes, 7, 3, 1 << 20, &lines(40));
        let header = Header::read(&bytes, 7).unwrap();
        let body_words = (0..40).map(|i: u64| 2 + u64::from(i.count_ones())).sum();
        assert_eq!((header.number, header.body_words, header.region_bytes), (3, body_words, 1 << 20));
        assert_eq!((header.bytes(), bytes.len() as u64), (bytes_for(&lines(40)), header.bytes()));
        assert!(header.is_whole(&bytes) && header.is_sound(&bytes));
        for (i, patch) in (0..).zip(header.patches(&bytes)) {
            let mut line = [0; LINE as usize];
            (0..8).for_each(|j| put(&mut line, j, i));
            patch.lay_over(&mut line);
            let expected: [u64; 8] = std::array::from_fn(|j| i + changes(i, j));
            assert_eq!((patch.at, std::array::from_fn(|j| word(&line, j))), (i * 128, expected));
            assert_eq!(patch.is_whole(), i & 0x7F == 0x7F);
        }
        assert!(Header::read(&bytes, 8).is_none() && Header::read(&bytes[..39], 7).is_none());
        for bit in 0..(HEADER_BYTES + body_words * WORD) * 8 {
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            let whole = Header::read(&bytes, 7).is_some_and(|header| header.is_whole(&bytes));
            assert!(!whole, "bit {bit}");
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_body_that_no_writer_makes_is_refused_however_right_its_sum_is() {
        let good = Changed { at: 64, mask: 0x81, words: [5; 8] };
        for (lines, cut, sound) in [
            (vec![good, good], 0, true),
            (vec![good, good], 1, false), // a line without its last word
            (vec![good, Changed { mask: 0, ..good }], 0, false), // a line without words
            (vec![good, Changed { at: 1 << 12, ..good }], 0, false), // behind the region
            (vec![good, Changed { at: 1 << 45, mask: 1, ..good }], 0, false),
        ] {
            let mut bytes = Vec::new();
            encode(&mut bytes, 7, 3, 1 << 12, &lines);
            let words = word(&bytes, 2) & u64::from(u32::MAX);
            let body = &bytes[HEADER_BYTES as usize..][..(words - cut) as usize * 8];
            let counts = (words - cut) | u64::from(crc32c::crc32c(body)) << 32;
            put(&mut bytes, 2, counts);
            let check = header_check(&bytes);
            put(&mut bytes, 4, check);
            let header = Header::read(&bytes, 7).unwrap();
            assert_eq!((header.is_whole(&bytes), header.is_sound(&bytes)), (true, sound));
        }
    }

    #[test]
    fn as_many_lines_as_are_said_to_fit_do_fit() {
        for bytes in (SECTOR..64 * SECTOR).step_by(SECTOR as usize) {
            let all = |lines: u64| {
                let line = |i| Changed { at: i * LINE, mask: u8::MAX, words: [i; 8] };
                bytes_for(&(0..lines).map(line).collect::<Vec<_>>())
            };
            let lines = lines_in(bytes);
            assert!(all(lines) <= bytes && all(lines + 1) > bytes, "{bytes}");
        }
    }
}
