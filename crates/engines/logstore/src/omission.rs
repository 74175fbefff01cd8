//! Injected faults: each leaves out a step of the commit protocol, so that a test can show that its oracle notices the missing step.
//!
//! Faults can be injected only with the feature `omissions`, which the tests of this crate alone enable. In other builds [`is_omitted`] is
//! constant and costs nothing.

/// The step that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omission {
    /// A block of the log counts as durable before its sync (L1).
    LogSync,
    /// A checkpoint names images that are not synced (P2).
    ImageSync,
    /// A checkpoint names images with updates that are not durable in the log (C1).
    StableImages,
    /// The directory is not synced after the rename of a checkpoint.
    Rename,
    /// Segments are removed before the checkpoint that frees them is published (P3).
    Removal,
    /// A segment is removed although changes have their base there (P3).
    Bases,
    /// A leaf is evicted, and read again, although its image is not written (P1).
    Written,
    /// The replay begins at the end of the log, also if records below it are unfinished (C2).
    Redo,
    /// No step is missing: a writer sleeps between its record and its update, so that [`Redo`](Self::Redo) has an effect.
    Slow,
    /// The replay applies void records.
    Void,
    /// Recovery does not sync the log that it continues (L6).
    RecoveredLog,
    /// Recovery removes segments before it has made the checkpoint durable (P3).
    RecoveredNames,
}

/// True while this fault is injected.
#[cfg(not(feature = "omissions"))]
#[inline(always)]
pub const fn is_omitted(_omission: Omission) -> bool {
    false
}

#[cfg(feature = "omissions")]
pub use injected::{is_omitted, omit};

#[cfg(feature = "omissions")]
mod injected {
    use std::cell::Cell;

    use super::Omission;

    // Tests run at the same time in threads of one process.
    thread_local!(static OMITTED: Cell<Option<Omission>> = const { Cell::new(None) });

    /// Injects this fault, or none, into all later steps of this thread.
    pub fn omit(omission: impl Into<Option<Omission>>) {
        OMITTED.set(omission.into());
    }

    /// True while this fault is injected.
    pub fn is_omitted(omission: Omission) -> bool {
        OMITTED.get() == Some(omission)
    }
}
