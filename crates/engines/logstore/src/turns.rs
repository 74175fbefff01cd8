//! Turns of a group commit: one thread at a time makes records durable, for all threads that wait.
//!
//! The threads do not wait in the queue of a lock: there, a thread whose record is durable would wait for the syncs of the threads before
//! it. When a turn ends, all waiting threads look at once whether their records are durable. One of the others takes the next turn.
//!
//! Invariant U1: a thread looks whether it is done while it has the lock, and a turn ends under the lock. So no thread begins to wait
//! between the progress of a turn and the signal of its end.

use crate::sync::{Condvar, Mutex, PoisonError, lock, pause};

/// The turns.
#[derive(Debug)]
pub(crate) struct Turns {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_taken: bool,
    /// Number of threads that wait.
    waiting: usize,
    /// True if threads waited when the last turn ended.
    was_shared: bool,
}

/// A turn. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'t> {
    turns: &'t Turns,
    was_shared: bool,
}

impl Turn<'_> {
    /// Lets other threads add their records, if there are such threads. Those that the last turn woke up have not come far.
    pub(crate) fn gather(&self) {
        if self.was_shared {
            pause();
            pause();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.turns.state);
        state.is_taken = false;
        state.was_shared = state.waiting > 0;
        self.turns.ended.notify_all();
    }
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State::default()), ended: Condvar::new() }
    }

    /// Waits until `is_done`, or until this thread gets the turn.
    pub(crate) fn take(&self, is_done: impl Fn() -> bool) -> Option<Turn<'_>> {
        let mut state = lock(&self.state);
        loop {
            if is_done() {
                return None;
            }
            if !state.is_taken {
                state.is_taken = true;
                return Some(Turn { turns: self, was_shared: state.was_shared });
            }
            state.waiting += 1;
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::sync::{AtomicU64, Ordering};

    /// Each thread adds a record and waits until it is durable. A turn makes all records durable that were added before.
    #[test]
    fn every_thread_returns_and_its_record_is_durable() {
        loom::model(|| {
            let shared = Arc::new((Turns::new(), AtomicU64::new(0), AtomicU64::new(0)));
            let commit = |shared: &(Turns, AtomicU64, AtomicU64)| {
                let (turns, added, durable) = shared;
                let own = added.fetch_add(1, Ordering::AcqRel) + 1;
                let is_done = || durable.load(Ordering::Acquire) >= own;
                if let Some(turn) = turns.take(is_done) {
                    turn.gather();
                    durable.fetch_max(added.load(Ordering::Acquire), Ordering::AcqRel);
                }
                assert!(is_done());
            };
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || commit(&shared))
                })
                .collect();
            commit(&shared);
            others.into_iter().for_each(|other| other.join().unwrap());
        });
    }
}
