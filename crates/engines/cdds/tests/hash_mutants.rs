//! The reverse proof: each flush, fence and publish of the hash table left out or torn in turn, some image must break.

use crate::common::Sample;
use crate::common::subject::{Bytes, Op, Sizes};
use crate::hash_common::subject::{LAZY, SCAN, Work, lives, mixed, sizes};
use cdds::Recovery;
use crash::{Argued, Kind, Options, Share, Stage, Trial, WhichLine, run_some_mutants};
use index::{Keyed, Words};
use pmem::{Fence, Geometry};

/// Mutants that no image can break. These are more than three, because one line has several mutants: a publish that is swapped is
/// early elsewhere. The reasons are six, and each names its invariant: a table that was only made, what no number of buckets covers (D1),
/// two of the meta block (V1), and two of the allocator (A3).
fn argued() -> Vec<Argued> {
    let versioned = include_str!("../src/versioned.rs");
    let resize = include_str!("../src/hash/resize.rs");
    let meta = include_str!("../src/meta.rs");
    let made = "a table that was only made is empty, and so is one that is made once more; what is acknowledged later passes a \
                fence first";
    let unseen = "D1: nobody looks there before the number of buckets says so, behind a later fence; and a shrink that took the \
                  place out of use was durable more than one fence ago";
    let count = "the count in this place is of another version until the current one is published, behind it in its line";
    let interval = "V1: in a free slot an interval is none before its first version is published; one that grows says of a version \
                    that was not committed, and never will be, that it is dead";
    let cleared = "D1: nobody looks at a slot before the number of buckets covers it, and then its line, the zeros of the others \
                   with it, was flushed with the slot and fenced";
    let alloc = include_str!("../../../pmem/src/heap/alloc/allocator.rs");
    let opened = "A3: a free chunk's bitmap is durably zero, so a chunk that is opened too early is an open one without blocks, \
                  which recovery takes back";
    let free = "A3: the chunk was free before the operation began: that it is may be durable at any time";
    [
        (
            Kind::DropFence(Fence::Commit),
            "cdds/src/versioned.rs",
            versioned,
            "medium.fence(Fence::Commit);",
            made,
        ),
        (Kind::SwapPublish, "hash/resize.rs", resize, "medium.publish(directory.segment_at(index)", unseen),
        (Kind::SwapPublish, "hash/resize.rs", resize, "medium.publish(slot_at, first);", unseen),
        (Kind::SwapPublish, "cdds/src/meta.rs", meta, "count_word(state));", count),
        (Kind::SplitPublish, "cdds/src/meta.rs", meta, "count_word(state));", count),
        (Kind::EarlyPublish, "hash/resize.rs", resize, "medium.publish(directory.segment_at(index)", unseen),
        (Kind::EarlyPublish, "cdds/src/meta.rs", meta, "medium.publish(at + WORD, hi);", interval),
        (
            Kind::DropLine(WhichLine::Nth(1)),
            "hash/directory.rs",
            include_str!("../src/hash/directory.rs"),
            "persist.flush(medium, segment, self.segment_bytes());",
            cleared,
        ),
        (
            Kind::EarlyPublish,
            "pmem/src/heap/alloc/allocator.rs",
            alloc,
            "medium.publish(at, class.word());",
            opened,
        ),
        (Kind::SwapPublish, "pmem/src/heap/alloc/allocator.rs", alloc, "medium.publish(at, 0);", free),
    ]
    .into_iter()
    .map(|(kind, file, source, contains, why)| Argued::new(kind, file, source, contains, why))
    .collect()
}

/// The first operations of all, in a region that need not grow: nothing that growth waits for stands in for a fence of the
/// table's own.
fn first<S: Sample>() -> Work<S>
where
    S::KeyBuf: Bytes,
    S::ValueBuf: Bytes,
{
    let roomy = Sizes { len: 96 << 10, ..sizes(2, LAZY) };
    Work::new(roomy, [Op::Put(3, 1), Op::Put(5, 2), Op::Delete(3)])
}

/// More rollbacks than the list has places, with the traces of each to be removed, and places used again.
fn rollbacks<S: Sample>(recovery: Recovery) -> Work<S>
where
    S::KeyBuf: Bytes,
    S::ValueBuf: Bytes,
{
    let mut ops = vec![Op::Put(2, 7)];
    for round in 0..14 {
        ops.push(Op::Mark);
        ops.push(Op::Put(round % 3, round));
        ops.push(Op::Delete(2));
        ops.push(Op::Put(4, round));
        ops.push(Op::Back(vec![(0, None), (1, None), (2, Some(7)), (4, None)]));
        ops.push(Op::Release);
        if round % 3 == 0 {
            ops.push(Op::CollectAll);
        }
    }
    ops.push(Op::CollectAll);
    ops.push(Op::Put(1, 1));
    Work::new(sizes(2, recovery), ops)
}

/// Batches in waves, of which one is refused (only of a byte string can there be no room); conditions; everything gone.
fn together<S: Sample>() -> Work<S>
where
    S::KeyBuf: Bytes,
    S::ValueBuf: Bytes,
{
    let all = |from: u32, to: u32, value| (from..to).map(|key| (key, Some(value + key))).collect::<Vec<_>>();
    let mut ops = vec![
        Op::Batch(all(0, 6, 10)),
        Op::Batch(vec![(0, Some(1)), (1, None), (4, None), (5, Some(5)), (5, None), (7, Some(9))]),
        Op::If(all(2, 4, 40), vec![(0, Some(1)), (1, None)]),
        Op::Clear,
        Op::Put(5, 5),
        Op::Mark,
        Op::Clear,
        Op::Release,
        Op::Batch(all(3, 8, 1)),
    ];
    if !S::PLAIN {
        ops.extend([Op::Refused(all(0, 4, 5)), Op::Put(3, 3), Op::Refused(all(2, 5, 7)), Op::Kill]);
    }
    ops.extend([Op::CollectAll, Op::Put(1, 1)]);
    Work::new(Sizes { capacity: 96 << 10, ..sizes(3, LAZY) }, ops)
}

fn trials<S: Sample>(workloads: Vec<Work<S>>, cap: usize) -> impl Iterator<Item = Trial>
where
    S::KeyBuf: Bytes,
    S::ValueBuf: Bytes,
{
    let options = Options { cap, nested_cap: 8, samples: 8, line_cap: 64, ..Options::default() };
    let number = workloads.into_iter().enumerate();
    number
        .map(move |(number, workload)| Trial::of(format!("{} {number}", S::NAME), options.clone(), workload))
}

/// A value of so many bytes.
fn bytes(count: u32) -> u32 {
    count * 8
}

/// What the allocator, the region and large values need: few steps, and nearly all of their images.
fn of_chunks() -> Vec<Trial> {
    let deep = Options { cap: 4096, nested_cap: 4, samples: 8, line_cap: 256, ..Options::default() };
    // Of a line only what was durable and all that was stored: all images of a whole region's creation.
    let by_lines = Options { line_cap: 2, ..deep.clone() };
    let low = Options { cap: 32, line_cap: 64, ..deep.clone() };
    let large = Geometry { chunk_bytes: 32 << 10, ..Geometry::tiny() };
    let of_large = Sizes { geometry: large, capacity: 1 << 20, ..sizes(8, LAZY) };
    let small = Sizes { capacity: Geometry::tiny().heap_at() + CHUNKS * 4096, ..sizes(2, LAZY) };
    let piece = |key| Op::Put(key, bytes(1375) + key);
    let of = |name: &str, options: &Options, sizes, prepare: Vec<Op>, ops: Vec<Op>| {
        Trial::of(name, options.clone(), Work::<Keyed>::new(sizes, ops).after(prepare))
    };
    vec![
        of("creation", &by_lines, sizes(2, LAZY), vec![], vec![]),
        of(
            "pieces",
            &low,
            sizes(2, LAZY),
            vec![],
            vec![piece(1), piece(2), Op::Put(1, 5), Op::Delete(2), Op::CollectAll, piece(3), Op::Kill],
        ),
        // The block in which the refused value's pieces were listed goes to another record.
        of(
            "pieces refused",
            &low,
            small,
            vec![Op::Put(1, 3)],
            vec![Op::Kill, Op::TooLarge(2, bytes(66 * 488 + 300)), Op::Put(3, bytes(900))],
        ),
        of(
            "long bitmap",
            &deep,
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
            &deep,
            sizes(8, LAZY),
            (1..10).map(|key| Op::Put(key, bytes(900))).collect(),
            (1..9).map(Op::Delete).chain([Op::CollectAll]).collect(),
        ),
        of(
            "narrowed chunk",
            &deep,
            of_large,
            vec![Op::Put(4, 0), Op::Delete(4), Op::CollectAll],
            vec![Op::Kill, Op::Put(12, bytes(100)), Op::Put(20, bytes(500))],
        ),
    ]
}

/// One mutant in so many is tried when nothing else is said.
const ONE_IN: usize = 4;
/// Mutants that there are, tried or not.
const FOUND: usize = 117;
/// Chunks of a region in which a large value gets 64 pieces and no more.
const CHUNKS: u64 = 13;

pub fn nothing_can_be_left_out() {
    let words = vec![
        first(),
        lives(sizes(2, LAZY), 14),
        rollbacks(LAZY),
        together(),
        mixed(1, sizes(2, LAZY), 100, 14, 0),
        mixed(6, sizes(2, SCAN), 100, 14, 4),
        mixed(17, sizes(2, LAZY), 150, 14, 4),
    ];
    let bytes = vec![
        first(),
        lives(sizes(2, LAZY), 12),
        rollbacks(LAZY),
        together(),
        mixed(11, sizes(2, LAZY), 100, 14, 0),
        mixed(16, sizes(2, SCAN), 100, 14, 4),
        mixed(17, sizes(2, LAZY), 150, 14, 4),
        mixed(18, sizes(2, LAZY), 150, 14, 3),
    ];
    let mut trials: Vec<Trial> = trials::<Words>(words, 64).chain(trials::<Keyed>(bytes, 16)).collect();
    trials.extend(of_chunks());
    let share = Share::of_environment(ONE_IN);
    let report = run_some_mutants(&trials, &argued(), &share, &[], |_| Stage::quiet());
    println!("{share}: {} mutants; {report}", report.found());
    for (trial, killed) in &report.kills {
        println!("  killed by {trial}: {}", killed.len());
    }
    assert!(report.is_good(), "{report}");
    assert!(report.found() >= FOUND, "{} mutants, {FOUND} before", report.found());
}
