//! Exact costs of changes: words stored, lines flushed and fences, by category.
//!
//! In the thesis (§4.1) every write-back is a *flush*: mfence, the lines, mfence. So the thesis needs two fences for each flush of an
//! operation, and so does the option `faithful`. Without this option flushed lines are durable after the next fence of any kind, and an
//! operation has one fence for its whole payload and one for its commit.
//!
//! * Commit: the count and the version, two words of one line (§4.3; the count is ours). With a new root also the root's word.
//! * An entry in a free slot: key, payload, end and start, four words of one line (§4.4.2).
//! * A shift by one slot: the same four words, and a fifth that invalidates the slot if it was in use. An entry that moves to another line
//!   must be durable before its old slot is overwritten: a flush and a fence per crossed line.
//! * Ending an entry: one word (§4.4.3). An update ends one entry and stores one (§4.4).
//! * A new node is written once: three words of header, four per entry, one per free slot. All of its lines are flushed.
//!
//! Without order (`cdds-unsorted`) there are no shifts: a put stores four words of one line for any key, and a fifth if the slot had a dead
//! entry, without a fence in between. All other costs are equal.
//!
//! Slot 0 is in a node's first line. Each further line has two slots (figure 4.1 with our header).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::samples::Sample as _;
use crate::common::{Sample, memory, options};
use cdds::Inlined;
use cdds::{Options, Order, Sorted, Tree, Unsorted};
use index::Words;
use pmem::observed::{Category, Counts, Part};
use pmem::{Counter, Fence, Geometry, Observed};

type T<S, O> = Tree<Observed, S, O>;

fn counted<S: Sample, O: Order>(lines: u64, faithful: bool) -> (T<S, O>, Arc<Counter>) {
    let (medium, counter) = memory(16 << 20);
    let geometry = Geometry { chunk_bytes: 64 << 10, ..Geometry::tiny() };
    let options = Options { faithful, geometry, ..options(lines) };
    (Tree::create(medium, &options).unwrap(), counter)
}

fn put<S: Sample, O: Order>(tree: &T<S, O>, key: u32, value: u32) -> bool {
    tree.put(S::borrow(&S::key(key)), S::borrow_value(&S::value(value))).unwrap()
}

fn delete<S: Sample, O: Order>(tree: &T<S, O>, key: u32) -> bool {
    tree.delete(S::borrow(&S::key(key))).unwrap()
}

/// The cost of one operation.
fn cost(counter: &Counter, operation: impl FnOnce()) -> Counts {
    counter.take();
    operation();
    counter.take()
}

/// Words stored to nodes, their flushed lines, the number of flush calls, and the number of those that must be durable before later stores.
#[derive(Clone, Copy, Debug, Default)]
struct Price {
    words: u64,
    lines: u64,
    calls: u64,
    guards: u64,
}

impl std::ops::Add for Price {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            words: self.words + other.words,
            lines: self.lines + other.lines,
            calls: self.calls + other.calls,
            guards: self.guards + other.guards,
        }
    }
}

const COMMIT: Price = Price { words: 2, lines: 1, calls: 1, guards: 0 };
const COMMIT_OF_ROOT: Price = Price { words: 3, ..COMMIT };
const END: Price = Price { words: 1, lines: 1, calls: 1, guards: 0 };

fn line_of(slot: u64) -> u64 {
    slot.div_ceil(2)
}

/// An entry is stored in slot `place`. The entries from there to the free slot `hole` shift. Without order it is stored in `hole`.
fn entry<O: Order>(place: u64, hole: u64) -> Price {
    let place = if O::SHIFTS { place } else { hole };
    let (moves, crossings) = (hole.abs_diff(place), line_of(hole).abs_diff(line_of(place)));
    // Only the hole was free among the written slots.
    Price { words: 4 * (moves + 1) + moves, lines: crossings + 1, calls: crossings + 1, guards: crossings }
}

/// New nodes of `lines` lines with `entries` entries in total.
fn nodes(count: u64, lines: u64, entries: u64) -> Price {
    let free = count * (2 * lines - 1) - entries;
    Price { words: 3 * count + 4 * entries + free, lines: count * lines, calls: count, guards: 0 }
}

/// Checks the cost of the nodes, and of the allocator: a word and a line per change, without fences of its own.
#[track_caller]
fn assert_costs(seen: &Counts, price: Price, blocks: u64, faithful: bool, what: &str) {
    assert_costs_of_nodes(seen, price, blocks, faithful, what);
    let (node, records) = (seen.part(Category::Node), seen.part(Category::Record));
    // An allocated block costs an intent and a bit.
    let allocation = seen.part(Category::Allocation);
    assert_eq!((allocation.words, allocation.flushes), (2 * blocks, 2 * blocks), "{what}: {allocation:?}");
    assert_eq!(seen.fences_total(), node.fences_total() + records.fences_total(), "{what}");
    assert_eq!(seen.words, node.words + allocation.words + records.words, "{what}");
}

/// As `assert_costs` without the allocator's cost, for an operation that opens a chunk. That cost occurs once for many nodes.
#[track_caller]
fn assert_costs_of_nodes(seen: &Counts, price: Price, blocks: u64, faithful: bool, what: &str) {
    let node = seen.part(Category::Node);
    assert_eq!((node.words, node.flushes), (price.words, price.lines), "{what}: {seen:?}");
    let fences = if faithful {
        // The allocator's intents share one fence.
        BTreeMap::from([(Fence::Payload, 2 * price.calls + u64::from(blocks > 0))])
    } else {
        let guards = (price.guards > 0).then_some((Fence::Guard, price.guards));
        BTreeMap::from_iter([(Fence::Payload, 1), (Fence::Commit, 1)].into_iter().chain(guards))
    };
    assert_eq!(node.fences, fences, "{what}");
}

const BOTH: [bool; 2] = [false, true];
const LINES: [u64; 5] = [2, 3, 4, 8, 16];

#[test]
fn an_insert_behind_all_others_is_six_words_two_lines_and_two_fences() {
    of_insert_behind::<Sorted>();
    of_insert_behind::<Unsorted>();
}

fn of_insert_behind<O: Order>() {
    for (lines, faithful) in LINES.into_iter().flat_map(|lines| BOTH.map(|faithful| (lines, faithful))) {
        let (tree, counter) = counted::<Words, O>(lines, faithful);
        for m in 0..tree.shape().slots as u64 {
            let seen = cost(&counter, || assert!(!put(&tree, m as u32 + 1, 7)));
            assert_costs(&seen, entry::<O>(m, m) + COMMIT, 0, faithful, "insert");
            assert_eq!((seen.words, seen.flushes), (6, 2));
            assert_eq!(seen.fences_total(), if faithful { 4 } else { 2 });
        }
    }
}

#[test]
fn an_insert_before_others_shifts_them_and_waits_once_for_each_line_they_leave() {
    of_insert_before::<Sorted>();
}

fn of_insert_before<O: Order>() {
    for (lines, faithful) in LINES.into_iter().flat_map(|lines| BOTH.map(|faithful| (lines, faithful))) {
        let (tree, counter) = counted::<Words, O>(lines, faithful);
        for m in 0..tree.shape().slots as u64 {
            let seen = cost(&counter, || assert!(!put(&tree, 100 - m as u32, 7)));
            assert_costs(&seen, entry::<O>(0, m) + COMMIT, 0, faithful, "insert in front");
        }
    }
}

#[test]
fn without_order_an_insert_anywhere_is_six_words_two_lines_and_two_fences() {
    of_insert_before::<Unsorted>();
    for (lines, faithful) in LINES.into_iter().flat_map(|lines| BOTH.map(|faithful| (lines, faithful))) {
        let (tree, counter) = counted::<Words, Unsorted>(lines, faithful);
        let slots = tree.shape().slots as u32;
        // 131 is a prime above the number of slots. So each key occurs once, in a mixed order.
        for m in 1..=slots {
            let seen = cost(&counter, || assert!(!put(&tree, m * 77 % 131, 7)));
            assert_eq!((seen.words, seen.flushes), (6, 2));
            assert_eq!(seen.fences_total(), if faithful { 4 } else { 2 });
        }
        // In a full leaf an entry replaces a dead one, which is invalidated first: one more word.
        for m in 1..=slots {
            assert!(delete(&tree, m * 77 % 131));
            let seen = cost(&counter, || assert!(!put(&tree, 200 + m, 7)));
            let price = entry::<Unsorted>(0, 0) + COMMIT;
            assert_costs(
                &seen,
                Price { words: price.words + 1, ..price },
                0,
                faithful,
                "insert over a dead entry",
            );
        }
        assert_eq!(tree.check().nodes, 1);
    }
}

#[test]
fn a_delete_is_three_words_two_lines_and_two_fences() {
    of_deletes::<Sorted>();
    of_deletes::<Unsorted>();
}

fn of_deletes<O: Order>() {
    for (lines, faithful) in LINES.into_iter().flat_map(|lines| BOTH.map(|faithful| (lines, faithful))) {
        let (tree, counter) = counted::<Words, O>(lines, faithful);
        let slots = tree.shape().slots as u32;
        (1..=slots).for_each(|key| _ = put(&tree, key, 7));
        for key in 1..=slots {
            let seen = cost(&counter, || assert!(delete(&tree, key)));
            assert_costs(&seen, END + COMMIT, 0, faithful, "delete");
            assert_eq!((seen.words, seen.flushes), (3, 2));
        }
        let nothing = cost(&counter, || assert!(!delete(&tree, 1)));
        assert_eq!(nothing, Counts::default());
    }
}

#[test]
fn an_update_ends_an_entry_and_puts_one_behind_it() {
    of_updates::<Sorted>();
    of_updates::<Unsorted>();
}

fn of_updates<O: Order>() {
    for (lines, faithful) in LINES.into_iter().flat_map(|lines| BOTH.map(|faithful| (lines, faithful))) {
        let slots = lines * 2 - 1;
        for (m, updated) in (1..slots).flat_map(|m| (0..m).map(move |updated| (m, updated))) {
            let (tree, counter) = counted::<Words, O>(lines, faithful);
            (0..m).for_each(|key| _ = put(&tree, key as u32, 7));
            let seen = cost(&counter, || assert!(put(&tree, updated as u32, 8)));
            assert_costs(&seen, END + entry::<O>(updated + 1, m) + COMMIT, 0, faithful, "update");
        }
    }
}

#[test]
fn a_split_writes_its_nodes_once_and_costs_two_fences_too() {
    of_splits::<Sorted>();
    of_splits::<Unsorted>();
}

fn of_splits<O: Order>() {
    for (lines, faithful) in LINES.into_iter().flat_map(|lines| BOTH.map(|faithful| (lines, faithful))) {
        let (tree, counter) = counted::<Words, O>(lines, faithful);
        let slots = tree.shape().slots as u64;
        (1..=slots).for_each(|key| _ = put(&tree, key as u32, 7));
        // Two leaves, and a root above them and the old leaf.
        let seen = cost(&counter, || _ = put(&tree, slots as u32 + 1, 7));
        let ends = |count: u64| (0..count).fold(Price::default(), |sum, _| sum + END);
        // Algorithm 3 ends all entries of the old leaf.
        let ended = ends(if faithful { slots } else { 0 });
        let price = nodes(2, lines, slots + 1) + nodes(1, lines, 3) + COMMIT_OF_ROOT + ended;
        // An inner node of four lines has the size of the meta block, whose chunk has space.
        let is_open = lines == 4;
        let assert = if is_open { assert_costs } else { assert_costs_of_nodes };
        assert(&seen, price, 3, faithful, "split of the root");
        assert_eq!(tree.check().levels, 2);
        // The right leaf fills and is split. Its link is ended, and two links are stored after it. Links are stored from the end of a node:
        // the first one moves from the last slot to make space for the second one.
        if slots < 7 {
            continue;
        }
        let mut next = slots as u32 + 2;
        let nodes_before = tree.check().nodes;
        let seen = loop {
            let seen = cost(&counter, || _ = put(&tree, next, 7));
            next += 1;
            if tree.check().nodes != nodes_before {
                break seen;
            }
        };
        let links = END + entry::<O>(slots - 1, slots - 1) + entry::<O>(slots - 1, slots - 2);
        let price = nodes(2, lines, slots + 1) + links + COMMIT + ended;
        assert_costs(&seen, price, 2, faithful, "split below the root");
    }
}

#[test]
fn byte_strings_cost_a_record_besides() {
    of_byte_strings::<Sorted>();
    of_byte_strings::<Unsorted>();
}

fn of_byte_strings<O: Order>() {
    for (lines, faithful) in LINES.into_iter().flat_map(|lines| BOTH.map(|faithful| (lines, faithful))) {
        let (tree, counter) = counted::<Inlined, O>(lines, faithful);
        // Keys of one length. The first record opens its chunk; that cost occurs once per chunk.
        let long = |m: u64| m as u32 * 8 + 6;
        put(&tree, long(0), 7);
        let slots = tree.shape().slots as u64;
        // One slot stays free. In a full leaf the next change would collect garbage, many records at a time.
        for m in 1..slots - 1 {
            let seen = cost(&counter, || assert!(!put(&tree, long(m), 7)));
            assert_costs(&seen, entry::<O>(m, m) + COMMIT, 1, faithful, "insert");
            let Part { words, flushes, fences, .. } = seen.part(Category::Record);
            // Head, checksum, key, 4 bytes of value.
            let key = Inlined::key(long(m));
            assert_eq!((words, fences.len()), (2 + (key.len() as u64 + 4).div_ceil(8), 0), "its record");
            // Its head, and its content, which follows and may continue in the next line.
            assert!((2..=3).contains(&flushes), "{flushes} lines of a short record");
        }
        for m in 0..slots - 1 {
            // The collector frees the record later.
            let seen = cost(&counter, || assert!(delete(&tree, long(m))));
            assert_costs(&seen, END + COMMIT, 0, faithful, "delete");
        }
    }
}
