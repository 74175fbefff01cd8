//! Size classes: the kind of a chunk's blocks, their size, and their offsets.

use crate::error::{Error, Result};
use crate::heap::region::{checked, unchecked};
use crate::medium::traits::WORD;

/// The kind of a chunk's blocks. Recovery asks the index a different question for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Leaves of an index, aligned to lines.
    Leaf,
    /// Inner nodes of an index, in chunks of their own so that few pages hold them all.
    Inner,
    /// Records that a leaf entry points to.
    Record,
    /// Separator keys that inner entries point to.
    Separator,
    /// Parts of a large value that a record or a batch lists.
    Piece,
    /// The record of a running batch.
    Batch,
}

impl Kind {
    const ALL: [Kind; 6] = [Kind::Leaf, Kind::Inner, Kind::Record, Kind::Separator, Kind::Piece, Kind::Batch];

    /// True for kinds that may have pieces.
    pub fn has_pieces(self) -> bool {
        matches!(self, Kind::Record | Kind::Batch)
    }

    /// True for nodes of an index.
    pub fn is_node(self) -> bool {
        matches!(self, Kind::Leaf | Kind::Inner)
    }

    fn code(self) -> u64 {
        self as u64 + 1
    }

    fn of(code: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// Block sizes are multiples of this many bytes.
const UNIT: u64 = 16;
const BLOCK_MIN: u64 = 32;

/// The layout of a chunk, stored in its word 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class {
    /// Kind of the blocks.
    pub kind: Kind,
    /// Bytes of a block.
    pub block_bytes: u64,
}

impl Class {
    /// The class of the smallest blocks that hold `bytes` bytes; `None` if no chunk holds such a block.
    ///
    /// Blocks of nodes have the exact size. Other blocks have sizes in steps of 16 bytes up to 256 bytes. Above 256 bytes, a step
    /// is an eighth of the next lower power of two. Above a tenth of a chunk, the size is the largest with which the same number
    /// of blocks fits into the chunk.
    pub(super) fn holding(kind: Kind, bytes: u64, chunk_bytes: u64) -> Option<Self> {
        let bytes = bytes.max(BLOCK_MIN).next_multiple_of(UNIT);
        let space = chunk_bytes - 64;
        let block_bytes = if kind.is_node() || bytes <= 256 {
            bytes
        } else if bytes > space / 10 {
            let blocks = space / bytes;
            if blocks == 0 {
                return None;
            }
            (space / blocks) & !(UNIT - 1)
        } else {
            bytes.next_multiple_of((1 << bytes.ilog2()) / 8).min((space / 10) & !(UNIT - 1))
        };
        let class = Self { kind, block_bytes };
        class.fits(chunk_bytes).then_some(class)
    }

    /// As [`Class::holding`]; `TooLarge` if no chunk holds such a block.
    pub(super) fn fitting(kind: Kind, bytes: u64, chunk_bytes: u64) -> Result<Self> {
        Self::holding(kind, bytes, chunk_bytes).ok_or(Error::TooLarge {
            of: "bytes of a block",
            asked: bytes,
            limit: chunk_bytes,
        })
    }

    fn align(self) -> u64 {
        match self.kind {
            // A node whose size is a power of two never crosses a page.
            kind if kind.is_node() => (1 << self.block_bytes.trailing_zeros()).clamp(64, 4096),
            _ => UNIT,
        }
    }

    pub(super) fn first(self, blocks: u64) -> u64 {
        (WORD + blocks.div_ceil(64) * WORD).next_multiple_of(self.align())
    }

    /// True if a chunk has space for a block.
    fn fits(self, chunk_bytes: u64) -> bool {
        self.first(1) + self.block_bytes <= chunk_bytes
    }

    /// Words of a chunk's bitmap.
    pub(super) fn bitmap_words(self, chunk_bytes: u64) -> u64 {
        self.blocks(chunk_bytes).div_ceil(64)
    }

    /// Blocks in a chunk.
    pub fn blocks(self, chunk_bytes: u64) -> u64 {
        // An estimate with word 0 and one bit per block, without the rounding to words and the alignment. It may be one or two
        // blocks too high.
        let mut blocks = (chunk_bytes - WORD) * 8 / (self.block_bytes * 8 + 1);
        while blocks > 0 && self.first(blocks) + blocks * self.block_bytes > chunk_bytes {
            blocks -= 1;
        }
        blocks
    }

    pub(super) fn word(self) -> u64 {
        checked(self.kind.code() | (self.block_bytes / UNIT) << 8)
    }

    pub(super) fn of(word: u64, chunk_bytes: u64) -> Option<Self> {
        let value = unchecked(word)?;
        let class = Self { kind: Kind::of(value & 0xFF)?, block_bytes: (value >> 8) * UNIT };
        (class.block_bytes >= BLOCK_MIN && class.fits(chunk_bytes)).then_some(class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_has_as_many_blocks_as_find_space_behind_its_bitmap() {
        for kind in [Kind::Leaf, Kind::Record] {
            for chunk_bytes in [1 << 10, 4 << 10, 64 << 10, 2 << 20] {
                for block_bytes in
                    (32..chunk_bytes + 128).step_by(if chunk_bytes > 4 << 10 { 4080 } else { 16 })
                {
                    let class = Class { kind, block_bytes };
                    let space = |blocks: u64| class.first(blocks) + blocks * block_bytes <= chunk_bytes;
                    let blocks = class.blocks(chunk_bytes);
                    assert!(blocks == 0 || space(blocks), "{class:?} in {chunk_bytes}");
                    assert!(!space(blocks + 1), "{class:?} in {chunk_bytes}");
                    assert_eq!(class.fits(chunk_bytes), blocks > 0, "{class:?} in {chunk_bytes}");
                }
            }
        }
    }
}
