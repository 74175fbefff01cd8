//! Counts of the operations of a store. Each thread has a share of its own cache line, so that threads do not slow each other.

use std::sync::atomic::{AtomicU64, Ordering};

const SHARES: usize = 32;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Share {
    leaves: AtomicU64,
    put_bytes: AtomicU64,
}

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct Counts([Share; SHARES]);

impl Counts {
    /// Notes that a thread used this many leaves.
    #[inline(always)]
    pub(crate) fn leaves(&self, thread: usize, count: u64) {
        self.0[thread % SHARES].leaves.fetch_add(count, Ordering::Relaxed);
    }

    /// Notes an update: its keys and values have this many bytes.
    #[inline(always)]
    pub(crate) fn put(&self, thread: usize, bytes: u64) {
        self.0[thread % SHARES].put_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Number of used leaves, and bytes of updates.
    pub(crate) fn sum(&self) -> (u64, u64) {
        self.0.iter().fold((0, 0), |(leaves, bytes), share| {
            let [more, put] = [&share.leaves, &share.put_bytes].map(|count| count.load(Ordering::Relaxed));
            (leaves + more, bytes + put)
        })
    }
}
