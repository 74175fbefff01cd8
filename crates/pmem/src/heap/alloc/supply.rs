//! The supply of blocks and chunks: chunks with space, chunk headers that were not read since open, free chunks, growth. The module also
//! handles chunks that become free or nearly empty.
//!
//! An operation that needs a chunk takes the first of: a chunk of the class that is known to have space; one found by reading the
//! next [`PROBE_CHUNKS`] headers that were not read since open; a known free chunk; a discarded chunk; a new chunk, for which the
//! region grows. The allocator reads all remaining headers only before it would refuse a write.
//!
//! When a chunk is needed and there are sparse chunks, the index moves their records ([`Allocator::next_to_move`]), a few after each write.
//! The moves end when, for every sparse chunk, the other chunks of its class have too little space for its records.

use rustc_hash::FxHashMap as HashMap;

use crate::error::Result;
use crate::heap::alloc::allocator::Allocator;
use crate::heap::alloc::class::{Class, Kind};
use crate::heap::alloc::place::Place;
use crate::heap::log::redo::Log;
use crate::heap::region::Region;
use crate::medium::traits::Medium;
use crate::medium::view::HUGE_PAGE;

/// Chunk headers read for one chunk that an operation needs. While chunks are unread, at most one chunk is added for this many
/// headers, so the region grows by at most an eighth before all headers are known.
const PROBE_CHUNKS: u64 = 8;
/// Maximum number of held chunks. If there is one more, the `HELD_MAX - HELD_MIN` oldest are discarded.
const HELD_MAX: usize = 4;
const HELD_MIN: usize = 2;
/// Bytes that may be moved for each byte written while there are sparse chunks.
const MOVED_PER_BYTE: u64 = 3;
/// Cost of a move besides the bytes of its block, in bytes moved.
const MOVE_BYTES: u64 = 64;
/// Most bytes moved after one operation or one group of operations. It bounds the pause.
const CREDIT_BYTES_MAX: u64 = 256 << 10;
/// Length in bytes from which a region grows by huge pages.
const HUGE_FROM: u64 = 8 * HUGE_PAGE;
/// Most bytes of one growth, unless more is needed.
const GROWTH_BYTES_MAX: u64 = 8 * HUGE_PAGE;

impl Allocator {
    /// Ensures that the blocks of `needs` (kind, bytes of a block, number of blocks) can be allocated without a growth of the
    /// region.
    ///
    /// # Errors
    /// As [`Allocator::take`]; nothing was allocated.
    pub fn prepare<M: Medium>(
        &mut self,
        region: &Region<M>,
        log: &mut Log,
        needs: impl IntoIterator<Item = (Kind, u64, u64)>,
    ) -> Result<()> {
        let chunk_bytes = region.geometry().chunk_bytes;
        let mut wanted: HashMap<Class, u64> = HashMap::default();
        // A cache of one entry: the values of a batch often have one size.
        let mut last = None;
        for (kind, bytes, blocks) in needs {
            let class = match last {
                Some((like, class)) if like == (kind, bytes) => class,
                _ => Class::fitting(kind, bytes, chunk_bytes)?,
            };
            last = Some(((kind, bytes), class));
            *wanted.entry(class).or_default() += blocks;
        }
        // The order: the known free space, the free space behind a few more headers, a growth, the free space behind all other
        // headers.
        let mut heads = self.lacking(&wanted, chunk_bytes) * PROBE_CHUNKS;
        loop {
            let chunks = self.lacking(&wanted, chunk_bytes);
            let lacking = chunks.saturating_sub(self.free_count() as u64);
            if lacking == 0 {
                return self.provide(region, chunks);
            }
            let may_look = heads > 0;
            heads = heads.saturating_sub(1);
            if may_look && self.look_further(region, log) {
                continue;
            }
            match self.grow(region, lacking) {
                Err(error) if !self.look_further(region, log) => return Err(error),
                _ => {}
            }
        }
    }

    /// Number of chunks that must be opened for these blocks of each class.
    fn lacking(&self, wanted: &HashMap<Class, u64>, chunk_bytes: u64) -> u64 {
        let chunks = |(class, blocks): (&Class, &u64)| {
            blocks.saturating_sub(self.space.free(*class)).div_ceil(class.blocks(chunk_bytes))
        };
        wanted.iter().map(chunks).sum()
    }

    /// Provides storage for the free chunks that are opened next.
    fn provide<M: Medium>(&self, region: &Region<M>, chunks: u64) -> Result<()> {
        let next =
            self.held.iter().rev().chain(self.free_chunks.iter().rev()).chain(self.discarded.iter().rev());
        next.take(chunks as usize)
            .try_for_each(|at| region.medium().provide(*at, region.geometry().chunk_bytes))
    }

    /// Takes a block from another chunk of the class, or from a new one. Called if the class has no chunk in use.
    #[cold]
    pub(super) fn find_block<M: Medium>(
        &mut self,
        region: &Region<M>,
        log: &mut Log,
        class: Class,
    ) -> Result<(u64, Place)> {
        let class = match self.find_space(region, log, class) {
            Ok(()) => class,
            // If there is no space for a chunk of this class, a larger block is used.
            Err(error) => {
                let larger = self.space.larger_with_space(class);
                let larger = larger.filter(|larger| self.space.with_space(*larger).is_some());
                larger.ok_or(error)?
            }
        };
        Ok(self.space.take(class).expect("a chunk with space is in use"))
    }

    /// Ensures that the class has a chunk in use.
    fn find_space<M: Medium>(&mut self, region: &Region<M>, log: &mut Log, class: Class) -> Result<()> {
        if self.space.with_space(class).is_some() {
            return Ok(());
        }
        for _ in 0..PROBE_CHUNKS {
            if !self.look_further(region, log) {
                break;
            }
            if self.space.with_space(class).is_some() {
                return Ok(());
            }
        }
        self.moves |= self.space.has_sparse();
        let error = match self.free_chunk(region) {
            Ok(at) => {
                self.open_chunk(region, log, at, class);
                return Ok(());
            }
            Err(error) => error,
        };
        // Before a write is refused, all headers are read, once.
        while self.look_further(region, log) {
            if self.space.with_space(class).is_some() {
                return Ok(());
            }
            if let Some(at) = self.free_chunks.pop() {
                if region.medium().provide(at, region.geometry().chunk_bytes).is_ok() {
                    self.open_chunk(region, log, at, class);
                    return Ok(());
                }
                self.discarded.push(at);
            }
        }
        Err(error)
    }

    /// Reads one more of the chunks that were not read since open; false if there is none.
    fn look_further<M: Medium>(&mut self, region: &Region<M>, log: &mut Log) -> bool {
        let geometry = region.geometry();
        if self.unseen_end <= geometry.heap_at() {
            return false;
        }
        self.unseen_end -= geometry.chunk_bytes;
        let at = self.unseen_end;
        match region.medium().word(at) {
            0 => {
                // The zero may not be durable: the process that closed the chunk may have died before the zero was written back.
                self.wide.insert(at);
                self.free_chunks.push(at);
            }
            word => {
                // A chunk with a damaged header is not used; `check` reports it.
                if let Some(found) = Class::of(word, geometry.chunk_bytes) {
                    self.look_at(region, at, found);
                    self.reclaim(region, log, at);
                }
            }
        }
        true
    }

    /// A free chunk with storage. The region grows if there is none.
    fn free_chunk<M: Medium>(&mut self, region: &Region<M>) -> Result<u64> {
        if self.free_count() == 0 {
            self.grow(region, 1)?;
        }
        let free = self.held.pop().or_else(|| self.free_chunks.pop()).or_else(|| self.discarded.pop());
        let at = free.expect("there is one, or the region just grew");
        match region.medium().provide(at, region.geometry().chunk_bytes) {
            Ok(()) => Ok(at),
            Err(error) => {
                self.discarded.push(at);
                Err(error)
            }
        }
    }

    /// Number of known free chunks.
    pub(super) fn free_count(&self) -> usize {
        self.held.len() + self.free_chunks.len() + self.discarded.len()
    }

    /// Adds at least `least` free chunks at the end of the region.
    fn grow<M: Medium>(&mut self, region: &Region<M>, least: u64) -> Result<()> {
        let geometry = region.geometry();
        let old = geometry.heap_at()
            + (region.medium().len() - geometry.heap_at()) / geometry.chunk_bytes * geometry.chunk_bytes;
        // A growth is a share of the region, so growths are rare and little space is wasted. A write waits for the growth, so it
        // has at most as many bytes as the system clears within a moment. A region that is not small grows by whole huge pages,
        // so all of a huge page exists before the first store to it. If the disk is nearly full, the minimum is tried.
        let share = if old < HUGE_FROM { 32 } else { 16 };
        let most = (GROWTH_BYTES_MAX / geometry.chunk_bytes).max(1);
        let more = ((old - geometry.heap_at()) / share / geometry.chunk_bytes).clamp(1, most).max(least);
        let [least, more] = [least, more].map(|chunks| old + chunks * geometry.chunk_bytes);
        let mut end = if old < HUGE_FROM { more } else { more.next_multiple_of(HUGE_PAGE) };
        while let Err(error) = region.grow(end) {
            if end == least {
                return Err(error);
            }
            end = least;
        }
        let chunks = (end - old) / geometry.chunk_bytes;
        self.free_chunks.extend((0..chunks).rev().map(|i| old + i * geometry.chunk_bytes));
        Ok(())
    }

    /// Keeps a chunk that became free. If too many are held, the storage of the oldest returns to the file system (A6).
    pub(super) fn hold<M: Medium>(&mut self, region: &Region<M>, chunk: u64) {
        self.held.push(chunk);
        if self.held.len() <= HELD_MAX {
            return;
        }
        for chunk in self.held.drain(..HELD_MAX - HELD_MIN) {
            self.keeps_storage =
                self.keeps_storage || !region.medium().discard(chunk, region.geometry().chunk_bytes);
            if self.keeps_storage { &mut self.free_chunks } else { &mut self.discarded }.push(chunk);
        }
    }

    /// While there are sparse chunks, written bytes earn credit for moves.
    pub(super) fn earn_moves(&mut self, bytes: u64) {
        self.credit_bytes = (self.credit_bytes + bytes * MOVED_PER_BYTE).min(CREDIT_BYTES_MAX);
    }

    /// True if records should be moved: see [`Allocator::next_to_move`].
    #[inline(always)]
    pub fn has_moves(&self) -> bool {
        self.credit_bytes > 0
    }

    /// The next record to move out of a sparse chunk (A5). If the index references it, the caller makes the index reference a copy
    /// and frees the record. Then it calls again. `None` ends the moves of this operation.
    pub fn next_to_move<M: Medium>(&mut self, region: &Region<M>, log: &mut Log) -> Option<u64> {
        // Finds sparse chunks that were not read since open.
        self.look_further(region, log);
        let next = (self.credit_bytes > 0).then(|| self.space.next_to_move());
        match next {
            Some(Some((chunk, class, index))) => {
                self.is_moving = true;
                self.credit_bytes = self.credit_bytes.saturating_sub(class.block_bytes + MOVE_BYTES);
                let first = class.first(class.blocks(region.geometry().chunk_bytes));
                Some(chunk + first + index * class.block_bytes)
            }
            Some(None) => {
                self.end_moves();
                None
            }
            None => {
                self.is_moving = false;
                None
            }
        }
    }

    /// Stops moves until a chunk is needed again.
    pub fn end_moves(&mut self) {
        (self.moves, self.is_moving, self.credit_bytes) = (false, false, 0);
    }
}
