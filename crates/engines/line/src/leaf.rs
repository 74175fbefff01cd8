//! A leaf: a header of four words, then slots without order.
//!
//! ```text
//! line 0     word 0 link to the next leaf (self-checking)   1 low   2 seal of low   3 unused   4.. slots
//! line 1..   slots
//! ```
//!
//! With 64-bit keys a slot has two words, key and value. A slot never crosses a line. An insert stores the value before the key, so a
//! durable key has a durable value. A slot is free if its key word is the leaf's *empty word*: a key that cannot belong to this leaf.
//!
//! With byte strings a slot is one word: the address of the record in the lower 48 bits, and 16 bits of the key's hash above them. A slot
//! is free if the word is 0, which is the empty word of every such leaf.
//!
//! The hash of a key determines its *preferred line*. An entry goes to a free slot of that line; if there is none, to the next line that
//! has one. So most lookups that find their key read one line. Correctness does not depend on this: a search that does not find the key in
//! the preferred line reads all lines.
//!
//! `low` is the lower bound of the keys, a key word as in [`index::leaf_list::bound`]. 0 means no bound; only the first leaf has none.
//! The seal is a check word of `low`. Both never change while the leaf is in the list. The upper bound is the `low` of the next leaf.
//!
//! Invariants:
//! * L1: on the medium a slot is free or holds a complete entry, because each change of a slot publishes one word. Exception: a merge
//!   copies entries with unordered stores. Until the merge publishes its link, no search looks for the keys of these slots.
//! * L2: between operations every key of a leaf is at or above its `low` and below the `low` of the next leaf. A crash during a split or a
//!   merge can leave keys outside of this range ([`split`](crate::split)).
//! * L3: with 64-bit keys a list of a single leaf holds no entries: every key could belong to that leaf, so no key can serve as its empty
//!   word. The first insert splits the leaf.

use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;

use index::{Entry, Schema};
use pmem::region::{checked, unchecked};
use pmem::simd::{EQUAL, Vectors};
use pmem::{LINE, Line, Medium, WORD};

/// Offsets of the header words, in bytes.
pub(crate) const LINK: u64 = 0;
const LOW: u64 = WORD;
const SEAL: u64 = 2 * WORD;
/// Bytes of the header.
const HEAD: u64 = 4 * WORD;
/// Maximum number of lines of a leaf: a mask of 64 bits has a bit for each of its words.
pub(crate) const LINES_MAX: u64 = 8;
/// With byte strings: the bits of a slot that hold the record's address.
const ADDRESS: u64 = (1 << 48) - 1;

/// The geometry of the leaves of one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Cache lines of a leaf.
    pub lines: u64,
    /// Number of slots.
    pub slots: usize,
}

impl Shape {
    /// The shape of leaves of `lines` lines, 2 to 8. `None` if leaves cannot have this size.
    pub fn new<S: Schema>(lines: u64, payload_words: usize) -> Option<Self> {
        let fits = (2..=LINES_MAX).contains(&lines) && payload_words == 1;
        fits.then(|| Self { lines, slots: ((lines * LINE - HEAD) / slot_bytes::<S>()) as usize })
    }

    /// Bytes of a leaf.
    pub fn bytes(&self) -> u64 {
        self.lines * LINE
    }

    /// A bit for each slot.
    #[inline(always)]
    pub(crate) fn all(&self) -> u64 {
        (1 << self.slots) - 1
    }

    /// Converts a mask with a bit for each slot-sized piece of the leaf, from the start of `line` on, into a mask with a bit for each slot.
    #[inline(always)]
    fn slots_of<S: Schema>(&self, line: u64, mask: u64) -> u64 {
        mask << (line * LINE / slot_bytes::<S>()) >> (HEAD / slot_bytes::<S>()) & self.all()
    }

    /// The line that an entry with this first word prefers. The share of keys that prefer a line is proportional to its slots.
    #[inline(always)]
    fn preferred<S: Schema>(&self, first: u64) -> u64 {
        let hash = if S::PLAIN { first.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48 } else { first >> 48 };
        (HEAD + ((hash * self.slots as u64) >> 16) * slot_bytes::<S>()) / LINE
    }

    /// Chooses a slot for an entry with this first word. `free` has a bit for each free slot. `None` if no slot is free.
    #[inline(always)]
    pub(crate) fn choose<S: Schema>(&self, free: u64, first: u64) -> Option<usize> {
        let preferred = self.preferred::<S>(first);
        let whole = (1 << (LINE / slot_bytes::<S>())) - 1;
        let lines = (preferred..self.lines).chain(0..preferred);
        let near = lines.map(|line| free & self.slots_of::<S>(line, whole)).find(|near| *near != 0)?;
        Some(near.trailing_zeros() as usize)
    }
}

/// Bytes of a slot.
#[inline(always)]
pub(crate) const fn slot_bytes<S: Schema>() -> u64 {
    if S::PLAIN { 2 * WORD } else { WORD }
}

/// The words of a used slot: with 64-bit keys the key and the value, with byte strings the only word and 0.
pub(crate) type Slot = [u64; 2];

/// The word of a slot that references a record.
#[inline(always)]
pub(crate) fn record_word<S: Schema>(key: &S::Key, record: u64) -> u64 {
    u64::from(fingerprint::<S>(key)) << 48 | record
}

/// 16 bits of a key's hash, never 0: a slot without a record has 0.
#[inline(always)]
fn fingerprint<S: Schema>(key: &S::Key) -> u16 {
    let hash = S::hash(key);
    ((hash >> 16 ^ hash) as u16).max(1)
}

/// The entry of a used slot.
#[inline(always)]
pub(crate) fn entry_of<S: Schema>([first, second]: Slot) -> Entry<S::Tail> {
    if S::PLAIN { Entry::new([first, 0], second) } else { Entry::new([first & ADDRESS, 0], first & ADDRESS) }
}

/// The slot of an entry.
#[inline(always)]
pub(crate) fn slot_of<S: Schema>(key: &S::Key, entry: &Entry<S::Tail>) -> Slot {
    if S::PLAIN { [entry.key[0], entry.payload] } else { [record_word::<S>(key, entry.payload), 0] }
}

/// A leaf's address: its offset in the region, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf(pub u64);

impl Leaf {
    /// The next leaf's address, 0 after the last leaf. `None` if there is no leaf here.
    #[inline(always)]
    pub(crate) fn next<M: Medium>(self, medium: &M) -> Option<u64> {
        unchecked(medium.word(self.0 + LINK)).map(|next| next * WORD)
    }

    /// Word of the lower bound.
    #[inline(always)]
    pub(crate) fn low<M: Medium>(self, medium: &M) -> u64 {
        medium.word(self.0 + LOW)
    }

    /// True if the lower bound matches its seal.
    pub(crate) fn is_sealed<M: Medium>(self, medium: &M) -> bool {
        medium.word(self.0 + SEAL) == seal(self.low(medium))
    }

    /// The first word of a free slot.
    #[inline(always)]
    pub(crate) fn empty<M: Medium, S: Schema>(self, medium: &M) -> u64 {
        empty::<S>(self.low(medium))
    }

    /// Offset of a slot.
    #[inline(always)]
    pub(crate) fn slot_at<S: Schema>(self, slot: usize) -> u64 {
        self.0 + HEAD + slot as u64 * slot_bytes::<S>()
    }

    /// Reads a slot.
    #[inline(always)]
    pub(crate) fn slot<M: Medium, S: Schema>(self, medium: &M, slot: usize) -> Slot {
        let at = self.slot_at::<S>(slot);
        [medium.word(at), if S::PLAIN { medium.word(at + WORD) } else { 0 }]
    }

    /// Reads a slot in the lines of a leaf. Zeros, if it is not in them.
    #[inline(always)]
    pub(crate) fn slot_in<S: Schema>(lines: &[Line], slot: usize) -> Slot {
        let first = ((HEAD + slot as u64 * slot_bytes::<S>()) / WORD) as usize;
        let words = LINE as usize / WORD as usize;
        // A slot does not cross lines.
        let Some(line) = lines.get(first / words) else { return [0; 2] };
        let word = |at: usize| line.0[at % words].load(Relaxed);
        [word(first), if S::PLAIN { word(first + 1) } else { 0 }]
    }

    /// The slots whose first word is `word`, a bit each.
    #[inline(always)]
    fn equal<M: Medium, S: Schema>(
        self,
        medium: &M,
        shape: &Shape,
        vectors: Option<Vectors>,
        word: u64,
    ) -> u64 {
        if M::SHOWS_LINES
            && let Some(vectors) = vectors
            && let Some(lines) = medium.lines(self.0, shape.lines as usize)
        {
            let mask = if S::PLAIN {
                vectors.pairs::<EQUAL>(lines, word)
            } else {
                vectors.words::<EQUAL>(lines, word)
            };
            return mask >> (HEAD / slot_bytes::<S>()) & shape.all();
        }
        self.slots_with::<M, S>(medium, shape, |first| first == word)
    }

    /// The slots whose first word satisfies `is`, a bit each. Reads word by word.
    fn slots_with<M: Medium, S: Schema>(self, medium: &M, shape: &Shape, is: impl Fn(u64) -> bool) -> u64 {
        let matches = |slot: &usize| is(medium.word(self.slot_at::<S>(*slot)));
        (0..shape.slots).filter(matches).fold(0, |mask, slot| mask | 1 << slot)
    }

    /// The free slots, a bit each.
    #[inline(always)]
    pub(crate) fn free<M: Medium, S: Schema>(
        self,
        medium: &M,
        shape: &Shape,
        vectors: Option<Vectors>,
    ) -> u64 {
        self.equal::<M, S>(medium, shape, vectors, self.empty::<M, S>(medium))
    }

    /// True if at most a quarter of the slots of a whole line are used in the line of this offset. `empty` is the leaf's empty word.
    #[inline(always)]
    pub(crate) fn is_line_sparse<M: Medium, S: Schema>(self, medium: &M, at: u64, empty: u64) -> bool {
        let line = at / LINE * LINE;
        let slots = (line.max(self.0 + HEAD)..line + LINE).step_by(slot_bytes::<S>() as usize);
        let used = slots.map(|slot| u64::from(medium.word(slot) != empty)).sum::<u64>();
        used * 4 <= LINE / slot_bytes::<S>()
    }

    /// The first word of a used slot of this key; with byte strings, only the fingerprint in it.
    #[inline(always)]
    pub(crate) fn first_word<S: Schema>(key: &S::Key) -> u64 {
        if S::PLAIN { S::plain(S::probe(key)) } else { record_word::<S>(key, 0) }
    }

    /// Begins to load the line that a key prefers.
    #[inline(always)]
    pub(crate) fn prefetch_preferred<M: Medium, S: Schema>(self, medium: &M, shape: &Shape, key: &S::Key) {
        medium.prefetch(self.0 + shape.preferred::<S>(Self::first_word::<S>(key)) * LINE, LINE);
    }

    /// The slots that may have a key, in all lines or only in the preferred one: with 64-bit keys those with the key, with byte strings
    /// those with its fingerprint. A bit each. `None` without vector instructions, or if the medium shows no lines.
    #[inline(always)]
    fn candidates<M: Medium, S: Schema>(
        self,
        medium: &M,
        shape: &Shape,
        vectors: Option<Vectors>,
        (key, only_preferred): (&S::Key, bool),
    ) -> Option<u64> {
        let vectors = vectors.filter(|_| M::SHOWS_LINES)?;
        let first = Self::first_word::<S>(key);
        let (from, count) = if only_preferred { (shape.preferred::<S>(first), 1) } else { (0, shape.lines) };
        let lines = medium.lines(self.0 + from * LINE, count as usize)?;
        let mask = if S::PLAIN {
            vectors.pairs::<EQUAL>(lines, first)
        } else {
            vectors.tops(lines, (first >> 48) as u16)
        };
        Some(shape.slots_of::<S>(from, mask))
    }

    /// Looks at the line that a key prefers, and begins to load what the search reads next: with byte strings the records in this line that
    /// may have the key; with 64-bit keys the other lines, if the key is not in this one.
    #[inline(always)]
    pub(crate) fn prefetch_candidates<M: Medium, S: Schema>(
        self,
        medium: &M,
        shape: &Shape,
        vectors: Option<Vectors>,
        key: &S::Key,
    ) {
        let Some(mut candidates) = self.candidates::<M, S>(medium, shape, vectors, (key, true)) else {
            return;
        };
        if S::PLAIN {
            if candidates == 0 {
                medium.prefetch(self.0, shape.bytes());
            }
            return;
        }
        while candidates != 0 {
            let slot = self.slot::<M, S>(medium, candidates.trailing_zeros() as usize);
            S::prefetch(medium, &entry_of::<S>(slot));
            candidates &= candidates - 1;
        }
    }

    /// The slot of a key, if the key is present.
    #[inline(always)]
    pub(crate) fn find<M: Medium, S: Schema>(
        self,
        medium: &M,
        shape: &Shape,
        vectors: Option<Vectors>,
        key: &S::Key,
    ) -> Option<usize> {
        if let Some(candidates) = self.candidates::<M, S>(medium, shape, vectors, (key, true)) {
            let found = self.confirm::<M, S>(medium, candidates, key);
            if found.is_some() {
                return found;
            }
        }
        let candidates = self.candidates::<M, S>(medium, shape, vectors, (key, false));
        let first = Self::first_word::<S>(key);
        let is_candidate = |word| if S::PLAIN { word == first } else { word >> 48 == first >> 48 };
        let candidates = candidates.unwrap_or_else(|| self.slots_with::<M, S>(medium, shape, is_candidate));
        self.confirm::<M, S>(medium, candidates, key)
    }

    /// The slot of a key. `candidates` has a bit for each slot that may hold the key.
    #[inline(always)]
    fn confirm<M: Medium, S: Schema>(self, medium: &M, mut candidates: u64, key: &S::Key) -> Option<usize> {
        if S::PLAIN {
            let word = Self::first_word::<S>(key);
            // These two keys are also the empty words of leaves. If the key belongs to this leaf, the other one is the leaf's empty word.
            let is_free = (word == 0 || word == u64::MAX) && word == self.empty::<M, S>(medium);
            return (candidates != 0 && !is_free).then(|| candidates.trailing_zeros() as usize);
        }
        while candidates != 0 {
            let slot = candidates.trailing_zeros() as usize;
            let record = medium.word(self.slot_at::<S>(slot)) & ADDRESS;
            if S::compare_words(medium, [record, 0], S::probe(key)) == Ordering::Equal {
                return Some(slot);
            }
            candidates &= candidates - 1;
        }
        None
    }

    /// The used slots, a bit each. None if there is no leaf here.
    #[inline(always)]
    pub(crate) fn used<M: Medium, S: Schema>(
        self,
        medium: &M,
        shape: &Shape,
        vectors: Option<Vectors>,
    ) -> u64 {
        let is_leaf = self.next(medium).is_some();
        if is_leaf { !self.free::<M, S>(medium, shape, vectors) & shape.all() } else { 0 }
    }

    /// The used slots with their numbers, in no order. Empty if there is no leaf here.
    pub(crate) fn used_slots<M: Medium, S: Schema>(
        self,
        medium: &M,
        shape: &Shape,
    ) -> impl Iterator<Item = (usize, Slot)> {
        slots_of(self.used::<M, S>(medium, shape, None))
            .map(move |slot| (slot, self.slot::<M, S>(medium, slot)))
    }

    /// Stores the words of a slot that no search reads yet: the slot is in unused space, or the key belongs to another leaf.
    pub(crate) fn fill<M: Medium, S: Schema>(self, medium: &M, slot: usize, words: Slot) {
        let at = self.slot_at::<S>(slot);
        medium.copy(at, words[0]);
        if S::PLAIN {
            medium.copy(at + WORD, words[1]);
        }
    }

    /// A bit for the line of a slot.
    pub(crate) fn line_of<S: Schema>(self, slot: usize) -> u64 {
        1 << ((self.slot_at::<S>(slot) - self.0) / LINE)
    }

    /// Flushes lines of the leaf. `lines` has a bit for each of them.
    pub(crate) fn flush_lines<M: Medium>(self, medium: &M, lines: u64) {
        for line in (0..LINES_MAX).filter(|line| lines >> line & 1 == 1) {
            medium.flush(self.0 + line * LINE, LINE);
        }
    }

    /// Frees slots whose keys belong to another leaf, and flushes their lines.
    pub(crate) fn free_slots<M: Medium, S: Schema>(self, medium: &M, slots: impl Iterator<Item = usize>) {
        let empty = self.empty::<M, S>(medium);
        let mut lines = 0_u64;
        for slot in slots {
            medium.publish(self.slot_at::<S>(slot), empty);
            lines |= self.line_of::<S>(slot);
        }
        self.flush_lines(medium, lines);
    }

    /// Writes a whole leaf into unused space and flushes it. Returns the slot of the last entry.
    pub(crate) fn compose<M: Medium, S: Schema>(
        self,
        medium: &M,
        shape: &Shape,
        (next, low): (u64, u64),
        entries: &[Slot],
    ) -> usize {
        medium.copy(self.0 + LINK, checked(next / WORD));
        medium.copy(self.0 + LOW, low);
        medium.copy(self.0 + SEAL, seal(low));
        let (mut free, mut last) = (shape.all(), 0);
        for words in entries {
            let Some(slot) = shape.choose::<S>(free, words[0]) else { break };
            self.fill::<M, S>(medium, slot, *words);
            (free, last) = (free & !(1 << slot), slot);
        }
        for slot in (0..shape.slots).filter(|slot| free >> slot & 1 == 1) {
            medium.copy(self.slot_at::<S>(slot), empty::<S>(low));
        }
        medium.flush(self.0, shape.bytes());
        last
    }
}

/// The numbers of the slots whose bits are set.
#[inline(always)]
pub(crate) fn slots_of(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(slot)
    })
}

/// Slots with 64-bit keys as pairs of words from the beginning of the leaf on, a bit each: a slot is a pair.
#[inline(always)]
pub(crate) fn pairs_of(slots: u64) -> u64 {
    slots << (HEAD / (2 * WORD))
}

/// The first word of a free slot in a leaf with this lower bound. With 64-bit keys it is a key outside of the leaf's bounds (L3).
#[inline(always)]
fn empty<S: Schema>(low: u64) -> u64 {
    if S::PLAIN && low == 0 { u64::MAX } else { 0 }
}

/// A check word of `word`. It differs for different words.
fn seal(word: u64) -> u64 {
    (word ^ 0x6C69_6E65_2D31_7A5B).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The entries of a leaf's used slots, for salvage: no index is open. Empty if the lower bound does not match its seal.
pub(crate) fn entries<M: Medium, S: Schema>(medium: &M, leaf: u64, shape: &Shape) -> Vec<Entry<S::Tail>> {
    let leaf = Leaf(leaf);
    if !leaf.is_sealed(medium) {
        return Vec::new();
    }
    leaf.used_slots::<M, S>(medium, shape).map(|(_, slot)| entry_of::<S>(slot)).collect()
}

const _: () = assert!(HEAD.is_multiple_of(2 * WORD), "a slot of two words never crosses a line");

#[cfg(test)]
mod tests {
    use index::{Keyed, Words};

    use super::*;
    use crate::format_page::assert_row;

    fn every_slot_is_in_one_line_and_every_line_is_preferred<S: Schema>() {
        for lines in 2..=LINES_MAX {
            let shape = Shape::new::<S>(lines, 1).unwrap();
            let whole = (1 << (LINE / slot_bytes::<S>())) - 1;
            let of_lines: Vec<u64> = (0..lines).map(|line| shape.slots_of::<S>(line, whole)).collect();
            for slot in 0..shape.slots {
                let line = Leaf(0).slot_at::<S>(slot) / LINE;
                let holds = |i: &usize| of_lines[*i] >> slot & 1 == 1;
                assert_eq!((0..lines as usize).filter(holds).collect::<Vec<_>>(), [line as usize]);
            }
            let mut preferred = vec![0; lines as usize];
            for i in 0..4096_u64 {
                let first = i.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17);
                let line = shape.preferred::<S>(first);
                preferred[line as usize] += 1;
                // A full line is passed over, and a full leaf has no slot.
                let slot = shape.choose::<S>(shape.all(), first).unwrap();
                assert!(of_lines[line as usize] >> slot & 1 == 1);
                let elsewhere = shape.choose::<S>(shape.all() & !of_lines[line as usize], first).unwrap();
                assert!(of_lines[line as usize] >> elsewhere & 1 == 0);
                assert_eq!(shape.choose::<S>(0, first), None);
            }
            let share = 4096 / shape.slots as u32;
            let fair = |(line, count): (usize, &u32)| *count > share * of_lines[line].count_ones() / 2;
            assert!(preferred.iter().enumerate().all(fair), "{preferred:?}");
        }
    }

    #[test]
    fn the_format_page_has_the_layout_of_leaves() {
        for (name, at) in [("LINK", LINK), ("LOW", LOW), ("SEAL", SEAL), ("HEAD", HEAD)] {
            assert_row(&format!("{at} | … | `{name}`"));
        }
        let bytes = Shape::new::<Keyed>(8, 1).unwrap();
        assert_row(&format!("`bytes` | {} of {} bytes | …", bytes.slots, slot_bytes::<Keyed>()));
        let words = Shape::new::<Words>(8, 1).unwrap();
        assert_row(&format!("`u64` | {} of {} bytes | …", words.slots, slot_bytes::<Words>()));
    }

    #[test]
    fn every_slot_is_in_one_line_and_every_line_is_preferred_by_its_share_of_the_keys() {
        every_slot_is_in_one_line_and_every_line_is_preferred::<Words>();
        every_slot_is_in_one_line_and_every_line_is_preferred::<Keyed>();
    }
}
