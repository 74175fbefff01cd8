//! What crash exploration once found, each as a small workload of its own. Every test here failed before its mend.

use bptree::{Slotted, WriteAtomic};
use crash::{Step, by_tier, explore};
use crash_tree::subject::{Act, BULK_STEP, Op, Sampled, Sizes};
use crash_tree::workloads::{Maker, Plan, whole};
use index::kind::{Bytes, U64};
use index::{Keyed, Prefixed, SchemaOf, Words};

/// Operations for the tree that all of them were found in.
fn maker<K: Sampled, S: SchemaOf<K>>(lines: u64) -> Maker {
    Maker::new::<K, S, (Slotted, Slotted), WriteAtomic>(lines)
}

/// Every crash inside the steps, and what a second crash inside recovery can leave, up to a cap.
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

/// An operation whose continuation takes no block of a new size.
fn alone(act: Act, key: u32) -> Op {
    Op { act, key, burst: 0 }
}

/// A delete of a leaf's last key was one commit, the join another: a crash between them kept an empty leaf in the tree.
/// Recovery finds the owner of a leaf by its keys, took it for nobody's, and freed it.
#[test]
fn a_crash_between_a_delete_and_its_join_leaves_no_empty_leaf() {
    let maker = maker::<U64, Words>(2);
    let load = |leaf| maker.op(Act::Bulk(1), BULK_STEP * leaf);
    for victim in [1, 2] {
        let delete = maker.op(Act::Delete, BULK_STEP * victim);
        no_crash_breaks::<U64, Words>(whole(maker.sizes, vec![load(1), load(2)], vec![delete]));
    }
}

/// A change of the superblock always began with copy A. If a crash had torn copy B before, a second one then tore the only
/// whole copy.
#[test]
fn the_newer_superblock_copy_is_not_overwritten_first() {
    let maker = maker::<U64, Words>(2);
    let reopen = maker.op(Act::Reopen, 1);
    no_crash_breaks::<U64, Words>(whole(maker.sizes, vec![maker.op(Act::Put(1), 1)], vec![reopen, reopen]));
}

/// A crash kept a growth and not its note. The next session used the chunks behind the noted length and never noted it, so
/// that a file cut down to that length would have passed for whole.
#[test]
fn a_growth_whose_note_was_lost_is_noted_at_open() {
    let maker = maker::<U64, Words>(2);
    let fill = (1..=maker.entries).map(|key| maker.op(Act::Put(key), key)).collect();
    // The split takes the first chunk of inner nodes.
    let split = maker.op(Act::Put(0), maker.entries + 1);
    no_crash_breaks::<U64, Words>(whole(maker.sizes, fill, vec![split]));
}

/// The intent ring still named a record's block; its chunk was closed meanwhile and holds pieces of a large value. Recovery
/// took the piece that begins at the same address for nobody's and freed it.
#[test]
fn a_stale_intent_does_not_free_a_piece_of_a_large_value() {
    let bounds = crash::Options { cap: by_tier(512, 4096), ..bounds() };
    within::<Bytes, Prefixed>(maker::<Bytes, Prefixed>(2).reused_chunk(), &bounds);
    within::<Bytes, Keyed>(maker::<Bytes, Keyed>(2).reused_chunk(), &bounds);
}

/// The store that closes a chunk is not flushed. When a crash lost it, the chunk stayed with its class for ever, and a full
/// region refused a record of another size for which there was space.
#[test]
fn a_chunk_whose_closing_was_lost_is_found_empty() {
    let sizes = Sizes::new::<WriteAtomic>(16);
    // One chunk of leaves, three of records with four in each: the region is full.
    let sizes = Sizes { capacity: sizes.geometry.heap_at() + 4 * sizes.geometry.chunk_bytes, ..sizes };
    let mut prepare: Vec<_> = (1..=12).map(|key| alone(Act::Put(900 * 16), key)).collect();
    prepare.extend([1, 5, 6, 7].map(|key| alone(Act::Delete, key)));
    no_crash_breaks::<Bytes, Keyed>(whole(sizes, prepare, vec![alone(Act::Delete, 8)]));
}

/// The values of a chunk that was given up: nothing in it is allocated, and yet it stayed with its class.
#[test]
fn a_refused_large_value_leaves_no_chunk_behind() {
    no_crash_breaks::<Bytes, Keyed>(maker::<Bytes, Keyed>(2).refused());
}

/// Random deletes once left chunks that were nearly empty for good: blocks of another size had no use for them. With two more writes
/// than the workload has, so many chunks become free that some are discarded.
#[test]
fn a_crash_while_records_leave_sparse_chunks_loses_none() {
    let mut plan = maker::<Bytes, Keyed>(2).moved_records();
    let puts = [11, 15].map(|key| Step::Run(alone(Act::Put(600 * 16 + 5), key)));
    plan.steps.splice(2..2, puts);
    no_crash_breaks::<Bytes, Keyed>(plan);
}

/// A tree that crashed before it had a root gets one at open, through the log; a second recovery replayed that commit.
#[test]
fn a_second_recovery_of_a_tree_without_a_root_stores_nothing() {
    let plan = whole(Sizes::new::<WriteAtomic>(2), Vec::new(), vec![alone(Act::Put(1), 1)]);
    within::<U64, Words>(plan, &crash::Options { create: true, ..bounds() });
}
