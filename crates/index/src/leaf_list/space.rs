//! Space in a group for an operation on a list, and the stripes of its leaves.

use pmem::{LINE, Medium, Result};

use super::core::{LeafList, Writer};
use crate::group::Life;
use crate::kernel::Guard;

/// Leaves that an operation may store all lines of: a split's two, a merge's, one that is split a second time.
const LEAVES_OF_OPERATION: u64 = 4;
/// Lines besides: links, root and meta lines, the superblock's, intents and bits of an operation's blocks.
const LINES_MORE: u64 = 64;
/// Chunks that an operation may open or return.
const CHUNKS: u64 = 4;

/// Space for operations. See the module's head.
pub trait HasSpace: LeafList {
    /// The writer's side for one operation with records of so many bytes, with space for it in the running group.
    ///
    /// # Errors
    /// As [`Life::enter_for`].
    #[inline(always)]
    fn enter(&self, bytes: u64) -> Result<Guard<'_, Self>> {
        self.enter_for(|_| Ok(self.lines_of_operation(bytes)))
    }

    /// Most lines that an operation changes which writes records of so many bytes.
    fn lines_of_operation(&self, bytes: u64) -> u64 {
        let geometry = self.region.geometry();
        let pieces = bytes.div_ceil(geometry.chunk_bytes / 8);
        // A piece of a large record has a head, straddles, and, alone in its chunk, changes a bitmap's line; so may each that is
        // given back.
        let given_back = self
            .region
            .medium()
            .group()
            .map_or(0, |group| (group.lines_max * LINE).div_ceil(geometry.chunk_bytes / 8));
        LEAVES_OF_OPERATION * self.leaf_lines()
            + bytes.div_ceil(LINE)
            + 3 * pieces
            + given_back
            + self.lines_once()
    }

    /// What counts once for whatever is done in one turn.
    fn lines_once(&self) -> u64 {
        CHUNKS * (self.region.geometry().chunk_bytes / 16 / 8).div_ceil(LINE) + LINES_MORE
    }

    /// A leaf is about to change, or what leads from it.
    #[inline(always)]
    fn lock(&self, writer: &mut Writer<Self::Own>, leaf: u64) {
        match &self.pending {
            None => self.stripes.lock_in_turn(leaf, &mut writer.held),
            Some(pending) => {
                pending.note_node(leaf);
                // Readers went first before the writer's lock was taken.
                self.stripes.lock(leaf, &mut writer.held);
            }
        }
    }
}

impl<T: LeafList> HasSpace for T {}
