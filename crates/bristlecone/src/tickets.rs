//! Tickets: writes whose durability is awaited later, by a future or by a blocking wait.
//!
//! Over a journal a write waits for the sync of its group. A thread with many connections cannot afford this. [`StoreOf::apply`] runs reads
//! and writes without waiting and returns a [`Ticket`]. When the ticket is durable, so is everything that these reads and writes saw or
//! changed. [`StoreOf::durable`] is a future for that moment.
//!
//! A store has at most one commit thread. It starts with the first future that has to wait. While futures wait, it commits the running
//! group, wakes the futures whose tickets are durable, and begins again. So all writes that arrive during one sync share the next one.
//!
//! Invariants:
//! * T1: a future that has to wait is in `waiting` before the thread is told. The thread takes futures out of `waiting` only after their
//!   tickets are durable or the store has failed. Both happen under one lock, so no wake-up is lost.
//! * T2: the thread keeps the index alive only while it commits. Dropping the engine ends the thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Instant;

use ::index::{Index, Kind, WriteOptions};
use pmem::pending::ahead;

use crate::durable_engine::{Engine, spawn};
use crate::error::Result;
use crate::latency::{Latencies, Timed};
use crate::store::StoreOf;

/// A position in the order of a store's commits. A ticket is durable if all lower ones are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

#[derive(Default)]
struct State {
    /// Futures that wait, with their tickets.
    waiting: Vec<(u64, Waker)>,
    /// Set when a group was rolled back: no later one becomes durable.
    failed: bool,
    ends: bool,
    thread: Option<JoinHandle<()>>,
}

/// The futures that wait for commits, and the thread that commits for them.
#[derive(Default)]
pub(crate) struct Committer {
    state: Mutex<State>,
    /// Signalled when a future begins to wait, and at the end.
    asked: Condvar,
}

impl Committer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if the future now waits.
    fn poll<K: Kind>(
        self: &Arc<Self>,
        index: &Arc<dyn Index<K>>,
        ticket: u64,
        waker: &Waker,
    ) -> Option<Result<()>> {
        let mut state = self.state();
        if index.durable_ticket() >= ticket {
            return Some(Ok(()));
        }
        // The thread could not be started, or is gone: this thread waits itself.
        let blocks = |state: MutexGuard<'_, State>| {
            drop(state);
            Some(index.settle_ticket(ticket).map_err(Into::into))
        };
        if state.failed || state.ends {
            return blocks(state);
        }
        if state.thread.is_none() {
            let (shared, index) = (Arc::clone(self), Arc::downgrade(index));
            state.thread = spawn("commit", Box::new(move || shared.run(&index)));
            if state.thread.is_none() {
                return blocks(state);
            }
        }
        state.waiting.push((ticket, waker.clone()));
        drop(state);
        self.asked.notify_one();
        None
    }

    /// The commit thread.
    fn run<K: Kind>(&self, index: &Weak<dyn Index<K>>) {
        let mut state = self.state();
        loop {
            let Some(newest) = state.waiting.iter().map(|(ticket, _)| *ticket).max() else {
                if state.ends {
                    return;
                }
                state = self.asked.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let (outcome, durable) = match index.upgrade() {
                Some(index) => (index.settle_ticket(newest), index.durable_ticket()),
                None => (Err(pmem::Error::Closed), 0),
            };
            state = self.state();
            state.failed |= outcome.is_err();
            let failed = state.failed;
            let (ready, waiting) = std::mem::take(&mut state.waiting)
                .into_iter()
                .partition(|(ticket, _)| failed || *ticket <= durable);
            state.waiting = waiting;
            drop(state);
            let ready: Vec<(u64, Waker)> = ready;
            ready.into_iter().for_each(|(_, waker)| waker.wake());
            state = self.state();
        }
    }

    /// Ends the thread. Futures that still wait are woken, and find the outcome themselves.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.ends = true;
        let thread = state.thread.take();
        drop(state);
        self.asked.notify_one();
        // The last owner of the index may be the commit thread itself.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

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
    /// Runs reads and writes on this store without waiting for commits. Returns the ticket that covers all of them: when it is durable,
    /// every write that `work` made, and every value that it read, is durable. Before that, nobody may be told about them.
    ///
    /// `work` gets the store to use. The engines `cdds`, `cdds-unsorted` and `cdds-hash` wait in a lookup of a key that was written a moment
    /// ago.
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
        let (result, ticket) = ahead(|| work(&store));
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
        Ok(self.latencies().each(Timed::Commit, || self.engine().settle_ticket(ticket.0))?)
    }

    /// A future that is ready when everything that the ticket covers is durable. No thread is blocked meanwhile, except for one thread of
    /// the store.
    pub fn durable(&self, ticket: Ticket) -> Durable<K> {
        let (engine, latencies) = (self.engine_shared(), Arc::clone(self.latencies()));
        Durable { engine, latencies, ticket, since: None }
    }
}
