//! Redo logging of every word, as VLAB has it for its B+-Trees [VLAB §5.2, table 2 rows B to D]: the log is written, flushed and
//! fenced, then the home words are written, flushed and fenced too, so the log is empty after every operation.
//!
//! | fence passed | may be on the medium | recovery |
//! |---|---|---|
//! | none | records, intents | old node, or the new one if the records are complete |
//! | allocate (only with blocks taken or given back) | the intents | the same; no block without a name |
//! | commit (commit point: the last record) | home words or not, flipped bits | the log is replayed |
//! | home | everything | replaying changes nothing |

use pmem::log::Homes;
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
        commit_all(change, Homes::Flushed)?;
        medium.fence(Fence::Home); // awaited here, though no recovery needs it
        Ok(())
    }
}

/// Commits every word of the edits, of unused space too, through the redo-only log.
pub(super) fn commit_all<M: Medium>(change: Change<'_, M>, homes: Homes) -> Result<()> {
    let Change { region, log, allocator, edits, .. } = change;
    let medium = region.medium();
    let mut logged = Vec::new();
    for edit in edits {
        logged.extend_from_slice(&edit.fresh);
        logged.extend(overwritten(medium, edit));
    }
    log.check_space(logged.len(), 0)?;
    if allocator.has_pending() {
        medium.fence(Fence::Allocate); // no record that leads to a block before the block's intent
    }
    allocator.flip(region);
    log.commit(medium, &logged, homes)
}
