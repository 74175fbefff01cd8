//! Groups: over a medium where a commit takes milliseconds, many versions become durable together.
//!
//! The writer goes on from version to version in memory; readers stay at the newest version that is durable. What they read there
//! cannot be taken back, so nothing has to be noted of what is on its way, and nobody waits but for what he was told of: who
//! wrote without waiting ([`WriteOptions`]) finds it, because a look-up that may meet such a write looks at the newest
//! version too, and waits if what it finds there began, or is gone, since the durable one.
//!
//! Invariants:
//! * G1: a group ends between two changes, so a version is in it whole or not at all, and so is a batch in waves.
//! * G2: the horizon never passes the newest durable version (P1): what a crash could bring back is still there.
//! * G3: after a failed commit nothing more is written: what there is is what is durable.

use pmem::pending::Pending;
use pmem::sync::{MutexGuard, Ordering};
use pmem::{Error, Group, LINE, Medium, Result};
use tree::{Schema, Write, WriteOptions};

use crate::structure::{Structure, WriteOf, WriterOf};
use crate::versioned::Versioned;

pub(crate) const OPEN: u8 = 0;
pub(crate) const READ_ONLY: u8 = 1;
/// The last group is on its way.
pub(crate) const CLOSING: u8 = 2;
pub(crate) const CLOSED: u8 = 3;
pub(crate) const FAILED: u8 = 4;

/// Lines besides nodes, log and chunk heads: the intents, the meta block, the superblock's, the bits of all blocks of a ring.
const LINES_MORE: u64 = 192;
/// Chunks that an operation may open or return.
const CHUNKS: u64 = 4;

impl<M: Medium, X: Structure> Versioned<M, X> {
    /// `Closed`, `ReadOnly` or `Failed` once no more writes are taken.
    pub(crate) fn writable(&self) -> Result<()> {
        match self.state.load(Ordering::Acquire) {
            OPEN => Ok(()),
            CLOSED | CLOSING => Err(Error::Closed),
            READ_ONLY => Err(Error::ReadOnly),
            _ => Err(Error::Failed),
        }
    }

    /// True once it takes no more writes, whatever the reason.
    pub fn is_closed(&self) -> bool {
        self.writable().is_err()
    }

    /// Refuses every write from now on, and has nothing to close: for one over memory of its own.
    pub fn refuse_writes(&self) {
        self.state.store(READ_ONLY, Ordering::Release);
    }

    /// The writer's side, with room in the running group for what changes no entries.
    ///
    /// # Errors
    /// As [`Versioned::enter_for`].
    pub(crate) fn enter(&self) -> Result<MutexGuard<'_, WriterOf<X>>> {
        self.enter_for(|writer| Ok(X::lines_of(self, writer, &[])? + self.lines_besides(1, 0)))
    }

    /// The writer's side for these writes as one step, with room for them in the running group.
    ///
    /// # Errors
    /// As [`Versioned::enter_for`].
    pub(crate) fn enter_to_write(&self, writes: &[WriteOf<'_, X>]) -> Result<MutexGuard<'_, WriterOf<X>>> {
        let bytes = |write: &WriteOf<'_, X>| match write {
            Write::Put(key, value) => X::Schema::record_bytes(key, value),
            Write::Delete(_) => 0,
        };
        self.enter_for(|writer| {
            let (count, bytes) = (writes.len() as u64, writes.iter().map(bytes).sum());
            Ok(X::lines_of(self, writer, writes)? + self.lines_besides(count, bytes))
        })
    }

    /// The writer's side for what may change as many lines as `lines` says.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Failed`; `TooLarge` if no group can hold them; what a commit says that had to make room.
    pub(crate) fn enter_for(
        &self,
        lines: impl Fn(&WriterOf<X>) -> Result<u64>,
    ) -> Result<MutexGuard<'_, WriterOf<X>>> {
        loop {
            let mut writer = self.lock_writer()?;
            let Some(pending) = &self.pending else { return Ok(writer) };
            let ticket = match writer.rolled_back {
                Some((ticket, interval)) if pending.durable() >= ticket => {
                    self.pins.wait_for_short(interval.lo..=interval.hi);
                    writer.rolled_back = None;
                    continue;
                }
                Some((ticket, _)) => ticket,
                None if has_lines(self.region.medium().group(), lines(&writer)?)? => return Ok(writer),
                None => pending.ticket(),
            };
            drop(writer);
            self.settle(pending, ticket)?;
        }
    }

    /// An operation is over: lets go of the lock, and waits until what was changed is durable, if asked.
    ///
    /// # Errors
    /// As [`Versioned::commit`].
    pub(crate) fn acknowledge(&self, writer: MutexGuard<'_, WriterOf<X>>, how: WriteOptions) -> Result<()> {
        let Some(pending) = &self.pending else { return Ok(()) };
        let (ticket, version) = (pending.ticket(), writer.state.current);
        if !how.sync {
            self.told.fetch_max(version, Ordering::SeqCst);
            return Ok(());
        }
        drop(writer);
        self.settle(pending, ticket)
    }

    /// Makes everything written so far as durable as was promised. Nothing to do where fences did it.
    ///
    /// # Errors
    /// `Closed`; `Io`, `NoSpace` or `Corrupt` if the commit fails, `Failed` if one did before: what was not durable is taken
    /// back, and no more writes are taken.
    pub fn commit(&self) -> Result<()> {
        self.acknowledge(self.lock_writer()?, WriteOptions::default())
    }

    /// Makes everything durable by the means of the file system.
    ///
    /// # Errors
    /// `Io` if the system call fails: later writes are refused then. Where durability goes by groups, as [`Versioned::commit`].
    pub fn sync(&self) -> Result<()> {
        if self.pending.is_some() {
            return self.commit();
        }
        let outcome = self.region.medium().sync(0, self.region.medium().len());
        if outcome.is_err() {
            self.state.store(FAILED, Ordering::Release);
        }
        outcome
    }

    /// True if everything was durable a moment ago: a read will not have to wait.
    pub fn is_quiet(&self) -> bool {
        self.told.load(Ordering::SeqCst) <= self.version()
    }

    /// Waits until what was written without waiting is durable. If that fails, it is taken back, and nobody has to wait for it.
    pub(crate) fn settle_told(&self) {
        if let Some(pending) = &self.pending
            && !self.is_quiet()
        {
            let ticket = pending.ticket();
            let _ = self.settle(pending, ticket);
        }
    }

    /// Waits for a group, committing it if nobody else does.
    pub(crate) fn settle(&self, pending: &Pending, ticket: u64) -> Result<()> {
        pending.settle(ticket, || self.commit_group(pending))
    }

    fn commit_group(&self, pending: &Pending) -> Result<u64> {
        let mut closed = None;
        // Files of somebody else's kind may panic: then too nothing stays that is not durable.
        let taken_back = TakenBack(self);
        let outcome = self.region.medium().commit_beside(|| {
            let writer = self.writer_side();
            // After the last group of one that closes, its region's life cycle stores and commits alone.
            if !matches!(self.state.load(Ordering::Acquire), OPEN | CLOSING) {
                return None;
            }
            closed = Some((pending.close(), writer.state));
            Some(writer)
        });
        match (outcome, closed) {
            (Ok(()), Some((ticket, state))) => {
                std::mem::forget(taken_back);
                self.show_durable(state.current, state.keys);
                Ok(ticket)
            }
            (Ok(()), None) => {
                std::mem::forget(taken_back);
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
        self.read_back(&mut writer);
        self.stripes.unlock(&mut writer.held);
    }

    /// Most lines that so many operations change beside the structure's, with records of so many bytes together.
    pub(crate) fn lines_besides(&self, count: u64, bytes: u64) -> u64 {
        let geometry = self.region.geometry();
        let piece = geometry.chunk_bytes / 8;
        // Each may straddle a line, and changes a bit of its own and one of what it replaces.
        let records = bytes.div_ceil(LINE) + 3 * count + 3 * bytes.div_ceil(piece);
        let heads = CHUNKS * (geometry.chunk_bytes / 16 / 8).div_ceil(LINE);
        records + heads + geometry.log_records / 4 + LINES_MORE
    }
}

/// True if the running group, if there is one, has room for so many lines.
///
/// # Errors
/// `TooLarge` if no group can hold them.
fn has_lines(group: Option<Group>, lines: u64) -> Result<bool> {
    let Some(Group { lines: noted, lines_max }) = group else { return Ok(true) };
    if lines > lines_max {
        let words = |lines: u64| (lines * 8) as usize;
        return Err(Error::TooLarge { records: words(lines), limit: words(lines_max) });
    }
    Ok(noted + lines <= lines_max)
}

/// Takes back what is not durable when it is dropped.
struct TakenBack<'a, M: Medium, X: Structure>(&'a Versioned<M, X>);

impl<M: Medium, X: Structure> Drop for TakenBack<'_, M, X> {
    fn drop(&mut self) {
        self.0.take_back();
    }
}
