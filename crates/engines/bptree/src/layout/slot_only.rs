//! Slot-only nodes of the wB+-Tree [wB+ §4.2, figures 8 (c), (d) and 9]. A node has at most seven entries, so their order fits in one word.
//!
//! ```text
//! word 0   link
//! word 1   slots: byte 0 count of entries, byte r+1 index of the entry with rank r
//! then     entries, in any order
//! ```
//!
//! Commit point of an insert or delete: the slot word.

use pmem::{Medium, WORD};

use super::{Layout, Located, bisect, by_mask, packed, unordered};
use crate::search::Search;
use crate::shape::{Edit, Link, Node, OneGroup, Order, Placed, Shape, Shapes, shapes};
use index::Schema;
use index::{Entry, Tail};

/// See the module's head.
#[derive(Debug)]
pub struct SlotOnly;

const SLOTS_AT: u64 = 1;
/// Maximum number of entries: the bytes of a word, without the count.
const MOST: usize = 7;

impl SlotOnly {
    const fn shape_of(lines: u64, key_words: usize, payload_words: usize) -> Shape {
        packed(lines, key_words, payload_words, SLOTS_AT + 1, MOST)
    }

    #[inline(always)]
    fn slots<M: Medium>(medium: &M, node: Node) -> u64 {
        medium.word(node.0 + SLOTS_AT * WORD)
    }

    /// Encodes an order as a slot word.
    #[inline(always)]
    fn word(order: &Order) -> u64 {
        let known = (1_u64 << (order.len() * 8)) - 1; // at most seven bytes
        (order.word(0) & known) << 8 | order.len() as u64
    }
}

impl Layout for SlotOnly {
    const NAME: &'static str = "slot-only";
    const SHAPES: Shapes = shapes!(Self::shape_of);
    type Words = OneGroup;

    fn shape(lines: u64, key_words: usize, payload_words: usize) -> Shape {
        Self::shape_of(lines, key_words, payload_words)
    }

    #[inline(always)]
    fn count<M: Medium>(medium: &M, shape: &Shape, node: Node) -> usize {
        (Self::slots(medium, node) as usize & 0xFF).min(shape.capacity)
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
        let order = Self::order::<M, S>(medium, shape, node);
        bisect::<M, S>(medium, shape, node, probe, order.len(), |rank| order.at(rank))
    }

    #[inline(always)]
    fn used<M: Medium>(medium: &M, shape: &Shape, node: Node) -> u64 {
        let slots = Self::slots(medium, node);
        let count = Self::count(medium, shape, node);
        (1..=count).fold(0, |used, byte| used | 1 << (slots >> (byte * 8) & 7)) & ((1 << shape.capacity) - 1)
    }

    #[inline(always)]
    fn nth<M: Medium, S: Schema>(medium: &M, shape: &Shape, node: Node, rank: usize) -> usize {
        Self::order::<M, S>(medium, shape, node).at(rank)
    }

    #[inline(always)]
    fn order<M: Medium, S: Schema>(medium: &M, shape: &Shape, node: Node) -> Order {
        let numbers = Self::slots(medium, node) >> 8;
        Order::of([[numbers, 0, 0, 0, 0, 0, 0, 0]], Self::count(medium, shape, node), shape)
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
        let index = (!Self::used(medium, shape, node)).trailing_zeros() as usize;
        assert!(index < shape.capacity, "insert into a full node");
        edit.fresh.extend(shape.entry_words_at(node, index, entry));
        let order = Self::order::<M, S>(medium, shape, node).with(rank, index as u8);
        edit.switch.push((node.0 + SLOTS_AT * WORD, Self::word(&order)));
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
        let order = Self::order::<M, S>(medium, shape, node).without(rank);
        edit.switch.push((node.0 + SLOTS_AT * WORD, Self::word(&order)));
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
        let old = if existing { Self::used(medium, shape, node) } else { 0 };
        let numbers = unordered::put_entries(shape, node, unordered::bits(old, 0), entries, edit);
        let slots = Self::word(&Order::from_numbers(numbers, shape));
        edit.put_header(medium, existing, [(node.0, link.word()), (node.0 + SLOTS_AT * WORD, slots)]);
    }

    fn fault<M: Medium>(medium: &M, shape: &Shape, node: Node) -> Option<&'static str> {
        let count = Self::slots(medium, node) & 0xFF;
        if count > shape.capacity as u64 {
            return Some("more entries than a node holds");
        }
        (u64::from(Self::used(medium, shape, node).count_ones()) != count)
            .then_some("slots name an entry twice or one that a node does not have")
    }
}
