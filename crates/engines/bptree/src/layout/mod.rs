//! Layouts: the arrangement of entries in a node. A layout only reads nodes. It describes a change as an [`Edit`] and never stores or
//! flushes.
//!
//! | layout | header | order of entries | a change inside the node overwrites |
//! |---|---|---|---|
//! | [`Sorted`] | count | by key, in columns | the entries after the changed one, the count |
//! | [`Counted`] | count | packed, in order of arrival | the count (a delete: also the hole) |
//! | [`Bitmap`] | bitmap | any | the bitmap word |
//! | [`SlotOnly`] | slot word | any; the slots list them in key order | the slot word |
//! | [`Slotted`] | bitmap, slot array | any; the slots list them in key order | the slot array (its valid bit in the bitmap is cleared first), the bitmap word |
//!
//! A tree has one layout for leaves and one for inner nodes: [`Layouts`].

mod bitmap;
mod counted;
mod slot_only;
mod slotted;
mod sorted;
mod unordered;

pub use bitmap::Bitmap;
pub use counted::Counted;
use pmem::Medium;
use pmem::simd::{BELOW, EQUAL};
pub use slot_only::SlotOnly;
pub use slotted::Slotted;
pub use sorted::Sorted;

use crate::search::Search;
use crate::shape::{Edit, GROUP, Link, Node, Order, OrderWords, Placed, Shape, Shapes};
use index::Schema;
use index::{Entry, Tail};

/// The position of a key in a node, present or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// Number of entries with smaller keys.
    pub rank: usize,
    /// Number of the entry with exactly this key.
    pub hit: Option<usize>,
}

/// The layouts of a tree's nodes.
pub trait Layouts: Send + Sync + 'static {
    /// Words of the entry order of a node.
    type Words: OrderWords;
    /// True for nodes with several groups of entries. These are the pages of the VLAB paper; values of one length ([`index::Fixed`]) need
    /// them.
    const PAGES: bool = <Self::Words as OrderWords>::LEN > 8;
    /// True if short operations are also compiled for nodes of 16 lines. The default engine is worth the compile time. Baselines and slower
    /// engines are compiled for any size only.
    const SPECIALISED: bool = Self::Leaf::SPECIALISED && Self::Inner::SPECIALISED;
    /// Layout of leaves.
    type Leaf: Layout<Words = Self::Words>;
    /// Layout of inner nodes.
    type Inner: Layout<Words = Self::Words>;
}

impl<Leaf: Layout, Inner: Layout<Words = Leaf::Words>> Layouts for (Leaf, Inner) {
    type Words = Leaf::Words;
    type Leaf = Leaf;
    type Inner = Inner;
}

/// The arrangement of entries in a node.
pub trait Layout: Send + Sync + 'static {
    /// Name for output.
    const NAME: &'static str;

    /// See [`Layouts::SPECIALISED`].
    const SPECIALISED: bool = false;

    /// Shapes of nodes of up to [`LINES_MAX`](crate::shape::LINES_MAX) lines.
    const SHAPES: Shapes;

    /// Words of the entry order: of one group, or of four.
    type Words: OrderWords;

    /// Geometry of a node of `lines` lines, with this many words per key and per payload.
    fn shape(lines: u64, key_words: usize, payload_words: usize) -> Shape;

    /// Number of entries.
    fn count<M: Medium>(medium: &M, shape: &Shape, node: Node) -> usize;

    /// Finds a key [wB+ §4.5].
    fn locate<M: Medium, S: Schema, V: Search>(
        medium: &M,
        shape: &Shape,
        node: Node,
        probe: S::Probe<'_>,
    ) -> Located;

    /// Finds the position where a change of this key happens. As [`Layout::locate`], but the rank of an entry with exactly this key is
    /// unspecified if [`Layout::remove`] does not need it.
    #[inline(always)]
    fn place<M: Medium, S: Schema, V: Search>(
        medium: &M,
        shape: &Shape,
        node: Node,
        probe: S::Probe<'_>,
    ) -> Located {
        Self::locate::<M, S, V>(medium, shape, node, probe)
    }

    /// Bits of the entries in use, by number, in a node of at most 63 entries.
    fn used<M: Medium>(medium: &M, shape: &Shape, node: Node) -> u64;

    /// Number of entries with keys below the probe ([`BELOW`]), or up to the probe ([`UP_TO`](pmem::simd::UP_TO)), and the number of the
    /// greatest of them.
    #[inline(always)]
    fn floor<M: Medium, S: Schema, V: Search, const WHICH: u8>(
        medium: &M,
        shape: &Shape,
        node: Node,
        probe: S::Probe<'_>,
    ) -> (usize, Option<usize>) {
        let rank = match V::mask::<M, S, WHICH>(medium, shape, node, probe) {
            Some(mask) => (mask & Self::used(medium, shape, node)).count_ones() as usize,
            None => {
                let located = Self::locate::<M, S, V>(medium, shape, node, probe);
                located.rank + usize::from(WHICH != BELOW && located.hit.is_some())
            }
        };
        (rank, (rank > 0).then(|| Self::nth::<M, S>(medium, shape, node, rank - 1)))
    }

    /// Number of the entry with exactly this key.
    #[inline(always)]
    fn find<M: Medium, S: Schema, V: Search>(
        medium: &M,
        shape: &Shape,
        node: Node,
        probe: S::Probe<'_>,
    ) -> Option<usize> {
        if let Some(mask) = V::mask::<M, S, EQUAL>(medium, shape, node, probe) {
            let hit = mask & Self::used(medium, shape, node);
            return (hit != 0).then(|| hit.trailing_zeros() as usize);
        }
        Self::place::<M, S, V>(medium, shape, node, probe).hit
    }

    /// Number of any entry; `None` if there is none.
    fn any<M: Medium, S: Schema>(medium: &M, shape: &Shape, node: Node) -> Option<usize> {
        if shape.capacity > GROUP {
            return (Self::count(medium, shape, node) > 0).then(|| Self::nth::<M, S>(medium, shape, node, 0));
        }
        let used = Self::used(medium, shape, node);
        (used != 0).then(|| used.trailing_zeros() as usize)
    }

    /// Number of the entry with this rank.
    fn nth<M: Medium, S: Schema>(medium: &M, shape: &Shape, node: Node, rank: usize) -> usize;

    /// Entry numbers in key order.
    fn order<M: Medium, S: Schema>(medium: &M, shape: &Shape, node: Node) -> Order<Self::Words>;

    /// Inserts an entry at `rank` of a node with space.
    fn insert<M: Medium, S: Schema, T: Tail>(
        medium: &M,
        shape: &Shape,
        node: Node,
        rank: usize,
        entry: &Entry<T>,
        edit: &mut Edit,
    );

    /// Removes the entry at `rank`. Its number is `index`.
    fn remove<M: Medium, S: Schema>(
        medium: &M,
        shape: &Shape,
        node: Node,
        rank: usize,
        index: usize,
        edit: &mut Edit,
    );

    /// Gives a node these entries, in key order, and this link. If `existing` is set, the node is in use, and entries with `kept` are
    /// already in it. Otherwise the whole node is unused space.
    fn compose<M: Medium, T: Tail>(
        medium: &M,
        shape: &Shape,
        node: Node,
        existing: bool,
        entries: &[Placed<T>],
        link: Link,
        edit: &mut Edit,
    );

    /// Describes a fault of the node alone; `None` if there is none.
    fn fault<M: Medium>(medium: &M, shape: &Shape, node: Node) -> Option<&'static str>;
}

/// Finds a key by comparing all keys at once, if this search and this medium can. `used` holds the bits of the entries in use.
#[inline(always)]
fn by_mask<M: Medium, S: Schema, V: Search>(
    medium: &M,
    shape: &Shape,
    node: Node,
    probe: S::Probe<'_>,
    used: impl Fn() -> u64,
) -> Option<Located> {
    let below = V::mask::<M, S, BELOW>(medium, shape, node, probe)?;
    let equal = V::mask::<M, S, EQUAL>(medium, shape, node, probe)?;
    let used = used();
    let hit = equal & used;
    let hit = (hit != 0).then(|| hit.trailing_zeros() as usize);
    Some(Located { rank: (below & used).count_ones() as usize, hit })
}

/// Binary search over ranks. Returns the number of entries with smaller keys, and the entry that equals the probe.
#[inline(always)]
pub(crate) fn bisect<M: Medium, S: Schema>(
    medium: &M,
    shape: &Shape,
    node: Node,
    probe: S::Probe<'_>,
    count: usize,
    nth: impl Fn(usize) -> usize,
) -> Located {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = (low + high) / 2;
        let index = nth(middle);
        match S::compare(medium, shape.key_at(node, index), probe) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Equal => return Located { rank: middle, hit: Some(index) },
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    Located { rank: low, hit: None }
}

/// Entries of two words begin at an even word, so none of them straddles two lines.
const fn aligned(first: u64, entry_words: u64) -> u64 {
    if entry_words == 2 { first.next_multiple_of(2) } else { first }
}

/// The shape of a node with entries side by side after `header` words.
const fn packed(lines: u64, key_words: usize, payload_words: usize, header: u64, most: usize) -> Shape {
    let key_step = key_words as u64 + payload_words as u64;
    let keys_at = aligned(header, key_step);
    let fitting = ((lines * 8 - keys_at) / key_step) as usize;
    Shape {
        lines,
        key_words,
        payload_words,
        capacity: if fitting < most { fitting } else { most },
        keys_at,
        key_step,
        payloads_at: keys_at + key_words as u64,
        payload_step: key_step,
    }
}
