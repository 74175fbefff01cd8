//! A page of the toy engine: entries in key order. It is written as a whole; only its link changes later.
//!
//! ```text
//! line 0   word 0 link to the next page (with its own check)   1 count   2 lower bound   3 hash of all words but the link
//! line 1.. entries: key words, then payload words
//! ```
//!
//! The lower bound is a key word. For plain keys it is the key itself. For byte strings it is the address of a separator record, which the
//! page owns. 0 means no bound. The keys of a page are from its lower bound to below the lower bound of the next page.

use index::shape::{Node, Shape as Entries};
use index::{Entry, Schema, Tail};
use pmem::region::{checked, unchecked};
use pmem::{LINE, Medium, WORD};

pub(crate) const LINK: u64 = 0;
const COUNT: u64 = WORD;
const LOW: u64 = 2 * WORD;
const HASH: u64 = 3 * WORD;
/// Minimum capacity of a page, in entries. So both halves of a split have entries.
const ENTRIES_MIN: usize = 3;

/// The layout of the pages of one index.
#[derive(Clone, Copy, Debug)]
pub struct Shape(pub Entries);

impl Shape {
    /// The layout of pages of `lines` lines. `None` if they hold too few entries.
    pub fn new<S: Schema>(lines: u64, payload_words: usize) -> Option<Self> {
        let words = (S::KEY_WORDS + payload_words) as u64;
        let head = LINE / WORD;
        let capacity = (lines.checked_sub(1)? * head / words) as usize;
        let entries = Entries {
            lines,
            key_words: S::KEY_WORDS,
            payload_words,
            capacity,
            keys_at: head,
            key_step: words,
            payloads_at: head + S::KEY_WORDS as u64,
            payload_step: words,
        };
        (capacity >= ENTRIES_MIN).then_some(Self(entries))
    }

    /// Bytes of a page.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

/// A page's address: its offset in the region, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page(pub u64);

impl Page {
    /// The address of the next page; 0 after the last page. `None` if this is not a page.
    pub fn next<M: Medium>(self, medium: &M) -> Option<u64> {
        unchecked(medium.word(self.0 + LINK)).map(|next| next * WORD)
    }

    /// The word of the lower bound.
    pub fn low<M: Medium>(self, medium: &M) -> u64 {
        medium.word(self.0 + LOW)
    }

    /// Number of entries. `None` if this is not a complete page.
    pub fn count<M: Medium>(self, medium: &M, shape: &Shape) -> Option<usize> {
        let count = medium.word(self.0 + COUNT) as usize;
        let is_whole =
            count <= shape.0.capacity && medium.word(self.0 + HASH) == hash(self.words(medium, shape, count));
        is_whole.then_some(count)
    }

    /// All words that the hash covers.
    fn words<'m, M: Medium>(
        self,
        medium: &'m M,
        shape: &Shape,
        count: usize,
    ) -> impl Iterator<Item = u64> + use<'m, M> {
        let entries = shape.0.keys_at..shape.0.keys_at + count as u64 * shape.0.key_step;
        [COUNT, LOW]
            .into_iter()
            .chain(entries.map(|word| word * WORD))
            .map(move |at| medium.word(self.0 + at))
    }

    /// Entry number `i`.
    pub fn entry<M: Medium, T: Tail>(self, medium: &M, shape: &Shape, i: usize) -> Entry<T> {
        shape.0.entry(medium, Node(self.0), i)
    }

    /// All entries; no entries if this is not a complete page.
    pub fn entries<M: Medium, T: Tail>(self, medium: &M, shape: &Shape) -> impl Iterator<Item = Entry<T>> {
        let count = self.count(medium, shape).unwrap_or(0);
        (0..count).map(move |i| self.entry(medium, shape, i))
    }

    /// Writes a page that nothing references yet, and flushes it.
    pub fn compose<M: Medium, T: Tail>(
        self,
        medium: &M,
        shape: &Shape,
        (next, low): (u64, u64),
        entries: &[Entry<T>],
    ) {
        medium.copy(self.0 + LINK, checked(next / WORD));
        medium.copy(self.0 + COUNT, entries.len() as u64);
        medium.copy(self.0 + LOW, low);
        for (i, entry) in entries.iter().enumerate() {
            let words = shape.0.entry_words_at(Node(self.0), i, entry);
            words.for_each(|(at, word)| medium.copy(at, word));
        }
        medium.copy(self.0 + HASH, hash(self.words(medium, shape, entries.len())));
        medium.flush(self.0, LINE + entries.len() as u64 * shape.0.key_step * WORD);
    }
}

fn hash(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(0x9E37_79B9_7F4A_7C15, |hash, word| {
        (hash ^ word).wrapping_mul(0xFF51_AFD7_ED55_8CCD).rotate_left(29)
    })
}
