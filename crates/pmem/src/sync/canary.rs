//! Injected faults. An injected fault leaves out a part of a protocol between threads. Tests use it to prove that models and schedules
//! detect the missing part.
//!
//! A part can be left out only in models and schedules. In other builds [`sings`] is a constant and costs nothing.

/// A part of a protocol that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A reader's first read of a version does not wait for the writer: the reader sees data that is not durable yet.
    FirstLook,
    /// A reader's validation always succeeds.
    SecondLook,
    /// A reader of a list of leaves does not wait until the structures that lead to them are complete.
    Settled,
    /// A reader of a list of leaves does not validate that these structures are unchanged.
    Changes,
    /// The writer passes no release fence before it changes these structures.
    ChangesFence,
    /// Readers do not check whether a batch runs.
    Batches,
    /// Readers do not check whether the data that they read is durable.
    Notes,
    /// The writer's unlock of a version is not a release. Only models have an order weak enough to detect this fault and the
    /// following ones.
    Unlock,
    /// The writer's lock of a version is not followed by a release fence.
    LockFence,
    /// A new writer omits its release fence.
    TakeOver,
    /// A reader's first read of a version is not an acquire.
    FirstLookOrder,
    /// A reader's validation omits its acquire fence.
    SecondLookFence,
    /// A leader does not set the flag that there is a leader.
    Lead,
    /// The writer does not clear a kept line.
    KeptClear,
    /// A reader that fills a kept line does not validate after it has taken the line.
    KeptCheck,
}

/// True while this part is left out.
#[cfg(not(any(all(test, loom), shuttle)))]
#[inline(always)]
pub const fn sings(_canary: Canary) -> bool {
    false
}

#[cfg(any(all(test, loom), shuttle))]
pub use explored::{sing, sings};

#[cfg(any(all(test, loom), shuttle))]
mod explored {
    use std::cell::Cell;

    use super::Canary;

    // All threads of a model or a schedule run in one thread of the system.
    thread_local!(static SINGS: Cell<Option<Canary>> = const { Cell::new(None) });

    /// Leaves out this part, or none, in all explorations of this thread from now on.
    pub fn sing(canary: impl Into<Option<Canary>>) {
        SINGS.set(canary.into());
    }

    /// True while this part is left out.
    pub fn sings(canary: Canary) -> bool {
        SINGS.get() == Some(canary)
    }
}
