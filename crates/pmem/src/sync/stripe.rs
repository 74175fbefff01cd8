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
//! reader's data loads are followed by an acquire fence before the second look. What the writer stores to has no stripe if no
//! node leads to it: the place of a record that the change before gave back. A reader may still be reading it, and must not miss
//! the stripe that this earlier change made odd. That writer may have been another thread, whose fence says nothing
//! of this one's stores; so whoever becomes the writer passes a fence of his own ([`Stripes::take_over`]).

use crate::error::{Error, Result};
use crate::sync::atomics::{AtomicBool, AtomicU64, Ordering, fence, pause};
use crate::sync::canary::{Canary, sings};

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

/// A version that no stripe has: no second look finds it.
const NEVER: u64 = u64::MAX - 1;

/// The table.
#[derive(Debug)]
pub struct Stripes {
    /// Of a length that the compiler knows: a look has no bounds to check.
    table: Box<[AtomicU64; STRIPES]>,
    shift: u32,
    /// Readers that wait for the writer to give way.
    asking: AtomicU64,
    /// No writer comes again, and stripes that are odd stay so.
    abandoned: AtomicBool,
}

/// A reader's failed tries of one read.
#[derive(Debug)]
pub struct Tries<'a> {
    stripes: &'a Stripes,
    failed: u32,
}

/// What a descent does at a node.
#[derive(Clone, Copy, Debug)]
pub enum Step<T> {
    /// It has arrived.
    Target(T),
    /// It goes on to this child.
    Child(u64),
    /// What it read makes no sense: a race, or damage.
    Nonsense,
}

/// Where a descent ended.
#[derive(Clone, Copy, Debug)]
pub enum Descent<T> {
    /// At its target, with the first look at it.
    Target {
        /// The node.
        node: u64,
        /// The first look.
        version: Version,
        /// What `step` said of it.
        target: T,
    },
    /// At a node that makes no sense and did not change: damage.
    Nonsense {
        /// The node.
        node: u64,
    },
    /// On a path with more levels than there may be: damage, or a race that the last look did not see.
    TooDeep {
        /// The last node.
        node: u64,
    },
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
        let shift = 64 - count.trailing_zeros();
        Self { table, shift, asking: AtomicU64::new(0), abandoned: AtomicBool::new(false) }
    }

    #[inline(always)]
    fn index(&self, node: u64) -> usize {
        ((node >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// First look: waits while the node is being changed.
    #[inline(always)]
    pub fn read(&self, node: u64) -> Version {
        let index = self.index(node);
        let order = if sings(Canary::FirstLookOrder) { Ordering::Relaxed } else { Ordering::Acquire };
        let version = self.stripe(index).load(order);
        let even = if version & 1 == 0 || sings(Canary::FirstLook) { version } else { self.wait(index) };
        Version { index, even }
    }

    #[cold]
    fn wait(&self, index: usize) -> u64 {
        for spins in 0_u32.. {
            let version = self.stripe(index).load(Ordering::Acquire);
            if version & 1 == 0 {
                return version;
            }
            if self.is_abandoned() {
                break;
            }
            pause(spins);
        }
        NEVER
    }

    /// Writer: panicked, and no other comes. Stripes that are odd stay so: a read of such a node fails ([`Tries::fail`]).
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// True after [`Stripes::abandon`].
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Second look at the same node: true if nothing changed since the first.
    #[inline(always)]
    pub fn check(&self, version: Version) -> bool {
        if !sings(Canary::SecondLookFence) {
            fence(Ordering::Acquire);
        }
        let now = self.stripe(version.index).load(Ordering::Relaxed);
        now == version.even || sings(Canary::SecondLook)
    }

    /// One try of a descent from the root, as a reader: the child's first look comes before the parent's second, so each node was
    /// in its place when the reader arrived. `root` reads the root's address. `step` says for a node whether it is the target, and
    /// else which child is next. `None`: something changed meanwhile, try again.
    #[inline(always)]
    pub fn descend<T>(
        &self,
        root: impl Fn() -> u64,
        levels_max: usize,
        mut step: impl FnMut(u64) -> Step<T>,
    ) -> Option<Descent<T>> {
        let mut node = root();
        let mut version = self.read(node);
        if root() != node {
            return None;
        }
        for _ in 0..levels_max {
            match step(node) {
                Step::Target(target) => return Some(Descent::Target { node, version, target }),
                Step::Nonsense => return self.check(version).then_some(Descent::Nonsense { node }),
                Step::Child(child) => {
                    let child_version = self.read(child);
                    if !self.check(version) {
                        return None;
                    }
                    (node, version) = (child, child_version);
                }
            }
        }
        Some(Descent::TooDeep { node })
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

    /// Writer: before his first store, with the writer's mutex taken: a reader who sees any store of his sees, at his second
    /// look, what earlier writers did to the stripes.
    #[inline(always)]
    pub fn take_over(&self) {
        if !sings(Canary::TakeOver) {
            fence(Ordering::Release);
        }
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

    /// Writer: as [`Stripes::lock`], and readers go first that failed too often; but not while a stripe is held: it may be the one that
    /// such a reader waits for.
    #[inline]
    pub fn lock_in_turn(&self, node: u64, held: &mut Held) {
        if held.0.is_empty() {
            self.give_way();
        }
        self.lock(node, held);
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
        if !sings(Canary::LockFence) {
            fence(Ordering::Release);
        }
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
            let order = if sings(Canary::Unlock) { Ordering::Relaxed } else { Ordering::Release };
            stripe.store(stripe.load(Ordering::Relaxed) + 1, order);
        }
    }
}

impl Tries<'_> {
    /// The second look failed: the reader will try again.
    ///
    /// # Errors
    /// `Failed` if that is in vain: the writer panicked while he changed what is read.
    #[cold]
    pub fn fail(&mut self) -> Result<()> {
        if self.stripes.is_abandoned() {
            return Err(Error::Failed);
        }
        self.failed = self.failed.saturating_add(1);
        if self.failed == TRIES {
            self.stripes.asking.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
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

    /// A reader that has failed too often between a writer's two stripes waits for the first: a writer that waited for it would for ever.
    #[test]
    fn a_writer_that_holds_a_stripe_waits_for_no_reader() {
        let stripes = Stripes::new(64);
        let mut held = Held::default();
        stripes.lock_in_turn(4096, &mut held);
        let mut tries = stripes.tries();
        (0..TRIES).for_each(|_| tries.fail().unwrap());
        let other = (1..64).map(|n| n * 64).find(|at| stripes.index(*at) != stripes.index(4096)).unwrap();
        stripes.lock_in_turn(other, &mut held);
        assert_eq!(held.0.len(), 2);
        drop(tries);
        stripes.unlock(&mut held);
    }
}

#[cfg(all(test, loom))]
mod model;
