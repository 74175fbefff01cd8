//! Reading of the commit log: at an open, and for salvage. The format and the invariants are those of [`log`](crate::log).
//!
//! Files are read in [`pieces`](crate::pieces). Only a good block is read as a whole: a damaged length takes no memory.

use pmem::{Error, Result};

use crate::buffer::{HEADER, LARGE, UPDATES, WORD};
use crate::header::{self, Header, Kind, word};
use crate::log::{BLOCK, LOG, LSN_MAX, MAGIC, SECTOR, UNSYNCED};
use crate::omission::{Omission, is_omitted};
use crate::pieces::Pieces;
use crate::place::Place;

/// A good block.
struct Block<'f> {
    base: u64,
    words: &'f [u8],
    large: &'f [u8],
    /// L2.
    durable: u64,
    /// Bytes of the block in the file.
    bytes: u64,
}

/// The block at an offset. `None` if there is no good one.
fn decode(pieces: &mut Pieces, at: u64, store: u64, align: u64) -> Result<Option<Block<'_>>> {
    let head = pieces.get(at, BLOCK)?;
    if head.len() < BLOCK || word(head, 0) as u32 != MAGIC || word(head, 8) != store {
        return Ok(None);
    }
    let sum = (word(head, 0) >> 32) as u32;
    let [base, words, large, durable] = [16, 24, 32, 40].map(|at| word(head, at));
    let bytes = (BLOCK as u64).checked_add(words).and_then(|bytes| bytes.checked_add(large));
    let Some(bytes) = bytes else { return Ok(None) };
    if base > LSN_MAX || pieces.sum(at, bytes, 8)? != Some(sum) {
        return Ok(None);
    }
    let (words, body) = (words as usize, pieces.get(at, bytes as usize)?);
    let (words, large) = body[BLOCK..].split_at(words);
    Ok(Some(Block { base, words, large, durable, bytes: bytes.next_multiple_of(align) }))
}

/// Calls `apply` with the contents of each committed record of a block from LSN `from` on. `None` if the block is not well formed.
fn records(block: &Block<'_>, from: u64, apply: &mut dyn FnMut(&[u8]) -> Result<()>) -> Option<Result<()>> {
    let (mut at, mut large) = (0usize, block.large);
    while at < block.words.len() {
        let first = word(block.words, at);
        let (words, bytes) = ((first >> 32) as usize, usize::try_from(word(block.words, at + WORD)).ok()?);
        let end = at.checked_add(words.checked_mul(WORD)?)?;
        let record = block.words.get(at..end)?;
        let contents = if first & LARGE != 0 {
            let (contents, rest) = large.split_at_checked(bytes)?;
            large = rest;
            contents
        } else {
            record.get(HEADER as usize * WORD..)?.get(..bytes)?
        };
        if (words as u64) < HEADER {
            return None;
        }
        if (first & 0xff == UPDATES || is_omitted(Omission::Void))
            && block.base + (at / WORD) as u64 >= from
            && let Err(error) = apply(contents)
        {
            return Some(Err(error));
        }
        at = end;
    }
    Some(Ok(()))
}

/// The result of reading a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replayed {
    /// LSN after the last good record.
    pub(crate) end: u64,
    /// The files with records: number and LSN of the first one.
    pub(crate) files: Vec<(u64, u64)>,
    /// Bytes of good blocks.
    pub(crate) bytes: u64,
}

fn corrupt(at: u64) -> Error {
    Error::Corrupt { what: "commit log", at }
}

/// True if one of the good blocks at multiples of `align` from `at` on is as wanted.
fn has_block(
    pieces: &mut Pieces,
    mut at: u64,
    store: u64,
    align: u64,
    is_wanted: impl Fn(&Block<'_>) -> bool,
) -> Result<bool> {
    while let Some(found) = pieces.find(MAGIC, at, align as usize)? {
        if decode(pieces, found, store, align)?.is_some_and(|block| is_wanted(&block)) {
            return Ok(true);
        }
        at = found + align;
    }
    Ok(false)
}

/// The bytes of a file and the alignment of its blocks, by its header.
fn sizes(header: &Header) -> Option<(u64, u64)> {
    let (bytes, align) = header.text.split_once(' ')?;
    let align = align.parse::<u64>().ok().filter(|align| [SECTOR, UNSYNCED].contains(align))?;
    Some((bytes.parse().ok()?, align))
}

/// The files with headers, ascending: number and LSN of the first record.
fn headers(place: &Place) -> Result<Vec<(u64, u64)>> {
    let mut files: Vec<(u64, u64)> = Vec::new();
    for number in place.numbers(LOG)? {
        let path = place.path(LOG, number);
        let mut pieces = Pieces::open(&path)?;
        let head = pieces.get(0, header::BYTES)?;
        if !Header::is_whole(head) {
            // L3: the spare file. Its header was never durable, so it has no block, and only the file before it can be the last one.
            let is_spare = number == files.last().map_or(1, |(last, _)| last + 1);
            if !is_spare || has_block(&mut pieces, 0, place.store, UNSYNCED, |_| true)? {
                return Err(corrupt(0));
            }
            continue;
        }
        let header = Header::decode(head, Kind::Log, place.store, &path)?;
        if header.number != number {
            return Err(Error::Foreign { path, why: "its header is that of another file of the store" });
        }
        if header.lsn > LSN_MAX {
            return Err(corrupt(0));
        }
        files.push((number, header.lsn));
    }
    Ok(files)
}

/// Reads the log from LSN `from` on, and calls `apply` with the contents of each committed record, in their order. Changes no file.
///
/// # Errors
/// `Corrupt` if a block before the end is damaged (L2), or records at `from` or behind it are missing; `Foreign`; `Io`; those of `apply`.
pub(crate) fn replay(
    place: &Place,
    from: u64,
    apply: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<Replayed> {
    let mut replayed = Replayed { files: headers(place)?, ..Replayed::default() };
    let mut end: Option<u64> = None;
    // L7.
    let first = replayed.files.iter().rposition(|(_, lsn)| *lsn <= from);
    if first.is_none() && !replayed.files.is_empty() {
        return Err(corrupt(0));
    }
    for (number, base) in &replayed.files[first.unwrap_or(0)..] {
        let path = place.path(LOG, *number);
        let mut pieces = Pieces::open(&path)?;
        // L3: the length was durable before the first block.
        let header = Header::decode(pieces.get(0, header::BYTES)?, Kind::Log, place.store, &path)?;
        let (allocated, align) = sizes(&header).ok_or_else(|| corrupt(0))?;
        if end.is_some_and(|end| end != *base) || allocated != pieces.len() {
            return Err(corrupt(pieces.len()));
        }
        let (mut lsn, mut at) = (*base, header::BYTES as u64);
        while let Some(block) = decode(&mut pieces, at, place.store, align)? {
            if block.base != lsn {
                return Err(corrupt(at));
            }
            records(&block, from, apply).ok_or_else(|| corrupt(at))??;
            lsn += (block.words.len() / WORD) as u64;
            at += block.bytes;
            replayed.bytes += block.bytes;
        }
        if has_block(&mut pieces, at + align, place.store, align, |block| block.durable > lsn)? {
            // L2.
            return Err(corrupt(at));
        }
        end = Some(lsn);
    }
    replayed.end = end.unwrap_or(from);
    if replayed.end < from {
        return Err(corrupt(0));
    }
    Ok(replayed)
}

/// Reads the log as [`replay`] does, or all of it, but goes on behind a damaged block. False if records are missing between others, or
/// below `durable`.
///
/// # Errors
/// Those of `apply`.
pub(crate) fn salvage(
    place: &Place,
    from: Option<u64>,
    durable: u64,
    apply: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<bool> {
    let (mut is_whole, mut end) = (true, None::<u64>);
    let start = from.unwrap_or(0);
    for number in place.numbers(LOG)? {
        let path = place.path(LOG, number);
        let Ok(mut pieces) = Pieces::open(&path) else {
            is_whole = false;
            continue;
        };
        let head = pieces.get(0, header::BYTES).unwrap_or_default();
        let header = Header::decode(head, Kind::Log, place.store, &path).ok();
        // Without a header the larger alignment skips no block of a synced log, and some of another one.
        let align = header.as_ref().and_then(sizes).map_or(SECTOR, |(_, align)| align);
        let mut at = header::BYTES as u64;
        while at < pieces.len() {
            let block = match decode(&mut pieces, at, place.store, align) {
                Ok(Some(block)) => block,
                Ok(None) => {
                    at += align;
                    continue;
                }
                // The rest of the file cannot be read.
                Err(_) => {
                    is_whole = false;
                    break;
                }
            };
            at += block.bytes;
            let behind = block.base + (block.words.len() / WORD) as u64;
            if end.is_some_and(|end| behind <= end) {
                continue;
            }
            is_whole &= end.map_or(from.is_none_or(|from| block.base <= from), |end| {
                block.base == end || behind <= start
            });
            is_whole &= records(&block, start, apply).transpose()?.is_some();
            end = Some(behind);
        }
    }
    Ok(is_whole && end.unwrap_or(start) >= durable)
}
