//! Allocation pools: memory of nodes and records, in blocks of a few sizes that are cut out of large chunks.
//!
//! Each thread slot has a pool: lists of free blocks by size, and a chunk that new blocks are cut out of. A block that is freed at a thread
//! slot goes to the lists of that slot, even if another slot made it. So no thread waits for a shared allocator, and the blocks that a
//! thread makes and frees stay in its processor's caches. For chunks of 2 MiB and more the pool asks for huge pages: a lookup reads a few
//! random places, and each would otherwise cost a page-table walk.
//!
//! A thread that frees more than it makes gives its surplus to the tree's *depot*, one *batch* of blocks at a time. The depot is a stack of
//! batches for each size. Chunks are freed when the tree is dropped. In a tree with a memory budget, blocks of 256 bytes and more are not in
//! these lists: threads share chunks that are cut into blocks of any size, behind a lock (`spaces`). Leaves and smaller blocks have chunks of
//! their own.
//!
//! Invariants:
//! * A1: a block has an owner, or is in one list of one pool, of one batch, or of `spaces`.
//! * A2: a pool belongs to the thread that holds the thread slot (E1 of [`epoch`](crate::epoch)).
//! * A3: a batch belongs to the thread that made it until it is on the stack, and then to the thread that takes it from there. One thread at
//!   a time takes batches from a stack, so it follows no link of a batch that another thread may have taken, and a batch that it found on
//!   top is still the same one if its exchange succeeds. A thread that finds another one taking a batch makes new blocks.
//!
//! Commit points: the exchange that puts a batch on its stack, and the one that takes it.

mod spaces;

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};
use std::sync::PoisonError;

use spaces::Spaces;

use crate::omission::{Omission, is_omitted};
use crate::sync::{AtomicPtr, AtomicU64, IS_SMALL, Mutex, MutexGuard, Ordering, OwnedCell};

/// A block whose size is a multiple of this begins at a multiple of this. It is two cache lines, which processors fetch together.
pub(crate) const ALIGN: usize = 128;

/// Up to this many bytes, sizes are multiples of [`STEP`]. Above it there are eight sizes for each doubling.
const FINE: usize = 512;
const STEP: usize = 16;
/// A larger block is allocated separately.
const POOLED_MAX: usize = 32 << 10;
/// Number of block sizes.
const SIZES: usize = FINE / STEP + (POOLED_MAX / FINE).ilog2() as usize * 8;

/// Minimum and maximum bytes of a chunk.
const CHUNK_MIN: usize = if IS_SMALL { 4 << 10 } else { 64 << 10 };
const CHUNK_MAX: usize = 64 << 20;
/// The maximum in a tree with a memory budget, which counts whole chunks.
const CHUNK_SMALL: usize = 256 << 10;
const HUGE_PAGE: usize = 2 << 20;
/// A pool with at least a huge page of chunks adds chunks of at least 1 / `PART` of its bytes, but at most [`CHUNK_MAX`]. A smaller pool
/// doubles.
const PART: usize = 8;
/// New blocks are cut in groups of about this many bytes.
const CUT: usize = if IS_SMALL { 1 } else { 2048 };
/// Approximate bytes of a batch.
pub(crate) const BATCH: usize = if IS_SMALL { 64 } else { 128 << 10 };
/// The same in a tree with a memory budget: free blocks of sizes that are not needed now count against the budget.
pub(crate) const BATCH_SMALL: usize = if IS_SMALL { 64 } else { 8 << 10 };

const _: () = assert!(FINE >= spaces::MIN && CHUNK_MIN >= 4096 && POOLED_MAX <= CHUNK_MAX);

/// A block of memory. The owner of this value owns the memory.
#[derive(Debug)]
pub struct Block {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is owned, and bytes belong to no thread.
unsafe impl Send for Block {}

/// Number of the smallest size with at least `bytes` bytes. `None` if a block of that size is allocated separately.
fn size_number(bytes: usize) -> Option<usize> {
    let last = bytes.max(1) - 1;
    if bytes <= FINE {
        return Some(last / STEP);
    }
    let bits = last.ilog2();
    let number = FINE / STEP + (bits - FINE.ilog2()) as usize * 8 + (last >> (bits - 3) & 7);
    (bytes <= POOLED_MAX).then_some(number)
}

/// Bytes of the block for a request of `bytes` bytes.
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

/// The layout of a chunk or of a separately allocated block.
fn layout(bytes: usize) -> Layout {
    let align = match bytes {
        // Only whole pages of the system can be given back.
        spaces::GROUP => spaces::SYSTEM_PAGE,
        HUGE_PAGE.. => HUGE_PAGE,
        _ => ALIGN,
    };
    // An allocation is far smaller than the address space.
    Layout::from_size_align(bytes, align).expect("a few GiB at most")
}

fn allocate(bytes: usize) -> NonNull<u8> {
    let layout = layout(bytes);
    // SAFETY: the layout has at least one byte.
    let start = unsafe { alloc(layout) };
    NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout))
}

impl Block {
    /// The address.
    pub(crate) fn at(&self) -> NonNull<u8> {
        self.at
    }

    /// The length.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes a block from its address and length.
    ///
    /// # Safety
    /// The memory has no other owner and will get none.
    pub(crate) unsafe fn from_parts(at: NonNull<u8>, bytes: usize) -> Self {
        Self { at, bytes }
    }
}

/// Free blocks of one size that move together.
#[derive(Debug)]
struct Batch {
    /// A3 says which thread owns them. The models detect an access without ownership.
    blocks: OwnedCell<Vec<Block>>,
    next: *mut Batch,
}

/// A stack of batches.
#[derive(Debug)]
struct Stack {
    top: AtomicPtr<Batch>,
    /// 1 while a thread takes a batch (A3).
    is_popped: AtomicU64,
}

/// Stacks of batches of free blocks, by size.
#[derive(Debug)]
pub(crate) struct Depot {
    /// In a tree with a memory budget: for blocks of up to [`LARGE`](spaces::LARGE) bytes, and for larger ones.
    spaces: Option<[Mutex<Spaces>; 2]>,
    stacks: [Stack; SIZES],
    /// Approximate bytes of a batch.
    batch_bytes: usize,
    /// Maximum bytes of a chunk.
    chunk_max: usize,
}

// SAFETY: A3 says which thread owns a batch, and blocks belong to no thread.
unsafe impl Send for Depot {}
// SAFETY: as above.
unsafe impl Sync for Depot {}

impl Depot {
    pub(crate) fn new(batch_bytes: usize) -> Self {
        let stack = |_| Stack { top: AtomicPtr::new(ptr::null_mut()), is_popped: AtomicU64::new(0) };
        // The unused rest of a chunk counts against the budget, too.
        let chunk_max = if batch_bytes == BATCH { CHUNK_MAX } else { CHUNK_SMALL };
        let spaces = (batch_bytes != BATCH).then(Default::default);
        Self { spaces, stacks: std::array::from_fn(stack), batch_bytes, chunk_max }
    }

    /// The spaces for blocks of this many bytes. `None`: pools have them.
    #[inline(always)]
    fn spaces(&self, bytes: usize) -> Option<MutexGuard<'_, Spaces>> {
        if bytes < spaces::MIN {
            return None;
        }
        let [small, large] = self.spaces.as_ref()?;
        let spaces = if bytes > spaces::LARGE { large } else { small };
        Some(spaces.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, number: usize, blocks: Vec<Block>) {
        let stack = &self.stacks[number].top;
        let batch = Box::into_raw(Box::new(Batch { blocks: OwnedCell::new(blocks), next: ptr::null_mut() }));
        let published = if is_omitted(Omission::Depot) { Ordering::Relaxed } else { Ordering::Release };
        let mut top = stack.load(Ordering::Relaxed);
        loop {
            // SAFETY: the batch was made above, and is on no stack yet (A3).
            unsafe { (*batch).next = top };
            match stack.compare_exchange(top, batch, published, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Takes a batch of blocks of a size. Empty if there is none, or another thread is taking one.
    fn take(&self, number: usize) -> Vec<Block> {
        let Stack { top: stack, is_popped } = &self.stacks[number];
        let mut blocks = Vec::new();
        if stack.load(Ordering::Relaxed).is_null() || is_popped.swap(1, Ordering::Acquire) != 0 {
            return blocks;
        }
        let mut top = stack.load(Ordering::Acquire);
        while !top.is_null() {
            // SAFETY: only this thread takes batches from the stack now, so the batch is still on it (A3).
            let next = unsafe { (*top).next };
            match stack.compare_exchange(top, next, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => top = now,
            }
        }
        is_popped.store(0, Ordering::Release);
        if !top.is_null() {
            // SAFETY: this thread took the batch, which was made from a box (A3).
            let batch = unsafe { Box::from_raw(top) };
            // SAFETY: as above.
            batch.blocks.with_mut(|taken| blocks.append(unsafe { &mut *taken }));
        }
        blocks
    }
}

impl Drop for Depot {
    fn drop(&mut self) {
        // A model or a schedule has failed: the stacks may be damaged.
        if IS_SMALL && std::thread::panicking() {
            return;
        }
        // The pools free the chunks that contain the blocks.
        for number in 0..SIZES {
            while !self.take(number).is_empty() {}
        }
    }
}

/// The allocation pool of a thread slot; see the module's head.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Free blocks by size. Empty before the first block is taken.
    free: Vec<Vec<Block>>,
    /// The unused part of the newest chunk.
    rest: Block,
    chunks: Vec<Block>,
    /// Bytes of all chunks.
    chunk_bytes: usize,
}

impl Pool {
    pub(crate) fn new() -> Self {
        let rest = Block { at: NonNull::dangling(), bytes: 0 };
        Self { free: Vec::new(), rest, chunks: Vec::new(), chunk_bytes: 0 }
    }

    /// Takes a block of at least `bytes` bytes. Also returns the bytes that this call allocated from the system.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize, depot: &Depot) -> (Block, usize) {
        let Some(number) = size_number(bytes) else {
            let bytes = block_bytes(bytes);
            return (Block { at: allocate(bytes), bytes }, bytes);
        };
        let bytes = block_bytes(bytes);
        if let Some(mut spaces) = depot.spaces(bytes) {
            return spaces.take(bytes);
        }
        match self.free.get_mut(number).and_then(Vec::pop) {
            Some(block) => (block, 0),
            None => self.provide(number, bytes, depot),
        }
    }

    /// As [`take`](Self::take), for the block of a node. A node notes the length of its block, so that need not be one of the few sizes.
    #[inline]
    pub(crate) fn take_for_node(&mut self, bytes: usize, depot: &Depot) -> (Block, usize) {
        if (FINE + 1..=POOLED_MAX).contains(&bytes)
            && let Some(mut spaces) = depot.spaces(bytes.next_multiple_of(spaces::UNIT))
        {
            return spaces.take(bytes.next_multiple_of(spaces::UNIT));
        }
        self.take(bytes, depot)
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
            let block = self.cut(bytes, depot.chunk_max);
            self.free[number].push(block);
        }
        let block = self.free[number].pop();
        (block.unwrap_or_else(|| self.cut(bytes, depot.chunk_max)), self.chunk_bytes - before)
    }

    /// Cuts a new block.
    fn cut(&mut self, bytes: usize, chunk_max: usize) -> Block {
        let align = if bytes.is_multiple_of(ALIGN) { ALIGN } else { STEP };
        let mut skip = self.rest.at.addr().get().wrapping_neg() % align;
        if self.rest.bytes < skip + bytes {
            self.rest = self.chunk(chunk_max);
            skip = 0;
        }
        // SAFETY: both are within the rest of the chunk, as checked above.
        let at = unsafe { self.rest.at.add(skip) };
        // SAFETY: as above.
        let rest = unsafe { at.add(bytes) };
        self.rest = Block { at: rest, bytes: self.rest.bytes - skip - bytes };
        Block { at, bytes }
    }

    fn chunk(&mut self, chunk_max: usize) -> Block {
        let bytes = if self.chunk_bytes < HUGE_PAGE {
            self.chunk_bytes.next_power_of_two().max(CHUNK_MIN)
        } else {
            (self.chunk_bytes / PART).next_power_of_two().clamp(HUGE_PAGE, CHUNK_MAX)
        };
        let bytes = bytes.min(chunk_max);
        let at = allocate(bytes);
        #[cfg(all(target_os = "linux", not(miri)))]
        if bytes >= HUGE_PAGE {
            // SAFETY: the memory is owned, and the call does not change its content. A system without huge pages uses small ones.
            unsafe { libc::madvise(at.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        self.chunks.push(Block { at, bytes });
        self.chunk_bytes += bytes;
        Block { at, bytes }
    }

    /// Frees a block that no thread uses. Returns the bytes that this call freed to the system.
    #[inline]
    pub(crate) fn give(&mut self, block: Block, depot: &Depot) -> usize {
        let bytes = block.bytes;
        let Some(number) = size_number(bytes) else {
            // SAFETY: `take` made it with this layout, and it is owned.
            unsafe { dealloc(block.at.as_ptr(), layout(bytes)) };
            return bytes;
        };
        if let Some(mut spaces) = depot.spaces(bytes) {
            return spaces.give(&block);
        }
        if self.free.is_empty() {
            self.free.resize_with(SIZES, Vec::new);
        }
        let free = &mut self.free[number];
        free.push(block);
        let batch = (depot.batch_bytes / bytes).max(1);
        if free.len() > 2 * batch {
            depot.put(number, free.split_off(batch));
        }
        0
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for Block { at, bytes } in self.chunks.drain(..) {
            // SAFETY: `chunk` made it with this layout. The tree is dropped, so no block of it is in use.
            unsafe { dealloc(at.as_ptr(), layout(bytes)) };
        }
    }
}

/// The rest of a node's block, for its arrays.
#[derive(Debug)]
pub struct Space {
    at: NonNull<u8>,
    left: usize,
}

/// An array in the block of the node that owns it.
///
/// The caller that makes one must put it into that node's body and nowhere else. So the elements exist as long as the array.
pub struct Array<T> {
    at: NonNull<T>,
    count: usize,
}

// SAFETY: it is a slice with one owner.
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

/// Maximum bytes of an array in a space in which arrays begin at multiples of `align`.
pub(crate) const fn array_bytes<T>(count: usize, align: usize) -> usize {
    count * size_of::<T>() + align - 1
}

impl Space {
    /// The part of a block after its first `from` bytes.
    pub(crate) fn behind(block: &Block, from: usize) -> Self {
        assert!(from <= block.bytes, "a node is longer than its block");
        // SAFETY: within the block.
        Self { at: unsafe { block.at.add(from) }, left: block.bytes - from }
    }

    /// Begins an array of at most `max` elements, at a multiple of `align`.
    pub(crate) fn array<T>(&mut self, max: usize, align: usize) -> Draft<T> {
        let align = align.max(align_of::<T>());
        let skip = self.at.addr().get().wrapping_neg() % align;
        let bytes = skip + max * size_of::<T>();
        assert!(bytes <= self.left, "an array is longer than its space");
        // SAFETY: within the space, as checked above.
        let at = unsafe { self.at.add(skip) }.cast();
        // SAFETY: as above.
        (self.at, self.left) = (unsafe { self.at.add(bytes) }, self.left - bytes);
        Draft { at, count: 0, max }
    }

    /// Makes an array of the items of an iterator, at most `max`.
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
        // SAFETY: `Space::array` checked that there is space for `max` elements.
        let at = unsafe { self.at.add(self.count) };
        // SAFETY: as above; no other thread has the space.
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
        // SAFETY: as in `push`. The draft owns its space, so the items are elsewhere.
        unsafe { at.copy_from_nonoverlapping(NonNull::from(items).cast(), items.len()) };
        self.count += items.len();
    }

    /// The place of the next element. It keeps its address.
    pub(crate) fn end(&self) -> NonNull<T> {
        assert!(self.count <= self.max, "an array is longer than its space");
        // SAFETY: within the space that `Space::array` checked, or at its end.
        unsafe { self.at.add(self.count) }
    }

    pub(crate) fn done(self) -> Array<T> {
        Array { at: self.at, count: self.count }
    }
}

impl<T> std::ops::Deref for Array<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `Draft` wrote `count` elements, and the block exists as long as the node with the array.
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
        [BATCH, BATCH_SMALL].into_iter().for_each(blocks_do_not_overlap);
    }

    fn blocks_do_not_overlap(batch_bytes: usize) {
        let (depot, mut random) = (Depot::new(batch_bytes), fastrand::Rng::with_seed(1));
        let mut pools = [Pool::new(), Pool::new()];
        let (mut held, mut asked, mut in_use) = (std::collections::BTreeMap::new(), 0, 0usize);
        for step in 0..60_000 {
            let pool = &mut pools[random.usize(..2)];
            // One pool frees blocks that the other made. The number of blocks grows and shrinks in phases.
            let takes = random.usize(..100) < if step / 10_000 % 2 == 0 { 60 } else { 40 };
            if takes {
                let bytes = match random.u8(..8) {
                    0 => random.usize(..40_000),
                    1 => random.usize(..4000).next_multiple_of(ALIGN),
                    _ => random.usize(1..300),
                };
                let (block, more) =
                    if random.bool() { pool.take(bytes, &depot) } else { pool.take_for_node(bytes, &depot) };
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
        let (mut pool, depot) = (Pool::new(), Depot::new(BATCH));
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
