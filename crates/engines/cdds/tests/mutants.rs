//! The reverse of `crash`: each flush and each fence is left out, each publish is stored before the fence in front of it, or in two
//! halves; every time some image must break, or a sentence says why none can.
//!
//! A mutant is tried on the workloads in which it changes something, in their order, until one breaks.

use crate::common::Sample;
use crate::common::subject::{Bytes, Op, Sizes, Work, lives, mixed, sizes};
use cdds::Inlined;
use cdds::{Order, Recovery, Sorted, Unsorted};
use crash::{Argued, Kind, Options, Share, Stage, Trial, Workload, run_some_mutants};
use index::Words;
use pmem::Geometry;

const META: &str = include_str!("../src/meta.rs");
const ALLOC: &str = include_str!("../../../pmem/src/heap/alloc/allocator.rs");

const COUNT: &str = "medium.publish(self.word_at(if holds_old { 4 } else { 3 }), count_word(state));";
const LAST: &str = "medium.publish(at + WORD, hi);";

/// What no image can break, and why. These are more than three, because one line has several mutants: two lines of the meta block, of
/// which a publish is swapped, early or split, and two of the allocator. So there are four reasons, and each names its invariant.
const ARGUED: &[Argued] = &[
    Argued::new(
        Kind::SwapPublish,
        "cdds/src/meta.rs",
        META,
        COUNT,
        "a count is read only if it is of the current version, which is published behind the fence",
    ),
    Argued::new(
        Kind::EarlyPublish,
        "cdds/src/meta.rs",
        META,
        COUNT,
        "a count is read only if it is of the current version, which is published behind the fence",
    ),
    Argued::new(
        Kind::SplitPublish,
        "cdds/src/meta.rs",
        META,
        COUNT,
        "the version is in the upper half: of half a count it is still an older one, and nobody reads it",
    ),
    Argued::new(
        Kind::SwapPublish,
        "cdds/src/meta.rs",
        META,
        LAST,
        "in a free slot an interval is none before its first version is published; one that grows says of a version that was not \
         committed, and never will be, that it is dead (V1)",
    ),
    Argued::new(
        Kind::EarlyPublish,
        "pmem/src/heap/alloc/allocator.rs",
        ALLOC,
        "medium.publish(at, class.word());",
        "A3: a free chunk's bitmap is durably zero, so a chunk that is opened too early is an open one without blocks, which \
         recovery takes back",
    ),
    Argued::new(
        Kind::SwapPublish,
        "pmem/src/heap/alloc/allocator.rs",
        ALLOC,
        "medium.publish(at, 0);",
        "the chunk was free before the operation began: that it is may be durable at any time",
    ),
];

/// Chunks of the smallest region in which a large value gets 64 pieces and no more.
const CHUNKS: u64 = 12;

/// Of a line only what was durable and all that was stored: all images of a whole region's creation.
fn by_lines() -> Options {
    Options { line_cap: 2, ..deep(1) }
}

/// Most mutants break at once.
fn low(seed: u64) -> Options {
    Options { seed, cap: 32, nested_cap: 4, samples: 8, line_cap: 64, ..Options::default() }
}

/// For what only a few steps show, where several lines at once have to go wrong.
fn deep(seed: u64) -> Options {
    Options { cap: 4096, line_cap: 256, ..low(seed) }
}

fn whole<S: Sample, O: Order>(sizes: Sizes, prepare: Vec<Op>, ops: Vec<Op>) -> Work<S, O>
where
    S::KeyBuf: Bytes,
    S::ValueBuf: Bytes,
{
    Workload::new(sizes, ops).after(prepare)
}

/// A value of so many bytes.
fn bytes(count: u32) -> u32 {
    count * 8
}

/// A tree in a region that need not grow: nothing that growth waits for stands in for a fence of the tree's own.
fn roomy() -> Sizes {
    Sizes { len: 96 << 10, ..sizes(2, Recovery::Lazy) }
}

/// The first operations of all.
fn first(seed: u64) -> Vec<Op> {
    vec![Op::Put(3, seed as u32), Op::Put(5, 2), Op::Delete(3)]
}

/// More rollbacks than the list has places, with the traces of each to be removed, and places used again.
fn rollbacks() -> Vec<Op> {
    let mut ops = vec![Op::Put(2, 7)];
    for round in 0..14 {
        ops.push(Op::Mark);
        ops.push(Op::Put(round % 3, round));
        ops.push(Op::Delete(2));
        ops.push(Op::Put(4, round));
        ops.push(Op::Back(vec![(0, None), (1, None), (2, Some(7)), (4, None)]));
        ops.push(Op::Release);
    }
    ops.push(Op::CollectAll);
    ops.push(Op::Put(1, 1));
    ops
}

/// Operations that fail half way and leave traces in nodes, which the next one declares dead; then their removal.
fn refused() -> Vec<Op> {
    let mut ops = vec![Op::Put(2, 7), Op::Put(4, 7), Op::Put(6, 7)];
    ops.push(Op::Refused(vec![(3, Some(1)), (4, None)]));
    ops.extend([Op::Put(9, 1), Op::Delete(9), Op::Put(4, 3)]);
    ops.push(Op::Refused(vec![(2, Some(1)), (5, Some(1))]));
    ops.push(Op::Refused(vec![(6, None)]));
    ops.extend([Op::Put(1, 1), Op::CollectAll, Op::Put(5, 5), Op::Kill, Op::Delete(4), Op::CollectAll]);
    ops
}

/// A large value that is refused when some of its pieces have their bits; then a record that takes the block in which they were
/// listed.
fn refused_pieces<O: Order>() -> Work<Inlined, O> {
    let small = Sizes { capacity: Geometry::tiny().heap_at() + CHUNKS * 4096, ..sizes(2, Recovery::Lazy) };
    whole(
        small,
        vec![Op::Put(1, 3)],
        vec![Op::Kill, Op::TooLarge(2, bytes(66 * 488 + 300)), Op::Put(3, bytes(900))],
    )
}

/// Values in pieces, which are replaced and deleted.
fn pieces() -> Vec<Op> {
    let large = |key| Op::Put(key, bytes(1375) + key);
    vec![large(1), large(2), Op::Put(1, 5), Op::Delete(2), Op::CollectAll, large(3), Op::Kill]
}

fn of_words<O: Order>(name: &str, options: Options, work: Work<Words, O>) -> Trial {
    Trial::of(name, options, work)
}

fn of_bytes<O: Order>(name: &str, options: Options, work: Work<Inlined, O>) -> Trial {
    Trial::of(name, options, work)
}

fn trials<O: Order>(seed: u64) -> Vec<Trial> {
    let (lazy, scan) = (Recovery::Lazy, Recovery::Scan);
    // An inner node of four lines is as large as the meta block: no chunk is opened, so no fence stands before its intents.
    let split = Op::Batch((1..9).map(|key| (key, Some(key))).collect());
    let large = Geometry { chunk_bytes: 32 << 10, ..Geometry::tiny() };
    let long_bitmap: Vec<Op> = (1..70)
        .map(|key| Op::Put(key, bytes(500)))
        .chain((1..69).map(Op::Delete))
        .chain([Op::CollectAll])
        .collect();
    let narrowed = vec![Op::Put(4, 0), Op::Delete(4), Op::CollectAll];
    let of_large = Sizes { geometry: large, capacity: 1 << 20, ..sizes(8, lazy) };
    let small = Sizes { capacity: 80 << 10, ..sizes(2, lazy) };
    let mut trials = vec![
        of_words::<O>("words, first operations", deep(seed), whole(roomy(), vec![], first(seed))),
        of_words::<O>("a split first", deep(seed), whole(Sizes { lines: 4, ..roomy() }, vec![], vec![split])),
        // Two shifts across lines in one change.
        of_words::<O>("words, five lines", low(118), mixed(118, 5, lazy, 60, 24, 0)),
        of_words::<O>("words, four lines", low(6), mixed(6, 4, lazy, 60, 24, 0)),
        of_bytes::<O>("byte strings, first operations", deep(seed), whole(roomy(), vec![], first(seed))),
        of_bytes::<O>("byte strings, random", low(seed), mixed(seed, 2, lazy, 60, 14, 0)),
        of_words::<O>("words, random", low(seed), mixed(seed, 2, lazy, 60, 14, 0)),
        of_bytes::<O>("refused", low(seed), whole(small, vec![], refused())),
        of_words::<O>("rollbacks", low(seed), whole(sizes(2, lazy), vec![], rollbacks())),
        of_bytes::<O>("lives", low(seed), lives(3, lazy, 20)),
        of_bytes::<O>("byte strings, cut", low(seed), mixed(seed + 1, 2, lazy, 120, 14, 3)),
        of_bytes::<O>("byte strings, cut, scan", low(seed), mixed(seed + 2, 3, scan, 60, 20, 3)),
        of_bytes::<O>(
            "long bitmap",
            deep(seed),
            whole(of_large, long_bitmap, vec![Op::Put(70, 0), Op::Put(71, 0), Op::Kill]),
        ),
        of_bytes::<O>("pieces", low(seed), whole(sizes(2, lazy), vec![], pieces())),
        of_bytes::<O>("pieces refused", low(seed), refused_pieces()),
        of_words::<O>("creation", by_lines(), whole(sizes(2, lazy), vec![], vec![])),
        of_bytes::<O>(
            "closed chunks",
            deep(seed),
            whole(
                sizes(8, lazy),
                (1..10).map(|key| Op::Put(key, bytes(900))).collect(),
                (1..9).map(Op::Delete).chain([Op::CollectAll]).collect(),
            ),
        ),
        of_bytes::<O>(
            "narrowed chunk",
            deep(seed),
            whole(of_large, narrowed, vec![Op::Kill, Op::Put(12, bytes(100)), Op::Put(20, bytes(500))]),
        ),
    ];
    if !O::SHIFTS {
        // What these break others do, where nothing shifts.
        const MORE: [&str; 4] = ["words, four lines", "words, random", "lives", "byte strings, cut, scan"];
        trials.retain(|trial| !MORE.contains(&trial.name()));
    }
    trials
}

/// One mutant in so many is tried when nothing else is said.
const ONE_IN: usize = 4;

/// `floor`: mutants that there are, tried or not.
fn assert_nothing_can_be_left_out<O: Order>(argued: &[Argued], floor: usize) {
    let share = Share::of_environment(ONE_IN);
    let report = run_some_mutants(&trials::<O>(21), argued, &share, &[], |_| Stage::quiet());
    println!("{}, {share}: {} mutants; {report}", O::ENGINE, report.found());
    for (trial, killed) in &report.kills {
        println!("  killed by {trial}: {}", killed.len());
    }
    assert!(report.is_good(), "{report}");
    assert!(report.found() >= floor, "{} mutants, {floor} before", report.found());
}

pub fn nothing_can_be_left_out_of_nodes_in_order() {
    assert_nothing_can_be_left_out::<Sorted>(ARGUED, 97);
}

pub fn nothing_can_be_left_out_of_nodes_without_order() {
    assert_nothing_can_be_left_out::<Unsorted>(ARGUED, 94);
}
