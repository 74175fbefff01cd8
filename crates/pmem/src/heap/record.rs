//! Records: key and value bytes in one block, with a checksum.
//!
//! ```text
//! word 0   bit 0..16 key length   16..48 value length   48..64 tag
//! word 1   bit 0..32 crc32c of word 0, key and value, each padded with zeros to 8 bytes    32..48 number of pieces
//!          48..64 a piece's bytes / 8
//! then     the pieces' addresses, 8 bytes each
//! then     key, padded to 8 bytes, then the value, padded too (if the value has pieces, only its last bytes, which are in no piece)
//! ```
//!
//! A large value is cut into pieces, blocks of kind `Piece`, eight to a chunk. Word 0 of a piece is the address of its record; bytes of the
//! value follow. Each piece has an allocation bit, as every block, but no intent in the allocator's intent ring ([`crate::alloc`]). Only
//! the record of the pieces has an intent, and it lists the pieces. While a large record is written, the allocation bit of a piece is set
//! only after the record's list with the address of the piece is durable. If the intent ring names a record, recovery sets the allocation
//! bits of its pieces to the allocation bit of the record.
//!
//! Invariants:
//! * C1: a record is written once, before anything points to it, and never changed.
//! * C2: a read of any bytes ends without a fault: lengths are bounded before they are used. The checksum decides whether the
//!   bytes are a record.
//! * C3: an allocated piece is durably listed by the record whose address it has.

use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;

use crate::error::Result;
use crate::heap::alloc::{Allocator, Kind, class_of};
use crate::heap::log::redo::Log;
use crate::heap::region::Region;
use crate::medium::traits::{Fence, LINE, Medium, WORD};

const TAG: u64 = 0xB21C;
const PIECE_HEAD: u64 = 8;
const HEAD: u64 = 16;
/// Longest value in bytes.
pub const VALUE_BYTES_MAX: u64 = 256 << 20;
/// Pieces written between two fences.
const PIECES_PER_FENCE: usize = 64;
/// Largest record, in lines, that is read at once.
const WHOLE_LINES: usize = 8;
/// Bytes of a longer record that are copied as one run of lines; at most as many as a medium's `lines` may return.
const PART_BYTES: usize = 4096;
/// Lines of a longer record that are prefetched before they are copied.
const AHEAD_LINES: u64 = 64;

/// The lines that a record of at most `WHOLE_LINES` lines touches.
#[repr(align(64))]
struct Whole([[u8; 8]; (WHOLE_LINES + 1) * 8]);

/// The content of a record's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    word: u64,
    key_bytes: u64,
    value_bytes: u64,
    crc: u32,
    pieces: u64,
    piece_bytes: u64,
}

impl Head {
    fn new(key: &[u8], value: &[u8], chunk_bytes: u64) -> Self {
        let word = key.len() as u64 | (value.len() as u64) << 16 | TAG << 48;
        let crc = append(append(crc32c::crc32c(&word.to_le_bytes()), key), value);
        let value_bytes = value.len() as u64;
        let (piece_bytes, pieces) = pieces_of(value_bytes, chunk_bytes);
        Self { word, key_bytes: key.len() as u64, value_bytes, crc, pieces, piece_bytes }
    }

    fn check_word(&self) -> u64 {
        u64::from(self.crc) | self.pieces << 32 | (self.piece_bytes / 8) << 48
    }

    fn read<M: Medium>(medium: &M, at: u64) -> Option<Self> {
        if at >= medium.len() {
            return None;
        }
        let (word, check) = (medium.word(at), medium.word(at + WORD));
        let head = Self {
            word,
            key_bytes: word & 0xFFFF,
            value_bytes: word >> 16 & 0xFFFF_FFFF,
            crc: check as u32,
            pieces: check >> 32 & 0xFFFF,
            piece_bytes: (check >> 48) * 8,
        };
        let sane = word >> 48 == TAG
            && head.value_bytes <= VALUE_BYTES_MAX
            && head.pieces * head.piece_bytes <= head.value_bytes
            && head.bytes() <= medium.len() - at;
        sane.then_some(head)
    }

    fn key_at(&self, at: u64) -> u64 {
        at + HEAD + self.pieces * WORD
    }

    fn tail_at(&self, at: u64) -> u64 {
        self.key_at(at) + self.key_bytes.next_multiple_of(WORD)
    }

    fn tail_bytes(&self) -> u64 {
        self.value_bytes - self.pieces * self.piece_bytes
    }

    fn bytes(&self) -> u64 {
        self.tail_at(0) + self.tail_bytes()
    }
}

/// The blocks of a record of this kind: kind, bytes of a block, number of blocks.
pub fn needs(kind: Kind, key_bytes: u64, value_bytes: u64, chunk_bytes: u64) -> [(Kind, u64, u64); 2] {
    let (piece_bytes, pieces) = pieces_of(value_bytes, chunk_bytes);
    let head = HEAD + pieces * WORD + key_bytes.next_multiple_of(WORD) + (value_bytes - pieces * piece_bytes);
    // Without pieces this size is not used.
    let piece = if pieces == 0 { HEAD } else { PIECE_HEAD + piece_bytes };
    [(kind, head, 1), (Kind::Piece, piece, pieces)]
}

/// Bytes of a piece in chunks of this size, and the number of pieces of a value. A value of up to two pieces' bytes is not cut.
fn pieces_of(value_bytes: u64, chunk_bytes: u64) -> (u64, u64) {
    let piece_bytes = (((chunk_bytes - 64) / 8) & !15) - PIECE_HEAD;
    (piece_bytes, if value_bytes <= 2 * piece_bytes { 0 } else { value_bytes / piece_bytes })
}

/// Writes a record for the running operation and flushes it. It is durable after the operation's first fence. Its address may be
/// published only after that fence. O(bytes).
///
/// # Errors
/// The errors of [`Allocator::take`]. The operation must then be rolled back.
pub fn write<M: Medium>(
    region: &Region<M>,
    allocator: &mut Allocator,
    log: &mut Log,
    kind: Kind,
    key: &[u8],
    value: &[u8],
) -> Result<u64> {
    let medium = region.medium();
    let head = Head::new(key, value, region.geometry().chunk_bytes);
    let at = allocator.take(region, log, kind, head.bytes())?;
    medium.copy(at, head.word);
    medium.copy(at + WORD, head.check_word());
    medium.flush(at, HEAD);
    let (in_pieces, tail) = value.split_at((head.pieces * head.piece_bytes) as usize);
    if head.pieces > 0 {
        write_pieces(region, allocator, log, at, in_pieces, head.piece_bytes)?;
    }
    write_bytes(medium, head.key_at(at), key);
    write_bytes(medium, head.tail_at(at), tail);
    medium.flush(head.key_at(at), head.bytes() - head.key_at(0));
    Ok(at)
}

/// Writes the pieces of a large value in groups: pieces with their list entries, a fence, then their bits (C3).
#[cold]
fn write_pieces<M: Medium>(
    region: &Region<M>,
    allocator: &mut Allocator,
    log: &mut Log,
    record: u64,
    bytes: &[u8],
    piece_bytes: u64,
) -> Result<()> {
    let medium = region.medium();
    let mut list_at = record + HEAD;
    for batch in bytes.chunks(piece_bytes as usize * PIECES_PER_FENCE) {
        let first = list_at;
        for part in batch.chunks(piece_bytes as usize) {
            let piece = allocator.take_piece(region, log, PIECE_HEAD + piece_bytes)?;
            medium.copy(list_at, piece);
            medium.copy(piece, record);
            write_bytes(medium, piece + PIECE_HEAD, part);
            medium.flush(piece, PIECE_HEAD + piece_bytes);
            list_at += WORD;
        }
        medium.flush(first, list_at - first);
        medium.fence(Fence::Payload);
        allocator.flip_taken_pieces(region);
    }
    Ok(())
}

/// Frees a record and its pieces when the running operation ends.
///
/// # Errors
/// The errors of [`Allocator::give`].
pub fn give<M: Medium>(region: &Region<M>, allocator: &mut Allocator, at: u64) -> Result<()> {
    allocator.give(region, at)?;
    for piece in pieces(region, at) {
        allocator.give_piece(region, piece)?;
    }
    Ok(())
}

fn write_bytes<M: Medium>(medium: &M, at: u64, bytes: &[u8]) {
    let mut at = at;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        medium.copy(at, u64::from_le_bytes(*word));
        at += WORD;
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        medium.copy(at, u64::from_le_bytes(last));
    }
}

fn read_bytes<M: Medium>(medium: &M, at: u64, bytes: u64, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + bytes as usize, 0);
    copy_bytes(medium, at, &mut out[start..]);
}

fn copy_bytes<M: Medium>(medium: &M, at: u64, out: &mut [u8]) {
    for (number, part) in (0..).zip(out.chunks_mut(PART_BYTES)) {
        copy_part(medium, at + number * PART_BYTES as u64, part);
    }
}

fn copy_part<M: Medium>(medium: &M, at: u64, out: &mut [u8]) {
    let (words, rest) = out.as_chunks_mut::<8>();
    let first = (at / WORD % 8) as usize;
    let lines = match M::SHOWS_LINES {
        true => medium.lines(at, (first + words.len()).div_ceil(8)),
        false => None,
    };
    if let Some([line, lines @ ..]) = lines {
        let (head, words) = words.split_at_mut(words.len().min(8 - first));
        let copy = |to: &mut [[u8; 8]], line: &[std::sync::atomic::AtomicU64]| {
            to.iter_mut().zip(line).for_each(|(to, word)| *to = word.load(Relaxed).to_le_bytes());
        };
        copy(head, &line.0[first..]);
        let (whole, tail) = words.as_chunks_mut::<8>();
        let (of_whole, of_tail) = lines.split_at(whole.len());
        whole.iter_mut().zip(of_whole).for_each(|(to, line)| copy(to, &line.0));
        of_tail.iter().for_each(|line| copy(tail, &line.0));
    } else {
        for (i, word) in words.iter_mut().enumerate() {
            *word = medium.word(at + i as u64 * WORD).to_le_bytes();
        }
    }
    if !rest.is_empty() {
        let last = medium.word(at + words.len() as u64 * WORD).to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// The checksum of bytes with their padding, continued from `crc`.
fn append(crc: u32, bytes: &[u8]) -> u32 {
    let padding = bytes.len().next_multiple_of(WORD as usize) - bytes.len();
    crc32c::crc32c_append(crc32c::crc32c_append(crc, bytes), &[0; WORD as usize][..padding])
}

/// The checksum of bytes of the medium that the caller does not read otherwise, continued from `crc`.
fn checksum<M: Medium>(medium: &M, at: u64, bytes: u64, crc: u32) -> u32 {
    let (mut crc, mut part) = (crc, [0; 128]);
    for from in (0..bytes).step_by(part.len()) {
        let part = &mut part[..(bytes - from).min(128) as usize];
        copy_bytes(medium, at + from, part);
        crc = append(crc, part);
    }
    crc
}

/// As [`read`], for a record without pieces of at most `WHOLE_LINES` lines: its words are copied once, and the checksum is computed
/// over one contiguous copy.
#[inline(always)]
fn read_whole<M: Medium>(
    medium: &M,
    at: u64,
    head: &Head,
    key: Option<&mut Vec<u8>>,
    value: &mut Vec<u8>,
) -> bool {
    let (first, words) = ((at / WORD % 8) as usize, head.bytes().div_ceil(WORD) as usize);
    let mut whole = Whole([[0; 8]; (WHOLE_LINES + 1) * 8]);
    let lines = if M::SHOWS_LINES { medium.lines(at, (first + words).div_ceil(8)) } else { None };
    match lines {
        Some(lines) => {
            for (to, line) in whole.0.as_chunks_mut::<8>().0.iter_mut().zip(lines) {
                for (to, word) in to.iter_mut().zip(&line.0) {
                    *to = word.load(Relaxed).to_le_bytes();
                }
            }
        }
        None => {
            for word in 2..words {
                whole.0[first + word] = medium.word(at + word as u64 * WORD).to_le_bytes();
            }
        }
    }
    // Replaces the word with the checksum, so that the checked bytes are contiguous.
    whole.0[first + 1] = head.word.to_le_bytes();
    let bytes = whole.0[first + 1..first + words].as_flattened();
    let (key_at, tail_at) = ((head.key_at(0) - WORD) as usize, (head.tail_at(0) - WORD) as usize);
    if let Some(key) = key {
        key.clear();
        key.extend_from_slice(&bytes[key_at..][..head.key_bytes as usize]);
    }
    value.extend_from_slice(&bytes[tail_at..][..head.value_bytes as usize]);
    crc32c::crc32c(bytes) == head.crc
}

/// Prefetches the first three lines of a record.
#[inline]
pub fn prefetch<M: Medium>(medium: &M, at: u64) {
    medium.prefetch(at, 3 * LINE);
}

/// Compares a record's key with `probe`. An address without a record compares as less than every key. The caller's validation of its node
/// then decides whether that is a race or damage.
#[inline]
pub fn compare_key<M: Medium>(medium: &M, at: u64, probe: &[u8]) -> Ordering {
    let head = if at < medium.len() { medium.word(at) } else { 0 };
    if head >> 48 != TAG {
        return Ordering::Less;
    }
    let key_bytes = (head & 0xFFFF) as usize;
    let pieces = medium.word(at + WORD) >> 32 & 0xFFFF;
    let key_at = at + HEAD + pieces * WORD;
    let common = key_bytes.min(probe.len());
    let (words, rest) = probe[..common].as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let mine = u64::from_be(medium.word(key_at + i as u64 * WORD).to_le());
        let theirs = u64::from_be_bytes(*word);
        if mine != theirs {
            return mine.cmp(&theirs);
        }
    }
    if !rest.is_empty() {
        let mine = medium.word(key_at + words.len() as u64 * WORD).to_le_bytes();
        match mine[..rest.len()].cmp(rest) {
            Ordering::Equal => {}
            other => return other,
        }
    }
    key_bytes.cmp(&probe.len())
}

/// The eight bytes of a record's key after the first `skipped` ones, as a big-endian word, padded with zeros; `None` if there is no record.
#[inline]
pub fn key_word<M: Medium>(medium: &M, at: u64, skipped: u64) -> Option<u64> {
    let head = Head::read(medium, at)?;
    let bytes = head.key_bytes.saturating_sub(skipped).min(WORD);
    if bytes == 0 {
        return Some(0);
    }
    let word_at = head.key_at(at) + skipped / WORD * WORD;
    let word = |at| u64::from_be(medium.word(at).to_le());
    let (first, bits) = (word(word_at), skipped % WORD * 8);
    let second = if skipped % WORD + bytes > WORD { word(word_at + WORD) >> (64 - bits) } else { 0 };
    Some((first << bits | second) & u64::MAX << (64 - bytes * 8))
}

/// Appends a record's key to `key`; false if there is no record. Does not verify the checksum.
pub fn read_key<M: Medium>(medium: &M, at: u64, key: &mut Vec<u8>) -> bool {
    let Some(head) = Head::read(medium, at) else { return false };
    read_bytes(medium, head.key_at(at), head.key_bytes, key);
    true
}

/// Replaces `value` with a record's value, and `key`, if there is one, with its key. Returns false if the record is not valid;
/// the content of both is then meaningless. O(bytes).
pub fn read<M: Medium>(medium: &M, at: u64, key: Option<&mut Vec<u8>>, value: &mut Vec<u8>) -> bool {
    value.clear();
    let Some(head) = Head::read(medium, at) else { return false };
    if head.pieces == 0 && head.bytes() <= WHOLE_LINES as u64 * LINE {
        return read_whole(medium, at, &head, key, value);
    }
    // Prefetches all lines together. Otherwise each load would wait for the copy of the line before.
    medium.prefetch(at + LINE, head.bytes().saturating_sub(LINE).min(AHEAD_LINES * LINE));
    let crc = crc32c::crc32c(&head.word.to_le_bytes());
    let crc = match key {
        None => checksum(medium, head.key_at(at), head.key_bytes, crc),
        Some(key) => {
            key.clear();
            read_bytes(medium, head.key_at(at), head.key_bytes, key);
            append(crc, key)
        }
    };
    for index in 0..head.pieces {
        let piece = medium.word(at + HEAD + index * WORD);
        if piece >= medium.len() || medium.word(piece) != at {
            return false;
        }
        read_bytes(medium, piece + PIECE_HEAD, head.piece_bytes, value);
    }
    read_bytes(medium, head.tail_at(at), head.tail_bytes(), value);
    append(crc, value) == head.crc
}

/// Length of a record's value in bytes, from the head of the record; `None` if there is no record. Does not verify the checksum.
pub fn value_bytes<M: Medium>(medium: &M, at: u64) -> Option<u64> {
    Head::read(medium, at).map(|head| head.value_bytes)
}

/// The pieces of the record at `at`: those that it lists and that have its address.
pub fn pieces<M: Medium>(region: &Region<M>, at: u64) -> Vec<u64> {
    let medium = region.medium();
    let Some(head) = Head::read(medium, at) else { return Vec::new() };
    (0..head.pieces)
        .map(|index| medium.word(at + HEAD + index * WORD))
        .filter(|piece| class_of(region, *piece).is_some_and(|class| class.kind == Kind::Piece))
        .filter(|piece| medium.word(*piece) == at)
        .collect()
}
