//! Search in sorted arrays, without unpredictable branches.

use crate::pool::{Array, Space, array_bytes};

/// Number of parts into which one round divides an array.
const PARTS: usize = 8;
/// An array of at most this many bytes is searched by counting all its items.
const FEW: usize = 320;
/// Number of items with one sample. Eight 64-bit numbers are one cache line.
pub(crate) const SHARE: usize = 8;
/// Bytes of a cache line. Arrays begin at a line.
pub(crate) const LINE: usize = 64;

/// Narrows a search to a part of the array. Returns the first index of the part and its number of items. The first item for which `is_left`
/// is false is in this part or directly after it. The comparisons of a round are independent, so the processor loads all their lines at
/// once.
#[inline(always)]
fn narrow<T>(items: &[T], is_left: &impl Fn(&T) -> bool) -> (usize, usize) {
    const { assert!(size_of::<T>() * PARTS <= FEW) };
    let (mut from, mut count) = (0, items.len());
    while count * size_of::<T>() > FEW {
        let part = count / PARTS;
        let of = &items[from..from + count];
        let left: usize = (1..PARTS).map(|i| usize::from(is_left(&of[i * part - 1]))).sum();
        from += left * part;
        count = if left == PARTS - 1 { count - left * part } else { part };
    }
    (from, count)
}

/// The number of items for which `is_left` is true; these come first. It does not branch on the items, because such branches are
/// unpredictable.
#[inline(always)]
pub(crate) fn partition<T>(items: &[T], is_left: impl Fn(&T) -> bool) -> usize {
    let (from, count) = narrow(items, &is_left);
    from + items[from..from + count].iter().map(|item| usize::from(is_left(item))).sum::<usize>()
}

/// The samples of a sorted array of numbers: the last of each [`SHARE`] items. A search counts in the samples, then reads one line of the
/// array.
#[derive(Debug)]
pub(crate) struct Samples(Array<u64>);

impl Samples {
    /// Maximum bytes of the samples of `count` items.
    pub(crate) const fn bytes(count: usize) -> usize {
        array_bytes::<u64>(count / SHARE, LINE)
    }

    /// Reserves space for the samples of at most `count` items.
    pub(crate) fn draft(space: &mut Space, count: usize) -> crate::pool::Draft<u64> {
        space.array(count / SHARE, LINE)
    }

    /// Makes the samples of these items.
    pub(crate) fn done<T>(
        mut draft: crate::pool::Draft<u64>,
        items: &[T],
        number: impl Fn(&T) -> u64,
    ) -> Self {
        items.chunks_exact(SHARE).for_each(|items| draft.push(number(&items[SHARE - 1])));
        Self(draft.done())
    }

    /// The first index of a share. `is_left` is true for all items before this index, and for at most [`SHARE`] items from this index on.
    #[inline(always)]
    pub(crate) fn share(&self, is_left: impl Fn(&u64) -> bool) -> usize {
        partition(&self.0, is_left) * SHARE
    }
}

/// Begins to load an item that will be needed soon, or a neighbour in its line.
#[inline(always)]
pub(crate) fn beckon<T: Copy>(items: &[T], i: usize) {
    std::hint::black_box(items.get(i).copied());
}

/// The number of items for which `is_left` is true, among the [`SHARE`] items from index `from` on.
#[inline(always)]
pub(crate) fn count_left<T>(items: &[T], from: usize, is_left: impl Fn(&T) -> bool) -> usize {
    let end = items.len().min(from + SHARE);
    items[from..end].iter().map(|item| usize::from(is_left(item))).sum()
}
