//! The workloads of indexes that are not trees.

use crash::{Step, Workload, interrupted, random};
use pmem::Geometry;

use super::subject::{Indexed, Op, Sizes, sizes};
use crate::subject::Explored;

/// A workload of an index.
pub type Work<E> = Workload<Indexed<E>>;

/// Random operations over `keys` keys, with rebuilds, closes and kills. About one step in `cuts` is cut.
pub fn mixed<E: Explored<Sizes = Sizes>>(
    seed: u64,
    sizes: Sizes,
    count: usize,
    keys: u32,
    cuts: usize,
) -> Work<E> {
    let ops = random(seed, count, |rng| {
        let (key, value) = (rng.u32(..keys), rng.u32(..64));
        match rng.u32(..100) {
            0..52 => Op::Put(key, value),
            52..86 => Op::Delete(key),
            86..92 => Op::Batch(
                (0..rng.u32(1..5)).map(|_| (rng.u32(..keys), rng.bool().then(|| rng.u32(..64)))).collect(),
            ),
            92..96 => Op::Maintain,
            96..98 => Op::Reopen,
            _ => Op::Kill,
        }
    });
    let steps =
        if cuts == 0 { ops.into_iter().map(Step::Run).collect() } else { interrupted(seed, cuts, ops) };
    Workload { config: sizes, prepare: Vec::new(), steps }
}

/// Fills an empty index, empties it, and fills it again: splits, appends, rebuilds; merges; then reuse.
pub fn lives<E: Explored<Sizes = Sizes>>(sizes: Sizes, keys: u32) -> Work<E> {
    let mut ops: Vec<Op> = (0..keys).map(|i| Op::Put(i * 7 % keys, i)).collect();
    ops.extend((0..keys).map(|i| Op::Delete(i * 5 % keys)));
    ops.extend((0..keys).map(|i| Op::Put(i, i + 1)));
    ops.extend((0..keys / 2).map(|i| Op::Put(i * 2, i + 2)));
    Workload::new(sizes, ops)
}

/// Write groups over distant leaves and over one leaf: inserts, updates and deletes together, some of which find no space or leave little.
/// The region need not grow.
pub fn write_groups<E: Explored<Sizes = Sizes>>(lines: u64, faithful: bool) -> Work<E> {
    let sizes = Sizes { len: 96 << 10, ..sizes(lines, faithful) };
    let before = (0..16).map(|i| Op::Put(i * 2, i)).chain([Op::Maintain]);
    let many = |from: u32, step: u32, count: u32| {
        Op::Many((0..count).map(|i| (from + i * step, (i % 3 < 2).then_some(from + 40 + i))).collect())
    };
    let ops = vec![many(1, 9, 3), many(4, 8, 4), many(3, 7, 4), Op::Kill, many(0, 5, 6), many(2, 2, 9)];
    Workload::new(sizes, ops).after(before.collect::<Vec<_>>())
}

/// The first operations of an index, with splits, a rebuild and merges. The region need not grow, so no fence of a growth replaces one of
/// the index's own.
pub fn first<E: Explored<Sizes = Sizes>>(lines: u64, faithful: bool) -> Work<E> {
    let puts = [3, 5, 9, 7, 4, 6, 1, 2, 8, 10].map(|key| Op::Put(key, key + 1));
    let deletes = [3, 4, 5, 6, 7].map(Op::Delete);
    let batch = Op::Batch(vec![(6, Some(6)), (1, None), (11, Some(2))]);
    let ops = puts.into_iter().chain([Op::Maintain]).chain(deletes).chain([batch, Op::Kill]);
    Workload::new(Sizes { len: 96 << 10, ..sizes(lines, faithful) }, ops.collect::<Vec<_>>())
}

/// Deletes that merge leaves, then puts that reuse their blocks and split leaves.
pub fn reuse<E: Explored<Sizes = Sizes>>(lines: u64) -> Work<E> {
    let before = (0..26).map(|key| Op::Put(key, key));
    let merges = (0..10).chain(12..22).map(Op::Delete);
    let ops = merges.chain((30..50).map(|key| Op::Put(key * 7 % 64, key))).chain([Op::Kill, Op::Put(5, 6)]);
    let sizes = Sizes { len: 96 << 10, ..sizes(lines, false) };
    Workload::new(sizes, ops.collect::<Vec<_>>()).after(before.collect::<Vec<_>>())
}

/// Splits, many of which are cut. Each next operation continues from the stores of a recovery.
pub fn cut_splits<E: Explored<Sizes = Sizes>>(lines: u64, seed: u64) -> Work<E> {
    let puts = (0..120).map(|i| Op::Put(i * 37 % 120, i));
    let steps = interrupted(seed, 2, puts);
    Workload { config: sizes(lines, false), prepare: Vec::new(), steps }
}

/// Leaves of 8 lines, and chunks large enough for larger records.
fn of_large() -> Sizes {
    let geometry = Geometry { chunk_bytes: 32 << 10, ..Geometry::tiny() };
    Sizes { geometry, capacity: 1 << 20, ..sizes(8, false) }
}

/// Bitmaps longer than a chunk header's line. The number of a value is its length in bytes.
pub fn long_bitmap<E: Explored<Sizes = Sizes>>() -> Work<E> {
    let before: Vec<Op> = (1..70).map(|key| Op::Put(key, 500)).chain((1..69).map(Op::Delete)).collect();
    Workload::new(of_large(), [Op::Put(70, 0), Op::Put(71, 0), Op::Kill]).after(before)
}

/// Chunks become empty.
pub fn closed_chunks<E: Explored<Sizes = Sizes>>() -> Work<E> {
    Workload::new(sizes(8, false), (1..9).map(Op::Delete)).after((1..10).map(|key| Op::Put(key, 900)))
}

/// Chunks with one record each, then records of other sizes. After each write, records move together. The chunks that this frees are used,
/// held and discarded.
pub fn moved_records<E: Explored<Sizes = Sizes>>() -> Work<E> {
    let before = (1..=36).map(|key| Op::Put(key, 900));
    let before = before.chain((1..=32).filter(|key| key % 4 != 0).map(Op::Delete));
    let ops = [Op::Put(3, 600), Op::Put(7, 600), Op::Kill].into_iter();
    let ops = ops.chain((40..46).map(|key| Op::Put(key, 1800)));
    Workload::new(sizes(8, false), ops.collect::<Vec<_>>()).after(before.collect::<Vec<_>>())
}

/// Clears an index of several leaves. Each later write frees a leaf, across a kill and a close. A second clear first frees the rest of the
/// first one. An empty index is cleared, too.
pub fn clears<E: Explored<Sizes = Sizes>>(lines: u64) -> Work<E> {
    let sizes = Sizes { len: 96 << 10, ..sizes(lines, false) };
    let puts = |keys: std::ops::Range<u32>| keys.map(|key| Op::Put(key, key + 1));
    let ops = [Op::Clear].into_iter().chain(puts(7..9)).chain([Op::Kill, Op::Delete(8), Op::Reopen]);
    let ops = ops.chain(puts(0..14)).chain([Op::Clear, Op::Put(3, 4), Op::Kill, Op::Clear, Op::Clear]);
    Workload::new(sizes, ops.chain(puts(2..6)).collect::<Vec<_>>()).after(puts(0..18).collect::<Vec<_>>())
}

/// An empty chunk of the smallest blocks, read by an open, becomes a chunk of larger records.
pub fn narrowed_chunk<E: Explored<Sizes = Sizes>>() -> Work<E> {
    Workload::new(of_large(), [Op::Kill, Op::Put(2, 100), Op::Put(3, 500)])
        .after([Op::Put(1, 0), Op::Delete(1)])
}
