//! The maximum number of lines that an operation may store, and the reservation of space for these lines in the running commit group.

use index::kernel::Guard;
use index::{Life, Schema};
use pmem::{Error, LINE, Medium, Result};

use crate::batch::Extent;
use crate::commit_protocol::CommitProtocol;
use crate::layout::Layouts;
use crate::shape::Link;
use crate::tree::Tree;

/// Nodes of a level that an operation may store to: two of a split or merge, and a copy.
const NODES_OF_LEVEL: u64 = 3;
/// Additional levels: those that an operation may add, and those for which it may allocate nodes that it does not need.
const LEVELS_MORE: u64 = 2;
/// Lines besides nodes, log and chunk headers: the intents, and the superblock.
const LINES_MORE: u64 = 48;
/// Chunks that an operation may open or free.
const CHUNKS: u64 = 4;

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    /// Takes the writer's lock for an operation that writes a record of `bytes` bytes, with space for it in the running group.
    ///
    /// # Errors
    /// As [`Life::enter_for`].
    #[inline(always)]
    pub(crate) fn enter(&self, bytes: u64) -> Result<Guard<'_, Self>> {
        self.enter_for(|_| Ok(self.lines_of_operations(1, bytes)))
    }

    /// True if the running group has space for this many operations, whose records have `bytes` bytes together. True if there are no
    /// groups.
    ///
    /// # Errors
    /// `TooLarge` if no group can hold them.
    pub(crate) fn has_space(&self, operations: u64, bytes: u64) -> Result<bool> {
        if self.pending.is_none() {
            return Ok(true);
        }
        self.has_lines(self.lines_of_operations(operations, bytes))
    }

    /// As [`Tree::has_space`], for operations that may also wait for the next group.
    pub(crate) fn has_space_beside(&self, operations: u64, bytes: u64) -> bool {
        self.pending.is_none() || self.has_lines_beside(self.lines_of_operations(operations, bytes))
    }

    /// Maximum number of lines that these operations store to in a group. Their records have `bytes` bytes together.
    pub(crate) fn lines_of_operations(&self, operations: u64, bytes: u64) -> u64 {
        let lines_max = self.region.medium().group().map_or(0, |group| group.lines_max);
        let geometry = self.region.geometry();
        let levels = Link::read(self.region.medium(), self.root()).map_or(0, |link| link.level) as u64;
        let nodes = nodes_of_operation(levels) * self.region.identity().node_lines;
        let (log, heads) = (self.lines_of_log(), CHUNKS * self.lines_of_head());
        // Each record may straddle one line more. A large record is stored in pieces of an eighth of a chunk. A piece has a header, may
        // straddle a line and, alone in its chunk, changes a line of the bitmap. An operation may also free the pieces of an old record,
        // which is at most the largest record that fits into a usual group: one line for each piece.
        let pieces = |bytes: u64| bytes.div_ceil(geometry.chunk_bytes / 8);
        let records = bytes.div_ceil(LINE) + operations + 3 * pieces(bytes);
        let given_back = pieces(lines_max * LINE);
        operations * (nodes + log + heads + given_back + LINES_MORE) + records
    }

    /// True if the running group has space for an optional merge. During a batch it is false, because the batch reserved its space for its
    /// own splits and merges.
    pub(crate) fn has_space_to_merge(&self) -> bool {
        if self.pending.is_none() {
            return true;
        }
        let once = self.lines_of_log() + CHUNKS * self.lines_of_head() + LINES_MORE;
        // A merge writes no separator.
        !self.images.is_running() && self.has_lines_beside(self.lines_of_turn(0) + once)
    }

    /// Lines of the log. With a buffer pool also the data lines of earlier groups that may have to be written back in this group: at most
    /// one for each log record.
    fn lines_of_log(&self) -> u64 {
        let records = self.region.geometry().log_records;
        records / 4 + if D::POOLED { records } else { 0 }
    }

    /// Maximum lines of a chunk's header.
    fn lines_of_head(&self) -> u64 {
        (self.region.geometry().chunk_bytes / 16 / 8).div_ceil(LINE)
    }

    /// Maximum number of lines that a batch stores to. The batch's group is closed after the batch, so the lines that its operations share
    /// count once. The keys were looked up, so this bound is tighter than [`Tree::lines_of_operations`].
    pub(crate) fn lines_of_batch(&self, batch: &Extent) -> u64 {
        let node_lines = self.region.identity().node_lines;
        // The copy of the leaf, the allocation bits of copy and old leaf, and two pointers.
        let copy = if D::COPIES_LEAVES { node_lines + 4 } else { 0 };
        let chunk_lines = self.region.geometry().chunk_bytes / LINE;
        // The allocation bits of a new record and of a freed one. Each may be the last record of its chunk.
        let stored = batch.writes * (4 + copy)
            + batch.leaves * node_lines
            + batch.turns * self.lines_of_turn(batch.key_bytes)
            + batch.record_lines
            + batch.pieces * 3;
        let opened = CHUNKS + stored.div_ceil(chunk_lines);
        stored + self.lines_of_log() + opened * self.lines_of_head() + LINES_MORE
    }

    /// Maximum lines that a split or merge of a leaf stores to, with its effects on the levels above, for keys of this length.
    pub(crate) fn lines_of_turn(&self, key_bytes: u64) -> u64 {
        let levels = Link::read(self.region.medium(), self.root()).map_or(0, |link| link.level) as u64;
        nodes_of_operation(levels) * (self.region.identity().node_lines + key_bytes / LINE + 4)
    }

    /// Returns `Failed` if a rollback may have left data that a read cannot recognise: the frames of a buffer pool are not rolled back.
    #[inline(always)]
    pub(crate) fn readable(&self, failed: bool) -> Result<()> {
        if D::POOLED && failed { Err(Error::Failed) } else { Ok(()) }
    }
}

/// Maximum nodes that an operation stores to, in a tree with this many levels above the leaves.
pub(crate) fn nodes_of_operation(levels: u64) -> u64 {
    NODES_OF_LEVEL * (levels + LEVELS_MORE)
}
