//! The reverse of `crash`: each flush and each fence is left out, each publish is stored before the fence in front of it, or in two
//! halves; every time some image must break, or a sentence says why none can.
//!
//! A mutant is tried on the workloads in which it changes something, in their order, until one breaks.

mod common;

use std::collections::BTreeMap;
use std::thread;

use common::Sample;
use common::subject::{Op, Sizes, Work, mixed, sizes};
use crash::{Argued, Kind, Mutant, Options, Report, Spot, Workload, explore_mutant};
use pmem::{Fence, Geometry};
use tree::{Keyed, Words};

const INDEX: &str = include_str!("../src/index.rs");
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

/// What no image can break, and why.
const ARGUED: &[Argued] = &[
    argued(
        Kind::DropFence(Fence::Commit),
        "vlab/src/index.rs",
        INDEX,
        "medium.fence(Fence::Commit); // [format]",
        "without its root an index opens as a new one, which it is until the next operation; and that has passed a fence before it \
         names a block: an insert's own, or the one with which the first chunk of records is opened",
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

/// A workload with bounds of its own.
struct Run {
    name: &'static str,
    explore: Box<dyn Fn(Option<Mutant>) -> Report + Send + Sync>,
}

fn run<S: Sample>(name: &'static str, options: Options, work: Work<S>) -> Run {
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

/// A value of so many bytes.
fn bytes(count: u32) -> u32 {
    count * 8
}

/// In a region that need not grow: nothing that growth waits for stands in for a fence of the index's own.
fn roomy(faithful: bool) -> Sizes {
    Sizes { len: 96 << 10, ..sizes(2, faithful) }
}

/// The first operations of all, with splits, a combine and merges.
fn first() -> Vec<Op> {
    let puts = [3, 5, 9, 7, 4, 6, 1, 2, 8, 10].map(|key| Op::Put(key, key + 1));
    let deletes = [3, 4, 5, 6, 7].map(Op::Delete);
    let batch = Op::Batch(vec![(6, Some(6)), (1, None), (11, Some(2))]);
    puts.into_iter().chain([Op::Combine]).chain(deletes).chain([batch, Op::Kill]).collect()
}

fn runs(seed: u64) -> Vec<Run> {
    let large = Geometry { chunk_bytes: 32 << 10, ..Geometry::tiny() };
    let of_large = Sizes { geometry: large, capacity: 1 << 20, ..sizes(8, false) };
    let long_bitmap: Vec<Op> =
        (1..70).map(|key| Op::Put(key, bytes(500))).chain((1..69).map(Op::Delete)).collect();
    vec![
        run::<Words>("words, first operations", deep(seed), Workload::new(roomy(false), first())),
        run::<Words>("words, first operations, paper", deep(seed), Workload::new(roomy(true), first())),
        run::<Keyed>("byte strings, first operations", deep(seed), Workload::new(roomy(false), first())),
        run::<Words>("words, random, paper", low(seed), mixed(seed, sizes(2, true), 80, 14, 0)),
        run::<Keyed>("byte strings, random, paper", low(seed), mixed(seed + 1, sizes(2, true), 40, 14, 0)),
        run::<Keyed>("byte strings, cut", low(seed), mixed(seed + 1, sizes(2, false), 60, 14, 3)),
        run::<Keyed>(
            "long bitmap",
            deep(seed),
            Workload::new(of_large, [Op::Put(70, 0), Op::Put(71, 0), Op::Kill]).after(long_bitmap),
        ),
        run::<Keyed>(
            "closed chunks",
            deep(seed),
            Workload::new(sizes(8, false), (1..9).map(Op::Delete))
                .after((1..10).map(|key| Op::Put(key, bytes(900)))),
        ),
        run::<Keyed>(
            "narrowed chunk",
            deep(seed),
            Workload::new(of_large, [Op::Kill, Op::Put(2, bytes(100)), Op::Put(3, bytes(500))])
                .after([Op::Put(1, 0), Op::Delete(1)]),
        ),
    ]
}

/// What became of one mutant: who killed it.
type Outcome = (Mutant, Option<&'static str>);

/// Tries every second mutant, from `first` on.
fn try_some(runs: &[Run], bases: &[Report], mutants: &[Mutant], first: usize) -> Vec<Outcome> {
    let each = mutants.iter().skip(first).step_by(2);
    each.map(|mutant| {
        let mut changed = runs.iter().zip(bases).filter(|(_, base)| base.mutants.contains(mutant));
        let killer = changed.find(|(run, _)| (run.explore)(Some(*mutant)).is_violated());
        (*mutant, killer.map(|(run, _)| run.name))
    })
    .collect()
}

/// Tries every mutant. Returns how many were killed.
fn mutation(seed: u64) -> usize {
    let runs = runs(seed);
    let mut total = Report::default();
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
        total.merge(base.clone());
        bases.push(base);
    }
    let mutants = crash::mutants(&total);
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let other = scope.spawn(|| try_some(&runs, &bases, &mutants, 1));
        let mut outcomes = try_some(&runs, &bases, &mutants, 0);
        outcomes.extend(other.join().expect("the other half panicked"));
        outcomes
    });
    let (mut killed, mut survived) = (BTreeMap::<&str, usize>::new(), Vec::new());
    let mut needed = vec![false; ARGUED.len()];
    for (mutant, killer) in outcomes {
        if killer.is_none() {
            println!("survives: {mutant}");
        }
        let argument = ARGUED.iter().position(|argued| argued.spot.matches(&mutant));
        match (killer, argument) {
            (Some(run), _) => *killed.entry(run).or_default() += 1,
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
