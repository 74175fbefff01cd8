//! Turns of a group commit: one thread at a time makes records durable, for all threads that wait.
//!
//! The threads do not wait in the queue of a lock: there, a thread whose record is durable would wait for the syncs of the threads before
//! it. When a turn ends, all waiting threads look at once whether their records are durable. One of the others takes the next turn.
//!
//! Invariant U1: a thread looks whether it is done while it has the lock, and a turn ends under the lock. So no thread begins to wait
//! between the progress of a turn and the signal of its end.

use crate::sync::{Condvar, Mutex, PoisonError, lock};

/// The turns.
#[derive(Debug)]
pub(crate) struct Turns {
    is_taken: Mutex<bool>,
    ended: Condvar,
}

/// A turn. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'t>(&'t Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.0.is_taken) = false;
        self.0.ended.notify_all();
    }
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self { is_taken: Mutex::new(false), ended: Condvar::new() }
    }

    /// Waits until `is_done`, or until this thread gets the turn.
    pub(crate) fn take(&self, is_done: impl Fn() -> bool) -> Option<Turn<'_>> {
        let mut is_taken = lock(&self.is_taken);
        loop {
            if is_done() {
                return None;
            }
            if !*is_taken {
                *is_taken = true;
                return Some(Turn(self));
            }
            is_taken = self.ended.wait(is_taken).unwrap_or_else(PoisonError::into_inner);
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
                if let Some(_turn) = turns.take(is_done) {
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
