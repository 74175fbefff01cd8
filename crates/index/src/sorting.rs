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

/// Sorts writes by their keys. If a key has several writes, the last one stays. O(n log n), and O(n) if the keys are in order.
pub fn last_of_each<K: Ord, W>(mut writes: Vec<(K, W)>) -> Vec<(K, W)> {
    sort_by_first(&mut writes); // stable: writes of one key keep their order
    writes.dedup_by(|later, earlier| {
        let is_same = later.0 == earlier.0;
        if is_same {
            std::mem::swap(later, earlier);
        }
        is_same
    });
    writes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_writes_of_a_key_the_last_counts() {
        let writes = vec![(2, Some(1)), (1, Some(1)), (2, None), (1, Some(3)), (2, Some(4))];
        assert_eq!(last_of_each(writes), [(1, Some(3)), (2, Some(4))]);
    }
}
