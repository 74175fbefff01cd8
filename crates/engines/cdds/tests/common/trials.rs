//! What the mutation runs of trees and tables share: workloads in which a mutant changes something, and mutants that no image can break.

use cdds::Recovery;
use crash::{Argued, FREE_CHUNK, Kind, Options, Share, Stage, Trial, run_some_mutants};
use pmem::Geometry;

use super::Tested;
use super::subject::{LAZY, Op, Sizes, Work, sizes};

pub const META: &str = include_str!("../../src/meta.rs");
const ALLOC: &str = include_str!("../../../../pmem/src/heap/alloc/allocator.rs");

/// What stores a count.
pub const COUNT: &str = "medium.publish(self.word_at(if holds_old { 4 } else { 3 }), count_word(state));";
/// What ends an interval of dead versions.
pub const LAST: &str = "medium.publish(at + WORD, hi);";
pub const COUNT_IS_UNREAD: &str =
    "a count is read only if it is of the current version, which is published behind the fence";
pub const INTERVAL_IS_DEAD: &str = "V1: in a free slot an interval is none before its first version is published; one that grows says \
     of a version that was not committed, and never will be, that it is dead";

/// What no image can break in either structure, and why.
pub const ARGUED: [Argued; 4] = [
    Argued::new(Kind::SwapPublish, "cdds/src/meta.rs", META, COUNT, COUNT_IS_UNREAD),
    Argued::new(
        Kind::SplitPublish,
        "cdds/src/meta.rs",
        META,
        COUNT,
        "the version is in the upper half: of half a count it is still an older one, and no lookup reads it",
    ),
    Argued::new(
        Kind::EarlyPublish,
        "pmem/src/heap/alloc/allocator.rs",
        ALLOC,
        "medium.publish(at, class.word());",
        "A3: a free chunk's bitmap is durably zero, so a chunk that is opened too early is an open one without blocks, which \
         recovery frees",
    ),
    FREE_CHUNK,
];

/// Most mutants break at once.
pub fn low(seed: u64) -> Options {
    Options { seed, cap: 32, nested_cap: 4, samples: 8, line_cap: 64, ..Options::default() }
}

/// For what only a few steps show, where several lines at once have to go wrong.
pub fn deep(seed: u64) -> Options {
    Options { cap: 4096, line_cap: 256, ..low(seed) }
}

/// A value of so many bytes.
pub fn bytes(count: u32) -> u32 {
    count * 8
}

/// In a region that need not grow: nothing that growth waits for stands in for a fence of the structure's own.
pub fn roomy() -> Sizes {
    Sizes { len: 96 << 10, ..sizes(2, LAZY) }
}

/// The first operations of all.
pub fn first<X: Tested>(value: u32) -> Work<X> {
    Work::new(roomy(), [Op::Put(3, value), Op::Put(5, 2), Op::Delete(3)])
}

/// More rollbacks than the list has places, with the traces of each to be removed, and places used again. `collects`: every third
/// time all of them are removed.
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

/// What the allocator, the region and large values need: few steps, and nearly all of their images. `chunks`: of a region in which
/// a large value gets 64 pieces and no more.
pub fn of_chunks<X: Tested>(seed: u64, chunks: u64) -> Vec<Trial> {
    // Of a line only what was durable and all that was stored: all images of a whole region's creation.
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
        // The block in which the refused value's pieces were listed goes to another record.
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

/// One mutant in so many is tried when nothing else is said.
const ONE_IN: usize = 4;

/// Each mutant breaks an image of a trial, or is one of those in [`ARGUED`] or `argued`. `floor`: mutants that there are, tried or not.
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
