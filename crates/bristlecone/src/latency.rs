//! Latencies of operations as the callers of a store see them: percentiles since the open.
//!
//! Fast operations are sampled, because two clock readings would cost a tenth of such an operation. Each thread times on average one in
//! [`EVERY`] of its gets, and one in [`EVERY`] of its writes that do not wait for a sync. A sample counts [`EVERY`] times in the histogram.
//! The distance between two samples is random, so a periodic event is neither always nor never sampled. Every commit and every write that
//! waits for a sync is timed and counts once. A get that waits for a sync is sampled like any other get.
//!
//! Invariants:
//! * L1: a call that is not timed writes only to its thread's own counters.
//! * L2: a recording thread never waits. If another thread holds the lock of the histogram, the sample is dropped.
//! * L3: each kind of operation has [`SHARDS`] histograms, the shards. A thread gets the next shard number, modulo [`SHARDS`], at its
//!   first timed call. So threads share a histogram only if more than [`SHARDS`] threads have made timed calls.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Average number of gets per sample, and of writes that do not wait for a sync.
pub const EVERY: u32 = 128;
/// Number of histograms for each kind of operation.
const SHARDS: usize = 16;
/// Maximum recorded time in nanoseconds. Longer times count as this one, about 69 seconds.
const LONGEST_NS: u64 = 1 << 36;
/// Recorded digits of a time. The error is below 1 %.
const DIGITS: u8 = 2;

/// A kind of operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timed {
    Get,
    Write,
    Commit,
}

const KINDS: usize = 3;

/// Latencies of one kind of operation since the open, in nanoseconds, with an error below 1 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Percentiles {
    /// Number of timed calls.
    pub timed: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Maximum of the timed calls.
    pub max_ns: u64,
}

/// Latencies of operations since the open. `None` for a kind without timed calls.
///
/// Calls for many keys, batches and steps of scans are not timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LatencyStats {
    /// `get`, `get_into` and `contains`. One in [`EVERY`] is timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub get: Option<Percentiles>,
    /// `put`, `delete`, `update`, `put_if_absent` and `compare_and_swap`, until they return. In a store with a journal, a write with sync
    /// returns when it is durable. Every write that waits for a sync is timed, and one in [`EVERY`] of the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Percentiles>,
    /// `commit`, and waits for tickets that were not durable yet (`wait`, and the futures of `durable`). Every such call is timed. Stores
    /// without a journal have none, because their commits do not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<Percentiles>,
}

#[derive(Debug)]
struct Times {
    /// Each sample counts as often as the calls that it stands for.
    histogram: Histogram<u64>,
    timed: u64,
}

impl Times {
    fn new() -> Option<Self> {
        // The bounds are valid constants. An error must not fail the caller's operation.
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).ok()?;
        Some(Self { histogram, timed: 0 })
    }
}

/// The alignment keeps two shards on separate pairs of cache lines, because the processor prefetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Option<Times>>);

/// The recorded latencies of a store.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    shards: [[Shard; SHARDS]; KINDS],
}

/// The state of a thread, shared by all stores.
struct Own {
    /// Number of calls of each kind until the next sample, inclusive. The first call is a sample, so that a new store has values.
    left: [Cell<u32>; KINDS],
    random: Cell<u32>,
    /// Number of its shard plus one; 0 before the thread has a shard.
    shard: Cell<usize>,
}

thread_local! {
    static OWN: Own = const {
        Own { left: [const { Cell::new(1) }; KINDS], random: Cell::new(0x9E37_79B9), shard: Cell::new(0) }
    };
}

impl Own {
    /// True if this call is a sample.
    #[inline(always)]
    fn takes_turn(&self, what: Timed) -> bool {
        let left = self.left[what as usize].get().wrapping_sub(1);
        self.left[what as usize].set(left);
        left == 0
    }

    /// Draws the distance to the next sample: uniform between 1 and 2 × [`EVERY`] - 1, so [`EVERY`] on average.
    #[cold]
    fn draw(&self, what: Timed) {
        let mut word = self.random.get();
        word ^= word << 13;
        word ^= word >> 17;
        word ^= word << 5;
        self.random.set(word);
        self.left[what as usize].set(1 + word % (2 * EVERY - 1));
    }

    fn shard(&self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        if self.shard.get() == 0 {
            self.shard.set(1 + NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        self.shard.get() - 1
    }
}

impl Latencies {
    /// Runs an operation, and times it if it is a sample.
    #[inline(always)]
    pub fn sample<T>(&self, what: Timed, run: impl FnOnce() -> T) -> T {
        if !OWN.with(|own| own.takes_turn(what)) {
            return run();
        }
        OWN.with(|own| own.draw(what));
        self.time(what, EVERY, run)
    }

    /// Runs an operation that may take long, and always times it.
    pub fn each<T>(&self, what: Timed, run: impl FnOnce() -> T) -> T {
        self.time(what, 1, run)
    }

    fn time<T>(&self, what: Timed, stands_for: u32, run: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let outcome = run();
        self.note(what, stands_for, start.elapsed());
        outcome
    }

    /// Records the time of an operation. It counts as `stands_for` operations.
    #[inline(never)]
    pub fn note(&self, what: Timed, stands_for: u32, took: Duration) {
        let nanoseconds = took.as_nanos().clamp(1, u128::from(LONGEST_NS)) as u64;
        let shard = &self.shards[what as usize][OWN.with(Own::shard)].0;
        let Ok(mut times) = shard.try_lock() else { return };
        if times.is_none() {
            *times = Times::new();
        }
        if let Some(times) = &mut *times {
            times.histogram.saturating_record_n(nanoseconds, u64::from(stands_for));
            times.timed += 1;
        }
    }

    /// The latencies recorded so far.
    pub fn stats(&self) -> LatencyStats {
        let [get, write, commit] =
            [Timed::Get, Timed::Write, Timed::Commit].map(|what| self.percentiles(what));
        LatencyStats { get, write, commit }
    }

    fn percentiles(&self, what: Timed) -> Option<Percentiles> {
        let Times { mut histogram, mut timed } = Times::new()?;
        for Shard(shard) in &self.shards[what as usize] {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(times) = &*shard {
                // Both have the same bounds, so no value is out of range.
                histogram.add(&times.histogram).ok()?;
                timed += times.timed;
            }
        }
        (timed > 0).then(|| Percentiles {
            timed,
            p50_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
            p999_ns: histogram.value_at_quantile(0.999),
            max_ns: histogram.max(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: u64 = EVERY as u64;

    #[test]
    fn every_kind_of_every_thread_has_its_own_turns_and_about_one_in_so_many() {
        let latencies = Latencies::default();
        let calls = 1000 * FEW;
        std::thread::scope(|scope| {
            for _ in 0..3 {
                // The kinds alternate. With one counter for both, samples could all fall on one kind.
                scope.spawn(|| {
                    for _ in 0..calls {
                        latencies.sample(Timed::Get, || ());
                        latencies.sample(Timed::Write, || ());
                    }
                });
            }
        });
        let stats = latencies.stats();
        assert_eq!(stats.commit, None);
        for times in [stats.get, stats.write].map(Option::unwrap) {
            // The distance is at most twice the average, and not always so large.
            assert!((2500..=3500).contains(&times.timed), "{times:?}");
        }
    }

    #[test]
    fn percentiles_are_those_of_all_shards_and_a_sample_stands_for_many() {
        let latencies = Latencies::default();
        // About 13,000 calls: 1 % took 2 ms, one took 40 ms, and the others 1 us. 100 of the others were sampled.
        let note = |count, stands_for, took| {
            (0..count).for_each(|_| latencies.note(Timed::Write, stands_for, took));
        };
        note(50, EVERY, Duration::from_micros(1));
        let other = || note(50, EVERY, Duration::from_micros(1));
        std::thread::scope(|scope| _ = scope.spawn(other));
        note(140, 1, Duration::from_millis(2));
        note(1, 1, Duration::from_millis(40));
        let times = latencies.stats().write.unwrap();
        let near = |found: u64, wanted: u64| found.abs_diff(wanted) * 100 <= wanted;
        assert_eq!(times.timed, 241);
        assert!(near(times.p50_ns, 1000) && near(times.p99_ns, 2_000_000), "{times:?}");
        assert!(near(times.p999_ns, 2_000_000) && near(times.max_ns, 40_000_000), "{times:?}");
    }

    #[test]
    fn who_finds_a_histogram_taken_drops_the_sample_and_goes_on() {
        let latencies = Latencies::default();
        let taken = latencies.shards[Timed::Get as usize].each_ref().map(|shard| shard.0.lock().unwrap());
        assert_eq!(latencies.each(Timed::Get, || 7), 7);
        drop(taken);
        assert_eq!(latencies.stats().get, None);
        // Times below and above the bounds are recorded, too.
        latencies.note(Timed::Get, 1, Duration::ZERO);
        latencies.note(Timed::Get, 1, Duration::MAX);
        let times = latencies.stats().get.unwrap();
        assert!(times.p50_ns == 1 && times.max_ns >= LONGEST_NS, "{times:?}");
    }
}
