//! What an operation does with blocks: takes them, gives them back, names them in the ring, flips their bits. The contract is in the
//! head of [`crate::heap::alloc`].

use rustc_hash::FxHashSet as HashSet;

use crate::error::{Error, Result};
use crate::heap::alloc::class::{Class, Kind};
use crate::heap::alloc::place::{HEADER_WORDS, place, set_bit};
use crate::heap::alloc::ring::Ring;
use crate::heap::alloc::space::{Space, padded};
use crate::heap::log::redo::Log;
use crate::heap::region::{INTENTS, INTENTS_AT, Region};
use crate::medium::traits::{Fence, LINE, Medium, WORD};

/// Volatile side of the allocator; owned by the writer.
#[derive(Debug)]
pub struct Allocator {
    /// Chunks looked at since open.
    pub(super) space: Space,
    /// Free chunks that have their storage, as far as is known.
    pub(super) free_chunks: Vec<u64>,
    /// Chunks that became free, the newest last: a few, so that a steady workload neither discards nor asks for storage.
    pub(super) held: Vec<u64>,
    /// Free chunks that were discarded.
    pub(super) discarded: Vec<u64>,
    /// The medium kept the storage of a chunk that was discarded: it is not asked again.
    pub(super) keeps_storage: bool,
    /// Of the chunks that are free, those whose word 0 may durably name a class with a bitmap beyond the header's line.
    pub(super) wide: HashSet<u64>,
    /// Chunks below this offset have not been looked at since open; looked at from the end of the region downwards,
    /// where the newest are.
    pub(super) unseen_end: u64,
    pub(super) ring_next: u64,
    /// Number of the running operation, in its intents.
    pub(super) operation: u16,
    /// Blocks named by the running operation.
    pub(super) pending: Vec<Pending>,
    /// Pieces of large values that the running operation allocates or frees. The ring names their records instead.
    pub(super) pieces: Vec<Pending>,
    pub(super) flipped: bool,
    /// Records of sparse chunks are to be moved (A5).
    pub(super) moves: bool,
    /// A record is being moved: what that takes earns nothing.
    pub(super) is_moving: bool,
    /// Bytes that may be moved before more has been written.
    pub(super) credit_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    at: u64,
    taken: bool,
}

impl Allocator {
    /// The allocator of a region whose ring has been settled by [`crate::alloc::recover`].
    pub fn new<M: Medium>(region: &Region<M>) -> Self {
        let geometry = region.geometry();
        let count = region.medium().len().saturating_sub(geometry.heap_at()) / geometry.chunk_bytes;
        let ring = Ring::read(region.medium());
        Self {
            space: Space::default(),
            free_chunks: Vec::new(),
            held: Vec::new(),
            discarded: Vec::new(),
            keeps_storage: false,
            wide: HashSet::default(),
            unseen_end: geometry.heap_at() + count * geometry.chunk_bytes,
            ring_next: ring.next,
            operation: ring.operation.wrapping_add(1),
            pending: Vec::new(),
            pieces: Vec::new(),
            flipped: false,
            moves: false,
            is_moving: false,
            credit_bytes: 0,
        }
    }

    /// Takes a block of at least `bytes` for the running operation and names it in the ring.
    ///
    /// # Errors
    /// `NoSpace` or `Full` when the region cannot grow, `TooLarge` beyond the largest block or a full ring. The
    /// operation must then be given up with [`Allocator::abort`].
    pub fn take<M: Medium>(
        &mut self,
        region: &Region<M>,
        log: &mut Log,
        kind: Kind,
        bytes: u64,
    ) -> Result<u64> {
        self.reserve_intent()?;
        let at = self.reserve(region, log, kind, bytes)?;
        self.name(region.medium(), Pending { at, taken: true });
        Ok(at)
    }

    /// Takes a block for a piece of a large value. Its record is named in the ring, and must list the piece durably
    /// before [`Allocator::flip_taken_pieces`].
    ///
    /// # Errors
    /// As [`Allocator::take`].
    pub fn take_piece<M: Medium>(&mut self, region: &Region<M>, log: &mut Log, bytes: u64) -> Result<u64> {
        let at = self.reserve(region, log, Kind::Piece, bytes)?;
        self.pieces.push(Pending { at, taken: true });
        Ok(at)
    }

    /// Sets the bits of the pieces taken so far and starts their write-back.
    pub fn flip_taken_pieces<M: Medium>(&mut self, region: &Region<M>) {
        for piece in self.pieces.iter().filter(|piece| piece.taken) {
            let place = place(region, piece.at).expect("just taken");
            set_bit(region.medium(), place, true);
        }
    }

    /// Gives a piece back when the running operation ends; its record was given back with [`Allocator::give`].
    pub fn give_piece<M: Medium>(&mut self, region: &Region<M>, at: u64) {
        debug_assert!(place(region, at).is_some());
        self.pieces.push(Pending { at, taken: false });
    }

    /// Finds a block and keeps it from others; nothing durable says so yet.
    fn reserve<M: Medium>(
        &mut self,
        region: &Region<M>,
        log: &mut Log,
        kind: Kind,
        bytes: u64,
    ) -> Result<u64> {
        let chunk_bytes = region.geometry().chunk_bytes;
        let class = Class::fitting(kind, bytes, chunk_bytes)?;
        let (class, (chunk_at, index)) = match self.space.take(class) {
            Some(block) => (class, block),
            None => self.find_block(region, log, class)?,
        };
        let at = chunk_at + class.first(class.blocks(chunk_bytes)) + index * class.block_bytes;
        if self.moves && !self.is_moving {
            self.earn_moves(class.block_bytes);
        }
        // Of other blocks only what a node was before can be in the log, and a chunk that changes its class settles it.
        let bytes = if kind.is_node() { class.block_bytes } else { class.block_bytes.min(1024) };
        if log.touches(at, bytes) {
            log.settle(region.medium()); // A4: the block may have been a node whose change is still only in the log
        }
        Ok(at)
    }

    /// Gives a block back when the running operation ends, and names it in the ring.
    ///
    /// # Errors
    /// `TooLarge` if the ring is full, `Corrupt` if no block starts there.
    pub fn give<M: Medium>(&mut self, region: &Region<M>, at: u64) -> Result<()> {
        self.reserve_intent()?;
        if place(region, at).is_none() {
            return Err(Error::Corrupt { what: "block address", at });
        }
        self.name(region.medium(), Pending { at, taken: false });
        Ok(())
    }

    /// Blocks that the running operation has named so far.
    pub fn named(&self) -> usize {
        self.pending.len()
    }

    /// True if the running operation has named blocks whose bits are not flipped yet.
    #[inline]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty() && !self.flipped
    }

    /// Flips the bits of the named blocks and starts their write-back. Call after the operation's first fence and
    /// before its last one (A1).
    pub fn flip<M: Medium>(&mut self, region: &Region<M>) {
        if self.flipped {
            return;
        }
        let given = self.pieces.iter().filter(|piece| !piece.taken);
        for pending in self.pending.iter().chain(given) {
            let place = place(region, pending.at).expect("blocks are checked when they are named");
            set_bit(region.medium(), place, pending.taken);
        }
        self.flipped = !self.pending.is_empty();
    }

    /// The operation is durable: blocks given back may be taken again (A2).
    pub fn finish<M: Medium>(&mut self, region: &Region<M>, log: &mut Log) {
        if self.pending.is_empty() {
            return;
        }
        assert!(self.flipped, "an operation ended with its bits unflipped");
        for index in 0..self.pending.len() {
            let pending = self.pending[index];
            if !pending.taken {
                self.release(region, log, pending.at);
            }
        }
        self.pending.clear();
        self.operation = self.operation.wrapping_add(1);
        for piece in std::mem::take(&mut self.pieces) {
            if !piece.taken {
                self.release(region, log, piece.at);
            }
        }
        self.flipped = false;
    }

    /// The operation is given up before its named blocks were flipped: what it took is free again.
    pub fn abort<M: Medium>(&mut self, region: &Region<M>, log: &mut Log) {
        assert!(!self.flipped, "an operation was given up after its bits were flipped");
        if !self.pending.is_empty() {
            self.operation = self.operation.wrapping_add(1);
        }
        let pieces = std::mem::take(&mut self.pieces);
        for piece in pieces.iter().filter(|piece| piece.taken) {
            let place = place(region, piece.at).expect("just taken");
            set_bit(region.medium(), place, false);
        }
        if pieces.iter().any(|piece| piece.taken) {
            // Before the ring forgets the record that lists them, and before its chunk may be closed.
            region.medium().fence(Fence::Allocate);
        }
        for taken in std::mem::take(&mut self.pending).iter().chain(&pieces).filter(|pending| pending.taken) {
            self.release(region, log, taken.at);
        }
    }

    /// Bytes in allocated blocks of the chunks looked at since open, and chunks not looked at yet.
    pub fn live_bytes<M: Medium>(&self, region: &Region<M>) -> (u64, u64) {
        let geometry = region.geometry();
        (self.space.live_bytes(), self.unseen_end.saturating_sub(geometry.heap_at()) / geometry.chunk_bytes)
    }

    fn reserve_intent(&self) -> Result<()> {
        if self.pending.len() == INTENTS {
            return Err(Error::TooLarge { of: "blocks", asked: INTENTS as u64 + 1, limit: INTENTS as u64 });
        }
        Ok(())
    }

    fn name<M: Medium>(&mut self, medium: &M, pending: Pending) {
        assert!(!self.flipped, "a block was named after the operation's bits were flipped");
        let at = INTENTS_AT + self.ring_next * WORD;
        medium.copy(at, pending.at | u64::from(self.operation) << 48);
        medium.flush(at, WORD);
        // The ring turns, so that its wear is spread and operations' numbers stay in order; an operation names at most as
        // many blocks as the ring holds.
        self.ring_next = (self.ring_next + 1) % INTENTS as u64;
        self.pending.push(pending);
    }

    fn release<M: Medium>(&mut self, region: &Region<M>, log: &mut Log, at: u64) {
        // A chunk that was looked at only now, when all bits were flipped, is closed with the first of its blocks.
        let Some(place) = place(region, at) else { return };
        self.look_at(region, place.chunk, place.class);
        if self.space.release(place) {
            self.close_chunk(region, log, place.chunk);
        }
    }

    /// Returns an empty chunk to the region.
    fn close_chunk<M: Medium>(&mut self, region: &Region<M>, log: &mut Log, chunk: u64) {
        log.settle(region.medium()); // A4
        // Not flushed: if a crash loses this, the chunk is found empty and taken back then (see `reclaim`).
        region.medium().publish(chunk, 0);
        self.forget_chunk(region, chunk);
        if chunk >= self.unseen_end {
            // Below it, the search for space will come by.
            self.hold(region, chunk);
        }
    }

    /// An empty chunk is of no class any more, but for what word 0 durably says.
    fn forget_chunk<M: Medium>(&mut self, region: &Region<M>, at: u64) {
        let class = self.space.remove(at);
        if class.is_some_and(|class| class.bitmap_words(region.geometry().chunk_bytes) > HEADER_WORDS) {
            self.wide.insert(at);
        }
    }

    /// Loads a chunk's bitmap if it has not been looked at since open. (Its bits are durable truth: the ring is settled.)
    pub(super) fn look_at<M: Medium>(&mut self, region: &Region<M>, at: u64, class: Class) {
        if self.space.knows(at) {
            return;
        }
        let blocks = class.blocks(region.geometry().chunk_bytes);
        let taken: Box<[u64]> = (0..class.bitmap_words(region.geometry().chunk_bytes))
            .map(|i| region.medium().word(at + WORD + i * WORD))
            .collect();
        self.space.add(at, class, blocks, padded(taken, blocks));
    }

    /// Frees a chunk, looked at for the first time, in which nothing is allocated: an operation that a crash cut short
    /// opened it, or one did that was given up. Its bitmap is durably zero; opening it again replaces word 0 (A3).
    pub(super) fn reclaim<M: Medium>(&mut self, region: &Region<M>, log: &mut Log, at: u64) {
        if self.space.is_empty(at) {
            log.settle(region.medium()); // A4
            self.forget_chunk(region, at);
            self.free_chunks.push(at);
        }
    }

    /// Gives a free chunk a class (A3). The new word 0 becomes durable with the operation's first fence.
    pub(super) fn open_chunk<M: Medium>(&mut self, region: &Region<M>, log: &mut Log, at: u64, class: Class) {
        let medium = region.medium();
        let blocks = class.blocks(region.geometry().chunk_bytes);
        let words = class.bitmap_words(region.geometry().chunk_bytes);
        if log.touches(at, WORD + words * WORD) {
            log.settle(medium);
        }
        // Bitmap words beyond the header's line have no order with word 0 but a fence (A3).
        let (is_wide, was_wide) = (words > HEADER_WORDS, self.wide.remove(&at));
        if was_wide {
            medium.publish(at, 0);
            medium.flush(at, WORD);
        }
        for i in 0..words {
            medium.copy(at + WORD + i * WORD, 0);
        }
        if is_wide {
            medium.flush(at + LINE, (words - HEADER_WORDS) * WORD);
        }
        if is_wide || was_wide {
            medium.fence(Fence::Allocate);
        }
        medium.publish(at, class.word());
        medium.flush(at, WORD);
        self.space.add(at, class, blocks, padded(vec![0; words as usize].into(), blocks));
        self.space.use_new(at);
    }
}

#[cfg(all(test, not(loom)))]
#[path = "tests.rs"]
mod tests;
