//! Undo-redo logging [wB+ §3.1, figure 5]: a `NewRedo` record for each unused word, a `WriteUndoRedo` record for each word in use. The
//! `NewRedo` records are flushed together and share one fence. Each `WriteUndoRedo` record has its own flush and fence.
//!
//! Words are changed in place.
//!
//! Commit point: the record of the last word that is overwritten. The states after a crash are in the table of [`pmem::log`]. Allocation
//! bits change after the first fence and before the last (A1 of [`pmem::alloc`]).

use pmem::log::Format;
use pmem::{Medium, Result};

use super::{Change, CommitProtocol, overwritten};

/// See the module's head.
#[derive(Debug)]
pub struct UndoRedo;

impl CommitProtocol for UndoRedo {
    const NAME: &'static str = "undo-redo log";
    const LOGS_ALL: bool = true;
    type Memory<M: Medium> = M;
    const LOG: Format = Format::UndoRedo;

    fn commit<M: Medium>(change: Change<'_, M>) -> Result<()> {
        let Change { region, log, allocator, edits, .. } = change;
        let medium = region.medium();
        let fresh: Vec<_> = edits.iter().flat_map(|edit| edit.fresh.iter().copied()).collect();
        let in_use: Vec<_> = edits.iter().flat_map(|edit| overwritten(medium, edit)).collect();
        let ordered = allocator.has_pending();
        log.commit_undo_redo(medium, &fresh, &in_use, ordered, || allocator.flip(region))
    }
}
