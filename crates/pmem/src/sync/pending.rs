//! Group commit on a medium with a journal ([`crate::journal`]), where a commit takes milliseconds. This module decides which
//! thread commits a group, which writers wait for it, and which readers must wait because they read a change that is not durable
//! yet.
//!
//! A writer changes the index under the index's writer lock. Its changes join the *running group*. The writer sets a
//! dirty mark for the key and for each node that it changes. A dirty mark contains the *ticket*: the number of the
//! group. Then the writer releases the lock and waits until the group is durable. A waiting thread that finds no leader
//! becomes the *leader* and commits the group. The other waiting threads sleep. After the commit, the threads whose
//! group is durable continue. One of the remaining threads becomes the leader of the next group. So the changes that
//! are made during one sync share the next sync. Before a commit, the leader may wait a moment for more writers
//! ([`crate::gathering`]).
//!
//! Most readers never wait. After its validation ([`crate::stripe`]), a lookup checks the dirty mark of its leaf. If the mark's group is
//! not durable, the lookup checks the dirty mark of its key. If the group of this mark is not durable either, the lookup waits for it like
//! a writer, and may become the leader. A scan checks only the dirty mark of the leaf, and waits if the mark's group is not durable. So a
//! lookup waits only for a change of its own key, and a scan only for changes of its own leaves. If the commit fails, the leader rolls the
//! change back, and the reader reads again. (A lookup may also wait for another key with the same hash, or for a group that changed very
//! many keys.)
//!
//! Dirty marks are in two maps: from a node's address to a ticket, and from the hash of a key to a ticket. Before a
//! reader searches the map of nodes, it reads a small table, without a lock. For most nodes the table shows that all
//! their changes are durable. Each map is divided into shards, and each shard has a lock. When a shard grows, the
//! writer removes its marks of durable groups. If too many marks remain, the writer removes all of them, and every key
//! or node of the shard then counts as marked until the running group is durable.
//!
//! A thread can also defer its waits ([`defer_waits`]). Meanwhile its lookups, its scans and its writes without sync do not wait.
//! They note the ticket that they would have waited for. The thread must not pass their results to another thread or
//! process until the newest of these tickets is durable.
//!
//! Invariants:
//! * W1: a writer sets dirty marks under the index's writer lock, before it unlocks the version of the node. So a
//!   reader that saw the change sees the mark. While the group of a mark is not durable, a search of the map returns
//!   its ticket or a higher one.
//! * W2: if a group is durable, all groups with lower numbers are durable. One leader at a time closes, commits and reports
//!   groups, in the order of their numbers.
//! * W3: if a commit fails, the leader first rolls back all changes that are not durable, and then sets `failed`. `failed` is
//!   never cleared. So a reader that finds `failed` set before its read gets durable data only, whatever the marks say.
//! * W4: a thread begins to sleep only while there is a leader. A leader that ends wakes all threads. The first one whose group
//!   is not durable becomes the leader.

use std::cell::Cell;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::sync::atomics::{
    AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, thread_local, unmodelled,
};
use crate::sync::gathering::Gathering;
use crate::sync::omission::{Omission, is_omitted};

/// Entries of the table of nodes (32 KiB). A model has to distinguish two nodes, a schedule a few.
const ENTRIES: usize = if cfg!(all(test, loom)) {
    2
} else if cfg!(shuttle) {
    16
} else {
    4096
};
/// Shards of a map.
const SHARDS: usize = if cfg!(any(all(test, loom), shuttle)) { 1 } else { 64 };
/// Most numbers (of nodes or keys) in all shards of a map together. The lines of a group are bounded, but its marks are not: the
/// delete of a key that does not exist sets a mark and changes no line.
const NUMBERS: usize = 1 << 20;
/// Number of entries from which on a shard removes the entries with durable tickets.
const PURGED: usize = 256;

thread_local! {
    /// The newest ticket that this thread noted instead of waiting for it. `None` outside of [`defer_waits`].
    static DEFERRED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Runs `work` and defers its waits for commits: see the module's head. Returns the newest ticket that must be durable before another
/// thread or process gets the results; 0 if there is none. Calls may be nested.
pub fn defer_waits<R>(work: impl FnOnce() -> R) -> (R, u64) {
    /// Restores the outer ticket, also if `work` panics.
    struct Outer(Option<u64>);
    impl Drop for Outer {
        fn drop(&mut self) {
            let inner = DEFERRED.with(Cell::take);
            DEFERRED.with(|deferred| deferred.set(self.0.map(|outer| outer.max(inner.unwrap_or_default()))));
        }
    }
    let _outer = Outer(DEFERRED.with(|deferred| deferred.replace(Some(0))));
    let result = work();
    (result, DEFERRED.with(Cell::get).unwrap_or_default())
}

/// Notes a ticket, if this thread defers its waits. False if the caller must wait.
pub fn defer(ticket: u64) -> bool {
    DEFERRED.with(|deferred| {
        let noted = deferred.get();
        deferred.set(noted.map(|noted| noted.max(ticket)));
        noted.is_some()
    })
}

/// The state of changes that are not durable yet.
#[derive(Debug)]
pub struct Pending {
    /// Number of the running group. Changed under the index's writer lock.
    running: AtomicU64,
    durable: AtomicU64,
    /// The newest ticket in the dirty mark of a key.
    noted: AtomicU64,
    failed: AtomicBool,
    /// The newest ticket of the nodes that share each entry.
    table: Box<[AtomicU64]>,
    nodes: Notes,
    keys: Notes,
    lead: Mutex<Lead>,
    /// Signalled when a leader is done.
    done: Condvar,
    /// Signalled when as many threads wait as the leader gathers for.
    gathered: Condvar,
}

/// The numbers (of nodes or keys) that were marked and whose changes may not be durable, each with its newest ticket.
#[derive(Debug)]
struct Notes(Box<[unmodelled::Mutex<Shard>]>);

#[derive(Debug, Default)]
struct Shard {
    tickets: FxHashMap<u64, u64>,
    /// Number of entries at which durable ones are removed.
    purged_at: usize,
    /// Entries with tickets up to this one were dropped, because there were too many. So any number may have this ticket.
    any: u64,
}

impl Default for Notes {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| unmodelled::Mutex::default()).collect())
    }
}

impl Notes {
    fn shard(&self, number: u64) -> unmodelled::MutexGuard<'_, Shard> {
        let shard = &self.0[spread(number) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets a mark: a ticket under a number. Tickets up to `durable` may be removed.
    fn note(&self, number: u64, ticket: u64, durable: u64) {
        let mut shard = self.shard(number);
        let Shard { tickets, purged_at, any } = &mut *shard;
        tickets.insert(number, ticket);
        if tickets.len() > *purged_at {
            tickets.retain(|_, ticket| *ticket > durable);
            if tickets.len() > NUMBERS / SHARDS {
                tickets.clear();
                *any = ticket;
            }
            *purged_at = PURGED.max(2 * tickets.len());
        }
    }

    /// The newest ticket under a number, or a higher one. If the newest ticket is durable, the result may be any durable ticket
    /// or 0.
    fn ticket(&self, number: u64) -> u64 {
        let shard = self.shard(number);
        shard.tickets.get(&number).copied().unwrap_or_default().max(shard.any)
    }
}

/// The leader and the waiting threads.
#[derive(Debug)]
struct Lead {
    /// There is a leader.
    led: bool,
    /// Number of threads that wait for a group, including the leader.
    waiting: usize,
    gathering: Gathering,
}

impl Default for Pending {
    fn default() -> Self {
        Self {
            running: AtomicU64::new(1),
            durable: AtomicU64::new(0),
            noted: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            table: (0..ENTRIES).map(|_| AtomicU64::new(0)).collect(),
            nodes: Notes::default(),
            keys: Notes::default(),
            lead: Mutex::new(Lead { led: false, waiting: 0, gathering: Gathering::of_threads() }),
            done: Condvar::new(),
            gathered: Condvar::new(),
        }
    }
}

impl Pending {
    /// The running group's ticket. Called under the writer lock, it is the ticket of the changes made under this hold of the lock.
    pub fn ticket(&self) -> u64 {
        self.running.load(Ordering::Acquire)
    }

    /// The newest ticket in a mark of a key. Called under the writer lock: when it is durable, every change of a key so far is
    /// durable.
    pub fn noted(&self) -> u64 {
        self.noted.load(Ordering::Relaxed)
    }

    /// The newest durable ticket: every group up to it is durable.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Writer: sets the dirty mark of a node that is about to be changed (W1).
    #[inline]
    pub fn note_node(&self, node: u64) {
        let ticket = self.running.load(Ordering::Relaxed);
        self.nodes.note(node, ticket, self.durable());
        // Relaxed: the release of the node's version, which follows, publishes it.
        self.table[place(node)].store(ticket, Ordering::Relaxed);
    }

    /// Writer: sets the dirty mark of the key with this hash, which is about to be changed (W1).
    pub fn note_key(&self, hash: u64) {
        let ticket = self.running.load(Ordering::Relaxed);
        self.keys.note(hash, ticket, self.durable());
        self.noted.store(ticket, Ordering::Relaxed);
    }

    /// True if one of these hashes may belong to a key that was changed and is not durable. False positives: two keys have one
    /// hash, or too many keys were marked.
    pub fn has_any(&self, hashes: impl IntoIterator<Item = u64>) -> bool {
        !self.is_quiet() && hashes.into_iter().any(|hash| self.wait_for_key(hash).is_some())
    }

    /// True if everything was durable a moment ago, so a read probably does not wait.
    pub fn is_quiet(&self) -> bool {
        self.noted.load(Ordering::Relaxed) <= self.durable()
    }

    /// Writer: closes the running group and begins the next. Returns the ticket of the closed group.
    pub fn close(&self) -> u64 {
        let ticket = self.running.load(Ordering::Relaxed);
        self.running.store(ticket + 1, Ordering::Release);
        ticket
    }

    /// True after a group failed and everything that is not durable was rolled back (W3). Called before a read.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// False if everything that was read of this node is durable. Otherwise it may not be. Called after the validation of the node.
    #[inline]
    pub fn may_wait_for_node(&self, node: u64) -> bool {
        self.table[place(node)].load(Ordering::Relaxed) > self.durable() && !is_omitted(Omission::DirtyMarks)
    }

    /// The ticket to wait for, if the data that was read of this node may not be durable. Called after the validation of the node.
    #[inline]
    pub fn wait_for_node(&self, node: u64) -> Option<u64> {
        if !self.may_wait_for_node(node) {
            return None;
        }
        let ticket = self.nodes.ticket(node);
        (ticket > self.durable()).then_some(ticket)
    }

    /// The ticket to wait for, if the data that was read of the key with this hash may not be durable.
    pub fn wait_for_key(&self, hash: u64) -> Option<u64> {
        let ticket = self.keys.ticket(hash);
        (ticket > self.durable()).then_some(ticket)
    }

    /// Waits until a group is durable. If there is no leader, the caller becomes the leader: `commit` commits all changes and
    /// returns the ticket of the group that it closed. If the commit fails, `commit` rolls back everything that is not durable
    /// and returns an error.
    ///
    /// # Errors
    /// The error of `commit` for the leader, `Failed` for the others. The group and all later ones are rolled back then.
    pub fn wait_until_durable(&self, ticket: u64, commit: impl FnOnce() -> Result<u64>) -> Result<()> {
        if self.durable() >= ticket {
            return Ok(());
        }
        let mut lead = guard(&self.lead);
        lead.waiting += 1;
        if lead.gathering.is_enough(lead.waiting) {
            self.gathered.notify_one();
        }
        let outcome = loop {
            if self.durable() >= ticket {
                break Ok(());
            }
            if self.has_failed() {
                break Err(Error::Failed);
            }
            if !lead.led {
                lead.led = !is_omitted(Omission::Lead);
                drop(self.gather(lead));
                let mut lead_ends = LeadEnds { pending: self, since: Instant::now(), durable: None };
                lead_ends.durable = Some(commit()?);
                return Ok(());
            }
            lead = self.done.wait(lead).unwrap_or_else(PoisonError::into_inner);
        };
        lead.waiting -= 1;
        outcome
    }

    /// Leader: waits a little, until as many threads wait as when the last leader was done.
    fn gather<'a>(&'a self, mut lead: MutexGuard<'a, Lead>) -> MutexGuard<'a, Lead> {
        let waiting = lead.waiting;
        let Some(limit) = lead.gathering.limit(waiting) else { return lead };
        let mut lead = self.wait_for_others(lead, limit);
        let waiting = lead.waiting;
        lead.gathering.gathered(waiting);
        lead
    }

    /// Leader: releases the lock until as many threads wait as the last leader had, or the time is over.
    #[cfg(not(any(all(test, loom), shuttle)))]
    fn wait_for_others<'a>(&'a self, lead: MutexGuard<'a, Lead>, limit: Duration) -> MutexGuard<'a, Lead> {
        let too_few = |lead: &mut Lead| !lead.gathering.is_enough(lead.waiting);
        let waited = self.gathered.wait_timeout_while(lead, limit, too_few);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// As above, where no time passes: other threads may take any number of steps meanwhile.
    #[cfg(any(all(test, loom), shuttle))]
    fn wait_for_others<'a>(&'a self, lead: MutexGuard<'a, Lead>, _limit: Duration) -> MutexGuard<'a, Lead> {
        drop(lead);
        crate::sync::atomics::yield_now();
        guard(&self.lead)
    }
}

/// Publishes the outcome when it is dropped, also if the leader panicked.
struct LeadEnds<'a> {
    pending: &'a Pending,
    since: Instant,
    durable: Option<u64>,
}

impl Drop for LeadEnds<'_> {
    fn drop(&mut self) {
        let mut lead = guard(&self.pending.lead);
        lead.led = false;
        let waiting = lead.waiting;
        lead.gathering.committed(waiting, self.since.elapsed());
        lead.waiting -= 1;
        match self.durable {
            Some(newest) => self.pending.durable.store(newest, Ordering::Release),
            None => self.pending.failed.store(true, Ordering::Release),
        }
        drop(lead);
        self.pending.done.notify_all();
    }
}

fn guard(mutex: &Mutex<Lead>) -> MutexGuard<'_, Lead> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[inline]
fn place(of: u64) -> usize {
    spread(of) % ENTRIES
}

/// A hash that separates neighbouring numbers.
#[inline]
fn spread(number: u64) -> usize {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_waited_for_until_its_group_is_durable_and_others_are_not() {
        let pending = Pending::default();
        pending.note_key(7);
        assert_eq!((pending.wait_for_key(7), pending.wait_for_key(8)), (Some(1), None));
        pending.wait_until_durable(1, || Ok(pending.close())).unwrap();
        assert_eq!((pending.wait_for_key(7), pending.durable(), pending.ticket()), (None, 1, 2));
        // Already durable: no leader is needed.
        pending.wait_until_durable(1, || unreachable!("durable already")).unwrap();
    }

    /// Once, a read waited for any key that shared an entry of a table with two keys that were not durable.
    #[test]
    fn a_key_or_node_that_is_durable_is_not_waited_for_whatever_else_is_not() {
        let pending = Pending::default();
        (0..50_000).for_each(|n| {
            pending.note_key(2 * n);
            pending.note_node(128 * n);
        });
        let waits = |keys: u64, nodes: u64| {
            let key = |n| pending.wait_for_key(2 * n + keys).is_some();
            let node = |n| pending.wait_for_node(128 * n + nodes).is_some();
            let count = |waits: &dyn Fn(u64) -> bool| (0..50_000).filter(|n| waits(*n)).count();
            (count(&key), count(&node))
        };
        assert_eq!((waits(0, 0), waits(1, 64)), ((50_000, 50_000), (0, 0)));
        pending.wait_until_durable(1, || Ok(pending.close())).unwrap();
        assert_eq!(waits(0, 0), (0, 0));
    }

    #[test]
    fn a_thread_that_defers_its_waits_notes_the_newest_ticket_and_then_waits_again() {
        assert!(!defer(3));
        let ((inner, _), outer) = defer_waits(|| {
            assert!(defer(5));
            let nested = defer_waits(|| assert!(defer(7) && defer(6)));
            assert!(defer(4));
            (nested.1, ())
        });
        assert_eq!((inner, outer), (7, 7));
        assert!(!defer(3), "outside it waits");
        let caught = std::panic::catch_unwind(|| defer_waits(|| panic!("within")));
        assert!(caught.is_err() && !defer(3));
    }

    #[test]
    fn of_many_keys_exactly_those_are_met_that_are_not_durable() {
        let pending = Pending::default();
        // With this number nearly every key shares its table entry with others.
        let of = |group: u64| (0..5_000).map(move |i| (group << 32) + i * 3);
        of(0).for_each(|hash| pending.note_key(hash));
        let first = pending.close();
        of(1).rev().for_each(|hash| pending.note_key(hash));
        let others = || (0..2).flat_map(|group| of(group).map(|hash| hash + 1));
        assert!(!pending.has_any(others()));
        assert!([0, 1].into_iter().flat_map(of).all(|hash| pending.has_any([1, hash, 2])));
        pending.note_key(1);
        assert!(pending.has_any([1]), "noted after a look");
        pending.wait_until_durable(first, || Ok(first)).unwrap();
        assert!(!pending.has_any(of(0)) && pending.has_any(of(1)));
        pending.wait_until_durable(2, || Ok(pending.close())).unwrap();
        assert!(!pending.has_any(of(1)));
    }

    #[test]
    fn a_group_of_very_many_keys_is_not_kept_without_end() {
        let pending = Pending::default();
        let kept = || pending.keys.0.iter().map(|shard| shard.lock().unwrap().tickets.len()).sum::<usize>();
        (0..3 * NUMBERS as u64).for_each(|hash| pending.note_key(2 * hash));
        assert!(kept() <= 2 * NUMBERS);
        assert!((0..3 * NUMBERS as u64).all(|hash| pending.has_any([2 * hash])), "each may be not durable");
        assert!(pending.has_any([1]), "any key may be one");
        pending.wait_until_durable(1, || Ok(pending.close())).unwrap();
        assert!(!pending.has_any([1]) && !pending.has_any([0]));
        // They are removed when others are added.
        (0..NUMBERS as u64).for_each(|hash| pending.note_key(2 * hash + 1));
        assert!(kept() <= 2 * NUMBERS && !pending.has_any([0]));
    }

    #[test]
    fn after_a_failure_everybody_is_refused_but_what_was_durable_before() {
        let pending = Pending::default();
        pending.wait_until_durable(1, || Ok(pending.close())).unwrap();
        assert!(matches!(pending.wait_until_durable(2, || Err(Error::Closed)), Err(Error::Closed)));
        assert!(pending.has_failed());
        assert!(matches!(pending.wait_until_durable(2, || Ok(2)), Err(Error::Failed)));
        pending.wait_until_durable(1, || Ok(1)).unwrap();
    }
}

/// Writers that change a word under a lock and wait, a reader that reads and waits, and commits that take the lock to close a
/// group, in every order. Every acknowledged value, and every value that a reader returns, is durable.
#[cfg(all(test, loom))]
mod model {
    use std::sync::Arc;

    use loom::thread;

    use super::*;
    use crate::sync::stripe::{Held, Stripes};

    const NODE: u64 = 4096;
    const KEY: u64 = 7;

    struct Shared {
        pending: Pending,
        stripes: Stripes,
        /// The word in the index.
        word: AtomicU64,
        /// The word on the disk.
        disk: AtomicU64,
        /// The writer lock. It protects the number of changes of the word.
        writer: Mutex<u64>,
        /// The number of the commit that fails.
        fails_at: u64,
        commits: AtomicU64,
    }

    impl Shared {
        fn new(fails_at: u64) -> Self {
            let [word, disk, commits] = [0; 3].map(AtomicU64::new);
            let (pending, stripes) = (Pending::default(), Stripes::new(2));
            Self { pending, stripes, word, disk, writer: Mutex::new(0), fails_at, commits }
        }

        fn commit(&self) -> Result<u64> {
            let writer = self.writer.lock().unwrap();
            let (ticket, content) = (self.pending.close(), self.word.load(Ordering::Relaxed));
            drop(writer);
            if self.commits.fetch_add(1, Ordering::Relaxed) + 1 < self.fails_at {
                self.disk.store(content, Ordering::Relaxed);
                return Ok(ticket);
            }
            let _writer = self.writer.lock().unwrap();
            let mut held = Held::default();
            self.stripes.lock(NODE, &mut held);
            self.word.store(self.disk.load(Ordering::Relaxed), Ordering::Relaxed);
            self.stripes.unlock(&mut held);
            Err(Error::Closed)
        }

        /// Changes the word and waits. Returns the new value if it is durable.
        fn write(&self) -> Option<u64> {
            let mut writer = self.writer.lock().unwrap();
            if self.commits.load(Ordering::Relaxed) >= self.fails_at {
                return None;
            }
            let mut held = Held::default();
            *writer += 1;
            let value = *writer;
            self.pending.note_key(KEY);
            self.stripes.lock(NODE, &mut held);
            self.pending.note_node(NODE);
            self.word.store(value, Ordering::Relaxed);
            self.stripes.unlock(&mut held);
            let ticket = self.pending.ticket();
            drop(writer);
            self.pending.wait_until_durable(ticket, || self.commit()).ok()?;
            assert!(self.disk.load(Ordering::Relaxed) >= value, "acknowledged and not on the disk");
            Some(value)
        }

        /// Reads as a get does; `None` if an attempt failed.
        fn read(&self) -> Option<u64> {
            let failed = self.pending.has_failed();
            let version = self.stripes.read(NODE);
            let value = self.word.load(Ordering::Relaxed);
            if !self.stripes.check(version) {
                return None;
            }
            if !failed
                && self.pending.wait_for_node(NODE).is_some()
                && let Some(ticket) = self.pending.wait_for_key(KEY)
                && self.pending.wait_until_durable(ticket, || self.commit()).is_err()
            {
                return None;
            }
            assert!(self.disk.load(Ordering::Relaxed) >= value, "read and not on the disk");
            Some(value)
        }
    }

    /// Minimum of executions of a model.
    const EXECUTIONS_MIN: u64 = 90;

    fn explore(fails_at: u64, beside: fn(&Shared)) {
        explore_behind(0, fails_at, beside);
    }

    /// Begins after a commit with `before` waiting threads: a leader gathers if there were more than now.
    fn explore_behind(before: usize, fails_at: u64, beside: fn(&Shared)) {
        let executions = crate::sync::model::explored(move || {
            let shared = Arc::new(Shared::new(fails_at));
            guard(&shared.pending.lead).gathering.committed(before, Duration::ZERO);
            let other = Arc::clone(&shared);
            let thread = thread::spawn(move || beside(&other));
            shared.write();
            thread.join().unwrap();
            if fails_at == u64::MAX {
                assert_eq!(shared.word.load(Ordering::Relaxed), shared.disk.load(Ordering::Relaxed));
            }
        });
        assert!(executions >= EXECUTIONS_MIN, "{executions} executions");
    }

    #[test]
    fn a_leader_that_gathers_for_two_is_joined_or_goes_on_alone() {
        explore_behind(2, u64::MAX, |shared| assert!(shared.write().is_some()));
    }

    #[test]
    fn a_leader_that_gathers_in_vain_skips_the_next_gathering() {
        explore_behind(3, u64::MAX, |shared| {
            assert!(shared.write().is_some());
            assert!(shared.write().is_some());
        });
    }

    #[test]
    fn a_reader_beside_a_leader_that_gathers_returns_what_is_durable() {
        explore_behind(2, 2, |shared| {
            shared.read();
            shared.read();
        });
    }

    /// A model here detects each injected fault.
    #[test]
    fn omissions_are_noticed() {
        crate::sync::model::is_noticed(Omission::DirtyMarks, what_a_reader_returns_is_durable);
        crate::sync::model::is_noticed(
            Omission::Lead,
            a_leader_that_gathers_for_two_is_joined_or_goes_on_alone,
        );
    }

    #[test]
    fn two_writers_hand_the_lead_over_and_both_are_durable() {
        explore(u64::MAX, |shared| assert!(shared.write().is_some()));
    }

    #[test]
    fn what_a_reader_returns_is_durable() {
        explore(u64::MAX, |shared| {
            shared.read();
        });
    }

    #[test]
    fn what_a_reader_returns_beside_a_failing_commit_is_durable() {
        explore(1, |shared| {
            shared.read();
            shared.read();
        });
    }

    #[test]
    fn writers_beside_a_failing_commit_are_told_or_durable() {
        explore(2, |shared| {
            shared.write();
        });
    }
}
