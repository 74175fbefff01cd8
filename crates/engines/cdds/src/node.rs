//! Nodes: entries with two versions each, sorted by key and start or as they came ([`crate::entry_order`]) [thesis §4.4, figure 4.1].
//!
//! ```text
//! line 0   word 0 tag and level   word 1 version of birth   word 2 lowest key   word 3 unused   words 4..8 slot 0
//! line n   slots 2n - 1 and 2n
//! slot     key, payload (of inner nodes: child), start, end; start 0: not in use
//! ```
//!
//! Slots not in use may stand between others. An inner entry's key is the lower bound of its child; the first child's is the
//! node's own lowest key, which of the tree's left edge is 0: the least 64-bit key, and by agreement the least byte string. So no
//! key is reserved. (The thesis has upper bounds, and a greatest key that must be inserted first.)
//!
//! Invariants:
//! * N1: a slot's start is 0, durably or in the order of its line, while its other words change. So a slot is whole or free.
//! * N2: no slot straddles a line.
//! * N3: a slot is overwritten only when another one holds the entry durably, or earlier in the order of the same line, or when
//!   nobody may see it; and entries move from line to line only where all earlier moves in the node are durable. So after a
//!   crash an entry may stand twice, side by side (only where it moved: where entries are sorted), and never nowhere.
//! * N4: where entries are sorted, of the slots that are not void keys ascend, and of equal keys the starts.

use std::cmp::Ordering;

use index::Schema;
use pmem::simd::Vectors;
use pmem::{Error, Fence, LINE, Medium, Result, WORD};

use crate::mask::Mask;
use crate::persist::Persist;
use crate::version::View;

/// Most levels of a tree.
pub const LEVELS_MAX: usize = 40;
const TAG: u64 = 0xCD;
const SLOT_BYTES: u64 = 4 * WORD;

const _: () = assert!(LINE.is_multiple_of(SLOT_BYTES));

/// An entry as its slot holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Key word.
    pub key: u64,
    /// Payload of a leaf entry; child of an inner one.
    pub payload: u64,
    /// First version that has it.
    pub start: u64,
    /// First version that has it no more; 0 while it lives.
    pub end: u64,
}

impl Entry {
    /// As the schemas have it.
    pub fn of_tree(&self) -> index::Entry {
        index::Entry::new(self.words(), self.payload)
    }

    /// Key word and payload, of which keys are read.
    pub fn words(&self) -> [u64; 2] {
        [self.key, self.payload]
    }
}

/// Sizes of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a node.
    pub bytes: u64,
    /// Slots of a node: the thesis's k.
    pub slots: usize,
    /// Live entries at which a node is too empty: the thesis's m_l, k / 5.
    pub least: usize,
    /// Live entries that still go into one new node: 4 m_l, and fewer than would leave it no space.
    pub most_in_one: usize,
    /// What slots are looked at all at once with, where the processor can ([`crate::simd_scan`]).
    pub vectors: Option<Vectors>,
}

impl Shape {
    /// Lines of a node.
    pub fn lines(&self) -> usize {
        (self.bytes / LINE) as usize
    }

    /// Nodes of so many lines.
    pub fn new(lines: u64) -> Self {
        let slots = (lines * 2 - 1) as usize;
        let least = (slots / 5).max(1);
        let most_in_one = (4 * least).min(slots - 2);
        Self { bytes: lines * LINE, slots, least, most_in_one, vectors: Vectors::of_processor() }
    }
}

/// A node's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node(pub u64);

/// A node's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Levels below it.
    pub level: usize,
    /// No entry began before.
    pub birth: u64,
    /// Key word of its lower bound.
    pub low: u64,
}

impl Header {
    /// Reads a node's header; `None` if there is no node.
    #[inline]
    pub fn read<M: Medium>(medium: &M, node: Node) -> Option<Self> {
        if !node.0.is_multiple_of(LINE) || node.0 == 0 {
            return None;
        }
        let word = medium.word(node.0);
        let level = (word & 0xFF) as usize;
        let of_node = word >> 56 == TAG && word << 8 >> 16 == 0 && level < LEVELS_MAX;
        of_node.then(|| Self {
            level,
            birth: medium.word(node.0 + WORD),
            low: medium.word(node.0 + 2 * WORD),
        })
    }

    /// As [`Header::read`] of a node at a known level.
    ///
    /// # Errors
    /// `Corrupt` if there is no such node.
    pub fn at_level<M: Medium>(medium: &M, node: Node, level: usize) -> Result<Self> {
        let header = Self::read(medium, node).filter(|header| header.level == level);
        header.ok_or(Error::Corrupt { what: "node", at: node.0 })
    }
}

impl Node {
    /// Offset of slot `slot`.
    #[inline(always)]
    pub fn slot_at(self, slot: usize) -> u64 {
        self.0 + SLOT_BYTES * (slot as u64 + 1)
    }

    fn line_of(self, slot: usize) -> u64 {
        self.slot_at(slot) / LINE
    }

    /// A slot's start version.
    #[inline(always)]
    pub fn start<M: Medium>(self, medium: &M, slot: usize) -> u64 {
        medium.word(self.slot_at(slot) + 2 * WORD)
    }

    /// A slot's key word and payload.
    #[inline(always)]
    pub fn words<M: Medium>(self, medium: &M, slot: usize) -> [u64; 2] {
        let at = self.slot_at(slot);
        [medium.word(at), medium.word(at + WORD)]
    }

    /// A slot's content.
    #[inline]
    pub fn entry<M: Medium>(self, medium: &M, slot: usize) -> Entry {
        let at = self.slot_at(slot);
        let [key, payload, start, end] = [0, 1, 2, 3].map(|word| medium.word(at + word * WORD));
        Entry { key, payload, start, end }
    }

    /// Slots that are not void, with their entries.
    pub fn used<M: Medium>(
        self,
        medium: &M,
        shape: &Shape,
        view: &View,
    ) -> impl DoubleEndedIterator<Item = (usize, Entry)> {
        let entries = (0..shape.slots).map(move |slot| (slot, self.entry(medium, slot)));
        entries.filter(|(_, entry)| !view.is_void(entry.start))
    }

    /// Slots and entries that the view sees, each entry once.
    pub fn seen<M: Medium>(self, medium: &M, shape: &Shape, view: &View) -> Vec<(usize, Entry)> {
        let mut seen: Vec<(usize, Entry)> =
            self.used(medium, shape, view).filter(|(_, entry)| view.sees(entry.start, entry.end)).collect();
        seen.dedup_by(|a, b| (a.1.key, a.1.payload, a.1.start) == (b.1.key, b.1.payload, b.1.start));
        seen
    }

    /// Takes a slot out of use. Not flushed.
    pub fn clear<M: Medium>(self, medium: &M, slot: usize) {
        if self.start(medium, slot) != 0 {
            medium.publish(self.slot_at(slot) + 2 * WORD, 0);
        }
    }

    /// Ends an entry, or (with 0) lets it live again, and starts the write-back.
    pub fn set_end<M: Medium>(self, medium: &M, persist: Persist, slot: usize, end: u64) {
        self.put_end(medium, slot, end);
        self.flush_slot(medium, persist, slot);
    }

    /// As [`Node::set_end`]. Not flushed.
    pub fn put_end<M: Medium>(self, medium: &M, slot: usize, end: u64) {
        medium.publish(self.slot_at(slot) + 3 * WORD, end);
    }

    /// Fills a slot in one go (N1). Not flushed.
    pub fn fill<M: Medium>(self, medium: &M, slot: usize, entry: &Entry) {
        self.clear(medium, slot);
        let at = self.slot_at(slot);
        medium.copy(at, entry.key);
        medium.copy(at + WORD, entry.payload);
        medium.copy(at + 3 * WORD, entry.end);
        medium.publish(at + 2 * WORD, entry.start);
    }

    /// Writes a node that nobody can reach yet, and starts its write-back. Its free slots are behind the entries, or stand between
    /// them (`spread`): then the next entries find one in the line that they belong to.
    pub fn compose<M: Medium>(
        self,
        medium: &M,
        persist: Persist,
        shape: &Shape,
        header: Header,
        entries: &[Entry],
        spread: bool,
    ) {
        assert!(entries.len() <= shape.slots && header.level < LEVELS_MAX);
        medium.copy(self.0, TAG << 56 | header.level as u64);
        medium.copy(self.0 + WORD, header.birth);
        medium.copy(self.0 + 2 * WORD, header.low);
        let place = |index: usize| if spread { index * shape.slots / entries.len() } else { index };
        let mut next = 0;
        for slot in 0..shape.slots {
            let at = self.slot_at(slot);
            match entries.get(next).filter(|_| place(next) == slot) {
                None => medium.copy(at + 2 * WORD, 0),
                Some(entry) => {
                    let words = [entry.key, entry.payload, entry.start, entry.end];
                    words.into_iter().zip(0..).for_each(|(value, word)| medium.copy(at + word * WORD, value));
                    next += 1;
                }
            }
        }
        persist.flush(medium, self.0, shape.bytes);
    }

    /// First slot of which the key, and all behind it, are not below `probe` (`above`: are above it).
    #[inline]
    pub fn bound<M: Medium, S: Schema>(
        self,
        medium: &M,
        shape: &Shape,
        view: &View,
        probe: S::Probe<'_>,
        above: bool,
    ) -> usize {
        let (mut low, mut high) = (0, shape.slots);
        while low < high {
            let middle = low.midpoint(high);
            let used = (middle..high).find(|slot| !view.is_void(self.start(medium, *slot)));
            let Some(slot) = used else {
                high = middle;
                continue;
            };
            let below = match compare::<M, S>(medium, self.slot_at(slot), probe) {
                Ordering::Less => true,
                Ordering::Equal => above,
                Ordering::Greater => false,
            };
            if below {
                low = slot + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The last entry before slot `bound` that the view sees.
    #[inline]
    pub fn last_seen<M: Medium>(self, medium: &M, view: &View, bound: usize) -> Option<(usize, Entry)> {
        (0..bound).rev().map(|slot| (slot, self.entry(medium, slot))).find(|(_, e)| view.sees(e.start, e.end))
    }

    /// True if an insertion through this hole moves entries from line to line.
    pub fn crosses(self, place: usize, hole: usize) -> bool {
        self.crossings(hole, if hole < place { place - 1 } else { place }) > 0
    }

    /// Lines that shifts between a hole and the new entry's place have to wait for.
    fn crossings(self, from: usize, to: usize) -> u64 {
        self.line_of(from).abs_diff(self.line_of(to))
    }

    /// Of the slots that are holes the one that costs least, for an entry that belongs before slot `place`.
    pub fn best_hole(self, holes: Mask, place: usize) -> Option<usize> {
        // What lies farther away on the same side costs more.
        let (before, behind) = (holes.below(place).last(), holes.from(place).first());
        before.into_iter().chain(behind).min_by_key(|&hole| {
            let target = if hole < place { place - 1 } else { place };
            (self.crossings(hole, target), hole.abs_diff(target))
        })
    }

    /// Puts an entry before slot `place`, shifting those between it and the hole (N3), one fence for each line that they leave
    /// [thesis §4.4.2]. Starts the write-back of the last line.
    pub fn insert<M: Medium>(self, medium: &M, persist: Persist, place: usize, hole: usize, entry: &Entry) {
        let mut to = hole;
        let target = if hole < place { place - 1 } else { place };
        while to != target {
            let from = if hole < place { to + 1 } else { to - 1 };
            self.fill(medium, to, &self.entry(medium, from));
            if self.line_of(from) != self.line_of(to) {
                persist.flush(medium, self.slot_at(to), SLOT_BYTES);
                persist.fence(medium, Fence::Guard);
            }
            to = from;
        }
        self.fill(medium, to, entry);
        persist.flush(medium, self.slot_at(to), SLOT_BYTES);
    }

    /// Starts the write-back of the line of a slot.
    pub fn flush_slot<M: Medium>(self, medium: &M, persist: Persist, slot: usize) {
        persist.flush(medium, self.slot_at(slot), SLOT_BYTES);
    }
}

/// Compares the key word at `at` with a key. 0 is below all byte strings.
#[inline]
pub fn compare<M: Medium, S: Schema>(medium: &M, at: u64, probe: S::Probe<'_>) -> Ordering {
    if !S::PLAIN && medium.word(at) == 0 {
        return Ordering::Less;
    }
    S::compare(medium, at, probe)
}

/// Compares two key words, each with the payload behind it if it is a leaf's. 0 is below all byte strings.
pub fn compare_words<M: Medium, S: Schema>(medium: &M, a: [u64; 2], b: [u64; 2]) -> Ordering {
    if a == b || (!S::PLAIN && (a[0] == 0 || b[0] == 0)) {
        return a[0].cmp(&b[0]);
    }
    S::compare_keys(medium, a, b)
}

/// Copies out the key of an entry's words; the lowest one is of 0. False if it cannot be read.
pub fn read_key<M: Medium, S: Schema>(medium: &M, words: [u64; 2], key: &mut S::KeyBuf) -> bool {
    if !S::PLAIN && words[0] == 0 {
        *key = S::KeyBuf::default();
        return true;
    }
    S::read_key(medium, words, key)
}
