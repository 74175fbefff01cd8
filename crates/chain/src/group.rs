//! Groups: over a medium where a commit takes milliseconds, the changes of many operations become durable with one.
//!
//! As the trees have it: an operation changes the index under the writer's lock, lets go of it and waits for its group, and one of those
//! who wait commits for all ([`pmem::pending`]). Who reads a leaf that a group on its way has changed asks for the key, and waits if
//! it is one of that group's. Over any other medium fences have made everything durable, and all this is one test of a pointer.
//!
//! If a commit fails, everything that is not durable is taken back under all stripes, the view is built anew from what is left, and the
//! index takes no more writes.
//!
//! Invariants:
//! * G1: a group ends between two operations, so each is in it whole or not at all, and so is a batch.
//! * G2: what an operation may store fits into the running group before it begins.

use std::sync::PoisonError;

use pmem::pending::Pending;
use pmem::sync::{MutexGuard, Ordering};
use pmem::{Error, Group, LINE, Medium, Result};
use tree::{Schema, WriteOptions};

use crate::core::{BROKEN, CLOSED, CLOSING, Chain, FAILED, KeyOf, OPEN, READ_ONLY, SchemaOf, Writer};

/// Leaves that an operation may store all lines of: a split's two, a merge's, one that is split a second time.
const LEAVES_OF_OPERATION: u64 = 4;
/// Lines besides: links, root and meta lines, the superblock's, intents and bits of an operation's blocks.
const LINES_MORE: u64 = 64;
/// Chunks that an operation may open or return.
const CHUNKS: u64 = 4;

/// Commits of what an index was told. See the module's head.
pub trait Groups: Chain {
    /// The writer's side for one operation with records of so many bytes, with room for it in the running group.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Failed`; `TooLarge` if no group can hold it; what a commit says that had to make room.
    fn enter(&self, bytes: u64) -> Result<MutexGuard<'_, Writer<Self::Own>>> {
        self.enter_for(|| Ok(self.lines_of_operation(bytes)))
    }

    /// As [`Groups::enter`], for what may change as many lines as `lines` says.
    fn enter_for(&self, lines: impl Fn() -> Result<u64>) -> Result<MutexGuard<'_, Writer<Self::Own>>> {
        loop {
            let writer = self.lock_writer()?;
            let Some(pending) = &self.pending else { return Ok(writer) };
            if self.has_lines(lines()?)? {
                return Ok(writer);
            }
            let ticket = pending.ticket();
            drop(writer);
            self.settle(pending, ticket)?;
        }
    }

    /// True if the running group, if there is one, has room for so many lines.
    ///
    /// # Errors
    /// `TooLarge` if no group can hold them.
    fn has_lines(&self, lines: u64) -> Result<bool> {
        let Some(Group { lines: noted, lines_max }) = self.region.medium().group() else { return Ok(true) };
        if lines > lines_max {
            let words = |lines: u64| (lines * 8) as usize;
            return Err(Error::TooLarge { records: words(lines), limit: words(lines_max) });
        }
        Ok(noted + lines <= lines_max)
    }

    /// Most lines that an operation changes which writes records of so many bytes.
    fn lines_of_operation(&self, bytes: u64) -> u64 {
        let geometry = self.region.geometry();
        let pieces = bytes.div_ceil(geometry.chunk_bytes / 8);
        // A piece of a large record has a head, straddles, and, alone in its chunk, changes a bitmap's line; so may each that is
        // given back.
        let given_back = self
            .region
            .medium()
            .group()
            .map_or(0, |group| (group.lines_max * LINE).div_ceil(geometry.chunk_bytes / 8));
        LEAVES_OF_OPERATION * self.leaf_lines()
            + bytes.div_ceil(LINE)
            + 3 * pieces
            + given_back
            + self.lines_once()
    }

    /// What counts once for whatever is done in one turn.
    fn lines_once(&self) -> u64 {
        CHUNKS * (self.region.geometry().chunk_bytes / 16 / 8).div_ceil(LINE) + LINES_MORE
    }

    /// Notes that a key is about to be changed. The writer's lock is held.
    #[inline(always)]
    fn note_key(&self, key: &KeyOf<Self>) {
        if let Some(pending) = &self.pending {
            pending.note_key(SchemaOf::<Self>::hash(key));
        }
    }

    /// A leaf is about to change, or what leads from it.
    #[inline(always)]
    fn lock(&self, writer: &mut Writer<Self::Own>, leaf: u64) {
        match &self.pending {
            None => self.stripes.lock_in_turn(leaf, &mut writer.held),
            Some(pending) => {
                pending.note_node(leaf);
                // Readers went first before the writer's lock was taken.
                self.stripes.lock(leaf, &mut writer.held);
            }
        }
    }

    /// An operation is over: lets go of the lock, and waits until what was changed is durable, if asked.
    ///
    /// # Errors
    /// As [`Groups::commit`].
    #[inline(always)]
    fn leave(&self, writer: MutexGuard<'_, Writer<Self::Own>>, how: WriteOptions) -> Result<()> {
        let Some(pending) = &self.pending else { return Ok(()) };
        let ticket = pending.ticket();
        drop(writer);
        if how.sync { self.settle(pending, ticket) } else { Ok(()) }
    }

    /// Makes everything written so far as durable as was promised. Nothing to do where fences did it.
    ///
    /// # Errors
    /// `Closed`; `Io`, `NoSpace` or `Corrupt` if the commit fails, `Failed` if one did before: what was not durable is taken
    /// back, and no more writes are taken.
    fn commit(&self) -> Result<()> {
        self.leave(self.lock_writer()?, WriteOptions::default())
    }

    /// True if everything was durable a moment ago: a read will hardly have to wait.
    fn is_quiet(&self) -> bool {
        self.pending.as_ref().is_none_or(|pending| pending.is_quiet())
    }

    /// Waits for a group, committing it if nobody else does.
    fn settle(&self, pending: &Pending, ticket: u64) -> Result<()> {
        pending.settle(ticket, || self.commit_group(pending))
    }

    /// Makes everything durable by the means of the file system.
    ///
    /// # Errors
    /// `Io` if the system call fails: later writes are refused then. Where durability goes by groups, as [`Groups::commit`].
    fn sync(&self) -> Result<()> {
        if self.pending.is_some() {
            return self.commit();
        }
        let outcome = self.region.medium().sync(0, self.region.medium().len());
        if outcome.is_err() {
            self.state.store(FAILED, Ordering::Release);
        }
        outcome
    }

    /// Closes cleanly. Later writes are refused, reads go on.
    ///
    /// # Errors
    /// `Io` if the data or the mark cannot be synced; `Failed` if a sync failed before.
    fn close(&self) -> Result<()> {
        // Who comes second waits until the first is done.
        let _turn = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.state.load(Ordering::Acquire) == READ_ONLY {
            self.state.store(CLOSED, Ordering::Release);
            return Ok(());
        }
        let mut writer = match self.lock_writer() {
            Err(Error::Closed) => return Ok(()),
            other => other?,
        };
        writer.log.settle(self.region.medium());
        if let Some(pending) = &self.pending {
            self.state.store(CLOSING, Ordering::Release);
            let ticket = pending.ticket();
            drop(writer);
            self.settle(pending, ticket)?;
            writer = self.writer_side();
        }
        // Before the mark: should its sync fail, it may be there all the same, and no write may follow it.
        self.state.store(FAILED, Ordering::Release);
        // A leader that waits for the lock with nothing to commit would otherwise wait for the mark's, and that for him.
        drop(writer);
        self.region.mark_clean(self.len())?;
        self.state.store(CLOSED, Ordering::Release);
        Ok(())
    }

    /// Closes if it can: what a dropped store does. An index that cannot be closed is recovered at the next open.
    fn close_on_drop(&self) {
        if !std::thread::panicking() {
            let _ = self.close();
        }
    }
}

/// Steps of these.
trait Steps: Chain {
    fn commit_group(&self, pending: &Pending) -> Result<u64> {
        let mut closed = None;
        // Files of somebody else's kind may panic: then too nothing stays that is not durable.
        let taken_back = TakenBack(self);
        let outcome = self.region.medium().commit_beside(|| {
            let writer = self.writer_side();
            // After the last group of an index that closes, its region's life cycle stores and commits alone.
            if !matches!(self.state.load(Ordering::Acquire), OPEN | CLOSING) {
                return None;
            }
            closed = Some(pending.close());
            Some(writer)
        });
        match (outcome, closed) {
            (Ok(()), Some(ticket)) => {
                std::mem::forget(taken_back);
                Ok(ticket)
            }
            (Ok(()), None) => {
                if self.state.load(Ordering::Acquire) != BROKEN {
                    std::mem::forget(taken_back);
                }
                self.writable().and(Err(Error::Closed))
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Takes everything back that is not durable, for good.
    fn take_back(&self) {
        let mut writer = self.writer_side();
        self.state.store(FAILED, Ordering::Release);
        self.stripes.lock_all(&mut writer.held);
        self.region.medium().roll_back();
        // What was durable once is a list, between two operations (G1): nothing is settled here, so nothing is stored.
        self.reload(&mut writer);
        self.batches.end();
        self.stripes.unlock(&mut writer.held);
    }
}

impl<T: Chain> Steps for T {}

impl<T: Chain> Groups for T {}

/// Takes back what is not durable when it is dropped.
struct TakenBack<'a, T: Chain>(&'a T);

impl<T: Chain> Drop for TakenBack<'_, T> {
    fn drop(&mut self) {
        self.0.take_back();
    }
}
