//! Guides: where the records of a whole image are, so that a lookup in an evicted leaf reads one piece of the image and not all of it.
//!
//! A *piece* is the part of an image that is in one page of the file system. A guide has the checksum of each piece, because the checksum of
//! the image needs all bytes, and the ranks of some keys, with which a lookup finds its piece.
//!
//! ```text
//! guide   common prefix of the image's keys: u16 | bytes of the first piece: u16 | bytes of the image: u32 | piece …
//! piece   CRC-32C: u32 | offset of the first record that begins in it, all bits 1 if none does: u16 | records before it: u16 |
//!         rank of that record's key behind the common prefix: u32
//! ```
//!
//! No bytes: there is no guide. A guide is only in memory.
//!
//! Invariant:
//! * G1: a guide is that of the whole image of its leaf: of the image, or of the base of its changes. A piece with another checksum than the
//!   guide's is not used.

use crate::bytes::common;
use crate::image;
use crate::pairs::Pairs;

/// Bytes of a page of the file system.
pub const PIECE: usize = 4096;

/// A larger image has no guide: the guide would take much memory.
const IMAGE_MAX: usize = 256 << 10;
/// An image whose records have more bytes on average has no guide. More than a fifth of such records end in another piece and need a second
/// read. Then a read of a usual image, of four pieces, is as fast.
const MEAN_MAX: usize = PIECE / 5;

const HEAD: usize = 8;
const ENTRY: usize = 12;
const NO_RECORD: u16 = u16::MAX;

/// A place in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Number of the piece.
    pub(crate) piece: usize,
    /// Offset in the piece.
    pub(crate) offset: usize,
    /// Number of records before it.
    pub(crate) index: usize,
}

fn rank<P: Pairs>(key: &[u8], skip: usize) -> u32 {
    (P::rank(key.get(skip..).unwrap_or_default()) >> 32) as u32
}

/// The ranges of the pieces of an image of this length.
fn pieces(first: usize, bytes: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let starts = std::iter::once(0).chain((first..bytes).step_by(PIECE));
    starts.map(move |from| from..bytes.min(if from == 0 { first } else { from + PIECE }))
}

/// True if an image of this length, with this number of records, is to have a guide.
fn is_useful(bytes: usize, records: usize) -> bool {
    bytes <= IMAGE_MAX.min(records * MEAN_MAX)
}

/// The guide of a whole image. `first`: the bytes of the first piece. Empty if the image has only one piece, if a guide is of no use, or
/// if the keys have no ranks.
pub(crate) fn of<P: Pairs>(whole: &[u8], first: usize) -> Vec<u8> {
    let build = || {
        // The keys ascend, so what the first and the last one have in common, all have. The leaf's bounds may be narrower than the image.
        let mut keys = image::records_with_offsets(whole)?.map(|(_, key)| key);
        let lowest = keys.next()?;
        let (count, highest) = keys.fold((1, lowest), |(count, _), key| (count + 1, key));
        if !is_useful(whole.len(), count) {
            return None;
        }
        let skip = if count > 1 { common(lowest, highest) } else { 0 };
        let (skip, length) = (u16::try_from(skip).ok()?, u32::try_from(whole.len()).ok()?);
        let (narrow, mut records) =
            (u16::try_from(first).ok()?, image::records_with_offsets(whole)?.peekable());
        let count = pieces(first, whole.len()).count();
        let mut guide = Vec::with_capacity(HEAD + count * ENTRY);
        guide.extend(skip.to_le_bytes());
        guide.extend(narrow.to_le_bytes());
        guide.extend(length.to_le_bytes());
        let (mut before, mut ranks) = (0_u16, Vec::with_capacity(count));
        for range in pieces(first, whole.len()) {
            let own = records.peek().copied().filter(|(at, _)| *at < range.end);
            let (offset, rank) = match own {
                Some((at, key)) => ((at - range.start) as u16, rank::<P>(key, usize::from(skip))),
                None => (NO_RECORD, 0),
            };
            guide.extend(crc32c::crc32c(&whole[range.clone()]).to_le_bytes());
            guide.extend(offset.to_le_bytes());
            guide.extend(before.to_le_bytes());
            guide.extend(rank.to_le_bytes());
            ranks.extend(own.map(|_| rank));
            while records.next_if(|(at, _)| *at < range.end).is_some() {
                before = before.checked_add(1)?;
            }
        }
        (ranks.is_sorted() && ranks.first() < ranks.last()).then_some(guide)
    };
    if first < whole.len() { build().unwrap_or_default() } else { Vec::new() }
}

/// An entry: checksum, offset, records before, rank.
fn entry(guide: &[u8], piece: usize) -> Option<(u32, u16, u16, u32)> {
    let entry = guide.get(HEAD + piece * ENTRY..)?.get(..ENTRY)?;
    let wide = |at: usize| Some(u32::from_le_bytes(entry[at..at + 4].try_into().ok()?));
    let narrow = |at: usize| Some(u16::from_le_bytes(entry[at..at + 2].try_into().ok()?));
    Some((wide(0)?, narrow(4)?, narrow(6)?, wide(8)?))
}

/// The place from which on a key's record is, if there is one, and before the next piece. `None` if the ranks do not say it.
pub(crate) fn place<P: Pairs>(guide: &[u8], key: &[u8]) -> Option<Place> {
    let skip = u16::from_le_bytes(*guide.first_chunk()?);
    let rank = rank::<P>(key, usize::from(skip));
    let mut found = None;
    for (piece, (_, offset, index, first)) in (0..).map_while(|piece| Some((piece, entry(guide, piece)?))) {
        if offset == NO_RECORD {
            continue;
        }
        if first == rank {
            return None;
        }
        // Before the first record there is none, so the first piece will do.
        if first < rank || found.is_none() {
            found = Some(Place { piece, offset: usize::from(offset), index: usize::from(index) });
        }
    }
    found
}

/// The range of a piece in the image. `None` behind the last piece.
pub(crate) fn range(guide: &[u8], piece: usize) -> Option<std::ops::Range<usize>> {
    let first = u16::from_le_bytes(*guide.get(2..)?.first_chunk()?);
    let bytes = u32::from_le_bytes(*guide.get(4..)?.first_chunk()?);
    pieces(usize::from(first), bytes as usize).nth(piece)
}

/// True if these are the bytes of the piece (G1).
pub(crate) fn is_good(guide: &[u8], piece: usize, bytes: &[u8]) -> bool {
    entry(guide, piece).is_some_and(|(sum, ..)| crc32c::crc32c(bytes) == sum)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bytes::Bytes;

    #[test]
    fn each_key_is_in_the_piece_that_the_guide_names() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut known, mut unknown) = (0, 0);
        for round in 0..300 {
            let value_max = [40, 300, 1000][round % 3];
            let mut pairs: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            for _ in 0..random.usize(1..120) {
                let prefix = ["common ", "common prefix ", "c"][random.usize(..round % 4 % 3 + 1)];
                let key = format!("{prefix}{:06}", random.u32(..100_000)).into_bytes();
                // A few values have several pieces.
                let value_max = if random.u8(..60) == 0 { 3 * PIECE } else { value_max };
                pairs.insert(key, vec![random.u8(..); random.usize(..value_max)]);
            }
            let records: Vec<_> = pairs.iter().map(|(key, value)| ((&key[..], &value[..]), 0)).collect();
            let whole = image::whole_of(&records);
            let first = random.usize(1..=PIECE);
            let guide = of::<Bytes>(&whole, first);
            if guide.is_empty() {
                continue;
            }
            let ranges: Vec<_> = (0..).map_while(|piece| range(&guide, piece)).collect();
            assert_eq!(ranges[0], 0..first);
            assert!(ranges.windows(2).all(|two| two[0].end == two[1].start && two[1].len() <= PIECE));
            assert_eq!(ranges.last().unwrap().end, whole.len());
            for (piece, range) in ranges.iter().enumerate() {
                assert!(is_good(&guide, piece, &whole[range.clone()]));
                assert!(!is_good(&guide, piece, &whole[range.start..range.end - 1]));
            }
            for (index, (at, key)) in image::records_with_offsets(&whole).unwrap().enumerate() {
                let Some(place) = place::<Bytes>(&guide, key) else {
                    unknown += 1;
                    continue;
                };
                known += 1;
                let own = &ranges[place.piece];
                assert!(own.start + place.offset <= at && at < own.end, "{place:?} {at}");
                assert!(place.index <= index);
            }
        }
        assert!(known > 5000 && unknown > 100, "{known} {unknown}");
        assert_eq!(place::<Bytes>(&[], b"key"), None);
    }
}
