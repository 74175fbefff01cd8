//! Shared parts of the mutation runs of trees and tables: workloads in which a mutant changes something.

use cdds::Recovery;
use crash::{Argued, Options, Share, Stage, Trial, run_some_mutants};
use pmem::Geometry;

use super::Tested;
use super::argued::ARGUED;
use super::subject::{LAZY, Op, Sizes, Work, sizes};

/// Low limits. They suffice for most mutants.
pub fn low(seed: u64) -> Options {
    Options { seed, cap: 32, nested_cap: 4, samples: 8, line_cap: 64, ..Options::default() }
}

/// High limits, for mutants that only a few steps show and that need several wrong lines.
pub fn deep(seed: u64) -> Options {
    Options { cap: 4096, line_cap: 256, ..low(seed) }
}

/// The number of a value of `count` bytes.
pub fn bytes(count: u32) -> u32 {
    count * 8
}

/// A region that need not grow. So no fence of a growth replaces a fence of the structure.
pub fn roomy() -> Sizes {
    Sizes { len: 96 << 10, ..sizes(2, LAZY) }
}

/// The first operations of a structure.
pub fn first<X: Tested>(value: u32) -> Work<X> {
    Work::new(roomy(), [Op::Put(3, value), Op::Put(5, 2), Op::Delete(3)])
}

/// More rollbacks than the list has places. The entries of each are removed, and places are reused. `collects`: every third time all
/// entries are removed.
pub fn rollbacks<X: Tested>(recovery: Recovery, collects: bool) -> Work<X> {
    let mut ops = vec![Op::Put(2, 7)];
    for round in 0..14 {
        ops.push(Op::Mark);
        ops.push(Op::Put(round % 3, round));
        ops.push(Op::Delete(2));
        ops.push(Op::Put(4, round));
        ops.push(Op::Back(vec![(0, None), (1, None), (2, Some(7)), (4, None)]));
        ops.push(Op::Release);
        if collects && round % 3 == 0 {
            ops.push(Op::CollectAll);
        }
    }
    ops.push(Op::CollectAll);
    ops.push(Op::Put(1, 1));
    Work::new(sizes(2, recovery), ops)
}

/// Workloads for the allocator, the region and large values: few steps with nearly all of their images. `chunks`: number of chunks of a
/// region in which a large value gets exactly 64 pieces.
pub fn of_chunks<X: Tested>(seed: u64, chunks: u64) -> Vec<Trial> {
    // Two contents per line: the durable one and the last one. So all images of the creation of a region are tried.
    let by_lines = Options { line_cap: 2, ..deep(seed) };
    let large = Geometry { chunk_bytes: 32 << 10, ..Geometry::tiny() };
    let of_large = Sizes { geometry: large, capacity: 1 << 20, ..sizes(8, LAZY) };
    let small = Sizes { capacity: Geometry::tiny().heap_at() + chunks * 4096, ..sizes(2, LAZY) };
    let piece = |key| Op::Put(key, bytes(1375) + key);
    let of = |name: &str, options: Options, sizes, prepare: Vec<Op>, ops: Vec<Op>| {
        Trial::of(name, options, Work::<X>::new(sizes, ops).after(prepare))
    };
    vec![
        of("creation", by_lines, sizes(2, LAZY), vec![], vec![]),
        of(
            "pieces",
            low(seed),
            sizes(2, LAZY),
            vec![],
            vec![piece(1), piece(2), Op::Put(1, 5), Op::Delete(2), Op::CollectAll, piece(3), Op::Kill],
        ),
        // The block that listed the refused value's pieces is reused for another record.
        of(
            "pieces refused",
            low(seed),
            small,
            vec![Op::Put(1, 3)],
            vec![Op::Kill, Op::TooLarge(2, bytes(66 * 488 + 300)), Op::Put(3, bytes(900))],
        ),
        of(
            "long bitmap",
            deep(seed),
            of_large,
            (1..70)
                .map(|key| Op::Put(key, bytes(500)))
                .chain((1..69).map(Op::Delete))
                .chain([Op::CollectAll])
                .collect(),
            vec![Op::Put(70, 0), Op::Put(71, 0), Op::Kill],
        ),
        of(
            "closed chunks",
            deep(seed),
            sizes(8, LAZY),
            (1..10).map(|key| Op::Put(key, bytes(900))).collect(),
            (1..9).map(Op::Delete).chain([Op::CollectAll]).collect(),
        ),
        of(
            "narrowed chunk",
            deep(seed),
            of_large,
            vec![Op::Put(4, 0), Op::Delete(4), Op::CollectAll],
            vec![Op::Kill, Op::Put(12, bytes(100)), Op::Put(20, bytes(500))],
        ),
    ]
}

/// By default one mutant in this many is tried.
const ONE_IN: usize = 4;

/// Each mutant makes an image of a trial wrong, or is equivalent: in [`ARGUED`] or `argued`. `floor`: number of mutants, tried or not.
pub fn assert_nothing_can_be_left_out(engine: &str, trials: &[Trial], argued: Vec<Argued>, floor: usize) {
    let argued = [ARGUED.to_vec(), argued].concat();
    let share = Share::of_environment(ONE_IN);
    let report = run_some_mutants(trials, &argued, &share, &[], |_| Stage::quiet());
    println!("{engine}, {share}: {} mutants; {report}", report.found());
    for (trial, killed) in &report.kills {
        println!("  killed by {trial}: {}", killed.len());
    }
    assert!(report.is_good(), "{report}");
    assert!(report.found() >= floor, "{} mutants, {floor} before", report.found());
}
