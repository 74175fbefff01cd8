//! The geometry of a node, its entries, and the edit.
//!
//! A node is `lines` cache lines. Every layout has a link word (leaf: right sibling; inner: leftmost child) whose upper 16
//! bits carry a tag and the node's level, and entries: key words and one payload word (leaf: value or record; inner:
//! child), side by side or in two columns. What else there is, and in which order entries lie, is the layout's affair.

use pmem::{Medium, WORD};

/// Most entries of a node: a bitmap word less its valid bit.
pub const ENTRIES_MAX: usize = 63;
/// Most lines of a node whose shape is known to the compiler (see [`Shapes`]).
pub const LINES_MAX: usize = 16;
/// Most levels of a tree; beyond it a descent is on a damaged path.
pub const LEVELS_MAX: usize = 24;
const NODE_TAG: u64 = 0xB7;
const LINK_MASK: u64 = (1 << 48) - 1;

/// A node's address: its offset in the region, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Node(pub u64);

impl Node {
    /// The child that an inner entry's payload names; a damaged one names some other place, never an overflow.
    #[inline(always)]
    pub fn of_payload(payload: u64) -> Self {
        Self(payload & LINK_MASK)
    }
}

/// Where things are in a node of one tree. Word numbers count from the node's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Cache lines of a node.
    pub lines: u64,
    /// Words of a key in an entry: 1 or 2.
    pub key_words: usize,
    /// Most entries.
    pub capacity: usize,
    /// Word number of the link.
    pub link_at: u64,
    /// Word number of the first entry's key.
    pub keys_at: u64,
    /// Words from one key to the next.
    pub key_step: u64,
    /// Word number of the first entry's payload.
    pub payloads_at: u64,
    /// Words from one payload to the next.
    pub payload_step: u64,
}

/// A layout's shapes by lines and words of a key, for code that is compiled for one size of nodes.
pub type Shapes = [[Shape; 2]; LINES_MAX + 1];

/// A layout's [`Shapes`] from its constant function of lines and words of a key.
macro_rules! shapes {
    ($shape:path) => {{
        let mut all = [[$shape(2, 1), $shape(2, 2)]; crate::shape::LINES_MAX + 1];
        let mut lines = 2;
        while lines <= crate::shape::LINES_MAX {
            all[lines] = [$shape(lines as u64, 1), $shape(lines as u64, 2)];
            lines += 1;
        }
        all
    }};
}
pub(crate) use shapes;

/// A link word, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Right sibling of a leaf (0: none), leftmost child of an inner node.
    pub node: Node,
    /// 0 for leaves.
    pub level: usize,
}

impl Link {
    /// The word.
    pub fn word(self) -> u64 {
        self.node.0 | NODE_TAG << 56 | (self.level as u64) << 48
    }

    /// The link in a word, if it has a node's tag.
    #[inline(always)]
    pub fn of(word: u64) -> Option<Self> {
        let level = (word >> 48 & 0xFF) as usize;
        (word >> 56 == NODE_TAG && level < LEVELS_MAX).then_some(Self { node: Node(word & LINK_MASK), level })
    }
}

/// An entry's words: keys, then the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Entry {
    /// Key words; the second is 0 where keys have one.
    pub key: [u64; 2],
    /// Value word, record or child.
    pub payload: u64,
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

    /// Offset of an entry's payload word.
    #[inline(always)]
    pub fn payload_at(&self, node: Node, index: usize) -> u64 {
        node.0 + (self.payloads_at + index as u64 * self.payload_step) * WORD
    }

    /// Offset of word `number` of an entry: its key's words, then its payload.
    #[inline(always)]
    pub fn entry_word_at(&self, node: Node, index: usize, number: u64) -> u64 {
        if number < self.key_words as u64 {
            self.key_at(node, index) + number * WORD
        } else {
            self.payload_at(node, index)
        }
    }

    /// Reads an entry.
    #[inline(always)]
    pub fn entry<M: Medium>(&self, medium: &M, node: Node, index: usize) -> Entry {
        let at = self.key_at(node, index);
        let second = if self.key_words == 2 { medium.word(at + WORD) } else { 0 };
        Entry { key: [medium.word(at), second], payload: medium.word(self.payload_at(node, index)) }
    }

    /// An entry's words with their offsets.
    #[inline(always)]
    pub fn entry_words_at(
        &self,
        node: Node,
        index: usize,
        entry: &Entry,
    ) -> impl Iterator<Item = (u64, u64)> + use<> {
        let keys = self.key_words;
        let [first, second] = entry.key;
        let key_at = self.key_at(node, index);
        let words = [(key_at, first), (key_at + WORD, second)];
        words.into_iter().take(keys).chain([(self.payload_at(node, index), entry.payload)])
    }

    /// Reads a node's link; `None` if there is no node.
    #[inline(always)]
    pub fn link<M: Medium>(&self, medium: &M, node: Node) -> Option<Link> {
        Link::of(medium.word(node.0 + self.link_at * WORD))
    }
}

/// Words of an [`Order`].
const ORDER_WORDS: usize = (ENTRIES_MAX + 1) / 8;

/// Entry numbers in key order, eight to a word.
///
/// Words, not bytes, from the node to the edit: what is stored as bytes and loaded as a word waits until the store has left
/// the processor, and that is behind the last operation's fence.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    count: usize,
    words: [u64; ORDER_WORDS],
    /// Greatest number that a node has: what a damaged node says leads nowhere else.
    last: u8,
}

impl Order {
    /// The first `count` of these numbers.
    #[inline(always)]
    pub fn of(words: [u64; ORDER_WORDS], count: usize, shape: &Shape) -> Self {
        Self { count: count.min(ENTRIES_MAX), words, last: shape.capacity as u8 - 1 }
    }

    /// These numbers; beyond the most entries of a node none is taken.
    pub fn from_numbers(numbers: impl IntoIterator<Item = u8>, shape: &Shape) -> Self {
        let mut order = Self::of([0; ORDER_WORDS], 0, shape);
        for number in numbers.into_iter().take(ENTRIES_MAX) {
            order.words[order.count / 8] |= u64::from(number) << (order.count % 8 * 8);
            order.count += 1;
        }
        order
    }

    /// Number of entries.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of the entry with this rank.
    #[inline(always)]
    pub fn at(&self, rank: usize) -> usize {
        let number = (self.words[rank / 8 % ORDER_WORDS] >> (rank % 8 * 8)) as u8;
        usize::from(number.min(self.last))
    }

    /// The entry numbers in key order.
    #[inline(always)]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator + use<'_> {
        (0..self.count).map(|rank| self.at(rank))
    }

    /// The numbers with one more at `rank`. (Without a branch: the way through the words would be guessed wrong.)
    #[inline(always)]
    pub fn with(&self, rank: usize, number: u8) -> Self {
        let words = std::array::from_fn(|i| {
            let up = self.words[i] << 8 | if i == 0 { 0 } else { self.words[i - 1] >> 56 };
            let below = below(rank, i);
            // The lowest bit of the byte that becomes the number.
            let place = if rank / 8 == i { 1 << (rank % 8 * 8) } else { 0 };
            ((self.words[i] & below | up & !below) & !(place * 0xFF)) | (place * u64::from(number))
        });
        Self { count: (self.count + 1).min(ENTRIES_MAX), words, ..*self }
    }

    /// The numbers without the one at `rank`.
    #[inline(always)]
    pub fn without(&self, rank: usize) -> Self {
        let words = std::array::from_fn(|i| {
            let down = self.words[i] >> 8 | if i + 1 == ORDER_WORDS { 0 } else { self.words[i + 1] << 56 };
            let below = below(rank, i);
            self.words[i] & below | down & !below
        });
        Self { count: self.count.saturating_sub(1), words, ..*self }
    }

    /// The numbers, eight to a word; those from [`Order::len`] on mean nothing.
    #[inline(always)]
    pub fn words(&self) -> [u64; ORDER_WORDS] {
        self.words
    }
}

/// Ones in the bytes of word `i` that hold ranks below `rank`.
#[inline(always)]
fn below(rank: usize, i: usize) -> u64 {
    match rank.saturating_sub(i * 8) {
        bytes @ 0..8 => (1 << (bytes * 8)) - 1,
        _ => u64::MAX,
    }
}

/// An entry on its way into a node: where it already is, if it is there.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// Its number in the node that is being composed.
    pub kept: Option<u8>,
    /// Its words.
    pub entry: Entry,
}

/// Words in use that go to another place in their node, as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Offset of the first.
    pub from: u64,
    /// Where it goes.
    pub to: u64,
    /// How many words.
    pub words: u64,
}

impl Move {
    /// The offsets (from, to) of every word, in an order in which no word is stored to before it was moved itself.
    #[inline(always)]
    pub fn each(self) -> impl Iterator<Item = (u64, u64)> {
        let up = self.to > self.from;
        (0..self.words).map(move |i| {
            let offset = WORD * if up { self.words - 1 - i } else { i };
            (self.from + offset, self.to + offset)
        })
    }
}

/// What a layout wants written, in the classes that matter to a discipline. All pairs are (offset, word).
#[derive(Debug, Default)]
pub struct Edit {
    /// The node (or the root line).
    pub node: Node,
    /// Its bytes.
    pub bytes: u64,
    /// Unused space: whatever is there now means nothing.
    pub fresh: Vec<(u64, u64)>,
    /// Store this first, and make it durable, to take the guarded words out of use. `None`: they are out of use.
    pub guard: Option<(u64, u64)>,
    /// Words that mean something only while the guard's valid bit is set.
    pub guarded: Vec<(u64, u64)>,
    /// Words in use that move; as if each stood in `switch`, before all others.
    pub moves: Vec<Move>,
    /// Words in use, to be overwritten: the change becomes true with them.
    pub switch: Vec<(u64, u64)>,
    /// Each switch word alone leaves a state that means the same as before or after.
    pub independent: bool,
}

impl Edit {
    /// An edit of nothing yet.
    pub fn start(&mut self, node: Node, bytes: u64) {
        self.node = node;
        self.bytes = bytes;
        self.fresh.clear();
        self.guard = None;
        self.guarded.clear();
        self.moves.clear();
        self.switch.clear();
        self.independent = false;
    }
}
