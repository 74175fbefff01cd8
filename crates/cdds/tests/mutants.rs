//! The reverse of `crash`: each flush and each fence is left out, each publish is stored before the fence in front of it, or in two
//! halves; every time some image must break, or a sentence says why none can.
//!
//! A mutant is tried on the workloads in which it changes something, in their order, until one breaks.

mod common;

use std::collections::BTreeMap;

use cdds::Recovery;
use common::Sample;
use common::subject::{Bytes, Op, Sizes, Work, lives, mixed, sizes};
use crash::{Argued, Kind, Mutant, Options, Report, Spot, Workload, explore_mutant};
use pmem::{Fence, Geometry};
use tree::{Keyed, Words};

const META: &str = include_str!("../src/meta.rs");
const REGION: &str = include_str!("../../pmem/src/region.rs");
const ALLOC: &str = include_str!("../../pmem/src/alloc.rs");

const fn argued(
    kind: Kind,
    file_suffix: &'static str,
    source: &'static str,
    contains: &'static str,
    why: &'static str,
) -> Argued {
    Argued { spot: Spot { kind, file_suffix, source, contains }, why }
}

const COUNT: &str = "medium.publish(self.word_at(if holds_old { 4 } else { 3 }), count_word(state));";
const LAST: &str = "medium.publish(at + WORD, hi);";

/// What no image can break, and why.
const ARGUED: &[Argued] = &[
    argued(
        Kind::SwapPublish,
        "cdds/src/meta.rs",
        META,
        COUNT,
        "a count is read only if it is of the current version, which is published behind the fence",
    ),
    argued(
        Kind::SplitPublish,
        "cdds/src/meta.rs",
        META,
        COUNT,
        "the version is in the upper half: of half a count it is still an older one, and nobody reads it",
    ),
    argued(
        Kind::SwapPublish,
        "cdds/src/meta.rs",
        META,
        LAST,
        "in a free slot an interval is none before its first version is published; one that grows says of a version that was not \
         committed, and never will be, that it is dead (V1)",
    ),
    argued(
        Kind::DropFlush,
        "pmem/src/region.rs",
        REGION,
        "self.medium.flush(LENGTH_AT, WORD);",
        "the note is for telling a file that was cut off; an open that finds an older one writes it again",
    ),
    argued(
        Kind::DropFence(Fence::Allocate),
        "pmem/src/region.rs",
        REGION,
        "self.medium.fence(Fence::Allocate);",
        "the same: whoever takes a chunk of the new room does not ask the note",
    ),
    argued(
        Kind::SwapPublish,
        "pmem/src/alloc.rs",
        ALLOC,
        "medium.publish(at, 0);",
        "the chunk was free before the operation began: that it is may be durable at any time",
    ),
];

/// A large value that is refused when some of its pieces have bits, and then another record in its place: broken by a workload of
/// the lab's suite (`refused`), whatever the tree.
const ELSEWHERE: &[Argued] = &[argued(
    Kind::DropFence(Fence::Allocate),
    "pmem/src/alloc.rs",
    ALLOC,
    "region.medium().fence(Fence::Allocate);",
    "A2: what gives up a record's pieces is the allocator's own",
)];

/// A workload with bounds of its own.
struct Run {
    name: &'static str,
    explore: Box<dyn Fn(Option<Mutant>) -> Report>,
}

fn run<S: Sample>(name: &'static str, options: Options, work: Work<S>) -> Run
where
    S::KeyBuf: Bytes,
    S::ValueBuf: Bytes,
{
    Run { name, explore: Box::new(move |mutant| explore_mutant(&work, &options, mutant)) }
}

/// Most mutants break at once.
fn low(seed: u64) -> Options {
    Options { seed, cap: 32, nested_cap: 4, samples: 8, line_cap: 64, ..Options::default() }
}

/// For what only a few steps show, where several lines at once have to go wrong.
fn deep(seed: u64) -> Options {
    Options { cap: 4096, line_cap: 256, ..low(seed) }
}

fn whole<S: Sample>(sizes: Sizes, prepare: Vec<Op>, ops: Vec<Op>) -> Work<S>
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

fn runs(seed: u64) -> Vec<Run> {
    let (lazy, scan) = (Recovery::Lazy, Recovery::Scan);
    // An inner node of four lines is as large as the meta block: no chunk is opened, so no fence stands before its intents.
    let split = Op::Batch((1..9).map(|key| (key, Some(key))).collect());
    let large = Geometry { chunk_bytes: 32 << 10, ..Geometry::tiny() };
    let long_bitmap: Vec<Op> = (1..70)
        .map(|key| Op::Put(key, bytes(500)))
        .chain((1..69).map(Op::Delete))
        .chain([Op::CollectAll])
        .collect();
    let narrowed = vec![Op::Put(1, 0), Op::Delete(1), Op::CollectAll];
    let of_large = Sizes { geometry: large, capacity: 1 << 20, ..sizes(8, lazy) };
    let small = Sizes { capacity: 80 << 10, ..sizes(2, lazy) };
    vec![
        run::<Words>("words, first operations", deep(seed), whole(roomy(), vec![], first(seed))),
        run::<Words>("a split first", deep(seed), whole(Sizes { lines: 4, ..roomy() }, vec![], vec![split])),
        run::<Words>("words, four lines", low(6), mixed(6, 4, lazy, 60, 24, 0)),
        run::<Keyed>("byte strings, first operations", deep(seed), whole(roomy(), vec![], first(seed))),
        run::<Keyed>("byte strings, random", low(seed), mixed(seed, 2, lazy, 60, 14, 0)),
        run::<Words>("words, random", low(seed), mixed(seed, 2, lazy, 60, 14, 0)),
        run::<Keyed>("refused", low(seed), whole(small, vec![], refused())),
        run::<Words>("rollbacks", low(seed), whole(sizes(2, lazy), vec![], rollbacks())),
        run::<Keyed>("lives", low(seed), lives(3, lazy, 20)),
        run::<Keyed>("byte strings, cut", low(seed), mixed(seed + 1, 2, lazy, 120, 14, 3)),
        run::<Keyed>("byte strings, cut, scan", low(seed), mixed(seed + 2, 3, scan, 60, 20, 3)),
        run::<Keyed>(
            "long bitmap",
            deep(seed),
            whole(of_large, long_bitmap, vec![Op::Put(70, 0), Op::Put(71, 0), Op::Kill]),
        ),
        run::<Keyed>(
            "closed chunks",
            deep(seed),
            whole(
                sizes(8, lazy),
                (1..10).map(|key| Op::Put(key, bytes(900))).collect(),
                (1..9).map(Op::Delete).chain([Op::CollectAll]).collect(),
            ),
        ),
        run::<Keyed>(
            "narrowed chunk",
            deep(seed),
            whole(of_large, narrowed, vec![Op::Kill, Op::Put(2, bytes(500)), Op::Put(3, bytes(500))]),
        ),
    ]
}

/// Tries every mutant. Returns how many were killed.
fn mutation(seed: u64) -> usize {
    let runs = runs(seed);
    let mut bases: Vec<Report> = Vec::new();
    for run in &runs {
        let base = (run.explore)(None);
        println!(
            "{}: {} images at {} crash points, {} inside recovery, {} mutants, {:?}",
            run.name,
            base.images,
            base.crash_points,
            base.nested_images,
            base.mutants.len(),
            base.elapsed,
        );
        assert!(!base.is_violated(), "{} without a mutant: {base}", run.name);
        bases.push(base);
    }
    let mut total = Report::default();
    bases.iter().for_each(|base| total.merge(base.clone()));
    let (mut killed, mut survived) = (BTreeMap::<&str, usize>::new(), Vec::new());
    let lists: Vec<&Argued> = ARGUED.iter().chain(ELSEWHERE).collect();
    let mut needed = vec![false; lists.len()];
    for mutant in crash::mutants(&total) {
        let changed = runs.iter().zip(&bases).filter(|(_, base)| base.mutants.contains(&mutant));
        let killer = changed.into_iter().find(|(run, _)| (run.explore)(Some(mutant)).is_violated());
        if killer.is_none() {
            println!("survives: {mutant}");
        }
        let argument = lists.iter().position(|argued| argued.spot.matches(&mutant));
        match (killer, argument) {
            (Some((run, _)), _) => *killed.entry(run.name).or_default() += 1,
            (None, Some(index)) => needed[index] = true,
            (None, None) => survived.push(mutant.to_string()),
        }
    }
    println!("killed: {killed:?}");
    assert!(survived.is_empty(), "survived:\n{}", survived.join("\n"));
    let stale: Vec<_> =
        ARGUED.iter().zip(&needed).filter(|(_, needed)| !**needed).map(|(argued, _)| argued).collect();
    assert!(stale.is_empty(), "no survivor needs these arguments: {stale:#?}");
    killed.values().sum()
}

#[test]
fn nothing_can_be_left_out() {
    let killed = mutation(21);
    println!("{killed} mutants killed, {} argued", ARGUED.len());
    assert!(killed >= 46, "only {killed} mutants");
}
