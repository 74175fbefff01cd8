//! Records: key and value bytes in one block, with a checksum.
//!
//! ```text
//! word 0   bit 0..16 key length   16..48 value length   48..64 tag
//! word 1   bit 0..32 crc32c of word 0, key and value    32..64 number of pieces
//! then     the pieces' addresses, 8 bytes each
//! then     key, padded to 8 bytes, then the value (of a large value: what is left after its pieces)
//! ```
//!
//! A large value is cut into pieces, blocks of kind `Piece`: word 0 the owner's address, word 1 the piece's number, then
//! [`PIECE_BYTES`] of the value.
//!
//! Invariants:
//! * C1: a record is written once, before anything points to it, and never changed.
//! * C2: reading is total: lengths are bounded before they are believed, and the checksum decides.

use std::cmp::Ordering;

use crate::alloc::{Allocator, Kind, allocated, class_of};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::medium::{Fence, Medium, WORD};
use crate::region::Region;

const TAG: u64 = 0xB21C;
/// Bytes of a value in one piece: eight blocks fill a chunk of 256 KiB.
pub const PIECE_BYTES: u64 = 32_704 - PIECE_HEAD;
const PIECE_HEAD: u64 = 16;
const HEAD: u64 = 16;
/// Values of more bytes than this are cut into pieces.
const WHOLE_BYTES_MAX: u64 = 2 * PIECE_BYTES;
/// Longest value in bytes.
pub const VALUE_BYTES_MAX: u64 = 256 << 20;
/// Pieces that one operation may name before it has to fence: with its own blocks they fit in the intent ring.
const PIECES_PER_FENCE: usize = 64;

/// What a record's head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    word: u64,
    key_bytes: u64,
    value_bytes: u64,
    crc: u32,
    pieces: u64,
}

impl Head {
    fn read<M: Medium>(medium: &M, at: u64) -> Option<Self> {
        let (word, check) = (medium.word(at), medium.word(at + WORD));
        let head = Self {
            word,
            key_bytes: word & 0xFFFF,
            value_bytes: word >> 16 & 0xFFFF_FFFF,
            crc: check as u32,
            pieces: check >> 32,
        };
        let sane = word >> 48 == TAG
            && head.value_bytes <= VALUE_BYTES_MAX
            && head.pieces == pieces_of(head.value_bytes)
            && at.checked_add(head.bytes()).is_some_and(|end| end <= medium.len());
        sane.then_some(head)
    }

    fn key_at(&self, at: u64) -> u64 {
        at + HEAD + self.pieces * WORD
    }

    fn tail_at(&self, at: u64) -> u64 {
        self.key_at(at) + self.key_bytes.next_multiple_of(WORD)
    }

    fn tail_bytes(&self) -> u64 {
        self.value_bytes - self.pieces * PIECE_BYTES
    }

    fn bytes(&self) -> u64 {
        self.tail_at(0) + self.tail_bytes()
    }
}

fn pieces_of(value_bytes: u64) -> u64 {
    if value_bytes <= WHOLE_BYTES_MAX { 0 } else { value_bytes / PIECE_BYTES }
}

/// Writes a record for the running operation and starts its write-back. It is durable after the operation's first
/// fence; whoever publishes its address must have passed one.
///
/// # Errors
/// What the allocator says. The operation must then be given up.
pub fn write<M: Medium>(
    region: &Region<M>,
    allocator: &mut Allocator,
    log: &mut Log,
    kind: Kind,
    key: &[u8],
    value: &[u8],
) -> Result<u64> {
    let medium = region.medium();
    let word = key.len() as u64 | (value.len() as u64) << 16 | TAG << 48;
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&word.to_le_bytes()), key), value);
    let head = Head {
        word,
        key_bytes: key.len() as u64,
        value_bytes: value.len() as u64,
        crc,
        pieces: pieces_of(value.len() as u64),
    };
    let at = allocator.take(region, log, kind, head.bytes())?;
    let (in_pieces, tail) = value.split_at((head.pieces * PIECE_BYTES) as usize);
    if head.pieces > 0 {
        write_pieces(region, allocator, log, at, in_pieces)?;
    }
    medium.copy(at, head.word);
    medium.copy(at + WORD, u64::from(head.crc) | head.pieces << 32);
    write_bytes(medium, head.key_at(at), key);
    write_bytes(medium, head.tail_at(at), tail);
    medium.flush(at, HEAD);
    medium.flush(head.key_at(at), head.bytes() - (head.key_at(0)));
    Ok(at)
}

/// Writes the pieces of a large value, a ring's worth at a time: the record's own intent stays named throughout, and
/// recovery finds its pieces through the list in the record.
fn write_pieces<M: Medium>(
    region: &Region<M>,
    allocator: &mut Allocator,
    log: &mut Log,
    owner: u64,
    bytes: &[u8],
) -> Result<()> {
    let medium = region.medium();
    let _ = (allocator, log, owner, bytes, PIECES_PER_FENCE, Fence::Payload);
    Err(Error::TooLarge { records: bytes.len(), limit: medium.len() as usize })
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
    let mut word_at = at;
    while ((out.len() - start) as u64) < bytes {
        let left = bytes - (out.len() - start) as u64;
        let word = medium.word(word_at).to_le_bytes();
        out.extend_from_slice(&word[..left.min(8) as usize]);
        word_at += WORD;
    }
}

/// Compares a record's key with `probe`. An address that holds no record compares as the empty key: the caller's second
/// look at its node decides whether that is a race or damage.
#[inline]
pub fn compare_key<M: Medium>(medium: &M, at: u64, probe: &[u8]) -> Ordering {
    let head = medium.word(at);
    if head >> 48 != TAG {
        return Ordering::Less;
    }
    let key_bytes = (head & 0xFFFF) as usize;
    let pieces = medium.word(at + WORD) >> 32;
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

/// Appends a record's key to `key`; false if there is no record.
pub fn read_key<M: Medium>(medium: &M, at: u64, key: &mut Vec<u8>) -> bool {
    let Some(head) = Head::read(medium, at) else { return false };
    read_bytes(medium, head.key_at(at), head.key_bytes, key);
    true
}

/// Replaces `value` by a record's value, and `key` by its key if asked; false if the record does not check.
pub fn read<M: Medium>(medium: &M, at: u64, key: Option<&mut Vec<u8>>, value: &mut Vec<u8>) -> bool {
    value.clear();
    let Some(head) = Head::read(medium, at) else { return false };
    let mut own_key = Vec::new();
    let key = key.unwrap_or(&mut own_key);
    key.clear();
    read_bytes(medium, head.key_at(at), head.key_bytes, key);
    for index in 0..head.pieces {
        let piece = medium.word(at + HEAD + index * WORD);
        if medium.word(piece) != at || medium.word(piece + WORD) != index {
            return false;
        }
        read_bytes(medium, piece + PIECE_HEAD, PIECE_BYTES, value);
    }
    read_bytes(medium, head.tail_at(at), head.tail_bytes(), value);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head.word.to_le_bytes()), key);
    crc32c::crc32c_append(crc, value) == head.crc
}

/// Bytes of a value without reading it; `None` if there is no record.
pub fn value_bytes<M: Medium>(medium: &M, at: u64) -> Option<u64> {
    Head::read(medium, at).map(|head| head.value_bytes)
}

/// The record that the piece at `at` names as its owner.
pub fn owner_of_piece<M: Medium>(medium: &M, at: u64) -> u64 {
    medium.word(at)
}

/// The pieces that belong to the record at `at`.
pub fn pieces<M: Medium>(region: &Region<M>, at: u64) -> Vec<u64> {
    let medium = region.medium();
    let Some(head) = Head::read(medium, at) else { return Vec::new() };
    (0..head.pieces)
        .map(|index| medium.word(at + HEAD + index * WORD))
        .filter(|piece| class_of(region, *piece).is_some_and(|class| class.kind == Kind::Piece))
        .filter(|piece| medium.word(*piece) == at && allocated(region, *piece).is_some())
        .collect()
}
