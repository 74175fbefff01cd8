//! Snapshots: a version that is kept, and the way back to it.

use std::sync::PoisonError;

use index::Life;
use pmem::pending::Pending;
use pmem::sync::{Ordering, fence};
use pmem::{Error, Medium, Result};

use crate::pins::{Mark, Pin};
use crate::structure::Versioned;
use crate::structure::{KeyOf, Structure, ValueBufOf};

/// A version, whole as long as this lives. It is not durable: after a restart there are the newest version and named ones alone.
pub struct SnapshotOf<'a, M: Medium, X: Structure> {
    pub(crate) of: &'a Versioned<M, X>,
    pub(crate) mark: Mark,
}

impl<M: Medium, X: Structure> Versioned<M, X> {
    /// Keeps the newest durable version. Takes the same time whatever there is; waits for a running write, and for what
    /// was written without sync.
    pub fn mark(&self) -> Mark {
        if let Some(pending) = &self.pending {
            return self.mark_durable(pending);
        }
        let writer = self.writer_side();
        Mark::new(&self.pins, || (writer.state.current, Some(writer.state.keys)))
    }

    /// As [`Versioned::mark`], and waits for no running write; the number of keys may not be known.
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
            // What takes it back is on its way. If that fails, it is not taken back.
            let _ = self.settle(pending, pending.ticket());
        }
    }

    /// Keeps the newest version, for reading it.
    pub fn snapshot(&self) -> SnapshotOf<'_, M, X> {
        SnapshotOf { of: self, mark: self.mark() }
    }

    /// A marked version, for reading it; `None` if the mark is another one's.
    pub fn snapshot_of(&self, mark: Mark) -> Option<SnapshotOf<'_, M, X>> {
        mark.is_of(&self.pins).then_some(SnapshotOf { of: self, mark })
    }

    /// Takes back all writes since `to`, as one step: after a crash all of them are there, or none. Durable when it returns.
    /// Marks, snapshots and cursors of versions in between say from then on that these were taken back; named ones are forgotten.
    /// False if the mark is another one's: nothing has changed then.
    ///
    /// # Errors
    /// `TakenBack` if `to` was itself taken back; `Closed`; `TooLarge` if there are too many dead versions to note, which could
    /// not be removed; over a medium of groups, what a commit says.
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

    /// Keeps what is seen at a version from being removed, while that is not taken back.
    ///
    /// # Errors
    /// `TakenBack`.
    #[inline]
    pub(crate) fn reading(&self, version: u64) -> Result<Pin<'_>> {
        let pin = self.pins.enter_at(version);
        // After the pin: a rollback writes its interval, then waits for pins (V2).
        fence(Ordering::SeqCst);
        if self.is_taken_back(version) { Err(Error::TakenBack { version }) } else { Ok(pin) }
    }
}

impl<M: Medium, X: Structure> SnapshotOf<'_, M, X> {
    /// What keeps it.
    pub fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Its version.
    pub fn version(&self) -> u64 {
        self.mark.version()
    }

    /// Number of keys, if it is known.
    pub fn keys(&self) -> Option<u64> {
        self.mark.keys()
    }

    /// Looks `key` up; `value` is replaced by its value if it is there.
    ///
    /// # Errors
    /// `TakenBack` if a rollback took its version back; `Corrupt` if a node or record is damaged.
    pub fn get(&self, key: &KeyOf<X>, value: Option<&mut ValueBufOf<X>>) -> Result<bool> {
        let _reading = self.of.reading(self.version())?;
        self.of.get_in(&self.of.view_at(self.version()), key, value)
    }
}
