//! Flushes and fences, as the thesis prescribes them or with fewer fences.
//!
//! In the thesis (§4.1) each flush consists of a fence, the write-back of the lines, and another fence. The memory model here needs less: a
//! flushed line is durable after the next fence of any thread. [`Persist`] contains only this difference.

use pmem::{Fence, Medium};

/// See the module's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persist {
    /// A fence before and after each flush, as the thesis prescribes.
    pub faithful: bool,
}

impl Persist {
    /// Flushes the lines of `at..at + bytes`. Under `faithful` it also waits for them.
    #[track_caller]
    #[inline]
    pub fn flush<M: Medium>(self, medium: &M, at: u64, bytes: u64) {
        if self.faithful {
            medium.fence(Fence::Payload);
        }
        medium.flush(at, bytes);
        if self.faithful {
            medium.fence(Fence::Payload);
        }
    }

    /// Waits for flushed lines. Under `faithful` they are already durable.
    #[track_caller]
    #[inline]
    pub fn fence<M: Medium>(self, medium: &M, why: Fence) {
        if !self.faithful {
            medium.fence(why);
        }
    }
}
