//! The positions of the entries in a node ([`Shape`]). All engines describe the layout of their nodes with it.
//!
//! An entry has key words and payload words. In a leaf, the payload is a value or a record pointer. In an inner node,
//! the payload is the address of a child. A node stores each payload next to its key, or all keys in one column and all
//! payloads in another.

use std::ops::Bound;

use pmem::{Medium, WORD};

use crate::entry::{Entry, Tail};

/// The bits of a payload word that hold an address.
const LINK_MASK: u64 = (1 << 48) - 1;

/// A node's address: its offset in the region, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Node(pub u64);

impl Node {
    /// The child that an inner entry's payload references. A damaged payload gives another address; it never overflows.
    #[inline(always)]
    pub fn of_payload(payload: u64) -> Self {
        Self(payload & LINK_MASK)
    }
}

/// The positions of entries in a node. Word numbers count from the node's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Cache lines of a node.
    pub lines: u64,
    /// Words of a key in an entry: 1 or 2.
    pub key_words: usize,
    /// Words of a payload in an entry.
    pub payload_words: usize,
    /// Maximum number of entries.
    pub capacity: usize,
    /// Word number of the first entry's key.
    pub keys_at: u64,
    /// Words from one key to the next.
    pub key_step: u64,
    /// Word number of the first entry's payload.
    pub payloads_at: u64,
    /// Words from one payload to the next.
    pub payload_step: u64,
}

impl Shape {
    /// Bytes of a node.
    #[inline(always)]
    pub fn bytes(&self) -> u64 {
        self.lines * pmem::LINE
    }

    /// Offset of an entry's first key word.
    #[inline(always)]
    pub fn key_at(&self, node: Node, index: usize) -> u64 {
        node.0 + (self.keys_at + index as u64 * self.key_step) * WORD
    }

    /// Offset of an entry's first payload word.
    #[inline(always)]
    pub fn payload_at(&self, node: Node, index: usize) -> u64 {
        node.0 + (self.payloads_at + index as u64 * self.payload_step) * WORD
    }

    /// Offset of word `number` of an entry: its key's words, then its payload's.
    #[inline(always)]
    pub fn entry_word_at(&self, node: Node, index: usize, number: u64) -> u64 {
        match number.checked_sub(self.key_words as u64) {
            None => self.key_at(node, index) + number * WORD,
            Some(number) => self.payload_at(node, index) + number * WORD,
        }
    }

    /// Reads an entry's key words.
    #[inline(always)]
    pub fn key<M: Medium>(&self, medium: &M, node: Node, index: usize) -> [u64; 2] {
        let at = self.key_at(node, index);
        [medium.word(at), if self.key_words == 2 { medium.word(at + WORD) } else { 0 }]
    }

    /// Reads an entry.
    #[inline(always)]
    pub fn entry<M: Medium, T: Tail>(&self, medium: &M, node: Node, index: usize) -> Entry<T> {
        let payload_at = self.payload_at(node, index);
        let mut tail = T::zeros(self.payload_words - 1);
        for (i, word) in tail.words_mut().iter_mut().enumerate() {
            *word = medium.word(payload_at + (i as u64 + 1) * WORD);
        }
        Entry { key: self.key(medium, node, index), payload: medium.word(payload_at), tail }
    }

    /// An entry's words with their offsets.
    #[inline(always)]
    pub fn entry_words_at<T: Tail>(
        &self,
        node: Node,
        index: usize,
        entry: &Entry<T>,
    ) -> impl Iterator<Item = (u64, u64)> + use<'_, T> {
        let key_at = self.key_at(node, index);
        let payload_at = self.payload_at(node, index);
        let [first, second] = entry.key;
        let head = [(key_at, first), (key_at + WORD, second)].into_iter().take(self.key_words);
        let tail = entry.tail;
        let tail =
            (0..self.payload_words - 1).map(move |i| (payload_at + (i as u64 + 1) * WORD, tail.words()[i]));
        head.chain([(payload_at, entry.payload)]).chain(tail)
    }
}

/// The target of a descent.
#[derive(Clone, Copy, Debug)]
pub enum Target<P> {
    /// The leaf that holds the key, if any does.
    Holding(P),
    /// The leaf that holds the largest keys below this one.
    Below(P),
    /// The first leaf.
    First,
    /// The last leaf.
    Last,
}

impl<P> Target<P> {
    /// The target at which a scan continues after it has reached `from`.
    pub fn of_scan(from: Bound<P>, descending: bool) -> Self {
        match (from, descending) {
            (Bound::Unbounded, false) => Self::First,
            (Bound::Unbounded, true) => Self::Last,
            (Bound::Excluded(probe), true) => Self::Below(probe),
            (Bound::Included(probe) | Bound::Excluded(probe), _) => Self::Holding(probe),
        }
    }
}
