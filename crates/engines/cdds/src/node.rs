//! Nodes: entries with two versions each, sorted by key and start, or in order of arrival ([`crate::entry_order`]) [thesis §4.4, figure
//! 4.1].
//!
//! ```text
//! line 0   word 0 tag and level   word 1 version of birth   word 2 lowest key   word 3 unused   words 4..8 slot 0
//! line n   slots 2n - 1 and 2n
//! slot     key, payload (in inner nodes: child), start, end; start 0: not in use
//! ```
//!
//! Free slots may be between used ones. The key of an inner entry is the lower bound of its child. The first child's key is the node's own
//! lowest key. On the tree's left edge this is 0, which is the least 64-bit key and by convention the least byte string. So no key is
//! reserved. (The thesis has upper bounds, and a greatest key that must be inserted first.)
//!
//! Invariants:
//! * N1: key and payload of a slot change only while its start is 0. The store of this 0 is durable, or it precedes the other stores in the
//!   order of their line. So after a crash a slot is complete or free. The end of an entry changes by one publish.
//! * N2: no slot straddles two lines.
//! * N3: a slot is overwritten only if no reader may see its entry, or if another slot holds the entry. The store to the other slot is
//!   durable, or it precedes the overwriting stores in the order of their line. Entries move from line to line only if all earlier moves in
//!   the node are durable. So a crash may leave an entry twice, in adjacent slots, but never loses it. (Entries move only in sorted nodes.)
//! * N4: in sorted nodes, the entries of slots that are not void (V3 of [`crate::version`]) ascend by key, and entries with equal keys by
//!   start.

use std::cmp::Ordering;

use index::Schema;
use pmem::simd::Wide;
use pmem::{Error, Fence, LINE, Medium, Result, WORD};

use crate::mask::Mask;
use crate::persist::Persist;
use crate::version::View;

/// Maximum levels of a tree.
pub const LEVELS_MAX: usize = 40;
const TAG: u64 = 0xCD;
const SLOT_BYTES: u64 = 4 * WORD;

const _: () = assert!(LINE.is_multiple_of(SLOT_BYTES));

/// The decoded content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Key word.
    pub key: u64,
    /// Payload of a leaf entry, or child of an inner entry.
    pub payload: u64,
    /// Start version: the first version with the entry.
    pub start: u64,
    /// End version: the first version without the entry; 0 for a live entry.
    pub end: u64,
}

impl Entry {
    /// The entry in the form of the schemas.
    pub fn of_tree(&self) -> index::Entry {
        index::Entry::new(self.words(), self.payload)
    }

    /// Key word and payload, from which a key is read.
    pub fn words(&self) -> [u64; 2] {
        [self.key, self.payload]
    }
}

/// Sizes of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a node.
    pub bytes: u64,
    /// Slots of a node; k in the thesis.
    pub slots: usize,
    /// A node with this number of live entries, or fewer, underflows; m_l = k / 5 in the thesis.
    pub least: usize,
    /// Maximum live entries for which one new node is made: 4 m_l, but less than a full node.
    pub most_in_one: usize,
    /// Vector instructions that compare all slots at once, if the processor has them ([`crate::simd_scan`]).
    pub vectors: Option<Wide>,
}

impl Shape {
    /// Lines of a node.
    pub fn lines(&self) -> usize {
        (self.bytes / LINE) as usize
    }

    /// The shape of nodes with this number of lines.
    pub fn new(lines: u64) -> Self {
        let slots = (lines * 2 - 1) as usize;
        let least = (slots / 5).max(1);
        let most_in_one = (4 * least).min(slots - 2);
        Self { bytes: lines * LINE, slots, least, most_in_one, vectors: Wide::of_processor() }
    }
}

/// A node's address: its offset in the region, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node(pub u64);

/// A node's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Level of the node; 0 for leaves.
    pub level: usize,
    /// Version of birth. No entry began before it.
    pub birth: u64,
    /// Key word of its lower bound.
    pub low: u64,
}

impl Header {
    /// Reads a node's header. `None` if there is no node.
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

    /// As [`Header::read`], for a node at a known level.
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

    /// Slots and entries that the view sees, without second copies.
    pub fn seen<M: Medium>(self, medium: &M, shape: &Shape, view: &View) -> Vec<(usize, Entry)> {
        let mut seen: Vec<(usize, Entry)> =
            self.used(medium, shape, view).filter(|(_, entry)| view.sees(entry.start, entry.end)).collect();
        seen.dedup_by(|a, b| (a.1.key, a.1.payload, a.1.start) == (b.1.key, b.1.payload, b.1.start));
        seen
    }

    /// Frees a slot. Not flushed.
    pub fn clear<M: Medium>(self, medium: &M, slot: usize) {
        if self.start(medium, slot) != 0 {
            medium.publish(self.slot_at(slot) + 2 * WORD, 0);
        }
    }

    /// Sets an entry's end version and flushes it. With 0 the entry lives again.
    pub fn set_end<M: Medium>(self, medium: &M, persist: Persist, slot: usize, end: u64) {
        self.put_end(medium, slot, end);
        self.flush_slot(medium, persist, slot);
    }

    /// As [`Node::set_end`]. Not flushed.
    pub fn put_end<M: Medium>(self, medium: &M, slot: usize, end: u64) {
        medium.publish(self.slot_at(slot) + 3 * WORD, end);
    }

    /// Fills a slot (N1). Not flushed.
    pub fn fill<M: Medium>(self, medium: &M, slot: usize, entry: &Entry) {
        self.clear(medium, slot);
        let at = self.slot_at(slot);
        medium.copy(at, entry.key);
        medium.copy(at + WORD, entry.payload);
        medium.copy(at + 3 * WORD, entry.end);
        medium.publish(at + 2 * WORD, entry.start);
    }

    /// Writes a node that no link references yet, and flushes it. Free slots are behind the entries or, with `spread`, between them. With
    /// `spread`, a later entry usually finds a free slot in its own line.
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

    /// The first slot from which on no key is below `probe` (with `above`: all keys are above it).
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

    /// True if an insert that fills this hole moves entries from line to line.
    pub fn crosses(self, place: usize, hole: usize) -> bool {
        self.crossings(hole, if hole < place { place - 1 } else { place }) > 0
    }

    /// Number of line boundaries that shifts between a hole and the new entry's place cross. Each costs a fence.
    fn crossings(self, from: usize, to: usize) -> u64 {
        self.line_of(from).abs_diff(self.line_of(to))
    }

    /// The hole with the lowest cost for an entry that belongs before slot `place`.
    pub fn best_hole(self, holes: Mask, place: usize) -> Option<usize> {
        // On each side only the nearest hole is a candidate: others cost more.
        let (before, behind) = (holes.below(place).last(), holes.from(place).first());
        before.into_iter().chain(behind).min_by_key(|&hole| {
            let target = if hole < place { place - 1 } else { place };
            (self.crossings(hole, target), hole.abs_diff(target))
        })
    }

    /// Stores an entry before slot `place`. Shifts the entries between it and the hole (N3), with one fence for each line boundary [thesis
    /// §4.4.2]. Flushes the last line.
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

    /// Flushes the line of a slot.
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

/// Compares two key words. A leaf's key word is followed by its payload. 0 is below all byte strings.
pub fn compare_words<M: Medium, S: Schema>(medium: &M, a: [u64; 2], b: [u64; 2]) -> Ordering {
    if a == b || (!S::PLAIN && (a[0] == 0 || b[0] == 0)) {
        return a[0].cmp(&b[0]);
    }
    S::compare_keys(medium, a, b)
}

/// Copies the key of an entry's words. The word 0 is the lowest key. False if the key cannot be read.
pub fn read_key<M: Medium, S: Schema>(medium: &M, words: [u64; 2], key: &mut S::KeyBuf) -> bool {
    if !S::PLAIN && words[0] == 0 {
        *key = S::KeyBuf::default();
        return true;
    }
    S::read_key(medium, words, key)
}
