//! Exact costs of changes: words stored, lines flushed and fences. The expected counts follow from the commit protocols of changes inside a
//! leaf and of the replacement of leaves (module `replace`):
//!
//! * insert or update of a word: the entry's two words and the count; the entry's line and the header's, with a fence after each. In the
//!   public implementation of the NV-Tree an insert has 4.0 flushes and 2.1 fences;
//! * delete: the key of the negative entry, the word of its sign, the count; two lines, two fences. In a full leaf: only the sign;
//! * split of N live entries: two headers of 8 words, all entries, the link; a line for each four entries, two headers, the link; a fence
//!   after the new leaves and one after the link. The allocator stores one intent and one bit for each of three blocks. Each costs one
//!   word, and one line unless several are in the same line. They have no fences of their own.

use std::sync::Arc;

use crate::common::{Sample, memory};
use index::leaf_list::prelude::*;
use index::{Fixed, Keyed, Words, Write, WriteOptions};
use nvtree::{NvTree, Options};
use pmem::observed::{Category, Counts};
use pmem::{Counter, Durability, Fence, LINE, Observed, WORD};

/// Number of entries of a leaf of one page.
const N: u64 = 252;
const HEADER_WORDS: u64 = LINE / WORD;
const APPEND: [(Fence, u64); 2] = [(Fence::Payload, 1), (Fence::Commit, 1)];

fn counted<S: Sample>() -> (NvTree<Observed, S>, Arc<Counter>) {
    let (medium, counter) = memory(64 << 20);
    let production = Options::new(64, Durability::Power);
    let index = NvTree::create(medium, &Options { payload_words: S::PAYLOAD_WORDS, ..production });
    (index.unwrap(), counter)
}

/// The cost of one operation.
fn cost(counter: &Counter, operation: impl FnOnce()) -> Counts {
    counter.take();
    operation();
    counter.take()
}

/// Key number `n`, in a mixed order.
fn key(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}

#[track_caller]
fn assert_costs(seen: &Counts, words: u64, flushes: u64, fences: &[(Fence, u64)], what: &str) {
    assert_eq!((seen.words, seen.flushes), (words, flushes), "{what}: {seen:?}");
    let seen: Vec<_> = seen.fences.iter().map(|(why, count)| (*why, *count)).collect();
    let mut fences = fences.to_vec();
    fences.sort_unstable();
    assert_eq!(seen, fences, "{what}");
}

#[test]
fn an_append_is_three_words_two_lines_and_two_fences() {
    let (index, counter) = counted::<Words>();
    for n in 0..N / 2 {
        let seen = cost(&counter, || assert!(!index.put(&key(n), &n).unwrap()));
        assert_costs(&seen, 3, 2, &APPEND, "insert");
    }
    for n in 0..N / 4 {
        let seen = cost(&counter, || assert!(index.put(&key(n), &(n + 1)).unwrap()));
        assert_costs(&seen, 3, 2, &APPEND, "update");
    }
    for n in 0..N / 4 {
        let seen = cost(&counter, || assert!(index.delete(&key(n)).unwrap()));
        if n + 1 < N / 4 {
            assert_costs(&seen, 3, 2, &APPEND, "delete");
        } else {
            // The insert filled the leaf, which is replaced: its header and 63 entries, the link; intents and bits of two blocks.
            let live = N / 4;
            assert_eq!(seen.part(Category::Node).words, 3 + HEADER_WORDS + 2 * live + 1, "{seen:?}");
            assert_eq!(seen.part(Category::Node).flushes, 2 + 1 + live.div_ceil(4) + 1, "{seen:?}");
            assert_eq!(seen.fences_total(), 4);
        }
    }
    assert_eq!((index.check().nodes, index.len()), (1, N / 4));
}

#[test]
fn a_delete_in_a_full_leaf_is_one_word_and_needs_no_space() {
    let (index, counter) = counted::<Words>();
    (0..N).for_each(|n| assert!(!index.put(&key(n), &n).unwrap()));
    for n in 0..N / 2 - 1 {
        let seen = cost(&counter, || assert!(index.delete(&key(n)).unwrap()));
        assert_costs(&seen, 1, 1, &[(Fence::Commit, 1)], "delete in a full leaf");
        assert_eq!(seen.part(Category::Allocation).words, 0);
    }
    assert_eq!((index.check().problems.len(), index.len()), (0, N / 2 + 1));
}

#[test]
fn a_split_is_all_entries_and_two_headers_and_two_fences() {
    let (index, counter) = counted::<Words>();
    let mut splits = 0;
    for n in 0..40 * N {
        let before = index.paths().leaves;
        let seen = cost(&counter, || assert!(!index.put(&key(n), &n).unwrap()));
        if index.paths().leaves == before {
            assert_costs(&seen, 3, 2, &APPEND, "insert");
            continue;
        }
        splits += 1;
        let of_nodes = seen.part(Category::Node);
        if of_nodes.words == HEADER_WORDS + 2 + 1 {
            continue; // a key above all
        }
        assert_eq!(of_nodes.words, 2 * HEADER_WORDS + 2 * N + 1 + 3, "{seen:?}");
        assert_eq!(of_nodes.flushes, 2 + 2 * (N / 2).div_ceil(4) + 1 + 2, "{seen:?}");
        let allocation = seen.part(Category::Allocation);
        if allocation.words > 6 {
            continue; // a chunk was opened
        }
        assert_eq!(seen.fences_total(), 2 + 2, "{seen:?}");
    }
    println!("{splits} splits");
    assert!(splits >= 60, "{splits} splits");
}

/// Keys in ascending order leave full leaves. A new leaf starts with its first key.
#[test]
fn a_key_above_all_begins_a_leaf_for_two_fences() {
    let (index, counter) = counted::<Words>();
    let mut begun = 0;
    for n in 1..=20 * N {
        let before = index.paths().leaves;
        let seen = cost(&counter, || assert!(!index.put(&(n << 32), &n).unwrap()));
        assert_eq!(seen.fences_total(), 2, "{seen:?}");
        if index.paths().leaves != before {
            begun += 1;
            assert_eq!(seen.part(Category::Node).words, HEADER_WORDS + 2 + 1);
        }
    }
    assert_eq!(begun, 19);
}

#[test]
fn a_wide_value_is_an_append_of_its_words() {
    let (index, counter) = counted::<Fixed>();
    let entry = 1 + Fixed::PAYLOAD_WORDS as u64;
    for n in 0..40 {
        // Entries of 32 bytes never cross a line.
        let seen = cost(&counter, || assert!(!index.put(&key(n), &Fixed::value(n as u32)).unwrap()));
        assert_costs(&seen, entry + 1, 2, &APPEND, "insert");
        let seen = cost(&counter, || assert!(index.put(&key(n), &Fixed::value(n as u32 + 7)).unwrap()));
        assert_costs(&seen, entry + 1, 2, &APPEND, "update");
        let seen = cost(&counter, || assert!(index.delete(&key(n)).unwrap()));
        assert_costs(&seen, 3, 2, &APPEND, "delete");
    }
}

/// An update of byte strings stores two entries under one count, with two fences.
#[test]
fn byte_strings_cost_a_record_besides_and_no_fence() {
    let (index, counter) = counted::<Keyed>();
    index.put(&Keyed::key(1), &Keyed::value(1)).unwrap();
    for n in 2..50 {
        let seen = cost(&counter, || assert!(!index.put(&Keyed::key(n), &Keyed::value(1)).unwrap()));
        let records = seen.part(Category::Record);
        // Head, checksum, 9 bytes of key, 4 of value. An allocated block costs an intent and a bit.
        assert_eq!(records.words, 5);
        assert_costs(&seen, 3 + 5 + 2, 2 + 2 + records.flushes, &APPEND, "insert");
        let seen = cost(&counter, || assert!(index.put(&Keyed::key(n), &Keyed::value(2)).unwrap()));
        // The number of the removed entry, and its sign. Both entries are in one line or in two.
        let lines = seen.part(Category::Node).flushes;
        assert!((2..=3).contains(&lines), "{seen:?}");
        assert_costs(
            &seen,
            3 + 2 + 5 + 4,
            lines + 4 + seen.part(Category::Record).flushes,
            &APPEND,
            "update",
        );
        let seen = cost(&counter, || assert!(index.delete(&Keyed::key(n)).unwrap()));
        assert_costs(&seen, 3 + 2, 2 + 2, &APPEND, "delete");
    }
}

/// A write group: an entry and a count per write; one fence after all entries, one after all counts.
#[test]
fn writes_of_different_leaves_share_two_fences() {
    let (index, counter) = counted::<Words>();
    (0..40 * N).for_each(|n| assert!(!index.put(&(n << 20), &n).unwrap()));
    let leaves = index.paths().leaves as u64;
    assert!(leaves >= 40, "{leaves}");
    // The last leaf has space. The deletes make space in the others.
    (0..40 * N).step_by(2).for_each(|n| assert!(index.delete(&(n << 20)).unwrap()));
    let far = |i: u64| (1 + 2 * N * i) << 20;
    let (inserted, updated, deleted) = (far(0) + 1, far(4), far(8));
    let all = [Write::Put(&inserted, &7), Write::Put(&updated, &8), Write::Delete(&deleted)];
    let mut found = Vec::new();
    let seen = cost(&counter, || found = index.write_many_as(&all, WriteOptions::default()).unwrap());
    assert_eq!(found, [false, true, true]);
    assert_costs(&seen, 3 * 3, 3 * 2, &APPEND, "three writes");
    // Writes to one leaf follow one another, in their order.
    let all = [Write::Put(&inserted, &9), Write::Delete(&inserted), Write::Put(&inserted, &10)];
    let seen = cost(&counter, || found = index.write_many_as(&all, WriteOptions::default()).unwrap());
    assert_eq!(found, [true, true, false]);
    assert_costs(&seen, 3 * 3, 3 * 2, &[(Fence::Payload, 3), (Fence::Commit, 3)], "of one leaf");
    let mut value = 0;
    assert!(index.get(&inserted, Some(&mut value)).unwrap() && value == 10);
    assert!(!index.get(&deleted, None).unwrap());
    assert!(index.check().problems.is_empty());
}
