//! Atomics, locks and functions to wait, for the protocols between threads. Every protocol that a model or a schedule checks imports
//! them from here, in this crate and in the crates above it. So one module selects the implementation:
//!
//! * In every build that is shipped: the standard library's.
//! * In the models, which are test modules of this crate under `cfg(loom)`: loom's. Loom runs every order of the loads and stores of
//!   a small protocol.
//! * In the schedules, under `cfg(shuttle)`: shuttle's. Shuttle runs whole operations of a tree in many random orders of their steps.
//!
//! `cargo xtask test` runs both.

#[cfg(all(test, loom))]
use loom::sync as side;
#[cfg(shuttle)]
use shuttle::sync as side;
#[cfg(not(any(all(test, loom), shuttle)))]
use std::sync as side;

pub use side::atomic::{AtomicBool, AtomicU8, AtomicU64, fence};
pub use side::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use std::sync::atomic::Ordering;

/// Lets the other threads of the system, of the model or of the schedule run. For a thread that waits for an action that takes only
/// a moment, unless the other thread lost its processor.
#[cfg(all(test, loom))]
pub use loom::thread::yield_now;
#[cfg(shuttle)]
pub use shuttle::thread::yield_now;
#[cfg(not(any(all(test, loom), shuttle)))]
pub use std::thread::yield_now;

/// A variable of each thread.
#[cfg(shuttle)]
pub(crate) use shuttle::thread_local;
#[cfg(not(shuttle))]
pub(crate) use std::thread_local;

/// Locks for parts that are in no model. They have functions that loom's locks lack.
pub(crate) mod unmodelled {
    #[cfg(shuttle)]
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    #[cfg(not(shuttle))]
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
}

/// Waits a little. The other thread may have lost its processor in the middle of its work, so from time to time this thread yields.
#[cfg(not(any(all(test, loom), shuttle)))]
pub(crate) fn pause(spins: u32) {
    if spins % 64 == 63 { yield_now() } else { std::hint::spin_loop() }
}

/// Lets the other threads of the model or the schedule run.
#[cfg(any(all(test, loom), shuttle))]
pub(crate) fn pause(_spins: u32) {
    yield_now();
}

/// Marks a step on shared data that does not use this module: a schedule may switch threads here.
#[cfg(not(shuttle))]
#[inline(always)]
pub fn step() {}

/// A point at which the schedule may switch threads.
#[cfg(shuttle)]
pub fn step() {
    AtomicBool::new(false).load(Ordering::SeqCst);
}
