//! A leaf: a log of signed entries, the newest last.
//!
//! ```text
//! line 0   word 0 nxt (self-checking)   1 count (self-checking)   2 min   3 seal of min   4..8 signs, a bit per entry: set is negative
//! line 1.. entries, in order of arrival: key words, then payload words
//! ```
//!
//! With keys that are words, a negative entry has the key that it removes, and no value. A newer entry of a key, of either sign, replaces
//! the older ones. With byte strings, a negative entry has the number of the entry that it removes. The record of the removed entry is
//! freed, and its block may be reused. So no search may depend on the record of a removed entry. An update of a byte-string key appends a
//! negative and a positive entry, and one store of the count publishes both.
//!
//! `min` is the lower bound of the keys. It is a key word: for keys that are words the key, for byte strings the address of a separator
//! record that the leaf owns. 0 means no bound; only the first leaf has none. The upper bound is the `min` of the next leaf, so there are
//! no gaps. A leaf's `min` never changes.
//!
//! Invariants:
//! * L1: entries below `count`, with their signs, are durable. Entries and signs at or above it have no meaning.
//! * L2: the header is one line. A sign that is stored before the count is published is durable when the count is.
//! * L3: from the moment that a link references a leaf, every key of it is at or above its `min` and below the next leaf's.

use std::cmp::Ordering;

use index::Schema;
use index::shape::{Node, Shape as Entries};
use index::sorting::sort_unstable_by_first;
use index::{Entry, Tail};
use pmem::region::{checked, unchecked};
use pmem::simd::{EQUAL, pairs};
use pmem::{Error, LINE, Medium, Result, WORD};

/// Offsets of the header words, in bytes.
pub(crate) const NXT: u64 = 0;
const COUNT: u64 = WORD;
pub(crate) const MIN: u64 = 2 * WORD;
const SEAL: u64 = 3 * WORD;
const SIGNS: u64 = 4 * WORD;

/// Number of sign words.
const SIGN_WORDS: usize = 4;
/// Maximum entries of a leaf.
pub const ENTRIES_MAX: usize = 252;
/// Minimum capacity: a leaf that was replaced must have space for an update of a byte string, which has two entries.
const ENTRIES_MIN: usize = 4;

/// One bit per entry.
pub(crate) type Bits = [u64; SIGN_WORDS];

/// The geometry of the leaves of one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Geometry of the entries.
    pub entries: Entries,
}

impl Shape {
    /// The shape of leaves of `lines` lines with payloads of `payload_words` words. `None` if they hold too few entries.
    pub fn new<S: Schema>(lines: u64, payload_words: usize) -> Option<Self> {
        let words = (S::KEY_WORDS + payload_words) as u64;
        let capacity = (lines.checked_sub(1)? * (LINE / WORD) / words).min(ENTRIES_MAX as u64) as usize;
        let entries = Entries {
            lines,
            key_words: S::KEY_WORDS,
            payload_words,
            capacity,
            keys_at: LINE / WORD,
            key_step: words,
            payloads_at: LINE / WORD + S::KEY_WORDS as u64,
            payload_step: words,
        };
        (capacity >= ENTRIES_MIN).then_some(Self { entries })
    }

    /// Bytes of a leaf.
    pub fn bytes(&self) -> u64 {
        self.entries.bytes()
    }

    /// Maximum entries of a leaf, of both signs.
    pub fn capacity(&self) -> usize {
        self.entries.capacity
    }

    /// Bytes of an entry.
    pub fn entry_bytes(&self) -> u64 {
        self.entries.key_step * WORD
    }
}

/// The count and the signs from a leaf's header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    pub count: usize,
    /// Signs of the entries below the count.
    pub signs: Bits,
}

impl Log {
    pub(crate) fn is_negative(&self, slot: usize) -> bool {
        self.signs[slot / 64] >> (slot % 64) & 1 == 1
    }

    /// Number of negative entries.
    pub(crate) fn negatives(&self) -> usize {
        self.signs.iter().map(|word| word.count_ones() as usize).sum()
    }
}

/// A leaf's address: its offset in the region, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leaf(pub u64);

impl Leaf {
    /// The next leaf's address, 0 after the last leaf. `None` if there is no leaf here.
    #[inline(always)]
    pub(crate) fn nxt<M: Medium>(self, medium: &M) -> Option<u64> {
        unchecked(medium.word(self.0 + NXT)).map(|nxt| nxt * WORD)
    }

    /// Number of entries. `None` if there is no leaf here.
    #[inline(always)]
    pub(crate) fn count<M: Medium>(self, medium: &M, shape: &Shape) -> Option<usize> {
        let count = unchecked(medium.word(self.0 + COUNT))?;
        (count <= shape.capacity() as u64).then_some(count as usize)
    }

    /// The count and the signs. `None` if there is no leaf here.
    #[inline(always)]
    pub(crate) fn log<M: Medium>(self, medium: &M, shape: &Shape) -> Option<Log> {
        let count = self.count(medium, shape)?;
        let signs = std::array::from_fn(|i| medium.word(self.signs_at(i)) & below(count, i));
        Some(Log { count, signs })
    }

    fn signs_at(self, i: usize) -> u64 {
        self.0 + SIGNS + i as u64 * WORD
    }

    /// Word of the lower bound.
    #[inline(always)]
    pub(crate) fn min<M: Medium>(self, medium: &M) -> u64 {
        medium.word(self.0 + MIN)
    }

    /// True if the lower bound matches its seal.
    pub(crate) fn is_sealed<M: Medium>(self, medium: &M) -> bool {
        medium.word(self.0 + SEAL) == seal(self.min(medium))
    }

    /// Reads the entry of a slot.
    #[inline(always)]
    pub(crate) fn entry<M: Medium, T: Tail>(self, medium: &M, shape: &Shape, slot: usize) -> Entry<T> {
        shape.entries.entry(medium, Node(self.0), slot)
    }

    /// Offset of a slot's key words.
    #[inline(always)]
    pub(crate) fn slot_at(self, shape: &Shape, slot: usize) -> u64 {
        shape.entries.key_at(Node(self.0), slot)
    }

    /// Writes an entry into a slot at or above the count.
    pub(crate) fn fill<M: Medium, T: Tail>(self, medium: &M, shape: &Shape, slot: usize, entry: &Entry<T>) {
        for (at, word) in shape.entries.entry_words_at(Node(self.0), slot, entry) {
            medium.copy(at, word);
        }
    }

    /// Writes a negative entry into a slot at or above the count. It stores only the word that readers use. Returns the word's offset.
    pub(crate) fn fill_negative<M: Medium, S: Schema>(
        self,
        medium: &M,
        shape: &Shape,
        slot: usize,
        (key, taken): (S::Probe<'_>, usize),
    ) -> u64 {
        let (at, word) = if S::PLAIN {
            (self.slot_at(shape, slot), S::plain(key))
        } else {
            (shape.entries.payload_at(Node(self.0), slot), taken as u64)
        };
        medium.copy(at, word);
        at
    }

    /// Publishes a new count. The first `negatives` of the new entries are negative. Flushes the header (L2).
    pub(crate) fn publish_count<M: Medium>(self, medium: &M, old: &Log, count: usize, negatives: usize) {
        for i in old.count / 64..=(count - 1) / 64 {
            // Signs above the old count may be left from an append that a crash interrupted.
            let fresh = below(old.count + negatives, i) & !below(old.count, i);
            let word = old.signs[i] | fresh;
            if medium.word(self.signs_at(i)) & below(count, i) != word {
                medium.copy(self.signs_at(i), word);
            }
        }
        medium.publish(self.0 + COUNT, checked(count as u64));
        medium.flush(self.0, LINE);
    }

    /// Publishes that an entry is negative and removes only itself. Flushes the header.
    pub(crate) fn publish_sign<M: Medium>(self, medium: &M, log: &Log, slot: usize) {
        medium.publish(self.signs_at(slot / 64), log.signs[slot / 64] | 1 << (slot % 64));
        medium.flush(self.0, LINE);
    }

    /// Writes a whole leaf into unused space and flushes it.
    pub(crate) fn compose<M: Medium, T: Tail>(
        self,
        medium: &M,
        shape: &Shape,
        (nxt, min): (u64, u64),
        entries: impl ExactSizeIterator<Item = Entry<T>>,
    ) {
        let count = entries.len();
        for (slot, entry) in entries.enumerate() {
            self.fill(medium, shape, slot, &entry);
        }
        if count > 0 {
            medium.flush(self.slot_at(shape, 0), count as u64 * shape.entry_bytes());
        }
        medium.copy(self.0 + NXT, checked(nxt / WORD));
        medium.copy(self.0 + COUNT, checked(count as u64));
        medium.copy(self.0 + MIN, min);
        medium.copy(self.0 + SEAL, seal(min));
        (0..SIGN_WORDS).for_each(|i| medium.copy(self.signs_at(i), 0));
        medium.flush(self.0, LINE);
    }

    /// The slot of a key, if it is present. Searches from the newest entry back.
    #[inline]
    pub(crate) fn find<M: Medium, S: Schema>(
        self,
        medium: &M,
        shape: &Shape,
        probe: S::Probe<'_>,
    ) -> Option<usize> {
        let log = self.log(medium, shape)?;
        if !S::PLAIN {
            let live = self.live_bits(medium, shape, &log);
            return slots_down(&live)
                .find(|slot| S::compare(medium, self.slot_at(shape, *slot), probe) == Ordering::Equal);
        }
        for i in (0..log.count.div_ceil(64)).rev() {
            let mut left = self.candidates::<M, S>(medium, shape, (i, log.count), probe);
            while left != 0 {
                let slot = i * 64 + left.ilog2() as usize;
                if medium.word(self.slot_at(shape, slot)) == S::plain(probe) {
                    return (!log.is_negative(slot)).then_some(slot);
                }
                left &= !(1 << (slot % 64));
            }
        }
        None
    }

    /// The entries from number 64 `i` on, up to 64 of them, that may have this key, a bit each. Uses vector instructions if possible.
    #[inline(always)]
    fn candidates<M: Medium, S: Schema>(
        self,
        medium: &M,
        shape: &Shape,
        (i, count): (usize, usize),
        probe: S::Probe<'_>,
    ) -> u64 {
        let all = below(count, i);
        // A line has four entries of two words, and a word of bits covers sixteen lines.
        if M::SHOWS_LINES && shape.entries.key_step == 2 {
            let lines = (count - i * 64).div_ceil(4).min(16);
            let lines = medium.lines(self.0 + (1 + 16 * i as u64) * LINE, lines);
            if let Some(mask) = lines.and_then(|lines| pairs::<EQUAL>(lines, S::plain(probe))) {
                return all & mask;
            }
        }
        all
    }

    /// For byte strings: the entries that no negative entry has removed.
    #[inline]
    fn live_bits<M: Medium>(self, medium: &M, shape: &Shape, log: &Log) -> Bits {
        let mut live: Bits = std::array::from_fn(|i| below(log.count, i) & !log.signs[i]);
        for slot in slots_down(&log.signs) {
            // An entry whose sign was changed in place still references its record. This address is above every entry number.
            let taken = medium.word(shape.entries.payload_at(Node(self.0), slot)) as usize;
            if taken < slot {
                live[taken / 64] &= !(1 << (taken % 64));
            }
        }
        live
    }

    /// True if the leaf has no keys. With keys that are words it searches for the key of each positive entry, the newest first, until one
    /// is present. In a leaf with many keys this ends soon.
    pub(crate) fn is_empty<M: Medium, S: Schema>(self, medium: &M, shape: &Shape, log: &Log) -> bool {
        if !S::PLAIN {
            return self.live_bits(medium, shape, log) == [0; SIGN_WORDS];
        }
        let mut positive = (0..log.count).rev().filter(|slot| !log.is_negative(*slot));
        positive.all(|slot| {
            let (word, mut key) = (medium.word(self.slot_at(shape, slot)), S::KeyBuf::default());
            let is_key = S::read_key(medium, [word, 0], &mut key);
            !is_key || self.find::<M, S>(medium, shape, S::probe(S::borrow(&key))).is_none()
        })
    }

    /// The live entries with their slots. With keys that are words they are in key order. Empty if there is no leaf here.
    pub(crate) fn live<M: Medium, S: Schema>(
        self,
        medium: &M,
        shape: &Shape,
    ) -> Vec<(usize, Entry<S::Tail>)> {
        let Some(log) = self.log(medium, shape) else { return Vec::new() };
        let with_entry = |slot| (slot, self.entry::<M, S::Tail>(medium, shape, slot));
        if !S::PLAIN {
            return slots_down(&self.live_bits(medium, shape, &log)).map(with_entry).collect();
        }
        let mut keys: Vec<(u64, usize)> =
            (0..log.count).map(|slot| (medium.word(self.slot_at(shape, slot)), slot)).collect();
        keys.sort_unstable();
        let newest = |i: &usize| keys.get(i + 1).is_none_or(|next| next.0 != keys[*i].0);
        let slots = (0..keys.len()).filter(newest).map(|i| keys[i].1);
        slots.filter(|slot| !log.is_negative(*slot)).map(with_entry).collect()
    }

    /// The live entries in key order.
    ///
    /// # Errors
    /// `Corrupt` if there is no leaf here, or a key cannot be read.
    pub(crate) fn sorted<M: Medium, S: Schema>(
        self,
        medium: &M,
        shape: &Shape,
    ) -> Result<Vec<Entry<S::Tail>>> {
        if self.count(medium, shape).is_none() {
            return Err(Error::Corrupt { what: "leaf", at: self.0 });
        }
        let live = self.live::<M, S>(medium, shape).into_iter().map(|(_, entry)| entry);
        if S::PLAIN {
            return Ok(live.collect());
        }
        let mut keyed = Vec::new();
        for entry in live {
            let mut key = S::KeyBuf::default();
            if !S::read_key(medium, entry.key, &mut key) {
                return Err(Error::Corrupt { what: "key of record", at: entry.payload });
            }
            keyed.push((key, entry));
        }
        sort_unstable_by_first(&mut keyed);
        Ok(keyed.into_iter().map(|(_, entry)| entry).collect())
    }
}

/// The bits in word `i` of the entries below `count`.
#[inline(always)]
fn below(count: usize, i: usize) -> u64 {
    match count.saturating_sub(i * 64) {
        entries @ 0..64 => (1 << entries) - 1,
        _ => u64::MAX,
    }
}

/// The set bits, descending.
fn slots_down(bits: &Bits) -> impl Iterator<Item = usize> + use<> {
    let mut bits = *bits;
    (0..SIGN_WORDS).rev().flat_map(move |i| {
        let mut word = std::mem::take(&mut bits[i]);
        std::iter::from_fn(move || {
            let bit = word.checked_ilog2()?;
            word &= !(1 << bit);
            Some(i * 64 + bit as usize)
        })
    })
}

/// A check word of `word`. It differs for different words.
fn seal(word: u64) -> u64 {
    (word ^ 0x1C69_B3F7_4AC4_AE35).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
