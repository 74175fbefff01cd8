//! An inner node: separators and children, in volatile memory.
//!
//! ```text
//! line 0      word 0 number of children, and the shift in the upper half
//!             byte strings: word 1 length of the prefix   2..8 the prefix, padded with zeros
//!             64-bit keys:  word 2 base of the halves
//! lines 1..5  halves: 32 bits for each separator, ascending; half 0 is 0, unused halves are all ones
//! then        the children, then the separators: key words as in [`index::leaf_list::bound`]
//! ```
//!
//! Separator `i` is the lower bound of child `i`. Its *half* is a number of 32 bits. If two halves differ, they compare as their separators
//! do. If they are equal, a search compares the separators.
//!
//! With byte strings, all separators except for separator 0 begin with the node's prefix. A half is the four bytes after the prefix. With
//! 64-bit keys, a half is the separator minus the base, shifted to the right. The base is at most separator 1.
//!
//! A search reads line 0 and all halves, and then one child. The addresses of line 0 and the halves do not depend on each other, so their
//! cache misses overlap.
//!
//! Invariants:
//! * N1: the halves ascend, and separators with equal halves ascend.
//! * N2: child 0 holds all keys of the node below separator 1, whatever its own half is.

use std::cmp::Ordering as Order;

use index::Schema;
use index::leaf_list::bound::leading;
use pmem::simd::Vectors;
use pmem::sync::Ordering;
use pmem::{Line, Medium, record};

/// Most children of a node.
pub(crate) const FANOUT: usize = 64;
/// Lines of halves.
const HALF_LINES: usize = FANOUT / 16;
/// Words of a prefix.
const PREFIX_WORDS: usize = 6;
/// Most bytes of a prefix.
const PREFIX_MAX: usize = PREFIX_WORDS * 8;

/// A child with its separator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child {
    /// The separator: a key word. 0 for the first leaf.
    pub bound: u64,
    /// A leaf's address, or a node's number.
    pub at: u64,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Node {
    head: Line,
    halves: [Line; HALF_LINES],
    children: [Line; FANOUT / 8],
    bounds: [Line; FANOUT / 8],
}

/// How keys become halves.
#[derive(Clone, Debug)]
enum Scale {
    /// The distance from `first`, shifted to the right.
    Words { first: u64, shift: u32 },
    /// The four bytes after a prefix.
    Bytes(Vec<u8>),
}

impl Node {
    /// A node without children.
    pub(crate) const fn new() -> Self {
        Self {
            head: Line::zero(),
            halves: [const { Line::zero() }; HALF_LINES],
            children: [const { Line::zero() }; FANOUT / 8],
            bounds: [const { Line::zero() }; FANOUT / 8],
        }
    }

    /// Number of children.
    #[inline(always)]
    pub(crate) fn count(&self) -> usize {
        (get(&self.head, 0) as u32 as usize).min(FANOUT)
    }

    /// Begins to load all lines that a search may read.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        self.head.prefetch();
        self.halves.iter().for_each(Line::prefetch);
        self.children.iter().for_each(Line::prefetch);
    }

    /// The child at a position.
    #[inline(always)]
    pub(crate) fn child(&self, i: usize) -> u64 {
        get(&self.children[i / 8 % 8], i % 8)
    }

    /// The separator at a position.
    fn bound(&self, i: usize) -> u64 {
        get(&self.bounds[i / 8 % 8], i % 8)
    }

    #[inline(always)]
    fn half(&self, i: usize) -> u32 {
        (get(&self.halves[i / 16 % HALF_LINES], i / 2 % 8) >> (32 * (i % 2))) as u32
    }

    fn set_half(&self, i: usize, half: u32) {
        let (line, shift) = (&self.halves[i / 16 % HALF_LINES], 32 * (i % 2));
        let other = get(line, i / 2 % 8) & !(u64::from(u32::MAX) << shift);
        set(line, i / 2 % 8, other | u64::from(half) << shift);
    }

    /// All children with their separators.
    pub(crate) fn children(&self) -> Vec<Child> {
        (0..self.count()).map(|i| Child { bound: self.bound(i), at: self.child(i) }).collect()
    }

    /// The position of the child that holds a key, or of the child that holds the keys strictly below it.
    #[inline(always)]
    pub(crate) fn position<M: Medium, S: Schema>(
        &self,
        medium: &M,
        vectors: Option<Vectors>,
        key: &S::Key,
        below: bool,
    ) -> usize {
        let half = if S::PLAIN {
            let Some(distance) = S::plain(S::probe(key)).checked_sub(get(&self.head, 2)) else { return 0 };
            let shift = (get(&self.head, 0) >> 32) as u32 % 64;
            u32::try_from(distance >> shift).unwrap_or(u32::MAX)
        } else {
            match self.after_prefix(S::key_bytes(key).as_ref()) {
                Ok(half) => half,
                Err(Order::Less) => return 0,
                Err(_) => return self.count().saturating_sub(1),
            }
        };
        let up_to = match vectors {
            Some(vectors) if M::SHOWS_LINES => vectors.halves_up_to(&self.halves, half),
            _ => (0..FANOUT).filter(|i| self.half(*i) <= half).count(),
        };
        let mut i = up_to.min(self.count()).saturating_sub(1);
        while i > 0 && self.half(i) == half && self.is_above::<M, S>(medium, i, key, below) {
            i -= 1;
        }
        i
    }

    /// True if separator `i` is above a key, or equal to it if `below` is set.
    #[inline(never)]
    fn is_above<M: Medium, S: Schema>(&self, medium: &M, i: usize, key: &S::Key, below: bool) -> bool {
        let order = if S::PLAIN {
            self.bound(i).cmp(&S::plain(S::probe(key)))
        } else {
            record::compare_key(medium, self.bound(i), S::key_bytes(key).as_ref())
        };
        match order {
            Order::Greater => true,
            Order::Equal => below,
            Order::Less => false,
        }
    }

    /// The four bytes of a key after the prefix, or how the key compares with the prefix.
    #[inline(always)]
    fn after_prefix(&self, key: &[u8]) -> Result<u32, Order> {
        let bytes = (get(&self.head, 1) as usize).min(PREFIX_MAX);
        let (mut rest, mut left) = (key, bytes);
        for i in 0..PREFIX_WORDS {
            if left == 0 {
                break;
            }
            let mine = get(&self.head, 2 + i % PREFIX_WORDS);
            let taken = left.min(8);
            let theirs = leading(rest) & u64::MAX << (64 - 8 * taken);
            if theirs != mine {
                return Err(theirs.cmp(&mine));
            }
            rest = &rest[rest.len().min(taken)..];
            left -= taken;
        }
        Ok(first_four(rest))
    }

    /// Replaces all children. The writer, between begin and end of a change of the directory.
    pub(crate) fn fill<M: Medium, S: Schema>(&self, medium: &M, children: &[Child]) {
        let scale = scale_of::<M, S>(medium, children);
        let (shift, length) = match &scale {
            Scale::Words { first, shift } => {
                set(&self.head, 2, *first);
                (*shift, 0)
            }
            Scale::Bytes(prefix) => {
                let words = (0..PREFIX_WORDS).map(|i| leading(prefix.get(8 * i..).unwrap_or_default()));
                words.enumerate().for_each(|(i, word)| set(&self.head, 2 + i, word));
                (0, prefix.len())
            }
        };
        set(&self.head, 0, children.len() as u64 | u64::from(shift) << 32);
        set(&self.head, 1, length as u64);
        for i in 0..FANOUT {
            let child = children.get(i);
            let half = match child {
                Some(_) if i == 0 => 0,
                // A separator outside of the scale does not occur: the scale was chosen for all of them.
                Some(child) => scale.half::<M>(medium, child.bound).unwrap_or(u32::MAX),
                None => u32::MAX,
            };
            self.set_half(i, half);
            set(&self.bounds[i / 8], i % 8, child.map_or(0, |child| child.bound));
            set(&self.children[i / 8], i % 8, child.map_or(0, |child| child.at));
        }
    }

    /// Inserts a child at a position above 0. There is space for it.
    pub(crate) fn insert<M: Medium, S: Schema>(&self, medium: &M, i: usize, child: Child) {
        let count = self.count();
        // A node of one child has no separators, so its scale is arbitrary.
        let half = if count > 1 { self.scale::<S>().half::<M>(medium, child.bound) } else { None };
        let Some(half) = half else {
            let mut children = self.children();
            children.insert(i, child);
            return self.fill::<M, S>(medium, &children);
        };
        for to in (i + 1..=count).rev() {
            self.shift(to - 1, to);
        }
        self.set_half(i, half);
        set(&self.bounds[i / 8], i % 8, child.bound);
        set(&self.children[i / 8], i % 8, child.at);
        set(&self.head, 0, get(&self.head, 0) + 1);
    }

    /// Removes a child, not the first one.
    pub(crate) fn remove(&self, i: usize) {
        let count = self.count();
        for from in i + 1..count {
            self.shift(from, from - 1);
        }
        self.set_half(count - 1, u32::MAX);
        set(&self.head, 0, get(&self.head, 0) - 1);
    }

    fn shift(&self, from: usize, to: usize) {
        self.set_half(to, self.half(from));
        for lines in [&self.bounds, &self.children] {
            set(&lines[to / 8], to % 8, get(&lines[from / 8], from % 8));
        }
    }

    /// The scale of the halves.
    fn scale<S: Schema>(&self) -> Scale {
        if S::PLAIN {
            return Scale::Words { first: get(&self.head, 2), shift: (get(&self.head, 0) >> 32) as u32 };
        }
        let mut prefix: Vec<u8> =
            (2..2 + PREFIX_WORDS).flat_map(|i| get(&self.head, i).to_be_bytes()).collect();
        prefix.truncate(get(&self.head, 1) as usize);
        Scale::Bytes(prefix)
    }
}

impl Scale {
    /// The half of a separator. `None` if it does not fit into the scale.
    fn half<M: Medium>(&self, medium: &M, bound: u64) -> Option<u32> {
        match self {
            Self::Words { first, shift } => u32::try_from(bound.checked_sub(*first)? >> shift).ok(),
            Self::Bytes(prefix) => {
                let mut key = Vec::new();
                record::read_key(medium, bound, &mut key);
                key.strip_prefix(prefix.as_slice()).map(first_four)
            }
        }
    }
}

/// The scale with the finest halves of all separators but the first.
fn scale_of<M: Medium, S: Schema>(medium: &M, children: &[Child]) -> Scale {
    let [_, second, .., last] = children else {
        let only = children.get(1).map_or(0, |child| child.bound);
        return if S::PLAIN { Scale::Words { first: only, shift: 32 } } else { Scale::Bytes(Vec::new()) };
    };
    if S::PLAIN {
        let bits = u64::BITS - (last.bound - second.bound).leading_zeros();
        // Keys above the last separator get halves, too. One more bit leaves space for further separators.
        return Scale::Words { first: second.bound, shift: (bits + 1).saturating_sub(32) };
    }
    let (mut prefix, mut greatest) = (Vec::new(), Vec::new());
    record::read_key(medium, second.bound, &mut prefix);
    record::read_key(medium, last.bound, &mut greatest);
    let common = prefix.iter().zip(&greatest).take_while(|(a, b)| a == b).count();
    prefix.truncate(common.min(PREFIX_MAX));
    Scale::Bytes(prefix)
}

/// The first four bytes as a big-endian number, padded with zeros.
#[inline(always)]
fn first_four(bytes: &[u8]) -> u32 {
    (leading(bytes) >> 32) as u32
}

#[inline(always)]
fn get(line: &Line, word: usize) -> u64 {
    line.0[word % 8].load(Ordering::Relaxed)
}

#[inline(always)]
fn set(line: &Line, word: usize, value: u64) {
    line.0[word % 8].store(value, Ordering::Relaxed);
}
