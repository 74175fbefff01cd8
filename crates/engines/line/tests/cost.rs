//! Exact costs of changes: words stored, lines flushed, and fences. They follow from the commit protocols in [`line::change`] and
//! [`line::split`]:
//!
//! * insert of a word: value and key, one line, one fence. Update and delete: one word, one line, one fence;
//! * split: all words and lines of the new leaf; the link and its line; in the old leaf, one word for the slot of each moved entry, which
//!   marks the slot as free, and the lines of these slots; three fences, or two if no entry moves. The allocator's intents and bits cost
//!   further words and lines, but no fence, except when a chunk is opened;
//! * byte strings: in addition the words and lines of a record, and a second fence, before the slot's word. An update costs no more than an
//!   insert, except for the old record's intent and bit.

use crate::counted;
use index::leaf_list::prelude::*;
use index::{Keyed, Words, Write, WriteOptions};
use pmem::observed::{Category, Counts};
use pmem::{Counter, Fence};

const ONCE: &[(Fence, u64)] = &[(Fence::Commit, 1)];
const AFTER_RECORD: &[(Fence, u64)] = &[(Fence::Payload, 1), (Fence::Commit, 1)];

fn cost(counter: &Counter, operation: impl FnOnce()) -> Counts {
    counter.take();
    operation();
    counter.take()
}

#[track_caller]
fn assert_costs(seen: &Counts, words: u64, flushes: u64, fences: &[(Fence, u64)], what: &str) {
    assert_eq!((seen.words, seen.flushes), (words, flushes), "{what}: {seen:?}");
    let seen: Vec<_> = seen.fences.iter().map(|(why, count)| (*why, *count)).collect();
    let mut fences = fences.to_vec();
    fences.sort_unstable();
    assert_eq!(seen, fences, "{what}");
}

/// Key number `n`, in a mixed order.
fn key(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[test]
fn a_change_of_a_word_is_one_line_and_one_fence() {
    let (index, counter) = counted::<Words>(8);
    // The first put splits the only leaf.
    index.put(&0, &0).unwrap();
    for n in 1..20 {
        let seen = cost(&counter, || assert!(!index.put(&key(n), &n).unwrap()));
        assert_costs(&seen, 2, 1, ONCE, "insert");
        let seen = cost(&counter, || assert!(index.put(&key(n), &(n + 1)).unwrap()));
        assert_costs(&seen, 1, 1, ONCE, "update");
    }
    for n in (1..20).step_by(2) {
        let seen = cost(&counter, || assert!(index.delete(&key(n)).unwrap()));
        assert_costs(&seen, 1, 1, ONCE, "delete");
        let seen = cost(&counter, || assert!(!index.delete(&key(n)).unwrap()));
        assert_costs(&seen, 0, 0, &[], "delete of an absent key");
    }
    assert_eq!((index.check().problems.len(), index.len()), (0, 10));
}

#[test]
fn a_split_is_one_leaf_one_link_and_three_fences() {
    let (index, counter) = counted::<Words>(8);
    index.put(&0, &0).unwrap();
    let (mut splits, mut fences, mut flushes) = (0, 0, 0);
    let inserts = 20_000;
    for n in 1..=inserts {
        let leaves = index.turnover().splits;
        let seen = cost(&counter, || assert!(!index.put(&key(n), &n).unwrap()));
        fences += seen.fences_total();
        flushes += seen.flushes;
        if index.turnover().splits == leaves {
            assert_costs(&seen, 2, 1, ONCE, "insert");
            continue;
        }
        splits += 1;
        let of_nodes = seen.part(Category::Node);
        // The new leaf has 3 header words and a word for each of 30 slots, and a second word for each used slot. 15 of 30 entries move; each
        // leaves an empty word. The key's entry is in the new leaf, or is inserted afterwards with two words. A key above all others, after
        // another such key, begins a leaf of its own.
        let [right, left, append] = [33 + 16 + 1 + 15, 33 + 15 + 1 + 15 + 2, 33 + 1 + 1];
        assert!([right, left, append].contains(&of_nodes.words), "{seen:?}");
        let allocation = seen.part(Category::Allocation);
        if allocation.words <= 2 {
            let expected = [(right, 3), (left, 4), (append, 2)];
            assert!(expected.contains(&(of_nodes.words, seen.fences_total())), "{seen:?}");
        }
    }
    assert!(splits > 900, "{splits} splits");
    let each = |total: u64| total as f64 / inserts as f64;
    println!("{splits} splits; {:.3} fences and {:.3} flushes an insert", each(fences), each(flushes));
    assert!(each(fences) <= 1.15, "{} fences an insert", each(fences));
    assert!(index.check().problems.is_empty());
}

#[test]
fn keys_that_ascend_fill_their_leaves() {
    let (index, _) = counted::<Words>(8);
    (1..=3000).for_each(|n| assert!(!index.put(&(n << 20), &n).unwrap()));
    let report = index.check();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert!(report.leaves <= 3000 / 30 + 3, "{} leaves", report.leaves);
}

#[test]
fn byte_strings_cost_a_record_and_a_fence_besides() {
    let (index, counter) = counted::<Keyed>(8);
    let key = |n: u32| format!("key{n:06}").into_bytes();
    index.put(&key(0), b"abcd").unwrap();
    for n in 1..30 {
        let seen = cost(&counter, || assert!(!index.put(&key(n), b"abcd").unwrap()));
        let records = seen.part(Category::Record);
        // Head, checksum, 9 bytes of key, 4 of value. An allocated block costs an intent and a bit.
        assert_eq!(records.words, 5);
        assert_costs(&seen, 1 + 5 + 2, 1 + 2 + records.flushes, AFTER_RECORD, "insert");
        let seen = cost(&counter, || assert!(index.put(&key(n), b"efgh").unwrap()));
        let records = seen.part(Category::Record);
        assert_costs(&seen, 1 + 5 + 4, seen.flushes, AFTER_RECORD, "update");
        assert_eq!((records.words, seen.part(Category::Node).flushes), (5, 1));
    }
    for n in 1..30 {
        let seen = cost(&counter, || assert!(index.delete(&key(n)).unwrap()));
        assert_costs(&seen, 1 + 2, 1 + 2, AFTER_RECORD, "delete");
    }
    assert_eq!((index.check().problems.len(), index.len()), (0, 1));
}

/// Writes to different leaves: one fence after all of them.
#[test]
fn writes_of_different_leaves_share_one_fence() {
    let (index, counter) = counted::<Words>(8);
    (0..3000).for_each(|n| assert!(!index.put(&key(n), &n).unwrap()));
    let leaves = index.check().leaves;
    assert!(leaves > 64, "{leaves}");
    // In key order, every hundredth key is in a leaf of its own.
    let mut sorted: Vec<u64> = (0..3000).map(key).collect();
    sorted.sort_unstable();
    let far: Vec<u64> = sorted.into_iter().step_by(100).collect();
    let writes: Vec<_> = far.iter().map(|key| Write::Put(key, &7)).collect();
    let mut found = Vec::new();
    let seen = cost(&counter, || found = index.write_many_as(&writes, WriteOptions::default()).unwrap());
    assert_eq!(found, vec![true; far.len()]);
    assert_costs(&seen, far.len() as u64, far.len() as u64, ONCE, "updates of 30 leaves");
    // Writes to one leaf follow one another, in their order.
    let one = far[0];
    let writes = [Write::Put(&one, &9), Write::Delete(&one), Write::Put(&one, &10)];
    let seen = cost(&counter, || found = index.write_many_as(&writes, WriteOptions::default()).unwrap());
    assert_eq!(found, [true, true, false]);
    assert_costs(&seen, 1 + 1 + 2, 3, &[(Fence::Commit, 3)], "of one leaf");
    assert!(index.check().problems.is_empty());
}
