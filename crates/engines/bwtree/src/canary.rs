//! Parts of the protocols that are left out on purpose, so that it can be seen whether models and schedules notice.
//!
//! Only there can any of them be made to sing; elsewhere the question is a constant, and costs nothing.

/// A part that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A record's delta is stored, not exchanged for the head it was made for.
    Update,
    /// A consolidated page is stored, not exchanged for the chain it was made of.
    Consolidation,
    /// A delta of a structure change is stored, not exchanged for the head it was made for.
    Structure,
    /// Who posts an index term does not look again whether the split still stands.
    SecondLook,
    /// What is retired is freed without asking who may still read it.
    Pins,
    /// PIDs are used again at once.
    Pids,
    /// Who writes a change beside a leaf looks whether the place is taken, and takes it, in two steps.
    Claim,
    /// Who gives free blocks away does not see to it that who takes them sees what they are. Only models have an order weak enough.
    Depot,
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
