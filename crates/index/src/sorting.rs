//! Sorting of pairs by their first part.
//!
//! A closure in generic code is a type of its own for each engine, and the standard library's sort is compiled for each such type: some 20 KB each.
//! These are compiled once for each type of pairs.

/// Sorts by the first part; pairs with the same one keep their order.
pub fn sort_by_first<K: Ord, V>(pairs: &mut [(K, V)]) {
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
}

/// The same, and pairs with the same first part may change places.
pub fn sort_unstable_by_first<K: Ord, V>(pairs: &mut [(K, V)]) {
    pairs.sort_unstable_by(|a, b| a.0.cmp(&b.0));
}
