//! A group in the journal: the bytes that it changed, line by line.
//!
//! ```text
//! word 0   salt of the generation
//! word 1   number of the group
//! word 2   bytes of the body (low half), their crc32c (high half)
//! word 3   length of the region at the commit, in bytes; bit 0: the body is in the annex
//! word 4   crc32c of words 0..4 (low half), a constant (high half)
//! body     for each changed line, addresses ascending:
//!          varint  line number minus that of the previous line, times two; bit 0: some words are shortened
//!          byte    a bit for each changed word
//!          byte    if some are shortened: a bit for each of those
//!          then each changed word: eight bytes; if shortened: a byte with a bit for each changed byte, then those bytes
//! then     zeros up to the next sector of 512 bytes
//! ```
//!
//! Bytes that a group did not change are defined by the groups before it and by the data file. So the changed bytes of a line are correct
//! only on top of all older groups: groups are applied in their order, to the data file.
//!
//! The journal has two halves (`header`). If a group is larger than a half, the whole group is in the *annex*, after the halves. The half
//! then contains a copy of the group's first sector, with the header.
//!
//! Groups of format version 2 have another constant in word 4 and count their body in words. Each line has one word (its number times 256,
//! and in the low byte a bit for each changed word), followed by the changed words. These groups are read, never written.
//!
//! Invariants:
//! * G1: a group begins and ends at a sector boundary. So no sector of an acknowledged group is written again within its
//!   generation, except by recovery, with the same bytes. The annex contains at most one group of the two live generations.
//! * G2: the header has its own checksum, independent of the body. So recovery sees that a group with a higher number was *begun*,
//!   even if it is torn.
//! * G3: decoding is bounded. Lengths are compared with the half, or the file, before they are used. A body is refused if it does not
//!   consist of complete lines up to the last byte of the body, or if a line is outside of the region ([`Header::is_sound`]).

use crate::medium::traits::{LINE, WORD};

/// Bytes of a sector.
pub(super) const SECTOR: u64 = 512;
const HEADER_WORDS: usize = 5;
const HEADER_BYTES: u64 = HEADER_WORDS as u64 * WORD;
/// Most bytes of a line in a group: a varint of 41 bits, a mask, all of the line. (Words are shortened only if that saves bytes.)
const ENTRY_BYTES_MAX: u64 = 7 + LINE;
/// Most bytes of a group's body: its length is stored in half a word.
pub(super) const BODY_BYTES_MAX: u64 = u32::MAX as u64;
const MARK: u64 = 0x6772_6F76;
/// The constant of groups of format version 2, which hold complete words.
const MARK_OF_WORDS: u64 = 0x6772_6F75;
/// Bit in the word of the region's length.
const IN_ANNEX: u64 = 1;

/// A line that a group changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Changed {
    pub at: u64,
    /// A bit for each changed word.
    pub mask: u8,
    /// For each word, a bit for each of its changed bytes.
    bytes: [u8; 8],
    /// The present content.
    pub words: [u64; 8],
}

impl Changed {
    /// The line at `at`, whose old content is `before`; `None` if it has that content again.
    pub fn of(at: u64, before: &[u64; 8], words: [u64; 8]) -> Option<Self> {
        let mask = (0..8).fold(0, |mask, i| mask | u8::from(words[i] != before[i]) << i);
        let bytes = std::array::from_fn(|i| bytes_that_are_not_zero(words[i] ^ before[i]));
        (mask != 0).then_some(Self { at, mask, bytes, words })
    }

    /// Appends the line to a body, after the line with number `previous`.
    fn encode(&self, previous: u64, body: &mut Vec<u8>) {
        let Self { at, mask, bytes, words } = self;
        let saved = |i: usize| 7 - i64::from(bytes[i].count_ones());
        let changed = (0..8).filter(|i| mask & 1 << i != 0);
        let cut = changed.clone().filter(|i| saved(*i) > 0);
        // The byte with the mask of shortened words counts too.
        let is_cut = cut.clone().map(saved).sum::<i64>() > 1;
        let cut = if is_cut { cut.fold(0_u8, |cut, i| cut | 1 << i) } else { 0 };
        write_varint((at / LINE - previous) << 1 | u64::from(is_cut), body);
        body.push(*mask);
        if is_cut {
            body.push(cut);
        }
        // One append for the line, because an append for each byte is slow.
        let (mut line, mut len) = ([0; LINE as usize + WORD as usize], 0);
        for i in changed {
            let word = words[i].to_le_bytes();
            if cut & 1 << i == 0 {
                line[len..][..word.len()].copy_from_slice(&word);
                len += word.len();
                continue;
            }
            line[len] = bytes[i];
            len += 1;
            for (byte, value) in word.into_iter().enumerate() {
                // The next byte overwrites one that did not change.
                line[len] = value;
                len += usize::from(bytes[i] >> byte & 1);
            }
        }
        body.extend_from_slice(&line[..len]);
    }
}

/// A bit for each byte of a word that is not zero.
fn bytes_that_are_not_zero(word: u64) -> u8 {
    // Sets the top bit of each byte that is not zero, then moves these bits together.
    let tops = (((word & LOW_BITS) + LOW_BITS) | word) & !LOW_BITS;
    ((tops >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// All bits of each byte except the top one.
const LOW_BITS: u64 = u64::from_ne_bytes([0x7F; 8]);

/// Buffers of a commit, kept for the next one.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) lines: Vec<Changed>,
    pub(super) bytes: Vec<u8>,
}

/// A closed group and its place in the journal.
pub(super) struct Closed {
    pub(super) number: u64,
    pub(super) at: Position,
    pub(super) region_bytes: u64,
    /// Number of pages that this group adds to its generation (`Image::close`).
    pub(super) pages: u64,
}

/// The place of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    pub(super) generation: u64,
    /// Offset in the half of its generation.
    pub(super) from: u64,
    /// Its body is in the annex.
    pub(super) in_annex: bool,
}

/// A changed line as it is read back. It refers to the bytes of the group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patch<'a> {
    pub at: u64,
    /// Changed words.
    mask: u8,
    /// The shortened words among them.
    cut: u8,
    bytes: &'a [u8],
}

impl<'a> Patch<'a> {
    /// The line after `previous` at the beginning of `body`, and the rest; `None` if there is no complete one.
    fn read(body: &'a [u8], previous: u64) -> Option<(Self, &'a [u8])> {
        let (head, rest) = read_varint(body)?;
        let (mask, mut rest) = rest.split_first()?;
        let cut = if head & 1 == 0 { &0 } else { rest.split_off_first()? };
        let line = previous.checked_add(head >> 1)?;
        let bytes = (0..8).filter(|i| mask & 1 << i != 0).try_fold(0, |at, i| match cut & 1 << i {
            0 => Some(at + WORD as usize),
            _ => Some(at + 1 + rest.get(at)?.count_ones() as usize),
        })?;
        let (bytes, rest) = rest.split_at_checked(bytes)?;
        Some((Self { at: line.checked_mul(LINE)?, mask: *mask, cut: *cut, bytes }, rest))
    }

    /// As [`Patch::read`], for a group of format version 2.
    fn read_words(body: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (head, rest) = body.split_first_chunk()?;
        let head = u64::from_le_bytes(*head);
        let mask = head as u8;
        let (bytes, rest) = rest.split_at_checked(mask.count_ones() as usize * WORD as usize)?;
        Some((Self { at: (head >> 8).checked_mul(LINE)?, mask, cut: 0, bytes }, rest))
    }

    /// Indices of the changed words in their line.
    pub fn words(&self) -> impl Iterator<Item = usize> + use<> {
        let mask = self.mask;
        (0..8).filter(move |i| mask & 1 << i != 0)
    }

    /// True if it defines every byte of its line.
    pub fn is_whole(&self) -> bool {
        self.mask == u8::MAX && self.cut == 0
    }

    /// Writes the changed bytes into the line.
    pub fn lay_over(&self, line: &mut [u8]) {
        let mut rest = self.bytes;
        for i in self.words() {
            let word = &mut line[i * WORD as usize..][..WORD as usize];
            if self.cut & 1 << i == 0 {
                word.copy_from_slice(&rest[..WORD as usize]);
                rest = &rest[WORD as usize..];
                continue;
            }
            let (mask, bytes) = rest.split_first().expect("measured when it was read");
            let changed = (0..WORD as usize).filter(|byte| mask & 1 << byte != 0);
            changed.clone().zip(bytes).for_each(|(byte, value)| word[byte] = *value);
            rest = &bytes[changed.count()..];
        }
    }
}

/// Bytes that a group with a body of this length takes in its half.
pub(super) fn bytes_of(body_bytes: u64) -> u64 {
    (HEADER_BYTES + body_bytes).next_multiple_of(SECTOR)
}

/// Most bytes of a group of these lines.
pub(super) fn bytes_for(lines: &[Changed]) -> u64 {
    let words: u64 = lines.iter().map(|line| u64::from(line.mask.count_ones())).sum();
    bytes_of(lines.len() as u64 * (ENTRY_BYTES_MAX - LINE) + words * WORD)
}

/// Maximum bytes of a group of this number of lines, whichever words of the lines change.
pub(super) fn bytes_for_any(lines: u64) -> u64 {
    bytes_of(lines.saturating_mul(ENTRY_BYTES_MAX))
}

/// The largest number of lines whose group fits into `bytes` bytes, whichever words of the lines change.
pub(super) fn lines_in(bytes: u64) -> u64 {
    bytes.saturating_sub(HEADER_BYTES) / ENTRY_BYTES_MAX
}

/// The content of a group's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub salt: u64,
    pub number: u64,
    pub body_bytes: u64,
    pub region_bytes: u64,
    /// Its body is in the annex.
    pub in_annex: bool,
    body_crc: u32,
    of_words: bool,
}

impl Header {
    /// The header at the beginning of `bytes`, if there is one of a generation with this salt.
    pub fn read(bytes: &[u8], salt: u64) -> Option<Self> {
        let words: &[u8; HEADER_BYTES as usize] = bytes.first_chunk()?;
        let of_words = word(words, 4) == header_check(words, MARK_OF_WORDS);
        if word(words, 0) != salt || !of_words && word(words, 4) != header_check(words, MARK) {
            return None;
        }
        let (counts, region_bytes) = (word(words, 2), word(words, 3));
        Some(Self {
            salt,
            number: word(words, 1),
            body_bytes: (counts & u64::from(u32::MAX)) * if of_words { WORD } else { 1 },
            region_bytes: region_bytes & !IN_ANNEX,
            in_annex: region_bytes & IN_ANNEX != 0,
            body_crc: (counts >> 32) as u32,
            of_words,
        })
    }

    /// Bytes of the group in its half.
    pub fn bytes(&self) -> u64 {
        if self.in_annex { SECTOR } else { bytes_of(self.body_bytes) }
    }

    /// The body of a group at the beginning of `bytes`, if there are enough bytes. For a group with its body in the annex, `bytes`
    /// are those of the annex.
    pub fn body<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        bytes.get(HEADER_BYTES as usize..(HEADER_BYTES + self.body_bytes) as usize)
    }

    /// True if this is its body, unchanged.
    pub fn is_whole(&self, body: &[u8]) -> bool {
        self.body_bytes > 0 && crc32c::crc32c(body) == self.body_crc
    }

    /// True if a complete group has a valid body: changed lines, ascending, inside the region, to the end.
    pub fn is_sound(&self, body: &[u8]) -> bool {
        let (mut next, mut end) = (0, 0);
        let sound = self.patches(body).all(|patch| {
            let ascends = patch.at >= next;
            next = patch.at.saturating_add(LINE);
            end = patch.bytes.as_ptr_range().end.addr();
            ascends && patch.mask != 0 && patch.cut & !patch.mask == 0 && next <= self.region_bytes
        });
        sound && end == body.as_ptr_range().end.addr()
    }

    /// The lines of a body, in its order, up to the first that is incomplete.
    pub fn patches<'a>(&self, body: &'a [u8]) -> impl Iterator<Item = Patch<'a>> + use<'a> {
        let (of_words, mut rest, mut previous) = (self.of_words, body, 0);
        std::iter::from_fn(move || {
            let read = if of_words { Patch::read_words(rest) } else { Patch::read(rest, previous) };
            let (patch, behind) = read?;
            (rest, previous) = (behind, patch.at / LINE);
            Some(patch)
        })
    }
}

/// Clears `buffer` and writes space for the header and the body of a group of `lines`.
pub(super) fn encode(buffer: &mut Vec<u8>, lines: &[Changed]) {
    buffer.clear();
    buffer.resize(HEADER_BYTES as usize, 0);
    // The indices of the lines are sorted instead of the lines, which are large.
    let mut order: Vec<(u64, u32)> = lines.iter().zip(0..).map(|(line, i)| (line.at, i)).collect();
    order.sort_unstable();
    let mut previous = 0;
    for line in order.iter().map(|(_, i)| &lines[*i as usize]) {
        line.encode(previous, buffer);
        previous = line.at / LINE;
    }
}

/// Completes an encoded group: pads it with zeros to a sector and writes its header. Returns the range of its body.
pub(super) fn seal(buffer: &mut Vec<u8>, salt: u64, closed: &Closed) -> std::ops::Range<usize> {
    let body = HEADER_BYTES as usize..buffer.len();
    let crc = crc32c::crc32c(&buffer[body.clone()]);
    buffer.resize(bytes_of(body.len() as u64) as usize, 0);
    put(buffer, 0, salt);
    put(buffer, 1, closed.number);
    put(buffer, 2, body.len() as u64 | u64::from(crc) << 32);
    put(buffer, 3, closed.region_bytes | if closed.at.in_annex { IN_ANNEX } else { 0 });
    let check = header_check(buffer, MARK);
    put(buffer, 4, check);
    body
}

fn header_check(bytes: &[u8], mark: u64) -> u64 {
    u64::from(crc32c::crc32c(&bytes[..HEADER_BYTES as usize - WORD as usize])) | mark << 32
}

/// Decodes a varint, seven bits a byte, the lowest first. Returns the number and the rest of `bytes`.
fn read_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (i, byte) in bytes.iter().enumerate().take(9) {
        value |= u64::from(byte & 0x7F) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[i + 1..]));
        }
    }
    None
}

fn write_varint(mut value: u64, bytes: &mut Vec<u8>) {
    while value > 0x7F {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
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

    /// Old and new content of word `j` of line `i`: the changed words and their changed bytes differ from line to line.
    fn content(i: u64, j: usize) -> [u64; 2] {
        let before = i.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(j as u32 * 8);
        let changed = j == 7 || i & 1 << j != 0;
        let bytes = u64::from_le_bytes(std::array::from_fn(|byte| u8::from(i >> (byte % 6) & 1 == 0)));
        [before, before ^ if changed { bytes | 1 } else { 0 }]
    }

    fn lines(count: u64) -> Vec<Changed> {
        let line = |i: u64, which: usize| std::array::from_fn(|j| content(i, j)[which]);
        (0..count).filter_map(|i| Changed::of(i * i * 128, &line(i, 0), line(i, 1))).collect()
    }

    fn group(lines: &[Changed], region_bytes: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&mut bytes, lines);
        let at = Position { generation: 2, from: 0, in_annex: false };
        seal(&mut bytes, 7, &Closed { number: 3, at, region_bytes, pages: 0 });
        bytes
    }

    #[test]
    fn a_group_is_read_as_it_was_written_and_every_flipped_bit_of_it_is_seen() {
        let mut bytes = group(&lines(200), 1 << 30);
        let header = Header::read(&bytes, 7).unwrap();
        assert_eq!((header.number, header.region_bytes, header.in_annex), (3, 1 << 30, false));
        assert_eq!(header.bytes(), bytes.len() as u64);
        assert!(header.bytes() <= bytes_for(&lines(200)));
        let body = header.body(&bytes).unwrap();
        assert!(header.is_whole(body) && header.is_sound(body));
        let mut read = 0;
        for (i, patch) in (0..).zip(header.patches(body)) {
            let mut line = [0; LINE as usize];
            (0..8).for_each(|j| put(&mut line, j, content(i, j)[0]));
            patch.lay_over(&mut line);
            let expected: [u64; 8] = std::array::from_fn(|j| content(i, j)[1]);
            assert_eq!((patch.at, std::array::from_fn(|j| word(&line, j))), (i * i * 128, expected));
            read += 1;
        }
        assert_eq!(read, 200);
        assert!(Header::read(&bytes, 8).is_none() && Header::read(&bytes[..39], 7).is_none());
        for bit in 0..(HEADER_BYTES + header.body_bytes) * 8 {
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            let whole = Header::read(&bytes, 7)
                .is_some_and(|header| header.body(&bytes).is_some_and(|body| header.is_whole(body)));
            assert!(!whole, "bit {bit}");
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_line_takes_the_bytes_that_it_changed_and_a_few_more() {
        let before = [0x1111_1111_1111_1111; 8];
        let bytes = |change: fn(&mut [u64; 8])| {
            let mut after = before;
            change(&mut after);
            let mut body = Vec::new();
            Changed::of(64, &before, after).unwrap().encode(0, &mut body);
            body.len()
        };
        assert_eq!(bytes(|words| words[3] ^= 1), 1 + 2 + 2, "one bit");
        assert_eq!(bytes(|words| words[3] ^= 1 << 32 | 1), 1 + 2 + 3, "two bytes");
        assert_eq!(bytes(|words| words[3] = !words[3]), 1 + 1 + 8, "a word");
        assert_eq!(bytes(|words| words.fill(0)), 1 + 1 + 64, "a line");
        assert_eq!(bytes(|words| (words[0], words[7]) = (0, words[7] ^ 0xFF00)), 1 + 2 + 8 + 2);
    }

    #[test]
    fn groups_of_whole_words_are_read_too() {
        let mut bytes = vec![0; SECTOR as usize];
        let body = [2 << 8 | 0x81, 5, 6, 9 << 8 | 0x02, 7];
        body.iter().enumerate().for_each(|(i, word)| put(&mut bytes, 5 + i, *word));
        let crc = crc32c::crc32c(&bytes[40..80]);
        for (i, word) in [7, 3, 5 | u64::from(crc) << 32, 1 << 12].into_iter().enumerate() {
            put(&mut bytes, i, word);
        }
        let check = header_check(&bytes, MARK_OF_WORDS);
        put(&mut bytes, 4, check);
        let header = Header::read(&bytes, 7).unwrap();
        let body = header.body(&bytes).unwrap();
        assert!(header.bytes() == SECTOR && header.is_whole(body) && header.is_sound(body));
        let mut line = [0xAA; LINE as usize];
        let patches: Vec<_> = header.patches(body).collect();
        assert_eq!(patches.iter().map(|patch| patch.at).collect::<Vec<_>>(), [128, 576]);
        patches[0].lay_over(&mut line);
        assert_eq!([0, 1, 7].map(|i| word(&line, i)), [5, u64::from_ne_bytes([0xAA; 8]), 6]);
    }

    #[test]
    fn a_body_that_no_writer_makes_is_refused_however_right_its_sum_is() {
        let one = |at, mask: u8| {
            let words = std::array::from_fn(|i| if mask & 1 << i != 0 { u64::MAX } else { 0 });
            Changed { at, mask, bytes: [u8::MAX; 8], words }
        };
        let cut = Changed { bytes: [3; 8], ..one(128, 0xFF) };
        for (lines, cut, sound) in [
            (vec![one(64, 0x81), cut], 0, true),
            (vec![one(64, 0x81), cut], 1, false), // a line without its last byte
            (vec![one(64, 0x81)], 1, false),
            (vec![one(64, 0x81), one(64, 0x81)], 0, false), // the same line again
            (vec![one(64, 0x81), one(128, 0)], 0, false),   // a line without words
            (vec![one(1 << 12, 0x81)], 0, false),           // after the end of the region
            (vec![one(1 << 45, 1)], 0, false),
            (vec![one(1 << 61, 1)], 0, false),
        ] {
            let mut bytes = group(&lines, 1 << 12);
            let body_bytes = (word(&bytes, 2) & u64::from(u32::MAX)) - cut;
            let crc = crc32c::crc32c(&bytes[HEADER_BYTES as usize..][..body_bytes as usize]);
            put(&mut bytes, 2, body_bytes | u64::from(crc) << 32);
            let check = header_check(&bytes, MARK);
            put(&mut bytes, 4, check);
            let header = Header::read(&bytes, 7).unwrap();
            let body = header.body(&bytes).unwrap();
            assert_eq!((header.is_whole(body), header.is_sound(body)), (true, sound), "{lines:?}");
        }
    }

    #[test]
    fn as_many_lines_as_are_said_to_fit_do_fit() {
        for bytes in (SECTOR..64 * SECTOR).step_by(SECTOR as usize) {
            let all = |lines: u64| {
                let line = |i| Changed::of(i * LINE, &[0; 8], [u64::MAX; 8]);
                bytes_for(&(0..lines).filter_map(line).collect::<Vec<_>>())
            };
            let lines = lines_in(bytes);
            assert!(all(lines) <= bytes && all(lines + 1) > bytes, "{bytes}");
        }
    }
}
