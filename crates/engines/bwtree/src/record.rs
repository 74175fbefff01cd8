//! Records of byte strings: a key and its value in one block, written once. Changes and leaves have pointers to them, so whatever
//! becomes of a page, nobody touches a record that stays.
//!
//! ```text
//! slot or change ──► value bytes: u32 | key bytes: u16 | is there: bool | key … | value …
//! ```
//!
//! Who owns a record is said in [`node`](crate::node) (N5, N6); here is what that comes to:
//!
//! * [`Fresh`]: nobody else has seen it.
//! * [`Shared`]: a pointer of a change's or a leaf's. Dropped, nothing happens.
//! * [`ByteRecord`]: a look at one, for as long as whoever has the pointer is there.
//! * [`Dead`]: retired. Its block is had by who says that nobody looks at it any more.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

use crate::pool::{Block, block_bytes};
use crate::sync::Watch;

/// What stands in front of the bytes.
#[repr(C)]
struct Header {
    value_bytes: u32,
    key_bytes: u16,
    /// False: there is no record of this key.
    is_there: bool,
    watch: Watch,
}

impl Header {
    fn bytes(&self) -> usize {
        usize::from(self.key_bytes) + self.value_bytes as usize
    }
}

/// Bytes of a record of such a key and value.
pub(crate) fn record_bytes(key: &[u8], value: Option<&[u8]>) -> usize {
    size_of::<Header>() + key.len() + value.map_or(0, <[u8]>::len)
}

/// A record that is in no page yet.
#[derive(Debug)]
pub struct Fresh(Shared);

/// A record, or that there is none of this key.
#[derive(Clone, Copy, Debug)]
pub struct ByteRecord<'a>(Shared, PhantomData<&'a [u8]>);

/// A pointer to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared(NonNull<Header>);

/// A record that was taken out of the tree.
#[derive(Debug)]
pub struct Dead(Shared);

/// A word that must be given for a pointer to a record: the record is there as long as anybody uses what has the pointer.
#[derive(Clone, Copy, Debug)]
pub struct Kept(());

impl Kept {
    /// Gives the word.
    ///
    /// # Safety
    /// It is true of every pointer that is made with it.
    #[inline(always)]
    pub(crate) unsafe fn word() -> Self {
        Self(())
    }

    /// The word of a test that keeps its records.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn in_a_test() -> Self {
        Self(())
    }
}

// SAFETY: a record is written before anybody else has the pointer, and not changed afterwards; what is behind the pointer is bytes.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Fresh {
    /// A record in a block of [`record_bytes`]; or, without a value, that there is none. The lengths were checked.
    pub(crate) fn new(key: &[u8], value: Option<&[u8]>, block: Block) -> Self {
        assert!(record_bytes(key, value) <= block.bytes(), "a record is longer than its block");
        let is_there = value.is_some();
        let value = value.unwrap_or_default();
        let (key_bytes, value_bytes) = (key.len() as u16, value.len() as u32);
        assert!(
            usize::from(key_bytes) == key.len() && value_bytes as usize == value.len(),
            "too long a record"
        );
        let header = Header { value_bytes, key_bytes, is_there, watch: Watch::new() };
        let at = block.at().cast::<Header>();
        // SAFETY: it has space for the header, and its alignment.
        unsafe { at.write(header) };
        // SAFETY: behind the header is space for the key and the value.
        let to = unsafe { at.add(1) }.cast::<u8>();
        // SAFETY: as above; what was just taken is nothing that anybody could have passed.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len()) };
        // SAFETY: as above.
        let to = unsafe { to.add(key.len()) };
        // SAFETY: as above.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(value).cast(), value.len()) };
        Self(Shared(at))
    }

    /// A look at it.
    pub(crate) fn get(&self) -> ByteRecord<'_> {
        self.0.get()
    }
}

impl Shared {
    /// A look at it.
    ///
    /// Whoever made the change or the leaf that has this pointer gave the word that the record is there as long as that is ([`Kept`]).
    #[inline(always)]
    pub(crate) fn get(&self) -> ByteRecord<'_> {
        ByteRecord(*self, PhantomData)
    }
}

impl<'a> ByteRecord<'a> {
    #[inline(always)]
    fn header(self) -> &'a Header {
        // SAFETY: it is there during `'a`, and is not changed.
        let header: &'a Header = unsafe { self.0.0.as_ref() };
        header.watch.look();
        header
    }

    #[inline(always)]
    fn bytes(self, from: usize, count: usize) -> &'a [u8] {
        // SAFETY: behind the header stand as many bytes as it says.
        let start = unsafe { self.0.0.add(1) }.cast::<u8>();
        // SAFETY: both callers ask for some of these.
        let start = unsafe { start.add(from) };
        // SAFETY: as above, and they were written when it was made.
        unsafe { slice::from_raw_parts(start.as_ptr(), count) }
    }

    /// Its key.
    #[inline(always)]
    pub(crate) fn key(self) -> &'a [u8] {
        self.bytes(0, usize::from(self.header().key_bytes))
    }

    /// Its value; `None` if it says that there is no record.
    #[inline(always)]
    pub(crate) fn value(self) -> Option<&'a [u8]> {
        let header = self.header();
        header.is_there.then(|| self.bytes(usize::from(header.key_bytes), header.value_bytes as usize))
    }

    /// Bytes of memory that it takes: its block's.
    pub(crate) fn memory(self) -> usize {
        block_bytes(size_of::<Header>() + self.header().bytes())
    }

    /// The pointer, for a change or a leaf that has it from now on.
    #[inline(always)]
    pub(crate) fn shared(self, _word: Kept) -> Shared {
        self.0
    }

    /// What is retired, if this one is.
    pub(crate) fn dead(self) -> Dead {
        Dead(self.0)
    }
}

impl Dead {
    /// Nobody looks at it any more: models and schedules find out who does.
    pub(crate) fn bury(&self) {
        // SAFETY: it is not freed yet.
        unsafe { self.0.0.as_ref() }.watch.free();
    }

    /// Takes it apart.
    ///
    /// # Safety
    /// Nobody has it or will have it.
    pub(crate) unsafe fn free(self) -> Block {
        let at = self.0.0;
        // SAFETY: it was not freed yet.
        let bytes = block_bytes(size_of::<Header>() + unsafe { at.as_ref() }.bytes());
        // SAFETY: as above. (In the models a watch is more than a mark.)
        unsafe { at.drop_in_place() };
        // SAFETY: a record's block is as long as `block_bytes` says; the caller's word.
        unsafe { Block::from_parts(at.cast(), bytes) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pool::{Depot, Pool};

    #[test]
    fn a_record_is_what_it_was_made_of() {
        for (key, value) in [(0, Some(0)), (1, Some(3)), (94, Some(1200)), (65_535, Some(1 << 20)), (9, None)]
        {
            let (key, value) = (vec![7; key], value.map(|bytes| vec![9; bytes]));
            let (mut pool, depot) = (Pool::new(), Depot::new());
            let bytes = record_bytes(&key, value.as_deref());
            let fresh = Fresh::new(&key, value.as_deref(), pool.take(bytes, &depot).0);
            assert_eq!((fresh.get().key(), fresh.get().value()), (&*key, value.as_deref()));
            assert_eq!(fresh.get().memory(), block_bytes(bytes));
            let dead = fresh.get().dead();
            // SAFETY: nobody else has it.
            pool.give(unsafe { dead.free() }, &depot);
        }
    }
}
