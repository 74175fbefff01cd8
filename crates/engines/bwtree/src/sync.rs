//! Atomics and cells for the protocols between threads. Everything else of this space imports them from here, so that one door decides
//! whose they are:
//!
//! * the processor's, in every build that is shipped;
//! * loom's in the models (test modules under `cfg(loom)`): every order of a few operations' loads and stores;
//! * shuttle's in the schedules (under `cfg(shuttle)`): whole lives of small trees, many random orders of their steps.
//!
//! `cargo xtask test` runs both, with this door turned.
//!
//! Counters for `stats` do not come through this door: no protocol reads them.

#[cfg(all(test, loom))]
use loom::sync as side;
#[cfg(shuttle)]
use shuttle::sync as side;
#[cfg(not(any(all(test, loom), shuttle)))]
use std::sync as side;

pub(crate) use side::atomic::{AtomicPtr, AtomicU64, fence};
pub(crate) use std::sync::atomic::Ordering;

use crate::canary::{Canary, sings};

/// True in builds whose threads are a model's or a schedule's: constants shrink there.
pub(crate) const IS_SMALL: bool = cfg!(any(all(test, loom), shuttle));

/// The one way a word of the mapping table changes: from `old` to `new` if it still is `old`.
///
/// Release, so that who reads `new` sees what it points to; acquire on both ends, so that the loser sees what the winner wrote.
#[inline(always)]
pub(crate) fn exchange<T>(word: &AtomicPtr<T>, old: *mut T, new: *mut T, canary: Canary) -> bool {
    if sings(canary) {
        // A look and a store: what the whole space is about not doing.
        let is_old = word.load(Ordering::Acquire) == old;
        if is_old {
            word.store(new, Ordering::Release);
        }
        return is_old;
    }
    word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// A sequentially consistent fence right behind an exchange of this thread. On x86 the exchange's instruction is one already, and a second one
/// would only cost.
#[inline(always)]
pub(crate) fn fence_behind_exchange() {
    #[cfg(all(target_arch = "x86_64", not(any(all(test, loom), shuttle, miri))))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(any(all(test, loom), shuttle, miri)))))]
    fence(Ordering::SeqCst);
}

/// A number of this thread: threads of different numbers begin to look for a thread slot at different places. Who ends leaves his number to who
/// comes next, and with it a thread slot whose pool is full.
#[cfg(not(any(all(test, loom), shuttle)))]
#[inline(always)]
pub(crate) fn thread_number() -> usize {
    thread_local!(static NUMBER: numbers::Number = numbers::Number::new());
    NUMBER.try_with(|number| number.0).unwrap_or(0)
}

#[cfg(not(any(all(test, loom), shuttle)))]
mod numbers {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    /// Of each small number a bit: some thread has it.
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    static NEXT: AtomicUsize = AtomicUsize::new(SMALL);
    const SMALL: usize = u64::BITS as usize;

    pub(super) struct Number(pub(super) usize);

    impl Number {
        /// The smallest that no thread has; if all small ones are taken, one that no thread had.
        pub(super) fn new() -> Self {
            let take = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
            let before = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
            Self(before.map_or_else(
                |_| NEXT.fetch_add(1, Ordering::Relaxed),
                |taken| taken.trailing_ones() as usize,
            ))
        }
    }

    impl Drop for Number {
        fn drop(&mut self) {
            if self.0 < SMALL {
                TAKEN.fetch_and(!(1 << self.0), Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn who_ends_leaves_his_number() {
        let number = || std::thread::spawn(super::thread_number).join().unwrap();
        // Other tests have threads too, but not so many.
        let (first, held) = (number(), Number::new());
        assert!(first < SMALL && held.0 < SMALL);
        let numbers: std::collections::HashSet<_> = (0..100).map(|_| number()).collect();
        assert!(!numbers.contains(&held.0) && numbers.len() < SMALL, "{numbers:?}");
    }
}

/// The number that the thread of the model was given, 0 otherwise.
#[cfg(all(test, loom))]
pub(crate) fn thread_number() -> usize {
    NUMBER.with(std::cell::Cell::get)
}

#[cfg(all(test, loom))]
loom::thread_local! {
    /// See [`thread_number`].
    pub(crate) static NUMBER: std::cell::Cell<usize> = std::cell::Cell::new(0);
}

/// The number of the schedule's thread.
#[cfg(shuttle)]
pub(crate) fn thread_number() -> usize {
    shuttle::current::me().into()
}

/// A cell whose owner is decided by a protocol. loom's complains if two accesses are not ordered.
#[cfg(all(test, loom))]
pub(crate) use loom::cell::UnsafeCell as OwnedCell;

/// A cell whose owner is decided by a protocol.
#[cfg(not(all(test, loom)))]
#[derive(Debug)]
pub(crate) struct OwnedCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(all(test, loom)))]
impl<T> OwnedCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Gives out a pointer for reading.
    #[inline(always)]
    pub(crate) fn with<R>(&self, use_it: impl FnOnce(*const T) -> R) -> R {
        use_it(self.0.get())
    }

    /// Gives out a pointer for writing.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, use_it: impl FnOnce(*mut T) -> R) -> R {
        use_it(self.0.get())
    }
}

/// What every node carries in models and schedules, and nothing elsewhere: who follows a pointer to a node that was freed is
/// found out, and in the models also who follows one that was not published to him.
#[derive(Debug)]
pub(crate) struct Watch {
    #[cfg(any(all(test, loom), shuttle))]
    freed: std::sync::atomic::AtomicBool,
    #[cfg(all(test, loom))]
    cell: OwnedCell<()>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(any(all(test, loom), shuttle))]
            freed: false.into(),
            #[cfg(all(test, loom))]
            cell: OwnedCell::new(()),
        }
    }

    /// Stands where a pointer to the node is followed.
    #[inline(always)]
    pub(crate) fn look(&self) {
        #[cfg(any(all(test, loom), shuttle))]
        assert!(!self.freed.load(Ordering::Relaxed), "a node is read that was freed");
        #[cfg(all(test, loom))]
        self.cell.with(|_| ());
    }

    /// Stands where the node is freed.
    #[inline(always)]
    pub(crate) fn free(&self) {
        #[cfg(any(all(test, loom), shuttle))]
        assert!(!self.freed.swap(true, Ordering::Relaxed), "a node is freed twice");
        #[cfg(all(test, loom))]
        self.cell.with_mut(|_| ());
    }
}
