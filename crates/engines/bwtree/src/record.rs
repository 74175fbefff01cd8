//! Records of byte strings: a key and its value in one block, written once. A leaf, and each change in its slab (an update that is not in
//! the leaf's array yet), has pointers to records. So a consolidation or a split copies pointers, not the records.
//!
//! ```text
//! slot or change ──► value bytes: u32 | key bytes: u16 | has value: bool (false: the key is deleted) | is copy: bool | key … | value …
//! ```
//!
//! A leaf of a tree with a memory budget has copies of small records in its own block (N8 in [`node`](crate::node)).
//!
//! N5 and N6 in [`node`](crate::node) say which page owns a record. The types stand for the states of a record:
//!
//! * [`Fresh`]: no other thread has seen it.
//! * [`Shared`]: a pointer in a change or a leaf. A drop of the pointer has no effect.
//! * [`ByteRecord`]: a borrowed record, valid as long as the owner of the pointer exists.
//! * [`Dead`]: retired. [`Dead::free`] returns the block. It is called only when no other thread can access the record any more.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;

use crate::node::prefetch;
use crate::pool::{Block, Draft, block_bytes};
use crate::search::LINE;
use crate::sync::Watch;

/// The bytes before the key.
#[repr(C)]
struct Header {
    value_bytes: u32,
    key_bytes: u16,
    /// False: the key has no record (deleted).
    is_there: bool,
    /// True: it is a copy in the block of a leaf.
    is_inside: bool,
    watch: Watch,
}

/// Records of at most this many bytes are copied into leaves of a tree that copies records.
const SMALL_MAX: usize = 1024;
/// Copies begin at multiples of this.
pub(crate) const COPY_ALIGN: usize = 8;
/// [`ByteRecord::copy`] writes the header as bytes, so it needs one without a watch.
const CAN_COPY: bool = size_of::<Header>() == 8 && align_of::<Header>() <= COPY_ALIGN;

impl Header {
    fn bytes(&self) -> usize {
        usize::from(self.key_bytes) + self.value_bytes as usize
    }
}

/// Bytes of a record with this key and value.
pub(crate) fn record_bytes(key: &[u8], value: Option<&[u8]>) -> usize {
    size_of::<Header>() + key.len() + value.map_or(0, <[u8]>::len)
}

/// A record that is in no page yet.
#[derive(Debug)]
pub struct Fresh(Shared);

/// A record, or the mark that the key has none.
#[derive(Clone, Copy, Debug)]
pub struct ByteRecord<'a>(Shared, PhantomData<&'a [u8]>);

/// A pointer to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared(NonNull<Header>);

/// A record that was taken out of the tree.
#[derive(Debug)]
pub struct Dead(Shared);

/// A promise that is required to make a pointer to a record: the record exists as long as the owner of the pointer is in use.
#[derive(Clone, Copy, Debug)]
pub struct Kept(());

impl Kept {
    /// Makes the promise.
    ///
    /// # Safety
    /// The promise holds for every pointer that is made with it.
    #[inline(always)]
    pub(crate) unsafe fn word() -> Self {
        Self(())
    }

    /// The promise of a test that keeps its records.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn in_a_test() -> Self {
        Self(())
    }
}

// SAFETY: a record is written before another thread has the pointer, and does not change afterwards. The pointer leads to plain bytes.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Fresh {
    /// Makes a record, or the mark that the key has none, in a block of [`record_bytes`]. The caller has checked the lengths.
    pub(crate) fn new(key: &[u8], value: Option<&[u8]>, block: Block) -> Self {
        assert!(record_bytes(key, value) <= block.bytes(), "a record is longer than its block");
        let is_there = value.is_some();
        let value = value.unwrap_or_default();
        let (key_bytes, value_bytes) = (key.len() as u16, value.len() as u32);
        assert!(
            usize::from(key_bytes) == key.len() && value_bytes as usize == value.len(),
            "too long a record"
        );
        let header = Header { value_bytes, key_bytes, is_there, is_inside: false, watch: Watch::new() };
        let at = block.at().cast::<Header>();
        // SAFETY: the block has space for the header, and its alignment.
        unsafe { at.write(header) };
        // SAFETY: the block has space for the key and the value after the header.
        let to = unsafe { at.add(1) }.cast::<u8>();
        // SAFETY: as above; the block is new, so the key cannot be in it.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len()) };
        // SAFETY: as above.
        let to = unsafe { to.add(key.len()) };
        // SAFETY: as above.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(value).cast(), value.len()) };
        Self(Shared(at))
    }

    /// Borrows the record.
    pub(crate) fn get(&self) -> ByteRecord<'_> {
        self.0.get()
    }
}

impl Shared {
    /// Borrows the record.
    ///
    /// The thread that made the change or leaf with this pointer promised that the record exists as long as the change or leaf ([`Kept`]).
    #[inline(always)]
    pub(crate) fn get(&self) -> ByteRecord<'_> {
        ByteRecord(*self, PhantomData)
    }
}

impl Shared {
    /// The place of the record in these copies ([`Pair::copy`]). `None`: it is not one of them.
    #[inline(always)]
    pub(crate) fn offset_in(self, copies: &[u8]) -> Option<usize> {
        let offset = self.0.addr().get().wrapping_sub(copies.as_ptr().addr());
        (offset < copies.len()).then_some(offset)
    }
}

/// Copies of records, copied together to another leaf.
#[derive(Debug)]
pub(crate) struct Moved {
    /// Their place in the copies of the old leaf.
    range: Range<usize>,
    to: NonNull<u8>,
}

impl Moved {
    /// Copies a range of copies, which begins and ends between two of them.
    pub(crate) fn copy(copies: &[u8], range: Range<usize>, heap: &mut Draft<u8>) -> Self {
        let to = heap.end();
        heap.extend(&copies[range.clone()]);
        Self { range, to }
    }

    /// The pointer to the copy of a record. The same pointer if the record is not one of `copies`.
    #[inline(always)]
    pub(crate) fn pointer(&self, record: Shared, copies: &[u8], _word: Kept) -> Shared {
        let Some(offset) = record.offset_in(copies) else { return record };
        assert!(self.range.contains(&offset), "a record that was not copied");
        let at = self.to.map_addr(|addr| addr.saturating_add(offset - self.range.start));
        Shared(at.cast())
    }
}

#[inline(always)]
fn is_small(bytes: usize) -> bool {
    CAN_COPY && bytes <= SMALL_MAX
}

/// The key and the value of a live record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl Pair<'_> {
    fn bytes(self) -> usize {
        self.key.len() + self.value.len()
    }

    /// True if a leaf of a tree that copies records has a copy of this record.
    pub(crate) fn is_small(self) -> bool {
        is_small(self.bytes())
    }

    /// Bytes of the record's block, if it has one.
    pub(crate) fn weight(self) -> usize {
        block_bytes(size_of::<Header>() + self.bytes())
    }

    /// Bytes of a copy.
    pub(crate) fn copy_bytes(self) -> usize {
        (size_of::<Header>() + self.bytes()).next_multiple_of(COPY_ALIGN)
    }

    /// Copies the record into the block of a leaf. Returns the pointer to the copy. The caller has checked the lengths.
    pub(crate) fn copy(self, heap: &mut Draft<u8>, _word: Kept) -> Shared {
        if !CAN_COPY {
            unreachable!("a record with a watch cannot be copied");
        }
        let Self { key, value } = self;
        let at = heap.end();
        heap.extend(&(value.len() as u32).to_ne_bytes());
        heap.extend(&(key.len() as u16).to_ne_bytes());
        heap.extend(&[u8::from(true), u8::from(true)]);
        heap.extend(key);
        heap.extend(value);
        heap.extend(&[0; COPY_ALIGN][..self.copy_bytes() - size_of::<Header>() - self.bytes()]);
        Shared(at.cast())
    }
}

impl<'a> ByteRecord<'a> {
    /// Prefetches the header, and as much of key and value as two cache lines have.
    #[inline(always)]
    pub(crate) fn fetch(self) {
        let start = self.0.0.as_ptr().cast_const().cast::<u8>();
        prefetch(start);
        prefetch(start.wrapping_add(LINE));
    }

    #[inline(always)]
    fn header(self) -> &'a Header {
        // SAFETY: the record exists during `'a` and does not change.
        let header: &'a Header = unsafe { self.0.0.as_ref() };
        header.watch.look();
        header
    }

    #[inline(always)]
    fn bytes(self, from: usize, count: usize) -> &'a [u8] {
        // SAFETY: the header is followed by as many bytes as it says.
        let start = unsafe { self.0.0.add(1) }.cast::<u8>();
        // SAFETY: both callers ask for a part of these bytes.
        let start = unsafe { start.add(from) };
        // SAFETY: as above, and they were written when the record was made.
        unsafe { slice::from_raw_parts(start.as_ptr(), count) }
    }

    /// The key.
    #[inline(always)]
    pub(crate) fn key(self) -> &'a [u8] {
        self.bytes(0, usize::from(self.header().key_bytes))
    }

    /// The value. `None` if the key has no record.
    #[inline(always)]
    pub(crate) fn value(self) -> Option<&'a [u8]> {
        let header = self.header();
        header.is_there.then(|| self.bytes(usize::from(header.key_bytes), header.value_bytes as usize))
    }

    /// Bytes of the record's block. 0 if it has none.
    pub(crate) fn memory(self) -> usize {
        if self.header().is_inside { 0 } else { self.weight() }
    }

    /// Bytes of the record's block, if it has one.
    pub(crate) fn weight(self) -> usize {
        block_bytes(size_of::<Header>() + self.header().bytes())
    }

    /// True if a leaf of a tree that copies records has a copy of it.
    #[inline(always)]
    pub(crate) fn is_small(self) -> bool {
        is_small(self.header().bytes())
    }

    /// The bytes of a record of a leaf, in the leaf's own block or for a copy there.
    pub(crate) fn pair(self) -> Pair<'a> {
        Pair { key: self.key(), value: self.value().unwrap_or_default() }
    }

    /// The pointer, for a change or a leaf.
    #[inline(always)]
    pub(crate) fn shared(self, _word: Kept) -> Shared {
        self.0
    }

    /// The object to retire when the record is taken out of the tree. `None` for a copy: it is freed with the leaf.
    pub(crate) fn dead(self) -> Option<Dead> {
        (!self.header().is_inside).then_some(Dead(self.0))
    }
}

impl Dead {
    /// Marks the record as freed, so that models and schedules detect a later access.
    pub(crate) fn bury(&self) {
        // SAFETY: it is not freed yet.
        unsafe { self.0.0.as_ref() }.watch.free();
    }

    /// Destroys the record and returns its block.
    ///
    /// # Safety
    /// No other thread has the record or can get it.
    pub(crate) unsafe fn free(self) -> Block {
        let at = self.0.0;
        // SAFETY: it is not freed yet.
        let bytes = block_bytes(size_of::<Header>() + unsafe { at.as_ref() }.bytes());
        // SAFETY: as above. (In the models the watch has a destructor.)
        unsafe { at.drop_in_place() };
        // SAFETY: a record's block has `block_bytes` bytes, and the caller's contract holds.
        unsafe { Block::from_parts(at.cast(), bytes) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pool::{BATCH, Depot, Pool};

    #[test]
    fn a_record_is_what_it_was_made_of() {
        for (key, value) in [(0, Some(0)), (1, Some(3)), (94, Some(1200)), (65_535, Some(1 << 20)), (9, None)]
        {
            let (key, value) = (vec![7; key], value.map(|bytes| vec![9; bytes]));
            let (mut pool, depot) = (Pool::new(), Depot::new(BATCH));
            let bytes = record_bytes(&key, value.as_deref());
            let fresh = Fresh::new(&key, value.as_deref(), pool.take(bytes, &depot).0);
            assert_eq!((fresh.get().key(), fresh.get().value()), (&*key, value.as_deref()));
            assert_eq!(fresh.get().memory(), block_bytes(bytes));
            let dead = fresh.get().dead().unwrap();
            // SAFETY: no other thread has it.
            pool.give(unsafe { dead.free() }, &depot);
        }
    }
}
