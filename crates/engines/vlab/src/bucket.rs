//! A bucket: a node of the list, with unordered entries under a bitmap [VLAB §4.1.2, figure 8].
//!
//! ```text
//! line 0   word 0 nxt (self-checking)   1 vnxt (self-checking; 0: null)   2 min   3 max   4..8 bitmap; its last bit is a flag
//! line 1.. entries: key words, then payload words
//! ```
//!
//! All keys are at or above `min` and below `max`. Both are key words. For keys that are words the key word is the key. For byte strings it
//! is the address of a separator record. The bucket whose `min` is this address owns the record. 0 means no bound: the first bucket has no
//! `min`, the last bucket no `max`. There are no gaps: `max` is the `min` of the next bucket. `nxt` links the next bucket of the list. Only
//! a combine with the option `faithful` uses the second link, `vnxt` ([`crate::combine`]).
//!
//! Invariants:
//! * K1: an entry is in use if and only if its bit is set. A bit is set after its entry is durable.
//! * K2: the flag is set while a change of more than the header is running. While it is clear, every entry lies between `min` and `max`,
//!   and `max` is the next bucket's `min`.
//! * K3: the header is one line. Its stores become durable in their order.

use std::cmp::Ordering;

use index::Schema;
use index::shape::{Node, Shape as Entries};
use index::{Entry, Tail};
use pmem::region::{checked, unchecked};
use pmem::simd::{EQUAL, pairs};
use pmem::{LINE, Medium, WORD};

/// Offsets of the header words, in bytes.
pub(crate) const NXT: u64 = 0;
pub(crate) const VNXT: u64 = WORD;
pub(crate) const MIN: u64 = 2 * WORD;
pub(crate) const MAX: u64 = 3 * WORD;
const BITS: u64 = 4 * WORD;

/// Words of a bitmap.
pub(crate) const BIT_WORDS: usize = 4;
/// Maximum entries of a bucket.
pub const ENTRIES_MAX: usize = 252;
/// Minimum entries that a bucket must be able to hold.
const ENTRIES_MIN: usize = 4;
/// Set while a change that affects more than the header is running (K2).
const FLAG: u64 = 1 << 63;

/// A bitmap without the flag.
pub(crate) type Bits = [u64; BIT_WORDS];

/// The geometry of the buckets of one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Geometry of the entries.
    pub entries: Entries,
}

impl Shape {
    /// The shape of buckets of `lines` lines with payloads of `payload_words` words. `None` if they hold too few entries.
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

    /// Bytes of a bucket.
    pub fn bytes(&self) -> u64 {
        self.entries.bytes()
    }

    /// Maximum entries of a bucket.
    pub fn capacity(&self) -> usize {
        self.entries.capacity
    }

    /// Bytes of an entry.
    pub fn entry_bytes(&self) -> u64 {
        self.entries.key_step * WORD
    }

    /// Number of bitmap words that have slots.
    pub(crate) fn bit_words(&self) -> usize {
        self.capacity().div_ceil(64)
    }

    /// Mask of the bits of word `i` that are slots.
    #[inline(always)]
    pub(crate) fn slots_of(&self, i: usize) -> u64 {
        match self.capacity().saturating_sub(i * 64) {
            slots @ 0..64 => (1 << slots) - 1,
            _ => u64::MAX,
        }
    }

    /// A free slot. It is in the bitmap word with the most free slots, so that an update finds another free slot under the same word.
    pub(crate) fn free_slot(&self, bits: &Bits) -> Option<usize> {
        let free = |i: &usize| (!bits[*i] & self.slots_of(*i)).count_ones();
        let word = (0..self.bit_words()).max_by_key(|i| (free(i), BIT_WORDS - i))?;
        (free(&word) > 0).then(|| word * 64 + (!bits[word]).trailing_zeros() as usize)
    }

    /// The slots of `count` entries in a new bucket. They are spread evenly over the words.
    pub(crate) fn spread(&self, count: usize) -> impl Iterator<Item = usize> {
        let words = self.bit_words();
        let capacity = self.capacity();
        let slots = (0..64 * words).map(move |i| i % words * 64 + i / words);
        slots.filter(move |slot| *slot < capacity).take(count)
    }
}

/// A bucket's address: its offset in the region, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bucket(pub u64);

impl Bucket {
    /// The next bucket's address, 0 after the last bucket. `None` if there is no bucket here.
    #[inline(always)]
    pub(crate) fn nxt<M: Medium>(self, medium: &M) -> Option<u64> {
        unchecked(medium.word(self.0 + NXT)).map(|nxt| nxt * WORD)
    }

    /// Offset of bitmap word `i`.
    #[inline(always)]
    pub(crate) fn bits_at(self, i: usize) -> u64 {
        self.0 + BITS + i as u64 * WORD
    }

    /// Bits of the entries in use.
    #[inline(always)]
    pub(crate) fn bits<M: Medium>(self, medium: &M, shape: &Shape) -> Bits {
        std::array::from_fn(|i| medium.word(self.bits_at(i)) & shape.slots_of(i))
    }

    /// Number of entries.
    pub(crate) fn count<M: Medium>(self, medium: &M, shape: &Shape) -> usize {
        count(&self.bits(medium, shape))
    }

    /// True while a change that affects more than the header is running.
    pub(crate) fn is_flagged<M: Medium>(self, medium: &M) -> bool {
        medium.word(self.bits_at(BIT_WORDS - 1)) & FLAG != 0
    }

    /// Publishes a bitmap word, with the given flag.
    pub(crate) fn publish_bits<M: Medium>(self, medium: &M, i: usize, bits: u64, flagged: bool) {
        let flag = if flagged && i == BIT_WORDS - 1 { FLAG } else { 0 };
        medium.publish(self.bits_at(i), bits | flag);
    }

    /// Publishes the bitmap words that change, with the flag set.
    pub(crate) fn publish_changed<M: Medium>(self, medium: &M, old: &Bits, new: &Bits) {
        for i in (0..BIT_WORDS).filter(|i| old[*i] != new[*i]) {
            self.publish_bits(medium, i, new[i], true);
        }
    }

    /// Flushes the header.
    pub(crate) fn flush_header<M: Medium>(self, medium: &M) {
        medium.flush(self.0, LINE);
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

    /// Writes an entry into a free slot.
    pub(crate) fn fill<M: Medium, T: Tail>(self, medium: &M, shape: &Shape, slot: usize, entry: &Entry<T>) {
        for (at, word) in shape.entries.entry_words_at(Node(self.0), slot, entry) {
            medium.copy(at, word);
        }
    }

    /// Flushes a slot.
    pub(crate) fn flush_slot<M: Medium>(self, medium: &M, shape: &Shape, slot: usize) {
        medium.flush(self.slot_at(shape, slot), shape.entry_bytes());
    }

    /// Writes a whole bucket into unused space and flushes it.
    pub(crate) fn compose<M: Medium, T: Tail>(
        self,
        medium: &M,
        shape: &Shape,
        links: Links,
        entries: impl ExactSizeIterator<Item = Entry<T>>,
    ) {
        let mut bits = [0; BIT_WORDS];
        let mut lines = 0_u64;
        for (slot, entry) in shape.spread(entries.len()).zip(entries) {
            self.fill(medium, shape, slot, &entry);
            bits[slot / 64] |= 1 << (slot % 64);
            let from = self.slot_at(shape, slot) - self.0;
            for line in from / LINE..=(from + shape.entry_bytes() - 1) / LINE {
                lines |= 1 << line;
            }
        }
        for line in (0..64).filter(|line| lines >> line & 1 == 1) {
            medium.flush(self.0 + line * LINE, LINE);
        }
        medium.copy(self.0 + NXT, checked(links.nxt / WORD));
        medium.copy(self.0 + VNXT, 0);
        medium.copy(self.0 + MIN, links.min);
        medium.copy(self.0 + MAX, links.max);
        for (i, word) in bits.into_iter().enumerate() {
            medium.copy(self.bits_at(i), word);
        }
        self.flush_header(medium);
    }

    /// The slot of a key, if it is present. Within a bitmap word the lowest free slot is filled first, so the highest slots tend to hold
    /// the newest entries. They are compared first, because recent keys are often read most.
    #[inline]
    pub(crate) fn find<M: Medium, S: Schema>(
        self,
        medium: &M,
        shape: &Shape,
        probe: S::Probe<'_>,
    ) -> Option<usize> {
        let bits = self.bits(medium, shape);
        for (i, word) in bits.into_iter().enumerate() {
            let mut left = self.candidates::<M, S>(medium, shape, i, word, probe);
            while left != 0 {
                let highest = left.ilog2();
                let slot = i * 64 + highest as usize;
                if S::compare(medium, self.slot_at(shape, slot), probe) == Ordering::Equal {
                    return Some(slot);
                }
                left ^= 1 << highest;
            }
        }
        None
    }

    /// The entries of a bitmap word that may have this key. Uses vector instructions if possible.
    #[inline(always)]
    fn candidates<M: Medium, S: Schema>(
        self,
        medium: &M,
        shape: &Shape,
        i: usize,
        word: u64,
        probe: S::Probe<'_>,
    ) -> u64 {
        // A line has four entries of two words, and a bitmap word covers sixteen lines.
        if M::SHOWS_LINES && S::PLAIN && shape.entries.key_step == 2 && word != 0 {
            let first = 16 * i as u64;
            let count = (shape.entries.lines - 1).saturating_sub(first).min(16) as usize;
            let lines = medium.lines(self.0 + (1 + first) * LINE, count);
            if let Some(mask) = lines.and_then(|lines| pairs::<EQUAL>(lines, S::plain(probe))) {
                return word & mask;
            }
        }
        word
    }
}

/// The header words that reference other blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    /// The next bucket.
    pub nxt: u64,
    /// Key word of the lower bound.
    pub min: u64,
    /// Key word of the upper bound.
    pub max: u64,
}

/// Number of set bits.
pub(crate) fn count(bits: &Bits) -> usize {
    bits.iter().map(|word| word.count_ones() as usize).sum()
}

/// The set bits, ascending.
pub(crate) fn slots(bits: &Bits) -> impl Iterator<Item = usize> + use<> {
    let bits = *bits;
    (0..BIT_WORDS * 64).filter(move |slot| bits[slot / 64] >> (slot % 64) & 1 == 1)
}
