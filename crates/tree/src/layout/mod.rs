//! Layouts: how a node keeps its entries. A layout only reads and answers with edits; it never stores or flushes.

mod slotted;
mod sorted;

use pmem::Medium;
use pmem::simd::{BELOW, EQUAL};
pub use slotted::Slotted;
pub use sorted::Sorted;

use crate::schema::Schema;
use crate::search::Search;
use crate::shape::{Edit, Entry, Link, Node, Order, Placed, Shape, Shapes};

/// Where a key is, or would be, in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// Number of entries with smaller keys.
    pub rank: usize,
    /// Number of the entry with this very key.
    pub hit: Option<usize>,
}

/// How a node keeps its entries.
pub trait Layout: Send + Sync + 'static {
    /// Name used in engines' names.
    const NAME: &'static str;

    /// Its shapes up to [`LINES_MAX`](crate::shape::LINES_MAX) lines.
    const SHAPES: Shapes;

    /// Geometry of a node of `lines` lines with `key_words` words a key.
    fn shape(lines: u64, key_words: usize) -> Shape;

    /// Number of entries.
    fn count<M: Medium>(medium: &M, shape: &Shape, node: Node) -> usize;

    /// Finds a key [wB+ §4.5].
    fn locate<M: Medium, S: Schema, V: Search>(
        medium: &M,
        shape: &Shape,
        node: Node,
        probe: S::Probe<'_>,
    ) -> Located;

    /// Bits of the entries in use, by number.
    fn used<M: Medium>(medium: &M, shape: &Shape, node: Node) -> u64;

    /// Number of entries with keys below the probe ([`BELOW`]), or up to it ([`UP_TO`](pmem::simd::UP_TO)).
    #[inline(always)]
    fn rank<M: Medium, S: Schema, V: Search, const WHICH: u8>(
        medium: &M,
        shape: &Shape,
        node: Node,
        probe: S::Probe<'_>,
    ) -> usize {
        if let Some(mask) = V::mask::<M, S, WHICH>(medium, shape, node, probe) {
            return (mask & Self::used(medium, shape, node)).count_ones() as usize;
        }
        let located = Self::locate::<M, S, V>(medium, shape, node, probe);
        located.rank + usize::from(WHICH != BELOW && located.hit.is_some())
    }

    /// Number of the entry with this very key.
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
        Self::locate::<M, S, V>(medium, shape, node, probe).hit
    }

    /// Number of the entry with this rank.
    fn nth<M: Medium, S: Schema>(medium: &M, shape: &Shape, node: Node, rank: usize) -> usize;

    /// Entry numbers in key order.
    fn order<M: Medium, S: Schema>(medium: &M, shape: &Shape, node: Node) -> Order;

    /// A new entry at `rank` of a node with room.
    fn insert<M: Medium>(
        medium: &M,
        shape: &Shape,
        node: Node,
        order: &Order,
        rank: usize,
        entry: &Entry,
        edit: &mut Edit,
    );

    /// Removes the entry at `rank`.
    fn remove<M: Medium>(medium: &M, shape: &Shape, node: Node, order: &Order, rank: usize, edit: &mut Edit);

    /// Gives a node these entries, in key order, and this link. `existing`: the node is in use, and entries that say so
    /// are in it; else all of it is unused space.
    fn compose<M: Medium>(
        medium: &M,
        shape: &Shape,
        node: Node,
        existing: bool,
        entries: &[Placed],
        link: Link,
        edit: &mut Edit,
    );

    /// What is wrong with the node by itself, in words; `None` if nothing is.
    fn fault<M: Medium>(medium: &M, shape: &Shape, node: Node) -> Option<&'static str>;
}

/// Binary search over ranks: entries with smaller keys, and the entry that equals the probe.
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
