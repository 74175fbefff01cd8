//! The commit thread of a store, and the futures that wait for it ([`crate::tickets`]).
//!
//! A store has at most one commit thread. It starts with the first future that has to wait. While futures wait, the thread commits the
//! current write group, wakes the futures whose tickets are durable, and begins again. So all writes that arrive during one sync share the
//! next sync.
//!
//! Before a commit, the thread may wait a moment for the callers that the last commit has woken ([`pmem::gathering`]). With 50 connections
//! this halves the number of syncs.
//!
//! Invariants:
//! * T1: under the lock of the state, a poll finds that its ticket is not durable and adds its future to `waiting`. The poll signals the
//!   commit thread (`asked`) in two cases: the thread is idle, or the thread gathers callers and enough futures wait. In all other cases no
//!   signal is needed, because the thread reads `waiting` again: after the commit that is running, or when the gathering ends. The thread
//!   removes a future from `waiting` under the same lock, and only after the ticket is durable or the store has failed. So no wake-up is
//!   lost.
//! * T2: the thread keeps the index alive only while it commits. Dropping the engine ends the thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Instant;

use ::index::{Index, Kind};
use pmem::gathering::Gathering;

use crate::error::Result;

/// Starts a background thread. `None` if the system refuses it. The closure is boxed, so that the standard library's code is compiled once.
pub(crate) fn spawn(name: &str, work: Box<dyn FnOnce() + Send>) -> Option<JoinHandle<()>> {
    // The scheduler of the crate `schedules` controls its own threads alone. So a store there has no background thread.
    if cfg!(shuttle) {
        return None;
    }
    std::thread::Builder::new().name(name.to_owned()).spawn(work).ok()
}

struct State {
    /// Futures that wait, with their tickets.
    waiting: Vec<(u64, Waker)>,
    gathering: Gathering,
    /// True while the thread waits for the first future.
    is_idle: bool,
    /// True while the thread waits for more futures.
    gathers: bool,
    /// True after a group was rolled back. Then no later group becomes durable.
    failed: bool,
    ends: bool,
    thread: Option<JoinHandle<()>>,
}

/// The futures that wait for commits, and the thread that commits for them.
pub(crate) struct Committer {
    state: Mutex<State>,
    /// Signalled when the idle thread gets a first future, when enough futures wait, and at the end.
    asked: Condvar,
}

impl Default for Committer {
    fn default() -> Self {
        let state = State {
            waiting: Vec::new(),
            gathering: Gathering::of_futures(),
            is_idle: false,
            gathers: false,
            failed: false,
            ends: false,
            thread: None,
        };
        Self { state: Mutex::new(state), asked: Condvar::new() }
    }
}

impl Committer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if the future now waits.
    pub(crate) fn poll<K: Kind>(
        self: &Arc<Self>,
        index: &Arc<dyn Index<K>>,
        ticket: u64,
        waker: &Waker,
    ) -> Option<Result<()>> {
        let mut state = self.state();
        if index.durable_ticket() >= ticket {
            return Some(Ok(()));
        }
        // Without a commit thread, the caller's thread waits.
        let blocks = |state: MutexGuard<'_, State>| {
            drop(state);
            Some(index.wait_for_ticket(ticket).map_err(Into::into))
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
        let is_enough = state.gathering.is_enough(state.waiting.len());
        let wakes = state.is_idle || state.gathers && is_enough;
        drop(state);
        if wakes {
            self.asked.notify_one();
        }
        None
    }

    /// The commit thread.
    fn run<K: Kind>(&self, index: &Weak<dyn Index<K>>) {
        let mut state = self.state();
        loop {
            state.is_idle = state.waiting.is_empty();
            if state.is_idle {
                if state.ends {
                    return;
                }
                state = self.asked.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let count = state.waiting.len();
            if let Some(limit) = state.gathering.limit(count) {
                let is_small =
                    |state: &mut State| !state.gathering.is_enough(state.waiting.len()) && !state.ends;
                state.gathers = true;
                let gathered = self.asked.wait_timeout_while(state, limit, is_small);
                state = gathered.unwrap_or_else(PoisonError::into_inner).0;
                state.gathers = false;
                let count = state.waiting.len();
                state.gathering.gathered(count);
            }
            let newest = state.waiting.iter().map(|(ticket, _)| *ticket).max().unwrap_or_default();
            drop(state);
            let start = Instant::now();
            let commit = || match index.upgrade() {
                Some(index) => (index.wait_for_ticket(newest).is_err(), index.durable_ticket()),
                None => (true, 0),
            };
            // If the storage panics, the futures get an error, too.
            let (failed, durable) = catch_unwind(AssertUnwindSafe(commit)).unwrap_or((true, 0));
            let took = start.elapsed();
            state = self.state();
            let count = state.waiting.len();
            state.gathering.committed(count, took);
            state.failed |= failed;
            let is_ready = |(ticket, _): &mut (u64, Waker)| failed || *ticket <= durable;
            let ready: Vec<_> = state.waiting.extract_if(.., is_ready).collect();
            drop(state);
            ready.into_iter().for_each(|(_, waker)| waker.wake());
            state = self.state();
        }
    }

    /// Ends the thread. Before that, the thread commits for the futures that still wait.
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
