//! Clients that wait for an element: BLPOP and related commands.
//!
//! Each key has a queue of the clients that wait for it. Only the first one of a queue may take elements of the key with a blocking command.
//! When a write of the key has committed, the first client wakes and runs its command again. It leaves its queues when the command succeeds,
//! at its timeout, or when it disconnects. A read of a stream takes nothing, so a write of a stream wakes all clients that wait for it.
//!
//! Invariants:
//! * B1: a client joins its queues before it looks for elements for the last time. So a write that it has not seen wakes it.
//! * B2: a client that leaves a queue wakes the first one that remains, because there may be more elements.
//! * B3: a command that has woken clients is over when they have run: its session runs no other command and writes no reply before
//!   ([`Turns`]). So a client that has a reply to RPUSH cannot replace the list before those that waited for its elements have them.
//! * B4: a session that waits for the clients that it has woken holds no turn. It has passed the turns of the commands that woke it on to
//!   these clients. So clients that wake each other do not wait in a circle.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, mpsc};

use crate::shared::lock;
use crate::structures::Kind;

/// A key of a database, and the type that a client waits for.
type Key = (usize, Bytes, Kind);

/// The types that clients wait for.
const KINDS: [Kind; 3] = [Kind::List, Kind::SortedSet, Kind::Stream];

/// The queues.
#[derive(Debug, Default)]
pub struct Waiters {
    /// Number of waiting clients, so that writes need no lock if there are none.
    count: AtomicUsize,
    queues: Mutex<FxHashMap<Key, VecDeque<Arc<Waiter>>>>,
}

/// A waiting client, as its queues know it.
#[derive(Debug)]
struct Waiter {
    woken: Notify,
    /// For the commands that have woken it. `None` during a pause: they do not wait for its end.
    turns: Mutex<Option<Vec<Turn>>>,
}

impl Default for Waiter {
    fn default() -> Self {
        Self { woken: Notify::new(), turns: Mutex::new(Some(Vec::new())) }
    }
}

impl Waiter {
    fn wake(&self, turns: impl IntoIterator<Item = Turn>) {
        if let Some(held) = &mut *lock(&self.turns) {
            held.extend(turns);
        }
        self.woken.notify_one();
    }
}

/// Is dropped when a woken client has run. Nothing is sent.
type Turn = mpsc::Sender<Infallible>;

/// The turns of the clients that a command has woken, and of those that these clients wake.
#[derive(Debug, Default)]
pub struct Turns {
    own: Option<(Turn, mpsc::Receiver<Infallible>)>,
    /// The turns of the commands that have woken this one (B4).
    passed: Vec<Turn>,
}

impl Turns {
    /// True if the command has woken no client.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.own.is_none()
    }

    /// For a command of a client that was woken: the commands that have woken it are over when those are that this command wakes (B4).
    pub fn pass_on(&mut self, waiting: &Waiting) {
        self.passed.clone_from(&waiting.running);
    }

    /// The turns of the clients that the command has woken, after the command.
    #[must_use]
    pub fn take(&mut self) -> Self {
        self.passed.clear();
        std::mem::take(self)
    }

    /// Returns when all of these clients have run (B3).
    pub async fn over(&mut self) {
        if let Some((own, mut turns)) = self.take().own {
            drop(own);
            turns.recv().await;
        }
    }

    /// For one client.
    fn one(&mut self) -> impl Iterator<Item = Turn> {
        let own = self.own.get_or_insert_with(|| mpsc::channel(1)).0.clone();
        self.passed.iter().cloned().chain([own])
    }
}

impl Waiters {
    /// Number of clients that wait.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The client joins the queues of its keys.
    pub fn join(self: &Arc<Self>, db: usize, keys: &[Bytes], kind: Kind) -> Waiting {
        let waiter = Arc::new(Waiter::default());
        let mut own: Vec<Key> = keys.iter().map(|key| (db, key.clone(), kind)).collect();
        own.sort_unstable();
        own.dedup();
        let mut queues = lock(&self.queues);
        for key in &own {
            queues.entry(key.clone()).or_default().push_back(Arc::clone(&waiter));
        }
        // With the lock held, as all changes of the queues. A write loads it after its commit (B1).
        self.count.fetch_add(1, Ordering::SeqCst);
        drop(queues);
        Waiting { waiters: Arc::clone(self), keys: own, waiter, running: Vec::new() }
    }

    /// Wakes the first clients of these keys, and all that read them as streams, because they were written. Adds their turns to `turns`.
    pub fn wake<'k>(&self, keys: impl IntoIterator<Item = (usize, &'k [u8])>, turns: &mut Turns) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let queues = lock(&self.queues);
        for (db, key) in keys {
            for kind in KINDS {
                let Some(queue) = queues.get(&(db, Bytes::copy_from_slice(key), kind)) else { continue };
                // An entry of a stream is for all clients that read it.
                let count = if kind == Kind::Stream { queue.len() } else { 1 };
                queue.iter().take(count).for_each(|waiter| waiter.wake(turns.one()));
            }
        }
    }

    /// Wakes the clients that read a key as a stream, because it has expired. No command waits for them.
    pub fn wake_readers(&self, db: usize, key: &[u8]) {
        if self.count.load(Ordering::SeqCst) > 0 {
            let queues = lock(&self.queues);
            let readers = queues.get(&(db, Bytes::copy_from_slice(key), Kind::Stream));
            readers.into_iter().flatten().for_each(|waiter| waiter.wake([]));
        }
    }

    /// Wakes all clients. Adds their turns to `turns`.
    pub fn wake_all(&self, turns: &mut Turns) {
        let queues = lock(&self.queues);
        queues.values().flatten().for_each(|waiter| waiter.wake(turns.one()));
    }

    /// True if a blocking command may take elements of a key: no client waits for it, or `own` is the first one.
    #[must_use]
    pub fn is_turn(&self, db: usize, key: &Bytes, kind: Kind, own: Option<&Waiting>) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return true;
        }
        let queues = lock(&self.queues);
        let first = queues.get(&(db, key.clone(), kind)).and_then(VecDeque::front);
        first.is_none_or(|first| own.is_some_and(|own| Arc::ptr_eq(first, &own.waiter)))
    }
}

/// A client in its queues. It leaves them when this is dropped.
#[derive(Debug)]
pub struct Waiting {
    waiters: Arc<Waiters>,
    keys: Vec<Key>,
    waiter: Arc<Waiter>,
    /// For the commands that have woken it before its present run.
    running: Vec<Turn>,
}

impl Waiting {
    /// Returns when the client is to run its command again.
    pub async fn woken(&self) {
        self.waiter.woken.notified().await;
    }

    /// The client runs its command now.
    pub fn start(&mut self) {
        self.running.append(lock(&self.waiter.turns).get_or_insert_default());
    }

    /// The client has found nothing.
    pub fn rest(&mut self) {
        self.running.clear();
    }

    /// The client does not run its command before the end of a pause.
    pub fn pause(&mut self) {
        *lock(&self.waiter.turns) = None;
        self.running.clear();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.start();
        let mut queues = lock(&self.waiters.queues);
        for key in &self.keys {
            let Some(queue) = queues.get_mut(key) else { continue };
            queue.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
            match queue.front() {
                Some(first) => first.wake(self.running.iter().cloned()),
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
        waiters.wake([(0, &b"b"[..])], &mut Turns::default());
        first.woken().await;
        drop(first);
        second.woken().await;
    }

    #[tokio::test]
    async fn a_command_is_over_when_all_that_it_has_woken_have_run() {
        let waiters = Arc::new(Waiters::default());
        let key = Bytes::from_static(b"k");
        let join = || waiters.join(0, std::slice::from_ref(&key), Kind::List);
        let (mut first, mut second, third) = (join(), join(), join());
        let mut turns = Turns::default();
        waiters.wake([(0, &b"other"[..])], &mut turns);
        assert!(turns.is_empty());
        turns.over().await;
        waiters.wake([(0, &b"k"[..])], &mut turns);
        let over = tokio::spawn(async move { turns.over().await });
        let step = async |what: &str| {
            tokio::task::yield_now().await;
            assert!(!over.is_finished(), "{what}");
        };
        step("the first has not run").await;
        first.start();
        // Its command removes an element: it wakes the client itself.
        let mut own = Turns::default();
        own.pass_on(&first);
        waiters.wake([(0, &b"k"[..])], &mut own);
        let mut own = own.take();
        step("it has an element, and is still in the queue").await;
        drop(first);
        step("the second has not run").await;
        second.start();
        second.rest();
        own.over().await;
        over.await.unwrap();
        // A command does not wait for the end of a pause.
        let mut turns = Turns::default();
        second.pause();
        waiters.wake([(0, &b"k"[..])], &mut turns);
        turns.over().await;
        drop((second, third));
        assert_eq!(waiters.count(), 0);
    }

    /// A former defect: the two clients and the command that woke the first one waited for ever.
    #[tokio::test]
    async fn clients_that_wake_each_other_do_not_wait_in_a_circle() {
        let waiters = Arc::new(Waiters::default());
        let join = |key: &'static [u8]| waiters.join(0, &[Bytes::from_static(key)], Kind::List);
        let (mut first, mut second) = (join(b"a"), join(b"b"));
        let [mut command, mut of_first, mut of_second] = [(); 3].map(|()| Turns::default());
        waiters.wake([(0, &b"a"[..])], &mut command);
        first.start();
        of_first.pass_on(&first);
        waiters.wake([(0, &b"b"[..])], &mut of_first);
        let mut of_first = of_first.take();
        second.start();
        of_second.pass_on(&second);
        waiters.wake([(0, &b"a"[..])], &mut of_second);
        let mut of_second = of_second.take();
        drop(first);
        let over = tokio::spawn(async move { command.over().await });
        tokio::task::yield_now().await;
        assert!(!over.is_finished(), "the second client has not run");
        drop(second);
        let all = async {
            of_first.over().await;
            of_second.over().await;
            over.await.unwrap();
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), all).await.expect("they wait for ever");
    }
}
