//! Commit protocols: how edits become durable. A commit protocol knows words and their classes, never a layout.
//!
//! | commit protocol | a change inside one leaf | a change of several nodes |
//! |---|---|---|
//! | [`Volatile`] | stored | stored |
//! | [`WriteAtomic`] | in place, committed by one word | redo-only log |
//! | [`LineOrder`] | the same with one fence less | the same |
//! | [`Stepwise`] | as write-atomic | the same, one split a commit |
//! | [`UndoRedo`] | undo-redo log | undo-redo log |
//! | [`Redo`] | redo-only log, homes awaited | the same, one split a commit |
//! | [`WriteAhead`] | redo-only log, in the frames of a buffer pool | the same |
//! | [`Shadow`] | a copy of the leaf, two pointers through the redo-only log | redo-only log |

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

/// How edits become durable.
pub trait CommitProtocol: Send + Sync + 'static {
    /// Name for people.
    const NAME: &'static str;
    /// Contents survive a crash.
    const DURABLE: bool = true;
    /// Short operations are compiled for nodes of 16 lines, too, if the layouts are specialised: see
    /// [`Layouts::SPECIALISED`](crate::layout::Layouts::SPECIALISED).
    const SPECIALISED: bool = false;
    /// Which records its log has.
    const LOG: Format = Format::Redo;
    /// An entry that comes or goes makes a copy of its leaf.
    const COPIES_LEAVES: bool = false;
    /// Full nodes are split one by one from the top down, each in a commit of its own, before the entry is inserted. Else all
    /// of a split, and the entry, are one commit.
    const STEPWISE_SPLITS: bool = false;
    /// Changes of different leaves are made together where there are many of them.
    const SHARES_FENCES: bool = false;
    /// Its log takes every word of an edit, of unused space too.
    const LOGS_ALL: bool = false;
    /// Nodes are read and changed in the frames of a buffer pool.
    const POOLED: bool = false;
    /// What nodes are read and changed through: the medium itself, or a buffer pool in front of it.
    type Memory<M: Medium>: Access<M>;

    /// Carries the edits out in one crash-atomic step, the allocator's pending blocks with them. Durable when it
    /// returns.
    ///
    /// # Errors
    /// `TooLarge` if the change exceeds the log; nothing is changed then.
    fn commit<M: Medium>(change: Change<'_, M>) -> Result<()>;
}

/// Edits to be made durable, and what they go through.
#[derive(Debug)]
pub struct Change<'a, M> {
    /// Where.
    pub region: &'a Region<M>,
    /// Its log.
    pub log: &'a mut Log,
    /// Its allocator, with the blocks that the change takes and gives back pending.
    pub allocator: &'a mut Allocator,
    /// The edits.
    pub edits: &'a [Edit],
    /// They have nothing to do with each other: after a crash any of them may be there and others not.
    pub apart: bool,
}

/// The words in use that an edit overwrites, in an order in which no word is stored to before it was moved.
fn overwritten<'a, M: Medium>(
    medium: &'a M,
    edit: &'a Edit,
) -> impl Iterator<Item = (u64, u64)> + use<'a, M> {
    let moved = edit.moves.iter().flat_map(|words| words.each()).map(|(from, to)| (to, medium.word(from)));
    moved.chain(edit.guarded.iter().chain(&edit.switch).copied())
}
