//! The choice of keys to evict.
//!
//! A hand (a position) moves through the keys in their order, as in the algorithm CLOCK. For the policies `volatile-*` the hand moves
//! through the deadlines in their order. Each key has a score by the policy, for example its idle time for LRU. Each step reads the next
//! keys after the hand and evicts those with the highest scores. The others with high scores stay in a pool for the next steps, as in
//! Redis. A step reads further, up to a bound, as long as the scores are low in comparison with those of earlier steps. So a step evicts
//! few keys of a region whose keys are all in use.

use std::ops::Bound;

use bristlecone::{Next, Store};

use super::accesses::random;
use super::{Eviction, Policy};
use crate::access::{Access, Result};
use crate::notifications::Event;
use crate::shared::{Shared, TABLES};
use crate::structures;

/// Maximum number of keys that a step evicts.
const STEP_KEYS: usize = 16;
/// Maximum number of keys in the pool between steps.
const POOL_KEYS: usize = 64;
/// Maximum number of reads of a step.
const READS_MAX: usize = 8;
/// A read ends after this many bytes of keys and values.
const READ_BYTES: usize = 1 << 20;
/// Maximum number of elements of a structure that are removed with its key.
const ELEMENTS: usize = 4096;

#[derive(Debug)]
struct Candidate {
    db: usize,
    key: Vec<u8>,
    score: u64,
}

/// The hand and the pool.
#[derive(Debug, Default)]
pub struct Candidates {
    policy: Policy,
    db: usize,
    /// The last key that was read in this database.
    behind: Option<Vec<u8>>,
    /// The last deadline that was read.
    deadline: Vec<u8>,
    /// Sorted by score.
    pool: Vec<Candidate>,
    /// A moving average of the scores of evicted keys.
    usual_score: u64,
}

impl Candidates {
    /// Evicts keys until `wanted_bytes` are free, but at most [`STEP_KEYS`]. Returns the bytes of their keys and values, and the number of
    /// keys.
    ///
    /// # Errors
    /// Those of the store.
    pub fn step(&mut self, shared: &Shared, wanted_bytes: u64) -> Result<(u64, u64)> {
        let (eviction, policy) = (&shared.eviction, shared.eviction.policy());
        if self.policy != policy {
            // The position among the deadlines and the scores belong to the old policy.
            *self = Self { policy, ..Self::default() };
        }
        let most = eviction.samples() * STEP_KEYS;
        let mut ends = 0;
        for _ in 0..READS_MAX {
            let is_end = if policy.is_volatile() {
                self.read_deadlines(shared, most)?
            } else {
                self.read_keys(shared, most)?
            };
            ends += usize::from(is_end);
            // If the policy uses no accesses, the first keys are as good as any others.
            let enough = if policy.has_accesses() { self.usual_score / 8 * 7 } else { 0 };
            let good = self.pool.iter().filter(|candidate| candidate.score >= enough).count();
            if good >= STEP_KEYS || ends == 2 {
                break;
            }
        }
        self.pool.sort_unstable_by_key(|candidate| candidate.score);
        let (mut freed, mut keys) = (0, 0);
        while freed < wanted_bytes && keys < STEP_KEYS as u64 {
            let Some(candidate) = self.pool.pop() else { break };
            // A score falls only if the key was accessed since it was read.
            if policy.has_accesses() && eviction.score(candidate.db, &candidate.key, 0) < candidate.score {
                continue;
            }
            let bytes = evict(shared, &candidate, policy)?;
            if bytes > 0 {
                self.usual_score = self.usual_score / 8 * 7 + candidate.score / 8;
                freed += bytes;
                keys += 1;
            }
        }
        let surplus = self.pool.len().saturating_sub(POOL_KEYS);
        self.pool.drain(..surplus);
        if policy == Policy::VolatileTtl && keys > 0 {
            // A write may have set an earlier deadline.
            self.deadline.clear();
            self.pool.clear();
        }
        Ok((freed, keys))
    }

    /// Reads keys behind the hand, at least one if there is any. True at the end of the last database.
    fn read_keys(&mut self, shared: &Shared, most: usize) -> Result<bool> {
        for _ in 0..=TABLES {
            let is_found = match shared.databases.known(self.db) {
                Some(store) => self.read_database(shared, &store, most)?,
                None => false,
            };
            if is_found {
                return Ok(false);
            }
            self.behind = None;
            self.db = (self.db + 1) % TABLES;
            if self.db == 0 {
                break;
            }
        }
        Ok(true)
    }

    /// Reads keys of the hand's database. False if there are none behind the hand.
    fn read_database(&mut self, shared: &Shared, store: &Store, most: usize) -> Result<bool> {
        let mut scan = match (store.capabilities().ordered, &self.behind) {
            (true, Some(behind)) => store.scan((Bound::Excluded(behind.clone()), Bound::Unbounded)),
            (true, None) => store.scan(..),
            (false, Some(behind)) => store.walk_behind(behind),
            (false, None) => store.walk(),
        };
        let (mut key, mut value, mut read_bytes, mut is_found) = (Vec::new(), Vec::new(), 0, false);
        for _ in 0..most {
            if read_bytes >= READ_BYTES || !scan.next_into(&mut key, &mut value)? {
                break;
            }
            read_bytes += key.len() + value.len();
            self.offer(shared, self.db, &key, 0);
            self.behind = Some(key.clone());
            is_found = true;
        }
        Ok(is_found)
    }

    /// Reads deadlines behind the hand. True at their end.
    fn read_deadlines(&mut self, shared: &Shared, most: usize) -> Result<bool> {
        if !shared.store.has_tables() {
            return Ok(true);
        }
        for expiring in shared.store.expiring(&mut self.deadline, most)? {
            if let Some(db) = shared.databases.number_named(&expiring.table) {
                self.offer(shared, db, &expiring.key, expiring.deadline);
            }
        }
        Ok(self.deadline.is_empty())
    }

    /// Adds a key to the pool.
    fn offer(&mut self, shared: &Shared, db: usize, key: &[u8], deadline: u64) {
        let is_known = self.pool.iter().any(|known| known.db == db && known.key == key);
        if !is_known {
            let score = shared.eviction.score(db, key, deadline);
            self.pool.push(Candidate { db, key: key.to_vec(), score });
        }
    }
}

/// Removes a key. Returns the bytes of its key and value, with those of the removed elements; 0 if it is gone, or has no deadline and the
/// policy is for keys with one.
fn evict(shared: &Shared, candidate: &Candidate, policy: Policy) -> Result<u64> {
    let mut access = Access::new(shared, candidate.db)?;
    let (mut bytes, mut head) = (0, None);
    access.change_stored(&candidate.key, |old| match old {
        Some((value, deadline)) if deadline.is_some() || !policy.is_volatile() => {
            bytes = (candidate.key.len() + value.len()).max(1) as u64;
            head = structures::head_of(value);
            Next::Delete
        }
        _ => {
            (bytes, head) = (0, None);
            Next::Keep
        }
    })?;
    if bytes > 0 {
        access.note(Event::EVICTED, &candidate.key);
        access.events().send(shared);
    }
    if let (Some(head), Some(elements)) = (head, shared.structures.known()?) {
        // The elements of a large structure that remain are removed in the background.
        bytes += structures::garbage::remove(elements, head.id, ELEMENTS)?.0;
    }
    Ok(bytes)
}

impl Eviction {
    /// The score of a key: the key with the highest one is evicted first.
    fn score(&self, db: usize, key: &[u8], deadline: u64) -> u64 {
        let found = self.accesses().and_then(|accesses| accesses.find(db, key));
        match self.policy() {
            Policy::AllkeysLru | Policy::VolatileLru => {
                let age = || self.accesses().map_or(std::time::Duration::MAX, |accesses| accesses.age());
                let idle = found.map_or_else(age, |access| access.idle);
                u64::try_from(idle.as_millis()).unwrap_or(u64::MAX)
            }
            Policy::AllkeysLfu | Policy::VolatileLfu => {
                // Among equal counts, the key that was idle for longer goes first.
                let (count, idle) = found.map_or((0, u64::MAX), |found| (found.count, found.idle.as_secs()));
                u64::from(u8::MAX - count) << 32 | idle.min(u32::MAX.into())
            }
            Policy::VolatileTtl => u64::MAX - deadline,
            Policy::AllkeysRandom | Policy::VolatileRandom => random() >> 1,
            Policy::NoEviction => 0,
        }
    }
}
