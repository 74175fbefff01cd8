//! Exact costs of changes to the hash table: words stored, lines flushed and fences.
//!
//! * Commit: the count and the version, two words of one line.
//! * An entry in a free slot: key, payload, end and start, four words of one line; one more, which makes the slot void first, if the slot
//!   had an entry before.
//! * The end of an entry that is deleted or replaced: one word of one line. A replacement is stored in the adjacent slot if that is free,
//!   so both may be in one line.
//! * The first node of a bucket: three words of header, four for the entry, one per free slot; all of its lines, and a fence before the
//!   slot of the directory references it.
//!
//! With the option `faithful`, the commit protocol of the thesis, an operation has two fences for each of its flushes, and no others
//! [thesis §4.1].

use std::sync::Arc;

use crate::common::samples::Sample as _;
use crate::common::{Sample, memory};
use crate::hash_common::pairs;
use cdds::hash::{Options, Table};
use index::{Keyed, Words};
use pmem::observed::Counts;
use pmem::{Counter, Geometry, Observed};

fn counted<S: Sample>(lines: u64, faithful: bool) -> (Table<Observed, S>, Arc<Counter>) {
    let (medium, counter) = memory(64 << 20);
    let geometry = Geometry { chunk_bytes: 64 << 10, ..Geometry::tiny() };
    let common = cdds::Options { faithful, geometry, ..crate::common::options(lines) };
    let options = Options { segment_slots: 256, ..crate::common::hash_options(common) };
    (Table::create(medium, &options).unwrap(), counter)
}

fn put<S: Sample>(table: &Table<Observed, S>, key: u32, value: u32) -> bool {
    table.put(S::borrow(&S::key(key)), S::borrow_value(&S::value(value))).unwrap()
}

fn cost(counter: &Counter, operation: impl FnOnce()) -> Counts {
    counter.take();
    operation();
    counter.take()
}

#[track_caller]
fn assert_costs(seen: &Counts, words: u64, lines: u64, calls: u64, faithful: bool) {
    let fences = if faithful { 2 * calls } else { 2 };
    assert_eq!((seen.words, seen.flushes, seen.fences_total()), (words, lines, fences), "{seen:?}");
}

#[test]
fn a_change_of_an_entry_is_two_or_three_lines_and_two_fences() {
    for faithful in [false, true] {
        let (table, counter) = counted::<Words>(8, faithful);
        put(&table, 1, 1);
        // Slot 0 shares its line with the header. So the next entry is in another line.
        assert_costs(&cost(&counter, || assert!(put(&table, 1, 2))), 7, 3, 3, faithful);
        // Later entries stay in that line, in the slot of the previous version, which is garbage: the slot is invalidated first.
        assert_costs(&cost(&counter, || assert!(put(&table, 1, 3))), 7, 2, 2, faithful);
        assert_costs(&cost(&counter, || assert!(put(&table, 1, 4))), 8, 2, 2, faithful);
        assert_costs(&cost(&counter, || assert!(!put(&table, 2, 1))), 6, 2, 2, faithful);
        assert_costs(&cost(&counter, || assert!(!put(&table, 3, 1))), 6, 2, 2, faithful);
        assert_costs(&cost(&counter, || assert!(table.delete(&Words::key(2)).unwrap())), 3, 2, 2, faithful);
        assert_costs(&cost(&counter, || assert!(!table.delete(&Words::key(9)).unwrap())), 0, 0, 0, true);
    }
}

#[test]
fn a_new_node_is_written_once_and_waited_for() {
    let (table, counter) = counted::<Words>(4, false);
    put(&table, 1, 1);
    for key in 2..8 {
        // Few enough keys that no bucket has a second node, and enough that a second bucket is added.
        put(&table, key, 1);
    }
    let buckets = table.buckets().unwrap();
    assert_eq!(buckets, 2, "{} keys", table.len());
    let seen = cost(&counter, || _ = table.snapshot());
    assert_eq!((seen.words, seen.flushes, seen.fences_total()), (0, 0, 0));
    // All versions of one key are kept, until no slot is free.
    let mut kept = Vec::new();
    let mut dearest = (0, 0, 0);
    for value in 0..12 {
        kept.push(table.snapshot());
        let seen = cost(&counter, || assert!(put(&table, 1, value)));
        dearest = dearest.max((seen.words, seen.flushes, seen.fences_total()));
    }
    // The ended entry; the node; its block's intent and bit; the slot; the commit.
    assert_eq!(dearest, (1 + (3 + 4 + 6) + 2 + 1 + 2, 1 + 4 + 2 + 1 + 1, 3));
}

/// The average cost of a put while a table grows: its own cost, and its share of new nodes and buckets.
fn average<S: Sample>(lines: u64, keys: u32, most: (f64, f64, f64)) {
    let (table, counter) = counted::<S>(lines, false);
    let seen = cost(&counter, || (0..keys).for_each(|key| _ = put(&table, key, 8)));
    let per = |count: u64| count as f64 / f64::from(keys);
    let average = (per(seen.words), per(seen.flushes), per(seen.fences_total()));
    let report = table.check();
    println!(
        "{} in nodes of {lines} lines: {:.2} words, {:.2} flushes, {:.2} fences a put; {} buckets, {} nodes, {} the longest, \
         {:.1} bytes a key",
        S::NAME,
        average.0,
        average.1,
        average.2,
        table.buckets().unwrap(),
        report.nodes,
        report.levels,
        report.live_bytes as f64 / f64::from(keys),
    );
    assert_eq!(pairs(&mut table.pairs()).len(), keys as usize);
    assert!(average.0 < most.0 && average.1 < most.1 && average.2 < most.2, "{average:?}, {most:?} before");
}

#[test]
fn growing_costs_a_put_little() {
    average::<Words>(4, 20_000, (12.8, 4.6, 2.6));
    average::<Words>(8, 20_000, (11.7, 4.0, 2.3));
    average::<Keyed>(8, 20_000, (18.8, 8.3, 2.3));
}
