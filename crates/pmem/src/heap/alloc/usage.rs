//! The use of a region's bytes, according to the chunks' own headers and bitmaps.
//!
//! Every byte of a region is in one of three parts. Live: in an allocated block. Free: in a block that is not
//! allocated, or in a chunk without a class. Overhead: all other bytes. The format itself takes them, or they are in a
//! chunk with a damaged header.

use crate::heap::alloc::class::Class;
use crate::heap::alloc::place::chunks;
use crate::heap::region::Region;
use crate::medium::traits::{Medium, WORD};

/// The use of a region's bytes. The three parts sum to the region's length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of allocated blocks, including the rounding of their size class.
    pub live_bytes: u64,
    /// Bytes that later allocations use before the region grows: blocks that are not allocated (only for their size class, until
    /// their chunk is empty) and whole chunks without a class, with or without storage.
    pub free_bytes: u64,
    /// The rest: superblock, intents and log, headers and remainders of chunks, bytes after the last whole chunk. A chunk with a
    /// damaged header counts here, because nothing is allocated from it.
    pub overhead_bytes: u64,
}

/// Reads the header and the bitmap of every chunk, O(chunks). Concurrently with a writer, each chunk counts as it was when it was
/// read.
pub fn usage<M: Medium>(region: &Region<M>) -> Usage {
    // Read first, because a region only grows.
    let region_bytes = region.medium().len();
    let chunk_bytes = region.geometry().chunk_bytes;
    let (mut live_bytes, mut free_bytes) = (0, 0);
    for (at, class) in chunks(region).take_while(|(at, _)| at + chunk_bytes <= region_bytes) {
        match class {
            Ok(Some(class)) => {
                let allocated = allocated_in(region, at, class);
                live_bytes += allocated * class.block_bytes;
                free_bytes += (class.blocks(chunk_bytes) - allocated) * class.block_bytes;
            }
            Ok(None) => free_bytes += chunk_bytes,
            Err(_) => {}
        }
    }
    Usage { live_bytes, free_bytes, overhead_bytes: region_bytes - live_bytes - free_bytes }
}

/// Number of allocated blocks of a chunk.
fn allocated_in<M: Medium>(region: &Region<M>, chunk: u64, class: Class) -> u64 {
    let blocks = class.blocks(region.geometry().chunk_bytes);
    let in_word = |i: u64| {
        // The bits after the last block may have any value while the chunk gets another class.
        let bits = (blocks - i * 64).min(64);
        let word = region.medium().word(chunk + WORD + i * WORD);
        u64::from((word & u64::MAX >> (64 - bits)).count_ones())
    };
    (0..blocks.div_ceil(64)).map(in_word).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::alloc::allocator::Allocator;
    use crate::heap::alloc::class::Kind;
    use crate::heap::log::redo::{Format, Log};
    use crate::heap::region::{Geometry, Identity, RegionOptions};
    use crate::medium::counter::Counter;
    use crate::medium::native::Durability;
    use crate::medium::observed::{Memory, Observed};

    #[test]
    fn live_free_and_overhead_are_all_bytes_and_a_block_moves_its_own_from_one_to_the_other() {
        let geometry = Geometry::tiny();
        let medium = Observed::new(Memory::new(1 << 20, 0), std::sync::Arc::new(Counter::default()));
        let identity = Identity { engine: "engine".into(), kind: "kind".into(), node_lines: 4 };
        let options = RegionOptions { geometry, identity };
        let region = Region::create(medium, &options, Durability::Power).unwrap();
        let (mut log, mut allocator) = (Log::new(geometry, Format::Redo), Allocator::new(&region));
        let all = |usage: Usage| usage.live_bytes + usage.free_bytes + usage.overhead_bytes;
        let empty = usage(&region);
        assert_eq!((empty.live_bytes, all(empty)), (0, region.medium().len()));
        // Three chunks of leaves and one of records.
        let mut blocks = Vec::new();
        let mut live = 0;
        for (kind, bytes, count) in [(Kind::Leaf, 256, 40), (Kind::Record, 100, 9)] {
            for _ in 0..count {
                let at = allocator.take(&region, &mut log, kind, bytes).unwrap();
                allocator.flip(&region);
                allocator.finish(&region, &mut log);
                live += crate::heap::alloc::place::allocated(&region, at).unwrap().block_bytes;
                blocks.push(at);
                let now = usage(&region);
                assert_eq!((now.live_bytes, all(now)), (live, region.medium().len()));
            }
        }
        assert!(live >= 40 * 256 + 9 * 100);
        let full = usage(&region);
        // Frees every other block: no chunk becomes empty, so exactly their bytes become free.
        let mut given = 0;
        for at in blocks.iter().step_by(2) {
            given += crate::heap::alloc::place::allocated(&region, *at).unwrap().block_bytes;
            allocator.give(&region, *at).unwrap();
            allocator.flip(&region);
            allocator.finish(&region, &mut log);
        }
        let half = usage(&region);
        assert_eq!(half.live_bytes, full.live_bytes - given);
        assert_eq!(half.free_bytes, full.free_bytes + given);
        assert_eq!(half.overhead_bytes, full.overhead_bytes);
        // The blocks are allocated again before the region grows.
        let len = region.medium().len();
        for _ in 0..20 {
            allocator.take(&region, &mut log, Kind::Leaf, 256).unwrap();
            allocator.flip(&region);
            allocator.finish(&region, &mut log);
        }
        assert_eq!(region.medium().len(), len);
    }

    #[test]
    fn a_damaged_header_makes_its_chunk_overhead() {
        let medium = Observed::new(Memory::new(1 << 20, 0), std::sync::Arc::new(Counter::default()));
        let identity = Identity { engine: "engine".into(), kind: "kind".into(), node_lines: 4 };
        let geometry = Geometry::tiny();
        let region =
            Region::create(medium, &RegionOptions { geometry, identity }, Durability::Power).unwrap();
        region.grow(geometry.heap_at() + 2 * geometry.chunk_bytes).unwrap();
        let before = usage(&region);
        assert_eq!((before.live_bytes, before.free_bytes), (0, 2 * geometry.chunk_bytes));
        region.medium().copy(geometry.heap_at(), 0x1234);
        let after = usage(&region);
        assert_eq!(after.free_bytes, geometry.chunk_bytes);
        assert_eq!(after.overhead_bytes, before.overhead_bytes + geometry.chunk_bytes);
    }
}
