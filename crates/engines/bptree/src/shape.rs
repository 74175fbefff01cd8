//! The geometry of a node, its entries, and the edit.
//!
//! A node is `lines` cache lines. Word 0 of every node is the link (leaf: right sibling; inner: leftmost child), whose upper
//! 16 bits carry a tag and the node's level, so that a descent knows what it met before it knows the layout. Then come the
//! layout's own words, and entries: key words and payload words (leaf: value or record; inner: child), side by side or in two
//! columns. Leaves and inner nodes of one tree have as many lines, and each kind its own shape.

pub use index::shape::{Node, Shape};
use index::{Entry, Tail};
use pmem::{Medium, WORD};

/// Most entries of a node of one group: a bitmap word less its valid bit.
pub const GROUP: usize = 63;
/// Most lines of a node whose shape is known to the compiler (see [`Shapes`]).
pub const LINES_MAX: usize = 16;
/// Most levels of a tree; beyond it a descent is on a damaged path.
pub const LEVELS_MAX: usize = 24;
const NODE_TAG: u64 = 0xB7;
const LINK_MASK: u64 = (1 << 48) - 1;

/// A layout's shapes by lines and words of a key, for code that is compiled for one size of nodes (and payloads of a word).
pub type Shapes = [[Shape; 2]; LINES_MAX + 1];

/// A layout's [`Shapes`] from its constant function of lines, words of a key, words of a payload.
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

    /// As [`Link::read`], of a child of a node of level `above` (`None`: of the root).
    #[inline(always)]
    pub fn below<M: Medium>(medium: &M, node: Node, above: Option<usize>) -> Option<Self> {
        Self::read(medium, node).filter(|link| above.is_none_or(|above| link.level + 1 == above))
    }

    /// Reads a node's link; `None` if there is no node.
    #[inline(always)]
    pub fn read<M: Medium>(medium: &M, node: Node) -> Option<Self> {
        Self::of(medium.word(node.0))
    }
}

/// Words of an [`Order`]: eight for each group of a node.
pub trait OrderWords: Copy + Send + Sync + std::fmt::Debug + 'static {
    /// Number of words.
    const LEN: usize;
    /// The words that `word` gives, by number.
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

/// Words of the order of nodes of up to 63 entries.
pub type OneGroup = [[u64; 8]; 1];
/// Words of the order of nodes of up to 252 entries.
pub type FourGroups = [[u64; 8]; 4];

/// Entry numbers in key order, eight to a word.
///
/// Words, not bytes, from the node to the edit: what is stored as bytes and loaded as a word waits until the store has left
/// the processor, and that is behind the last operation's fence.
#[derive(Clone, Copy, Debug)]
pub struct Order<W = OneGroup> {
    count: usize,
    words: W,
    /// Greatest number that a node has: what a damaged node says leads nowhere else.
    last: u8,
}

impl<W: OrderWords> Order<W> {
    /// Most entries.
    pub const MOST: usize = W::LEN / 8 * GROUP;

    /// The first `count` of these numbers.
    #[inline(always)]
    pub fn of(words: W, count: usize, shape: &Shape) -> Self {
        Self { count: count.min(Self::MOST), words, last: shape.capacity as u8 - 1 }
    }

    /// These numbers; beyond the most entries of a node none is taken.
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

    /// True without entries.
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

    /// The numbers with one more at `rank`. (Without a branch: the way through the words would be guessed wrong.)
    #[inline(always)]
    pub fn with(&self, rank: usize, number: u8) -> Self {
        let words = W::from_fn(|i| {
            let word = self.words.get(i);
            let up = word << 8 | if i == 0 { 0 } else { self.words.get(i - 1) >> 56 };
            let below = below(rank, i);
            // The lowest bit of the byte that becomes the number.
            let place = if rank / 8 == i { 1 << (rank % 8 * 8) } else { 0 };
            ((word & below | up & !below) & !(place * 0xFF)) | (place * u64::from(number))
        });
        Self { count: (self.count + 1).min(Self::MOST), words, ..*self }
    }

    /// The numbers without the one at `rank`.
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

    /// Word `i` of the numbers; those from [`Order::len`] on mean nothing.
    #[inline(always)]
    pub fn word(&self, i: usize) -> u64 {
        self.words.get(i)
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
pub struct Placed<T = [u64; 0]> {
    /// Its number in the node that is being composed.
    pub kept: Option<u8>,
    /// Its words.
    pub entry: Entry<T>,
}

impl<T: Tail> Placed<T> {
    /// One that is in no node yet, or in another.
    pub fn new(entry: Entry<T>) -> Self {
        Self { kept: None, entry }
    }
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

/// What a layout wants written, in the classes that matter to a commit protocol. All pairs are (offset, word).
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

    /// The header words that complete a composed node. In a node that is in use they overwrite, and what a word says already
    /// need not be said.
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
