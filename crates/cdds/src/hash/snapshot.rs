//! Snapshots: a version that is kept, and the way back to it.

use pmem::{Medium, Result};
use tree::Schema;

use super::read::Pairs;
use super::table::Table;
use crate::pins::Mark;

/// A version of the table, whole as long as this lives. It is not durable: after a restart there is the newest version alone.
pub struct Snapshot<'a, M: Medium, S: Schema<Tail = [u64; 0]>> {
    table: &'a Table<M, S>,
    mark: Mark,
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Table<M, S> {
    /// Keeps the newest version. Takes the same time whatever the table holds; waits for a running write.
    pub fn mark(&self) -> Mark {
        let writer = self.writer_side();
        Mark::new(&self.pins, || (writer.state.current, Some(writer.state.keys)))
    }

    /// Keeps the newest version, for reading it.
    pub fn snapshot(&self) -> Snapshot<'_, M, S> {
        Snapshot { table: self, mark: self.mark() }
    }

    /// A marked version, for reading it; `None` if the mark is another table's.
    pub fn snapshot_of(&self, mark: Mark) -> Option<Snapshot<'_, M, S>> {
        mark.is_of(&self.pins).then_some(Snapshot { table: self, mark })
    }

    /// Takes back all writes since `to`, as one step: after a crash all of them are there, or none. Durable when it returns.
    /// False if newer marks, snapshots or walks are alive, or the mark is another table's: nothing has changed then.
    ///
    /// # Errors
    /// `Closed`; `TooLarge` if the table has too many dead versions to note, which it could not remove.
    pub fn roll_back(&self, to: &Mark) -> Result<bool> {
        let Some(keys) = to.keys().filter(|_| to.is_of(&self.pins)) else { return Ok(false) };
        let mut writer = self.lock_writer()?;
        self.roll_back_locked(&mut writer, to.version(), keys)
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
        self.mark.keys().unwrap_or_default()
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
        self.table.get_in(&self.table.view_at(self.version()), key, value)
    }

    /// All pairs, in an order of their hashes. The walk keeps the version itself, also when the snapshot is dropped.
    pub fn pairs(&self) -> Pairs<'a, M, S> {
        self.table.pairs_at(self.mark.clone())
    }

    /// Has `each` see all pairs, in an order of their hashes, until it says false.
    ///
    /// # Errors
    /// `Corrupt` if a node or record is damaged.
    pub fn each(&self, each: impl FnMut(&S::Key, &S::Value) -> bool) -> Result<()> {
        self.pairs().each(each)
    }
}
