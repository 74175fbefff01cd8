//! Write-atomic [wB+ §4.3, figures 9 and 10]: a change inside one node commits with one store; a change of several nodes
//! commits through the redo-only log [wB+ §3.1, figure 6].
//!
//! One node (commit point: the switch word; for two independent words, each of them):
//!
//! | fence passed | may be on the medium | recovery |
//! |---|---|---|
//! | none | guard word cleared or not; intents; records | old entries; order derived if the guard is cleared |
//! | guard | some of the fresh and guarded words | old entries, order derived |
//! | payload | switch word or not; flipped bits | old or new entries; bits follow the owner |
//! | commit | everything | new entries |
//!
//! Several nodes (commit point: the log's last record):
//!
//! | fence passed | may be on the medium | recovery |
//! |---|---|---|
//! | none | some of the fresh words, intents | old tree |
//! | payload | log records, flipped bits | old tree, or the new one if the records are complete |
//! | commit | home words or not | the log is replayed: new tree |

use pmem::log::Homes;
use pmem::{Fence, LINE, Medium, Result, WORD};

use super::{Change, CommitProtocol, overwritten};
use crate::shape::Edit;

/// See the module's head. `LINE_ORDER`: where the guarded words stand in the guard's own line, that line keeps the cleared
/// valid bit before them, and no fence has to. `STEPWISE`: full nodes are split one by one.
#[derive(Debug)]
pub struct InPlace<const LINE_ORDER: bool, const STEPWISE: bool>;

/// The wB+-Tree's: three fences a change of a slot+bitmap node, and all of a split in one commit.
pub type WriteAtomic = InPlace<false, false>;

/// Two fences a change of one node, where slot array and bitmap share a line: the guard's row of the table above falls
/// together with the first. A crash keeps the guard word, or that and some of the guarded words, never those alone.
pub type LineOrder = InPlace<true, false>;

/// Full nodes split from the top down before the entry is inserted: how VLAB reads the wB+-Tree's splits (table 2, row E: 3 + 2L
/// fences).
pub type Stepwise = InPlace<false, true>;

impl<const LINE_ORDER: bool, const STEPWISE: bool> CommitProtocol for InPlace<LINE_ORDER, STEPWISE> {
    const NAME: &'static str = match (LINE_ORDER, STEPWISE) {
        (false, false) => "write-atomic",
        (true, false) => "write-atomic, order within a line",
        (false, true) => "write-atomic, splits step by step",
        (true, true) => "write-atomic, order within a line, splits step by step",
    };
    type Memory<M: Medium> = M;
    const SPECIALISED: bool = !STEPWISE && !LINE_ORDER;
    const SHARES_FENCES: bool = true;
    const STEPWISE_SPLITS: bool = STEPWISE;

    #[inline(always)]
    fn commit<M: Medium>(change: Change<'_, M>) -> Result<()> {
        match change.edits {
            [edit] if is_in_place(edit) => {
                commit_in_place::<M, LINE_ORDER>(change, edit);
                Ok(())
            }
            edits if change.apart && edits.iter().all(is_in_place) => {
                commit_together::<M, LINE_ORDER>(change);
                Ok(())
            }
            _ => commit_through_log(change),
        }
    }
}

#[inline(always)]
fn commit_in_place<M: Medium, const LINE_ORDER: bool>(change: Change<'_, M>, edit: &Edit) {
    let Change { region, log, allocator, .. } = change;
    let medium = region.medium();
    if log.touches(edit.node.0, edit.bytes) {
        log.settle(medium); // a replay must not undo what is stored here without the log
    }
    if let Some((at, word)) = edit.guard {
        medium.publish(at, word);
        if !(LINE_ORDER && edit.guarded.iter().all(|(guarded, _)| guarded / LINE == at / LINE)) {
            medium.flush(at, WORD);
            medium.fence(Fence::Guard);
        }
    }
    copy_and_flush(medium, edit.node.0, &edit.fresh);
    copy_and_flush(medium, edit.node.0, &edit.guarded);
    if !edit.fresh.is_empty() || !edit.guarded.is_empty() || allocator.has_pending() {
        medium.fence(Fence::Payload);
    }
    allocator.flip(region);
    for (at, word) in &edit.switch {
        medium.publish(*at, *word);
        medium.flush(*at, WORD);
    }
    medium.fence(Fence::Commit);
}

/// True if a store of one word, or each of several, makes the edit true.
#[inline(always)]
fn is_in_place(edit: &Edit) -> bool {
    edit.moves.is_empty() && (edit.switch.len() == 1 || edit.independent)
}

/// Several nodes, each as by [`commit_in_place`], step by step beside each other: the fences of one are those of all.
fn commit_together<M: Medium, const LINE_ORDER: bool>(change: Change<'_, M>) {
    let Change { region, log, allocator, edits, .. } = change;
    let medium = region.medium();
    if edits.iter().any(|edit| log.touches(edit.node.0, edit.bytes)) {
        log.settle(medium);
    }
    let mut is_guarded = false;
    for edit in edits {
        if let Some((at, word)) = edit.guard {
            medium.publish(at, word);
            if !(LINE_ORDER && edit.guarded.iter().all(|(guarded, _)| guarded / LINE == at / LINE)) {
                medium.flush(at, WORD);
                is_guarded = true;
            }
        }
    }
    if is_guarded {
        medium.fence(Fence::Guard);
    }
    let mut is_paid = allocator.has_pending();
    for edit in edits {
        copy_and_flush(medium, edit.node.0, &edit.fresh);
        copy_and_flush(medium, edit.node.0, &edit.guarded);
        is_paid |= !edit.fresh.is_empty() || !edit.guarded.is_empty();
    }
    if is_paid {
        medium.fence(Fence::Payload);
    }
    allocator.flip(region);
    for (at, word) in edits.iter().flat_map(|edit| &edit.switch) {
        medium.publish(*at, *word);
        medium.flush(*at, WORD);
    }
    medium.fence(Fence::Commit);
}

#[cold]
fn commit_through_log<M: Medium>(change: Change<'_, M>) -> Result<()> {
    let Change { region, log, allocator, edits, .. } = change;
    let medium = region.medium();
    let mut logged = Vec::new();
    for edit in edits {
        // Words that an unsettled commit may still write over go the same way again, behind it in the log.
        if log.touches(edit.node.0, edit.bytes) {
            logged.extend_from_slice(&edit.fresh);
        }
        logged.extend(overwritten(medium, edit));
    }
    log.check_space(logged.len(), 0)?;
    for edit in edits {
        if !log.touches(edit.node.0, edit.bytes) {
            copy_and_flush(medium, edit.node.0, &edit.fresh);
        }
    }
    medium.fence(Fence::Payload);
    allocator.flip(region);
    log.commit(medium, &logged, Homes::Flushed)
}

/// Stores words of a node and starts writing back their lines, each once, in whatever order the words come.
#[inline(always)]
fn copy_and_flush<M: Medium>(medium: &M, node: u64, words: &[(u64, u64)]) {
    let mut lines = 0_u64;
    for (at, word) in words {
        medium.copy(*at, *word);
        lines |= 1 << ((at - node) / LINE % 64);
    }
    while lines != 0 {
        medium.flush(node + u64::from(lines.trailing_zeros()) * LINE, LINE);
        lines &= lines - 1;
    }
}
