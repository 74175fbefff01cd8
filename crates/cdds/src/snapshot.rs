//! Snapshots: a version that is kept, and the way back to it.

use std::sync::PoisonError;

use pmem::sync::{Ordering, fence};
use pmem::{Error, Medium, Result};
use tree::Schema;

use crate::pins::{Mark, Pin};
use crate::scan::Cursor;
use crate::tree::Tree;

/// A version of the tree, whole as long as this lives. It is not durable: after a restart there is the newest version alone.
pub struct Snapshot<'a, M: Medium, S: Schema<Tail = [u64; 0]>> {
    tree: &'a Tree<M, S>,
    mark: Mark,
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Tree<M, S> {
    /// Keeps the newest durable version. Takes the same time whatever the tree holds; waits for a running write, and for what
    /// was written without sync.
    pub fn mark(&self) -> Mark {
        if self.pending.is_some() {
            self.settle_told();
            return Mark::new(&self.pins, || *self.shown.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let writer = self.writer_side();
        Mark::new(&self.pins, || (writer.state.current, Some(writer.state.keys)))
    }

    /// Keeps the newest version, for reading it.
    pub fn snapshot(&self) -> Snapshot<'_, M, S> {
        Snapshot { tree: self, mark: self.mark() }
    }

    /// A marked version, for reading it; `None` if the mark is another tree's.
    pub fn snapshot_of(&self, mark: Mark) -> Option<Snapshot<'_, M, S>> {
        mark.is_of(&self.pins).then_some(Snapshot { tree: self, mark })
    }

    /// Takes back all writes since `to`, as one step: after a crash all of them are there, or none. Durable when it returns.
    /// Marks, snapshots and cursors of versions in between say from then on that these were taken back; named ones are forgotten.
    /// False if the mark is another tree's: nothing has changed then.
    ///
    /// # Errors
    /// `TakenBack` if `to` was itself taken back; `Closed`; `TooLarge` if the tree has too many dead versions to note, which it
    /// could not remove; over a medium of groups, what a commit says.
    pub fn roll_back(&self, to: &Mark) -> Result<bool> {
        if !to.is_of(&self.pins) {
            return Ok(false);
        }
        let keys = match to.keys() {
            Some(keys) => keys,
            None => self.count(to)?,
        };
        self.roll_back_to(to.version(), keys).map(|()| true)
    }

    /// Counts the keys of a version.
    fn count(&self, mark: &Mark) -> Result<u64> {
        let (mut key, mut value, mut keys) = (S::KeyBuf::default(), S::ValueBuf::default(), 0);
        let mut cursor = self.cursor_at(mark.clone());
        while cursor.next(&mut key, &mut value)? {
            keys += 1;
        }
        Ok(keys)
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

impl<'a, M: Medium, S: Schema<Tail = [u64; 0]>> Snapshot<'a, M, S> {
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
    pub fn get(&self, key: &S::Key, value: Option<&mut S::ValueBuf>) -> Result<bool> {
        let _reading = self.tree.reading(self.version())?;
        self.tree.get_in(&self.tree.view_at(self.version()), key, value)
    }

    /// A cursor before the first key. It keeps the version itself, also when the snapshot is dropped.
    pub fn cursor(&self) -> Cursor<'a, M, S> {
        self.tree.cursor_at(self.mark.clone())
    }
}
