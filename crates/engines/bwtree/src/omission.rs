//! Fault injection: each fault leaves out a part of a protocol, so that a test can show that models or schedules detect it.
//!
//! Faults can be injected only in models and schedules. In other builds [`is_omitted`] is constant and costs nothing.

/// The part of a protocol that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omission {
    /// A writer installs a change of a record by a load and a store, not by one exchange.
    Update,
    /// A thread installs a consolidated page by a load and a store, not by one exchange.
    Consolidation,
    /// A thread installs a structure change by a load and a store, not by one exchange.
    Structure,
    /// A thread posts an index term without the validation that the split still exists.
    Validation,
    /// Retired memory is freed although a thread may still read it.
    Pins,
    /// PIDs are reused at once.
    Pids,
    /// A writer checks a place and claims it in two steps.
    Claim,
    /// A leaf is evicted although its newest state is not the saved one.
    Clean,
    /// The eviction does not look at a page again after it decided to skip the page from now on.
    Candidate,
    /// A leaf is evicted although its right sibling is being merged into it.
    Merging,
    /// A late change does not remove the copy of its key.
    Copy,
    /// A lookup reads the base of saved changes, although they have the key.
    Digest,
    /// A batch is put on the depot's stack without release order. Only models have a memory order that is weak enough to detect this.
    Depot,
}

/// True while this fault is injected.
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

    // All threads of a model or a schedule run on one thread of the system.
    thread_local!(static OMITTED: Cell<Option<Omission>> = const { Cell::new(None) });

    /// Injects this fault, or none, into all later explorations of this thread.
    pub fn omit(omission: impl Into<Option<Omission>>) {
        OMITTED.set(omission.into());
    }

    /// True while this fault is injected.
    pub fn is_omitted(omission: Omission) -> bool {
        OMITTED.get() == Some(omission)
    }
}
