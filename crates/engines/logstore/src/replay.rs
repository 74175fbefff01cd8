//! Reading of the commit log: at an open, and for salvage. The format and the invariants are those of [`log`](crate::log).

use std::fs::OpenOptions;
use std::path::Path;

use pmem::file::io;
use pmem::{Error, Result, system};

use crate::buffer::{HEADER, LARGE, UPDATES, WORD};
use crate::header::{self, Header, Kind, word};
use crate::log::{BLOCK, LOG, MAGIC, SECTOR, UNSYNCED};
use crate::omission::{Omission, is_omitted};
use crate::place::Place;

/// A block of a file that was read.
struct Block<'f> {
    base: u64,
    words: &'f [u8],
    large: &'f [u8],
    /// L2.
    durable: u64,
    /// Bytes of the block in the file.
    bytes: usize,
}

/// The block at the start of these bytes. `None` if there is no good one.
fn decode(bytes: &[u8], store: u64, align: usize) -> Option<Block<'_>> {
    let head = bytes.get(..BLOCK)?;
    if word(head, 0) as u32 != MAGIC || word(head, 8) != store {
        return None;
    }
    let (words, large) = (usize::try_from(word(head, 24)).ok()?, usize::try_from(word(head, 32)).ok()?);
    let end = BLOCK.checked_add(words)?.checked_add(large)?;
    let body = bytes.get(..end)?;
    if crc32c::crc32c(&body[8..]) != (word(head, 0) >> 32) as u32 {
        return None;
    }
    Some(Block {
        base: word(head, 16),
        words: &body[BLOCK..BLOCK + words],
        large: &body[BLOCK + words..],
        durable: word(head, 40),
        bytes: end.next_multiple_of(align),
    })
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

fn corrupt(at: usize) -> Error {
    Error::Corrupt { what: "commit log", at: at as u64 }
}

/// All good blocks at multiples of `align` from `at` on.
fn blocks(bytes: &[u8], at: usize, store: u64, align: usize) -> impl Iterator<Item = Block<'_>> {
    (at..bytes.len()).step_by(align).filter_map(move |at| decode(&bytes[at..], store, align))
}

/// The bytes of a file and the alignment of its blocks, by its header.
fn sizes(header: &Header) -> Option<(u64, usize)> {
    let (bytes, align) = header.text.split_once(' ')?;
    let align = align.parse::<u64>().ok().filter(|align| [SECTOR, UNSYNCED].contains(align))?;
    Some((bytes.parse().ok()?, align as usize))
}

/// The files with headers, ascending: number and LSN of the first record.
fn headers(place: &Place) -> Result<Vec<(u64, u64)>> {
    let mut files: Vec<(u64, u64)> = Vec::new();
    for number in place.numbers(LOG)? {
        let path = place.path(LOG, number);
        let head = read_below(&path, header::BYTES as u64)?;
        if !Header::is_whole(&head) {
            // L3: the spare file. Its header was never durable, so it has no block, and only the file before it can be the last one.
            let is_spare = number == files.last().map_or(1, |(last, _)| last + 1);
            if !is_spare || blocks(&read(&path)?, 0, place.store, UNSYNCED as usize).next().is_some() {
                return Err(corrupt(0));
            }
            continue;
        }
        let header = Header::decode(&head, Kind::Log, place.store, &path)?;
        if header.number != number {
            return Err(Error::Foreign { path, why: "its header is that of another file of the store" });
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
        let bytes = read(&path)?;
        // L3: the length was durable before the first block.
        let header = Header::decode(&bytes, Kind::Log, place.store, &path)?;
        let (allocated, align) = sizes(&header).ok_or_else(|| corrupt(0))?;
        if end.is_some_and(|end| end != *base) || allocated != bytes.len() as u64 {
            return Err(corrupt(bytes.len()));
        }
        let (mut lsn, mut at) = (*base, header::BYTES);
        while let Some(block) = bytes.get(at..).and_then(|rest| decode(rest, place.store, align)) {
            if block.base != lsn {
                return Err(corrupt(at));
            }
            records(&block, from, apply).ok_or_else(|| corrupt(at))??;
            lsn += (block.words.len() / WORD) as u64;
            at += block.bytes;
            replayed.bytes += block.bytes as u64;
        }
        if blocks(&bytes, at + align, place.store, align).any(|block| block.durable > lsn) {
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

/// Reads a whole file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    read_below(path, u64::MAX)
}

/// Reads at most `limit` bytes of a file.
fn read_below(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let file = system::open(OpenOptions::new().read(true), path)
        .map_err(|source| io("cannot open", path, source))?;
    let bytes = system::inspect(&file, path).map_err(|source| io("cannot inspect", path, source))?.len();
    let mut contents = vec![0; bytes.min(limit) as usize];
    let mut at = 0;
    while at < contents.len() {
        match system::read_at(&file, path, at as u64, &mut contents[at..]) {
            Ok(0) => break,
            Ok(count) => at += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(source) => return Err(io("cannot read", path, source)),
        }
    }
    contents.truncate(at);
    Ok(contents)
}

/// Reads the log as [`replay`] does, or all of it, but goes on behind a damaged block. False if records are missing between others, or below `durable`.
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
        let Ok(bytes) = read(&place.path(LOG, number)) else {
            is_whole = false;
            continue;
        };
        let header = Header::decode(&bytes, Kind::Log, place.store, &place.path(LOG, number)).ok();
        // Without a header the larger alignment skips no block of a synced log, and some of another one.
        let align = header.as_ref().and_then(sizes).map_or(SECTOR as usize, |(_, align)| align);
        let mut at = header::BYTES;
        while at < bytes.len() {
            let Some(block) = decode(&bytes[at..], place.store, align) else {
                at += align;
                continue;
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
