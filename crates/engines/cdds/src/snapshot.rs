//! Snapshots: a kept version, and the rollback to it.

use std::sync::PoisonError;

use index::Life;
use pmem::pending::Pending;
use pmem::sync::{Ordering, fence};
use pmem::{Error, Medium, Result};

use crate::pins::{Mark, Pin};
use crate::structure::Versioned;
use crate::structure::{KeyOf, Structure, ValueBufOf};

/// A version that is kept as long as this value lives. It is not durable: after a restart only the newest version and the named ones exist.
pub struct SnapshotOf<'a, M: Medium, X: Structure> {
    pub(crate) of: &'a Versioned<M, X>,
    pub(crate) mark: Mark,
}

impl<M: Medium, X: Structure> Versioned<M, X> {
    /// Keeps the newest durable version. The cost does not depend on the number of keys. Without a journal it waits for a running write.
    /// Over a journal it waits for writes that were made without sync.
    pub fn mark(&self) -> Mark {
        if let Some(pending) = &self.pending {
            return self.mark_durable(pending);
        }
        let writer = self.writer_side();
        Mark::new(&self.pins, || (writer.state.current, Some(writer.state.keys)))
    }

    /// As [`Versioned::mark`], but it never waits for a running write, and the number of keys may be unknown.
    pub(crate) fn mark_to_read(&self) -> Mark {
        match &self.pending {
            Some(pending) => self.mark_durable(pending),
            None => Mark::new(&self.pins, || (self.version(), None)),
        }
    }

    fn mark_durable(&self, pending: &Pending) -> Mark {
        loop {
            self.settle_told();
            let mark = Mark::new(&self.pins, || *self.shown.lock().unwrap_or_else(PoisonError::into_inner));
            if !self.is_taken_back(mark.version()) {
                return mark;
            }
            // The rollback of this version is not durable yet. If its group fails, the version is not rolled back.
            let _ = self.wait_until_durable(pending, pending.ticket());
        }
    }

    /// Keeps the newest durable version for reading.
    pub fn snapshot(&self) -> SnapshotOf<'_, M, X> {
        SnapshotOf { of: self, mark: self.mark() }
    }

    /// A marked version for reading. `None` if the mark belongs to another structure.
    pub fn snapshot_of(&self, mark: Mark) -> Option<SnapshotOf<'_, M, X>> {
        mark.is_of(&self.pins).then_some(SnapshotOf { of: self, mark })
    }

    /// Rolls back all writes since `to` as one step: a crash keeps all of them or none. Durable on return. Later reads through marks,
    /// snapshots and cursors of the versions after `to` return `TakenBack`; names of such versions are removed. False if the mark belongs
    /// to another structure; then nothing has changed.
    ///
    /// # Errors
    /// `TakenBack` if `to` was itself rolled back; `Closed`, `ReadOnly`, `Failed`; `Corrupt` if a node is damaged; `TooLarge` if the list
    /// of dead versions is full and its intervals cannot be removed; over a journal the errors of a commit.
    pub fn roll_back(&self, to: &Mark) -> Result<bool> {
        if !to.is_of(&self.pins) {
            return Ok(false);
        }
        let keys = match to.keys() {
            Some(keys) => keys,
            None => X::count(self, to)?,
        };
        self.roll_back_to(to.version(), keys).map(|()| true)
    }

    /// Pins a version, unless it was rolled back.
    ///
    /// # Errors
    /// `TakenBack`.
    #[inline]
    pub(crate) fn reading(&self, version: u64) -> Result<Pin<'_>> {
        let pin = self.pins.enter_at(version);
        // This check comes after the pin: a rollback publishes its interval and then waits for pins (V2).
        fence(Ordering::SeqCst);
        if self.is_taken_back(version) { Err(Error::TakenBack { version }) } else { Ok(pin) }
    }
}

impl<M: Medium, X: Structure> SnapshotOf<'_, M, X> {
    /// The mark that keeps the version.
    pub fn mark(&self) -> &Mark {
        &self.mark
    }

    /// The snapshot's version.
    pub fn version(&self) -> u64 {
        self.mark.version()
    }

    /// Number of keys, if it is known.
    pub fn keys(&self) -> Option<u64> {
        self.mark.keys()
    }

    /// Looks up `key`. True if the key is present; then `value` gets its value.
    ///
    /// # Errors
    /// `TakenBack` if the snapshot's version was rolled back; `Corrupt` if a node or record is damaged; `Failed` if the writer panicked
    /// while it changed a node that is read.
    pub fn get(&self, key: &KeyOf<X>, value: Option<&mut ValueBufOf<X>>) -> Result<bool> {
        let _reading = self.of.reading(self.version())?;
        self.of.get_in(&self.of.view_at(self.version()), key, value)
    }
}
