//! Unsorted nodes with a counter: leaves of the older trees for phase-change memory [wB+ §2.2, figure 8 (a); VLAB figure 2b].
//!
//! ```text
//! word 0   link
//! word 1   number of entries
//! then     entries, packed, in order of arrival
//! ```
//!
//! An insert writes the next free entry and overwrites the counter. A delete moves the last entry into the hole. This overwrites an entry
//! in use, so a delete is not atomic by itself and needs a log.

use pmem::{Medium, WORD};

use super::{Layout, Located, packed, unordered};
use crate::search::Search;
use crate::shape::{
    Edit, GROUP, Link, Move, Node, OneGroup, Order, OrderWords, Placed, Shape, Shapes, shapes,
};
use index::Schema;
use index::{Entry, Tail};

/// See the module's head.
#[derive(Debug)]
pub struct Counted<W = OneGroup>(std::marker::PhantomData<fn() -> W>);

const COUNT_AT: u64 = 1;
const HEADER: u64 = 2;

impl<W: OrderWords> Counted<W> {
    const fn shape_of(lines: u64, key_words: usize, payload_words: usize) -> Shape {
        packed(lines, key_words, payload_words, HEADER, W::LEN / 8 * GROUP)
    }
}

impl<W: OrderWords> Layout for Counted<W> {
    const NAME: &'static str = "counter";
    const SHAPES: Shapes = shapes!(Self::shape_of);
    type Words = W;

    fn shape(lines: u64, key_words: usize, payload_words: usize) -> Shape {
        Self::shape_of(lines, key_words, payload_words)
    }

    #[inline(always)]
    fn count<M: Medium>(medium: &M, shape: &Shape, node: Node) -> usize {
        (medium.word(node.0 + COUNT_AT * WORD) as usize).min(shape.capacity)
    }

    #[inline(always)]
    fn locate<M: Medium, S: Schema, V: Search>(
        medium: &M,
        shape: &Shape,
        node: Node,
        probe: S::Probe<'_>,
    ) -> Located {
        let used = || Self::used(medium, shape, node);
        unordered::locate::<M, S, V>(medium, shape, node, probe, used, 0..Self::count(medium, shape, node))
    }

    #[inline(always)]
    fn place<M: Medium, S: Schema, V: Search>(
        medium: &M,
        shape: &Shape,
        node: Node,
        probe: S::Probe<'_>,
    ) -> Located {
        let used = || Self::used(medium, shape, node);
        unordered::place::<M, S, V>(medium, shape, node, probe, used, 0..Self::count(medium, shape, node))
    }

    #[inline(always)]
    fn used<M: Medium>(medium: &M, shape: &Shape, node: Node) -> u64 {
        (1 << Self::count(medium, shape, node)) - 1
    }

    #[inline(always)]
    fn floor<M: Medium, S: Schema, V: Search, const WHICH: u8>(
        medium: &M,
        shape: &Shape,
        node: Node,
        probe: S::Probe<'_>,
    ) -> (usize, Option<usize>) {
        unordered::floor::<M, S, WHICH>(medium, shape, node, probe, 0..Self::count(medium, shape, node))
    }

    fn nth<M: Medium, S: Schema>(medium: &M, shape: &Shape, node: Node, rank: usize) -> usize {
        Self::order::<M, S>(medium, shape, node).at(rank)
    }

    fn order<M: Medium, S: Schema>(medium: &M, shape: &Shape, node: Node) -> Order<W> {
        unordered::sorted::<M, S, W>(medium, shape, node, 0..Self::count(medium, shape, node))
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
        let count = Self::count(medium, shape, node);
        edit.fresh.extend(shape.entry_words_at(node, count, entry));
        edit.switch.push((node.0 + COUNT_AT * WORD, count as u64 + 1));
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
        let last = Self::count(medium, shape, node) - 1;
        if index != last {
            let (from, to) = (shape.key_at(node, last), shape.key_at(node, index));
            edit.moves.push(Move { from, to, words: shape.key_step });
        }
        edit.switch.push((node.0 + COUNT_AT * WORD, last as u64));
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
        // Entries that stay keep their places, except those beyond the new end. These and the new entries fill the holes.
        let mut free = vec![true; entries.len()];
        let in_place =
            |placed: &Placed<T>| placed.kept.map(usize::from).filter(|index| *index < entries.len());
        entries.iter().filter_map(in_place).for_each(|index| free[index] = false);
        let mut places = (0..entries.len()).filter(|index| free[*index]);
        let old = if existing { Self::count(medium, shape, node) } else { 0 };
        for placed in entries.iter().filter(|placed| in_place(placed).is_none()) {
            let index = places.next().expect("as many places as entries");
            let words = if index < old { &mut edit.switch } else { &mut edit.fresh };
            words.extend(shape.entry_words_at(node, index, &placed.entry));
        }
        let header = [(node.0, link.word()), (node.0 + COUNT_AT * WORD, entries.len() as u64)];
        edit.put_header(medium, existing, header);
    }

    fn fault<M: Medium>(medium: &M, shape: &Shape, node: Node) -> Option<&'static str> {
        (medium.word(node.0 + COUNT_AT * WORD) > shape.capacity as u64)
            .then_some("more entries than a node holds")
    }
}
