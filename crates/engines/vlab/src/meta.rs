//! The meta block: the heads of the bucket lists, and the phase of the running combine. A combine makes a new directory of all buckets
//! ([`crate::combine`]). Only with the option `faithful`, new buckets are in a second list. Then a combine also merges the second list into
//! the first and rewrites the links of the buckets.
//!
//! ```text
//! word 0   head of the list (self-checking)
//! word 1   with `faithful`: head of the second list (self-checking; 0: the list is empty)
//! word 2   `faithful` or not, and the phase of the running combine (self-checking)
//! word 7   a cleared structure that is being freed ([`index::leaf_list::garbage`])
//! ```
//!
//! Invariant: the first bucket has no `min` and always stays the first. So word 0 is written once in a block's life.

use index::leaf_list::garbage::GARBAGE;
use pmem::region::{Garbage, checked, unchecked};
use pmem::{Error, LINE, Medium, Result, WORD};

/// Bytes of the block.
pub(crate) const META_BYTES: u64 = LINE;
const HEAD: u64 = 0;
const SECOND: u64 = WORD;
const MODE: u64 = 2 * WORD;
const FAITHFUL: u64 = 1 << 8;

/// The phase of a combine that rewrites durable links [VLAB figure 14].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// `nxt` links the buckets of both lists; `vnxt` has no meaning.
    Idle,
    /// `vnxt` links all buckets in one list.
    Linked,
    /// `nxt` links all buckets in one list; `vnxt` is being cleared.
    Copied,
}

impl Phase {
    fn of(code: u64) -> Option<Self> {
        [Self::Idle, Self::Linked, Self::Copied].into_iter().find(|phase| *phase as u64 == code)
    }
}

/// The meta block: its offset in the region, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta(pub u64);

impl Meta {
    fn read<M: Medium>(self, medium: &M, offset: u64, what: &'static str) -> Result<u64> {
        let at = self.0 + offset;
        unchecked(medium.word(at)).ok_or(Error::Corrupt { what, at })
    }

    /// Writes a new block for a list that begins with `head`, and flushes it.
    pub(crate) fn create<M: Medium>(self, medium: &M, head: u64, faithful: bool) {
        for (i, word) in self.words(head, faithful).into_iter().enumerate() {
            medium.copy(self.0 + i as u64 * WORD, word);
        }
        medium.copy(self.0 + GARBAGE, Garbage::word(None));
        medium.flush(self.0, META_BYTES);
    }

    fn words(self, head: u64, faithful: bool) -> [u64; 3] {
        [checked(head / WORD), checked(0), checked(if faithful { FAITHFUL } else { 0 })]
    }

    /// The first bucket.
    pub(crate) fn head<M: Medium>(self, medium: &M) -> Result<u64> {
        Ok(self.read(medium, HEAD, "head of the list")? * WORD)
    }

    /// Offset of the word that references the first bucket of the second list.
    pub(crate) fn second_at(self) -> u64 {
        self.0 + SECOND
    }

    /// The first bucket of the second list, 0 if it is empty.
    pub(crate) fn second<M: Medium>(self, medium: &M) -> Result<u64> {
        Ok(self.read(medium, SECOND, "head of the second list")? * WORD)
    }

    /// True for `faithful`, and the phase of the running combine.
    pub(crate) fn mode<M: Medium>(self, medium: &M) -> Result<(bool, Phase)> {
        let word = self.read(medium, MODE, "phase of a combine")?;
        let phase =
            Phase::of(word & 0xFF).ok_or(Error::Corrupt { what: "phase of a combine", at: self.0 + MODE })?;
        Ok((word & FAITHFUL != 0, phase))
    }

    /// Publishes the phase of the running combine and flushes it.
    pub(crate) fn publish_phase<M: Medium>(self, medium: &M, phase: Phase) {
        medium.publish(self.0 + MODE, checked(FAITHFUL | phase as u64));
        medium.flush(self.0, META_BYTES);
    }

    /// Publishes, in one line, that no combine runs and the second list is empty. Flushes it.
    pub(crate) fn publish_idle<M: Medium>(self, medium: &M) {
        medium.copy(self.0 + SECOND, checked(0));
        self.publish_phase(medium, Phase::Idle);
    }
}
