//! Sorted nodes [wB+ §2.2, figure 1]. They are used by the prefetching B+-Tree (the volatile baseline) and by the trees with an undo-redo
//! or redo log, with shadow copies, or with a buffer pool.
//!
//! ```text
//! word 0   link
//! word 1   number of entries
//! word 2…  keys, in order
//! then     payloads, in the same order
//! ```
//!
//! A search reads only keys and one payload: at most about half of the node. Without vector instructions it is a binary search.
//!
//! An insert or a delete moves half of the entries on average. This is expensive where every word must be durable.

use pmem::{Medium, WORD};

use super::{Layout, Located, bisect, by_mask};
use crate::search::Search;
use crate::shape::{
    Edit, GROUP, Link, Move, Node, OneGroup, Order, OrderWords, Placed, Shape, Shapes, shapes,
};
use index::Schema;
use index::{Entry, Tail};

/// See the module's head.
#[derive(Debug)]
pub struct Sorted<W = OneGroup>(std::marker::PhantomData<fn() -> W>);

const COUNT_AT: u64 = 1;
const HEADER: u64 = 2;

impl<W: OrderWords> Sorted<W> {
    const fn shape_of(lines: u64, key_words: usize, payload_words: usize) -> Shape {
        let fitting = ((lines * 8 - HEADER) / (key_words as u64 + payload_words as u64)) as usize;
        let most = W::LEN / 8 * GROUP;
        let capacity = if fitting < most { fitting } else { most };
        let key_step = key_words as u64;
        Shape {
            lines,
            key_words,
            payload_words,
            capacity,
            keys_at: HEADER,
            key_step,
            payloads_at: HEADER + capacity as u64 * key_step,
            payload_step: payload_words as u64,
        }
    }
}

impl<W: OrderWords> Layout for Sorted<W> {
    const NAME: &'static str = "sorted";
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
        if let Some(located) = by_mask::<M, S, V>(medium, shape, node, probe, used) {
            return located;
        }
        let count = Self::count(medium, shape, node);
        bisect::<M, S>(medium, shape, node, probe, count, |rank| rank)
    }

    #[inline(always)]
    fn used<M: Medium>(medium: &M, shape: &Shape, node: Node) -> u64 {
        (1 << Self::count(medium, shape, node)) - 1
    }

    #[inline(always)]
    fn nth<M: Medium, S: Schema>(_medium: &M, _shape: &Shape, _node: Node, rank: usize) -> usize {
        rank
    }

    #[inline(always)]
    fn order<M: Medium, S: Schema>(medium: &M, shape: &Shape, node: Node) -> Order<W> {
        let numbers = W::from_fn(|i| 0x0706_0504_0302_0100 + i as u64 * 0x0808_0808_0808_0808);
        Order::of(numbers, Self::count(medium, shape, node), shape)
    }

    #[inline(always)]
    fn insert<M: Medium, S: Schema, T: Tail>(
        medium: &M,
        shape: &Shape,
        node: Node,
        rank: usize,
        entry: &Entry<T>,
        edit: &mut Edit,
    ) {
        edit.start(node, shape.bytes());
        let count = Self::count(medium, shape, node);
        shift(shape, node, (rank, count), rank + 1, edit);
        edit.switch.extend(shape.entry_words_at(node, rank, entry));
        edit.switch.push((node.0 + COUNT_AT * WORD, count as u64 + 1));
    }

    #[inline(always)]
    fn remove<M: Medium, S: Schema>(
        medium: &M,
        shape: &Shape,
        node: Node,
        rank: usize,
        _index: usize,
        edit: &mut Edit,
    ) {
        edit.start(node, shape.bytes());
        let count = Self::count(medium, shape, node);
        shift(shape, node, (rank + 1, count), rank, edit);
        edit.switch.push((node.0 + COUNT_AT * WORD, count as u64 - 1));
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
        let old = if existing { Self::count(medium, shape, node) } else { 0 };
        for (index, placed) in entries.iter().enumerate() {
            if placed.kept != Some(index as u8) {
                let words = if index < old { &mut edit.switch } else { &mut edit.fresh };
                words.extend(shape.entry_words_at(node, index, &placed.entry));
            }
        }
        let header = [(node.0, link.word()), (node.0 + COUNT_AT * WORD, entries.len() as u64)];
        edit.put_header(medium, existing, header);
    }

    fn fault<M: Medium>(medium: &M, shape: &Shape, node: Node) -> Option<&'static str> {
        (medium.word(node.0 + COUNT_AT * WORD) > shape.capacity as u64)
            .then_some("more entries than a node holds")
    }
}

/// Moves the entries with ranks `from..end` to the ranks from `to` on.
#[inline(always)]
fn shift(shape: &Shape, node: Node, (from, end): (usize, usize), to: usize, edit: &mut Edit) {
    let entries = (end - from) as u64;
    edit.moves.extend([
        Move {
            from: shape.key_at(node, from),
            to: shape.key_at(node, to),
            words: entries * shape.key_words as u64,
        },
        Move {
            from: shape.payload_at(node, from),
            to: shape.payload_at(node, to),
            words: entries * shape.payload_words as u64,
        },
    ]);
}
