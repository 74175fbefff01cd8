//! The schemas of keys and values.
//!
//! | schema | entry | value |
//! |---|---|---|
//! | [`Words`] | key word, value word | a 64-bit integer |
//! | [`Fixed`] | key word, value words | byte string in the entry; one length, 8 to 120 [VLAB §6.2] |
//! | [`Keyed`] | key pointer, record pointer [wB+ §4.6] | byte string in the record |
//! | [`Prefixed`] | the key's first 8 bytes, key pointer, record pointer | byte string in the record |
//!
//! The key pointer and the record pointer of a byte-string entry reference the same record, which contains key and
//! value. An update in place writes a new record, and then changes first the record pointer and then the key pointer.
//! After a crash between the two changes, the pointers reference different records. Both records have the same key, and
//! the entry owns both. The value is always in the record that the record pointer references.
//!
//! A separator in an inner node consists of the first columns of an entry, those of the key. With 64-bit keys, the separator is the key of
//! the right neighbour. With byte-string keys, it is the shortest prefix of the right neighbour's key that is greater than the left
//! neighbour's key, and it has a record of its own.

use std::cmp::Ordering;
use std::fmt::Debug;

use pmem::alloc::{Allocator, Kind};
use pmem::log::Log;
use pmem::{Error, Medium, Region, Result, WORD, record};

use crate::entry::{Entry, LongTail, TAIL_MAX, Tail};
use crate::leaf_list::bound::leading;

/// Follows the name of a kind in the superblock if the keys are those of several tables ([`Tables`](crate::tables::Tables)).
pub const TABLES: &str = ", tables";

/// The schema of an index's keys and values. See the module's head.
pub trait Schema: Send + Sync + 'static {
    /// A key as a caller passes it.
    type Key: ?Sized + Debug;
    /// A key as the index returns it.
    type KeyBuf: Default + Clone + Debug + Send + Sync + Ord;
    /// A value as a caller passes it.
    type Value: ?Sized + Debug + PartialEq;
    /// A value as the index returns it.
    type ValueBuf: Default + Clone + Debug + Send + Sync;
    /// A key prepared for comparisons.
    type Probe<'a>: Copy;

    /// The payload words after the first one.
    type Tail: Tail;

    /// Name for users. If every payload has one word, it is also the name of the kind.
    const NAME: &'static str;
    /// Words of a key in an entry.
    const KEY_WORDS: usize;
    /// True if the key word is the key. Then vector comparison applies.
    const PLAIN: bool;
    /// True if two key words compare as their keys do. Exceptions: a word is even, or both have equal upper seven bytes.
    const LEADING: bool = false;

    /// Name of the kind in a region's identity, for payloads of `payload_words` words.
    fn kind(_payload_words: usize) -> String {
        Self::NAME.into()
    }
    /// Words of a payload, from the name of the kind. `None` if the kind is not of this schema.
    fn payload_words(kind: &str) -> Option<usize> {
        (kind == Self::NAME).then_some(1)
    }
    /// Returns an error if payloads of `payload_words` words cannot hold the value.
    ///
    /// # Errors
    /// `ValueBytes`.
    #[inline(always)]
    fn check_value(_value: &Self::Value, _payload_words: usize) -> Result<()> {
        Ok(())
    }
    /// Borrows a returned key.
    fn borrow(key: &Self::KeyBuf) -> &Self::Key;
    /// Borrows a returned value.
    fn borrow_value(value: &Self::ValueBuf) -> &Self::Value;
    /// A key's bytes, for a batch's record.
    fn key_bytes(key: &Self::Key) -> impl AsRef<[u8]>;
    /// The key of these bytes; `None` if they are not a key.
    fn key_of(bytes: &[u8]) -> Option<Self::KeyBuf>;
    /// A value's bytes, for a batch's record.
    fn value_bytes(value: &Self::Value) -> impl AsRef<[u8]>;
    /// The value of these bytes; `None` if they are not a value.
    fn value_of(bytes: &[u8]) -> Option<Self::ValueBuf>;
    /// A hash of a key.
    fn hash(key: &Self::Key) -> u64;
    /// Bytes of the records that an entry of this key and value references.
    fn record_bytes(_key: &Self::Key, _value: &Self::Value) -> u64 {
        0
    }
    /// Prepares a key for comparisons.
    fn probe(key: &Self::Key) -> Self::Probe<'_>;
    /// Compares two keys in memory.
    fn order_probe(a: Self::Probe<'_>, b: &Self::Key) -> Ordering;
    /// The key as a word, if [`Schema::PLAIN`]. The key word, if [`Schema::LEADING`].
    fn plain(probe: Self::Probe<'_>) -> u64;
    /// True if key `a` is below key `b`. For a loop: without a call for short keys.
    #[inline(always)]
    fn is_below(a: &Self::KeyBuf, b: &Self::KeyBuf) -> bool {
        a < b
    }
    /// Compares the key of the entry whose key words are at `at` with `probe`.
    fn compare<M: Medium>(medium: &M, at: u64, probe: Self::Probe<'_>) -> Ordering;
    /// Compares the key of these key words with `probe`.
    fn compare_words<M: Medium>(medium: &M, key: [u64; 2], probe: Self::Probe<'_>) -> Ordering;
    /// Compares the keys of two entries.
    fn compare_keys<M: Medium>(medium: &M, a: [u64; 2], b: [u64; 2]) -> Ordering;
    /// Copies the key. False if there is none (a race, or damage).
    fn read_key<M: Medium>(medium: &M, key: [u64; 2], out: &mut Self::KeyBuf) -> bool;
    /// Copies the value. False if there is none (a race, or damage).
    fn read_value<M: Medium>(medium: &M, entry: &Entry<Self::Tail>, out: &mut Self::ValueBuf) -> bool;
    /// Copies key and value. False if one of them is missing (a race, or damage).
    #[inline(always)]
    fn read_pair<M: Medium>(
        medium: &M,
        entry: &Entry<Self::Tail>,
        key: &mut Self::KeyBuf,
        value: &mut Self::ValueBuf,
    ) -> bool {
        Self::read_key(medium, entry.key, key) && Self::read_value(medium, entry, value)
    }
    /// Prefetches the record that an entry references.
    #[inline(always)]
    fn prefetch<M: Medium>(_medium: &M, _entry: &Entry<Self::Tail>) {}
    /// Prefetches the first line of the record of a key. It has the first bytes of the key, except in records of many pieces.
    #[inline(always)]
    fn prefetch_key<M: Medium>(_medium: &M, _key: [u64; 2]) {}
    /// The eight bytes of a key after the first `skipped` ones, as a big-endian word, padded with zeros. With 64-bit keys it is the key.
    /// `None` if there is no key (a race, or damage).
    fn lead<M: Medium>(medium: &M, key: [u64; 2], skipped: usize) -> Option<u64> {
        let mut buffer = Self::KeyBuf::default();
        let is_read = Self::read_key(medium, key, &mut buffer);
        let bytes = Self::key_bytes(Self::borrow(&buffer));
        is_read.then(|| leading(bytes.as_ref().get(skipped..).unwrap_or_default()))
    }
    /// Creates a leaf entry and writes its record.
    ///
    /// # Errors
    /// `NoSpace`, `Full` or `TooLarge`, from the allocator.
    fn make<M: Medium>(
        region: &Region<M>,
        allocator: &mut Allocator,
        log: &mut Log,
        key: &Self::Key,
        value: &Self::Value,
    ) -> Result<Entry<Self::Tail>>;
    /// Creates the key words of a separator between two neighbouring leaf entries: above the left one, at or below the right one.
    ///
    /// # Errors
    /// `NoSpace`, `Full` or `TooLarge`, from the allocator. `Corrupt` if a key cannot be read.
    fn separate<M: Medium>(
        region: &Region<M>,
        allocator: &mut Allocator,
        log: &mut Log,
        left: &Entry<Self::Tail>,
        right: &Entry<Self::Tail>,
    ) -> Result<[u64; 2]>;
    /// Blocks that a leaf entry owns.
    fn blocks_of(entry: &Entry<Self::Tail>) -> impl Iterator<Item = u64>;
    /// The block that a separator owns.
    fn separator_block(key: [u64; 2]) -> Option<u64>;
    /// The words that turn entry `old` into `new`, which has the same key: word number in the entry, new word.
    fn replace(old: &Entry<Self::Tail>, new: &Entry<Self::Tail>) -> impl Iterator<Item = (u64, u64)>;
    /// Copies the key of the record in a block, to find the block's owner. False if the block contains no sound record.
    fn key_of_block<M: Medium>(medium: &M, at: u64, out: &mut Self::KeyBuf) -> bool;
}

/// The common part of the schemas with 64-bit keys. The key is in the entry, and there is no record.
macro_rules! plain_keys {
    () => {
        type Key = u64;
        type KeyBuf = u64;
        type Probe<'a> = u64;
        const KEY_WORDS: usize = 1;
        const PLAIN: bool = true;

        fn borrow(key: &u64) -> &u64 {
            key
        }
        fn key_bytes(key: &u64) -> impl AsRef<[u8]> {
            key.to_le_bytes()
        }
        fn key_of(bytes: &[u8]) -> Option<u64> {
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        }
        fn hash(key: &u64) -> u64 {
            *key
        }
        #[inline(always)]
        fn probe(key: &u64) -> u64 {
            *key
        }
        fn order_probe(a: u64, b: &u64) -> Ordering {
            a.cmp(b)
        }
        #[inline(always)]
        fn plain(probe: u64) -> u64 {
            probe
        }
        #[inline(always)]
        fn compare<M: Medium>(medium: &M, at: u64, probe: u64) -> Ordering {
            medium.word(at).cmp(&probe)
        }
        #[inline(always)]
        fn compare_words<M: Medium>(_medium: &M, key: [u64; 2], probe: u64) -> Ordering {
            key[0].cmp(&probe)
        }
        fn compare_keys<M: Medium>(_medium: &M, a: [u64; 2], b: [u64; 2]) -> Ordering {
            a[0].cmp(&b[0])
        }
        #[inline(always)]
        fn lead<M: Medium>(_medium: &M, key: [u64; 2], _skipped: usize) -> Option<u64> {
            Some(key[0])
        }
        #[inline(always)]
        fn read_key<M: Medium>(_medium: &M, key: [u64; 2], out: &mut u64) -> bool {
            *out = key[0];
            true
        }
        fn separate<M: Medium>(
            _region: &Region<M>,
            _allocator: &mut Allocator,
            _log: &mut Log,
            _left: &Entry<Self::Tail>,
            right: &Entry<Self::Tail>,
        ) -> Result<[u64; 2]> {
            Ok(right.key)
        }
        fn blocks_of(_entry: &Entry<Self::Tail>) -> impl Iterator<Item = u64> {
            std::iter::empty()
        }
        fn separator_block(_key: [u64; 2]) -> Option<u64> {
            None
        }
        fn key_of_block<M: Medium>(_medium: &M, _at: u64, _out: &mut u64) -> bool {
            false
        }
    };
}

/// 64-bit keys to 64-bit values.
#[derive(Debug)]
pub struct Words;

impl Schema for Words {
    plain_keys!();
    type Value = u64;
    type ValueBuf = u64;
    type Tail = [u64; 0];
    const NAME: &'static str = "u64";

    fn borrow_value(value: &u64) -> &u64 {
        value
    }
    fn value_bytes(value: &u64) -> impl AsRef<[u8]> {
        value.to_le_bytes()
    }
    fn value_of(bytes: &[u8]) -> Option<u64> {
        Self::key_of(bytes)
    }
    #[inline(always)]
    fn read_value<M: Medium>(_medium: &M, entry: &Entry, out: &mut u64) -> bool {
        *out = entry.payload;
        true
    }
    #[inline(always)]
    fn make<M: Medium>(
        _region: &Region<M>,
        _allocator: &mut Allocator,
        _log: &mut Log,
        key: &u64,
        value: &u64,
    ) -> Result<Entry> {
        Ok(Entry::new([*key, 0], *value))
    }
    fn replace(_old: &Entry, new: &Entry) -> impl Iterator<Item = (u64, u64)> {
        std::iter::once((1, new.payload))
    }
}

/// 64-bit keys to byte strings of one length, stored in the entry. The length is a multiple of 8 up to 120, so entries have 16 to 128
/// bytes. An update of a value of several words is one commit of the redo log.
#[derive(Debug)]
pub struct Fixed;

impl Fixed {
    /// The parts of the kind's name before and after the number of bytes.
    const KIND: (&'static str, &'static str) = ("u64, ", " bytes");

    /// Words of a payload for values of this length in bytes. `None` if the length is not allowed.
    pub fn words_of(bytes: u64) -> Option<usize> {
        let words = (bytes / WORD) as usize;
        (bytes.is_multiple_of(WORD) && (1..=1 + TAIL_MAX).contains(&words)).then_some(words)
    }

    /// Bytes of a value, from the name of the kind. `None` if the kind is not of this schema.
    pub fn value_bytes(kind: &str) -> Option<u64> {
        Some(<Self as Schema>::payload_words(kind)? as u64 * WORD)
    }
}

impl Schema for Fixed {
    plain_keys!();
    type Value = [u8];
    type ValueBuf = Vec<u8>;
    type Tail = LongTail;
    const NAME: &'static str = "u64, bytes of one length";

    fn kind(payload_words: usize) -> String {
        format!("{}{}{}", Self::KIND.0, payload_words as u64 * WORD, Self::KIND.1)
    }
    fn payload_words(kind: &str) -> Option<usize> {
        let bytes = kind.strip_prefix(Self::KIND.0)?.strip_suffix(Self::KIND.1)?;
        Self::words_of(bytes.parse().ok()?)
    }
    fn check_value(value: &[u8], payload_words: usize) -> Result<()> {
        let takes = payload_words * WORD as usize;
        if value.len() == takes { Ok(()) } else { Err(Error::ValueBytes { given: value.len(), takes }) }
    }
    fn borrow_value(value: &Vec<u8>) -> &[u8] {
        value
    }
    fn value_bytes(value: &[u8]) -> impl AsRef<[u8]> {
        value
    }
    fn value_of(bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.into())
    }
    fn read_value<M: Medium>(_medium: &M, entry: &Entry<LongTail>, out: &mut Vec<u8>) -> bool {
        out.clear();
        out.extend_from_slice(&entry.payload.to_le_bytes());
        entry.tail.words().iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        true
    }
    fn make<M: Medium>(
        _region: &Region<M>,
        _allocator: &mut Allocator,
        _log: &mut Log,
        key: &u64,
        value: &[u8],
    ) -> Result<Entry<LongTail>> {
        let (words, _) = value.as_chunks();
        let mut words = words.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let payload = words.next().unwrap_or(0);
        let mut tail = LongTail::zeros(words.len());
        tail.words_mut().iter_mut().zip(words).for_each(|(to, word)| *to = word);
        Ok(Entry { key: [*key, 0], payload, tail })
    }
    fn replace(_old: &Entry<LongTail>, new: &Entry<LongTail>) -> impl Iterator<Item = (u64, u64)> {
        let new = *new;
        (0..=new.tail.words().len()).map(move |number| (1 + number as u64, new.payload_word(number)))
    }
}

/// The common part of the two byte-string schemas.
mod bytes {
    /// Maximum length of keys that [`is_below`] compares by words.
    const IS_BELOW_BYTES: usize = 64;

    use super::{Allocator, Entry, Kind, Log, Medium, Region, Result, record};

    pub fn read_key<M: Medium>(medium: &M, at: u64, out: &mut Vec<u8>) -> bool {
        out.clear();
        record::read_key(medium, at, out)
    }

    /// Compares eight bytes at a time: a call of the library's function takes longer for keys of a few words.
    #[inline(always)]
    pub fn is_below(a: &[u8], b: &[u8]) -> bool {
        let common = a.len().min(b.len());
        if !(size_of::<u64>()..=IS_BELOW_BYTES).contains(&common) {
            return a < b;
        }
        let word =
            |of: &[u8], at: usize| of[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        // The last word overlaps the one before it, in bytes that are equal.
        let last = common - size_of::<u64>();
        for at in (0..last).step_by(size_of::<u64>()).chain([last]) {
            let (a, b) = (word(a, at), word(b, at));
            if a != b {
                return a < b;
            }
        }
        a.len() < b.len()
    }

    pub fn separate<M: Medium>(
        region: &Region<M>,
        allocator: &mut Allocator,
        log: &mut Log,
        left_at: u64,
        right_at: u64,
    ) -> Result<(u64, Vec<u8>)> {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (at, key) in [(left_at, &mut left), (right_at, &mut right)] {
            if !record::read_key(region.medium(), at, key) {
                return Err(pmem::Error::Corrupt { what: "record", at });
            }
        }
        // One byte more than the common prefix: above the left key, and a prefix of the right one.
        let common = left.iter().zip(&right).take_while(|(a, b)| a == b).count();
        right.truncate(common + 1);
        Ok((record::write(region, allocator, log, Kind::Separator, &right, &[])?, right))
    }

    pub fn blocks(key_pointer: u64, entry: &Entry) -> impl Iterator<Item = u64> + use<> {
        let second = (entry.payload != key_pointer).then_some(entry.payload);
        std::iter::once(key_pointer).chain(second)
    }

    /// The first 8 bytes of a key as a big-endian number, padded with zeros. If two numbers differ, they compare as their keys do.
    pub fn prefix(key: &[u8]) -> u64 {
        let mut first = [0; 8];
        let bytes = key.len().min(8);
        first[..bytes].copy_from_slice(&key[..bytes]);
        u64::from_be_bytes(first)
    }
}

/// Byte strings by key pointer [wB+ §4.6].
#[derive(Debug)]
pub struct Keyed;

/// Byte strings by key pointer, with the key's first 8 bytes in the entry. Most comparisons stay inside the node.
#[derive(Debug)]
pub struct Prefixed;

macro_rules! byte_strings {
    ($schema:ty, $name:literal, words: $words:literal, pointer: $pointer:literal, key: |$key:ident, $at:ident| $make:expr) => {
        fn borrow(key: &Vec<u8>) -> &[u8] {
            key
        }
        fn borrow_value(value: &Vec<u8>) -> &[u8] {
            value
        }
        fn payload_words(kind: &str) -> Option<usize> {
            (kind.strip_suffix(TABLES).unwrap_or(kind) == Self::NAME).then_some(1)
        }
        fn key_bytes(key: &[u8]) -> impl AsRef<[u8]> {
            key
        }
        fn key_of(bytes: &[u8]) -> Option<Vec<u8>> {
            Some(bytes.into())
        }
        fn value_bytes(value: &[u8]) -> impl AsRef<[u8]> {
            value
        }
        fn value_of(bytes: &[u8]) -> Option<Vec<u8>> {
            Some(bytes.into())
        }
        fn hash(key: &[u8]) -> u64 {
            crc32c::crc32c(key).into()
        }
        fn record_bytes(key: &[u8], value: &[u8]) -> u64 {
            (key.len() + value.len()) as u64
        }
        fn read_key<M: Medium>(medium: &M, key: [u64; 2], out: &mut Vec<u8>) -> bool {
            bytes::read_key(medium, key[$pointer], out)
        }
        fn read_value<M: Medium>(medium: &M, entry: &Entry, out: &mut Vec<u8>) -> bool {
            record::read(medium, entry.payload, None, out)
        }
        fn read_pair<M: Medium>(medium: &M, entry: &Entry, key: &mut Vec<u8>, value: &mut Vec<u8>) -> bool {
            if entry.key[$pointer] == entry.payload {
                return record::read(medium, entry.payload, Some(key), value);
            }
            Self::read_key(medium, entry.key, key) && Self::read_value(medium, entry, value)
        }
        #[inline(always)]
        fn is_below(a: &Vec<u8>, b: &Vec<u8>) -> bool {
            bytes::is_below(a, b)
        }
        #[inline]
        fn prefetch<M: Medium>(medium: &M, entry: &Entry) {
            record::prefetch(medium, entry.payload);
        }
        #[inline]
        fn prefetch_key<M: Medium>(medium: &M, key: [u64; 2]) {
            medium.prefetch(key[$pointer], pmem::LINE);
        }
        #[inline]
        fn lead<M: Medium>(medium: &M, key: [u64; 2], skipped: usize) -> Option<u64> {
            record::key_word(medium, key[$pointer], skipped as u64)
        }
        fn plain(_probe: Self::Probe<'_>) -> u64 {
            0
        }
        fn make<M: Medium>(
            region: &Region<M>,
            allocator: &mut Allocator,
            log: &mut Log,
            $key: &[u8],
            value: &[u8],
        ) -> Result<Entry> {
            let $at = record::write(region, allocator, log, Kind::Record, $key, value)?;
            Ok(Entry::new($make, $at))
        }
        fn separate<M: Medium>(
            region: &Region<M>,
            allocator: &mut Allocator,
            log: &mut Log,
            left: &Entry,
            right: &Entry,
        ) -> Result<[u64; 2]> {
            let ($at, $key) =
                bytes::separate(region, allocator, log, left.key[$pointer], right.key[$pointer])?;
            let $key = $key.as_slice();
            let _ = $key;
            Ok($make)
        }
        fn blocks_of(entry: &Entry) -> impl Iterator<Item = u64> {
            bytes::blocks(entry.key[$pointer], entry)
        }
        fn separator_block(key: [u64; 2]) -> Option<u64> {
            Some(key[$pointer])
        }
        fn replace(_old: &Entry, new: &Entry) -> impl Iterator<Item = (u64, u64)> {
            [($words as u64, new.payload), ($pointer as u64, new.key[$pointer])].into_iter()
        }
        fn key_of_block<M: Medium>(medium: &M, at: u64, out: &mut Vec<u8>) -> bool {
            let mut value = Vec::new();
            record::read(medium, at, Some(out), &mut value)
        }
        const NAME: &'static str = $name;
        const KEY_WORDS: usize = $words;
        const PLAIN: bool = false;
        type Key = [u8];
        type KeyBuf = Vec<u8>;
        type Value = [u8];
        type ValueBuf = Vec<u8>;
        type Tail = [u64; 0];
    };
}

impl Schema for Keyed {
    byte_strings!(Keyed, "bytes", words: 1, pointer: 0, key: |key, at| [at, 0]);
    type Probe<'a> = &'a [u8];

    fn probe(key: &[u8]) -> &[u8] {
        key
    }
    fn order_probe(a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
    #[inline(always)]
    fn compare<M: Medium>(medium: &M, at: u64, probe: &[u8]) -> Ordering {
        record::compare_key(medium, medium.word(at), probe)
    }
    #[inline(always)]
    fn compare_words<M: Medium>(medium: &M, key: [u64; 2], probe: &[u8]) -> Ordering {
        record::compare_key(medium, key[0], probe)
    }
    fn compare_keys<M: Medium>(medium: &M, a: [u64; 2], b: [u64; 2]) -> Ordering {
        let mut key = Vec::new();
        bytes::read_key(medium, b[0], &mut key);
        record::compare_key(medium, a[0], &key)
    }
}

impl Schema for Prefixed {
    byte_strings!(Prefixed, "bytes", words: 2, pointer: 1, key: |key, at| [bytes::prefix(key), at]);
    type Probe<'a> = (u64, &'a [u8]);

    fn probe(key: &[u8]) -> (u64, &[u8]) {
        (bytes::prefix(key), key)
    }
    fn order_probe(a: (u64, &[u8]), b: &[u8]) -> Ordering {
        a.1.cmp(b)
    }
    #[inline(always)]
    fn compare<M: Medium>(medium: &M, at: u64, (prefix, probe): (u64, &[u8])) -> Ordering {
        match medium.word(at).cmp(&prefix) {
            Ordering::Equal => record::compare_key(medium, medium.word(at + WORD), probe),
            other => other,
        }
    }
    #[inline(always)]
    fn compare_words<M: Medium>(medium: &M, key: [u64; 2], (prefix, probe): (u64, &[u8])) -> Ordering {
        key[0].cmp(&prefix).then_with(|| record::compare_key(medium, key[1], probe))
    }
    fn compare_keys<M: Medium>(medium: &M, a: [u64; 2], b: [u64; 2]) -> Ordering {
        a[0].cmp(&b[0]).then_with(|| Keyed::compare_keys(medium, [a[1], 0], [b[1], 0]))
    }
}
