//! Write-atomic: a change inside one node commits with one store [wB+ §4.3, figures 9 and 10]; a change of several nodes commits through
//! the redo-only log [wB+ §3.1, figure 6].
//!
//! Intents are the durable list of the blocks that the operation allocates or frees ([`pmem::alloc`]).
//!
//! One node. [`Edit`] defines the word classes (fresh, guard, guarded, switch). The commit point is the store of the switch word. If an
//! edit has several independent switch words, the store of each is a commit point of its own. The table is for one switch word:
//!
//! | fence passed ([`pmem::Fence`]) | may be on the medium | recovery |
//! |---|---|---|
//! | none | guard word cleared or not; intents; new records of byte strings | old entries; their order is derived from the keys if the guard is cleared |
//! | guard | some of the fresh and guarded words | old entries; their order is derived from the keys |
//! | payload | switch word or not; allocation bits | old or new entries; allocation bits are set to match |
//! | commit | everything | new entries |
//!
//! Several nodes (commit point: the log's last record):
//!
//! | fence passed ([`pmem::Fence`]) | may be on the medium | recovery |
//! |---|---|---|
//! | none | some of the fresh words, intents | old tree |
//! | payload | log records, allocation bits | old tree, or the new one if the records are complete |
//! | commit | data words or not | replays the log: new tree |

use pmem::log::DataLines;
use pmem::{Fence, LINE, Medium, Result, WORD};

use super::{Change, CommitProtocol, overwritten};
use crate::shape::Edit;

/// See the module's head. `LINE_ORDER`: if the guarded words are in the guard's line, the guard has no flush and no fence of its own. The
/// order of stores to one line ensures that no guarded word is durable before the cleared valid bit. `STEPWISE`: full nodes are split one
/// by one.
#[derive(Debug)]
pub struct InPlace<const LINE_ORDER: bool, const STEPWISE: bool>;

/// The wB+-Tree's protocol: three fences for a change of a slot+bitmap node; a whole split is one commit.
pub type WriteAtomic = InPlace<false, false>;

/// Two fences for a change of one node, if slot array and bitmap share a line. In the module's table for one node, the guard row merges
/// with the first row. A crash keeps the guard word, or the guard word and some of the guarded words. It never keeps guarded words alone.
pub type LineOrder = InPlace<true, false>;

/// Full nodes are split from the top down before the entry is inserted. VLAB's paper describes the wB+-Tree's splits this way (table 2, row
/// E: 3 + 2L fences).
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
        log.truncate(medium); // a replay must not overwrite the words that are stored here without the log
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

/// True if one switch word commits the edit, or if its switch words are independent.
#[inline(always)]
fn is_in_place(edit: &Edit) -> bool {
    edit.moves.is_empty() && (edit.switch.len() == 1 || edit.independent)
}

/// Changes several nodes, each as in [`commit_in_place`]. The nodes pass each step together, so they share its fence.
fn commit_together<M: Medium, const LINE_ORDER: bool>(change: Change<'_, M>) {
    let Change { region, log, allocator, edits, .. } = change;
    let medium = region.medium();
    if edits.iter().any(|edit| log.touches(edit.node.0, edit.bytes)) {
        log.truncate(medium);
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
        // If an earlier commit may still be replayed over this node, its fresh words are logged, too. The replay then stores them last.
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
    log.commit(medium, &logged, DataLines::Flushed)
}

/// Stores words of a node and flushes each of their lines once, whatever the order of the words.
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
