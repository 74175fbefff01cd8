//! Groups: over a medium where a commit takes milliseconds, the changes of many operations become durable with one.
//!
//! An operation changes the tree under the writer's lock, as ever, and lets go of it; then it waits for its group, and one of
//! those who wait commits for all ([`pmem::pending`]). The lock is held again only while the group is closed, not while it is
//! written, so the next operations join the next group meanwhile. Over any other medium the discipline's fences have made
//! everything durable by the time the lock is let go, and all this is one test of a pointer.
//!
//! If a commit fails, everything that is not durable is taken back under all stripes and the tree takes no more writes:
//! readers see what is durable, and the volatile sides of log and allocator, which know better, are never used again.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::PoisonError;

use pmem::pending::Pending;
use pmem::sync::{MutexGuard, Ordering};
use pmem::{Error, LINE, Medium, Result};

use crate::batch::Extent;
use crate::discipline::Discipline;
use crate::layout::Layouts;
use crate::schema::Schema;
use crate::shape::{Link, Node};
use crate::tree::{BROKEN, CLOSING, FAILED, OPEN, Tree, Writer};

/// How a write is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Wait until it, and everything before it, is durable. Without this, what is written is seen at once and durable after
    /// the next write with it, a [`Tree::commit`] or a close; a reader waits, or sees to it, that what it read is durable
    /// before it answers. Where fences make writes durable they are durable at once either way.
    pub sync: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { sync: true }
    }
}

/// Number of keys of the newest durable group while they are being counted.
pub(crate) const KEYS_UNKNOWN: u64 = u64::MAX;

/// Nodes of a level that an operation may store to: a split's or a merge's two, and one that is copied.
const NODES_OF_LEVEL: u64 = 3;
/// Levels that an operation may add, or take nodes for before it knows that there is no need.
const LEVELS_MORE: u64 = 2;
/// Lines besides nodes, log and chunk heads: the intents, the superblock's.
const LINES_MORE: u64 = 48;
/// Chunks that an operation may open or return.
const CHUNKS: u64 = 4;

impl<M: Medium, S: Schema, L: Layouts, D: Discipline> Tree<M, S, L, D> {
    /// The writer's side for an operation that writes a record of so many bytes, with room for it in the running group.
    ///
    /// # Errors
    /// `Closed`, `Failed`; `TooLarge` if no group can hold it; what a commit says that had to make room.
    #[inline(always)]
    pub(crate) fn enter(&self, bytes: u64) -> Result<MutexGuard<'_, Writer<S>>> {
        match &self.pending {
            None => self.lock_writer(),
            Some(pending) => self.enter_group(pending, bytes),
        }
    }

    #[inline(never)]
    fn enter_group(&self, pending: &Pending, bytes: u64) -> Result<MutexGuard<'_, Writer<S>>> {
        loop {
            // Before the lock: a reader who asked for this may be waiting for a commit, and that for the lock.
            self.stripes.give_way();
            let writer = self.lock_writer()?;
            if self.has_room(1, bytes)? {
                return Ok(writer);
            }
            let ticket = pending.ticket();
            drop(writer);
            self.settle(pending, ticket)?;
        }
    }

    /// True if the running group, if there is one, has room for so many operations that write records of so many bytes
    /// together.
    ///
    /// # Errors
    /// `TooLarge` if no group can hold them.
    pub(crate) fn has_room(&self, operations: u64, bytes: u64) -> Result<bool> {
        let Some(group) = self.region.medium().group() else { return Ok(true) };
        let geometry = self.region.geometry();
        let levels = Link::read(self.region.medium(), self.root()).map_or(0, |link| link.level) as u64;
        let nodes = nodes_of_operation(levels) * self.region.identity().node_lines;
        let (log, heads) = (self.lines_of_log(), CHUNKS * self.lines_of_head());
        // Each record may straddle a line more. A piece of a large one, an eighth of a chunk, has a head, straddles and, alone
        // in its chunk, changes a bitmap's line. So does each that is given back, of the largest record that ever fitted.
        let pieces = |bytes: u64| bytes.div_ceil(geometry.chunk_bytes / 8);
        let records = bytes.div_ceil(LINE) + operations + 3 * pieces(bytes);
        let given_back = pieces(group.lines_max * LINE);
        let lines = operations * (nodes + log + heads + given_back + LINES_MORE) + records;
        has_lines(group, lines)
    }

    /// True if the running group, if there is one, has room for a merge that could as well be left. What a batch has reserved is
    /// for its own turns: it leaves them.
    pub(crate) fn has_room_to_merge(&self) -> bool {
        let Some(group) = self.region.medium().group() else { return true };
        let once = self.lines_of_log() + CHUNKS * self.lines_of_head() + LINES_MORE;
        // A merge makes no separator.
        !self.batches.is_running() && matches!(has_lines(group, self.lines_of_turn(0) + once), Ok(true))
    }

    /// A log's lines, and what of earlier groups a pool may have to write back with them.
    fn lines_of_log(&self) -> u64 {
        let records = self.region.geometry().log_records;
        records / 4 + if D::POOLED { records } else { 0 }
    }

    /// Most lines of a chunk's head.
    fn lines_of_head(&self) -> u64 {
        (self.region.geometry().chunk_bytes / 16 / 8).div_ceil(LINE)
    }

    /// True if the running group, if there is one, has room for a batch. It is closed after the batch, so what its operations
    /// have in common counts once, and they were looked up: so this is nearer to what comes than [`Tree::has_room`].
    ///
    /// # Errors
    /// `TooLarge` if no group can hold it.
    pub(crate) fn has_room_for(&self, batch: &Extent) -> Result<bool> {
        let Some(group) = self.region.medium().group() else { return Ok(true) };
        let node_lines = self.region.identity().node_lines;
        // A copy of the leaf, its bit and that of the one before, two pointers.
        let copy = if D::COPIES_LEAVES { node_lines + 4 } else { 0 };
        let chunk_lines = self.region.geometry().chunk_bytes / LINE;
        // The bits of a record that comes and one that goes, each perhaps the last of its chunk.
        let stored = batch.writes * (4 + copy)
            + batch.leaves * node_lines
            + batch.turns * self.lines_of_turn(batch.key_bytes)
            + batch.record_lines
            + batch.pieces * 3;
        let opened = CHUNKS + stored.div_ceil(chunk_lines);
        has_lines(group, stored + self.lines_of_log() + opened * self.lines_of_head() + LINES_MORE)
    }

    /// Notes that a key is about to be changed. The writer's lock is held.
    #[inline(always)]
    pub(crate) fn note_key(&self, key: &S::Key) {
        if let Some(pending) = &self.pending {
            pending.note_key(S::hash(key));
        }
    }

    /// An operation is over: lets go of the lock, and waits until what was changed is durable.
    ///
    /// # Errors
    /// As [`Tree::commit`].
    #[inline(always)]
    pub(crate) fn leave(&self, writer: MutexGuard<'_, Writer<S>>, how: WriteOptions) -> Result<()> {
        let Some(pending) = &self.pending else { return Ok(()) };
        let ticket = pending.ticket();
        drop(writer);
        if how.sync { self.settle(pending, ticket) } else { Ok(()) }
    }

    /// Makes everything written so far as durable as was promised. Nothing to do where fences did it.
    ///
    /// # Errors
    /// `Closed`; `Io`, `NoSpace` or `Corrupt` if the commit fails, `Failed` if one did before: what was not durable is taken
    /// back, and no more writes are taken. Whether it is there will be seen when the tree is opened again.
    pub fn commit(&self) -> Result<()> {
        self.leave(self.lock_writer()?, WriteOptions::default())
    }

    /// True if everything was durable a moment ago: a read will hardly have to wait.
    pub fn is_quiet(&self) -> bool {
        self.pending.as_ref().is_none_or(|pending| pending.is_quiet())
    }

    /// Waits for a group, committing it if nobody else does.
    #[inline(never)]
    pub(crate) fn settle(&self, pending: &Pending, ticket: u64) -> Result<()> {
        pending.settle(ticket, || self.commit_group(pending))
    }

    fn commit_group(&self, pending: &Pending) -> Result<u64> {
        let mut closed = None;
        let commit = || {
            self.region.medium().commit_beside(|| {
                let writer = self.writer_side();
                // After the last group of a tree that closes, its region's life cycle stores and commits alone.
                if !matches!(self.state.load(Ordering::Acquire), OPEN | CLOSING) {
                    return None;
                }
                let keys = match self.counting.load(Ordering::Acquire) {
                    true => KEYS_UNKNOWN,
                    false => self.keys.load(Ordering::Acquire),
                };
                closed = Some((pending.close(), keys));
                Some(writer)
            })
        };
        // Files of somebody else's kind may panic: then too nothing stays that is not durable.
        let outcome = catch_unwind(AssertUnwindSafe(commit)).unwrap_or_else(|panic| {
            self.take_back();
            resume_unwind(panic)
        });
        match (outcome, closed) {
            (Ok(()), Some((ticket, keys))) => {
                self.durable_keys.store(keys, Ordering::Release);
                Ok(ticket)
            }
            (Ok(()), None) => {
                if self.state.load(Ordering::Acquire) == BROKEN {
                    self.take_back();
                }
                self.writable().and(Err(Error::Closed))
            }
            (Err(error), _) => {
                self.take_back();
                Err(error)
            }
        }
    }

    /// Takes everything back that is not durable, for good.
    fn take_back(&self) {
        let mut writer = self.writer_side();
        self.state.store(FAILED, Ordering::Release);
        self.stripes.lock_all(&mut writer.held);
        self.region.medium().roll_back();
        // A pool's frames stay as they are, and their root with them: readers are told by `failed`. Else the word checks itself;
        // what was durable once does check.
        if !D::POOLED
            && let Ok(root) = self.region.root()
        {
            self.set_root(Node(root));
        }
        match self.durable_keys.load(Ordering::Acquire) {
            // Nobody will count them any more.
            KEYS_UNKNOWN => self.counting.store(true, Ordering::Release),
            keys => self.keys.store(keys, Ordering::Release),
        }
        self.batches.end();
        self.stripes.unlock(&mut writer.held);
    }

    /// The writer's side, whatever state the tree is in.
    pub(crate) fn writer_side(&self) -> MutexGuard<'_, Writer<S>> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.stripes.take_over();
        writer
    }

    /// `Failed` if what is read can no longer be told from what was taken back.
    #[inline(always)]
    pub(crate) fn readable(&self, failed: bool) -> Result<()> {
        if D::POOLED && failed { Err(Error::Failed) } else { Ok(()) }
    }
}

/// Nodes that an operation on a tree of so many levels above the leaves may store to.
pub(crate) fn nodes_of_operation(levels: u64) -> u64 {
    NODES_OF_LEVEL * (levels + LEVELS_MORE)
}

fn has_lines(group: pmem::Group, lines: u64) -> Result<bool> {
    if lines > group.lines_max {
        let words = |lines: u64| (lines * 8) as usize;
        return Err(Error::TooLarge { records: words(lines), limit: words(group.lines_max) });
    }
    Ok(group.lines + lines <= group.lines_max)
}
