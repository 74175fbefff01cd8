//! Redo logging of every word, as in VLAB's B+-Trees: the log is written, flushed and fenced, and then the data words, too [VLAB §5.2,
//! table 2 rows B to D].
//!
//! After the last fence no record needs a replay. Intents are the durable list of the blocks that the operation allocates or frees
//! ([`pmem::alloc`]).
//!
//! | fence passed ([`pmem::Fence`]) | may be on the medium | recovery |
//! |---|---|---|
//! | none | intents, if blocks are allocated or freed; otherwise records | the old node, or the new one if the records are complete |
//! | allocate (if blocks are allocated or freed) | intents, records, allocation bits | the same; the bit of each block in an intent is set if the found nodes reference the block, else cleared |
//! | commit (commit point: the last record) | all records; some of the data words and allocation bits | replays the log |
//! | data words | everything | a replay changes nothing |

use pmem::log::DataLines;
use pmem::{Fence, Medium, Result};

use super::{Change, CommitProtocol, overwritten};

/// See the module's head.
#[derive(Debug)]
pub struct Redo;

impl CommitProtocol for Redo {
    const NAME: &'static str = "redo log";
    const LOGS_ALL: bool = true;
    type Memory<M: Medium> = M;
    const STEPWISE_SPLITS: bool = true;

    fn commit<M: Medium>(change: Change<'_, M>) -> Result<()> {
        let medium = change.region.medium();
        commit_all(change, DataLines::Flushed)?;
        medium.fence(Fence::Home); // recovery does not need this fence; the paper has it
        Ok(())
    }
}

/// Commits all words of the edits, also those in unused space, through the redo-only log.
pub(super) fn commit_all<M: Medium>(change: Change<'_, M>, lines: DataLines) -> Result<()> {
    let Change { region, log, allocator, edits, .. } = change;
    let medium = region.medium();
    let mut logged = Vec::new();
    for edit in edits {
        logged.extend_from_slice(&edit.fresh);
        logged.extend(overwritten(medium, edit));
    }
    log.check_space(logged.len(), 0)?;
    if allocator.has_pending() {
        medium.fence(Fence::Allocate); // a record that references a block must not be durable before the block's intent
    }
    allocator.flip(region);
    log.commit(medium, &logged, lines)
}
