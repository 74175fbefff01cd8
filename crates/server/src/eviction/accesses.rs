//! When keys were last accessed, and how often: a table of fixed size in volatile memory, for the policies LRU and LFU.
//!
//! The table contains hashes of keys, not keys. A bucket is one cache line with eight words. A new key replaces the word of its bucket that
//! the policy would evict first. So the table forgets cold keys first. A key that is not in the table counts as not accessed since the
//! table was made. Two keys with the same bucket and fingerprint share a word. So the policies are approximate. An error in this table
//! affects only the order in which they evict keys.
//!
//! | bits of a word | content |
//! |---|---|
//! | 40 to 63 | fingerprint of the key, not 0 |
//! | 8 to 39 | time of the latest access, in ticks since the table was made |
//! | 0 to 7 | logarithmic counter of accesses, as in Redis |
//!
//! A word is read and written without a lock. If two accesses coincide, one may be lost.

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Words of a bucket.
const WAYS: usize = 8;
/// Milliseconds of a tick, as a shift: 16 ms. The time wraps after two years.
const TICK_SHIFT: u32 = 4;
/// A counter falls by one for each minute without an access, as with the default of `lfu-decay-time`.
const DECAY: Duration = Duration::from_secs(60);
/// The counter of a new key.
pub const COUNT_NEW: u8 = 5;
/// The higher a counter, the less often an access increases it: the default of `lfu-log-factor`.
const LOG_FACTOR: f64 = 10.0;
/// Bytes of the smallest and the largest table.
const BYTES: (u64, u64) = (64 << 10, 64 << 20);
/// The table takes this part of the memory limit.
const LIMIT_PART: u64 = 64;

/// What the table knows about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Time since the latest access.
    pub idle: Duration,
    /// The counter, less its decay since the latest access.
    pub count: u8,
}

/// The order in which words of a bucket are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The least recently used first.
    Recency,
    /// The least frequently used first.
    Frequency,
}

#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    fn new(fingerprint: u64, ticks: u32, count: u8) -> Self {
        Self(fingerprint << 40 | u64::from(ticks) << 8 | u64::from(count))
    }

    fn fingerprint(self) -> u64 {
        self.0 >> 40
    }

    fn idle_ticks(self, now: u32) -> u32 {
        let ticks = now.wrapping_sub((self.0 >> 8) as u32);
        // Another thread may have stored a newer time than `now`.
        if ticks > u32::MAX / 2 { 0 } else { ticks }
    }

    /// The counter at this time.
    fn count(self, now: u32) -> u8 {
        let periods = u128::from(self.idle_ticks(now)) * tick().as_millis() / DECAY.as_millis();
        (self.0 as u8).saturating_sub(u8::try_from(periods).unwrap_or(u8::MAX))
    }
}

const fn tick() -> Duration {
    Duration::from_millis(1 << TICK_SHIFT)
}

/// The table.
#[derive(Debug)]
pub struct Accesses {
    buckets: Box<[[AtomicU64; WAYS]]>,
    hasher: RandomState,
    since: Instant,
}

impl Accesses {
    /// An empty table for a memory limit in bytes.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        let bytes = (limit_bytes / LIMIT_PART).clamp(BYTES.0, BYTES.1).next_power_of_two().min(BYTES.1);
        let bucket_count = bytes as usize / size_of::<[AtomicU64; WAYS]>();
        let buckets = (0..bucket_count).map(|_| [const { AtomicU64::new(0) }; WAYS]).collect();
        Self { buckets, hasher: RandomState::new(), since: Instant::now() }
    }

    /// Time since the table was made.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }

    fn now(&self) -> u32 {
        // The time wraps.
        (self.since.elapsed().as_millis() >> TICK_SHIFT) as u32
    }

    /// The bucket and the fingerprint of a key.
    fn place(&self, db: usize, key: &[u8]) -> (&[AtomicU64; WAYS], u64) {
        let hash = self.hasher.hash_one((db, key));
        (&self.buckets[hash as usize % self.buckets.len()], (hash >> 40).max(1))
    }

    /// Notes an access to a key.
    pub fn note(&self, db: usize, key: &[u8], by: By) {
        self.note_at(db, key, by, self.now());
    }

    fn note_at(&self, db: usize, key: &[u8], by: By, now: u32) {
        let (bucket, fingerprint) = self.place(db, key);
        let mut replaced = (&bucket[0], (0, 0));
        for slot in bucket {
            let word = Word(slot.load(Ordering::Relaxed));
            if word.fingerprint() == fingerprint {
                // Without a change, the cache line stays shared by all processors.
                let next = Word::new(fingerprint, now, counted(word.count(now)));
                if next.0 != word.0 {
                    slot.store(next.0, Ordering::Relaxed);
                }
                return;
            }
            let idle = u64::from(word.idle_ticks(now));
            let order = match (word.0, by) {
                (0, _) => (u64::MAX, u64::MAX),
                (_, By::Recency) => (idle, 0),
                (_, By::Frequency) => (u64::from(u8::MAX - word.count(now)), idle),
            };
            if order >= replaced.1 {
                replaced = (slot, order);
            }
        }
        replaced.0.store(Word::new(fingerprint, now, COUNT_NEW).0, Ordering::Relaxed);
    }

    /// What the table knows about a key. `None`: the key was not accessed, or the table has forgotten it.
    #[must_use]
    pub fn find(&self, db: usize, key: &[u8]) -> Option<Access> {
        self.find_at(db, key, self.now())
    }

    fn find_at(&self, db: usize, key: &[u8], now: u32) -> Option<Access> {
        let (bucket, fingerprint) = self.place(db, key);
        let words = bucket.iter().map(|slot| Word(slot.load(Ordering::Relaxed)));
        let word = words.into_iter().find(|word| word.fingerprint() == fingerprint)?;
        Some(Access { idle: tick() * word.idle_ticks(now), count: word.count(now) })
    }
}

/// The counter after one more access: it grows with the logarithm of the number of accesses.
fn counted(count: u8) -> u8 {
    let above = f64::from(count.saturating_sub(COUNT_NEW));
    let is_lucky = (random() >> 11) as f64 / (1_u64 << 53) as f64 * (above * LOG_FACTOR + 1.0) < 1.0;
    if is_lucky { count.saturating_add(1) } else { count }
}

/// A pseudo-random number (SplitMix64). Its state belongs to the thread.
pub fn random() -> u64 {
    thread_local!(static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0_u8)));
    let state = STATE.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
    STATE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u32 = 60_000 >> TICK_SHIFT;

    #[test]
    fn idle_time_starts_with_each_access_and_databases_are_apart() {
        let table = Accesses::new(0);
        assert_eq!(table.find_at(0, b"k", 7), None);
        table.note_at(0, b"k", By::Recency, 10);
        assert_eq!(table.find_at(0, b"k", 110).map(|access| access.idle), Some(tick() * 100));
        assert_eq!(table.find_at(1, b"k", 110), None);
        table.note_at(0, b"k", By::Recency, u32::MAX);
        assert_eq!(table.find_at(0, b"k", 4).map(|access| access.idle), Some(tick() * 5), "the time wraps");
    }

    #[test]
    fn a_counter_grows_with_accesses_and_falls_with_minutes() {
        let table = Accesses::new(0);
        table.note_at(0, b"rare", By::Frequency, 0);
        assert_eq!(table.find_at(0, b"rare", 0).map(|access| access.count), Some(COUNT_NEW));
        (0..2000).for_each(|_| table.note_at(0, b"often", By::Frequency, 0));
        let often = table.find_at(0, b"often", 0).unwrap().count;
        assert!((COUNT_NEW + 5..100).contains(&often), "{often}");
        assert_eq!(table.find_at(0, b"often", 3 * MINUTE).unwrap().count, often - 3);
        assert_eq!(table.find_at(0, b"often", 1000 * MINUTE).unwrap().count, 0);
    }

    #[test]
    fn a_full_table_forgets_what_the_policy_would_evict_first() {
        for (by, hot) in [(By::Recency, 1), (By::Frequency, 300)] {
            let table = Accesses::new(0);
            let words = table.buckets.len() * WAYS;
            let key = |number: usize| number.to_be_bytes();
            for round in 0..hot {
                (0..words / 8).for_each(|number| table.note_at(0, &key(number), by, round));
            }
            // Many other keys, while the hot ones are accessed again and again.
            for number in words..4 * words {
                let now = u32::try_from(number).unwrap();
                table.note_at(0, &key(number), by, now);
                table.note_at(0, &key(number % (words / 8)), by, now);
            }
            let known = (0..words / 8).filter(|number| table.find(0, &key(*number)).is_some()).count();
            assert!(known > words / 8 * 9 / 10, "{by:?}: {known} of {}", words / 8);
        }
    }

    #[test]
    fn the_size_follows_the_limit_within_its_bounds() {
        let bytes = |limit| size_of_val(&*Accesses::new(limit).buckets) as u64;
        assert_eq!([bytes(0), bytes(64 << 20), bytes(u64::MAX)], [BYTES.0, 1 << 20, BYTES.1]);
    }
}
