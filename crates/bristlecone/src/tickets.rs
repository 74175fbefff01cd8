//! Tickets: positions in the order of a store's commits. A caller gets a ticket for reads and writes that did not wait for a commit. Later,
//! the caller waits, by a future or by a blocking call, until the ticket is durable: until all commits up to its position are durable.
//!
//! In a store with a journal, a write waits for the sync of its group. A thread that serves many connections cannot afford this wait.
//! [`StoreOf::apply`] runs reads and writes without waiting and returns a [`Ticket`]. When the ticket is durable, so is everything that
//! these reads and writes saw or changed. [`StoreOf::durable`] is a future for that moment.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use ::index::{Kind, WriteOptions};
use pmem::pending::defer_waits;

use crate::durable_engine::Engine;
use crate::error::Result;
use crate::latency::{Latencies, Timed};
use crate::store::StoreOf;

/// A position in the order of a store's commits. If a ticket is durable, all lower tickets are durable, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// A future for the moment when a ticket is durable. See [`StoreOf::durable`].
pub struct Durable<K: Kind> {
    engine: Arc<Engine<K>>,
    latencies: Arc<Latencies>,
    ticket: Ticket,
    /// Time of the first poll that did not find the ticket durable.
    since: Option<Instant>,
}

impl<K: Kind> Future for Durable<K> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (committer, index) = self.engine.committer();
        let outcome = committer.poll(index, self.ticket.0, context.waker());
        match (&outcome, self.since) {
            (None, None) => self.since = Some(Instant::now()),
            (Some(_), Some(since)) => self.latencies.note(Timed::Commit, 1, since.elapsed()),
            _ => {}
        }
        outcome.map_or(Poll::Pending, Poll::Ready)
    }
}

/// Errors: those of a commit. If it fails, everything that was not durable is rolled back, and the store takes no more writes.
#[allow(clippy::missing_errors_doc)]
impl<K: Kind> StoreOf<K> {
    /// Runs reads and writes on this store without waiting until they are durable. Returns the ticket that covers all of them: when it is
    /// durable, every write that `work` made, and every value that it read, is durable. Before that, no client and no other process may be
    /// told about them.
    ///
    /// `work` gets the store to use. Exception: with the engines `cdds`, `cdds-unsorted` and `cdds-hash`, a lookup in `work` waits for a
    /// commit if the latest write of its key was made without waiting, in this or an earlier call, and is not durable yet.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = bristlecone::Store::open(dir.path(), bristlecone::Options::default())?;
    /// let (_, first) = store.apply(|store| store.put(b"a", b"1"));
    /// let (value, second) = store.apply(|store| store.get(b"a"));
    /// assert_eq!(value?.as_deref(), Some(&b"1"[..]));
    /// store.wait(first.max(second))?; // or: store.durable(ticket).await
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn apply<R>(&self, work: impl FnOnce(&Self) -> R) -> (R, Ticket) {
        let store = self.with(WriteOptions { sync: false });
        let (result, ticket) = defer_waits(|| work(&store));
        (result, Ticket(ticket))
    }

    /// True if everything that the ticket covers is durable.
    pub fn is_durable(&self, ticket: Ticket) -> bool {
        self.engine().durable_ticket() >= ticket.0
    }

    /// Waits until everything that the ticket covers is durable.
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        if self.is_durable(ticket) {
            return Ok(());
        }
        Ok(self.latencies().each(Timed::Commit, || self.engine().wait_for_ticket(ticket.0))?)
    }

    /// A future that is ready when everything that the ticket covers is durable. No thread is blocked meanwhile, except for the store's
    /// commit thread. If the system refuses to start that thread, the poll itself blocks.
    pub fn durable(&self, ticket: Ticket) -> Durable<K> {
        let (engine, latencies) = (self.engine_shared(), Arc::clone(self.latencies()));
        Durable { engine, latencies, ticket, since: None }
    }
}
