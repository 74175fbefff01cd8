//! Mutants of the hash table, made by the crash explorer ([`crash::mutants`](mod@crash::mutants)). A mutant leaves out one flush or fence
//! of the table's code, or stores one publish before the preceding fence or in two halves. At least one of the images that a crash of the
//! mutant can leave must be wrong, unless the mutant is equivalent.

use crate::common::Sample;
use crate::common::argued::{INTERVAL_IS_DEAD, LAST, META};
use crate::common::subject::{LAZY, Op, SCAN, Sizes, Work, lives, mixed, sizes};
use crate::common::trials::{assert_nothing_can_be_left_out, first, of_chunks, rollbacks};
use cdds::hash::Hashed;
use crash::{Argued, Kind, Options, Trial, WhichLine};
use index::{Keyed, Words};
use pmem::Fence;

/// Equivalent mutants besides those of `common/argued.rs`. There are more mutants than reasons, because one line has several mutants: a
/// swapped publish is an early publish elsewhere. Together with `common/argued.rs` there are four reasons: a table that was only made,
/// words that no number of buckets covers (D1), the meta block (V1), and the allocator (A3).
fn argued() -> Vec<Argued> {
    let versioned = include_str!("../src/versioned.rs");
    let resize = include_str!("../src/hash/resize.rs");
    let made = "a table that was only made is empty, and so is one that is made once more; what is acknowledged later passes a \
                fence first";
    let unseen = "D1: no reader looks there before the number of buckets says so, behind a later fence; and a shrink that took the \
                  place out of use was durable more than one fence ago";
    let cleared = "D1: no reader looks at a slot before the number of buckets covers it, and then its line, the zeros of the others \
                   with it, was flushed with the slot and fenced";
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
        (Kind::EarlyPublish, "hash/resize.rs", resize, "medium.publish(directory.segment_at(index)", unseen),
        (Kind::EarlyPublish, "cdds/src/meta.rs", META, LAST, INTERVAL_IS_DEAD),
        (
            Kind::DropLine(WhichLine::Nth(1)),
            "hash/directory.rs",
            include_str!("../src/hash/directory.rs"),
            "persist.flush(medium, segment, self.segment_bytes());",
            cleared,
        ),
    ]
    .into_iter()
    .map(|(kind, file, source, contains, why)| Argued::new(kind, file, source, contains, why))
    .collect()
}

/// Batches in write groups, one of which is refused (only a byte string can lack space); conditions; a clear.
fn together<S: Sample>() -> Work<Hashed<S>> {
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

fn trials<S: Sample>(workloads: Vec<Work<Hashed<S>>>, cap: usize) -> impl Iterator<Item = Trial> {
    let options = Options { cap, nested_cap: 8, samples: 8, line_cap: 64, ..Options::default() };
    let number = workloads.into_iter().enumerate();
    number
        .map(move |(number, workload)| Trial::of(format!("{} {number}", S::NAME), options.clone(), workload))
}

/// Number of mutants, tried or not.
const FOUND: usize = 117;
/// Number of chunks of a region in which a large value gets exactly 64 pieces.
const CHUNKS: u64 = 13;

pub fn nothing_can_be_left_out() {
    let words = vec![
        first(1),
        lives(sizes(2, LAZY), 14),
        rollbacks(LAZY, true),
        together(),
        mixed(1, sizes(2, LAZY), 100, 14, 0),
        mixed(6, sizes(2, SCAN), 100, 14, 4),
        mixed(17, sizes(2, LAZY), 150, 14, 4),
    ];
    let bytes = vec![
        first(1),
        lives(sizes(2, LAZY), 12),
        rollbacks(LAZY, true),
        together(),
        mixed(11, sizes(2, LAZY), 100, 14, 0),
        mixed(16, sizes(2, SCAN), 100, 14, 4),
        mixed(17, sizes(2, LAZY), 150, 14, 4),
        mixed(18, sizes(2, LAZY), 150, 14, 3),
    ];
    let mut trials: Vec<Trial> = trials::<Words>(words, 64).chain(trials::<Keyed>(bytes, 16)).collect();
    trials.extend(of_chunks::<Hashed<Keyed>>(Options::default().seed, CHUNKS));
    assert_nothing_can_be_left_out("cdds-hash", &trials, argued(), FOUND);
}
