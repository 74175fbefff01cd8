//! Shadow copies: the insert or delete of an entry makes a copy of its leaf, and the redo-only log switches two pointers to the copy [wB+
//! §3.2, figure 7].
//!
//! The pointers are those of the parent and of the left sibling. The tree makes the copy (see [`crate::shadow`]). The change to commit
//! consists of the words of the copy (in unused space) and the two pointers (words in use). [`WriteAtomic`](super::WriteAtomic) commits it
//! as a change of several nodes.
//!
//! Figure 7 flushes the copy and the log under one fence. So the log may be durable before the copy. Here the copy has a fence of its own.
//! This makes two fences, as many as in the paper's table 3.

use pmem::{Medium, Result};

use super::{Change, CommitProtocol, WriteAtomic};

/// See the module's head.
#[derive(Debug)]
pub struct Shadow;

impl CommitProtocol for Shadow {
    const NAME: &'static str = "shadow";
    type Memory<M: Medium> = M;
    const COPIES_LEAVES: bool = true;

    fn commit<M: Medium>(change: Change<'_, M>) -> Result<()> {
        WriteAtomic::commit(change)
    }
}
