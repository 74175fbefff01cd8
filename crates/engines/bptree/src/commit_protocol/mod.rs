//! Commit protocols: the rules that make edits durable. A commit protocol gets the words of an [`Edit`] by class, for example words in
//! unused space and words in use. It does not know the layout of the node.
//!
//! | commit protocol | a change inside one leaf | a change of several nodes |
//! |---|---|---|
//! | [`Volatile`] | stores without flushes and fences | stores without flushes and fences |
//! | [`WriteAtomic`] | in place, committed by one word | redo-only log |
//! | [`LineOrder`] | as [`WriteAtomic`]; one fence less if slot array and bitmap share a line | redo-only log |
//! | [`Stepwise`] | as [`WriteAtomic`] | redo-only log, one commit for each split node |
//! | [`UndoRedo`] | undo-redo log | undo-redo log |
//! | [`Redo`] | redo-only log; one more fence makes the data words durable | as for one leaf, one commit for each split node |
//! | [`WriteAhead`] | redo-only log; the nodes are in frames of a buffer pool | as for one leaf |
//! | [`Shadow`] | writes a copy of the leaf; the redo-only log switches the pointers of the parent and of the left sibling to it | redo-only log |

mod redo;
mod shadow;
mod undo_redo;
mod volatile;
mod write_ahead;
mod write_atomic;

use pmem::alloc::Allocator;
use pmem::log::{Format, Log};
use pmem::{Access, Medium, Region, Result};
pub use redo::Redo;
pub use shadow::Shadow;
pub use undo_redo::UndoRedo;
pub use volatile::Volatile;
pub use write_ahead::WriteAhead;
pub use write_atomic::{InPlace, LineOrder, Stepwise, WriteAtomic};

use crate::shape::Edit;

/// A rule that makes edits durable.
pub trait CommitProtocol: Send + Sync + 'static {
    /// Name for output.
    const NAME: &'static str;
    /// True if the contents survive a crash.
    const DURABLE: bool = true;
    /// True if short operations are also compiled for nodes of 16 lines, provided that the layouts are specialised: see
    /// [`Layouts::SPECIALISED`](crate::layout::Layouts::SPECIALISED).
    const SPECIALISED: bool = false;
    /// Format of the log records.
    const LOG: Format = Format::Redo;
    /// True if the insert or delete of an entry makes a copy of its leaf.
    const COPIES_LEAVES: bool = false;
    /// True if full nodes are split one by one from the top down, each in its own commit, before the entry is inserted. Otherwise a whole
    /// split, with the entry, is one commit.
    const STEPWISE_SPLITS: bool = false;
    /// True if changes of different leaves share fences.
    const SHARES_FENCES: bool = false;
    /// True if every word of an edit is logged, also in unused space.
    const LOGS_ALL: bool = false;
    /// True if nodes are read and changed in the frames of a buffer pool.
    const POOLED: bool = false;
    /// Access to nodes: the medium itself, or a buffer pool in front of it.
    type Memory<M: Medium>: Access<M>;

    /// Commits the edits, and the allocator's pending blocks with them. The edits are one crash-atomic change, unless they are independent
    /// ([`Change::apart`]). The change is durable on return.
    ///
    /// # Errors
    /// `TooLarge` if the change exceeds the log. Then nothing has changed.
    fn commit<M: Medium>(change: Change<'_, M>) -> Result<()>;
}

/// Edits to commit, and the parts that the commit needs.
#[derive(Debug)]
pub struct Change<'a, M> {
    /// The region.
    pub region: &'a Region<M>,
    /// The log, with records in the format [`CommitProtocol::LOG`].
    pub log: &'a mut Log,
    /// The allocator. It holds the blocks that the change allocates and frees.
    pub allocator: &'a mut Allocator,
    /// The edits.
    pub edits: &'a [Edit],
    /// True if the edits are independent: a crash may keep any subset of them.
    pub apart: bool,
}

/// The words in use that an edit overwrites, in an order in which no word is overwritten before it has moved.
fn overwritten<'a, M: Medium>(
    medium: &'a M,
    edit: &'a Edit,
) -> impl Iterator<Item = (u64, u64)> + use<'a, M> {
    let moved = edit.moves.iter().flat_map(|words| words.each()).map(|(from, to)| (to, medium.word(from)));
    moved.chain(edit.guarded.iter().chain(&edit.switch).copied())
}
