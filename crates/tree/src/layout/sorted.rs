//! Sorted nodes: the prefetching B+-Tree's, and the volatile baseline [wB+ §2.2, figure 1].
//!
//! ```text
//! word 0   number of entries
//! word 1   link
//! word 2…  keys, in order
//! then     payloads, in the same order
//! ```
//!
//! In columns: a search reads the keys and one payload, half of the node.
//!
//! An insert or a delete moves half of the entries on average: cheap in memory, dear where every word must be durable.

use pmem::simd::BELOW;
use pmem::{Medium, WORD};

use super::{Layout, Located, bisect};
use crate::schema::Schema;
use crate::search::Search;
use crate::shape::{ENTRIES_MAX, Edit, Entry, Link, Move, Node, Order, Placed, Shape, Shapes, shapes};

/// See the module's head.
#[derive(Debug)]
pub struct Sorted;

impl Sorted {
    const fn shape_of(lines: u64, key_words: usize) -> Shape {
        let keys_at = 2;
        let fitting = (lines * 8 - keys_at) / (key_words as u64 + 1);
        let capacity = if fitting < ENTRIES_MAX as u64 { fitting } else { ENTRIES_MAX as u64 };
        let key_step = key_words as u64;
        let payloads_at = keys_at + capacity * key_step;
        let capacity = capacity as usize;
        Shape { lines, key_words, capacity, link_at: 1, keys_at, key_step, payloads_at, payload_step: 1 }
    }
}

impl Layout for Sorted {
    const NAME: &'static str = "sorted";

    const SHAPES: Shapes = shapes!(Self::shape_of);

    fn shape(lines: u64, key_words: usize) -> Shape {
        Self::shape_of(lines, key_words)
    }

    #[inline(always)]
    fn count<M: Medium>(medium: &M, shape: &Shape, node: Node) -> usize {
        (medium.word(node.0) as usize).min(shape.capacity)
    }

    #[inline(always)]
    fn locate<M: Medium, S: Schema, V: Search>(
        medium: &M,
        shape: &Shape,
        node: Node,
        probe: S::Probe<'_>,
    ) -> Located {
        let count = Self::count(medium, shape, node);
        if let Some(below) = V::mask::<M, S, BELOW>(medium, shape, node, probe) {
            let used = Self::used(medium, shape, node);
            let hit = Self::find::<M, S, V>(medium, shape, node, probe);
            return Located { rank: (below & used).count_ones() as usize, hit };
        }
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
    fn order<M: Medium, S: Schema>(medium: &M, shape: &Shape, node: Node) -> Order {
        let numbers = std::array::from_fn(|i| 0x0706_0504_0302_0100 + i as u64 * 0x0808_0808_0808_0808);
        Order::of(numbers, Self::count(medium, shape, node), shape)
    }

    #[inline(always)]
    fn insert<M: Medium>(
        _medium: &M,
        shape: &Shape,
        node: Node,
        order: &Order,
        rank: usize,
        entry: &Entry,
        edit: &mut Edit,
    ) {
        edit.start(node, shape.bytes());
        shift(shape, node, (rank, order.len()), rank + 1, edit);
        edit.switch.extend(shape.entry_words_at(node, rank, entry));
        edit.switch.push((node.0, order.len() as u64 + 1));
    }

    #[inline(always)]
    fn remove<M: Medium>(
        _medium: &M,
        shape: &Shape,
        node: Node,
        order: &Order,
        rank: usize,
        edit: &mut Edit,
    ) {
        edit.start(node, shape.bytes());
        shift(shape, node, (rank + 1, order.len()), rank, edit);
        edit.switch.push((node.0, order.len() as u64 - 1));
    }

    fn compose<M: Medium>(
        _medium: &M,
        shape: &Shape,
        node: Node,
        existing: bool,
        entries: &[Placed],
        link: Link,
        edit: &mut Edit,
    ) {
        edit.start(node, shape.bytes());
        let words = if existing { &mut edit.switch } else { &mut edit.fresh };
        for (index, placed) in entries.iter().enumerate() {
            if placed.kept != Some(index as u8) {
                words.extend(shape.entry_words_at(node, index, &placed.entry));
            }
        }
        words.push((node.0, entries.len() as u64));
        words.push((node.0 + shape.link_at * WORD, link.word()));
    }

    fn fault<M: Medium>(medium: &M, shape: &Shape, node: Node) -> Option<&'static str> {
        (medium.word(node.0) > shape.capacity as u64).then_some("more entries than a node holds")
    }
}

/// Moves the entries with ranks `from..end` to ranks from `to` on.
#[inline(always)]
fn shift(shape: &Shape, node: Node, (from, end): (usize, usize), to: usize, edit: &mut Edit) {
    let entries = (end - from) as u64;
    edit.moves.extend([
        Move {
            from: shape.key_at(node, from),
            to: shape.key_at(node, to),
            words: entries * shape.key_words as u64,
        },
        Move { from: shape.payload_at(node, from), to: shape.payload_at(node, to), words: entries },
    ]);
}
