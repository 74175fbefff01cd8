//! The space that an operation on a list needs in its commit group, and the version locks of the leaves that the operation changes.

use pmem::{LINE, Medium, Result};

use super::core::{LeafList, Writer};
use crate::group::Life;
use crate::kernel::Guard;

/// Leaves that an operation may store as a whole: two of a split, one of a merge, one of a second split.
const LEAVES_OF_OPERATION: u64 = 4;
/// Other lines: links, root and meta lines, the superblock, intents and allocation bits.
const LINES_MORE: u64 = 64;
/// Chunks that an operation may open or close.
const CHUNKS: u64 = 4;

/// Space for operations, and locks of leaves.
pub trait HasSpace: LeafList {
    /// Takes the writer's lock for one operation that writes records of `bytes` bytes. The running group has space for it.
    ///
    /// # Errors
    /// As [`Life::enter_for`].
    #[inline(always)]
    fn enter(&self, bytes: u64) -> Result<Guard<'_, Self>> {
        self.enter_for(|_| Ok(self.lines_of_operation(bytes)))
    }

    /// Maximum number of lines that an operation changes if it writes records of `bytes` bytes.
    fn lines_of_operation(&self, bytes: u64) -> u64 {
        let geometry = self.region.geometry();
        let pieces = bytes.div_ceil(geometry.chunk_bytes / 8);
        // Each piece of a large record adds its head, an unaligned end, and a bitmap line if it is alone in its chunk. Each freed piece may
        // also change a bitmap line.
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

    /// Lines that count once for all operations between locking and unlocking the writer's lock.
    fn lines_once(&self) -> u64 {
        CHUNKS * (self.region.geometry().chunk_bytes / 16 / 8).div_ceil(LINE) + LINES_MORE
    }

    /// Locks the version of a leaf before the leaf or its link changes. With a journal, sets its dirty mark.
    #[inline(always)]
    fn lock(&self, writer: &mut Writer<Self::Own>, leaf: u64) {
        match &self.pending {
            None => self.stripes.lock_in_turn(leaf, &mut writer.held),
            Some(pending) => {
                pending.note_node(leaf);
                // The writer waited for readers before it took the writer's lock.
                self.stripes.lock(leaf, &mut writer.held);
            }
        }
    }
}

impl<T: LeafList> HasSpace for T {}
