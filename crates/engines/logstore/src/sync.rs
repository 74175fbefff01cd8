//! The atomics and locks of the protocols between threads: the processor's, or in models those of the model checker loom.

#[cfg(all(test, loom))]
use loom::sync as side;
#[cfg(not(all(test, loom)))]
use std::sync as side;

pub(crate) use side::atomic::{AtomicBool, AtomicU64, fence};
pub(crate) use side::{Condvar, Mutex, MutexGuard};
pub(crate) use std::sync::PoisonError;
pub(crate) use std::sync::atomic::Ordering;

/// A sequentially consistent fence directly after a read-modify-write operation of this thread. On x86 that operation is already such a
/// fence, so only the compiler needs one.
#[inline(always)]
pub(crate) fn fence_behind_exchange() {
    #[cfg(all(target_arch = "x86_64", not(all(test, loom)), not(miri)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(all(test, loom)), not(miri))))]
    fence(Ordering::SeqCst);
}

/// Locks, if no other thread has the lock.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// Lets other threads run. Called by a thread that waits for a short step of another one.
pub(crate) fn pause() {
    #[cfg(all(test, loom))]
    loom::thread::yield_now();
    #[cfg(not(all(test, loom)))]
    std::thread::yield_now();
}

/// Locks. A thread that panicked leaves the data of these locks usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
