//! Slot+bitmap nodes of the wB+-Tree [wB+ §4.2, figure 8 (e), (f)].
//!
//! ```text
//! word 0      bitmap: bit 0 slot array valid, bit i+1 entry i in use
//! word 1…     slot array: byte 0 number of entries, byte r+1 number of the entry with rank r
//! next word   link (the word before it may be padding, so that 16-byte entries never straddle a line)
//! then        entries, anywhere
//! ```
//!
//! Invariants:
//! * W1: the bitmap names the entries in use, always.
//! * W2: if its bit 0 is set, the slot array names the same entries in key order; if not, the order is derived.
//!
//! Commit point of an insert, delete or update in place: the bitmap word (or the entry's payload word).

use pmem::simd::BELOW;
use pmem::{Medium, WORD};

use super::{Layout, Located, bisect};
use crate::schema::Schema;
use crate::search::Search;
use crate::shape::{ENTRIES_MAX, Edit, Entry, Link, Node, Order, Placed, Shape, Shapes, shapes};

/// See the module's head.
#[derive(Debug)]
pub struct Slotted;

const SLOTS_AT: u64 = 1;
const VALID: u64 = 1;
/// Most words of a slot array.
const SLOT_WORDS: usize = (ENTRIES_MAX + 1) / 8;

impl Slotted {
    fn slots_at(node: Node) -> u64 {
        node.0 + SLOTS_AT * WORD
    }

    #[inline(always)]
    fn slot<M: Medium>(medium: &M, node: Node, byte: usize) -> u8 {
        let word = medium.word(Self::slots_at(node) + (byte as u64 & !7));
        (word >> (byte % 8 * 8)) as u8
    }

    /// The bitmap without its valid bit and without bits that no entry has.
    #[inline(always)]
    fn entries(bitmap: u64, shape: &Shape) -> u64 {
        bitmap >> 1 & ((1 << shape.capacity) - 1)
    }

    /// The slot array that says `order`: its offsets and words.
    #[inline(always)]
    fn put_slots(node: Node, order: &Order, to: &mut Vec<(u64, u64)>) {
        // Byte 0 is the count, so every number moves up by a byte.
        let mut carried = order.len() as u64;
        for (i, word) in order.words().into_iter().enumerate().take(order.len() / 8 + 1) {
            to.push((Self::slots_at(node) + i as u64 * WORD, word << 8 | carried));
            carried = word >> 56;
        }
    }

    const fn shape_of(lines: u64, key_words: usize) -> Shape {
        let words = lines * 8;
        let entry = key_words as u64 + 1;
        let mut capacity = ENTRIES_MAX as u64;
        loop {
            let link_at = SLOTS_AT + (capacity + 1).div_ceil(8);
            // An even number of words before entries of two words keeps each of them inside a line.
            let keys_at = if entry == 2 { (link_at + 1).next_multiple_of(2) } else { link_at + 1 };
            if keys_at + capacity * entry <= words {
                return Shape {
                    lines,
                    key_words,
                    capacity: capacity as usize,
                    link_at,
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

impl Layout for Slotted {
    const NAME: &'static str = "slot+bitmap";

    const SHAPES: Shapes = shapes!(Self::shape_of);

    fn shape(lines: u64, key_words: usize) -> Shape {
        Self::shape_of(lines, key_words)
    }

    #[inline(always)]
    fn count<M: Medium>(medium: &M, shape: &Shape, node: Node) -> usize {
        Self::entries(medium.word(node.0), shape).count_ones() as usize
    }

    #[inline(always)]
    fn locate<M: Medium, S: Schema, V: Search>(
        medium: &M,
        shape: &Shape,
        node: Node,
        probe: S::Probe<'_>,
    ) -> Located {
        let bitmap = medium.word(node.0);
        let used = Self::entries(bitmap, shape);
        if let Some(below) = V::mask::<M, S, BELOW>(medium, shape, node, probe) {
            let hit = Self::find::<M, S, V>(medium, shape, node, probe);
            return Located { rank: (below & used).count_ones() as usize, hit };
        }
        if bitmap & VALID != 0 {
            let count = used.count_ones() as usize;
            return bisect::<M, S>(medium, shape, node, probe, count, |rank| {
                usize::from(Self::slot(medium, node, rank + 1)).min(shape.capacity - 1)
            });
        }
        // Only after a crash: the slot array is out of use, every entry is looked at.
        let mut located = Located { rank: 0, hit: None };
        for index in bits(used) {
            match S::compare(medium, shape.key_at(node, index), probe) {
                std::cmp::Ordering::Less => located.rank += 1,
                std::cmp::Ordering::Equal => located.hit = Some(index),
                std::cmp::Ordering::Greater => {}
            }
        }
        located
    }

    #[inline(always)]
    fn used<M: Medium>(medium: &M, shape: &Shape, node: Node) -> u64 {
        Self::entries(medium.word(node.0), shape)
    }

    #[inline(always)]
    fn nth<M: Medium, S: Schema>(medium: &M, shape: &Shape, node: Node, rank: usize) -> usize {
        if medium.word(node.0) & VALID != 0 {
            return usize::from(Self::slot(medium, node, rank + 1)).min(shape.capacity - 1);
        }
        Self::order::<M, S>(medium, shape, node).at(rank)
    }

    #[inline(always)]
    fn order<M: Medium, S: Schema>(medium: &M, shape: &Shape, node: Node) -> Order {
        let bitmap = medium.word(node.0);
        let used = Self::entries(bitmap, shape);
        if bitmap & VALID == 0 {
            return sorted::<M, S>(medium, shape, node, used);
        }
        // The numbers without the count before them.
        let known = SLOT_WORDS.min(shape.capacity / 8 + 1);
        let word = |i| if i < known { medium.word(Self::slots_at(node) + i as u64 * WORD) } else { 0 };
        let numbers = std::array::from_fn(|i| word(i) >> 8 | word(i + 1) << 56);
        Order::of(numbers, used.count_ones() as usize, shape)
    }

    #[inline(always)]
    fn insert<M: Medium>(
        medium: &M,
        shape: &Shape,
        node: Node,
        order: &Order,
        rank: usize,
        entry: &Entry,
        edit: &mut Edit,
    ) {
        edit.start(node, shape.bytes());
        let bitmap = medium.word(node.0);
        let index = (!Self::entries(bitmap, shape)).trailing_zeros() as usize;
        debug_assert!(index < shape.capacity, "insert into a full node");
        if bitmap & VALID != 0 {
            edit.guard = Some((node.0, bitmap & !VALID));
        }
        edit.fresh.extend(shape.entry_words_at(node, index, entry));
        Self::put_slots(node, &order.with(rank, index as u8), &mut edit.guarded);
        edit.switch.push((node.0, bitmap | VALID | 1 << (index + 1)));
    }

    #[inline(always)]
    fn remove<M: Medium>(medium: &M, shape: &Shape, node: Node, order: &Order, rank: usize, edit: &mut Edit) {
        edit.start(node, shape.bytes());
        let bitmap = medium.word(node.0);
        if bitmap & VALID != 0 {
            edit.guard = Some((node.0, bitmap & !VALID));
        }
        Self::put_slots(node, &order.without(rank), &mut edit.guarded);
        edit.switch.push((node.0, (bitmap | VALID) & !(1 << (order.at(rank) + 1))));
    }

    fn compose<M: Medium>(
        medium: &M,
        shape: &Shape,
        node: Node,
        existing: bool,
        entries: &[Placed],
        link: Link,
        edit: &mut Edit,
    ) {
        edit.start(node, shape.bytes());
        let old = if existing { Self::entries(medium.word(node.0), shape) } else { 0 };
        let kept = entries.iter().filter_map(|p| p.kept).fold(0_u64, |mask, index| mask | 1 << index);
        debug_assert!(existing || kept == 0);
        // Newcomers go where nothing is; only if that does not suffice, over entries that leave the node.
        let all = (1_u64 << shape.capacity) - 1;
        let mut places = bits(!old & all).chain(bits(old & !kept & all));
        let mut numbers = Vec::with_capacity(entries.len());
        let mut bitmap = VALID;
        for placed in entries {
            let index = match placed.kept {
                Some(index) => usize::from(index),
                None => {
                    let index = places.next().expect("compose is given at most a node's capacity of entries");
                    let words = if old & 1 << index == 0 { &mut edit.fresh } else { &mut edit.switch };
                    words.extend(shape.entry_words_at(node, index, &placed.entry));
                    index
                }
            };
            numbers.push(index as u8);
            bitmap |= 1 << (index + 1);
        }
        let words = if existing { &mut edit.switch } else { &mut edit.fresh };
        Self::put_slots(node, &Order::from_numbers(numbers, shape), words);
        words.push((node.0 + shape.link_at * WORD, link.word()));
        words.push((node.0, bitmap));
        if existing {
            words.retain(|(at, word)| medium.word(*at) != *word);
        }
    }

    fn fault<M: Medium>(medium: &M, shape: &Shape, node: Node) -> Option<&'static str> {
        let bitmap = medium.word(node.0);
        let used = Self::entries(bitmap, shape);
        if bitmap >> 1 != used {
            return Some("bitmap names entries that a node does not have");
        }
        if bitmap & VALID == 0 {
            return None;
        }
        let count = usize::from(Self::slot(medium, node, 0));
        if count != used.count_ones() as usize {
            return Some("slot array and bitmap disagree on the number of entries");
        }
        let named = (1..=count)
            .fold(0_u64, |mask, byte| mask | 1_u64.wrapping_shl(Self::slot(medium, node, byte).into()));
        (named != used).then_some("slot array and bitmap name different entries")
    }
}

/// The order of these entries, by comparison: only after a crash.
#[cold]
fn sorted<M: Medium, S: Schema>(medium: &M, shape: &Shape, node: Node, used: u64) -> Order {
    let mut numbers: Vec<u8> = bits(used).map(|index| index as u8).collect();
    numbers.sort_by(|a, b| {
        let key = |index: u8| shape.entry(medium, node, usize::from(index)).key;
        S::compare_keys(medium, key(*a), key(*b))
    });
    Order::from_numbers(numbers, shape)
}

/// The numbers of the set bits.
#[inline(always)]
fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let index = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            index
        })
    })
}
