//! Parts of the protocols between threads that are left out on purpose, so that it can be seen whether the schedules notice.
//!
//! Only under `cfg(shuttle)` can any of them be made to sing; elsewhere the question is a constant, and costs nothing.

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
}

/// True while this part is left out.
#[cfg(not(shuttle))]
#[inline(always)]
pub const fn sings(_canary: Canary) -> bool {
    false
}

#[cfg(shuttle)]
pub use schedules::{sing, sings};

#[cfg(shuttle)]
mod schedules {
    use std::cell::Cell;

    use super::Canary;

    // All threads of a schedule are one of the system's.
    thread_local!(static SINGS: Cell<Option<Canary>> = const { Cell::new(None) });

    /// From now on this part is left out in schedules of this thread, or none.
    pub fn sing(canary: impl Into<Option<Canary>>) {
        SINGS.set(canary.into());
    }

    /// True while this part is left out.
    pub fn sings(canary: Canary) -> bool {
        SINGS.get() == Some(canary)
    }
}
