//! The life of an index, and groups: over a medium where a commit takes milliseconds, the changes of many operations become durable with
//! one.
//!
//! An operation changes the index under the writer's lock and gives that back; then it waits for its group, and one of those who wait
//! commits for all ([`pmem::pending`]). The lock is held again only while the group is closed, not while it is written, so the next
//! operations join the next group meanwhile. Over any other medium fences have made everything durable by the time the lock is given
//! back, and all this is one test of a pointer.
//!
//! If a commit fails, everything that is not durable is taken back under all stripes, what is volatile is built anew from what is left,
//! and the index takes no more writes.
//!
//! Invariants:
//! * G1: a group ends between two operations, so each is in it whole or not at all, and so is a batch.
//! * G2: what an operation may store fits into the running group before it begins.

use std::sync::PoisonError;

use pmem::alloc;
use pmem::pending::Pending;
use pmem::region::Identity;
use pmem::{Error, Group, LINE, Medium, Result};

use crate::engine::Lifecycle;
use crate::garbage::free_behind;
use crate::kernel::{Embed, Guard, Phase, Writer};
use crate::moves::move_records;
use crate::write::WriteOptions;

/// The life of an index. See the module's head.
pub trait Life: Embed {
    /// The writer's lock. Readers that failed too often go first.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Failed`.
    #[inline(always)]
    fn lock_writer(&self) -> Result<Guard<'_, Self>> {
        let kernel = self.kernel();
        // Before the lock: a reader who asked for this may be waiting for a commit, and that for the lock.
        kernel.stripes.give_way();
        let writer = kernel.writer_side();
        kernel.writable()?;
        Ok(Guard::new(self, writer))
    }

    /// The writer's lock for what may change as many lines as `lines` says, with space for them in the running group.
    ///
    /// # Errors
    /// As [`Life::lock_writer`]; `TooLarge` if no group can hold them; what a commit says that had to make space.
    #[inline(always)]
    fn enter_for(&self, lines: impl Fn(&Guard<'_, Self>) -> Result<u64>) -> Result<Guard<'_, Self>> {
        match &self.kernel().pending {
            None => self.lock_writer(),
            Some(pending) => enter_group(self, pending, lines),
        }
    }

    /// True if the running group, if there is one, has space for so many lines. An operation that is larger than groups usually are joins
    /// what is there: so a group is larger by one operation at most.
    ///
    /// # Errors
    /// `TooLarge` if no group can hold them, `NoSpace` if the disk cannot.
    fn has_lines(&self, lines: u64) -> Result<bool> {
        let Some(Group { lines: noted, lines_max, lines_limit }) = self.kernel().region.medium().group()
        else {
            return Ok(true);
        };
        if lines_max + lines > lines_limit {
            let [asked, limit] = [lines, lines_limit - lines_max].map(|lines| lines * LINE);
            return Err(Error::TooLarge { of: "bytes of a group of writes", asked, limit });
        }
        if lines <= lines_max {
            return Ok(noted + lines <= lines_max);
        }
        if noted <= lines_max {
            self.kernel().region.medium().reserve(lines)?;
        }
        Ok(noted <= lines_max)
    }

    /// True if the running group, if there is one, has space for so many lines that could as well be in the next.
    fn has_lines_beside(&self, lines: u64) -> bool {
        let group = self.kernel().region.medium().group();
        group.is_none_or(|group| group.lines + lines <= group.lines_max)
    }

    /// An operation is over: gives the lock back, and waits until what was changed is durable, if asked.
    ///
    /// # Errors
    /// As [`Life::commit`].
    #[inline(always)]
    fn leave(&self, mut writer: Guard<'_, Self>, how: WriteOptions) -> Result<()> {
        self.move_some(&mut writer);
        if self.kernel().has_garbage() {
            free_behind(self, &mut writer);
        }
        let Some(pending) = &self.kernel().pending else { return Ok(()) };
        let ticket = pending.ticket();
        drop(writer);
        if how.sync { self.settle(pending, ticket) } else { Ok(()) }
    }

    /// Moves some records out of sparse chunks, if there are any ([`crate::moves`]): between two operations.
    #[inline(always)]
    fn move_some(&self, writer: &mut Writer<Self::Own>) {
        if writer.allocator.has_moves() {
            move_records(self, writer);
        }
    }

    /// Makes everything written so far as durable as was promised. Nothing to do where fences did it.
    ///
    /// # Errors
    /// `Closed`; `Io`, `NoSpace` or `Corrupt` if the commit fails, `Failed` if one did before: what was not durable is taken
    /// back, and no more writes are taken. Whether it is there will be seen when the index is opened again.
    fn commit(&self) -> Result<()> {
        self.leave(self.lock_writer()?, WriteOptions::default())
    }

    /// Waits for a group, and commits it if no other thread does.
    ///
    /// # Errors
    /// As [`Life::commit`].
    #[inline(never)]
    fn settle(&self, pending: &Pending, ticket: u64) -> Result<()> {
        pending.settle(ticket, || commit_group(self, pending))
    }

    /// Makes everything durable by the means of the file system.
    ///
    /// # Errors
    /// `Io` if the system call fails. Later writes are refused then: the system may have given up pages that it could not
    /// write, and would call a second sync a success. Where durability goes by groups, as [`Life::commit`].
    fn sync(&self) -> Result<()> {
        let kernel = self.kernel();
        if kernel.pending.is_some() {
            return self.commit();
        }
        let medium = kernel.region.medium();
        let outcome = medium.sync(0, medium.len());
        if outcome.is_err() {
            kernel.set_phase(Phase::Failed);
        }
        outcome
    }

    /// Runs `look` while no other thread changes or closes the index; readers go on.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly` or `Failed`: it was not run.
    fn hold_writers<T>(&self, look: impl FnOnce() -> T) -> Result<T> {
        let _turn = self.kernel().closing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut writer = self.lock_writer()?;
        Ok(writer.outside(look))
    }

    /// Closes cleanly: the next open finds nothing to recover. Later writes are refused, reads go on.
    ///
    /// # Errors
    /// `Io` if the data or the mark cannot be synced: the next open recovers the index if it does not find the mark. `Failed` if
    /// this or another sync failed before.
    fn close(&self) -> Result<()> {
        let kernel = self.kernel();
        // Who comes second waits until the first is done.
        let _turn = kernel.closing.lock().unwrap_or_else(PoisonError::into_inner);
        if kernel.phase() == Phase::ReadOnly {
            kernel.set_phase(Phase::Closed);
            return Ok(());
        }
        self.prepare_close();
        let mut writer = match self.enter_to_close() {
            Err(Error::Closed) => return Ok(()),
            other => other?,
        };
        writer.log.settle(kernel.region.medium());
        // Before the mark: should its sync fail, it may be there all the same, and no write may follow it.
        if kernel.pending.is_some() {
            kernel.set_phase(Phase::Closing);
            self.leave(writer, WriteOptions::default())?;
            let _writer = kernel.writer_side();
            kernel.set_phase(Phase::Failed);
        } else {
            let _writer = writer;
            kernel.set_phase(Phase::Failed);
        }
        // Without the lock: a leader that waits for it with nothing to commit would wait for the mark's commit, and that for him.
        kernel.region.mark_clean(self.keys_to_mark())?;
        kernel.set_phase(Phase::Closed);
        Ok(())
    }

    /// Closes if it can: what a dropped store does. An index that cannot be closed is recovered at the next open.
    fn close_on_drop(&self) {
        if !std::thread::panicking() {
            let _ = self.close();
        }
    }
}

impl<T: Embed> Life for T {}

impl<T: Embed + Send + Sync> Lifecycle for T {
    fn commit(&self) -> Result<()> {
        Life::commit(self)
    }

    fn is_quiet(&self) -> bool {
        self.kernel().is_quiet()
    }

    fn sync(&self) -> Result<()> {
        Life::sync(self)
    }

    fn refuse_writes(&self) {
        self.kernel().refuse_writes();
    }

    fn hold_writers(&self, run: &mut dyn FnMut()) -> Result<()> {
        Life::hold_writers(self, run)
    }

    fn close(&self) -> Result<()> {
        Life::close(self)
    }

    fn set_snapshot_bytes(&self, bytes: u64) {
        self.kernel().images.set_limit(bytes);
    }

    fn identity(&self) -> Option<&Identity> {
        Some(self.kernel().region.identity())
    }

    fn region_bytes(&self) -> u64 {
        self.kernel().region.medium().len()
    }

    fn usage(&self) -> alloc::Usage {
        alloc::usage(&self.kernel().region)
    }
}

#[inline(never)]
fn enter_group<'a, T: Embed>(
    index: &'a T,
    pending: &Pending,
    lines: impl Fn(&Guard<'_, T>) -> Result<u64>,
) -> Result<Guard<'a, T>> {
    loop {
        let mut writer = index.lock_writer()?;
        let ticket = match index.waits_for(pending, &mut writer) {
            Some(ticket) => ticket,
            None if index.has_lines(lines(&writer)?)? => return Ok(writer),
            None => pending.ticket(),
        };
        drop(writer);
        index.settle(pending, ticket)?;
    }
}

fn commit_group<T: Embed>(index: &T, pending: &Pending) -> Result<u64> {
    let kernel = index.kernel();
    let mut closed = None;
    // The caller's own storage may panic. Then, too, what is not durable is taken back.
    let taken_back = TakenBack(index);
    let outcome = kernel.region.medium().commit_beside(|| {
        let writer = kernel.writer_side();
        // After the last group of an index that closes, its region's life cycle stores and commits alone.
        if !matches!(kernel.phase(), Phase::Open | Phase::Closing) {
            return None;
        }
        closed = Some((pending.close(), index.shown(&writer)));
        Some(writer)
    });
    match (outcome, closed) {
        (Ok(()), Some((ticket, shown))) => {
            std::mem::forget(taken_back);
            index.show_durable(shown);
            Ok(ticket)
        }
        (Ok(()), None) => {
            if kernel.phase() != Phase::Broken {
                std::mem::forget(taken_back);
            }
            kernel.writable().and(Err(Error::Closed))
        }
        (Err(error), _) => Err(error),
    }
}

/// Takes everything back that is not durable, for good, when it is dropped.
struct TakenBack<'a, T: Embed>(&'a T);

impl<T: Embed> Drop for TakenBack<'_, T> {
    fn drop(&mut self) {
        let kernel = self.0.kernel();
        let mut writer = kernel.writer_side();
        kernel.set_phase(Phase::Failed);
        kernel.stripes.lock_all(&mut writer.held);
        kernel.region.medium().roll_back();
        // What was durable once is an index between two operations (G1): nothing is settled here, so nothing is stored.
        self.0.reload(&mut writer);
        kernel.images.end();
        kernel.stripes.unlock(&mut writer.held);
    }
}
