//! What is in the index and not durable yet, where durability comes by groups ([`crate::journal`]) and a commit takes
//! milliseconds: who waits for which group, who commits it, and which readers may not answer before.
//!
//! A writer changes the index under its lock and notes the nodes and the key that it changed with the number of the running
//! group, its *ticket*; then it lets go of the lock and waits until that group is durable. The first who waits commits: the
//! *leader*. The others sleep; when it is done those whose group became durable go, and one of the rest leads the next. So
//! whatever was written while one sync ran goes to the disk with the next one, and writers wait for nobody in memory. Those who
//! were released come back in a moment, mostly: so a leader *gathers*, for a small part of a sync's time, until as many wait as
//! did before. Else two halves of the writers would take turns, each waiting for the other's sync.
//!
//! A reader takes no part in this. After its second look ([`crate::stripe`]) it asks whether the leaf that it read was changed
//! by a group that is not durable; if so, whether its key was (a scan: for the leaf alone). Only then does it wait, as a
//! writer does, and may even lead. If the group fails, what it read is taken back, and it reads again.
//!
//! Invariants:
//! * W1: notes are made under the index's writer lock, before the node's stripe becomes even again; so a reader that saw the
//!   change sees the note. A note's ticket only grows, until its group is durable.
//! * W2: a ticket is durable only if every group up to it is: groups are closed, committed and told of in the order of their
//!   numbers, by one leader at a time.
//! * W3: `failed` is told after everything that is not durable was taken back, and for good. So what is read after that is
//!   durable, whatever the notes say.
//! * W4: nobody sleeps while nobody leads and his group is not durable: whoever sees no leader leads.
//!
//! Notes are two small tables. That of nodes has the newest ticket for each hash of a node. That of keys has, for each hash, the
//! newest ticket and a tag of the key; of two keys that are not durable and fall together, only that there are several. That is
//! good enough for a reader of one key; who asks for a thousand of them, as an atomic batch does, would nearly always meet two
//! that fell together, and wait for a commit in vain. For him all hashes are listed, group by group.

use std::collections::HashSet;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::canary::{Canary, sings};
use crate::error::{Error, Result};
use crate::sync::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, unmodelled};

/// Entries of each table (32 KiB). A model needs to tell two apart, a schedule some, no more.
const ENTRIES: usize = if cfg!(all(test, loom)) {
    2
} else if cfg!(shuttle) {
    16
} else {
    4096
};
/// Keys of a group that are listed one by one. A group's lines are bounded, its notes are not: a removal of a key that was not
/// there changes no line.
const LISTED: usize = 1 << 18;
const TAG_BITS: u32 = 16;
/// The tag of several keys; no key has it.
const SEVERAL: u64 = 0;

/// See the module's head.
#[derive(Debug)]
pub struct Pending {
    /// Number of the group that runs. Changed under the index's writer lock.
    running: AtomicU64,
    durable: AtomicU64,
    /// The newest ticket in a note.
    noted: AtomicU64,
    failed: AtomicBool,
    nodes: Box<[AtomicU64]>,
    keys: Box<[AtomicU64]>,
    /// What was noted of keys, group by group. Only who holds the writer lock comes here.
    lists: unmodelled::Mutex<Vec<Listed>>,
    lead: Mutex<Lead>,
    /// A leader is done.
    done: Condvar,
    /// As many wait as the leader gathers for.
    gathered: Condvar,
}

/// Hashes of the keys that a group changes; `None` if they are too many to be listed, and any key may be one.
#[derive(Debug)]
struct Listed {
    ticket: u64,
    hashes: Option<HashSet<u64>>,
}

impl Listed {
    fn add(&mut self, hash: u64) {
        if let Some(hashes) = &mut self.hashes {
            hashes.insert(hash);
            if hashes.len() > LISTED {
                self.hashes = None;
            }
        }
    }
}

/// Who leads, and who waits.
#[derive(Debug, Default)]
struct Lead {
    /// Somebody leads.
    led: bool,
    /// Those who wait for a group, the leader among them.
    waiting: u32,
    /// How many waited when the last leader was done: for its group, and for the next.
    before: u32,
    /// How long its commit took.
    took: Duration,
    /// Commits that gather nobody, because the last gathering ended before all had come.
    skips: u32,
}

/// Time does not pass in models and schedules: there every commit takes long enough to gather for, and a gathering's time may be up at any
/// moment.
const MODELLED: bool = cfg!(any(all(test, loom), shuttle));
/// The part of a commit's time that a leader gathers for at most.
const GATHER_PART: u32 = 4;
/// Commits that are faster than this are not worth waiting for anybody: sleeping takes as long.
const GATHER_MIN: Duration = Duration::from_micros(80);
/// Commits that gather nobody after one that did so in vain: who released them may be readers, or be gone.
const GATHER_SKIPS: u32 = if MODELLED { 1 } else { 3 };
/// A commit that took very long is not what the next one will take.
const GATHER_MAX: Duration = Duration::from_millis(2);

impl Default for Pending {
    fn default() -> Self {
        let table = || (0..ENTRIES).map(|_| AtomicU64::new(0)).collect();
        Self {
            running: AtomicU64::new(1),
            durable: AtomicU64::new(0),
            noted: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            nodes: table(),
            keys: table(),
            lists: unmodelled::Mutex::default(),
            lead: Mutex::default(),
            done: Condvar::new(),
            gathered: Condvar::new(),
        }
    }
}

impl Pending {
    /// The running group's ticket. Under the writer lock: of what was changed under this hold of it.
    pub fn ticket(&self) -> u64 {
        self.running.load(Ordering::Acquire)
    }

    /// Every group up to this ticket is durable.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Writer: this node is about to be changed (W1).
    #[inline]
    pub fn note_node(&self, node: u64) {
        // Relaxed: the stripe's release, which follows, tells of it.
        self.nodes[place(node)].store(self.running.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Writer: the key of this hash is about to be changed (W1).
    #[inline]
    pub fn note_key(&self, hash: u64) {
        let entry = &self.keys[place(hash)];
        let (old, tag) = (entry.load(Ordering::Relaxed), tag_of(hash));
        let alone = old >> TAG_BITS <= self.durable() || old & tag_mask() == tag;
        let tag = if alone { tag } else { SEVERAL };
        let ticket = self.running.load(Ordering::Relaxed);
        entry.store(ticket << TAG_BITS | tag, Ordering::Relaxed);
        self.noted.store(ticket, Ordering::Relaxed);
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if lists.last().is_none_or(|last| last.ticket != ticket) {
            lists.retain(|list| list.ticket > self.durable());
            lists.push(Listed { ticket, hashes: Some(HashSet::new()) });
        }
        if let Some(last) = lists.last_mut() {
            last.add(hash);
        }
    }

    /// Writer: true if one of these hashes may be of a key that was changed and is not durable. It is, unless two keys have one
    /// hash or a group has more keys than are listed.
    pub fn has_any(&self, hashes: impl IntoIterator<Item = u64>) -> bool {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|list| list.ticket > self.durable());
        let may = |list: &Listed, hash| list.hashes.as_ref().is_none_or(|hashes| hashes.contains(&hash));
        !lists.is_empty() && hashes.into_iter().any(|hash| lists.iter().any(|list| may(list, hash)))
    }

    /// True if everything was durable a moment ago: a read is unlikely to wait.
    pub fn is_quiet(&self) -> bool {
        self.noted.load(Ordering::Relaxed) <= self.durable()
    }

    /// Writer: the running group ends here and the next begins; returns the ticket of the one that ended.
    pub fn close(&self) -> u64 {
        let ticket = self.running.load(Ordering::Relaxed);
        self.running.store(ticket + 1, Ordering::Release);
        ticket
    }

    /// True after a group failed and everything that is not durable was taken back (W3). To be asked before a read.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The ticket to wait for, if what was read of this leaf may not be durable. To be asked after the second look at it.
    #[inline]
    pub fn wait_for_node(&self, node: u64) -> Option<u64> {
        let ticket = self.nodes[place(node)].load(Ordering::Relaxed);
        (ticket > self.durable() && !sings(Canary::Notes)).then_some(ticket)
    }

    /// The ticket to wait for, if what was read of the key of this hash may not be durable.
    pub fn wait_for_key(&self, hash: u64) -> Option<u64> {
        let entry = self.keys[place(hash)].load(Ordering::Relaxed);
        let (ticket, tag) = (entry >> TAG_BITS, entry & tag_mask());
        (ticket > self.durable() && (tag == tag_of(hash) || tag == SEVERAL)).then_some(ticket)
    }

    /// Waits until a group is durable. If nobody leads, the caller does: `commit` commits all that was changed and returns the ticket of
    /// the group that it closed, or takes back what is not durable and returns why.
    ///
    /// # Errors
    /// What `commit` says to the leader, `Failed` to the others. The group and all that follow are taken back then.
    pub fn settle(&self, ticket: u64, commit: impl FnOnce() -> Result<u64>) -> Result<()> {
        if self.durable() >= ticket {
            return Ok(());
        }
        let mut lead = guard(&self.lead);
        lead.waiting += 1;
        if lead.waiting >= lead.before {
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
                lead.led = !sings(Canary::Lead);
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

    /// Leader: waits a little, until as many wait as did when the last one was done.
    fn gather<'a>(&'a self, mut lead: MutexGuard<'a, Lead>) -> MutexGuard<'a, Lead> {
        if lead.took < GATHER_MIN || lead.waiting >= lead.before {
            return lead;
        }
        if lead.skips > 0 {
            lead.skips -= 1;
            return lead;
        }
        let limit = (lead.took / GATHER_PART).min(GATHER_MAX);
        let mut lead = self.wait_for_others(lead, limit);
        if lead.waiting < lead.before {
            lead.skips = GATHER_SKIPS;
        }
        lead
    }

    /// Leader: lets go of the lock until as many wait as the last leader had, or the time is up.
    #[cfg(not(any(all(test, loom), shuttle)))]
    fn wait_for_others<'a>(&'a self, lead: MutexGuard<'a, Lead>, limit: Duration) -> MutexGuard<'a, Lead> {
        let too_few = |lead: &mut Lead| lead.waiting < lead.before;
        let waited = self.gathered.wait_timeout_while(lead, limit, too_few);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// The same where no time passes: others may take any number of steps meanwhile.
    #[cfg(any(all(test, loom), shuttle))]
    fn wait_for_others<'a>(&'a self, lead: MutexGuard<'a, Lead>, _limit: Duration) -> MutexGuard<'a, Lead> {
        drop(lead);
        crate::sync::yield_now();
        guard(&self.lead)
    }
}

/// Tells the others how it went when it is dropped, however the leader left.
struct LeadEnds<'a> {
    pending: &'a Pending,
    since: Instant,
    durable: Option<u64>,
}

impl Drop for LeadEnds<'_> {
    fn drop(&mut self) {
        let mut lead = guard(&self.pending.lead);
        lead.led = false;
        lead.before = lead.waiting;
        lead.waiting -= 1;
        lead.took = if MODELLED { GATHER_MIN } else { self.since.elapsed() };
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

fn tag_mask() -> u64 {
    (1 << TAG_BITS) - 1
}

/// Of the upper bits; the place is of others.
fn tag_of(hash: u64) -> u64 {
    (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) & tag_mask()) | 1
}

#[inline]
fn place(of: u64) -> usize {
    (of.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize % ENTRIES
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_waited_for_until_its_group_is_durable_and_others_are_not() {
        let pending = Pending::default();
        pending.note_key(7);
        assert_eq!((pending.wait_for_key(7), pending.wait_for_key(8)), (Some(1), None));
        pending.settle(1, || Ok(pending.close())).unwrap();
        assert_eq!((pending.wait_for_key(7), pending.durable(), pending.ticket()), (None, 1, 2));
        // Settled long ago: nobody leads.
        pending.settle(1, || unreachable!("durable already")).unwrap();
    }

    #[test]
    fn two_keys_of_one_entry_are_both_waited_for_and_a_durable_one_gives_way() {
        let pending = Pending::default();
        let other = (8..).find(|hash| place(*hash) == place(7) && tag_of(*hash) != tag_of(7)).unwrap();
        pending.note_key(7);
        pending.note_key(other);
        assert_eq!((pending.wait_for_key(7), pending.wait_for_key(other)), (Some(1), Some(1)));
        pending.settle(1, || Ok(pending.close())).unwrap();
        pending.note_key(other);
        assert_eq!((pending.wait_for_key(7), pending.wait_for_key(other)), (None, Some(2)));
    }

    #[test]
    fn of_many_keys_exactly_those_are_met_that_are_not_durable() {
        let pending = Pending::default();
        // So many that in the table nearly every one would fall together with others.
        let of = |group: u64| (0..5_000).map(move |i| (group << 32) + i * 3);
        of(0).for_each(|hash| pending.note_key(hash));
        let first = pending.close();
        of(1).rev().for_each(|hash| pending.note_key(hash));
        let others = || (0..2).flat_map(|group| of(group).map(|hash| hash + 1));
        assert!(!pending.has_any(others()));
        assert!([0, 1].into_iter().flat_map(of).all(|hash| pending.has_any([1, hash, 2])));
        pending.note_key(1);
        assert!(pending.has_any([1]), "noted after a look");
        pending.settle(first, || Ok(first)).unwrap();
        assert!(!pending.has_any(of(0)) && pending.has_any(of(1)));
        pending.settle(2, || Ok(pending.close())).unwrap();
        assert!(!pending.has_any(of(1)) && pending.lists.lock().unwrap().is_empty());
    }

    #[test]
    fn a_group_of_very_many_keys_is_not_listed_without_end() {
        let pending = Pending::default();
        (0..LISTED as u64).for_each(|hash| pending.note_key(2 * hash));
        assert!(pending.has_any([0]) && !pending.has_any([1]));
        (0..9).for_each(|_| pending.note_key(0));
        assert!(!pending.has_any([1]), "the same key again");
        pending.note_key(1);
        assert!(pending.has_any([3]), "any key may be one");
        assert!(pending.lists.lock().unwrap()[0].hashes.is_none());
        pending.settle(1, || Ok(pending.close())).unwrap();
        assert!(!pending.has_any([1]));
    }

    #[test]
    fn after_a_failure_everybody_is_refused_but_what_was_durable_before() {
        let pending = Pending::default();
        pending.settle(1, || Ok(pending.close())).unwrap();
        assert!(matches!(pending.settle(2, || Err(Error::Closed)), Err(Error::Closed)));
        assert!(pending.has_failed());
        assert!(matches!(pending.settle(2, || Ok(2)), Err(Error::Failed)));
        pending.settle(1, || Ok(1)).unwrap();
    }
}

/// Writers that change a word under a lock and wait, a reader that looks and waits, and commits that take the lock to close a
/// group, in every order. What is acknowledged, and what a reader returns, is durable.
#[cfg(all(test, loom))]
mod model {
    use std::sync::Arc;

    use loom::thread;

    use super::*;
    use crate::stripe::{Held, Stripes};

    const NODE: u64 = 4096;
    const KEY: u64 = 7;

    struct Shared {
        pending: Pending,
        stripes: Stripes,
        /// What readers see.
        word: AtomicU64,
        /// What the disk holds.
        disk: AtomicU64,
        /// The writer lock; what it guards is how often the word was changed.
        writer: Mutex<u64>,
        /// The n-th commit fails.
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

        /// Changes the word and waits; the word's new value if that is durable.
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
            self.pending.settle(ticket, || self.commit()).ok()?;
            assert!(self.disk.load(Ordering::Relaxed) >= value, "acknowledged and not on the disk");
            Some(value)
        }

        /// As a get reads; nothing if its looks failed once.
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
                && self.pending.settle(ticket, || self.commit()).is_err()
            {
                return None;
            }
            assert!(self.disk.load(Ordering::Relaxed) >= value, "read and not on the disk");
            Some(value)
        }
    }

    /// Fewest executions of a model.
    const EXECUTIONS_MIN: u64 = 90;

    fn explore(fails_at: u64, beside: fn(&Shared)) {
        explore_behind(0, fails_at, beside);
    }

    /// As behind a commit that so many waited for: a leader gathers if there were more than now.
    fn explore_behind(before: u32, fails_at: u64, beside: fn(&Shared)) {
        let executions = crate::model::explored(move || {
            let shared = Arc::new(Shared::new(fails_at));
            *guard(&shared.pending.lead) = Lead { before, took: GATHER_MIN, ..Lead::default() };
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

    /// Each part of the protocol, left out, is noticed by a model here.
    #[test]
    fn canaries_are_noticed() {
        crate::model::is_noticed(Canary::Notes, what_a_reader_returns_is_durable);
        crate::model::is_noticed(Canary::Lead, a_leader_that_gathers_for_two_is_joined_or_goes_on_alone);
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
