//! Slot+bitmap nodes of the wB+-Tree [wB+ §4.2, figure 8 (e), (f)].
//!
//! ```text
//! word 0      link
//! word 1…     bitmap: bit 0 slot array valid, bit i+1 of word g entry 63 g + i in use; one word, or four for more than 63 entries
//! then        slot array: byte 0 count of entries, byte r+1 index of the entry with rank r
//! then        entries, in any order (16-byte entries from an even word on, so that none straddles two lines)
//! ```
//!
//! Invariants:
//! * W1: the bitmap always references exactly the entries in use.
//! * W2: if bit 0 of every bitmap word is set, the slot array lists the same entries in key order. Otherwise the order is derived from the
//!   keys.
//!
//! Besides the entry and the slot array, an insert or delete changes one bitmap word, that of its entry. If a crash left the valid bits
//! (bit 0) of other bitmap words clear, the insert or delete sets these bits again, too. The commit point of an insert or delete is the
//! bitmap word of its entry. The commit point of an update in place is the entry's payload word.

use pmem::{Medium, WORD};

use super::{Layout, Located, aligned, bisect, by_mask, unordered};
use crate::search::Search;
use crate::shape::{Edit, GROUP, Link, Node, OneGroup, Order, OrderWords, Placed, Shape, Shapes, shapes};
use index::Schema;
use index::{Entry, Tail};

/// See the module's head.
#[derive(Debug)]
pub struct Slotted<W = OneGroup>(std::marker::PhantomData<fn() -> W>);

const BITMAPS_AT: u64 = 1;
const VALID: u64 = 1;

impl<W: OrderWords> Slotted<W> {
    const GROUPS: usize = W::LEN / 8;
    const SLOTS_AT: u64 = BITMAPS_AT + W::LEN as u64 / 8;

    #[inline(always)]
    fn bitmap_at(node: Node, group: usize) -> u64 {
        node.0 + (BITMAPS_AT + group as u64) * WORD
    }

    #[inline(always)]
    fn bitmap<M: Medium>(medium: &M, node: Node, group: usize) -> u64 {
        medium.word(Self::bitmap_at(node, group))
    }

    #[inline(always)]
    fn slots_at(node: Node) -> u64 {
        node.0 + Self::SLOTS_AT * WORD
    }

    #[inline(always)]
    fn slot<M: Medium>(medium: &M, node: Node, byte: usize) -> u8 {
        let word = medium.word(Self::slots_at(node) + (byte as u64 & !7));
        (word >> (byte % 8 * 8)) as u8
    }

    /// True if the valid bit of every group is set.
    #[inline(always)]
    fn is_valid<M: Medium>(medium: &M, node: Node) -> bool {
        (0..Self::GROUPS).all(|group| Self::bitmap(medium, node, group) & VALID != 0)
    }

    /// A bitmap word without its valid bit and without bits beyond the last entry.
    #[inline(always)]
    fn entries(bitmap: u64, shape: &Shape, group: usize) -> u64 {
        bitmap >> 1 & ((1 << shape.capacity.saturating_sub(group * GROUP).min(GROUP)) - 1)
    }

    /// Bits of a group's entries in use.
    #[inline(always)]
    fn group<M: Medium>(medium: &M, shape: &Shape, node: Node, group: usize) -> u64 {
        Self::entries(Self::bitmap(medium, node, group), shape, group)
    }

    /// Numbers of the entries in use.
    #[inline(always)]
    fn numbers<'a, M: Medium>(
        medium: &'a M,
        shape: &'a Shape,
        node: Node,
    ) -> impl Iterator<Item = usize> + use<'a, M, W> {
        (0..Self::GROUPS)
            .flat_map(move |group| unordered::bits(Self::group(medium, shape, node, group), group * GROUP))
    }

    /// The first free entry.
    #[inline(always)]
    fn free<M: Medium>(medium: &M, shape: &Shape, node: Node) -> usize {
        for group in 0..Self::GROUPS {
            let index = (!Self::group(medium, shape, node, group)).trailing_zeros() as usize;
            if index < GROUP || group + 1 == Self::GROUPS {
                return group * GROUP + index;
            }
        }
        0
    }

    /// Adds the slot array of an order: offsets and words.
    #[inline(always)]
    fn put_slots(node: Node, order: &Order<W>, to: &mut Vec<(u64, u64)>) {
        // Byte 0 is the count, so every number moves up by one byte.
        let mut carried = order.len() as u64;
        for i in 0..order.len() / 8 + 1 {
            let word = if i < W::LEN { order.word(i) } else { 0 };
            to.push((Self::slots_at(node) + i as u64 * WORD, word << 8 | carried));
            carried = word >> 56;
        }
    }

    /// Sets the valid bits of the other groups if a crash left them cleared, because the slot array is written anew. The own group's valid
    /// bit stays cleared until its bitmap word is published.
    #[inline(always)]
    fn revalidate<M: Medium>(medium: &M, node: Node, own: usize, edit: &mut Edit) {
        for group in (0..Self::GROUPS).filter(|group| *group != own) {
            let bitmap = Self::bitmap(medium, node, group);
            if bitmap & VALID == 0 {
                edit.switch.push((Self::bitmap_at(node, group), bitmap | VALID));
                edit.independent = true;
            }
        }
    }

    const fn shape_of(lines: u64, key_words: usize, payload_words: usize) -> Shape {
        let words = lines * 8;
        let entry = (key_words + payload_words) as u64;
        let mut capacity = W::LEN as u64 / 8 * GROUP as u64;
        loop {
            let keys_at = aligned(Self::SLOTS_AT + (capacity + 1).div_ceil(8), entry);
            if keys_at + capacity * entry <= words {
                return Shape {
                    lines,
                    key_words,
                    payload_words,
                    capacity: capacity as usize,
                    keys_at,
                    key_step: entry,
                    payloads_at: keys_at + key_words as u64,
                    payload_step: entry,
                };
            }
            capacity -= 1;
        }
    }
}

impl<W: OrderWords> Layout for Slotted<W> {
    const NAME: &'static str = "slot+bitmap";
    const SPECIALISED: bool = true;
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
        if let Some(located) = by_mask::<M, S, V>(medium, shape, node, probe, used) {
            return located;
        }
        if Self::is_valid(medium, node) {
            let count = Self::count(medium, shape, node);
            return bisect::<M, S>(medium, shape, node, probe, count, |rank| {
                usize::from(Self::slot(medium, node, rank + 1)).min(shape.capacity - 1)
            });
        }
        // Only after a crash: the slot array is not valid, so every entry is compared.
        unordered::locate::<M, S, V>(medium, shape, node, probe, used, Self::numbers(medium, shape, node))
    }

    #[inline(always)]
    fn used<M: Medium>(medium: &M, shape: &Shape, node: Node) -> u64 {
        Self::group(medium, shape, node, 0)
    }

    #[inline(always)]
    fn nth<M: Medium, S: Schema>(medium: &M, shape: &Shape, node: Node, rank: usize) -> usize {
        if Self::is_valid(medium, node) {
            return usize::from(Self::slot(medium, node, rank + 1)).min(shape.capacity - 1);
        }
        Self::order::<M, S>(medium, shape, node).at(rank)
    }

    #[inline(always)]
    fn order<M: Medium, S: Schema>(medium: &M, shape: &Shape, node: Node) -> Order<W> {
        if !Self::is_valid(medium, node) {
            return derived::<M, S, W>(medium, shape, node);
        }
        // The words of the numbers, without the count byte before them.
        let known = W::LEN.min(shape.capacity / 8 + 1);
        let word = |i| if i < known { medium.word(Self::slots_at(node) + i as u64 * WORD) } else { 0 };
        let numbers = W::from_fn(|i| word(i) >> 8 | word(i + 1) << 56);
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
        let order = Self::order::<M, S>(medium, shape, node);
        let index = Self::free(medium, shape, node);
        assert!(index < shape.capacity, "insert into a full node");
        let at = Self::bitmap_at(node, index / GROUP);
        let bitmap = medium.word(at);
        if bitmap & VALID != 0 {
            edit.guard = Some((at, bitmap & !VALID));
        }
        edit.fresh.extend(shape.entry_words_at(node, index, entry));
        Self::put_slots(node, &order.with(rank, index as u8), &mut edit.guarded);
        edit.switch.push((at, bitmap | VALID | 1 << (index % GROUP + 1)));
        Self::revalidate(medium, node, index / GROUP, edit);
    }

    #[inline(always)]
    fn remove<M: Medium, S: Schema>(
        medium: &M,
        shape: &Shape,
        node: Node,
        rank: usize,
        index: usize,
        edit: &mut Edit,
    ) {
        edit.start(node, shape.bytes());
        let order = Self::order::<M, S>(medium, shape, node);
        let at = Self::bitmap_at(node, index / GROUP);
        let bitmap = medium.word(at);
        if bitmap & VALID != 0 {
            edit.guard = Some((at, bitmap & !VALID));
        }
        Self::put_slots(node, &order.without(rank), &mut edit.guarded);
        edit.switch.push((at, (bitmap | VALID) & !(1 << (index % GROUP + 1))));
        Self::revalidate(medium, node, index / GROUP, edit);
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
        let used = Self::numbers(medium, shape, node).filter(|_| existing);
        let numbers = unordered::put_entries(shape, node, used, entries, edit);
        let mut groups = [VALID; 8];
        for index in &numbers {
            groups[usize::from(*index) / GROUP] |= 1 << (usize::from(*index) % GROUP + 1);
        }
        let mut header = Vec::new();
        Self::put_slots(node, &Order::from_numbers(numbers, shape), &mut header);
        header.push((node.0, link.word()));
        header.extend((0..Self::GROUPS).map(|group| (Self::bitmap_at(node, group), groups[group])));
        edit.put_header(medium, existing, header);
    }

    fn fault<M: Medium>(medium: &M, shape: &Shape, node: Node) -> Option<&'static str> {
        let more = |group| Self::bitmap(medium, node, group) >> 1 != Self::group(medium, shape, node, group);
        if (0..Self::GROUPS).any(more) {
            return Some("bitmap names entries that a node does not have");
        }
        if !Self::is_valid(medium, node) {
            return None;
        }
        let mut unnamed: Vec<usize> = Self::numbers(medium, shape, node).collect();
        let count = usize::from(Self::slot(medium, node, 0));
        if count != unnamed.len() {
            return Some("slot array and bitmap disagree on the number of entries");
        }
        for byte in 1..=count {
            let named = usize::from(Self::slot(medium, node, byte));
            unnamed.retain(|number| *number != named);
        }
        (!unnamed.is_empty()).then_some("slot array and bitmap name different entries")
    }
}

/// Derives the order of the entries in use by comparison. Needed only after a crash.
#[cold]
fn derived<M: Medium, S: Schema, W: OrderWords>(medium: &M, shape: &Shape, node: Node) -> Order<W> {
    unordered::sorted::<M, S, W>(medium, shape, node, Slotted::<W>::numbers(medium, shape, node))
}
