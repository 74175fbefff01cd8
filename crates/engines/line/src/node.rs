//! An inner node: separators and children, in volatile memory.
//!
//! ```text
//! hot   line 0      word 0 number of children (bits 0..8), wide (bit 8), and the shift of the digests in the upper half
//!                   byte strings: words 1..8 the scale of the digests ([`crate::digest`])
//!                   64-bit keys:  word 2 base of the digests
//!       lines 1..5  digests: a number for each separator, ascending; digest 0 is 0, and only unused digests are all ones.
//!                   byte strings: 64 of 32 bits   64-bit keys: 128 of 16 bits
//!       lines 5..   the lower 32 bits of each child
//! cold              the upper 16 bits of each child. The separators: key words as in [`index::leaf_list::bound`]
//! ```
//!
//! Separator `i` is the lower bound of child `i`. A *digest* orders separators: if two digests differ, they compare as their separators do.
//! If they are equal, a search compares the separators.
//!
//! With byte strings, all separators except for separator 0 begin with the prefix of the scale. With 64-bit keys, a digest is the separator
//! minus the base, shifted to the right. The base is at most separator 1.
//!
//! A search reads line 0, the digests, and one child. In a node of the lowest level a lookup first prefetches line 0, the digests and all
//! lines of children: these nodes are often not in the cache, and the addresses of the lines do not depend on each other, so the cache
//! misses overlap. The nodes above are in the cache. Several searches that advance together prefetch only the line of the child that each
//! of them takes. The hot parts are stored apart from the cold parts, so that they stay in the cache. A search reads the cold part only if
//! a digest is equal to that of the key, or if the node is *wide*. A node is wide if the upper 16 bits of some child are not 0.
//!
//! Invariants:
//! * N1: the digests ascend, and separators with equal digests ascend.
//! * N2: child 0 holds all keys of the node below separator 1. So no search compares its key with separator 0.

use std::cmp::Ordering as Order;

use index::Schema;
use pmem::simd::Vectors;
use pmem::sync::Ordering;
use pmem::{LINE, Line, Medium, record};

use crate::digest;

/// Maximum number of children of a node.
#[inline(always)]
pub(crate) const fn fanout<S: Schema>() -> usize {
    if S::PLAIN { 128 } else { 64 }
}

/// Number of lines of digests.
const DIGEST_LINES: usize = 4;
/// Number of the first line of children in the hot part.
const CHILDREN: usize = 1 + DIGEST_LINES;
/// Set in word 0 if the upper bits of some child are not 0.
const WIDE: u64 = 1 << 8;

/// A child with its separator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child {
    /// The separator: a key word. 0 for the first leaf.
    pub bound: u64,
    /// The line number of a leaf, or a node's number. At most 48 bits.
    pub at: u64,
}

impl Child {
    /// A leaf with its lower bound.
    pub(crate) fn leaf(bound: u64, address: u64) -> Self {
        Self { bound, at: address / LINE }
    }
}

/// Lines of the hot part of a node. With byte strings the last four are unused. With one length for both kinds of keys, the address of a
/// node takes one check.
const HOT_LINES: usize = 13;

/// Lines of the hot part that are used.
const fn hot_lines<S: Schema>() -> usize {
    CHILDREN + fanout::<S>() / 16
}

/// Lines of the upper bits of the children, in the cold part of a node.
const fn top_lines<S: Schema>() -> usize {
    fanout::<S>() / 32
}

/// Lines of the cold part of a node.
const fn cold_lines<S: Schema>() -> usize {
    top_lines::<S>() + fanout::<S>() / 8
}

/// Bytes of a node.
pub(crate) const fn node_bytes<S: Schema>() -> usize {
    (HOT_LINES + cold_lines::<S>()) * LINE as usize
}

/// A chunk of nodes.
#[derive(Debug)]
pub(crate) struct Nodes {
    hot: Box<[[Line; HOT_LINES]]>,
    cold: Box<[Line]>,
}

impl Nodes {
    /// A chunk of `count` nodes without children.
    pub(crate) fn new<S: Schema>(count: usize) -> Self {
        const { assert!(hot_lines::<S>() <= HOT_LINES) };
        let hot = || std::array::from_fn(|_| Line::zero());
        Self {
            hot: std::iter::repeat_with(hot).take(count).collect(),
            cold: std::iter::repeat_with(Line::zero).take(count * cold_lines::<S>()).collect(),
        }
    }

    /// Node `i` of the chunk. `None` if the chunk has fewer nodes.
    #[inline(always)]
    pub(crate) fn get(&self, i: usize) -> Option<Node<'_>> {
        Some(Node { hot: self.hot.get(i)?, nodes: self, i })
    }
}

/// A node in its chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'a> {
    hot: &'a [Line; HOT_LINES],
    nodes: &'a Nodes,
    i: usize,
}

impl Node<'_> {
    #[inline(always)]
    fn head(&self) -> &Line {
        &self.hot[0]
    }

    #[inline(always)]
    fn digests(&self) -> &[Line] {
        &self.hot[1..CHILDREN]
    }

    #[inline(always)]
    fn children_low<S: Schema>(&self) -> &[Line] {
        &self.hot[CHILDREN..hot_lines::<S>()]
    }

    #[inline(always)]
    fn cold<S: Schema>(&self) -> &[Line] {
        &self.nodes.cold[self.i * cold_lines::<S>()..][..cold_lines::<S>()]
    }

    #[inline(always)]
    fn children_high<S: Schema>(&self) -> &[Line] {
        &self.cold::<S>()[..top_lines::<S>()]
    }

    #[inline(always)]
    fn bounds<S: Schema>(&self) -> &[Line] {
        &self.cold::<S>()[top_lines::<S>()..]
    }

    /// Number of children.
    #[inline(always)]
    pub(crate) fn count<S: Schema>(&self) -> usize {
        (get(self.head(), 0) & 0xFF).min(fanout::<S>() as u64) as usize
    }

    /// Begins to load the lines of the hot part that a search reads. `ONE` is the parameter of [`Line::prefetch_into`]. A single search waits
    /// for the lines, so it loads all children with the digests. Many searches load only the child that each of them takes
    /// ([`Node::prefetch_child`]).
    #[inline(always)]
    pub(crate) fn prefetch<const ONE: bool, S: Schema>(&self) {
        let lines = if ONE { hot_lines::<S>() } else { CHILDREN };
        self.hot.iter().take(lines).for_each(Line::prefetch_into::<ONE>);
    }

    /// Begins to load the child at a position.
    #[inline(always)]
    pub(crate) fn prefetch_child<S: Schema>(&self, i: usize) {
        if let Some(line) = self.children_low::<S>().get(i / 16) {
            line.prefetch();
        }
    }

    /// The child at a position.
    #[inline(always)]
    pub(crate) fn child<S: Schema>(&self, i: usize) -> u64 {
        let low = part::<32>(self.children_low::<S>(), i);
        if get(self.head(), 0) & WIDE == 0 { low } else { low | self.child_high::<S>(i) << 32 }
    }

    #[cold]
    fn child_high<S: Schema>(self, i: usize) -> u64 {
        part::<16>(self.children_high::<S>(), i)
    }

    fn set_child<S: Schema>(&self, i: usize, at: u64) {
        set_part::<32>(self.children_low::<S>(), i, at & u64::from(u32::MAX));
        set_part::<16>(self.children_high::<S>(), i, at >> 32);
        if at >> 32 != 0 {
            set(self.head(), 0, get(self.head(), 0) | WIDE);
        }
    }

    /// The separator at a position.
    fn bound<S: Schema>(&self, i: usize) -> u64 {
        part::<64>(self.bounds::<S>(), i)
    }

    #[inline(always)]
    fn digest<S: Schema>(&self, i: usize) -> u32 {
        let digests = self.digests();
        (if S::PLAIN { part::<16>(digests, i) } else { part::<32>(digests, i) }) as u32
    }

    fn set_digest<S: Schema>(&self, i: usize, digest: u32) {
        if S::PLAIN {
            set_part::<16>(self.digests(), i, u64::from(digest));
        } else {
            set_part::<32>(self.digests(), i, u64::from(digest));
        }
    }

    /// All children with their separators.
    pub(crate) fn children<S: Schema>(&self) -> Vec<Child> {
        (0..self.count::<S>()).map(|i| Child { bound: self.bound::<S>(i), at: self.child::<S>(i) }).collect()
    }

    /// The position of the child that holds a key; if `below` is set, of the child that holds the keys strictly below it.
    #[inline(always)]
    pub(crate) fn position<M: Medium, S: Schema>(
        &self,
        medium: &M,
        vectors: Option<Vectors>,
        key: &S::Key,
        below: bool,
    ) -> usize {
        let digest = if S::PLAIN {
            let base = get(self.head(), 2);
            let Some(distance) = S::plain(S::probe(key)).checked_sub(base) else { return 0 };
            let shift = (get(self.head(), 0) >> 32) as u32 % 64;
            (distance >> shift).min(u64::from(digest_max::<S>())) as u32
        } else {
            match digest::digest(|i| get(self.head(), 1 + i), S::key_bytes(key).as_ref()) {
                Ok(digest) => digest,
                Err(Order::Less) => return 0,
                Err(_) => return self.count::<S>().saturating_sub(1),
            }
        };
        let lines = self.digests();
        let up_to = match vectors {
            Some(vectors) if M::SHOWS_LINES && S::PLAIN => vectors.parts_up_to::<16>(lines, digest),
            Some(vectors) if M::SHOWS_LINES => vectors.parts_up_to::<32>(lines, digest),
            _ => (0..fanout::<S>()).filter(|i| self.digest::<S>(*i) <= digest).count(),
        };
        // No digest of a key is all ones, so none of the unused digests was counted.
        let mut i = up_to.saturating_sub(1);
        if i > 0 && self.digest::<S>(i) == digest {
            i = self.settle::<M, S>(medium, i, key, below);
        }
        i
    }

    /// The position at or before `i`, where separator `i` is the last one with the digest of the key. Apart from [`Node::position`], so that
    /// searches without ties keep their values in registers.
    #[inline(never)]
    fn settle<M: Medium, S: Schema>(self, medium: &M, i: usize, key: &S::Key, below: bool) -> usize {
        let digest = self.digest::<S>(i);
        if !self.is_above::<M, S>(medium, i, key, below) {
            return i;
        }
        // Keys of one structure of the server share a long prefix. Then the digests of many separators are equal. The separators are in order:
        // the last one that is not above the key is between `low`, which has a smaller digest or is not above, and `high`, which is above.
        let (mut low, mut high) = (i - 1, i);
        while low > 0 && self.digest::<S>(low) == digest {
            low -= 1;
        }
        while high - low > 1 {
            let middle = low.midpoint(high);
            if self.is_above::<M, S>(medium, middle, key, below) { high = middle } else { low = middle }
        }
        low
    }

    /// True if separator `i` is above a key, or equal to it if `below` is set.
    fn is_above<M: Medium, S: Schema>(&self, medium: &M, i: usize, key: &S::Key, below: bool) -> bool {
        let order = if S::PLAIN {
            self.bound::<S>(i).cmp(&S::plain(S::probe(key)))
        } else {
            record::compare_key(medium, self.bound::<S>(i), S::key_bytes(key).as_ref())
        };
        match order {
            Order::Greater => true,
            Order::Equal => below,
            Order::Less => false,
        }
    }

    /// Replaces all children. Only the writer calls this, between begin and end of a change of the directory.
    pub(crate) fn fill<M: Medium, S: Schema>(&self, medium: &M, children: &[Child]) {
        let digests = self.set_scale::<M, S>(medium, children);
        set(self.head(), 0, get(self.head(), 0) | children.len() as u64);
        for i in 0..fanout::<S>() {
            let child = children.get(i);
            let digest = match child {
                Some(_) if i == 0 => 0,
                // No separator is outside of the scale: the scale was chosen for all of them.
                Some(_) => digests.get(i - 1).copied().flatten().unwrap_or(digest_max::<S>()),
                None => unused::<S>(),
            };
            self.set_digest::<S>(i, digest);
            set_part::<64>(self.bounds::<S>(), i, child.map_or(0, |child| child.bound));
            self.set_child::<S>(i, child.map_or(0, |child| child.at));
        }
    }

    /// Chooses a scale for these children ([`digest::scale_of`]), and sets it. Word 0 has no number of children then. Returns the digests of
    /// all separators except the first.
    fn set_scale<M: Medium, S: Schema>(&self, medium: &M, children: &[Child]) -> Vec<Option<u32>> {
        let separators = children.get(1..).unwrap_or_default();
        if S::PLAIN {
            let (base, shift) = match separators {
                [first, .., last] => {
                    let bits = u64::BITS - (last.bound - first.bound).leading_zeros();
                    // Keys above the last separator get digests, too. One more bit leaves space for further separators.
                    (first.bound, (bits + 1).saturating_sub(16))
                }
                _ => (separators.first().map_or(0, |only| only.bound), 48),
            };
            set(self.head(), 0, u64::from(shift) << 32);
            set(self.head(), 2, base);
            return separators.iter().map(|child| self.digest_of_word::<S>(child.bound)).collect();
        }
        let keys = separators.iter().map(|child| {
            let mut key = Vec::new();
            record::read_key(medium, child.bound, &mut key);
            key
        });
        let keys: Vec<_> = keys.collect();
        let scale = digest::scale_of(&keys);
        set(self.head(), 0, 0);
        scale.iter().enumerate().for_each(|(i, word)| set(self.head(), 1 + i, *word));
        keys.iter().map(|key| digest::digest(|i| scale[i], key).ok()).collect()
    }

    /// The digest of a separator. `None` if it does not fit into the scale.
    fn digest_of<M: Medium, S: Schema>(&self, medium: &M, bound: u64) -> Option<u32> {
        if S::PLAIN {
            return self.digest_of_word::<S>(bound);
        }
        let mut key = Vec::new();
        record::read_key(medium, bound, &mut key);
        digest::digest(|i| get(self.head(), 1 + i), &key).ok()
    }

    fn digest_of_word<S: Schema>(&self, word: u64) -> Option<u32> {
        let shift = (get(self.head(), 0) >> 32) % 64;
        let digest = u32::try_from(word.checked_sub(get(self.head(), 2))? >> shift).ok();
        digest.filter(|digest| *digest <= digest_max::<S>())
    }

    /// Inserts a child at a position above 0. The node must have space for it.
    pub(crate) fn insert<M: Medium, S: Schema>(&self, medium: &M, i: usize, child: Child) {
        let count = self.count::<S>();
        // A node of one child has no separators, so its scale is arbitrary.
        let digest = if count > 1 { self.digest_of::<M, S>(medium, child.bound) } else { None };
        let Some(digest) = digest else {
            let mut children = self.children::<S>();
            children.insert(i, child);
            return self.fill::<M, S>(medium, &children);
        };
        if S::PLAIN {
            insert_part::<16>(self.digests(), (i, count), u64::from(digest));
        } else {
            insert_part::<32>(self.digests(), (i, count), u64::from(digest));
        }
        insert_part::<32>(self.children_low::<S>(), (i, count), child.at & u64::from(u32::MAX));
        insert_part::<16>(self.children_high::<S>(), (i, count), child.at >> 32);
        insert_part::<64>(self.bounds::<S>(), (i, count), child.bound);
        let wide = if child.at >> 32 != 0 { WIDE } else { 0 };
        set(self.head(), 0, (get(self.head(), 0) + 1) | wide);
    }

    /// Removes a child that is not the first one.
    pub(crate) fn remove<S: Schema>(&self, i: usize) {
        let count = self.count::<S>();
        if S::PLAIN {
            remove_part::<16>(self.digests(), (i, count));
        } else {
            remove_part::<32>(self.digests(), (i, count));
        }
        remove_part::<32>(self.children_low::<S>(), (i, count));
        remove_part::<16>(self.children_high::<S>(), (i, count));
        remove_part::<64>(self.bounds::<S>(), (i, count));
        set(self.head(), 0, get(self.head(), 0) - 1);
    }
}

/// An unused digest.
#[inline(always)]
const fn unused<S: Schema>() -> u32 {
    if S::PLAIN { u16::MAX as u32 } else { u32::MAX }
}

/// The greatest digest of a key or a separator.
#[inline(always)]
const fn digest_max<S: Schema>() -> u32 {
    unused::<S>() - 1
}

#[inline(always)]
fn get(line: &Line, word: usize) -> u64 {
    line.0[word % 8].load(Ordering::Relaxed)
}

#[inline(always)]
fn set(line: &Line, word: usize, value: u64) {
    line.0[word % 8].store(value, Ordering::Relaxed);
}

/// Number `i` in an array of numbers of `BITS` bits each.
#[inline(always)]
fn part<const BITS: usize>(lines: &[Line], i: usize) -> u64 {
    pmem::simd::part::<BITS>(lines, i % (lines.len() * (512 / BITS)))
}

fn set_part<const BITS: usize>(lines: &[Line], i: usize, value: u64) {
    let (at, shift) = (i * BITS / 64, i * BITS % 64);
    let others = word(lines, at) & !((u64::MAX >> (64 - BITS)) << shift);
    set_word(lines, at, others | value << shift);
}

/// Word `at` of an array. The array is followed by ones.
#[inline(always)]
fn word(lines: &[Line], at: usize) -> u64 {
    lines.get(at / 8).map_or(u64::MAX, |line| get(line, at))
}

#[inline(always)]
fn set_word(lines: &[Line], at: usize, value: u64) {
    if let Some(line) = lines.get(at / 8) {
        set(line, at, value);
    }
}

/// The lowest `bits` bits of a word, 0 to 64.
#[inline(always)]
fn lowest(bits: usize) -> u64 {
    if bits == 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Inserts a number at position `i` of an array that has `count` numbers of `BITS` bits each.
fn insert_part<const BITS: usize>(lines: &[Line], (i, count): (usize, usize), value: u64) {
    let (first, shift) = (i * BITS / 64, i * BITS % 64);
    let last = (count * BITS / 64).min(lines.len() * 8 - 1);
    let moved = |old: u64| old.checked_shl(BITS as u32).unwrap_or(0);
    let mut old = word(lines, last);
    for at in (first + 1..=last).rev() {
        let before = word(lines, at - 1);
        set_word(lines, at, moved(old) | before >> (64 - BITS));
        old = before;
    }
    let below = lowest(shift);
    set_word(lines, first, old & below | value << shift | moved(old & !below));
}

/// Removes the number at position `i` of an array that has `count` numbers of `BITS` bits each. The last place gets the number after it, or
/// all ones at the end of the array.
fn remove_part<const BITS: usize>(lines: &[Line], (i, count): (usize, usize)) {
    let (first, last) = (i * BITS / 64, (count - 1) * BITS / 64);
    let mut kept = lowest(i * BITS % 64);
    let mut old = word(lines, first);
    for at in first..=last {
        let after = word(lines, at + 1);
        let moved = old.checked_shr(BITS as u32).unwrap_or(0) | after << (64 - BITS);
        set_word(lines, at, old & kept | moved & !kept);
        (old, kept) = (after, 0);
    }
}

#[cfg(test)]
mod tests {
    use index::Words;
    use pmem::{Durability, Native};

    use super::*;

    /// Searches with and without vectors.
    fn position(node: &Node<'_>, medium: &Native, key: u64, below: bool) -> usize {
        let found = node.position::<Native, Words>(medium, None, &key, below);
        if let Some(vectors) = Vectors::of_processor() {
            assert_eq!(node.position::<Native, Words>(medium, Some(vectors), &key, below), found);
        }
        found
    }

    #[test]
    fn children_above_32_bits_and_separators_with_equal_digests_are_found() {
        let medium = Native::anonymous(1 << 20, Durability::Process).unwrap();
        let nodes = Nodes::new::<Words>(2);
        let node = nodes.get(1).unwrap();
        // The first separators are so close together that their digests are equal.
        let bounds: Vec<u64> =
            (0..fanout::<Words>() as u64).map(|i| if i < 20 { 1000 + i } else { i << 57 }).collect();
        let child = |i: usize| Child { bound: bounds[i], at: (i as u64) << (40 * (i % 2)) | 7 };
        node.fill::<Native, Words>(&medium, &[child(0), child(1)]);
        for i in 2..bounds.len() {
            node.insert::<Native, Words>(&medium, i, child(i));
        }
        assert_eq!(node.count::<Words>(), bounds.len());
        for (i, bound) in bounds.iter().enumerate().skip(1) {
            assert_eq!(position(&node, &medium, *bound, false), i);
            assert_eq!(position(&node, &medium, *bound, true), i - 1);
            assert_eq!(position(&node, &medium, bound - 1, false), i - 1);
            assert_eq!(node.child::<Words>(i), child(i).at);
        }
        assert_eq!(position(&node, &medium, u64::MAX, false), bounds.len() - 1);
        node.remove::<Words>(5);
        assert_eq!(position(&node, &medium, bounds[5], false), 4);
        let last = bounds.len() - 1;
        assert_eq!(position(&node, &medium, bounds[last], false), last - 1);
        assert_eq!(node.child::<Words>(last - 1), child(last).at);
        assert!(nodes.get(2).is_none());
    }

    /// Compares insertions and removals with those of a vector.
    fn parts_move_as_in_a_vector<const BITS: usize>() {
        let lines: Vec<Line> = (0..2).map(|_| Line::zero()).collect();
        let capacity = 2 * 512 / BITS;
        (0..16).for_each(|i| set(&lines[i / 8], i, u64::MAX));
        let (mut model, mut random) = (Vec::new(), fastrand::Rng::with_seed(BITS as u64));
        for step in 0..4 * capacity {
            let grows = if step < 2 * capacity { random.u8(..4) < 3 } else { random.u8(..4) == 0 };
            if grows && model.len() < capacity {
                let (i, value) = (random.usize(..=model.len()), random.u64(..) >> (64 - BITS));
                insert_part::<BITS>(&lines, (i, model.len()), value);
                model.insert(i, value);
            } else if !grows && !model.is_empty() {
                let i = random.usize(..model.len());
                remove_part::<BITS>(&lines, (i, model.len()));
                model.remove(i);
            }
            let all: Vec<u64> = (0..capacity).map(|i| part::<BITS>(&lines, i)).collect();
            assert_eq!(all[..model.len()], model);
            // Unused numbers stay all ones.
            assert!(all[model.len()..].iter().all(|unused| *unused == lowest(BITS)));
        }
    }

    #[test]
    fn parts_of_every_size_move_as_in_a_vector() {
        parts_move_as_in_a_vector::<16>();
        parts_move_as_in_a_vector::<32>();
        parts_move_as_in_a_vector::<64>();
    }
}
