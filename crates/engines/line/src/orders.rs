//! The key order of leaves with byte strings, kept in volatile memory for scans.
//!
//! The slots of a leaf have no order. To order byte strings, a scan reads their records. It keeps the order in a [`Kept`] line, so that later
//! scans of the leaf need not order them again. (64-bit keys are in the leaf itself, and each scan sorts them with vector
//! instructions.) A [`Kept`] line has 64 bytes of volatile memory, an eighth of the bytes of a leaf by default. The
//! lines for all leaves of a chunk are allocated together, by the first scan that wants to keep an order there and gets the writer's lock
//! without waiting. A scan that does not get the lock keeps nothing. An index that is never scanned has no such lines.
//!
//! A `Kept` line is one word of state and seven words of contents:
//!
//! ```text
//! first word of the contents   a bit for each slot of the order
//! the other six words          the slots in key order: ten numbers of 6 bits in each word
//! ```
//!
//! Invariants:
//! * W1: while the version of a leaf is not locked and its line holds an order, each slot of the order is used, and the
//!   keys of these slots ascend. The writer clears the line before it frees a slot of the leaf, and before it writes a new leaf at its
//!   address. An update or an insert does not clear it: an update keeps the key of its slot, and an insert takes a slot that is not in the
//!   order.
//! * W2: lines are allocated only by a thread that has the writer's lock; a scan takes it for this purpose. So a writer that finds no lines
//!   for a leaf knows that no reader can fill one before the writer unlocks.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use pmem::kept::{Kept, WORDS};

/// Bits of a slot's number.
const BITS: usize = 6;
/// Slots in a word.
const IN_WORD: usize = u64::BITS as usize / BITS;
/// Number of groups of chunks. Each group has twice as many chunks as the one before.
const GROUPS: usize = 40;

/// The order of a leaf's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order([u64; WORDS]);

impl Order {
    /// The order of these slots. `None` if there are none, or too many.
    pub(crate) fn new(slots: impl Iterator<Item = usize>) -> Option<Self> {
        let (mut words, mut slots) = ([0; WORDS], slots.fuse());
        let [mask, contents @ ..] = &mut words;
        for word in contents {
            for (place, slot) in slots.by_ref().take(IN_WORD).enumerate() {
                if slot >= 1 << BITS {
                    return None;
                }
                *mask |= 1 << slot;
                *word |= (slot as u64) << (place * BITS);
            }
        }
        (*mask != 0 && slots.next().is_none()).then_some(Self(words))
    }

    /// The order in a kept line's contents.
    pub(crate) fn of(words: [u64; WORDS]) -> Self {
        Self(words)
    }

    /// The contents for a kept line.
    pub(crate) fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    /// A bit for each slot.
    pub(crate) fn mask(&self) -> u64 {
        self.0[0]
    }

    /// The slots in key order.
    #[inline(always)]
    pub(crate) fn slots(&self) -> impl Iterator<Item = usize> {
        let of_word = |word: &u64| {
            let word = *word;
            (0..IN_WORD).map(move |place| (word >> (place * BITS)) as usize % (1 << BITS))
        };
        self.0[1..].iter().flat_map(of_word).take(self.0[0].count_ones() as usize)
    }
}

/// The kept lines of a chunk's leaves.
type Lines = OnceLock<Box<[Kept]>>;

/// The kept orders of an index. See the module's head.
#[derive(Debug)]
pub(crate) struct Orders {
    groups: [OnceLock<Box<[Lines]>>; GROUPS],
    /// The binary logarithm of the bytes of a chunk.
    chunk_bits: u32,
    leaf_bytes: u64,
    /// Number of chunks that have lines.
    chunks: AtomicU64,
}

impl Orders {
    /// No orders yet, for chunks of `chunk_bytes` bytes, a power of two, and leaves of `leaf_bytes` bytes.
    pub(crate) fn new(chunk_bytes: u64, leaf_bytes: u64) -> Self {
        let groups = [const { OnceLock::new() }; GROUPS];
        Self { groups, chunk_bits: chunk_bytes.ilog2(), leaf_bytes, chunks: AtomicU64::new(0) }
    }

    /// The group of a chunk, and the chunk's position in it.
    fn place(&self, leaf: u64) -> (usize, usize) {
        let number = (leaf >> self.chunk_bits) + 1;
        let group = number.ilog2();
        (group as usize, (number - (1 << group)) as usize)
    }

    /// The kept line of a leaf. `None` if it is not allocated. Two leaves of a chunk are at least a leaf apart, so they have different
    /// lines.
    #[inline(always)]
    pub(crate) fn of(&self, leaf: u64) -> Option<&Kept> {
        let (group, chunk) = self.place(leaf);
        let lines = self.groups.get(group)?.get()?.get(chunk)?.get()?;
        lines.get(((leaf & self.chunk_mask()) / self.leaf_bytes) as usize)
    }

    /// Allocates the lines of a leaf's chunk. The caller has the writer's lock (W2), and `leaf` is the address of a leaf.
    #[cold]
    pub(crate) fn allocate(&self, leaf: u64) {
        let (group, chunk) = self.place(leaf);
        let Some(chunks) = self.groups.get(group) else { return };
        let chunks = chunks.get_or_init(|| (0..1_u64 << group).map(|_| Lines::new()).collect());
        let Some(lines) = chunks.get(chunk) else { return };
        lines.get_or_init(|| {
            self.chunks.fetch_add(1, Ordering::Relaxed);
            (0..self.lines_of_chunk()).map(|_| Kept::default()).collect()
        });
    }

    fn chunk_mask(&self) -> u64 {
        (1 << self.chunk_bits) - 1
    }

    fn lines_of_chunk(&self) -> u64 {
        (self.chunk_mask() + 1).div_ceil(self.leaf_bytes)
    }

    /// Begins to load the line of a leaf.
    #[inline(always)]
    pub(crate) fn prefetch(&self, leaf: u64) {
        if let Some(line) = self.of(leaf) {
            line.prefetch();
        }
    }

    /// Writer: forgets the order of a leaf (W1). The version of the leaf is locked.
    #[inline(always)]
    pub(crate) fn clear(&self, leaf: u64) {
        if let Some(line) = self.of(leaf) {
            line.clear();
        }
    }

    /// Writer: forgets all orders. All versions are locked.
    pub(crate) fn clear_all(&self) {
        let chunks = self.groups.iter().filter_map(OnceLock::get).flatten();
        chunks.filter_map(OnceLock::get).flatten().for_each(Kept::clear);
    }

    /// Bytes of the lines.
    pub(crate) fn memory(&self) -> u64 {
        self.chunks.load(Ordering::Relaxed) * self.lines_of_chunk() * size_of::<Kept>() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maximum number of slots of an order.
    const SLOTS_MAX: usize = IN_WORD * (WORDS - 1);

    #[test]
    fn an_order_returns_its_slots() {
        let mut random = fastrand::Rng::with_seed(5);
        for count in 1..=SLOTS_MAX {
            let mut slots: Vec<usize> = (0..SLOTS_MAX).collect();
            random.shuffle(&mut slots);
            slots.truncate(count);
            let order = Order::new(slots.iter().copied()).unwrap();
            assert!(order.slots().eq(slots.iter().copied()));
            assert_eq!(order.mask(), slots.iter().fold(0, |mask, slot| mask | 1 << slot));
        }
        assert_eq!(Order::new(std::iter::empty()), None);
        assert_eq!(Order::new(0..=SLOTS_MAX), None);
        assert_eq!(Order::new(std::iter::once(64)), None);
    }

    #[test]
    fn every_leaf_has_a_line_of_its_own_after_a_scan_of_its_chunk() {
        let orders = Orders::new(4096, 512);
        let leaves = [0, 192, 704, 1216, 3584, 4096 + 64, 4096 * 9, 4096 * 1000 + 512];
        for leaf in leaves {
            assert!(leaf < 4096 && leaf != 0 || orders.of(leaf).is_none());
            orders.allocate(leaf);
        }
        let lines: std::collections::BTreeSet<_> =
            leaves.iter().map(|leaf| std::ptr::from_ref(orders.of(*leaf).unwrap())).collect();
        assert_eq!(lines.len(), leaves.len() - 1, "0 and 192 are less than a leaf apart");
        assert_eq!(orders.memory(), 4 * 8 * 64);
        let fill = |leaf: u64| orders.of(leaf).unwrap().fill(&[leaf; WORDS], || true);
        leaves.iter().for_each(|leaf| fill(*leaf));
        orders.clear(704);
        assert_eq!(orders.of(704).unwrap().read(), None);
        assert_eq!(orders.of(1216).unwrap().read(), Some([1216; WORDS]));
        orders.clear_all();
        assert!(leaves.iter().all(|leaf| orders.of(*leaf).unwrap().read().is_none()));
    }
}
