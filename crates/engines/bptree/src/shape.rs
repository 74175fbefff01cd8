//! The geometry of a node, its entries, and [`Edit`]: the description of a change, which a layout makes and a commit protocol carries out.
//!
//! A node has `lines` cache lines. Leaves and inner nodes of a tree have the same number of lines, but each kind has its own shape.
//!
//! ```text
//! word 0   link: right sibling (leaf) or leftmost child (inner node); its upper 16 bits hold a tag and the node's level
//! then     the layout's header words
//! then     entries: key words and payload words (leaf: value or record; inner node: child), side by side or in two columns
//! ```
//!
//! The tag and the level let a descent verify a node before it knows the layout.

pub use index::shape::{Node, Shape};
use index::{Entry, Tail};
use pmem::{Medium, WORD};

/// Maximum entries of a node of one group: the bits of a bitmap word without its valid bit.
pub const GROUP: usize = 63;
/// Maximum lines of a node whose shape is known at compile time (see [`Shapes`]).
pub const LINES_MAX: usize = 16;
/// Maximum levels of a tree. A descent that takes more steps is on a damaged path.
pub const LEVELS_MAX: usize = 24;
const NODE_TAG: u64 = 0xB7;
const LINK_MASK: u64 = (1 << 48) - 1;

/// A layout's shapes, by lines and by words of a key, for code that is compiled for one node size. Payloads have one word.
pub type Shapes = [[Shape; 2]; LINES_MAX + 1];

/// Builds a layout's [`Shapes`] from its constant function of lines, key words and payload words.
macro_rules! shapes {
    ($shape:path) => {{
        let mut all = [[$shape(2, 1, 1), $shape(2, 2, 1)]; crate::shape::LINES_MAX + 1];
        let mut lines = 2;
        while lines <= crate::shape::LINES_MAX {
            all[lines] = [$shape(lines as u64, 1, 1), $shape(lines as u64, 2, 1)];
            lines += 1;
        }
        all
    }};
}
pub(crate) use shapes;

/// A decoded link word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Right sibling of a leaf (0: none), or leftmost child of an inner node.
    pub node: Node,
    /// Level of the node; 0 for leaves.
    pub level: usize,
}

impl Link {
    /// Encodes the link word.
    pub fn word(self) -> u64 {
        self.node.0 | NODE_TAG << 56 | (self.level as u64) << 48
    }

    /// Decodes a link word. `None` if it has no node's tag.
    #[inline(always)]
    pub fn of(word: u64) -> Option<Self> {
        let level = (word >> 48 & 0xFF) as usize;
        (word >> 56 == NODE_TAG && level < LEVELS_MAX).then_some(Self { node: Node(word & LINK_MASK), level })
    }

    /// As [`Link::read`], for a child of a node of level `above` (`None`: for the root). `None` also if the level is not `above` - 1.
    #[inline(always)]
    pub fn below<M: Medium>(medium: &M, node: Node, above: Option<usize>) -> Option<Self> {
        Self::read(medium, node).filter(|link| above.is_none_or(|above| link.level + 1 == above))
    }

    /// Reads a node's link. `None` if there is no node.
    #[inline(always)]
    pub fn read<M: Medium>(medium: &M, node: Node) -> Option<Self> {
        Self::of(medium.word(node.0))
    }
}

/// The words of an [`Order`]: eight for each group of a node.
pub trait OrderWords: Copy + Send + Sync + std::fmt::Debug + 'static {
    /// Number of words.
    const LEN: usize;
    /// Builds the words; `word` returns word i.
    fn from_fn(word: impl FnMut(usize) -> u64) -> Self;
    /// Word `i`.
    fn get(&self, i: usize) -> u64;
    /// Writes word `i`.
    fn set(&mut self, i: usize, word: u64);
}

impl<const G: usize> OrderWords for [[u64; 8]; G] {
    const LEN: usize = G * 8;
    #[inline(always)]
    fn from_fn(mut word: impl FnMut(usize) -> u64) -> Self {
        std::array::from_fn(|group| std::array::from_fn(|i| word(group * 8 + i)))
    }
    #[inline(always)]
    fn get(&self, i: usize) -> u64 {
        self[i / 8 % G][i % 8]
    }
    #[inline(always)]
    fn set(&mut self, i: usize, word: u64) {
        self[i / 8 % G][i % 8] = word;
    }
}

/// Order words of nodes of up to 63 entries.
pub type OneGroup = [[u64; 8]; 1];
/// Order words of nodes of up to 252 entries.
pub type FourGroups = [[u64; 8]; 4];

/// Entry numbers in key order, eight in a word.
///
/// The numbers stay in words from the node to the edit. If they were stored as bytes and loaded as a word, the load would wait until the
/// store has left the store buffer. That store waits for the last operation's fence.
#[derive(Clone, Copy, Debug)]
pub struct Order<W = OneGroup> {
    count: usize,
    words: W,
    /// Greatest entry number of a node. Numbers of a damaged node are limited to it.
    last: u8,
}

impl<W: OrderWords> Order<W> {
    /// Maximum number of entries.
    pub const MOST: usize = W::LEN / 8 * GROUP;

    /// Makes the order of the first `count` numbers in `words`.
    #[inline(always)]
    pub fn of(words: W, count: usize, shape: &Shape) -> Self {
        Self { count: count.min(Self::MOST), words, last: shape.capacity as u8 - 1 }
    }

    /// Makes the order of these numbers. Numbers beyond [`Order::MOST`] are ignored.
    pub fn from_numbers(numbers: impl IntoIterator<Item = u8>, shape: &Shape) -> Self {
        let mut order = Self::of(W::from_fn(|_| 0), 0, shape);
        for number in numbers.into_iter().take(Self::MOST) {
            let i = order.count / 8;
            order.words.set(i, order.words.get(i) | u64::from(number) << (order.count % 8 * 8));
            order.count += 1;
        }
        order
    }

    /// Number of entries.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of the entry with this rank.
    #[inline(always)]
    pub fn at(&self, rank: usize) -> usize {
        let number = (self.words.get(rank / 8) >> (rank % 8 * 8)) as u8;
        usize::from(number.min(self.last))
    }

    /// The entry numbers in key order.
    #[inline(always)]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator + use<'_, W> {
        (0..self.count).map(|rank| self.at(rank))
    }

    /// Inserts `number` at `rank`. The code has no branch, because the processor would mispredict it.
    #[inline(always)]
    pub fn with(&self, rank: usize, number: u8) -> Self {
        let words = W::from_fn(|i| {
            let word = self.words.get(i);
            let up = word << 8 | if i == 0 { 0 } else { self.words.get(i - 1) >> 56 };
            let below = below(rank, i);
            // The lowest bit of the byte that becomes `number`.
            let place = if rank / 8 == i { 1 << (rank % 8 * 8) } else { 0 };
            ((word & below | up & !below) & !(place * 0xFF)) | (place * u64::from(number))
        });
        Self { count: (self.count + 1).min(Self::MOST), words, ..*self }
    }

    /// Removes the number at `rank`.
    #[inline(always)]
    pub fn without(&self, rank: usize) -> Self {
        let words = W::from_fn(|i| {
            let word = self.words.get(i);
            let down = word >> 8 | if i + 1 == W::LEN { 0 } else { self.words.get(i + 1) << 56 };
            let below = below(rank, i);
            word & below | down & !below
        });
        Self { count: self.count.saturating_sub(1), words, ..*self }
    }

    /// Word `i` of the numbers. Bytes from [`Order::len`] on have no meaning.
    #[inline(always)]
    pub fn word(&self, i: usize) -> u64 {
        self.words.get(i)
    }
}

/// A mask of the bytes of word `i` that hold ranks below `rank`.
#[inline(always)]
fn below(rank: usize, i: usize) -> u64 {
    match rank.saturating_sub(i * 8) {
        bytes @ 0..8 => (1 << (bytes * 8)) - 1,
        _ => u64::MAX,
    }
}

/// An entry for a node that is being composed, and its present place in this node, if any.
#[derive(Clone, Copy, Debug)]
pub struct Placed<T = [u64; 0]> {
    /// Its number in the node that is being composed. `None` if it is not in this node.
    pub kept: Option<u8>,
    /// Its words.
    pub entry: Entry<T>,
}

impl<T: Tail> Placed<T> {
    /// An entry that is in no node yet, or in another node.
    pub fn new(entry: Entry<T>) -> Self {
        Self { kept: None, entry }
    }
}

/// Words in use that move unchanged to another place in their node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Offset of the first word, in bytes.
    pub from: u64,
    /// Offset of the first word after the move.
    pub to: u64,
    /// Number of words.
    pub words: u64,
}

impl Move {
    /// The pairs (from, to) of all words, in an order in which no word is overwritten before it has moved.
    #[inline(always)]
    pub fn each(self) -> impl Iterator<Item = (u64, u64)> {
        let up = self.to > self.from;
        (0..self.words).map(move |i| {
            let offset = WORD * if up { self.words - 1 - i } else { i };
            (self.from + offset, self.to + offset)
        })
    }
}

/// The words that a layout wants to store, by class. The commit protocol handles each class differently. All pairs are (offset, word).
#[derive(Debug, Default)]
pub struct Edit {
    /// The node, or the root line.
    pub node: Node,
    /// Bytes of the node.
    pub bytes: u64,
    /// Words in unused space. Their old content has no meaning.
    pub fresh: Vec<(u64, u64)>,
    /// This word is stored and made durable first. It takes the guarded words out of use. `None`: they are already out of use.
    pub guard: Option<(u64, u64)>,
    /// Words that have a meaning only while the guard's valid bit is set.
    pub guarded: Vec<(u64, u64)>,
    /// Words in use that move. They belong to the class `switch` and come before the words there.
    pub moves: Vec<Move>,
    /// Words in use. Overwriting them commits the change.
    pub switch: Vec<(u64, u64)>,
    /// True if each switch word alone leaves a state that means the same as the state before or the state after.
    pub independent: bool,
}

impl Edit {
    /// Starts an empty edit of a node.
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

    /// Adds the header words that complete a composed node. In a node that is in use (`existing`), they overwrite words, and unchanged
    /// words are left out.
    pub fn put_header<M: Medium>(
        &mut self,
        medium: &M,
        existing: bool,
        words: impl IntoIterator<Item = (u64, u64)>,
    ) {
        if existing {
            self.switch.extend(words);
            self.switch.retain(|(at, word)| medium.word(*at) != *word);
        } else {
            self.fresh.extend(words);
        }
    }
}
