//! Sorting of pairs by their first part.
//!
//! A closure in generic code has its own type in each engine. The standard library's sort is compiled for each type of
//! closure and takes about 20 KB of code each time. The functions here are compiled once for each type of pairs.

/// Sorts by the first part. Pairs with equal first parts keep their order. O(n log n).
pub fn sort_by_first<K: Ord, V>(pairs: &mut [(K, V)]) {
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
}

/// Sorts by the first part. Pairs with equal first parts may change places. O(n log n).
pub fn sort_unstable_by_first<K: Ord, V>(pairs: &mut [(K, V)]) {
    pairs.sort_unstable_by(|a, b| a.0.cmp(&b.0));
}
