//! Undo-redo logging [wB+ §3.1, figure 5]: `NewRedo` for unused words, `WriteUndoRedo` for words in use, each with a flush and a
//! fence of its own. Words are changed where they are.
//!
//! Commit point: the record of the last word overwritten; the crash table is the log's (see [`pmem::log`]). Blocks taken or
//! given back are flipped behind the first fence and before the last (the allocator's A1).

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
