//! The meta block of an engine that adds no words of its own. It references the head of the list and the part of a
//! cleared list that is not freed yet. A clear writes a new meta block.
//!
//! ```text
//! word 0        head of the list (self-checking)
//! words 1 to 6  unused
//! word 7        the garbage of a clear ([`super::garbage`])
//! ```

use pmem::region::{Garbage, checked, unchecked};
use pmem::{Error, LINE, Medium, Result, WORD};

use super::garbage::GARBAGE;

/// Bytes of the block.
pub const META_BYTES: u64 = LINE;

/// The offset of the block.
#[derive(Clone, Copy, Debug)]
pub struct Meta(pub u64);

impl Meta {
    /// Writes a new block for a list that begins with `head`, and flushes it.
    pub fn create<M: Medium>(self, medium: &M, head: u64) {
        medium.copy(self.0, checked(head / WORD));
        medium.copy(self.0 + GARBAGE, Garbage::word(None));
        medium.flush(self.0, META_BYTES);
    }

    /// The first leaf.
    ///
    /// # Errors
    /// `Corrupt` if the word does not match its check.
    pub fn head<M: Medium>(self, medium: &M) -> Result<u64> {
        match unchecked(medium.word(self.0)) {
            Some(head) => Ok(head * WORD),
            None => Err(Error::Corrupt { what: "head of the list", at: self.0 }),
        }
    }
}
