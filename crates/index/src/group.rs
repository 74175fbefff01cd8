//! The life cycle of an index, and its commit groups.
//!
//! With a journal, a commit takes milliseconds. Therefore many operations share one commit.
//!
//! 1. An operation changes the index under the writer's lock and releases the lock.
//! 2. If the operation must be durable when it returns, it waits for its group. One waiting thread becomes the leader
//!    and commits the group for all ([`pmem::pending`]).
//! 3. The leader holds the writer's lock only while it closes the group. The leader writes the group to the disk
//!    without the lock. Meanwhile, other operations join the next group.
//!
//! Without a journal, fences make every write durable before the lock is released. Then the group logic costs one test of a pointer.
//!
//! If a commit fails, the leader locks all version locks and rolls back everything that is not durable. Then it
//! rebuilds the volatile state from the durable state. From then on, the index takes no more writes.
//!
//! Invariants:
//! * G1: a group ends between two operations. So each operation, and each batch, is in one group as a whole.
//! * G2: before an operation begins, the running group has space for all lines that the operation may store.

use std::sync::PoisonError;

use pmem::alloc;
use pmem::pending::{Pending, defer};
use pmem::region::Identity;
use pmem::{Error, Group, LINE, Medium, Result};

use crate::engine::Lifecycle;
use crate::garbage::free_behind;
use crate::images::View;
use crate::kernel::{Embed, Guard, Phase, Writer};
use crate::moves::move_records;
use crate::schema::Schema;
use crate::write::WriteOptions;

/// A key of an index.
type KeyOf<T> = <<T as Embed>::Schema as Schema>::Key;
/// A before-image; the inner `None`: the key was absent.
type Replaced<T> = Option<Option<<<T as Embed>::Schema as Schema>::ValueBuf>>;

/// The life cycle of an index. See the module's head.
pub trait Life: Embed {
    /// Takes the writer's lock. Readers with many failed validations go first.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Failed`.
    #[inline(always)]
    fn lock_writer(&self) -> Result<Guard<'_, Self>> {
        let kernel = self.kernel();
        // This must come before the lock. A reader that asked the writer to wait may itself wait for a commit, and the commit needs the
        // lock.
        kernel.stripes.give_way();
        let writer = kernel.writer_side();
        kernel.writable()?;
        Ok(Guard::new(self, writer))
    }

    /// Takes the writer's lock for an operation that changes at most `lines` lines. The running group has space for them.
    ///
    /// # Errors
    /// As [`Life::lock_writer`]. `TooLarge` if no group can hold the lines. The errors of [`Life::commit`], if a group had to be committed
    /// first.
    #[inline(always)]
    fn enter_for(&self, lines: impl Fn(&Guard<'_, Self>) -> Result<u64>) -> Result<Guard<'_, Self>> {
        match &self.kernel().pending {
            None => self.lock_writer(),
            Some(pending) => enter_group(self, pending, lines),
        }
    }

    /// True if the running group has space for `lines` more lines, or if there are no groups. An operation that is larger than the usual
    /// maximum joins the running group. So a group exceeds the maximum by at most one operation.
    ///
    /// # Errors
    /// `TooLarge` if no group can hold the lines, `NoSpace` if the disk cannot.
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

    /// True if the running group has space for `lines` more lines, or if there are no groups. Used for work that can also wait for the next
    /// group.
    fn has_lines_beside(&self, lines: u64) -> bool {
        let group = self.kernel().region.medium().group();
        group.is_none_or(|group| group.lines + lines <= group.lines_max)
    }

    /// Does the work that is due after an operation, a bounded part of it: moves records and frees garbage. The caller holds the lock.
    #[inline(always)]
    fn tidy_behind(&self, writer: &mut Writer<Self::Own>) {
        self.move_some(writer);
        if self.kernel().has_garbage() {
            free_behind(self, writer);
        }
    }

    /// Ends an operation: releases the lock and, if `how.sync` is set, waits until the changes are durable.
    ///
    /// # Errors
    /// As [`Life::commit`].
    #[inline(always)]
    fn leave(&self, mut writer: Guard<'_, Self>, how: WriteOptions) -> Result<()> {
        self.tidy_behind(&mut writer);
        let ticket = self.kernel().pending.as_ref().map(|pending| (pending, pending.ticket()));
        writer.release();
        let Some((pending, ticket)) = ticket else { return Ok(()) };
        if how.sync {
            return self.wait_until_durable(pending, ticket);
        }
        defer(ticket);
        Ok(())
    }

    /// For a reader that found data of this group: waits until it is durable, unless the thread defers its waits
    /// ([`pmem::pending::defer_waits`]).
    ///
    /// # Errors
    /// As [`Life::commit`]: the data was rolled back.
    fn wait_to_read(&self, pending: &Pending, ticket: u64) -> Result<()> {
        if defer(ticket) { Ok(()) } else { self.wait_until_durable(pending, ticket) }
    }

    /// For a reader that got a before-image with this ticket: waits until it is durable, as [`Life::wait_to_read`].
    ///
    /// # Errors
    /// As [`Life::commit`]: the image was rolled back.
    fn wait_for_image(&self, ticket: u64) -> Result<()> {
        let Some(pending) = &self.kernel().pending else { return Ok(()) };
        if ticket > pending.durable() { self.wait_to_read(pending, ticket) } else { Ok(()) }
    }

    /// The image of a key in a view, durable as any value that is read. `None`: the view shows the value that was read from the index
    /// before. If the image was rolled back, so was its batch, and so was every change since that value was durable.
    ///
    /// # Errors
    /// As [`View::replaced`].
    #[inline]
    fn replaced(&self, view: &View<'_, Self::Schema>, key: &KeyOf<Self>) -> Result<Replaced<Self>> {
        let image = view.replaced_at(key)?;
        Ok(image.filter(|(_, ticket)| self.wait_for_image(*ticket).is_ok()).map(|(old, _)| old))
    }

    /// Moves some records out of sparse chunks, if there are any ([`crate::moves`]). Called between two operations.
    #[inline(always)]
    fn move_some(&self, writer: &mut Writer<Self::Own>) {
        if writer.allocator.has_moves() {
            move_records(self, writer);
        }
    }

    /// Makes all earlier writes durable as promised. Where fences make writes durable, there is nothing to do.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`. `Io`, `NoSpace` or `Corrupt` if the commit fails, `Failed` if an earlier one failed. Then everything that was
    /// not durable is rolled back, and the index takes no more writes. The next open shows whether the group reached the disk.
    fn commit(&self) -> Result<()> {
        self.leave(self.lock_writer()?, WriteOptions::default())
    }

    /// Waits until a group is durable. Commits the group if no other thread does.
    ///
    /// # Errors
    /// As [`Life::commit`].
    #[inline(never)]
    fn wait_until_durable(&self, pending: &Pending, ticket: u64) -> Result<()> {
        pending.wait_until_durable(ticket, || commit_group(self, pending))
    }

    /// Makes everything durable by a sync of the file.
    ///
    /// # Errors
    /// `Io` if the system call fails. Later writes are then refused: the system may have dropped pages that it could not write, and a
    /// second sync would report success. With a journal, as [`Life::commit`].
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

    /// Runs `look` while no other thread changes or closes the index. Reads go on.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly` or `Failed`: `look` did not run.
    fn hold_writers<T>(&self, look: impl FnOnce() -> T) -> Result<T> {
        let _turn = self.kernel().closing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut writer = self.lock_writer()?;
        Ok(writer.outside(look))
    }

    /// Closes the index cleanly: the next open has nothing to recover. Later writes are refused. Reads go on.
    ///
    /// # Errors
    /// `Io` if the data or the clean mark cannot be synced. If the next open does not find the mark, it recovers the index. `Failed` if an
    /// earlier sync failed.
    fn close(&self) -> Result<()> {
        let kernel = self.kernel();
        // A second close waits until the first one is done.
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
        writer.log.truncate(kernel.region.medium());
        // The phase changes before the mark is written. If the mark's sync fails, the mark may be on the disk all the same, so no write may
        // follow it.
        if kernel.pending.is_some() {
            kernel.set_phase(Phase::Closing);
            self.leave(writer, WriteOptions::default())?;
            let _writer = kernel.writer_side();
            kernel.set_phase(Phase::Failed);
        } else {
            let _writer = writer;
            kernel.set_phase(Phase::Failed);
        }
        // The lock is released here. A leader that has nothing to commit may wait for the lock, and the mark's commit would wait for this
        // leader.
        kernel.region.mark_clean(self.keys_to_mark())?;
        kernel.set_phase(Phase::Closed);
        Ok(())
    }

    /// Closes the index, if possible, when its store is dropped. If the close fails, the next open recovers the index.
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

    fn durable_ticket(&self) -> u64 {
        self.kernel().pending.as_ref().map_or(u64::MAX, |pending| pending.durable())
    }

    fn wait_for_ticket(&self, ticket: u64) -> Result<()> {
        self.kernel().pending.as_ref().map_or(Ok(()), |pending| self.wait_until_durable(pending, ticket))
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
        index.wait_until_durable(pending, ticket)?;
    }
}

fn commit_group<T: Embed>(index: &T, pending: &Pending) -> Result<u64> {
    let kernel = index.kernel();
    let mut closed = None;
    // The caller's storage may panic. In this case, too, the changes that are not durable are rolled back.
    let taken_back = TakenBack(index);
    let outcome = kernel.region.medium().commit_beside(|| {
        let writer = kernel.writer_side();
        // After the last group of a close, only the life cycle of the region stores and commits.
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

/// On drop, rolls back everything that is not durable and ends all writes.
struct TakenBack<'a, T: Embed>(&'a T);

impl<T: Embed> Drop for TakenBack<'_, T> {
    fn drop(&mut self) {
        let kernel = self.0.kernel();
        let mut writer = kernel.writer_side();
        kernel.set_phase(Phase::Failed);
        kernel.stripes.lock_all(&mut writer.held);
        kernel.region.medium().roll_back();
        // The durable state is a state between two operations (G1). So it needs no recovery, and `reload` stores nothing.
        self.0.reload(&mut writer);
        drop(kernel.images.end());
        kernel.stripes.unlock(&mut writer.held);
    }
}
