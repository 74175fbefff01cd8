//! Memory of nodes and records: blocks of a few sizes, cut out of large chunks.
//!
//! Each thread slot has a pool of its own: lists of free blocks by size, and a chunk that new ones are cut out of. What is freed at a thread slot goes
//! to the lists of that thread slot, whoever made it; so nobody waits for an allocator that all threads share, and what one thread makes and
//! frees stays in its processor's caches. Chunks from 2 MiB on ask for huge pages: a lookup goes to a few random places, each of which
//! would cost a walk over the processor's page tables otherwise.
//!
//! A thread that frees more than it makes gives the surplus away, a *batch* of blocks at a time, over the tree's *depot*: a stack of
//! batches for each size. Chunks are given back when the tree goes.
//!
//! Invariants:
//! * A1: a block is somebody's who took it, or in one list of one pool, or in one batch.
//! * A2: a pool belongs to who has the thread slot (E1).
//! * A3: a batch belongs to who made it until it is on the stack, and to who took the stack afterwards. Stacks are taken whole, so
//!   nobody follows a link of a batch that another may have taken.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};

use crate::canary::{Canary, sings};
use crate::sync::{AtomicPtr, IS_SMALL, Ordering, OwnedCell};

/// Sizes that are multiples of it have blocks that begin at multiples of it: two lines, which processors fetch together.
pub(crate) const ALIGN: usize = 128;

/// Up to here there is a size for each [`STEP`] bytes, beyond eight for each doubling.
const FINE: usize = 512;
const STEP: usize = 16;
/// Larger blocks are allocated each by itself.
const POOLED_MAX: usize = 16 << 10;
/// Sizes of blocks.
const SIZES: usize = FINE / STEP + (POOLED_MAX / FINE).ilog2() as usize * 8;

/// The least chunk, and the largest.
const CHUNK_MIN: usize = if IS_SMALL { 4 << 10 } else { 64 << 10 };
const CHUNK_MAX: usize = 64 << 20;
const HUGE_PAGE: usize = 2 << 20;
/// From a huge page on a chunk is this part of what the pool has, at least; before, each is as long as all before it.
const PART: usize = 8;
/// New blocks are cut so many bytes at a time.
const CUT: usize = if IS_SMALL { 1 } else { 2048 };
/// A batch has so many bytes, about.
const BATCH: usize = if IS_SMALL { 64 } else { 128 << 10 };

const _: () = assert!(CHUNK_MIN >= 4096 && POOLED_MAX <= CHUNK_MAX);

/// Memory that is whose who has this.
#[derive(Debug)]
pub struct Block {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is owned, and bytes have no thread.
unsafe impl Send for Block {}

/// The number of the size of blocks that so many bytes go into; `None` if there is none.
fn size_number(bytes: usize) -> Option<usize> {
    let last = bytes.max(1) - 1;
    if bytes <= FINE {
        return Some(last / STEP);
    }
    let bits = last.ilog2();
    let number = FINE / STEP + (bits - FINE.ilog2()) as usize * 8 + (last >> (bits - 3) & 7);
    (bytes <= POOLED_MAX).then_some(number)
}

/// Bytes of the block that so many bytes go into.
#[inline]
pub(crate) fn block_bytes(bytes: usize) -> usize {
    let last = bytes.max(1) - 1;
    if bytes <= FINE {
        return (last / STEP + 1) * STEP;
    }
    if bytes > POOLED_MAX {
        return bytes.next_multiple_of(ALIGN);
    }
    let step = last.ilog2() - 3;
    ((last >> step) + 1) << step
}

/// Large blocks and chunks.
fn layout(bytes: usize) -> Layout {
    let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { ALIGN };
    // Far from what an address space has.
    Layout::from_size_align(bytes, align).expect("a few GiB at most")
}

fn allocate(bytes: usize) -> NonNull<u8> {
    let layout = layout(bytes);
    // SAFETY: the layout has bytes.
    let start = unsafe { alloc(layout) };
    NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout))
}

impl Block {
    /// Where it begins.
    pub(crate) fn at(&self) -> NonNull<u8> {
        self.at
    }

    /// How long it is.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// One that was taken apart: it begins here and is this long.
    ///
    /// # Safety
    /// Nobody has it or will have it but by this.
    pub(crate) unsafe fn from_parts(at: NonNull<u8>, bytes: usize) -> Self {
        Self { at, bytes }
    }
}

/// Free blocks of one size that are given away together.
#[derive(Debug)]
struct Batch {
    /// Whose it is says A3: in the models who looks at it without owning it is found out.
    blocks: OwnedCell<Vec<Block>>,
    next: *mut Batch,
}

/// Batches of free blocks, by size.
#[derive(Debug)]
pub(crate) struct Depot([AtomicPtr<Batch>; SIZES]);

// SAFETY: batches are owned as A3 says, and blocks have no thread.
unsafe impl Send for Depot {}
// SAFETY: as above.
unsafe impl Sync for Depot {}

impl Depot {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())))
    }

    fn put(&self, number: usize, blocks: Vec<Block>) {
        let stack = &self.0[number];
        let batch = Box::into_raw(Box::new(Batch { blocks: OwnedCell::new(blocks), next: ptr::null_mut() }));
        let published = if sings(Canary::Depot) { Ordering::Relaxed } else { Ordering::Release };
        let mut top = stack.load(Ordering::Relaxed);
        loop {
            // SAFETY: it was made above, and is on no stack yet (A3).
            unsafe { (*batch).next = top };
            match stack.compare_exchange(top, batch, published, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// All blocks of a size that are here.
    fn take(&self, number: usize) -> Vec<Block> {
        let stack = &self.0[number];
        let mut all = Vec::new();
        if stack.load(Ordering::Relaxed).is_null() {
            return all;
        }
        let mut top = stack.swap(ptr::null_mut(), Ordering::Acquire);
        while !top.is_null() {
            // SAFETY: the stack was taken whole, so all of its batches are ours (A3); each was made from a box.
            let batch = unsafe { Box::from_raw(top) };
            batch.blocks.with_mut(|blocks| {
                // SAFETY: as above.
                all.append(unsafe { &mut *blocks });
            });
            top = batch.next;
        }
        all
    }
}

impl Drop for Depot {
    fn drop(&mut self) {
        // A model found something: the stacks may be anything.
        if IS_SMALL && std::thread::panicking() {
            return;
        }
        // The chunks that the blocks are of are the pools'.
        for number in 0..SIZES {
            self.take(number);
        }
    }
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Pool {
    /// By size; empty before the first block is taken.
    free: Vec<Vec<Block>>,
    /// What is left of the newest chunk.
    rest: Block,
    chunks: Vec<Block>,
    /// Bytes of the chunks.
    chunk_bytes: usize,
}

impl Pool {
    pub(crate) fn new() -> Self {
        let rest = Block { at: NonNull::dangling(), bytes: 0 };
        Self { free: Vec::new(), rest, chunks: Vec::new(), chunk_bytes: 0 }
    }

    /// A block of so many bytes at least; and how many more bytes were asked of the system for it.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize, depot: &Depot) -> (Block, usize) {
        let Some(number) = size_number(bytes) else {
            let bytes = block_bytes(bytes);
            return (Block { at: allocate(bytes), bytes }, bytes);
        };
        match self.free.get_mut(number).and_then(Vec::pop) {
            Some(block) => (block, 0),
            None => self.provide(number, block_bytes(bytes), depot),
        }
    }

    #[cold]
    fn provide(&mut self, number: usize, bytes: usize, depot: &Depot) -> (Block, usize) {
        if self.free.is_empty() {
            self.free.resize_with(SIZES, Vec::new);
        }
        let mut blocks = depot.take(number);
        if let Some(block) = blocks.pop() {
            self.free[number].append(&mut blocks);
            return (block, 0);
        }
        let before = self.chunk_bytes;
        let count = (CUT / bytes).max(1);
        for _ in 0..count {
            let block = self.cut(bytes);
            self.free[number].push(block);
        }
        let block = self.free[number].pop();
        (block.unwrap_or_else(|| self.cut(bytes)), self.chunk_bytes - before)
    }

    /// A block that there was not before.
    fn cut(&mut self, bytes: usize) -> Block {
        let align = if bytes.is_multiple_of(ALIGN) { ALIGN } else { STEP };
        let mut skip = self.rest.at.addr().get().wrapping_neg() % align;
        if self.rest.bytes < skip + bytes {
            self.rest = self.chunk();
            skip = 0;
        }
        // SAFETY: both are within the rest of the chunk, as was just seen.
        let at = unsafe { self.rest.at.add(skip) };
        // SAFETY: as above.
        let rest = unsafe { at.add(bytes) };
        self.rest = Block { at: rest, bytes: self.rest.bytes - skip - bytes };
        Block { at, bytes }
    }

    fn chunk(&mut self) -> Block {
        let bytes = if self.chunk_bytes < HUGE_PAGE {
            self.chunk_bytes.next_power_of_two().max(CHUNK_MIN)
        } else {
            (self.chunk_bytes / PART).next_power_of_two().clamp(HUGE_PAGE, CHUNK_MAX)
        };
        let at = allocate(bytes);
        #[cfg(all(target_os = "linux", not(miri)))]
        if bytes >= HUGE_PAGE {
            // SAFETY: it is ours, and what is in it stays as it is. If the system has no huge pages, others do.
            unsafe { libc::madvise(at.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        self.chunks.push(Block { at, bytes });
        self.chunk_bytes += bytes;
        Block { at, bytes }
    }

    /// A block that nobody uses; how many bytes went back to the system.
    #[inline]
    pub(crate) fn give(&mut self, block: Block, depot: &Depot) -> usize {
        let bytes = block.bytes;
        let Some(number) = size_number(bytes) else {
            // SAFETY: `take` made it with this layout, and it is owned.
            unsafe { dealloc(block.at.as_ptr(), layout(bytes)) };
            return bytes;
        };
        if self.free.is_empty() {
            self.free.resize_with(SIZES, Vec::new);
        }
        let free = &mut self.free[number];
        free.push(block);
        let batch = (BATCH / bytes).max(1);
        if free.len() > 2 * batch {
            depot.put(number, free.split_off(batch));
        }
        0
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for Block { at, bytes } in self.chunks.drain(..) {
            // SAFETY: made by `chunk` with this layout. The tree goes, and with it whoever has a block.
            unsafe { dealloc(at.as_ptr(), layout(bytes)) };
        }
    }
}

/// Space behind a node, in its block, that arrays are put into.
#[derive(Debug)]
pub struct Space {
    at: NonNull<u8>,
    left: usize,
}

/// An array that lies in the block of the node that has it.
///
/// Whoever makes one puts it into that node's body and nowhere else, so that it is there as long as its elements are.
pub struct Array<T> {
    at: NonNull<T>,
    count: usize,
}

// SAFETY: it is a slice that it alone has.
unsafe impl<T: Send> Send for Array<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Array<T> {}

/// An array that is being written.
#[derive(Debug)]
pub(crate) struct Draft<T> {
    at: NonNull<T>,
    count: usize,
    max: usize,
}

/// Bytes that an array takes in a space, at most, where all arrays begin at multiples of `align`.
pub(crate) const fn array_bytes<T>(count: usize, align: usize) -> usize {
    count * size_of::<T>() + align - 1
}

impl Space {
    /// What is behind the first `from` bytes of a block.
    pub(crate) fn behind(block: &Block, from: usize) -> Self {
        assert!(from <= block.bytes, "a node is longer than its block");
        // SAFETY: within the block.
        Self { at: unsafe { block.at.add(from) }, left: block.bytes - from }
    }

    /// Begins an array of `max` elements at most, at a multiple of `align`.
    pub(crate) fn array<T>(&mut self, max: usize, align: usize) -> Draft<T> {
        let align = align.max(align_of::<T>());
        let skip = self.at.addr().get().wrapping_neg() % align;
        let bytes = skip + max * size_of::<T>();
        assert!(bytes <= self.left, "an array is longer than its space");
        // SAFETY: within the space, as was just seen.
        let at = unsafe { self.at.add(skip) }.cast();
        // SAFETY: as above.
        (self.at, self.left) = (unsafe { self.at.add(bytes) }, self.left - bytes);
        Draft { at, count: 0, max }
    }

    /// An array of what an iterator has, up to `max` elements.
    pub(crate) fn collect<T>(&mut self, max: usize, align: usize, from: impl Iterator<Item = T>) -> Array<T> {
        let mut draft = self.array(max, align);
        from.for_each(|item| draft.push(item));
        draft.done()
    }
}

impl<T> Draft<T> {
    #[inline(always)]
    pub(crate) fn push(&mut self, item: T) {
        assert!(self.count < self.max, "an array has no space for another element");
        // SAFETY: `Space::array` saw that there is space for so many.
        let at = unsafe { self.at.add(self.count) };
        // SAFETY: as above; nobody else has it.
        unsafe { at.write(item) };
        self.count += 1;
    }

    #[inline(always)]
    pub(crate) fn extend(&mut self, items: &[T])
    where
        T: Copy,
    {
        assert!(items.len() <= self.max - self.count, "an array has no space for more elements");
        // SAFETY: as in `push`.
        let at = unsafe { self.at.add(self.count) };
        // SAFETY: as in `push`; so the items lie elsewhere.
        unsafe { at.copy_from_nonoverlapping(NonNull::from(items).cast(), items.len()) };
        self.count += items.len();
    }

    pub(crate) fn done(self) -> Array<T> {
        Array { at: self.at, count: self.count }
    }
}

impl<T> std::ops::Deref for Array<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `Draft` wrote so many, and the block is there as long as the node that has the array.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.count) }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Array<T> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(to)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_long_as_their_sizes_say() {
        let mut sizes = std::collections::BTreeSet::new();
        for bytes in 0..=POOLED_MAX {
            let block = block_bytes(bytes);
            assert!(block >= bytes && block <= bytes + bytes / 8 + STEP, "{bytes}: {block}");
            assert_eq!(size_number(bytes), size_number(block), "{bytes}");
            assert!(!bytes.is_multiple_of(ALIGN) || block.is_multiple_of(ALIGN) || bytes == 0);
            sizes.insert((size_number(bytes), block));
        }
        assert_eq!(sizes.len(), SIZES);
        assert_eq!((size_number(POOLED_MAX + 1), block_bytes(POOLED_MAX + 1)), (None, POOLED_MAX + ALIGN));
    }

    #[test]
    fn no_two_blocks_overlap_and_those_given_back_are_given_out_again() {
        let (depot, mut random) = (Depot::new(), fastrand::Rng::with_seed(1));
        let mut pools = [Pool::new(), Pool::new()];
        let (mut held, mut asked, mut in_use) = (std::collections::BTreeMap::new(), 0, 0usize);
        for step in 0..60_000 {
            let pool = &mut pools[random.usize(..2)];
            // What the one makes the other frees: in phases there are more and fewer.
            let takes = random.usize(..100) < if step / 10_000 % 2 == 0 { 60 } else { 40 };
            if takes {
                let bytes = match random.u8(..8) {
                    0 => random.usize(..40_000),
                    1 => random.usize(..4000).next_multiple_of(ALIGN),
                    _ => random.usize(1..300),
                };
                let (block, more) = pool.take(bytes, &depot);
                asked += more;
                in_use += block.bytes;
                let start = block.at.addr().get();
                assert!(block.bytes >= bytes && start.is_multiple_of(STEP));
                assert!(!block.bytes.is_multiple_of(ALIGN) || start.is_multiple_of(ALIGN));
                let before =
                    held.range(..start).next_back().map(|(at, block): (&usize, &Block)| at + block.bytes);
                let behind = held.range(start..).next().map(|(at, _)| *at);
                assert!(before.is_none_or(|end| end <= start));
                assert!(behind.is_none_or(|next| start + block.bytes <= next));
                held.insert(start, block);
            } else if let Some((at, _)) = held.range(random.usize(..)..).next().or(held.iter().next()) {
                let at = *at;
                let block = held.remove(&at).unwrap();
                in_use -= block.bytes;
                asked -= pool.give(block, &depot);
            }
        }
        assert!(asked >= in_use, "{asked} bytes were asked for, {in_use} are used");
        let mut pool = Pool::new();
        let first = pool.take(100, &depot).0;
        let at = first.at;
        pool.give(first, &depot);
        assert_eq!(pool.take(100, &depot).0.at, at);
        for (_, block) in held {
            pool.give(block, &depot);
        }
    }

    #[test]
    fn arrays_are_what_was_put_into_them() {
        let (mut pool, depot) = (Pool::new(), Depot::new());
        let (block, _) = pool.take(1024, &depot);
        let mut space = Space::behind(&block, 13);
        let words = space.collect(5, 64, 0..5u64);
        let mut bytes = space.array(9, 1);
        bytes.extend(&[1u8, 2, 3]);
        bytes.push(4);
        let bytes = bytes.done();
        assert_eq!((&*words, &*bytes), (&[0, 1, 2, 3, 4][..], &[1, 2, 3, 4][..]));
        assert!(words.as_ptr().addr().is_multiple_of(64));
        pool.give(block, &depot);
    }
}
