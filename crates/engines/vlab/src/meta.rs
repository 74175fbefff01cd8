//! The meta block: the heads of the lists, and what a combine that rewrites them has come to.
//!
//! ```text
//! word 0 head of the list (checks itself)   1 head of the second list, `faithful` (checks itself; 0 in it: empty)
//! word 2 how splits and combines go, and the phase of the running combine (checks itself)   7 what a clear left to be
//! freed ([`index::leaf_list::garbage`])
//! ```
//!
//! Invariant: the first bucket has no `min` and stays the first for good, so word 0 is written once in a block's life.

use index::leaf_list::garbage::GARBAGE;
use pmem::region::{Garbage, checked, unchecked};
use pmem::{Error, LINE, Medium, Result, WORD};

/// Bytes of the block.
pub(crate) const META_BYTES: u64 = LINE;
const HEAD: u64 = 0;
const SECOND: u64 = WORD;
const MODE: u64 = 2 * WORD;
const FAITHFUL: u64 = 1 << 8;

/// What a combine that rewrites durable links has come to [VLAB figure 14].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// `nxt` of two lists is the truth; `vnxt` means nothing.
    Idle,
    /// `vnxt` is the truth, of all buckets.
    Linked,
    /// `nxt` of one list is the truth; `vnxt` is being cleared.
    Copied,
}

impl Phase {
    fn of(code: u64) -> Option<Self> {
        [Self::Idle, Self::Linked, Self::Copied].into_iter().find(|phase| *phase as u64 == code)
    }
}

/// Where the block is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta(pub u64);

impl Meta {
    fn read<M: Medium>(self, medium: &M, offset: u64, what: &'static str) -> Result<u64> {
        let at = self.0 + offset;
        unchecked(medium.word(at)).ok_or(Error::Corrupt { what, at })
    }

    /// Writes a new block for a list that begins with `head`, and starts writing it back.
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

    /// Where the word is that names the first bucket of the second list.
    pub(crate) fn second_at(self) -> u64 {
        self.0 + SECOND
    }

    /// The first bucket of the second list, 0 if it is empty.
    pub(crate) fn second<M: Medium>(self, medium: &M) -> Result<u64> {
        Ok(self.read(medium, SECOND, "head of the second list")? * WORD)
    }

    /// Whether splits and combines go as the paper says, and the phase.
    pub(crate) fn mode<M: Medium>(self, medium: &M) -> Result<(bool, Phase)> {
        let word = self.read(medium, MODE, "phase of a combine")?;
        let phase =
            Phase::of(word & 0xFF).ok_or(Error::Corrupt { what: "phase of a combine", at: self.0 + MODE })?;
        Ok((word & FAITHFUL != 0, phase))
    }

    /// Publishes the phase of the running combine and starts writing it back.
    pub(crate) fn publish_phase<M: Medium>(self, medium: &M, phase: Phase) {
        medium.publish(self.0 + MODE, checked(FAITHFUL | phase as u64));
        medium.flush(self.0, META_BYTES);
    }

    /// Publishes that no combine runs and the second list is empty, in one line, and starts writing it back.
    pub(crate) fn publish_idle<M: Medium>(self, medium: &M) {
        medium.copy(self.0 + SECOND, checked(0));
        self.publish_phase(medium, Phase::Idle);
    }
}
