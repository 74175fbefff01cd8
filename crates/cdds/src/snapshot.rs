//! Snapshots: a version that is kept, and the way back to it.

use std::sync::PoisonError;

use pmem::{Medium, Result};
use tree::Schema;

use crate::pins::Mark;
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
        Mark::new(&self.pins, || (writer.state.current, writer.state.keys))
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
    /// False if newer marks, snapshots or cursors are alive, or the mark is another tree's: nothing has changed then.
    ///
    /// # Errors
    /// `Closed`; `TooLarge` if the tree has too many dead versions to note, which it could not remove; over a medium of groups,
    /// what a commit says.
    pub fn roll_back(&self, to: &Mark) -> Result<bool> {
        if !to.is_of(&self.pins) {
            return Ok(false);
        }
        self.roll_back_to(to.version(), to.keys())
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

    /// Number of keys.
    pub fn len(&self) -> u64 {
        self.mark.keys()
    }

    /// True without keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Looks `key` up; `value` is replaced by its value if it is there.
    ///
    /// # Errors
    /// `Corrupt` if a node or record is damaged.
    pub fn get(&self, key: &S::Key, value: Option<&mut S::ValueBuf>) -> Result<bool> {
        self.tree.get_in(&self.tree.view_at(self.version()), key, value)
    }

    /// A cursor before the first key. It keeps the version itself, also when the snapshot is dropped.
    pub fn cursor(&self) -> Cursor<'a, M, S> {
        self.tree.cursor_at(self.mark.clone())
    }
}
