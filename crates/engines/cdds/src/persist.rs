//! How often one waits for memory.
//!
//! The thesis (§4.1) makes each of its flushes a fence, a write-back and a fence. The memory model here needs less: what was
//! flushed is durable after the next fence, whoever passes it. [`Persist`] is that difference and nothing else.

use pmem::{Fence, Medium};

/// See the module's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persist {
    /// A fence before and after each flush, as the thesis prescribes.
    pub faithful: bool,
}

impl Persist {
    /// Starts the write-back of the lines of `at..at + bytes`; as in the thesis, waits for it.
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

    /// Waits for what was flushed, unless that was done.
    #[track_caller]
    #[inline]
    pub fn fence<M: Medium>(self, medium: &M, why: Fence) {
        if !self.faithful {
            medium.fence(why);
        }
    }
}
