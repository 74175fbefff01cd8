//! The reverse proof: each flush, fence and publish of the hash table left out or torn in turn, some image must break.

#[allow(dead_code)]
#[path = "hash_common/subject.rs"]
#[allow(dead_code)]
mod subject;

use crate::common::Sample;
use crate::common::subject::{Bytes, Op, Sizes};
use crate::hash_common::subject::{LAZY, SCAN, Work, lives, mixed, sizes};
use cdds::Recovery;
use crash::{Argued, Kind, Mutant, Options, Stage, Trial, run_mutants};
use pmem::Fence;
use tree::{Keyed, Words};

/// Mutants that no image can break.
fn argued() -> Vec<Argued> {
    let versioned = include_str!("../src/versioned.rs");
    let resize = include_str!("../src/hash/resize.rs");
    let meta = include_str!("../src/meta.rs");
    let made = "a table that was only made is empty, and so is one that is made once more; what is acknowledged later passes a \
                fence first";
    let unseen = "D1: nobody looks there before the number of buckets says so, behind a later fence; and a shrink that took the \
                  place out of use was durable more than one fence ago";
    let count = "the count in this place is of another version until the current one is published, behind it in its line";
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

#[test]
fn no_flush_and_no_fence_can_be_left_out() {
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
    let trials: Vec<Trial> = trials::<Words>(words, 64).chain(trials::<Keyed>(bytes, 16)).collect();
    let report = run_mutants(&trials, &argued(), |_| Stage::quiet());
    println!("{report}");
    assert!(!report.base.is_violated(), "{report}");
    // What the allocator and the region do is proved where every engine is.
    let ours = |mutant: &&Mutant| !mutant.site.file().contains("pmem/src");
    let survived: Vec<String> = report.survived.iter().filter(ours).map(Mutant::to_string).collect();
    assert!(survived.is_empty(), "survived:\n{}", survived.join("\n"));
    assert!(report.stale.is_empty(), "no survivor needs these arguments: {:#?}", report.stale);
    let killed = report.killed.iter().map(|(mutant, _)| mutant).filter(ours).count();
    assert!(killed >= 36, "{killed} mutants were killed, 36 before");
}
