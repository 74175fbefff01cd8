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
//! * G3: after a failed commit nothing more is written: the tree is what is durable.

use std::collections::HashMap;

use pmem::pending::Pending;
use pmem::sync::{MutexGuard, Ordering};
use pmem::{Error, Group, LINE, Medium, Result};
use tree::{Schema, Write, WriteOptions};

use crate::node::{Header, Node};
use crate::tree::{Tree, Writer};

pub(crate) const OPEN: u8 = 0;
pub(crate) const READ_ONLY: u8 = 1;
/// The last group is on its way.
pub(crate) const CLOSING: u8 = 2;
pub(crate) const CLOSED: u8 = 3;
pub(crate) const FAILED: u8 = 4;

/// Nodes of a level that an operation may store to: two that are replaced, two that take their place.
const NODES_OF_LEVEL: u64 = 4;
/// Levels that an operation may add.
const LEVELS_MORE: u64 = 2;
/// Lines besides nodes, log and chunk heads: the intents, the meta block, the superblock's, the bits of all blocks of a ring.
const LINES_MORE: u64 = 192;
/// Chunks that an operation may open or return.
const CHUNKS: u64 = 4;

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Tree<M, S> {
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

    /// Refuses every write from now on, and has nothing to close: for a tree over memory of its own.
    pub fn refuse_writes(&self) {
        self.state.store(READ_ONLY, Ordering::Release);
    }

    /// The writer's side for so many operations that write records of so many bytes together, with room for them in the running
    /// group.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Failed`; `TooLarge` if no group can hold them; what a commit says that had to make room.
    pub(crate) fn enter(&self, operations: u64, bytes: u64) -> Result<MutexGuard<'_, Writer>> {
        self.enter_for(|writer| Ok(self.lines_of(writer, operations, bytes)))
    }

    /// As [`Tree::enter`], for what may change as many lines as `lines` says.
    pub(crate) fn enter_for(&self, lines: impl Fn(&Writer) -> Result<u64>) -> Result<MutexGuard<'_, Writer>> {
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
    /// As [`Tree::commit`].
    pub(crate) fn acknowledge(&self, writer: MutexGuard<'_, Writer>, how: WriteOptions) -> Result<()> {
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
    /// `Io` if the system call fails: later writes are refused then. Where durability goes by groups, as [`Tree::commit`].
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
            // After the last group of a tree that closes, its region's life cycle stores and commits alone.
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

    /// Most lines that so many operations change, wherever they are, with records of so many bytes together.
    fn lines_of(&self, writer: &Writer, operations: u64, bytes: u64) -> u64 {
        let node_lines = self.shape.bytes / LINE;
        let each = (NODES_OF_LEVEL + 1) * node_lines + 8;
        operations * each + self.lines_of_records(operations, bytes) + self.lines_once(writer)
    }

    /// Most lines that these writes change as one step: nearer to what comes, for their leaves are looked at.
    pub(crate) fn lines_of_batch(
        &self,
        writer: &Writer,
        writes: &[Write<'_, S::Key, S::Value>],
        bytes: u64,
    ) -> Result<u64> {
        let (medium, shape, view) = (self.region.medium(), &self.shape, self.view_now(writer));
        let node_lines = shape.bytes / LINE;
        let mut of_leaf: HashMap<Node, usize> = HashMap::new();
        for write in writes {
            let (Write::Put(key, _) | Write::Delete(key)) = write;
            let path = self.path(&view, writer.state.root, S::probe(key))?;
            *of_leaf.entry(path[path.len() - 1]).or_default() += 1;
        }
        // A leaf with room for all stays; another is replaced, and so are its neighbours, and its part of a node above.
        let lines = of_leaf.iter().map(|(leaf, writes)| {
            let used = leaf.used(medium, shape, &view).count();
            let is_thin = leaf.seen(medium, shape, &view).len() <= shape.least + *writes;
            if used + writes <= shape.slots && !is_thin {
                node_lines
            } else {
                (NODES_OF_LEVEL + 1 + (4 * writes / shape.slots) as u64) * node_lines
            }
        });
        let count = writes.len() as u64;
        Ok(lines.sum::<u64>() + self.lines_of_records(count, bytes) + self.lines_once(writer))
    }

    fn lines_of_records(&self, count: u64, bytes: u64) -> u64 {
        let piece = self.region.geometry().chunk_bytes / 8;
        // Each may straddle a line, and changes a bit of its own and one of what it replaces.
        bytes.div_ceil(LINE) + 3 * count + 3 * bytes.div_ceil(piece)
    }

    /// What counts once: a way down, log, chunk heads and the rest.
    fn lines_once(&self, writer: &Writer) -> u64 {
        let geometry = self.region.geometry();
        let level = Header::read(self.region.medium(), Node(writer.state.root)).map_or(0, |root| root.level);
        let way = NODES_OF_LEVEL * (level as u64 + LEVELS_MORE) * (self.shape.bytes / LINE);
        let heads = CHUNKS * (geometry.chunk_bytes / 16 / 8).div_ceil(LINE);
        way + heads + geometry.log_records / 4 + LINES_MORE
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
struct TakenBack<'a, M: Medium, S: Schema<Tail = [u64; 0]>>(&'a Tree<M, S>);

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Drop for TakenBack<'_, M, S> {
    fn drop(&mut self) {
        self.0.take_back();
    }
}
