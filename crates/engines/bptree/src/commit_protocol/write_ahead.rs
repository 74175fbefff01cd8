//! Write-ahead logging with a buffer pool [wB+ §3.1].
//!
//! Nodes are read and changed in volatile frames (see [`pmem::buffer_pool`]). Every changed word is first written to the redo-only log.
//! Dirty lines are checkpointed at the end of a log generation. Intents are the durable list of the blocks that the operation allocates or
//! frees ([`pmem::alloc`]).
//!
//! | fence passed ([`pmem::Fence`]) | may be on the medium | recovery |
//! |---|---|---|
//! | none | intents, if blocks are allocated or freed; otherwise records | the old nodes, or the new ones if the records are complete |
//! | allocate (if blocks are allocated or freed) | intents, records, allocation bits | the same; the bit of each block in an intent is set if the found nodes reference the block, else cleared |
//! | commit (commit point: the last record) | all records, all allocation bits; data words of older generations only | replays the log |
//! | checkpoint (the first fence of the log truncation that ends the generation) | all data words | a replay changes nothing |

use pmem::log::DataLines;
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
        redo::commit_all(change, DataLines::Deferred)
    }
}
