//! Defects found by crash exploration, each as a small workload. Every test here failed until its defect was fixed.

use bptree::{Slotted, WriteAtomic};
use crash::{Step, by_tier, explore};
use crash_tree::subject::{Act, BULK_STEP, Op, Sampled, Sizes};
use crash_tree::workloads::{Maker, Plan, whole};
use index::kind::{Bytes, U64};
use index::{Keyed, Prefixed, SchemaOf, Words};

/// Operations for the tree in which these defects were found.
fn maker<K: Sampled, S: SchemaOf<K>>(lines: u64) -> Maker {
    Maker::new::<K, S, (Slotted, Slotted), WriteAtomic>(lines)
}

/// Explores every crash inside the steps, and a second crash inside recovery, up to a cap.
fn no_crash_breaks<K: Sampled, S: SchemaOf<K>>(plan: Plan) {
    within::<K, S>(plan, &bounds());
}

fn within<K: Sampled, S: SchemaOf<K>>(plan: Plan, bounds: &crash::Options) {
    let report = explore(&plan.of::<K, S, (Slotted, Slotted), WriteAtomic>(), bounds);
    assert!(!report.is_violated(), "{report}");
    assert!(report.images > 0, "{report}");
}

fn bounds() -> crash::Options {
    let base = crash::Options { create: false, close: false, ..crash::Options::default() };
    crash::Options { nested_cap: 16, samples: 8, line_cap: 64, ..base }
}

/// An operation whose continuation needs no block of a new size.
fn alone(act: Act, key: u32) -> Op {
    Op { act, key, burst: 0 }
}

/// The delete of a leaf's last key was one commit, the merge another. A crash between them kept an empty leaf in the tree. Recovery finds
/// the owner of a leaf by its keys, so it took the leaf for unowned and freed it.
#[test]
fn a_crash_between_a_delete_and_its_join_leaves_no_empty_leaf() {
    let maker = maker::<U64, Words>(2);
    let load = |leaf| maker.op(Act::Bulk(1), BULK_STEP * leaf);
    for victim in [1, 2] {
        let delete = maker.op(Act::Delete, BULK_STEP * victim);
        no_crash_breaks::<U64, Words>(whole(maker.sizes, vec![load(1), load(2)], vec![delete]));
    }
}

/// A change of the superblock always began with copy A. If an earlier crash had torn copy B, a second one then tore the only valid copy.
#[test]
fn the_newer_superblock_copy_is_not_overwritten_first() {
    let maker = maker::<U64, Words>(2);
    let reopen = maker.op(Act::Reopen, 1);
    no_crash_breaks::<U64, Words>(whole(maker.sizes, vec![maker.op(Act::Put(1), 1)], vec![reopen, reopen]));
}

/// A crash kept a growth but not its noted length. The next session used the chunks after the noted length and never updated it, so a file
/// truncated to that length would have passed as complete.
#[test]
fn a_growth_whose_note_was_lost_is_noted_at_open() {
    let maker = maker::<U64, Words>(2);
    let fill = (1..=maker.entries).map(|key| maker.op(Act::Put(key), key)).collect();
    // The split allocates the first chunk of inner nodes.
    let split = maker.op(Act::Put(0), maker.entries + 1);
    no_crash_breaks::<U64, Words>(whole(maker.sizes, fill, vec![split]));
}

/// The intent ring still referenced a record's block after the block's chunk was closed and held pieces of a large value. Recovery took the
/// piece at the same address for unowned and freed it.
#[test]
fn a_stale_intent_does_not_free_a_piece_of_a_large_value() {
    let bounds = crash::Options { cap: by_tier(512, 4096), ..bounds() };
    within::<Bytes, Prefixed>(maker::<Bytes, Prefixed>(2).reused_chunk(), &bounds);
    within::<Bytes, Keyed>(maker::<Bytes, Keyed>(2).reused_chunk(), &bounds);
}

/// The store that closes a chunk is not flushed. After a crash had lost it, the chunk kept its class forever. Then a full region refused a
/// record of another size although it had space.
#[test]
fn a_chunk_whose_closing_was_lost_is_found_empty() {
    let sizes = Sizes::new::<WriteAtomic>(16);
    // One chunk of leaves and three chunks of four records each: the region is full.
    let sizes = Sizes { capacity: sizes.geometry.heap_at() + 4 * sizes.geometry.chunk_bytes, ..sizes };
    let mut prepare: Vec<_> = (1..=12).map(|key| alone(Act::Put(900 * 16), key)).collect();
    prepare.extend([1, 5, 6, 7].map(|key| alone(Act::Delete, key)));
    no_crash_breaks::<Bytes, Keyed>(whole(sizes, prepare, vec![alone(Act::Delete, 8)]));
}

/// The chunk of a refused value's pieces kept its class although nothing in it is allocated.
#[test]
fn a_refused_large_value_leaves_no_chunk_behind() {
    no_crash_breaks::<Bytes, Keyed>(maker::<Bytes, Keyed>(2).refused());
}

/// Once, random deletes left nearly empty chunks permanently: blocks of another size could not use them. With two more writes than the
/// workload has, enough chunks become free that some are discarded.
#[test]
fn a_crash_while_records_leave_sparse_chunks_loses_none() {
    let mut plan = maker::<Bytes, Keyed>(2).moved_records();
    let puts = [11, 15].map(|key| Step::Run(alone(Act::Put(600 * 16 + 5), key)));
    plan.steps.splice(2..2, puts);
    no_crash_breaks::<Bytes, Keyed>(plan);
}

/// If a tree crashed before it had a root, open creates one through the log. A second recovery replayed that commit.
#[test]
fn a_second_recovery_of_a_tree_without_a_root_stores_nothing() {
    let plan = whole(Sizes::new::<WriteAtomic>(2), Vec::new(), vec![alone(Act::Put(1), 1)]);
    within::<U64, Words>(plan, &crash::Options { create: true, ..bounds() });
}
