//! Blocks of any size, for a tree with a memory budget: they are cut out of chunks of units, and free neighbours join again.
//!
//! Free blocks of up to 4 KiB first go to lists by their number of units, because most of them are taken again soon: each late change of an
//! evicted leaf takes a block, and frees one of about the same size. The lists are short. Long ones would keep much memory: all leaves grow
//! at the same time, so nearly all free blocks would have sizes that no leaf has at the moment.
//!
//! Invariant: a unit of a chunk is free, or belongs to one block. The block has an owner or is in one list.

use std::alloc::dealloc;
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;

use super::{ALIGN, Block, allocate, layout};
use crate::sync::IS_SMALL;
use crate::units::{UNITS, Units};

/// Bytes of a unit. Most blocks are nodes of evicted leaves, of two to four units.
pub(super) const UNIT: usize = ALIGN;
/// Smaller blocks are not cut out of these chunks.
pub(super) const MIN: usize = 256;
/// Blocks of more bytes have chunks of their own. The changes that evicted leaves keep often get new blocks. Among them, leaves would find
/// no long runs of free units.
pub(super) const LARGE: usize = 4 << 10;
/// The greatest page size of the system: only whole pages can be given back.
pub(super) const SYSTEM_PAGE: usize = 64 << 10;
/// Bytes of a chunk.
const SPACE: usize = UNITS * UNIT;
/// Chunks are allocated together. One by one, each would leave a gap in the heap, because it begins at a page. The bytes of a group are
/// not those of a huge page, which has another layout.
const SPACES: usize = if IS_SMALL { 1 } else { 15 };
pub(super) const GROUP: usize = SPACE * SPACES;
/// Most bytes of all blocks in lists.
const LISTED: usize = if IS_SMALL { 1 << 10 } else { 512 << 10 };

const _: () = assert!(SPACE.is_multiple_of(SYSTEM_PAGE), "chunks of a group begin at pages of the system");

/// Chunks and their free units.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    /// Free blocks by their number of units. None before the first chunk.
    lists: Vec<Vec<NonNull<u8>>>,
    /// Bytes of the blocks in lists.
    listed: usize,
    /// By address.
    chunks: BTreeMap<usize, Chunk>,
    /// [`SPACES`] chunks each.
    groups: Vec<NonNull<u8>>,
    /// The longest run of free units of each chunk, and its address.
    by_longest: BTreeSet<(usize, usize)>,
    /// Number of chunks without blocks whose memory was not released.
    spare: usize,
}

/// A chunk of units.
#[derive(Debug)]
struct Chunk {
    at: NonNull<u8>,
    units: Units,
    /// It has no blocks, and its memory was given back to the system.
    is_released: bool,
}

impl Spaces {
    /// Takes a block of this length. Also returns the bytes that this call allocated from the system. O(1) if a list has one, else
    /// O(log chunks + units / 64).
    pub(super) fn take(&mut self, bytes: usize) -> (Block, usize) {
        let count = bytes.div_ceil(UNIT);
        if let Some(at) = self.lists.get_mut(count).and_then(Vec::pop) {
            self.listed -= count * UNIT;
            return (Block { at, bytes }, 0);
        }
        let found = self.by_longest.range((count, 0)..).next().copied();
        let (longest, address) = found.unwrap_or_else(|| self.more());
        let Some(chunk) = self.chunks.get_mut(&address) else { unreachable!("a chunk is not known") };
        let more = if chunk.is_released { SPACE } else { 0 };
        if chunk.units.is_free() && !chunk.is_released {
            self.spare -= 1;
        }
        chunk.is_released = false;
        let Some(from) = chunk.units.take(count) else { unreachable!("a run is shorter than noted") };
        let left = chunk.units.longest();
        // SAFETY: the units are within the chunk, and no other block has them.
        let at = unsafe { chunk.at.add(from * UNIT) };
        self.note(address, longest, left);
        (Block { at, bytes }, more)
    }

    /// Adds a group of chunks. Returns the longest run of one of them, and its address.
    #[cold]
    fn more(&mut self) -> (usize, usize) {
        self.lists.resize_with(LARGE / UNIT + 1, Vec::new);
        let first = allocate(GROUP);
        self.groups.push(first);
        for i in 0..SPACES {
            // SAFETY: within the memory that was allocated.
            let at = unsafe { first.add(i * SPACE) };
            let (address, units) = (at.addr().get(), Units::new());
            self.chunks.insert(address, Chunk { at, units, is_released: true });
            self.by_longest.insert((UNITS, address));
        }
        (UNITS, first.addr().get())
    }

    /// Notes the longest run of a chunk.
    fn note(&mut self, address: usize, before: usize, now: usize) {
        if before != now {
            self.by_longest.remove(&(before, address));
            self.by_longest.insert((now, address));
        }
    }

    /// Frees a block. Returns the bytes that this call gave back to the system: those of a chunk without blocks, if there is another one.
    pub(super) fn give(&mut self, block: &Block) -> usize {
        let count = block.bytes.div_ceil(UNIT);
        let Some(list) = self.lists.get_mut(count) else { return self.join(block.at, count) };
        list.push(block.at);
        self.listed += count * UNIT;
        if self.listed <= LISTED {
            return 0;
        }
        // Sizes that are not needed any more would keep the blocks of others out.
        self.listed = 0;
        let mut lists = std::mem::take(&mut self.lists);
        let blocks =
            lists.iter_mut().enumerate().flat_map(|(count, list)| list.drain(..).map(move |at| (at, count)));
        let given = blocks.map(|(at, count)| self.join(at, count)).sum();
        self.lists = lists;
        given
    }

    /// Frees the units of a block. Returns as [`give`](Self::give).
    fn join(&mut self, at: NonNull<u8>, count: usize) -> usize {
        let Some((&start, chunk)) = self.chunks.range_mut(..=at.addr().get()).next_back() else {
            unreachable!("a block is in no chunk")
        };
        let before = chunk.units.longest();
        chunk.units.give((at.addr().get() - start) / UNIT, count);
        let (now, is_free) = (chunk.units.longest(), chunk.units.is_free());
        let is_released = is_free && self.spare > 0 && release(chunk.at);
        chunk.is_released = is_released;
        self.spare += usize::from(is_free && !is_released);
        self.note(start, before, now);
        if is_released { SPACE } else { 0 }
    }
}

/// Gives the memory of a chunk without blocks back to the system, which provides it again when it is written. False if this is not possible.
fn release(at: NonNull<u8>) -> bool {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: the chunk is owned, and no block of it is in use, so its contents are not needed.
        unsafe { libc::madvise(at.as_ptr().cast(), SPACE, libc::MADV_DONTNEED) == 0 }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    {
        let _ = at;
        false
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for at in self.groups.drain(..) {
            // SAFETY: `more` made it with this layout. The tree is dropped, so no block of it is in use.
            unsafe { dealloc(at.as_ptr(), layout(GROUP)) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Bytes of the system that are not given back.
    fn held(spaces: &Spaces) -> usize {
        spaces.chunks.values().filter(|chunk| !chunk.is_released).count() * SPACE
    }

    #[test]
    fn a_block_is_taken_again_and_lists_stay_short() {
        let mut spaces = Spaces::default();
        let (first, _) = spaces.take(700);
        let at = first.at;
        assert_eq!(spaces.give(&first), 0);
        // The same number of units.
        let (again, more) = spaces.take(768);
        assert_eq!((again.at, again.bytes, more), (at, 768, 0));
        spaces.give(&again);
        let other = spaces.take(800).0;
        assert_ne!(other.at, at);
        // Far more blocks than lists have room for, of all sizes that have a list, and of some that have none.
        let blocks: Vec<Block> = (0..4000).map(|i| spaces.take(MIN + i % 34 * UNIT).0).collect();
        let most = held(&spaces);
        let given: usize = blocks.iter().map(|block| spaces.give(block)).sum();
        let listed = |spaces: &Spaces| {
            let blocks = spaces.lists.iter().enumerate();
            blocks.map(|(count, list)| count * UNIT * list.len()).sum::<usize>()
        };
        assert_eq!(spaces.listed, listed(&spaces));
        assert!(spaces.listed <= LISTED);
        assert_eq!(held(&spaces), most - given);
        if cfg!(all(target_os = "linux", not(miri))) {
            assert!(given > most / 2, "{given} of {most}");
        }
    }
}
