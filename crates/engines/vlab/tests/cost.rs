//! Exact costs of changes: words stored, bytes whose value changes, lines flushed and fences.
//!
//! The paper counts bytes whose value changes (table 2, row G): E + 1 for an insert of an entry of E bytes, 1 for a delete. For a split it
//! counts the entries that move, half of N, so 8 N bytes of 16-byte entries. Its fences are 2, 1 and 5. From the layout here:
//!
//! * insert: the entry's words and one word of the bitmap; the entry's line and the header's; a fence after each;
//! * delete: one word, line and fence. The update of a word costs the same. The update of a larger value costs as much as an insert: the
//!   new entry goes to a free slot, and one bitmap word publishes the new entry and removes the old one;
//! * split: the flag; a header of 8 words and the entries that move; the link; the bitmap words that change, `max`; the flag again. These
//!   are five parts. Under `faithful` there is a fence after each of them, otherwise after the second part (the new bucket) and at the end.
//!   The allocator's intent and bit cost a word and a line each, without fences of their own.

use std::sync::Arc;

use crate::common::{Sample, memory};
use index::leaf_list::prelude::*;
use index::{Fixed, Keyed, Words, Write, WriteOptions};
use pmem::observed::{Category, Counts};
use pmem::{Counter, Durability, Fence, LINE, Observed, WORD};
use vlab::{Options, Vlab};

/// Number of entries of a bucket of one page.
const N: u64 = 252;
const BITMAP_WORDS: u64 = 4;
const HEADER_WORDS: u64 = LINE / WORD;

fn counted<S: Sample>(faithful: bool) -> (Vlab<Observed, S>, Arc<Counter>) {
    let (medium, counter) = memory(16 << 20);
    let production = Options::new(64, Durability::Power);
    let index = Vlab::create(medium, &Options { faithful, payload_words: S::PAYLOAD_WORDS, ..production });
    (index.unwrap(), counter)
}

/// The cost of one operation.
fn cost(counter: &Counter, operation: impl FnOnce()) -> Counts {
    counter.take();
    operation();
    counter.take()
}

/// Key number `n`, without a byte of 0, in a mixed order.
fn key(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 0x0101_0101_0101_0101
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
fn an_insert_is_its_entry_and_a_bit_and_two_fences_and_a_delete_a_bit_and_one() {
    for faithful in [false, true] {
        let (index, counter) = counted::<Words>(faithful);
        let entry_bytes = 2 * WORD;
        for n in 0..N {
            let seen = cost(&counter, || assert!(!index.put(&key(n), &key(n + 1000)).unwrap()));
            assert_costs(&seen, 3, 2, &[(Fence::Payload, 1), (Fence::Commit, 1)], "insert");
            assert_eq!(seen.bytes, entry_bytes + 1, "E + 1");
        }
        for n in 0..N {
            let seen = cost(&counter, || assert!(index.put(&key(n), &key(n + 2000)).unwrap()));
            assert_costs(&seen, 1, 1, &[(Fence::Commit, 1)], "update of a word");
        }
        for n in 0..N {
            let seen = cost(&counter, || assert!(index.delete(&key(n)).unwrap()));
            assert_costs(&seen, 1, 1, &[(Fence::Commit, 1)], "delete");
            assert_eq!(seen.bytes, 1);
        }
        assert_eq!(index.check().nodes, 1);
    }
}

#[test]
fn a_split_is_half_of_the_entries_and_five_fences_as_the_paper_has_it_and_two_by_default() {
    for faithful in [false, true] {
        let (index, counter) = counted::<Words>(faithful);
        let mut splits = 0;
        for n in 0..40 * N {
            let before = index.paths();
            let seen = cost(&counter, || assert!(!index.put(&(key(n) >> 1), &key(n)).unwrap()));
            let after = index.paths();
            if before.directory + before.in_braids == after.directory + after.in_braids {
                continue;
            }
            splits += 1;
            if before.directory != after.directory && faithful {
                continue; // a combine runs, which has a cost of its own
            }
            let of_nodes = seen.part(Category::Node);
            let moved = N / 2;
            // The flag; the new bucket; the link; bitmap and `max`; the flag; and the three words of the insert.
            let words = 1 + HEADER_WORDS + 2 * moved + 1 + BITMAP_WORDS + 1 + 1 + 3;
            assert_eq!(of_nodes.words, words, "{seen:?}");
            // The moved entries of each bitmap word are contiguous, four in a line.
            let lines = BITMAP_WORDS * moved.div_ceil(BITMAP_WORDS).div_ceil(4);
            let headers = if faithful { 5 } else { 2 };
            assert_eq!(of_nodes.flushes, lines + headers + 2, "{seen:?}");
            assert!(of_nodes.bytes <= 8 * N + words * WORD - 2 * moved * WORD + 17, "{seen:?}");
            let allocation = seen.part(Category::Allocation);
            if allocation.words > 2 {
                continue; // a chunk was opened
            }
            assert_eq!((allocation.words, allocation.flushes), (2, 2));
            let fences = if faithful {
                vec![(Fence::Guard, 1), (Fence::Payload, 2), (Fence::Commit, 3), (Fence::Home, 1)]
            } else {
                vec![(Fence::Payload, 2), (Fence::Commit, 2)]
            };
            assert_eq!(seen.fences_total(), if faithful { 5 } else { 2 } + 2);
            assert_costs(&seen, words + 2, lines + headers + 4, &fences, "split and insert");
        }
        println!("{splits} splits");
        assert!(splits >= 60, "{splits} splits");
    }
}

/// Keys in ascending order leave full buckets. A new bucket starts with its first key.
#[test]
fn a_key_above_all_begins_a_bucket_for_two_fences() {
    let (index, counter) = counted::<Words>(false);
    let mut begun = 0;
    for n in 1..=20 * N {
        let before = index.paths();
        let seen = cost(&counter, || assert!(!index.put(&(n << 32), &n).unwrap()));
        let after = index.paths();
        assert_eq!(seen.fences_total(), 2, "{seen:?}");
        if before.directory + before.in_braids != after.directory + after.in_braids {
            begun += 1;
            assert_eq!(seen.part(Category::Node).words, 1 + HEADER_WORDS + 2 + 1 + 1 + 1);
        }
    }
    assert_eq!(begun, 19);
}

#[test]
fn a_wide_value_is_replaced_under_one_bitmap_word_for_two_fences() {
    let (index, counter) = counted::<Fixed>(false);
    let entry = 1 + Fixed::PAYLOAD_WORDS as u64;
    for n in 0..100 {
        let seen = cost(&counter, || assert!(!index.put(&key(n), &Fixed::value(n as u32)).unwrap()));
        // Entries of 32 bytes never cross a line.
        assert_costs(&seen, entry + 1, 2, &[(Fence::Payload, 1), (Fence::Commit, 1)], "insert");
        let seen = cost(&counter, || assert!(index.put(&key(n), &Fixed::value(n as u32 + 7)).unwrap()));
        assert_costs(&seen, entry + 1, 2, &[(Fence::Payload, 1), (Fence::Commit, 1)], "update");
        let seen = cost(&counter, || assert!(index.delete(&key(n)).unwrap()));
        assert_costs(&seen, 1, 1, &[(Fence::Commit, 1)], "delete");
        index.put(&key(n), &Fixed::value(1)).unwrap();
    }
}

#[test]
fn byte_strings_cost_a_record_besides_and_a_delete_the_fence_that_frees_it() {
    let (index, counter) = counted::<Keyed>(false);
    index.put(&Keyed::key(1), &Keyed::value(1)).unwrap();
    for n in 2..200 {
        let two = [(Fence::Payload, 1), (Fence::Commit, 1)];
        let seen = cost(&counter, || assert!(!index.put(&Keyed::key(n), &Keyed::value(1)).unwrap()));
        let records = seen.part(Category::Record);
        // Head, checksum, 9 bytes of key, 4 of value. An allocated block costs an intent and a bit.
        assert_eq!(records.words, 5);
        assert_costs(&seen, 3 + 5 + 2, 2 + 2 + records.flushes, &two, "insert");
        let seen = cost(&counter, || assert!(index.put(&Keyed::key(n), &Keyed::value(2)).unwrap()));
        assert_costs(&seen, 3 + 5 + 4, 2 + 4 + seen.part(Category::Record).flushes, &two, "update");
        let seen = cost(&counter, || assert!(index.delete(&Keyed::key(n)).unwrap()));
        assert_costs(&seen, 1 + 2, 1 + 2, &two, "delete");
        index.put(&Keyed::key(n), &Keyed::value(3)).unwrap();
    }
}

/// A write group: an entry and a bit per insert, the word of an update, the bit of a delete; one fence after all entries, one after the
/// rest.
#[test]
fn writes_of_different_buckets_share_their_fences() {
    let (index, counter) = counted::<Words>(false);
    (1..=10 * N).for_each(|n| assert!(!index.put(&key(n), &n).unwrap()));
    index.combine().unwrap();
    let mut keys: Vec<u64> = (1..=10 * N).map(key).collect();
    keys.sort_unstable();
    let far = |i: usize| keys[i * keys.len() / 4];
    let (inserted, updated, deleted) = (far(0) + 1, far(1), far(2));
    let all = [Write::Put(&inserted, &7), Write::Put(&updated, &8), Write::Delete(&deleted)];
    let mut found = Vec::new();
    let seen = cost(&counter, || found = index.write_many_as(&all, WriteOptions::default()).unwrap());
    assert_eq!(found, [false, true, true]);
    let both = [(Fence::Payload, 1), (Fence::Commit, 1)];
    assert_costs(&seen, 3 + 1 + 1, 2 + 1 + 1, &both, "three writes");
    // Without entries there is nothing to store first, so one fence is enough.
    let all = [Write::Put(&updated, &9), Write::Delete(&inserted)];
    let seen = cost(&counter, || found = index.write_many_as(&all, WriteOptions::default()).unwrap());
    assert_eq!(found, [true, true]);
    assert_costs(&seen, 2, 2, &[(Fence::Commit, 1)], "an update and a delete");
    // Writes to one bucket follow one another, in their order.
    let all = [Write::Put(&inserted, &9), Write::Delete(&inserted), Write::Put(&inserted, &10)];
    let seen = cost(&counter, || found = index.write_many_as(&all, WriteOptions::default()).unwrap());
    assert_eq!(found, [false, true, false]);
    assert_costs(&seen, 3 + 1 + 3, 2 + 1 + 2, &[(Fence::Payload, 2), (Fence::Commit, 3)], "of one bucket");
    let mut value = 0;
    assert!(index.get(&inserted, Some(&mut value)).unwrap() && value == 10);
    assert!(!index.get(&deleted, None).unwrap());
    assert!(index.check().problems.is_empty());
}
