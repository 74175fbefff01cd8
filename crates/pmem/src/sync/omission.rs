//! Injected faults. An injected fault leaves out a part of a protocol between threads. Tests use it to prove that models and schedules
//! detect the missing part.
//!
//! A part can be left out only in models and schedules. In other builds [`is_omitted`] is a constant and costs nothing.

/// A part of a protocol that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omission {
    /// A reader's first read of a version does not wait for the writer: the reader sees data that is not durable yet.
    FirstRead,
    /// A reader's validation always succeeds.
    Validation,
    /// A reader of a list of leaves does not wait until the structures that lead to them are complete.
    Settled,
    /// A reader of a list of leaves does not validate that these structures are unchanged.
    Changes,
    /// The writer passes no release fence before it changes these structures.
    ChangesFence,
    /// Readers do not check whether a batch runs.
    Batches,
    /// Readers do not check whether the data that they read is durable.
    DirtyMarks,
    /// The writer's unlock of a version is not a release. Only models have an order weak enough to detect this fault and the
    /// following ones.
    Unlock,
    /// The writer's lock of a version is not followed by a release fence.
    LockFence,
    /// A new writer omits its release fence.
    TakeOver,
    /// A reader's first read of a version is not an acquire.
    FirstReadOrder,
    /// A reader's validation omits its acquire fence.
    ValidationFence,
    /// A leader does not set the flag that there is a leader.
    Lead,
    /// The writer does not clear a kept line.
    KeptClear,
    /// A reader that fills a kept line does not validate after it has taken the line.
    KeptCheck,
    /// A reader of a kept line does not look at the line's state again.
    KeptRead,
    /// A transaction commits without a comparison of the keys that it read.
    ReadValidation,
    /// A transaction compares the keys that it read before the commit, and not in the step of the commit.
    ReadConditions,
    /// A transaction commits without a scan of the ranges that it scanned.
    ScanValidation,
    /// A transaction lets other writers run between the validation of its scans and its commit.
    ScanGate,
}

/// True while this part is left out.
#[cfg(not(any(all(test, loom), shuttle)))]
#[inline(always)]
pub const fn is_omitted(_omission: Omission) -> bool {
    false
}

#[cfg(any(all(test, loom), shuttle))]
pub use explored::{is_omitted, omit};

#[cfg(any(all(test, loom), shuttle))]
mod explored {
    use std::cell::Cell;

    use super::Omission;

    // All threads of a model or a schedule run in one thread of the system.
    thread_local!(static OMITTED: Cell<Option<Omission>> = const { Cell::new(None) });

    /// Leaves out this part, or none, in all explorations of this thread from now on.
    pub fn omit(omission: impl Into<Option<Omission>>) {
        OMITTED.set(omission.into());
    }

    /// True while this part is left out.
    pub fn is_omitted(omission: Omission) -> bool {
        OMITTED.get() == Some(omission)
    }
}
