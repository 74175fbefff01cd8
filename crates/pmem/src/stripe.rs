//! Version stripes: how readers stand beside the writer without a lock and without writing shared memory.
//!
//! A volatile table of version words, keyed by node. The writer makes a node's stripe odd before it changes the node
//! and even again when the change is durable; a reader looks at the stripe, reads, and looks again. What a reader
//! returns was therefore durable, at the promised level, when it looked the second time.
//!
//! A long read beside a writer that never pauses would fail its second look for ever: by the time a large record is copied
//! out, its node has changed again. A reader that failed [`TRIES`] times therefore asks the writer to give way
//! ([`Tries`]): from its next change on the writer waits, before it makes a stripe odd, until no such reader is left. The
//! reader itself never waits for the writer's lock, so it may be the thread that holds it, and it gets no new right to look:
//! it is the second look that decides, as ever. Readers cannot hold the writer up for good either, since without changes
//! each of them succeeds at once and none can fail anew. Only a reader that asks writes shared memory.
//!
//! Invariants:
//! * S1: one writer at a time locks stripes (callers hold the writer's mutex).
//! * S2: every store to a node that a reader may reach happens while its stripe is odd.
//! * S3: a value read between two equal even looks is what the writer left there before the first look.
//!
//! S3 rests on a fence pair: the writer's odd store is followed by a release fence before its data stores; the
//! reader's data loads are followed by an acquire fence before the second look.

use crate::canary::{Canary, sings};
use crate::sync::{AtomicU64, Ordering, fence, pause};

/// Stripes in the table: 8 KB stay in the first-level cache; with one writer a false conflict costs one retry.
/// (A model tells a few nodes apart; a schedule begins with a new table each time.)
const STRIPES: usize = if cfg!(all(test, loom)) {
    4
} else if cfg!(shuttle) {
    64
} else {
    1024
};

/// Failed tries after which a reader asks the writer to give way: more than chance makes a short read fail.
/// One is enough for the model, which knows no chance, and two for schedules, which are short.
pub const TRIES: u32 = if cfg!(all(test, loom)) {
    1
} else if cfg!(shuttle) {
    2
} else {
    8
};

/// The table.
#[derive(Debug)]
pub struct Stripes {
    /// Of a length that the compiler knows: a look has no bounds to check.
    table: Box<[AtomicU64; STRIPES]>,
    shift: u32,
    /// Readers that wait for the writer to give way.
    asking: AtomicU64,
}

/// A reader's failed tries of one read.
#[derive(Debug)]
pub struct Tries<'a> {
    stripes: &'a Stripes,
    failed: u32,
}

/// An even version that a reader saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Stripe that was looked at.
    index: usize,
    even: u64,
}

/// Stripes that the writer holds odd; gives them back even when dropped or told so.
#[derive(Debug, Default)]
pub struct Held(Vec<usize>);

impl Default for Stripes {
    fn default() -> Self {
        Self::new(STRIPES)
    }
}

impl Stripes {
    /// A table of which `count` stripes are used (a power of two, at most 1,024; few make conflicts certain, for tests).
    pub fn new(count: usize) -> Self {
        assert!(count.is_power_of_two() && (2..=STRIPES).contains(&count));
        let table = Box::new(std::array::from_fn(|_| AtomicU64::new(0)));
        Self { table, shift: 64 - count.trailing_zeros(), asking: AtomicU64::new(0) }
    }

    #[inline(always)]
    fn index(&self, node: u64) -> usize {
        ((node >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// First look: waits while the node is being changed.
    #[inline(always)]
    pub fn read(&self, node: u64) -> Version {
        let index = self.index(node);
        let version = self.stripe(index).load(Ordering::Acquire);
        let even = if version & 1 == 0 || sings(Canary::FirstLook) {
            version
        } else {
            Self::wait(self.stripe(index))
        };
        Version { index, even }
    }

    #[cold]
    fn wait(stripe: &AtomicU64) -> u64 {
        for spins in 0_u32.. {
            let version = stripe.load(Ordering::Acquire);
            if version & 1 == 0 {
                return version;
            }
            pause(spins);
        }
        unreachable!("the loop above ends only by returning")
    }

    /// Second look at the same node: true if nothing changed since the first.
    #[inline(always)]
    pub fn check(&self, version: Version) -> bool {
        fence(Ordering::Acquire);
        let now = self.stripe(version.index).load(Ordering::Relaxed);
        now == version.even || sings(Canary::SecondLook)
    }

    #[inline(always)]
    fn stripe(&self, index: usize) -> &AtomicU64 {
        // The mask never changes an index; it tells the compiler that it is in bounds.
        &self.table[index & (STRIPES - 1)]
    }

    /// A reader begins: none of its looks failed yet.
    #[inline(always)]
    pub fn tries(&self) -> Tries<'_> {
        Tries { stripes: self, failed: 0 }
    }

    /// Writer: lets readers go first that failed too often. Call without holding a stripe.
    #[inline(always)]
    pub fn give_way(&self) {
        // No order is needed: a request that is seen late costs the reader one more try.
        if self.asking.load(Ordering::Relaxed) != 0 {
            self.wait_for_readers();
        }
    }

    #[cold]
    fn wait_for_readers(&self) {
        for spins in 0_u32.. {
            if self.asking.load(Ordering::Relaxed) == 0 {
                return;
            }
            pause(spins);
        }
    }

    /// Writer: the node is about to change. Locking twice is the same as once.
    #[inline]
    pub fn lock(&self, node: u64, held: &mut Held) {
        self.lock_stripe(self.index(node), held);
    }

    #[inline(always)]
    fn lock_stripe(&self, index: usize, held: &mut Held) {
        if held.0.contains(&index) {
            return;
        }
        let stripe = self.stripe(index);
        stripe.store(stripe.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        held.0.push(index);
    }

    /// Writer: every node is about to change.
    pub fn lock_all(&self, held: &mut Held) {
        for index in 0..1 << (u64::BITS - self.shift) {
            self.lock_stripe(index, held);
        }
    }

    /// Writer: all changes are durable.
    #[inline]
    pub fn unlock(&self, held: &mut Held) {
        for index in held.0.drain(..) {
            let stripe = self.stripe(index);
            stripe.store(stripe.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
    }
}

impl Tries<'_> {
    /// The second look failed: the reader will try again.
    #[cold]
    pub fn fail(&mut self) {
        self.failed = self.failed.saturating_add(1);
        if self.failed == TRIES {
            self.stripes.asking.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Tries<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.failed >= TRIES {
            self.stripes.asking.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_second_look_fails_after_any_change_and_a_double_lock_counts_once() {
        let stripes = Stripes::new(2);
        let before = stripes.read(4096);
        let mut held = Held::default();
        stripes.lock(4096, &mut held);
        stripes.lock(4096, &mut held);
        assert!(!stripes.check(before));
        stripes.unlock(&mut held);
        let after = stripes.read(4096);
        assert_ne!(before, after);
        assert!(stripes.check(after));
    }
}

/// The protocol under a model checker: every order in which the threads' loads and stores may take effect, with at most
/// `LOOM_MAX_PREEMPTIONS` preemptions (2).
#[cfg(all(test, loom))]
mod model {
    use std::sync::Arc;

    use loom::thread;

    use super::*;

    /// A node of two words that change together, and the number of the last round that is durable.
    struct Shared {
        stripes: Stripes,
        words: [AtomicU64; 2],
        durable: AtomicU64,
    }

    const NODE: u64 = 4096;
    const ROUNDS: u64 = 2;

    impl Shared {
        fn write(&self) {
            for round in 1..=ROUNDS {
                let mut held = Held::default();
                self.stripes.give_way();
                self.stripes.lock(NODE, &mut held);
                self.words.iter().for_each(|word| word.store(round, Ordering::Relaxed));
                self.durable.store(round, Ordering::Relaxed);
                self.stripes.unlock(&mut held);
            }
        }

        /// One try of a get: nothing if the second look failed.
        fn read(&self) -> Option<u64> {
            let version = self.stripes.read(NODE);
            let [first, second] = [0, 1].map(|i: usize| self.words[i].load(Ordering::Relaxed));
            self.stripes.check(version).then(|| {
                assert_eq!(first, second, "a torn pair");
                let durable = self.durable.load(Ordering::Relaxed);
                assert!(durable >= first, "round {first} was returned, {durable} was durable");
                first
            })
        }
    }

    /// A writer beside a reader.
    fn explore(reader: fn(&Shared)) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(2));
        model.check(move || {
            let words = [AtomicU64::new(0), AtomicU64::new(0)];
            let shared = Arc::new(Shared { stripes: Stripes::new(2), words, durable: AtomicU64::new(0) });
            let beside = Arc::clone(&shared);
            let thread = thread::spawn(move || reader(&beside));
            shared.write();
            thread.join().unwrap();
            assert_eq!(shared.read(), Some(ROUNDS));
            assert_eq!(shared.stripes.asking.load(Ordering::Relaxed), 0);
        });
    }

    #[test]
    fn a_reader_returns_whole_durable_rounds_in_order() {
        explore(|shared| {
            let (first, second) = (shared.read(), shared.read());
            assert!(second.is_none() || first <= second, "{second:?} after {first:?}");
        });
    }

    #[test]
    fn a_reader_that_asks_comes_to_an_end_and_lets_the_writer_go_on() {
        explore(|shared| {
            let mut tries = shared.stripes.tries();
            while shared.read().is_none() {
                tries.fail();
            }
        });
    }
}
