//! The meta block: the head of the list, and the rest of a cleared list. Word 0 never changes: a clear writes a new meta block.
//!
//! ```text
//! word 0 head of the list (self-checking)   1..7 unused   7 a cleared list that is being freed ([`index::leaf_list::garbage`])
//! ```

use index::leaf_list::garbage::GARBAGE;
use pmem::region::{Garbage, checked, unchecked};
use pmem::{Error, LINE, Medium, Result, WORD};

/// Bytes of the block.
pub(crate) const META_BYTES: u64 = LINE;

/// The offset of the block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta(pub u64);

impl Meta {
    /// Writes a new block for a list that begins with `head`, and flushes it.
    pub(crate) fn create<M: Medium>(self, medium: &M, head: u64) {
        medium.copy(self.0, checked(head / WORD));
        medium.copy(self.0 + GARBAGE, Garbage::word(None));
        medium.flush(self.0, META_BYTES);
    }

    /// The first leaf.
    pub(crate) fn head<M: Medium>(self, medium: &M) -> Result<u64> {
        let head = unchecked(medium.word(self.0)).map(|head| head * WORD);
        head.ok_or(Error::Corrupt { what: "head of the list", at: self.0 })
    }
}
