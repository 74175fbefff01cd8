//! Striped version locks: readers run concurrently with the writer. They take no lock and, with one exception, write no shared memory.
//!
//! A volatile table contains version words. A hash of a node's address is the index into the table. The writer locks a node's version
//! (makes it odd) before it changes the node. It unlocks the version (makes it even) after the last fence of the change. A reader reads the
//! version, reads the node, and validates the version. So, without a journal, a value that a reader returns was durable (as durable as a
//! fence of the medium makes it) when the validation succeeded. On a medium with a journal a fence does nothing. There the dirty marks
//! (`pending`) tell the reader whether it must wait for the value's group.
//!
//! A long read, for example of a large record, could fail every validation, because a writer without pauses changes the node during each
//! attempt. So after [`TRIES`] failed validations the reader asks the writer to give way ([`Tries`]). Before its next change the writer
//! waits until no reader is asking (without a journal: before it locks the first version; with a journal: before it takes the writer's
//! lock). The reader does not take the writer's lock. So the thread that holds the writer's lock may read, too. The reader still needs a
//! successful validation. The writer does not wait forever: while it waits, no node changes, so the next attempt of each reader succeeds. A
//! reader that asks is the exception: it writes shared memory.
//!
//! Invariants:
//! * S1: one writer at a time locks versions (callers hold the writer's lock).
//! * S2: if a reader may reach a node, the writer locks the node's version before it stores to the node.
//! * S3: if a validation succeeds, the reader read only values that were in the node when it read the version.
//!
//! S3 needs two fences. The writer stores the locked version, passes a release fence, and then stores the data. The reader loads the data,
//! passes an acquire fence, and then validates.
//!
//! The writer needs no version lock to store to a block that no node references. The block may have belonged to a record that the previous
//! change freed, and a reader may still be reading it. That reader sees the new bytes, so its validation must fail: it must see the version
//! that the previous change locked. The previous change may have been by another thread, and that thread's fence does not order the stores
//! of this thread. So each new writer passes a release fence before its first store ([`Stripes::take_over`]).

use crate::error::{Error, Result};
use crate::sync::atomics::{AtomicBool, AtomicU64, Ordering, fence, pause};
use crate::sync::omission::{Omission, is_omitted};

/// Maximum number of versions in the table, and the default. 8 KB fit into the first-level cache. With one writer a false conflict costs
/// one retry. (A model distinguishes only a few nodes; a schedule begins with a new table each time.)
pub const STRIPES: usize = if cfg!(all(test, loom)) {
    4
} else if cfg!(shuttle) {
    64
} else {
    1024
};

/// Failed validations after which a reader asks the writer to give way: more than a short read has by chance. In the model
/// nothing happens by chance, so one is enough. Schedules are short, so two are enough.
pub const TRIES: u32 = if cfg!(all(test, loom)) {
    1
} else if cfg!(shuttle) {
    2
} else {
    8
};

/// A version that never occurs: no validation against it succeeds.
const NEVER: u64 = u64::MAX - 1;

/// The table of striped version locks.
#[derive(Debug)]
pub struct Stripes {
    /// The length is known to the compiler, so an access needs no bounds check.
    table: Box<[AtomicU64; STRIPES]>,
    shift: u32,
    /// Number of readers that wait for the writer to give way.
    asking: AtomicU64,
    /// No writer will run again. Locked versions stay locked.
    abandoned: AtomicBool,
}

/// The number of failed validations of one read.
#[derive(Debug)]
pub struct Tries<'a> {
    stripes: &'a Stripes,
    failed: u32,
}

/// The step of a descent at a node.
#[derive(Clone, Copy, Debug)]
pub enum Step<T> {
    /// The node is the target.
    Target(T),
    /// The descent continues at this child.
    Child(u64),
    /// The content of the node is unsound: a race, or damage.
    Nonsense,
}

/// The end of a descent.
#[derive(Clone, Copy, Debug)]
pub enum Descent<T> {
    /// At its target, with the target's version.
    Target {
        /// The node.
        node: u64,
        /// The version that was read before the node.
        version: Version,
        /// The result of `step` for it.
        target: T,
    },
    /// At a node that is unsound and did not change: damage.
    Nonsense {
        /// The node.
        node: u64,
    },
    /// On a path with more than the maximum of levels: damage, or a race that the last validation did not detect.
    TooDeep {
        /// The last node.
        node: u64,
    },
}

/// An even version that a reader has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Index in the table.
    index: usize,
    even: u64,
}

/// Versions that the writer holds locked. [`Stripes::unlock`] unlocks them.
#[derive(Debug, Default)]
pub struct Held(Vec<usize>);

impl Default for Stripes {
    fn default() -> Self {
        Self::new(STRIPES)
    }
}

impl Stripes {
    /// A table that uses `count` versions: a power of two from 2 to 1,024. A small number makes conflicts certain, for tests.
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

    /// Reads the version of a node. Waits while the node is locked.
    #[inline(always)]
    pub fn read(&self, node: u64) -> Version {
        let index = self.index(node);
        let order = if is_omitted(Omission::FirstReadOrder) { Ordering::Relaxed } else { Ordering::Acquire };
        let version = self.stripe(index).load(order);
        let even =
            if version & 1 == 0 || is_omitted(Omission::FirstRead) { version } else { self.wait(index) };
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

    /// Writer: called when it panicked, and no other writer follows. Locked versions stay locked, so a read of such a node fails
    /// ([`Tries::fail`]).
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// True after [`Stripes::abandon`].
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Validates the version of a node: true if the node did not change since the version was read.
    #[inline(always)]
    pub fn check(&self, version: Version) -> bool {
        if !is_omitted(Omission::ValidationFence) {
            fence(Ordering::Acquire);
        }
        let now = self.stripe(version.index).load(Ordering::Relaxed);
        now == version.even || is_omitted(Omission::Validation)
    }

    /// One attempt of a reader to descend from the root. The child's version is read before the parent's is validated, so each node
    /// was in its place when the reader arrived. `root` reads the root's address. `step` says for a node whether it is the target,
    /// or which child is next. `None`: a validation failed, try again. O(levels).
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
        // The mask never changes an index. It shows the compiler that the index is in bounds.
        &self.table[index & (STRIPES - 1)]
    }

    /// Begins a read that has no failed validations yet.
    #[inline(always)]
    pub fn tries(&self) -> Tries<'_> {
        Tries { stripes: self, failed: 0 }
    }

    /// Writer: called before its first store, with the writer's mutex held. A reader that sees a store of this writer then sees, in
    /// its validation, the version changes of earlier writers.
    #[inline(always)]
    pub fn take_over(&self) {
        if !is_omitted(Omission::TakeOver) {
            fence(Ordering::Release);
        }
    }

    /// Writer: waits for readers that failed too often. Called without a locked version.
    #[inline(always)]
    pub fn give_way(&self) {
        // No order is needed: a request that is seen late costs the reader one more attempt.
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

    /// Writer: as [`Stripes::lock`], but first waits for readers that failed too often. It does not wait while it holds a locked
    /// version, because such a reader may be waiting for that version.
    #[inline]
    pub fn lock_in_turn(&self, node: u64, held: &mut Held) {
        if held.0.is_empty() {
            self.give_way();
        }
        self.lock(node, held);
    }

    /// Writer: locks the version of a node that is about to change. Locking it twice has no further effect.
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
        if !is_omitted(Omission::LockFence) {
            fence(Ordering::Release);
        }
        held.0.push(index);
    }

    /// Writer: locks all versions.
    pub fn lock_all(&self, held: &mut Held) {
        for index in 0..1 << (u64::BITS - self.shift) {
            self.lock_stripe(index, held);
        }
    }

    /// Writer: unlocks the held versions, after the last fence of the changes.
    #[inline]
    pub fn unlock(&self, held: &mut Held) {
        for index in held.0.drain(..) {
            let stripe = self.stripe(index);
            let order = if is_omitted(Omission::Unlock) { Ordering::Relaxed } else { Ordering::Release };
            stripe.store(stripe.load(Ordering::Relaxed) + 1, order);
        }
    }
}

impl Tries<'_> {
    /// Counts a failed validation: the reader will try again.
    ///
    /// # Errors
    /// `Failed` if no retry can succeed: the writer panicked while it changed the nodes that are read.
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

    /// A reader that failed too often between a writer's two locks waits for the first version. A writer that waited for it would
    /// wait forever.
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
