//! Write-ahead logging behind a buffer pool [wB+ §3.1]: nodes are read and changed in volatile frames (see [`pmem::buffer_pool`]),
//! every word that changes is in the redo-only log first, and dirty lines go home when the log's lap ends.
//!
//! | fence passed | may be on the medium | recovery |
//! |---|---|---|
//! | none | records, intents | old nodes, or the new ones if the records are complete |
//! | allocate (only with blocks taken or given back) | the intents | the same; no block without a name |
//! | commit (commit point: the last record) | flipped bits; home words of older laps alone | the log is replayed |
//! | the first checkpoint of the lap | home words | replaying changes nothing |

use pmem::log::Homes;
use pmem::{BufferPool, Medium, Result};

use super::{Change, CommitProtocol, redo};

/// See the module's head.
#[derive(Debug)]
pub struct WriteAhead;

impl CommitProtocol for WriteAhead {
    const NAME: &'static str = "buffer pool, write-ahead log";
    const LOGS_ALL: bool = true;
    const POOLED: bool = true;
    type Memory<M: Medium> = BufferPool<M>;

    fn commit<M: Medium>(change: Change<'_, M>) -> Result<()> {
        redo::commit_all(change, Homes::Deferred)
    }
}
