//! Search in a sorted array.

use crate::pool::{Array, Space, array_bytes};

/// Parts that an array is divided into at a time.
const PARTS: usize = 8;
/// Bytes of so few items that they are counted one by one.
const FEW: usize = 320;
/// Items of an array that share a sample: numbers of that many are a line.
pub(crate) const SHARE: usize = 8;
/// Bytes of a line: arrays begin with one.
pub(crate) const LINE: usize = 64;

/// A part of an array with the end of the items that `is_left` is true for in it or at its end: where it begins, and how many items it
/// has. What is compared does not depend on each other, so the processor waits for all lines of a round at once.
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

/// How many of the items `is_left` is true for: those at the beginning. Without branches: which way it goes is anybody's guess.
#[inline(always)]
pub(crate) fn partition<T>(items: &[T], is_left: impl Fn(&T) -> bool) -> usize {
    let (from, count) = narrow(items, &is_left);
    from + items[from..from + count].iter().map(|item| usize::from(is_left(item))).sum::<usize>()
}

/// Of a sorted array of numbers the last of each [`SHARE`], by themselves: a search counts in them, and then goes to one line of the array.
#[derive(Debug)]
pub(crate) struct Samples(Array<u64>);

impl Samples {
    /// Bytes that those of so many items take.
    pub(crate) const fn bytes(count: usize) -> usize {
        array_bytes::<u64>(count / SHARE, LINE)
    }

    /// Those of `count` items at most, which are still to be written.
    pub(crate) fn draft(space: &mut Space, count: usize) -> crate::pool::Draft<u64> {
        space.array(count / SHARE, LINE)
    }

    /// Those of these items.
    pub(crate) fn done<T>(
        mut draft: crate::pool::Draft<u64>,
        items: &[T],
        number: impl Fn(&T) -> u64,
    ) -> Self {
        items.chunks_exact(SHARE).for_each(|items| draft.push(number(&items[SHARE - 1])));
        Self(draft.done())
    }

    /// Where the items begin among which, or behind which, those end that `is_left` is true for; at most [`SHARE`] of them are.
    #[inline(always)]
    pub(crate) fn share(&self, is_left: impl Fn(&u64) -> bool) -> usize {
        partition(&self.0, is_left) * SHARE
    }
}

/// Has an item of an array read, of which or of whose neighbours one will be wanted: its line is on its way meanwhile.
#[inline(always)]
pub(crate) fn beckon<T: Copy>(items: &[T], i: usize) {
    std::hint::black_box(items.get(i).copied());
}

/// How many items of a share `is_left` is true for.
#[inline(always)]
pub(crate) fn count_left<T>(items: &[T], from: usize, is_left: impl Fn(&T) -> bool) -> usize {
    let end = items.len().min(from + SHARE);
    items[from..end].iter().map(|item| usize::from(is_left(item))).sum()
}
