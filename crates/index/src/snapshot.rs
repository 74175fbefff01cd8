//! Snapshots: an index as it was at one moment, while writers go on. Nothing durable changes for them: see [`crate::images`].
//!
//! Invariants:
//! * S1: a snapshot is opened under the writer's lock, between two operations, and returned when all that it shows is durable. So it
//!   never waits for a commit later, and a failed commit takes nothing of it back: what is rolled back was written after it, and has
//!   an image.

use pmem::Result;

use crate::batch::Batching;
use crate::engine;
use crate::images::View;
use crate::kernel::{Embed, Phase};
use crate::kind::{Kind, SchemaOf};
use crate::schema::Schema;

/// An index as it was at one moment.
pub struct Snapshot<'a, T: Embed> {
    /// The index.
    pub index: &'a T,
    view: View<'a, T::Schema>,
}

/// Opening snapshots.
pub trait Snapshots: Batching {
    /// The index as it is now. It takes no memory but for what is overwritten while it is open. What was not durable is committed first.
    /// If that fails it is rolled back, and the snapshot shows what is left, which is durable.
    ///
    /// # Errors
    /// As [`Life::commit`](crate::Life::commit), if a commit failed and was not rolled back.
    fn snapshot(&self) -> Result<Snapshot<'_, Self>> {
        let kernel = self.kernel();
        loop {
            // Before the lock: a reader that asked for this may be waiting for a commit, and that for the lock.
            kernel.stripes.give_way();
            let writer = kernel.writer_side();
            let view = kernel.images.snapshot();
            let pending = kernel.pending.as_ref().filter(|_| !is_settled(kernel.phase()));
            // Not the running group's ticket: an empty group behind a close is never committed.
            let ticket = pending.map(|pending| (pending, pending.noted()));
            drop(writer);
            match ticket.map_or(Ok(()), |(pending, ticket)| self.settle(pending, ticket)) {
                Ok(()) => return Ok(Snapshot { index: self, view }),
                Err(_) if is_settled(kernel.phase()) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// True if everything that is there is durable, or was not to be: it takes no more writes, and its last group ended.
fn is_settled(phase: Phase) -> bool {
    matches!(phase, Phase::ReadOnly | Phase::Closed | Phase::Failed)
}

impl<T: Batching> Snapshots for T {}

impl<'a, T: Batching> Snapshot<'a, T> {
    /// Copies the value that `key` had into `value` (if given); false if the key was absent.
    ///
    /// # Errors
    /// `SnapshotBytes` if it is too old; `Corrupt` if the path or the record is damaged.
    pub fn get(
        &self,
        key: &<T::Schema as Schema>::Key,
        mut value: Option<&mut <T::Schema as Schema>::ValueBuf>,
    ) -> Result<bool> {
        let found = self.index.value_now(key, value.as_deref_mut())?;
        let Some(old) = self.view.replaced(key)? else { return Ok(found) };
        Ok(match (old, value) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(old), Some(value)) => {
                *value = old;
                true
            }
        })
    }

    /// Its moment, for a cursor.
    pub fn view(&self) -> View<'a, T::Schema> {
        self.view.again()
    }
}

/// A snapshot as a [`View`] with its engine's cursors.
pub struct SnapshotView<'a, T: Embed, C> {
    snapshot: Snapshot<'a, T>,
    cursor: fn(&Snapshot<'a, T>) -> C,
}

impl<'a, T: Batching, C> SnapshotView<'a, T, C> {
    /// A snapshot of `index` as it is now; `cursor` makes its cursors.
    ///
    /// # Errors
    /// As [`Snapshots::snapshot`].
    pub fn of(index: &'a T, cursor: fn(&Snapshot<'a, T>) -> C) -> Result<Self> {
        Ok(Self { snapshot: Snapshots::snapshot(index)?, cursor })
    }
}

impl<'a, K, T, C> engine::View<K> for SnapshotView<'a, T, C>
where
    K: Kind,
    T: Batching<Schema: SchemaOf<K>> + Sync,
    C: engine::Cursor<K> + 'a,
    Snapshot<'a, T>: Send + Sync,
{
    fn get(&self, key: &K::Key, value: &mut K::ValueBuf) -> Result<bool> {
        self.snapshot.get(key, Some(value))
    }

    fn cursor(&self) -> Box<dyn engine::Cursor<K> + '_> {
        Box::new((self.cursor)(&self.snapshot))
    }
}
