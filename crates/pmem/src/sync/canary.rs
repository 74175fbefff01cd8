//! Parts of the protocols between threads that are left out on purpose, so that it can be seen whether models and schedules notice.
//!
//! Only there can any of them be left out; elsewhere the question is a constant, and costs nothing.

/// A part that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A reader's first look does not wait for the writer: it sees what is not durable yet.
    FirstLook,
    /// A reader's second look tells of nothing.
    SecondLook,
    /// A reader of a list of leaves does not wait until what leads to them is whole.
    Settled,
    /// And does not ask at its second look whether that has changed.
    Changes,
    /// Readers do not ask whether a batch runs.
    Batches,
    /// Readers do not ask whether what they read is durable yet.
    Notes,
    /// The writer's unlock of a stripe is no release. Only models have an order weak enough, here and below.
    Unlock,
    /// The writer's lock of a stripe is not followed by a release fence.
    LockFence,
    /// A new writer passes no fence of its own.
    TakeOver,
    /// A reader's first look is no acquire.
    FirstLookOrder,
    /// A reader's second look comes without its acquire fence.
    SecondLookFence,
    /// A leader does not say that it leads.
    Lead,
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

    // All threads of a model or a schedule are one of the system's.
    thread_local!(static SINGS: Cell<Option<Canary>> = const { Cell::new(None) });

    /// From now on this part is left out in what this thread explores, or none.
    pub fn sing(canary: impl Into<Option<Canary>>) {
        SINGS.set(canary.into());
    }

    /// True while this part is left out.
    pub fn sings(canary: Canary) -> bool {
        SINGS.get() == Some(canary)
    }
}
