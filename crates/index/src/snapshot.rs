//! A snapshot is the contents of an index at one moment. Threads can read it while writers continue.
//!
//! A snapshot changes nothing durable. It reads before-images ([`crate::images`]).
//!
//! Invariants:
//! * S1: a snapshot is opened under the writer's lock, between two operations. The call returns the snapshot when
//!   everything that the snapshot shows is durable. So reads of a snapshot never wait for a commit. A commit that fails
//!   after the call has returned rolls back only changes that came after the snapshot, and the keys of these changes
//!   have before-images. So the snapshot still shows the same values.

use pmem::Result;

use crate::batch::Batching;
use crate::engine;
use crate::images::View;
use crate::kernel::{Embed, Phase};
use crate::kind::{Kind, SchemaOf};
use crate::schema::Schema;

/// The contents of an index at one moment.
pub struct Snapshot<'a, T: Embed> {
    /// The index.
    pub index: &'a T,
    view: View<'a, T::Schema>,
}

/// Opens snapshots.
pub trait Snapshots: Batching {
    /// Opens a snapshot of the index. The snapshot takes memory only for keys that are overwritten while it is open. Before it returns, the
    /// call commits changes that are not durable. If the commit fails, the index rolls these changes back, and the snapshot shows the
    /// remaining state, which is durable.
    ///
    /// # Errors
    /// As [`Life::commit`](crate::Life::commit), if a commit failed and was not rolled back.
    fn snapshot(&self) -> Result<Snapshot<'_, Self>> {
        let kernel = self.kernel();
        loop {
            // This must come before the lock. A reader that asked the writer to wait may itself wait for a commit, and the commit needs the
            // lock.
            kernel.stripes.give_way();
            let writer = kernel.writer_side();
            let view = kernel.images.snapshot();
            let pending = kernel.pending.as_ref().filter(|_| !is_settled(kernel.phase()));
            // The ticket of the running group would not do: an empty group after a close is never committed.
            let ticket = pending.map(|pending| (pending, pending.noted()));
            drop(writer);
            match ticket.map_or(Ok(()), |(pending, ticket)| self.wait_until_durable(pending, ticket)) {
                Ok(()) => return Ok(Snapshot { index: self, view }),
                Err(_) if is_settled(kernel.phase()) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// True if no group has to be committed: the index takes no more writes, and its last group has ended.
fn is_settled(phase: Phase) -> bool {
    matches!(phase, Phase::ReadOnly | Phase::Closed | Phase::Failed)
}

impl<T: Batching> Snapshots for T {}

impl<'a, T: Batching> Snapshot<'a, T> {
    /// Copies the value that `key` had into `value` (if given). False if the key was absent.
    ///
    /// # Errors
    /// `SnapshotBytes` if before-images of the snapshot were dropped. `Corrupt` if the path or the record is damaged.
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

    /// Another view of the snapshot's moment, for a cursor.
    pub fn view(&self) -> View<'a, T::Schema> {
        self.view.again()
    }
}

/// A snapshot with the cursors of its engine. It implements [`engine::View`].
pub struct SnapshotView<'a, T: Embed, C> {
    snapshot: Snapshot<'a, T>,
    cursor: fn(&Snapshot<'a, T>) -> C,
}

impl<'a, T: Batching, C> SnapshotView<'a, T, C> {
    /// Opens a snapshot of `index`. `cursor` creates its cursors.
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
