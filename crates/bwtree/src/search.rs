//! Search in a sorted array.

/// Parts that an array is divided into at a time.
const PARTS: usize = 8;
/// Bytes of so few items that they are counted one by one.
const FEW: usize = 320;

/// A part of an array with the end of the items that `is_left` is true for in it or at its end: where it begins, and how many items it
/// has. What is compared does not depend on each other, so the processor waits for all lines of a round at once.
#[inline(always)]
pub(crate) fn narrow<T>(items: &[T], is_left: &impl Fn(&T) -> bool) -> (usize, usize) {
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
