//! Shadowing [wB+ §3.2, figure 7]: an entry that comes or goes makes a copy of its leaf; the pointers of the parent and of the
//! left sibling are switched to it by the redo-only log. The copying is the tree's (see [`crate::shadow`]); what it leaves to
//! be done is an edit of unused space and two words in use, which is what write-atomic's commit of several nodes does.
//!
//! Figure 7 flushes the copy and the log with one fence, so the log may be durable before the copy is. Here the copy has the
//! fence that the paper spends on allocation: two, as in its table 3.

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
