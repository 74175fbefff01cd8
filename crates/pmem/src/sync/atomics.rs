//! Atomics, locks and waiting for the protocols between threads. Everything else imports them from here, this space and those
//! above it, so that one door decides whose they are:
//!
//! * the processor's, in every build that is shipped;
//! * loom's in the models: test modules of this space under `cfg(loom)`, every order of a small protocol's loads and stores;
//! * shuttle's in the schedules: whole operations of a tree under `cfg(shuttle)`, many random orders of their steps.
//!
//! `cargo xtask test` runs both, with this door turned.

#[cfg(all(test, loom))]
use loom::sync as side;
#[cfg(shuttle)]
use shuttle::sync as side;
#[cfg(not(any(all(test, loom), shuttle)))]
use std::sync as side;

pub use side::atomic::{AtomicBool, AtomicU8, AtomicU64, fence};
pub use side::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use std::sync::atomic::Ordering;

/// Lets the other threads run, of the system, of the model or of the schedule. For who waits for what another does in a moment, unless
/// that other has lost its processor.
#[cfg(all(test, loom))]
pub use loom::thread::yield_now;
#[cfg(shuttle)]
pub use shuttle::thread::yield_now;
#[cfg(not(any(all(test, loom), shuttle)))]
pub use std::thread::yield_now;

/// Locks of parts that no model has, with what loom's cannot do.
pub(crate) mod unmodelled {
    #[cfg(shuttle)]
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    #[cfg(not(shuttle))]
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
}

/// Waits a little. Who is waited for may have lost its processor in the middle of its work: now and then it gets ours.
#[cfg(not(any(all(test, loom), shuttle)))]
pub(crate) fn pause(spins: u32) {
    if spins % 64 == 63 { yield_now() } else { std::hint::spin_loop() }
}

/// Lets the other threads of the model, or of the schedule, run.
#[cfg(any(all(test, loom), shuttle))]
pub(crate) fn pause(_spins: u32) {
    yield_now();
}

/// Stands before a step on something shared that does not come through this door: a schedule may switch here.
#[cfg(not(shuttle))]
#[inline(always)]
pub fn step() {}

/// Another thread of the schedule may go on.
#[cfg(shuttle)]
pub fn step() {
    AtomicBool::new(false).load(Ordering::SeqCst);
}
