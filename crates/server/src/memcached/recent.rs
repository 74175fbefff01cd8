//! When items were last read, and whether they were read since they were written: for the flags `h` and `l` of `mg`.
//!
//! A table of fixed size in volatile memory, because a read must not write to the store. It contains hashes of keys, not keys. A new key
//! replaces the word of its bucket that was used least recently. An item that is not in the table counts as not read since its write. Two
//! keys with the same bucket and fingerprint share a word. So the answers are approximate, and a restart forgets them.
//!
//! | bits of a word | content |
//! |---|---|
//! | 33 to 63 | fingerprint of the key, not 0 |
//! | 32 | 1 if the item was read |
//! | 0 to 31 | time of the latest read, in seconds since 1970 |
//!
//! A word is read and written without a lock. If two accesses coincide, one may be lost.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a bucket: one cache line.
const WAYS: usize = 8;
/// Number of buckets: 1 MiB.
const BUCKETS: usize = 1 << 14;

/// The table.
#[derive(Debug)]
pub struct Recent {
    buckets: Box<[[AtomicU64; WAYS]]>,
    hasher: RandomState,
}

impl Default for Recent {
    fn default() -> Self {
        let buckets = (0..BUCKETS).map(|_| [const { AtomicU64::new(0) }; WAYS]).collect();
        Self { buckets, hasher: RandomState::new() }
    }
}

impl Recent {
    /// The bucket and the fingerprint of a key.
    fn place(&self, key: &[u8]) -> (&[AtomicU64; WAYS], u64) {
        let hash = self.hasher.hash_one(key);
        (&self.buckets[hash as usize % BUCKETS], (hash >> 33).max(1))
    }

    fn known(bucket: &[AtomicU64; WAYS], fingerprint: u64) -> Option<(&AtomicU64, u64)> {
        let words = bucket.iter().map(|slot| (slot, slot.load(Ordering::Relaxed)));
        words.into_iter().find(|(_, word)| word >> 33 == fingerprint)
    }

    /// Notes that an item was read at this time.
    pub fn note(&self, key: &[u8], now: u32) {
        let (bucket, fingerprint) = self.place(key);
        let word = fingerprint << 33 | 1 << 32 | u64::from(now);
        match Self::known(bucket, fingerprint) {
            // Without a change, the cache line stays shared by all processors.
            Some((_, same)) if same == word => {}
            Some((slot, _)) => slot.store(word, Ordering::Relaxed),
            None => {
                let age = |slot: &&AtomicU64| slot.load(Ordering::Relaxed) as u32;
                if let Some(slot) = bucket.iter().min_by_key(age) {
                    slot.store(word, Ordering::Relaxed);
                }
            }
        }
    }

    /// Forgets the reads of an item that was written.
    pub fn forget(&self, key: &[u8]) {
        let (bucket, fingerprint) = self.place(key);
        if let Some((slot, _)) = Self::known(bucket, fingerprint) {
            slot.store(0, Ordering::Relaxed);
        }
    }

    /// The time of the latest read. `None`: the item was not read since its write, or the table has forgotten it.
    #[must_use]
    pub fn find(&self, key: &[u8]) -> Option<u32> {
        let (bucket, fingerprint) = self.place(key);
        Self::known(bucket, fingerprint).map(|(_, word)| word as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_known_until_the_item_is_written() {
        let recent = Recent::default();
        assert_eq!(recent.find(b"k"), None);
        recent.note(b"k", 7);
        recent.note(b"other", 9);
        assert_eq!((recent.find(b"k"), recent.find(b"other")), (Some(7), Some(9)));
        recent.forget(b"k");
        assert_eq!((recent.find(b"k"), recent.find(b"other")), (None, Some(9)));
    }

    #[test]
    fn a_full_table_forgets_the_oldest_reads() {
        let recent = Recent::default();
        let count = (BUCKETS * WAYS * 4) as u32;
        (0..count).for_each(|number| recent.note(&number.to_be_bytes(), number));
        let known = |numbers: std::ops::Range<u32>| {
            numbers.filter(|number| recent.find(&number.to_be_bytes()).is_some()).count()
        };
        assert_eq!(known(count - 100..count), 100);
        assert!(known(0..1000) < 10);
    }
}
