//! Clients that wait for an element: BLPOP and related commands.
//!
//! Each key has a queue of the clients that wait for it. Only the first one of a queue may take elements of the key with a blocking command.
//! When a write of the key has committed, the first client wakes and runs its command again. It leaves its queues when the command succeeds,
//! at its timeout, or when it disconnects.
//!
//! Invariants:
//! * B1: a client joins its queues before it looks for elements for the last time. So a write that it has not seen wakes it.
//! * B2: a client that leaves a queue wakes the first one that remains, because there may be more elements.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use crate::shared::lock;
use crate::structures::Kind;

/// A key of a database, and the type that a client waits for.
type Key = (usize, Bytes, Kind);

/// The types that clients wait for.
const KINDS: [Kind; 2] = [Kind::List, Kind::SortedSet];

/// The queues.
#[derive(Debug, Default)]
pub struct Waiters {
    /// Number of waiting clients, so that writes need no lock if there are none.
    count: AtomicUsize,
    queues: Mutex<FxHashMap<Key, VecDeque<Arc<Notify>>>>,
}

impl Waiters {
    /// Number of clients that wait.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The client joins the queues of its keys.
    pub fn join(self: &Arc<Self>, db: usize, keys: &[Bytes], kind: Kind) -> Waiting {
        let woken = Arc::new(Notify::new());
        let mut own: Vec<Key> = keys.iter().map(|key| (db, key.clone(), kind)).collect();
        own.sort_unstable();
        own.dedup();
        let mut queues = lock(&self.queues);
        for key in &own {
            queues.entry(key.clone()).or_default().push_back(Arc::clone(&woken));
        }
        // With the lock held, as all changes of the queues. A write loads it after its commit (B1).
        self.count.fetch_add(1, Ordering::SeqCst);
        drop(queues);
        Waiting { waiters: Arc::clone(self), keys: own, woken }
    }

    /// Wakes the first clients of these keys, because they were written.
    pub fn wake<'k>(&self, keys: impl IntoIterator<Item = (usize, &'k [u8])>) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let queues = lock(&self.queues);
        for (db, key) in keys {
            for kind in KINDS {
                let first = queues.get(&(db, Bytes::copy_from_slice(key), kind)).and_then(VecDeque::front);
                first.into_iter().for_each(|woken| woken.notify_one());
            }
        }
    }

    /// Wakes the first client of every queue.
    pub fn wake_all(&self) {
        let queues = lock(&self.queues);
        queues.values().filter_map(VecDeque::front).for_each(|woken| woken.notify_one());
    }

    /// True if a blocking command may take elements of a key: no client waits for it, or `own` is the first one.
    #[must_use]
    pub fn is_turn(&self, db: usize, key: &Bytes, kind: Kind, own: Option<&Waiting>) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return true;
        }
        let queues = lock(&self.queues);
        let first = queues.get(&(db, key.clone(), kind)).and_then(VecDeque::front);
        first.is_none_or(|first| own.is_some_and(|own| Arc::ptr_eq(first, &own.woken)))
    }
}

/// A client in its queues. It leaves them when this is dropped.
#[derive(Debug)]
pub struct Waiting {
    waiters: Arc<Waiters>,
    keys: Vec<Key>,
    woken: Arc<Notify>,
}

impl Waiting {
    /// Returns when the client is to run its command again.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut queues = lock(&self.waiters.queues);
        for key in &self.keys {
            let Some(queue) = queues.get_mut(key) else { continue };
            queue.retain(|woken| !Arc::ptr_eq(woken, &self.woken));
            match queue.front() {
                Some(first) => first.notify_one(),
                None => _ = queues.remove(key),
            }
        }
        self.waiters.count.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_of_a_queue_has_its_turn_and_each_leaving_passes_it_on() {
        let waiters = Arc::new(Waiters::default());
        let key = Bytes::from_static(b"k");
        assert!(waiters.is_turn(0, &key, Kind::List, None));
        let first = waiters.join(0, &[key.clone(), key.clone()], Kind::List);
        let second = waiters.join(0, std::slice::from_ref(&key), Kind::List);
        assert!(
            waiters.is_turn(0, &key, Kind::List, Some(&first))
                && !waiters.is_turn(0, &key, Kind::List, Some(&second))
        );
        assert!(!waiters.is_turn(0, &key, Kind::List, None) && waiters.is_turn(1, &key, Kind::List, None));
        drop(first);
        assert!(waiters.is_turn(0, &key, Kind::List, Some(&second)));
        drop(second);
        assert!(
            waiters.is_turn(0, &key, Kind::List, None)
                && lock(&waiters.queues).is_empty()
                && waiters.count() == 0
        );
    }

    #[tokio::test]
    async fn a_write_wakes_the_first_and_a_leaving_client_the_next() {
        let waiters = Arc::new(Waiters::default());
        let keys = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];
        let (first, second) = (waiters.join(0, &keys, Kind::List), waiters.join(0, &keys[1..], Kind::List));
        waiters.wake([(0, &b"b"[..])]);
        first.woken().await;
        drop(first);
        second.woken().await;
    }
}
