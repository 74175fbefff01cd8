//! The gate between single updates and batches: many threads update single keys at the same time; a batch changes several keys while no
//! other thread writes, and readers see all or nothing of it.
//!
//! A writer of one key counts itself in at one of several counters, so that writers do not share a cache line. A batch closes the gate,
//! waits until all writers have left, and opens it again at its end. A reader takes no lock: it notes the number of batches before it
//! reads, and reads again if a batch was applied meanwhile.
//!
//! Invariants:
//! * G1: while a batch is applied, no single update is. A writer counts itself in before it looks whether the gate is closed, and a batch
//!   closes the gate before it reads the counters, both in one total order. So one of the two sees the other.
//! * G2: the number of batches is odd exactly while a batch changes the tree. A reader whose two readings are equal and even has read
//!   either before or after each batch.
//!
//! A batch is serializable with all single updates, with other batches, and with reads in [`Gate::read`].

use crate::sync::{
    AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, fence, fence_behind_exchange, lock, pause,
};

/// Number of counters.
const COUNTERS: usize = if cfg!(all(test, loom)) { 2 } else { 16 };
/// Number of reads that a batch disturbed, after which a reader keeps batches out.
const PATIENCE: usize = 4;

/// A counter on two cache lines of its own, because processors fetch lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// The gate.
#[derive(Debug)]
pub(crate) struct Gate {
    writers: [Counter; COUNTERS],
    closed: AtomicBool,
    batch: Mutex<()>,
    /// G2.
    batches: AtomicU64,
}

/// A writer of one key.
#[derive(Debug)]
pub(crate) struct Single<'g>(&'g Counter);

impl Drop for Single<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

/// A thread that is alone with the tree, apart from readers.
#[derive(Debug)]
pub(crate) struct Alone<'g> {
    gate: &'g Gate,
    _batch: MutexGuard<'g, ()>,
}

impl Alone<'_> {
    /// Applies the changes of a batch (G2).
    pub(crate) fn apply<R>(&self, apply: impl FnOnce() -> R) -> R {
        /// Ends the change, also if `apply` panics.
        struct End<'g>(&'g Gate);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.batches.fetch_add(1, Ordering::Release);
            }
        }
        self.gate.batches.fetch_add(1, Ordering::Relaxed);
        // The changes come after the odd number.
        fence(Ordering::Release);
        let _end = End(self.gate);
        apply()
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.gate.closed.store(false, Ordering::Release);
    }
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            writers: std::array::from_fn(|_| Counter(AtomicU64::new(0))),
            closed: AtomicBool::new(false),
            batch: Mutex::new(()),
            batches: AtomicU64::new(0),
        }
    }

    /// Enters as a writer of one key. Waits while a batch runs. `thread` selects the counter.
    pub(crate) fn single(&self, thread: usize) -> Single<'_> {
        loop {
            if let Some(single) = self.try_single(thread) {
                return single;
            }
            // The batch holds this lock until it ends.
            #[cfg(not(all(test, loom)))]
            drop(lock(&self.batch));
            pause();
        }
    }

    /// As [`single`](Self::single). `None` while a batch runs.
    #[inline(always)]
    pub(crate) fn try_single(&self, thread: usize) -> Option<Single<'_>> {
        let counter = &self.writers[thread % COUNTERS];
        // G1: in the total order with the batch's store and loads.
        counter.0.fetch_add(1, Ordering::SeqCst);
        fence_behind_exchange();
        let single = Single(counter);
        (!self.closed.load(Ordering::SeqCst)).then_some(single)
    }

    /// Keeps all other writers out.
    pub(crate) fn alone(&self) -> Alone<'_> {
        let batch = lock(&self.batch);
        self.closed.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        for Counter(writers) in &self.writers {
            while writers.load(Ordering::SeqCst) != 0 {
                pause();
            }
        }
        // The lock opens the gate first, because fields drop after it.
        Alone { gate: self, _batch: batch }
    }

    /// Calls `read` until no batch was applied meanwhile. `read` may be called several times.
    pub(crate) fn read<R>(&self, thread: usize, mut read: impl FnMut() -> R) -> R {
        for _ in 0..PATIENCE {
            let before = self.batches.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let result = read();
                // The reads come before the second reading of the number.
                fence(Ordering::Acquire);
                if self.batches.load(Ordering::Acquire) == before {
                    return result;
                }
            }
            pause();
        }
        let _single = self.single(thread);
        read()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn batches_are_alone_and_readers_see_all_of_each() {
        let gate = Gate::new();
        let (a, b) = (AtomicU64::new(0), AtomicU64::new(0));
        let inside = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (gate, inside) = (&gate, &inside);
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let _single = gate.single(thread);
                        inside.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
            scope.spawn(|| {
                for i in 1..20_000 {
                    let alone = gate.alone();
                    assert_eq!(inside.load(Ordering::SeqCst), 0);
                    alone.apply(|| {
                        a.store(i, Ordering::Relaxed);
                        b.store(i, Ordering::Relaxed);
                    });
                }
            });
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let (a, b) = gate.read(5, || (a.load(Ordering::Relaxed), b.load(Ordering::Relaxed)));
                    assert_eq!(a, b);
                }
            });
        });
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc;

    use super::*;

    #[test]
    fn a_batch_is_alone() {
        loom::model(|| {
            let (gate, inside) = (Arc::new(Gate::new()), Arc::new(AtomicU64::new(0)));
            let writer = {
                let (gate, inside) = (Arc::clone(&gate), Arc::clone(&inside));
                loom::thread::spawn(move || {
                    // One attempt: a writer that tries again and again has endless schedules.
                    let Some(_single) = gate.try_single(0) else { return };
                    inside.fetch_add(1, Ordering::Relaxed);
                    inside.fetch_sub(1, Ordering::Relaxed);
                })
            };
            {
                let _alone = gate.alone();
                assert_eq!(inside.load(Ordering::Relaxed), 0);
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn a_reader_sees_all_of_a_batch_or_nothing() {
        loom::model(|| {
            let gate = Arc::new(Gate::new());
            let words = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
            let reader = {
                let (gate, words) = (Arc::clone(&gate), Arc::clone(&words));
                loom::thread::spawn(move || {
                    let before = gate.batches.load(Ordering::Acquire);
                    let seen = (words.0.load(Ordering::Relaxed), words.1.load(Ordering::Relaxed));
                    fence(Ordering::Acquire);
                    if before % 2 == 0 && gate.batches.load(Ordering::Acquire) == before {
                        assert_eq!(seen.0, seen.1);
                    }
                })
            };
            gate.alone().apply(|| {
                words.0.store(1, Ordering::Relaxed);
                words.1.store(1, Ordering::Relaxed);
            });
            reader.join().unwrap();
        });
    }
}
