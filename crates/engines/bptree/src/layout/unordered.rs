//! Functions of the layouts that keep entries without an order. A search or a sort reads the entries one by one, unless a vector comparison
//! applies.

use std::cmp::Ordering;

use pmem::Medium;
use pmem::simd::BELOW;

use super::{Located, by_mask};
use crate::search::Search;
use crate::shape::{Edit, Node, Order, OrderWords, Placed, Shape};
use index::Schema;
use index::Tail;

/// The numbers of the set bits; bit 0 has the number `first`.
#[inline(always)]
pub(super) fn bits(mut mask: u64, first: usize) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let index = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            first + index
        })
    })
}

/// Rank and number of a key among these entries. `used` holds their bits, for the vector search.
#[inline(always)]
pub(super) fn locate<M: Medium, S: Schema, V: Search>(
    medium: &M,
    shape: &Shape,
    node: Node,
    probe: S::Probe<'_>,
    used: impl Fn() -> u64,
    entries: impl Iterator<Item = usize>,
) -> Located {
    if let Some(located) = by_mask::<M, S, V>(medium, shape, node, probe, used) {
        return located;
    }
    let mut located = Located { rank: 0, hit: None };
    for index in entries {
        match S::compare(medium, shape.key_at(node, index), probe) {
            Ordering::Less => located.rank += 1,
            Ordering::Equal => located.hit = Some(index),
            Ordering::Greater => {}
        }
    }
    located
}

/// As [`locate`], but the search stops at an entry with exactly this key. The rank is right only if there is no such entry.
#[inline(always)]
pub(super) fn place<M: Medium, S: Schema, V: Search>(
    medium: &M,
    shape: &Shape,
    node: Node,
    probe: S::Probe<'_>,
    used: impl Fn() -> u64,
    entries: impl Iterator<Item = usize>,
) -> Located {
    if let Some(located) = by_mask::<M, S, V>(medium, shape, node, probe, used) {
        return located;
    }
    let mut rank = 0;
    for index in entries {
        match S::compare(medium, shape.key_at(node, index), probe) {
            Ordering::Less => rank += 1,
            Ordering::Equal => return Located { rank, hit: Some(index) },
            Ordering::Greater => {}
        }
    }
    Located { rank, hit: None }
}

/// Number of these entries with keys below the probe (or up to it), and the number of the greatest of them.
#[inline(always)]
pub(super) fn floor<M: Medium, S: Schema, const WHICH: u8>(
    medium: &M,
    shape: &Shape,
    node: Node,
    probe: S::Probe<'_>,
    entries: impl Iterator<Item = usize>,
) -> (usize, Option<usize>) {
    let key = |index| shape.key(medium, node, index);
    let (mut rank, mut greatest) = (0, None);
    for index in entries {
        let order = S::compare(medium, shape.key_at(node, index), probe);
        if order.is_gt() || (WHICH == BELOW && order.is_eq()) {
            continue;
        }
        rank += 1;
        if greatest.is_none_or(|greatest| S::compare_keys(medium, key(greatest), key(index)).is_lt()) {
            greatest = Some(index);
        }
    }
    (rank, greatest)
}

/// The key order of these entries, by comparison. A reader may run this while the writer changes keys. Then the order is wrong and the
/// reader's validation fails. But the function must end and must not panic. The standard library's sort may panic if comparisons contradict
/// each other. So keys of words are read once, and keys behind pointers are inserted one by one.
pub(super) fn sorted<M: Medium, S: Schema, W: OrderWords>(
    medium: &M,
    shape: &Shape,
    node: Node,
    entries: impl Iterator<Item = usize>,
) -> Order<W> {
    let keyed = entries.map(|index| (shape.key(medium, node, index), index as u8));
    let mut sorted: Vec<([u64; 2], u8)> = Vec::with_capacity(shape.capacity);
    if S::PLAIN {
        sorted.extend(keyed);
        sorted.sort_unstable();
    } else {
        for (key, index) in keyed {
            let place = sorted.partition_point(|(other, _)| S::compare_keys(medium, *other, key).is_lt());
            sorted.insert(place, (key, index));
        }
    }
    Order::from_numbers(sorted.into_iter().map(|(_, index)| index), shape)
}

/// Assigns places to the entries of a node that is being composed. `used` are the places in use now. Entries that stay keep their places.
/// New entries get unused places first, then the places of entries that leave the node. Returns the entry numbers.
pub(super) fn put_entries<T: Tail>(
    shape: &Shape,
    node: Node,
    used: impl Iterator<Item = usize>,
    entries: &[Placed<T>],
    edit: &mut Edit,
) -> Vec<u8> {
    let mut in_use = vec![false; shape.capacity];
    used.for_each(|index| in_use[index] = true);
    let mut stays = vec![false; shape.capacity];
    entries.iter().filter_map(|placed| placed.kept).for_each(|index| stays[usize::from(index)] = true);
    let unused = (0..shape.capacity).filter(|index| !in_use[*index]);
    let leaving = (0..shape.capacity).filter(|index| in_use[*index] && !stays[*index]);
    let mut places = unused.chain(leaving);
    let number = |placed: &Placed<T>| {
        if let Some(index) = placed.kept {
            return index;
        }
        let index = places.next().expect("compose is given at most a node's capacity of entries");
        let words = if in_use[index] { &mut edit.switch } else { &mut edit.fresh };
        words.extend(shape.entry_words_at(node, index, &placed.entry));
        index as u8
    };
    entries.iter().map(number).collect()
}
