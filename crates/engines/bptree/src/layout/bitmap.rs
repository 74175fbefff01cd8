//! Bitmap-only nodes: unsorted leaves of the wB+-Tree and of older trees, and both kinds of nodes in VLAB's index F [wB+ §4.2, figure 8
//! (b); VLAB figure 2c].
//!
//! ```text
//! word 0   link
//! word 1…  bitmap: bit i of word g is set if entry 63 g + i is in use; one word, or four in nodes of more than 63 entries
//! then     entries, in any order
//! ```
//!
//! Commit point of an insert or delete: the one bitmap word that changes.

use pmem::{Medium, WORD};

use super::{Layout, Located, packed, unordered};
use crate::search::Search;
use crate::shape::{Edit, GROUP, Link, Node, OneGroup, Order, OrderWords, Placed, Shape, Shapes, shapes};
use index::Schema;
use index::{Entry, Tail};

/// See the module's head.
#[derive(Debug)]
pub struct Bitmap<W = OneGroup>(std::marker::PhantomData<fn() -> W>);

impl<W: OrderWords> Bitmap<W> {
    const GROUPS: usize = W::LEN / 8;

    const fn shape_of(lines: u64, key_words: usize, payload_words: usize) -> Shape {
        packed(lines, key_words, payload_words, 1 + W::LEN as u64 / 8, W::LEN / 8 * GROUP)
    }

    #[inline(always)]
    fn word_at(node: Node, group: usize) -> u64 {
        node.0 + (1 + group as u64) * WORD
    }

    /// Bits of all entries of a group.
    #[inline(always)]
    fn all(shape: &Shape, group: usize) -> u64 {
        (1 << shape.capacity.saturating_sub(group * GROUP).min(GROUP)) - 1
    }

    #[inline(always)]
    fn group<M: Medium>(medium: &M, shape: &Shape, node: Node, group: usize) -> u64 {
        medium.word(Self::word_at(node, group)) & Self::all(shape, group)
    }

    /// Numbers of the entries in use.
    #[inline(always)]
    fn entries<'a, M: Medium>(
        medium: &'a M,
        shape: &'a Shape,
        node: Node,
    ) -> impl Iterator<Item = usize> + use<'a, M, W> {
        (0..Self::GROUPS)
            .flat_map(move |group| unordered::bits(Self::group(medium, shape, node, group), group * GROUP))
    }

    /// Numbers of the free entries.
    fn free<'a, M: Medium>(
        medium: &'a M,
        shape: &'a Shape,
        node: Node,
    ) -> impl Iterator<Item = usize> + use<'a, M, W> {
        (0..Self::GROUPS).flat_map(move |group| {
            let used = Self::group(medium, shape, node, group);
            unordered::bits(!used & Self::all(shape, group), group * GROUP)
        })
    }
}

impl<W: OrderWords> Layout for Bitmap<W> {
    const NAME: &'static str = "bitmap";
    const SHAPES: Shapes = shapes!(Self::shape_of);
    type Words = W;

    fn shape(lines: u64, key_words: usize, payload_words: usize) -> Shape {
        Self::shape_of(lines, key_words, payload_words)
    }

    #[inline(always)]
    fn count<M: Medium>(medium: &M, shape: &Shape, node: Node) -> usize {
        (0..Self::GROUPS).map(|group| Self::group(medium, shape, node, group).count_ones() as usize).sum()
    }

    #[inline(always)]
    fn locate<M: Medium, S: Schema, V: Search>(
        medium: &M,
        shape: &Shape,
        node: Node,
        probe: S::Probe<'_>,
    ) -> Located {
        let used = || Self::used(medium, shape, node);
        unordered::locate::<M, S, V>(medium, shape, node, probe, used, Self::entries(medium, shape, node))
    }

    #[inline(always)]
    fn place<M: Medium, S: Schema, V: Search>(
        medium: &M,
        shape: &Shape,
        node: Node,
        probe: S::Probe<'_>,
    ) -> Located {
        let used = || Self::used(medium, shape, node);
        unordered::place::<M, S, V>(medium, shape, node, probe, used, Self::entries(medium, shape, node))
    }

    #[inline(always)]
    fn used<M: Medium>(medium: &M, shape: &Shape, node: Node) -> u64 {
        Self::group(medium, shape, node, 0)
    }

    #[inline(always)]
    fn floor<M: Medium, S: Schema, V: Search, const WHICH: u8>(
        medium: &M,
        shape: &Shape,
        node: Node,
        probe: S::Probe<'_>,
    ) -> (usize, Option<usize>) {
        unordered::floor::<M, S, WHICH>(medium, shape, node, probe, Self::entries(medium, shape, node))
    }

    fn nth<M: Medium, S: Schema>(medium: &M, shape: &Shape, node: Node, rank: usize) -> usize {
        Self::order::<M, S>(medium, shape, node).at(rank)
    }

    fn order<M: Medium, S: Schema>(medium: &M, shape: &Shape, node: Node) -> Order<W> {
        unordered::sorted::<M, S, W>(medium, shape, node, Self::entries(medium, shape, node))
    }

    #[inline(always)]
    fn insert<M: Medium, S: Schema, T: Tail>(
        medium: &M,
        shape: &Shape,
        node: Node,
        _rank: usize,
        entry: &Entry<T>,
        edit: &mut Edit,
    ) {
        edit.start(node, shape.bytes());
        let index = Self::free(medium, shape, node).next().expect("insert is given a node with space");
        edit.fresh.extend(shape.entry_words_at(node, index, entry));
        let at = Self::word_at(node, index / GROUP);
        edit.switch.push((at, medium.word(at) | 1 << (index % GROUP)));
    }

    #[inline(always)]
    fn remove<M: Medium, S: Schema>(
        medium: &M,
        shape: &Shape,
        node: Node,
        _rank: usize,
        index: usize,
        edit: &mut Edit,
    ) {
        edit.start(node, shape.bytes());
        let at = Self::word_at(node, index / GROUP);
        edit.switch.push((at, medium.word(at) & !(1 << (index % GROUP))));
    }

    fn compose<M: Medium, T: Tail>(
        medium: &M,
        shape: &Shape,
        node: Node,
        existing: bool,
        entries: &[Placed<T>],
        link: Link,
        edit: &mut Edit,
    ) {
        edit.start(node, shape.bytes());
        let used = Self::entries(medium, shape, node).filter(|_| existing);
        let mut groups = [0_u64; 8];
        for index in unordered::put_entries(shape, node, used, entries, edit) {
            groups[usize::from(index) / GROUP] |= 1 << (usize::from(index) % GROUP);
        }
        let bitmap = (0..Self::GROUPS).map(|group| (Self::word_at(node, group), groups[group]));
        edit.put_header(medium, existing, [(node.0, link.word())].into_iter().chain(bitmap));
    }

    fn fault<M: Medium>(medium: &M, shape: &Shape, node: Node) -> Option<&'static str> {
        let more = |group| medium.word(Self::word_at(node, group)) != Self::group(medium, shape, node, group);
        (0..Self::GROUPS).any(more).then_some("bitmap names entries that a node does not have")
    }
}
