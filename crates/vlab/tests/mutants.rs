//! The reverse of `crash`: each flush and each fence is left out, each publish is stored before the fence in front of it, or in two
//! halves; every time some image must break, or a sentence says why none can.
//!
//! A mutant is tried on the workloads in which it changes something, in their order, until one breaks.

mod common;

use common::subject::{Op, Sizes, Work, mixed, sizes};
use crash::{Argued, Kind, Options, Stage, Trial, Workload, run_mutants};
use pmem::{Fence, Geometry};
use tree::{Keyed, Words};

const CORE: &str = include_str!("../../chain/src/core.rs");
const REGION: &str = include_str!("../../pmem/src/region.rs");
const ALLOC: &str = include_str!("../../pmem/src/alloc.rs");

/// What no image can break, and why.
const ARGUED: &[Argued] = &[
    Argued::new(
        Kind::DropFence(Fence::Commit),
        "chain/src/core.rs",
        CORE,
        "medium.fence(Fence::Commit); // [format]",
        "without its root an index opens as a new one, which it is until the next operation; and that has passed a fence before it \
         names a block: an insert's own, or the one with which the first chunk of records is opened",
    ),
    Argued::new(
        Kind::DropFlush,
        "pmem/src/region.rs",
        REGION,
        "self.medium.flush(LENGTH_AT, WORD);",
        "the note is for telling a file that was cut off; an open that finds an older one writes it again",
    ),
    Argued::new(
        Kind::DropFence(Fence::Allocate),
        "pmem/src/region.rs",
        REGION,
        "self.medium.fence(Fence::Allocate);",
        "the same: whoever takes a chunk of the new room does not ask the note",
    ),
    Argued::new(
        Kind::SwapPublish,
        "pmem/src/alloc.rs",
        ALLOC,
        "medium.publish(at, 0);",
        "the chunk was free before the operation began: that it is may be durable at any time",
    ),
];

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
    puts.into_iter().chain([Op::Rebuild]).chain(deletes).chain([batch, Op::Kill]).collect()
}

fn of_words(name: &str, options: Options, work: Work<Words>) -> Trial {
    Trial::of(name, options, work)
}

fn of_bytes(name: &str, options: Options, work: Work<Keyed>) -> Trial {
    Trial::of(name, options, work)
}

fn trials(seed: u64) -> Vec<Trial> {
    let large = Geometry { chunk_bytes: 32 << 10, ..Geometry::tiny() };
    let of_large = Sizes { geometry: large, capacity: 1 << 20, ..sizes(8, false) };
    let long_bitmap: Vec<Op> =
        (1..70).map(|key| Op::Put(key, bytes(500))).chain((1..69).map(Op::Delete)).collect();
    vec![
        of_words("words, first operations", deep(seed), Workload::new(roomy(false), first())),
        of_words("words, first operations, paper", deep(seed), Workload::new(roomy(true), first())),
        of_bytes("byte strings, first operations", deep(seed), Workload::new(roomy(false), first())),
        of_words("words, random, paper", low(seed), mixed(seed, sizes(2, true), 80, 14, 0)),
        of_bytes("byte strings, random, paper", low(seed), mixed(seed + 1, sizes(2, true), 40, 14, 0)),
        of_bytes("byte strings, cut", low(seed), mixed(seed + 1, sizes(2, false), 60, 14, 3)),
        of_bytes(
            "long bitmap",
            deep(seed),
            Workload::new(of_large, [Op::Put(70, 0), Op::Put(71, 0), Op::Kill]).after(long_bitmap),
        ),
        of_bytes(
            "closed chunks",
            deep(seed),
            Workload::new(sizes(8, false), (1..9).map(Op::Delete))
                .after((1..10).map(|key| Op::Put(key, bytes(900)))),
        ),
        of_bytes(
            "narrowed chunk",
            deep(seed),
            Workload::new(of_large, [Op::Kill, Op::Put(2, bytes(100)), Op::Put(3, bytes(500))])
                .after([Op::Put(1, 0), Op::Delete(1)]),
        ),
    ]
}

#[test]
fn nothing_can_be_left_out() {
    let report = run_mutants(&trials(21), ARGUED, |_| Stage::quiet());
    println!("{report}");
    for (trial, killed) in &report.kills {
        println!("  killed by {trial}: {}", killed.len());
    }
    assert!(report.is_good(), "{report}");
    assert!(report.killed.len() >= 46, "{} mutants were killed, 46 before", report.killed.len());
}
