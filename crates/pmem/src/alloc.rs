//! The block allocator: chunks by size class with durable bitmaps, and an intent ring that bounds recovery.
//!
//! ```text
//! chunk   word 0: kind and block size, self-checking (0: free chunk)
//!         words 1..: bitmap, bit set = block allocated
//!         blocks, from the first offset that their alignment allows
//! ```
//!
//! The allocator has no fence of its own on the common path. Before an operation's first fence it names each block that
//! it takes or gives back in the intent ring; after that fence, and before its last one, it flips their bits
//! ([`Allocator::flip`]). So at any crash a bit can disagree with the index only for blocks named in the ring, and
//! recovery asks the index who owns those, nothing else. An intent carries its operation's number: when one operation names
//! blocks, the bits of those before it are durable, so only the newest operation's blocks are asked for. A stale intent
//! would be harmless: asking again changes nothing.
//!
//! Invariants:
//! * A1: a bit that is flipped was named in the ring, durably, before.
//! * A2: within one session a block is handed out again only after the operation that gave it back has ended.
//! * A3: a chunk's bitmap is all zeros, durably, before its word 0 names a new kind; and nothing else is written where an earlier
//!   kind had its bitmap while word 0 may durably name that. Within the header's line both follow from the order of its stores.
//! * A4: no block of a chunk holds home words of an unsettled log lap when the chunk or block is handed out again.
//! * A5: a record is moved by an ordinary update of its key to the value that it has, so a move needs no protocol of its own.
//! * A6: a chunk is discarded only when it is free: its bits are durably zero and the log has no record of it (A4). What a crash leaves
//!   of it, its old words, zeros or some of both, is an empty chunk or a free one. It is given storage before it is stored to again.
//!
//! Commit point of an allocation is the index's own publish; crash table:
//!
//! | fence passed | durable | recovery |
//! |---|---|---|
//! | none | some of: intents, block content | nobody owns the block: bit cleared (was clear) |
//! | first | intents; some of: flipped bits | bit set to what the index says |
//! | last | intents, bits, publish | nothing to do |

mod class;
mod ring;
mod space;
mod supply;
mod usage;

use rustc_hash::FxHashSet as HashSet;

pub use class::{Class, Kind};
use ring::Ring;
pub use ring::recover;
use space::{Space, padded};
pub use usage::{Usage, usage};

use crate::error::{Error, Result};
use crate::log::Log;
use crate::medium::{Fence, LINE, Medium, WORD};

use crate::region::{Geometry, INTENTS, INTENTS_AT, Region};

/// Bitmap words in the line of a chunk's header.
const HEADER_WORDS: u64 = LINE / WORD - 1;

/// Where a block's bit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    chunk: u64,
    class: Class,
    index: u64,
}

impl Place {
    fn word_at(self) -> u64 {
        self.chunk + WORD + self.index / 64 * WORD
    }
    fn bit(self) -> u64 {
        1 << (self.index % 64)
    }
}

/// Finds the block that starts at `at`, if there is one in a chunk with a sound header.
fn place<M: Medium>(region: &Region<M>, at: u64) -> Option<Place> {
    let geometry = region.geometry();
    if at < geometry.heap_at() || at >= region.medium().len() {
        return None;
    }
    let chunk = chunk_of(region, at);
    let class = Class::of(region.medium().word(chunk), geometry.chunk_bytes)?;
    let blocks = class.blocks(geometry.chunk_bytes);
    let offset = (at - chunk).checked_sub(class.first(blocks))?;
    let index = offset / class.block_bytes;
    (offset.is_multiple_of(class.block_bytes) && index < blocks).then_some(Place { chunk, class, index })
}

fn chunk_of<M: Medium>(region: &Region<M>, at: u64) -> u64 {
    let geometry = region.geometry();
    geometry.heap_at() + (at - geometry.heap_at()) / geometry.chunk_bytes * geometry.chunk_bytes
}

/// The class of the block that starts at `at`, if it is allocated.
pub fn allocated<M: Medium>(region: &Region<M>, at: u64) -> Option<Class> {
    let place = place(region, at)?;
    (region.medium().word(place.word_at()) & place.bit() != 0).then_some(place.class)
}

/// The class of the block that starts at `at`, allocated or not.
pub fn class_of<M: Medium>(region: &Region<M>, at: u64) -> Option<Class> {
    Some(place(region, at)?.class)
}

/// Every chunk of the region with its class: `Ok(None)` is a free chunk, `Err` one whose header is damaged.
pub fn chunks<M: Medium>(region: &Region<M>) -> impl Iterator<Item = (u64, FoundClass)> {
    let geometry = region.geometry();
    let first = geometry.heap_at();
    let at = (0..).map(move |i: u64| first + i * geometry.chunk_bytes);
    at.zip(classes(region.medium(), geometry))
}

/// What a chunk's header says: a class, nothing (a free chunk), or damage.
pub type FoundClass = std::result::Result<Option<Class>, Damaged>;

/// A chunk header that was not written by this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// The classes of a medium's chunks, in order, if it has this geometry.
pub fn classes<M: Medium>(medium: &M, geometry: Geometry) -> impl Iterator<Item = FoundClass> {
    let count = medium.len().saturating_sub(geometry.heap_at()) / geometry.chunk_bytes;
    (0..count).map(move |i| match medium.word(geometry.heap_at() + i * geometry.chunk_bytes) {
        0 => Ok(None),
        word => Class::of(word, geometry.chunk_bytes).map(Some).ok_or(Damaged),
    })
}

/// Every allocated block of a chunk.
pub fn blocks_in<M: Medium>(region: &Region<M>, chunk: u64, class: Class) -> impl Iterator<Item = u64> {
    let blocks = class.blocks(region.geometry().chunk_bytes);
    let first = chunk + class.first(blocks);
    (0..blocks).filter_map(move |index| {
        let place = Place { chunk, class, index };
        (region.medium().word(place.word_at()) & place.bit() != 0)
            .then_some(first + index * class.block_bytes)
    })
}

/// Volatile side of the allocator; owned by the writer.
#[derive(Debug)]
pub struct Allocator {
    /// Chunks looked at since open.
    space: Space,
    /// Free chunks that have their storage, as far as is known.
    free_chunks: Vec<u64>,
    /// Chunks that became free, the newest last: a few, so that a steady workload neither discards nor asks for storage.
    held: Vec<u64>,
    /// Free chunks that were discarded.
    discarded: Vec<u64>,
    /// The medium kept the storage of a chunk that was discarded: it is not asked again.
    keeps_storage: bool,
    /// Of the chunks that are free, those whose word 0 may durably name a class with a bitmap beyond the header's line.
    wide: HashSet<u64>,
    /// Chunks below this offset have not been looked at since open; looked at from the end of the region downwards,
    /// where the newest are.
    unseen_end: u64,
    ring_next: u64,
    /// Number of the running operation, in its intents.
    operation: u16,
    /// Blocks named by the running operation.
    pending: Vec<Pending>,
    /// Pieces of large values that the running operation takes or gives back; their records are named for them.
    pieces: Vec<Pending>,
    flipped: bool,
    /// Records of sparse chunks are to be moved (A5).
    moves: bool,
    /// A record is being moved: what that takes earns nothing.
    is_moving: bool,
    /// Bytes that may be moved before more has been written.
    credit_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    at: u64,
    taken: bool,
}

impl Allocator {
    /// The allocator of a region whose ring has been settled by [`recover`].
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
        debug_assert!(self.flipped, "an operation ended with its bits unflipped");
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
        debug_assert!(!self.flipped, "an operation was given up after its bits were flipped");
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
        debug_assert!(!self.flipped, "a block was named after the operation's bits were flipped");
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
    fn look_at<M: Medium>(&mut self, region: &Region<M>, at: u64, class: Class) {
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
    fn reclaim<M: Medium>(&mut self, region: &Region<M>, log: &mut Log, at: u64) {
        if self.space.is_empty(at) {
            log.settle(region.medium()); // A4
            self.forget_chunk(region, at);
            self.free_chunks.push(at);
        }
    }

    /// Gives a free chunk a class (A3). The new word 0 becomes durable with the operation's first fence.
    fn open_chunk<M: Medium>(&mut self, region: &Region<M>, log: &mut Log, at: u64, class: Class) {
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

fn set_bit<M: Medium>(medium: &M, place: Place, taken: bool) {
    let at = place.word_at();
    let old = medium.word(at);
    medium.copy(at, if taken { old | place.bit() } else { old & !place.bit() });
    medium.flush(at, WORD);
}

#[cfg(all(test, not(loom)))]
mod tests;
