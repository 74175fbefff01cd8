//! What an operation may store, and the space for it in the running group.

use index::kernel::Guard;
use index::{Life, Schema};
use pmem::{Error, LINE, Medium, Result};

use crate::batch::Extent;
use crate::commit_protocol::CommitProtocol;
use crate::layout::Layouts;
use crate::shape::Link;
use crate::tree::Tree;

/// Nodes of a level that an operation may store to: a split's or a merge's two, and one that is copied.
const NODES_OF_LEVEL: u64 = 3;
/// Levels that an operation may add, or take nodes for before it knows that there is no need.
const LEVELS_MORE: u64 = 2;
/// Lines besides nodes, log and chunk heads: the intents, the superblock's.
const LINES_MORE: u64 = 48;
/// Chunks that an operation may open or return.
const CHUNKS: u64 = 4;

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    /// The writer's side for an operation that writes a record of so many bytes, with space for it in the running group.
    ///
    /// # Errors
    /// As [`Life::enter_for`].
    #[inline(always)]
    pub(crate) fn enter(&self, bytes: u64) -> Result<Guard<'_, Self>> {
        self.enter_for(|_| Ok(self.lines_of_operations(1, bytes)))
    }

    /// True if the running group, if there is one, has space for so many operations that write records of so many bytes
    /// together.
    ///
    /// # Errors
    /// `TooLarge` if no group can hold them.
    pub(crate) fn has_space(&self, operations: u64, bytes: u64) -> Result<bool> {
        if self.pending.is_none() {
            return Ok(true);
        }
        self.has_lines(self.lines_of_operations(operations, bytes))
    }

    /// As [`Tree::has_space`], for operations that could as well be in the next group.
    pub(crate) fn has_space_beside(&self, operations: u64, bytes: u64) -> bool {
        self.pending.is_none() || self.has_lines_beside(self.lines_of_operations(operations, bytes))
    }

    /// Most lines that so many operations store to which write records of so many bytes together, in a group.
    pub(crate) fn lines_of_operations(&self, operations: u64, bytes: u64) -> u64 {
        let lines_max = self.region.medium().group().map_or(0, |group| group.lines_max);
        let geometry = self.region.geometry();
        let levels = Link::read(self.region.medium(), self.root()).map_or(0, |link| link.level) as u64;
        let nodes = nodes_of_operation(levels) * self.region.identity().node_lines;
        let (log, heads) = (self.lines_of_log(), CHUNKS * self.lines_of_head());
        // Each record may straddle a line more. A piece of a large one, an eighth of a chunk, has a head, straddles and, alone
        // in its chunk, changes a bitmap's line. So does each that is given back, of the largest record that fits into a usual group.
        let pieces = |bytes: u64| bytes.div_ceil(geometry.chunk_bytes / 8);
        let records = bytes.div_ceil(LINE) + operations + 3 * pieces(bytes);
        let given_back = pieces(lines_max * LINE);
        operations * (nodes + log + heads + given_back + LINES_MORE) + records
    }

    /// True if the running group, if there is one, has space for a merge that could as well be left. What a batch has reserved is
    /// for its own turns: it leaves them.
    pub(crate) fn has_space_to_merge(&self) -> bool {
        if self.pending.is_none() {
            return true;
        }
        let once = self.lines_of_log() + CHUNKS * self.lines_of_head() + LINES_MORE;
        // A merge makes no separator.
        !self.images.is_running() && self.has_lines_beside(self.lines_of_turn(0) + once)
    }

    /// A log's lines, and what of earlier groups a pool may have to write back with them.
    fn lines_of_log(&self) -> u64 {
        let records = self.region.geometry().log_records;
        records / 4 + if D::POOLED { records } else { 0 }
    }

    /// Most lines of a chunk's head.
    fn lines_of_head(&self) -> u64 {
        (self.region.geometry().chunk_bytes / 16 / 8).div_ceil(LINE)
    }

    /// Most lines that a batch stores to. Its group is closed after it, so what its operations have in common counts once, and they
    /// were looked up: so this is nearer to what comes than [`Tree::lines_of_operations`].
    pub(crate) fn lines_of_batch(&self, batch: &Extent) -> u64 {
        let node_lines = self.region.identity().node_lines;
        // A copy of the leaf, its bit and that of the one before, two pointers.
        let copy = if D::COPIES_LEAVES { node_lines + 4 } else { 0 };
        let chunk_lines = self.region.geometry().chunk_bytes / LINE;
        // The bits of a record that comes and one that goes, each perhaps the last of its chunk.
        let stored = batch.writes * (4 + copy)
            + batch.leaves * node_lines
            + batch.turns * self.lines_of_turn(batch.key_bytes)
            + batch.record_lines
            + batch.pieces * 3;
        let opened = CHUNKS + stored.div_ceil(chunk_lines);
        stored + self.lines_of_log() + opened * self.lines_of_head() + LINES_MORE
    }

    /// Lines that a split or merge of a leaf may store to, with what comes of it above, where keys have so many bytes.
    pub(crate) fn lines_of_turn(&self, key_bytes: u64) -> u64 {
        let levels = Link::read(self.region.medium(), self.root()).map_or(0, |link| link.level) as u64;
        nodes_of_operation(levels) * (self.region.identity().node_lines + key_bytes / LINE + 4)
    }

    /// `Failed` if what is read can no longer be told from what was taken back.
    #[inline(always)]
    pub(crate) fn readable(&self, failed: bool) -> Result<()> {
        if D::POOLED && failed { Err(Error::Failed) } else { Ok(()) }
    }
}

/// Nodes that an operation on a tree of so many levels above the leaves may store to.
pub(crate) fn nodes_of_operation(levels: u64) -> u64 {
    NODES_OF_LEVEL * (levels + LEVELS_MORE)
}
