//! Counts of the operations of a store. Each thread has a share of its own cache line, so that threads do not slow each other.
//! Waits are rare: all threads count them together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SHARES: usize = 32;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Share {
    leaves: AtomicU64,
    put_bytes: AtomicU64,
}

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    shares: [Share; SHARES],
    waits: AtomicU64,
    waited_ns: AtomicU64,
}

impl Counts {
    /// Notes that a thread used this many leaves.
    #[inline(always)]
    pub(crate) fn leaves(&self, thread: usize, count: u64) {
        self.shares[thread % SHARES].leaves.fetch_add(count, Ordering::Relaxed);
    }

    /// Notes an update: its keys and values have this many bytes.
    #[inline(always)]
    pub(crate) fn put(&self, thread: usize, bytes: u64) {
        self.shares[thread % SHARES].put_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that an operation begins to wait for the upkeep, or to do a part of it.
    pub(crate) fn begin_wait(&self) -> Instant {
        let since = Instant::now();
        self.waits.fetch_add(1, Ordering::Relaxed);
        since
    }

    /// Notes the end of a wait that began at this moment.
    pub(crate) fn end_wait(&self, since: Instant) {
        self.waited_ns.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    /// Number of waits, and their time.
    pub(crate) fn waits(&self) -> (u64, Duration) {
        let nanos = self.waited_ns.load(Ordering::Relaxed);
        (self.waits.load(Ordering::Relaxed), Duration::from_nanos(nanos))
    }

    /// Number of used leaves, and bytes of updates.
    pub(crate) fn sum(&self) -> (u64, u64) {
        self.shares.iter().fold((0, 0), |(leaves, bytes), share| {
            let [more, put] = [&share.leaves, &share.put_bytes].map(|count| count.load(Ordering::Relaxed));
            (leaves + more, bytes + put)
        })
    }
}
