//! The only module that selects the atomics and cells for the protocols between threads. All other modules import them from here:
//!
//! * atomics of the processor and cells of the standard library, in every build that is shipped;
//! * those of the model checker loom, in the models (test modules under `cfg(loom)`): every order of the loads and stores of a few
//!   operations;
//! * those of the scheduler shuttle, in the schedules (under `cfg(shuttle)`): complete runs of small trees with many random orders of their
//!   steps.
//!
//! `cargo xtask test` runs models and schedules.
//!
//! Counters for statistics use the standard atomics directly, because no protocol reads them.

#[cfg(all(test, loom))]
use loom::sync as side;
#[cfg(shuttle)]
use shuttle::sync as side;
#[cfg(not(any(all(test, loom), shuttle)))]
use std::sync as side;

pub(crate) use side::atomic::{AtomicPtr, AtomicU64, fence};
pub(crate) use side::{Mutex, MutexGuard, RwLock};
pub(crate) use std::sync::atomic::Ordering;

use crate::omission::{Omission, is_omitted};

/// True in builds for models or schedules. Constants are smaller there.
pub(crate) const IS_SMALL: bool = cfg!(any(all(test, loom), shuttle));

/// Changes a word of the mapping table from `old` to `new`, if it still is `old`.
///
/// Release: a thread that reads `new` sees the node that it points to. Acquire on success and failure: the loser sees the winner's writes.
#[inline(always)]
pub(crate) fn exchange<T>(word: &AtomicPtr<T>, old: *mut T, new: *mut T, omission: Omission) -> bool {
    if is_omitted(omission) {
        // The injected fault: a load and a store instead of an exchange.
        let is_old = word.load(Ordering::Acquire) == old;
        if is_old {
            word.store(new, Ordering::Release);
        }
        return is_old;
    }
    word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// A sequentially consistent fence directly after an exchange of this thread. On x86 the exchange is already such a fence, so only the
/// compiler needs one.
#[inline(always)]
pub(crate) fn fence_behind_exchange() {
    #[cfg(all(target_arch = "x86_64", not(any(all(test, loom), shuttle, miri))))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(any(all(test, loom), shuttle, miri)))))]
    fence(Ordering::SeqCst);
}

/// The number of this thread. Threads with different numbers begin their search for a thread slot at different slots. A thread that ends
/// frees its number. The next thread with that number also gets the slot with its filled pool.
#[cfg(not(any(all(test, loom), shuttle)))]
#[inline(always)]
pub(crate) fn thread_number() -> usize {
    thread_local!(static NUMBER: numbers::Number = numbers::Number::new());
    NUMBER.try_with(|number| number.0).unwrap_or(0)
}

#[cfg(not(any(all(test, loom), shuttle)))]
mod numbers {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    /// One bit for each small number: set while a thread has it.
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    static NEXT: AtomicUsize = AtomicUsize::new(SMALL);
    const SMALL: usize = u64::BITS as usize;

    pub(super) struct Number(pub(super) usize);

    impl Number {
        /// The smallest number that no thread has. If all small numbers are taken, a number that no thread had.
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
        // Other tests run threads too, but fewer than there are small numbers.
        let (first, held) = (number(), Number::new());
        assert!(first < SMALL && held.0 < SMALL);
        let numbers: std::collections::HashSet<_> = (0..100).map(|_| number()).collect();
        assert!(!numbers.contains(&held.0) && numbers.len() < SMALL, "{numbers:?}");
    }
}

/// The number that the model gave this thread, otherwise 0.
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

/// A cell. A protocol decides which thread owns it. loom's cell fails if two accesses are not ordered.
#[cfg(all(test, loom))]
pub(crate) use loom::cell::UnsafeCell as OwnedCell;

/// A cell. A protocol decides which thread owns it.
#[cfg(not(all(test, loom)))]
#[derive(Debug)]
pub(crate) struct OwnedCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(all(test, loom)))]
impl<T> OwnedCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Calls `use_it` with a pointer for reading.
    #[inline(always)]
    pub(crate) fn with<R>(&self, use_it: impl FnOnce(*const T) -> R) -> R {
        use_it(self.0.get())
    }

    /// Calls `use_it` with a pointer for writing.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, use_it: impl FnOnce(*mut T) -> R) -> R {
        use_it(self.0.get())
    }
}

/// Detects accesses to freed nodes and records in models and schedules; empty in other builds. In models it also detects accesses to a node
/// that was not published to the accessing thread.
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

    /// Called where a pointer to the object is followed.
    #[inline(always)]
    pub(crate) fn look(&self) {
        #[cfg(any(all(test, loom), shuttle))]
        assert!(!self.freed.load(Ordering::Relaxed), "a node is read that was freed");
        #[cfg(all(test, loom))]
        self.cell.with(|_| ());
    }

    /// Called where the object is freed.
    #[inline(always)]
    pub(crate) fn free(&self) {
        #[cfg(any(all(test, loom), shuttle))]
        assert!(!self.freed.swap(true, Ordering::Relaxed), "a node is freed twice");
        #[cfg(all(test, loom))]
        self.cell.with_mut(|_| ());
    }
}
