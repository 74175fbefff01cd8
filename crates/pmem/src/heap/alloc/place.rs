//! The positions of chunks, of blocks and of their bits, and the meaning of their durable words.

use crate::heap::alloc::class::{Class, Kind};
use crate::heap::region::{Geometry, Region};
use crate::medium::traits::{LINE, Medium, WORD};

/// Number of bitmap words in the line of a chunk's header.
pub(super) const HEADER_WORDS: u64 = LINE / WORD - 1;

/// The position of a block's bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) chunk: u64,
    pub(super) class: Class,
    pub(super) index: u64,
}

impl Place {
    pub(super) fn word_at(self) -> u64 {
        self.chunk + WORD + self.index / 64 * WORD
    }
    pub(super) fn bit(self) -> u64 {
        1 << (self.index % 64)
    }
}

/// Finds the block that starts at `at`, if it is in a chunk with a valid header.
pub(super) fn place<M: Medium>(region: &Region<M>, at: u64) -> Option<Place> {
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

/// All chunks of the region with their classes: `Ok(None)` is a free chunk, `Err` a chunk with a damaged header.
pub fn chunks<M: Medium>(region: &Region<M>) -> impl Iterator<Item = (u64, FoundClass)> {
    let geometry = region.geometry();
    let first = geometry.heap_at();
    let at = (0..).map(move |i: u64| first + i * geometry.chunk_bytes);
    at.zip(classes(region.medium(), geometry))
}

/// The content of a chunk's header: a class, none (a free chunk), or damage.
pub type FoundClass = std::result::Result<Option<Class>, Damaged>;

/// A chunk header that was not written by this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// The classes of a medium's chunks, in order, for this geometry.
pub fn classes<M: Medium>(medium: &M, geometry: Geometry) -> impl Iterator<Item = FoundClass> {
    let count = medium.len().saturating_sub(geometry.heap_at()) / geometry.chunk_bytes;
    (0..count).map(move |i| match medium.word(geometry.heap_at() + i * geometry.chunk_bytes) {
        0 => Ok(None),
        word => Class::of(word, geometry.chunk_bytes).map(Some).ok_or(Damaged),
    })
}

/// The addresses of all allocated blocks of a chunk.
pub fn blocks_in<M: Medium>(region: &Region<M>, chunk: u64, class: Class) -> impl Iterator<Item = u64> {
    let blocks = class.blocks(region.geometry().chunk_bytes);
    let first = chunk + class.first(blocks);
    (0..blocks).filter_map(move |index| {
        let place = Place { chunk, class, index };
        (region.medium().word(place.word_at()) & place.bit() != 0)
            .then_some(first + index * class.block_bytes)
    })
}

/// Samples at most `most` chunks, spread evenly over the region. Returns the first allocated block of each sampled chunk of this
/// kind.
pub fn sample<M: Medium>(region: &Region<M>, kind: Kind, most: u64) -> impl Iterator<Item = u64> {
    let geometry = region.geometry();
    let count = region.medium().len().saturating_sub(geometry.heap_at()) / geometry.chunk_bytes;
    let looked_at = count.min(most);
    (0..looked_at).filter_map(move |i| {
        let chunk = geometry.heap_at() + i * count / looked_at * geometry.chunk_bytes;
        let class = Class::of(region.medium().word(chunk), geometry.chunk_bytes)?;
        if class.kind != kind {
            return None;
        }
        blocks_in(region, chunk, class).next()
    })
}

/// Stores a block's bit and flushes it.
pub(super) fn set_bit<M: Medium>(medium: &M, place: Place, taken: bool) {
    let at = place.word_at();
    let old = medium.word(at);
    medium.copy(at, if taken { old | place.bit() } else { old & !place.bit() });
    medium.flush(at, WORD);
}
