//! Atomics and waiting for the protocols between threads: loom's in the models, the processor's everywhere else.
//!
//! A model is a test module under `cfg(loom)`; `cargo xtask test` runs it, with this door turned.

#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, fence};
#[cfg(all(test, loom))]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::sync::atomic::Ordering;
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, fence};
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// Waits a little. Who is waited for may have lost its processor in the middle of its work: now and then it gets ours.
#[cfg(not(all(test, loom)))]
pub(crate) fn pause(spins: u32) {
    if spins % 64 == 63 { std::thread::yield_now() } else { std::hint::spin_loop() }
}

/// Lets the other threads of the model run.
#[cfg(all(test, loom))]
pub(crate) fn pause(_spins: u32) {
    loom::thread::yield_now();
}
