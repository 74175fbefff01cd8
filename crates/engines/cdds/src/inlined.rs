//! Byte strings with their first seven bytes in the key word. So most comparisons read only the node. A separator of at most seven bytes is
//! completely in the word.
//!
//! | key word | meaning |
//! |---|---|
//! | seven bytes, length × 2 + 1 | a whole key of at most seven bytes |
//! | seven bytes, `0xFF` | of a leaf entry: the beginning of a longer key; the record has the whole key |
//! | an address, even | of an inner entry: a separator of more than seven bytes, in a record of its own |
//! | 0 | of an inner entry: the lowest key |
//!
//! The bytes come first and are padded with zeros. So two different words that are not addresses have the order of their keys. Two equal
//! words of longer keys have no order: the records decide.

use std::cmp::Ordering;

use index::Entry;
use index::{Keyed, Schema};
use pmem::alloc::{Allocator, Kind};
use pmem::log::Log;
use pmem::{Error, Medium, Region, Result, WORD, record};

/// Bytes of a key in its word.
const BYTES: usize = 7;
/// Stands for the length of a longer key.
const LONGER: u64 = 0xFF;

/// See the module's head.
#[derive(Debug)]
pub struct Inlined;

/// The word of a leaf entry's key.
fn word_of(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let count = key.len().min(BYTES);
    bytes[..count].copy_from_slice(&key[..count]);
    bytes[BYTES] = if key.len() > BYTES { LONGER as u8 } else { (key.len() * 2 + 1) as u8 };
    u64::from_be_bytes(bytes)
}

fn is_address(word: u64) -> bool {
    word & 1 == 0
}

/// The key in a word, if the word has all of it.
fn whole(word: u64) -> Option<([u8; 8], usize)> {
    let length = (word & LONGER) as usize / 2;
    (!is_address(word) && length <= BYTES).then(|| (word.to_be_bytes(), length))
}

/// The record that has the key, if the word does not have all of it. For a leaf entry it is the record of its payload.
fn record_of(word: u64, payload: u64) -> u64 {
    if is_address(word) { word } else { payload }
}

fn read_key<M: Medium>(medium: &M, [word, payload]: [u64; 2], out: &mut Vec<u8>) -> bool {
    out.clear();
    let is_read = match whole(word) {
        Some((bytes, length)) => {
            out.extend_from_slice(&bytes[..length]);
            true
        }
        None => record::read_key(medium, record_of(word, payload), out),
    };
    // A word that does not match its key is damaged.
    is_read && (is_address(word) || word == word_of(out))
}

#[inline]
fn compare<M: Medium>(
    medium: &M,
    word: u64,
    payload: impl FnOnce() -> u64,
    (probe, key): (u64, &[u8]),
) -> Ordering {
    if is_address(word) {
        return record::compare_key(medium, word, key);
    }
    (word >> 8).cmp(&(probe >> 8)).then_with(|| match whole(word) {
        // The shorter key is a prefix of the other, or both are equal.
        Some((_, length)) => length.cmp(&key.len()),
        None => record::compare_key(medium, payload(), key),
    })
}

impl Schema for Inlined {
    type Key = [u8];
    type KeyBuf = Vec<u8>;
    type Value = [u8];
    type ValueBuf = Vec<u8>;
    type Tail = [u64; 0];
    /// Key word and key.
    type Probe<'a> = (u64, &'a [u8]);
    const NAME: &'static str = Keyed::NAME;
    const KEY_WORDS: usize = 1;
    const PLAIN: bool = false;
    const LEADING: bool = true;

    fn payload_words(kind: &str) -> Option<usize> {
        Keyed::payload_words(kind)
    }
    fn borrow(key: &Vec<u8>) -> &[u8] {
        key
    }
    fn borrow_value(value: &Vec<u8>) -> &[u8] {
        value
    }
    fn key_bytes(key: &[u8]) -> impl AsRef<[u8]> {
        key
    }
    fn key_of(bytes: &[u8]) -> Option<Vec<u8>> {
        Keyed::key_of(bytes)
    }
    fn value_bytes(value: &[u8]) -> impl AsRef<[u8]> {
        value
    }
    fn value_of(bytes: &[u8]) -> Option<Vec<u8>> {
        Keyed::value_of(bytes)
    }
    fn hash(key: &[u8]) -> u64 {
        Keyed::hash(key)
    }
    fn record_bytes(key: &[u8], value: &[u8]) -> u64 {
        Keyed::record_bytes(key, value)
    }
    fn probe(key: &[u8]) -> (u64, &[u8]) {
        (word_of(key), key)
    }
    fn order_probe((_, a): (u64, &[u8]), b: &[u8]) -> Ordering {
        a.cmp(b)
    }
    fn plain((word, _): (u64, &[u8])) -> u64 {
        word
    }
    #[inline]
    fn compare<M: Medium>(medium: &M, at: u64, probe: (u64, &[u8])) -> Ordering {
        compare(medium, medium.word(at), || medium.word(at + WORD), probe)
    }
    fn compare_words<M: Medium>(medium: &M, key: [u64; 2], probe: (u64, &[u8])) -> Ordering {
        compare(medium, key[0], || key[1], probe)
    }
    fn compare_keys<M: Medium>(medium: &M, a: [u64; 2], b: [u64; 2]) -> Ordering {
        let mut key = Vec::new();
        read_key(medium, b, &mut key);
        Self::compare_words(medium, a, (word_of(&key), &key))
    }
    fn read_key<M: Medium>(medium: &M, key: [u64; 2], out: &mut Vec<u8>) -> bool {
        read_key(medium, key, out)
    }
    fn read_value<M: Medium>(medium: &M, entry: &Entry, out: &mut Vec<u8>) -> bool {
        Keyed::read_value(medium, entry, out)
    }
    fn read_pair<M: Medium>(medium: &M, entry: &Entry, key: &mut Vec<u8>, value: &mut Vec<u8>) -> bool {
        record::read(medium, entry.payload, Some(key), value)
    }
    fn prefetch<M: Medium>(medium: &M, entry: &Entry) {
        Keyed::prefetch(medium, entry);
    }
    fn make<M: Medium>(
        region: &Region<M>,
        allocator: &mut Allocator,
        log: &mut Log,
        key: &[u8],
        value: &[u8],
    ) -> Result<Entry> {
        let record = record::write(region, allocator, log, Kind::Record, key, value)?;
        Ok(Entry::new([word_of(key), 0], record))
    }
    fn separate<M: Medium>(
        region: &Region<M>,
        allocator: &mut Allocator,
        log: &mut Log,
        left: &Entry,
        right: &Entry,
    ) -> Result<[u64; 2]> {
        let (mut below, mut above) = (Vec::new(), Vec::new());
        for (entry, key) in [(left, &mut below), (right, &mut above)] {
            if !read_key(region.medium(), [entry.key[0], entry.payload], key) {
                return Err(Error::Corrupt { what: "record", at: entry.payload });
            }
        }
        // One byte more than the common prefix: above the left key, and a prefix of the right one.
        let common = below.iter().zip(&above).take_while(|(a, b)| a == b).count();
        above.truncate(common + 1);
        if above.len() <= BYTES {
            return Ok([word_of(&above), 0]);
        }
        Ok([record::write(region, allocator, log, Kind::Separator, &above, &[])?, 0])
    }
    fn blocks_of(entry: &Entry) -> impl Iterator<Item = u64> {
        std::iter::once(entry.payload)
    }
    fn separator_block([word, _]: [u64; 2]) -> Option<u64> {
        is_address(word).then_some(word)
    }
    fn replace(_old: &Entry, new: &Entry) -> impl Iterator<Item = (u64, u64)> {
        [(0, new.key[0]), (1, new.payload)].into_iter()
    }
    fn key_of_block<M: Medium>(medium: &M, at: u64, out: &mut Vec<u8>) -> bool {
        Keyed::key_of_block(medium, at, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_compare_as_their_keys_do_unless_the_bytes_are_the_same() {
        let keys: [&[u8]; 9] = [b"", b"\0", b"\0\0", b"a", b"a\0", b"a\0\0\0\0\0\0", b"ab", b"abcdefg", b"b"];
        for (index, key) in keys.iter().enumerate() {
            assert!(!is_address(word_of(key)));
            let (bytes, length) = whole(word_of(key)).unwrap();
            assert_eq!(&bytes[..length], *key);
            for other in &keys[index + 1..] {
                assert!(word_of(key) < word_of(other), "{key:?} {other:?}");
            }
        }
        assert!(whole(word_of(b"abcdefgh")).is_none() && !is_address(word_of(b"abcdefgh")));
        assert!(word_of(b"abcdefg") < word_of(b"abcdefgh"));
    }
}
