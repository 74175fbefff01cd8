//! The operations on blocks: allocate them, free them, write their intents, flip their bits. The contract is in the head of
//! [`crate::heap::alloc`].

use rustc_hash::FxHashSet as HashSet;

use crate::error::{Error, Result};
use crate::heap::alloc::class::{Class, Kind};
use crate::heap::alloc::place::{HEADER_WORDS, Place, place, set_bit};
use crate::heap::alloc::ring::Ring;
use crate::heap::alloc::space::{Space, padded};
use crate::heap::log::redo::Log;
use crate::heap::region::{INTENTS, INTENTS_AT, Region};
use crate::medium::traits::{Fence, LINE, Medium, WORD};

/// Volatile state of the allocator. The writer owns it.
#[derive(Debug)]
pub struct Allocator {
    /// Chunks read since open.
    pub(super) space: Space,
    /// Free chunks that have storage, as far as is known.
    pub(super) free_chunks: Vec<u64>,
    /// A few chunks that became free, the newest last. They keep their storage, so a steady workload neither discards nor allocates
    /// storage.
    pub(super) held: Vec<u64>,
    /// Free chunks without storage.
    pub(super) discarded: Vec<u64>,
    /// The medium kept the storage of a discarded chunk, so no further discard is tried.
    pub(super) keeps_storage: bool,
    /// Free chunks whose word 0 may durably have a class with a bitmap beyond the header's line.
    pub(super) wide: HashSet<u64>,
    /// Chunks below this offset were not read since open. They are read from the end of the region downwards, because the newest
    /// are there.
    pub(super) unseen_end: u64,
    pub(super) ring_next: u64,
    /// Number of the running operation, stored in its intents.
    pub(super) operation: u16,
    /// Blocks in the running operation's intents.
    pub(super) pending: Vec<Pending>,
    /// Pieces of large values that the running operation allocates or frees. Their records have intents instead.
    pub(super) pieces: Vec<Pending>,
    pub(super) flipped: bool,
    /// Records of sparse chunks should be moved (A5).
    pub(super) moves: bool,
    /// A record is being moved: its allocation earns no credit.
    pub(super) is_moving: bool,
    /// Bytes that may be moved before more is written.
    pub(super) credit_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    place: Place,
    taken: bool,
}

impl Allocator {
    /// The allocator of a region whose intent ring was checked by [`crate::alloc::recover`].
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

    /// Allocates a block of at least `bytes` bytes for the running operation and writes its intent.
    ///
    /// # Errors
    /// The errors of [`Region::grow`] and [`Medium::provide`] if no chunk has space and the region cannot grow, `TooLarge` if the block is
    /// larger than the largest class or the ring is full. The operation must then be rolled back with [`Allocator::abort`].
    pub fn take<M: Medium>(
        &mut self,
        region: &Region<M>,
        log: &mut Log,
        kind: Kind,
        bytes: u64,
    ) -> Result<u64> {
        self.reserve_intent()?;
        let (at, place) = self.reserve(region, log, kind, bytes)?;
        self.name(region.medium(), at, Pending { place, taken: true });
        Ok(at)
    }

    /// Allocates a block of at least `bytes` bytes for a piece of a large value. Its record has the intent, and must list the piece
    /// durably before [`Allocator::flip_taken_pieces`].
    ///
    /// # Errors
    /// As [`Allocator::take`].
    pub fn take_piece<M: Medium>(&mut self, region: &Region<M>, log: &mut Log, bytes: u64) -> Result<u64> {
        let (at, place) = self.reserve(region, log, Kind::Piece, bytes)?;
        self.pieces.push(Pending { place, taken: true });
        Ok(at)
    }

    /// Sets the bits of the pieces allocated so far and flushes them.
    pub fn flip_taken_pieces<M: Medium>(&mut self, region: &Region<M>) {
        for piece in self.pieces.iter().filter(|piece| piece.taken) {
            set_bit(region.medium(), piece.place, true);
        }
    }

    /// Frees a piece when the running operation ends. Its record was freed with [`Allocator::give`].
    ///
    /// # Errors
    /// `Corrupt` if no block starts at `at`.
    pub fn give_piece<M: Medium>(&mut self, region: &Region<M>, at: u64) -> Result<()> {
        let place = placed(region, at)?;
        self.pieces.push(Pending { place, taken: false });
        Ok(())
    }

    /// Finds a block and reserves it in volatile memory only. Returns its offset and its place.
    fn reserve<M: Medium>(
        &mut self,
        region: &Region<M>,
        log: &mut Log,
        kind: Kind,
        bytes: u64,
    ) -> Result<(u64, Place)> {
        let chunk_bytes = region.geometry().chunk_bytes;
        let class = Class::fitting(kind, bytes, chunk_bytes)?;
        let (at, place) = match self.space.take(class) {
            Some(block) => block,
            None => self.find_block(region, log, class)?,
        };
        let class = place.class;
        if self.moves && !self.is_moving {
            self.earn_moves(class.block_bytes);
        }
        // The log has words of a block of another kind only if a node was there before, and a change of the chunk's class
        // truncates the log. So a check of the beginning of such a block is enough.
        let bytes = if kind.is_node() { class.block_bytes } else { class.block_bytes.min(1024) };
        if log.touches(at, bytes) {
            log.truncate(region.medium()); // A4: the block may have been a node whose change is in the log
        }
        Ok((at, place))
    }

    /// Frees a block when the running operation ends, and writes its intent.
    ///
    /// # Errors
    /// `TooLarge` if the ring is full, `Corrupt` if no block starts at `at`.
    pub fn give<M: Medium>(&mut self, region: &Region<M>, at: u64) -> Result<()> {
        self.reserve_intent()?;
        let place = placed(region, at)?;
        self.name(region.medium(), at, Pending { place, taken: false });
        Ok(())
    }

    /// Number of intents of the running operation.
    pub fn named(&self) -> usize {
        self.pending.len()
    }

    /// True if the running operation has intents whose bits are not flipped yet.
    #[inline]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty() && !self.flipped
    }

    /// Flips the bits of the operation's blocks, except those of allocated pieces ([`Allocator::flip_taken_pieces`]), and flushes them.
    /// Call it after the operation's first fence and before its last one (A1).
    pub fn flip<M: Medium>(&mut self, region: &Region<M>) {
        if self.flipped {
            return;
        }
        let given = self.pieces.iter().filter(|piece| !piece.taken);
        for pending in self.pending.iter().chain(given) {
            set_bit(region.medium(), pending.place, pending.taken);
        }
        self.flipped = !self.pending.is_empty();
    }

    /// Ends a durable operation: freed blocks may be allocated again (A2).
    #[inline(always)]
    pub fn finish<M: Medium>(&mut self, region: &Region<M>, log: &mut Log) {
        if !self.pending.is_empty() {
            self.finish_pending(region, log);
        }
    }

    #[inline(never)]
    fn finish_pending<M: Medium>(&mut self, region: &Region<M>, log: &mut Log) {
        assert!(self.flipped, "an operation ended with its bits unflipped");
        for index in 0..self.pending.len() {
            let pending = self.pending[index];
            if !pending.taken {
                self.release(region, log, pending.place);
            }
        }
        self.pending.clear();
        self.operation = self.operation.wrapping_add(1);
        for piece in std::mem::take(&mut self.pieces) {
            if !piece.taken {
                self.release(region, log, piece.place);
            }
        }
        self.flipped = false;
    }

    /// Rolls back an operation before its bits were flipped: its allocated blocks are free again.
    pub fn abort<M: Medium>(&mut self, region: &Region<M>, log: &mut Log) {
        assert!(!self.flipped, "an operation was given up after its bits were flipped");
        if !self.pending.is_empty() {
            self.operation = self.operation.wrapping_add(1);
        }
        let pieces = std::mem::take(&mut self.pieces);
        for piece in pieces.iter().filter(|piece| piece.taken) {
            set_bit(region.medium(), piece.place, false);
        }
        if pieces.iter().any(|piece| piece.taken) {
            // The cleared bits must be durable before the intent of the record that lists the pieces leaves the ring, and before
            // a chunk of pieces may be closed.
            region.medium().fence(Fence::Allocate);
        }
        for taken in std::mem::take(&mut self.pending).iter().chain(&pieces).filter(|pending| pending.taken) {
            self.release(region, log, taken.place);
        }
    }

    /// Bytes in allocated blocks of the chunks read since open, and the number of chunks not read yet.
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

    /// Writes the intent of the block that starts at `block`.
    fn name<M: Medium>(&mut self, medium: &M, block: u64, pending: Pending) {
        assert!(!self.flipped, "a block was named after the operation's bits were flipped");
        let at = INTENTS_AT + self.ring_next * WORD;
        medium.copy(at, block | u64::from(self.operation) << 48);
        medium.flush(at, WORD);
        // The slots of the ring are used in turn. This spreads their wear and keeps the operations' numbers in order. An
        // operation has at most as many intents as the ring has words.
        self.ring_next = (self.ring_next + 1) % INTENTS as u64;
        self.pending.push(pending);
    }

    fn release<M: Medium>(&mut self, region: &Region<M>, log: &mut Log, place: Place) {
        // A chunk may be read for the first time here, after all bits were flipped. If it is then empty, the release of the first
        // block closes it, and the chunk of the other blocks has no class any more.
        if region.medium().word(place.chunk) == 0 {
            return;
        }
        self.look_at(region, place.chunk, place.class);
        if self.space.release(place) {
            self.close_chunk(region, log, place.chunk);
        }
    }

    /// Frees an empty chunk.
    fn close_chunk<M: Medium>(&mut self, region: &Region<M>, log: &mut Log, chunk: u64) {
        log.truncate(region.medium()); // A4
        // Not flushed: if a crash loses this store, the empty chunk is found and freed then (see `reclaim`).
        region.medium().publish(chunk, 0);
        self.forget_chunk(region, chunk);
        if chunk >= self.unseen_end {
            // The search for space finds a chunk below `unseen_end` later.
            self.hold(region, chunk);
        }
    }

    /// Removes the class of an empty chunk, but remembers what word 0 may durably say.
    fn forget_chunk<M: Medium>(&mut self, region: &Region<M>, at: u64) {
        let class = self.space.remove(at);
        if class.is_some_and(|class| class.bitmap_words(region.geometry().chunk_bytes) > HEADER_WORDS) {
            self.wide.insert(at);
        }
    }

    /// Loads a chunk's bitmap if it was not read since open. The bits are correct, because recovery checked the ring.
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

    /// Frees a chunk that is read for the first time and has no allocated block. A crashed or rolled back operation opened it. Its
    /// bitmap is durably zero. Opening it again replaces word 0 (A3).
    pub(super) fn reclaim<M: Medium>(&mut self, region: &Region<M>, log: &mut Log, at: u64) {
        if self.space.is_empty(at) {
            log.truncate(region.medium()); // A4
            self.forget_chunk(region, at);
            self.free_chunks.push(at);
        }
    }

    /// Assigns a class to a free chunk (A3). The new word 0 becomes durable with the operation's first fence.
    pub(super) fn open_chunk<M: Medium>(&mut self, region: &Region<M>, log: &mut Log, at: u64, class: Class) {
        let medium = region.medium();
        let blocks = class.blocks(region.geometry().chunk_bytes);
        let words = class.bitmap_words(region.geometry().chunk_bytes);
        if log.touches(at, WORD + words * WORD) {
            log.truncate(medium);
        }
        // Only a fence orders bitmap words beyond the header's line with word 0 (A3).
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

/// The place of the block at `at`.
fn placed<M: Medium>(region: &Region<M>, at: u64) -> Result<Place> {
    place(region, at).ok_or(Error::Corrupt { what: "block address", at })
}

#[cfg(all(test, not(loom)))]
#[path = "tests.rs"]
mod tests;
