//! Protocols between threads, and the atomics and locks that they use.

pub(crate) mod atomics;
pub mod changes;
pub mod gathering;
pub mod kept;
#[cfg(all(test, loom))]
pub(crate) mod model;
pub mod omission;
pub mod pending;
pub mod stripe;

pub use atomics::{
    AtomicBool, AtomicU8, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, RwLock, RwLockReadGuard,
};
pub use atomics::{RwLockWriteGuard, fence, step, yield_now};
