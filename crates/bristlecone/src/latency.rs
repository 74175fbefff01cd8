//! How long operations take, as a store's callers see it: percentiles since it was opened.
//!
//! Operations that take about a microsecond are not each timed: two looks at the clock would be a tenth of that. Of every thread's
//! gets one in [`EVERY`] on average is, of its writes too, and stands for so many in the histogram. The distance from one to the
//! next is random, so that what comes at regular distances is not met always or never, and each kind has its own count. Where
//! a call waits for a sync, every one is timed.
//!
//! * L1: a call that is not timed writes to its thread's own counters and to no other memory.
//! * L2: nobody waits here: a thread that finds its histogram taken (by who reads them, or by another thread of its shard) drops the
//!   sample.
//! * L3: threads take turns in choosing a shard, so up to [`SHARDS`] threads that follow one another share nothing.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Of so many gets, and of so many writes that wait for no sync, one is timed on average.
pub const EVERY: u32 = 128;
/// Histograms of each kind of operation.
const SHARDS: usize = 16;
/// Longest time that is told apart, in nanoseconds: longer ones count as this, a minute and more.
const LONGEST_NS: u64 = 1 << 36;
/// Digits of a time that are kept: it is off by less than one in a hundred.
const DIGITS: u8 = 2;

/// What is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timed {
    Get,
    Write,
    Commit,
}

const KINDS: usize = 3;

/// How long one kind of operation took since the store was opened, in nanoseconds, to one in a hundred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Percentiles {
    /// Calls that were timed.
    pub timed: u64,
    /// Half of the calls took at most so long.
    pub p50_ns: u64,
    /// 99 of a hundred took at most so long.
    pub p99_ns: u64,
    /// 999 of a thousand took at most so long.
    pub p999_ns: u64,
    /// The longest of those timed.
    pub max_ns: u64,
}

/// How long operations took since the store was opened; `None` for a kind of which no call was timed.
///
/// Calls for many keys at once, batches and steps of scans are not timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LatencyStats {
    /// `get`, `get_into` and `contains`: one in [`EVERY`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub get: Option<Percentiles>,
    /// `put`, `delete`, `update` and what is made of it, until they return: over a journal until they are durable, unless made
    /// without sync. Every one that waits for a sync, of others one in [`EVERY`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Percentiles>,
    /// `commit`: every one. Of stores without a journal none: there it has nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<Percentiles>,
}

#[derive(Debug)]
struct Times {
    /// Each time as often as it stands for.
    histogram: Histogram<u64>,
    timed: u64,
}

impl Times {
    fn new() -> Option<Self> {
        // The bounds are constants that it takes; a caller's operation does not fail for this.
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).ok()?;
        Some(Self { histogram, timed: 0 })
    }
}

/// Of a size that keeps neighbours off each other's lines, with the line that the processor fetches along.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Option<Times>>);

/// What was timed of a store.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    shards: [[Shard; SHARDS]; KINDS],
}

/// A thread's own state, the same for every store.
struct Own {
    /// Calls of a kind up to and with the next one that is timed. The first is, so that a store shows something early.
    left: [Cell<u32>; KINDS],
    random: Cell<u32>,
    /// Its shard, and one more; 0 before it has one.
    shard: Cell<usize>,
}

thread_local! {
    static OWN: Own = const {
        Own { left: [const { Cell::new(1) }; KINDS], random: Cell::new(0x9E37_79B9), shard: Cell::new(0) }
    };
}

impl Own {
    /// True if this call is to be timed.
    #[inline(always)]
    fn takes_turn(&self, what: Timed) -> bool {
        let left = self.left[what as usize].get().wrapping_sub(1);
        self.left[what as usize].set(left);
        left == 0
    }

    /// Draws the distance to the next: 1 to twice [`EVERY`] less 1, all alike, so [`EVERY`] on average.
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
    /// Runs an operation, and times it if it is its thread's turn.
    #[inline(always)]
    pub fn sample<T>(&self, what: Timed, run: impl FnOnce() -> T) -> T {
        if !OWN.with(|own| own.takes_turn(what)) {
            return run();
        }
        OWN.with(|own| own.draw(what));
        self.time(what, EVERY, run)
    }

    /// Runs an operation that may take long, and times it.
    pub fn each<T>(&self, what: Timed, run: impl FnOnce() -> T) -> T {
        self.time(what, 1, run)
    }

    fn time<T>(&self, what: Timed, stands_for: u32, run: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let outcome = run();
        self.note(what, stands_for, start.elapsed());
        outcome
    }

    #[inline(never)]
    fn note(&self, what: Timed, stands_for: u32, took: Duration) {
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

    /// What was timed so far.
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
                // Of the same bounds: all of it has a place.
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
                // One after the other of each: with one count for both, one of them would always be met.
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
            // At most twice as far apart as on average, and never so far always.
            assert!((2500..=3500).contains(&times.timed), "{times:?}");
        }
    }

    #[test]
    fn percentiles_are_those_of_all_shards_and_a_sample_stands_for_many() {
        let latencies = Latencies::default();
        // Of some 13,000 calls 1 % took 2 ms, one 40 ms, the others 1 us: 100 of these were sampled.
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
        // No time and no end of time have their places.
        latencies.note(Timed::Get, 1, Duration::ZERO);
        latencies.note(Timed::Get, 1, Duration::MAX);
        let times = latencies.stats().get.unwrap();
        assert!(times.p50_ns == 1 && times.max_ns >= LONGEST_NS, "{times:?}");
    }
}
