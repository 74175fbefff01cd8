//! `Medium`: the only access to durable memory.
//!
//! Addresses are byte offsets from the region's base. A line has 64 bytes, which are eight words of 8 bytes. Each word is an
//! atomic, so a read concurrent with the writer is defined behaviour. The operations and their meaning in the crash model:
//!
//! | operation | order | after a crash |
//! |---|---|---|
//! | `copy` | none | the word survives or not, independently of the other copies between the same two publishes of its line |
//! | `publish` | after every earlier store of this thread | if it survives, all earlier stores to its line survive |
//! | `flush` | none | the present content of the line is durable once a `fence` follows |
//! | `fence` | after all earlier flushes | every line that was flushed before has at least its content at the flush |
//! | `discard` | none | each word has its old value, or is zero |
//!
//! A store that is not flushed and fenced may still become durable at any time, because a cache evicts lines at any time.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;

/// Bytes of a cache line.
pub const LINE: u64 = 64;
/// Bytes of a word.
pub const WORD: u64 = 8;

/// A cache line: eight words.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Line(pub [AtomicU64; 8]);

const _: () = assert!(size_of::<Line>() == LINE as usize && align_of::<Line>() == LINE as usize);

impl Line {
    /// A line of zeros, which every read outside the region returns.
    pub const fn zero() -> Self {
        Self([const { AtomicU64::new(0) }; 8])
    }

    /// Begins to load the line into the cache.
    #[inline(always)]
    pub fn prefetch(&self) {
        super::view::prefetch(self);
    }

    /// As [`Line::prefetch`]. If `FIRST`, into the first-level cache: for one descent, which waits for the line. Otherwise into the second
    /// level: for the lines of many descents.
    #[inline(always)]
    pub fn prefetch_into<const FIRST: bool>(&self) {
        super::view::prefetch_into::<FIRST>(self);
    }

    /// A copy of this line's present words.
    pub fn copied(&self) -> Self {
        Self(std::array::from_fn(|word| AtomicU64::new(self.0[word].load(Ordering::Relaxed))))
    }
}

/// The purpose of a fence. The cost model counts by it, and the mutation run names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fence {
    /// Earlier stores must be durable before later stores change the words that they guard. For example, a cleared valid bit
    /// guards the words that it marks as invalid.
    Guard,
    /// Unused space was written and must be durable before it is published.
    Payload,
    /// The old value of a word must be in the log before the word is overwritten.
    Undo,
    /// The publish that commits an operation.
    Commit,
    /// The data words of a log commit become durable in the same operation.
    Home,
    /// The allocator opens a chunk, or frees one.
    Allocate,
    /// The log is truncated: the lines of its data words must be durable before the log is used again.
    Checkpoint,
    /// Superblock and life cycle of the region.
    Superblock,
}

/// The fill level of the running group, in lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Lines stored to so far.
    pub lines: u64,
    /// Most lines that several operations together should store to.
    pub lines_max: u64,
    /// Most lines that one large operation may store to, such as a batch.
    pub lines_limit: u64,
}

/// The pages of a medium in a file ([`Medium::pages`]).
#[derive(Clone, Copy, Debug)]
pub struct Pages<'a> {
    /// The file.
    pub(crate) file: &'a File,
    /// Offset in the file of the medium's first byte, in bytes; whole pages.
    pub(crate) origin: u64,
    /// Bytes of the medium.
    pub(crate) len: u64,
}

/// Durable memory. The module's head defines the operations.
///
/// Reading is total: an offset outside the region reads as zeros. Writing outside it is a bug of the caller and panics. So
/// everything read from a region is validated before it is used as the address of a write.
pub trait Medium: Send + Sync + 'static {
    /// True if [`Medium::lines`] may return lines. A medium that observes reads returns none, and vector code is not compiled for
    /// it.
    const SHOWS_LINES: bool = true;

    /// The line that contains byte `at`.
    fn line(&self, at: u64) -> &Line;

    /// Stores a payload word at the 8-byte aligned offset `at`.
    #[track_caller]
    fn copy(&self, at: u64, value: u64);

    /// Stores one word at the 8-byte aligned offset `at`, ordered after all earlier stores.
    #[track_caller]
    fn publish(&self, at: u64, value: u64);

    /// Starts writing back every line that `at..at + bytes` touches.
    #[track_caller]
    fn flush(&self, at: u64, bytes: u64);

    /// Waits until all flushed lines are durable.
    #[track_caller]
    fn fence(&self, why: Fence);

    /// Prefetches every line of `at..at + bytes` into the processor's cache.
    fn prefetch(&self, at: u64, bytes: u64);

    /// Length in bytes of the region that may be read and written.
    fn len(&self) -> u64;

    /// True if the region has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the region at least `bytes` bytes long. New bytes are zero and have allocated storage.
    ///
    /// # Errors
    /// `NoSpace` when the file system is full, `Full` beyond the maximum length, `Failed` after a failed sync or write, `Io`
    /// otherwise. The region is unchanged then.
    fn grow(&self, bytes: u64) -> Result<()>;

    /// Declares the content of `at..at + bytes` unneeded, so its storage may return to the file system. From now on reads give the
    /// old bytes or zeros, after a crash too. [`Medium::provide`] must precede the next store there. Returns false if the storage
    /// is kept.
    #[track_caller]
    fn discard(&self, at: u64, bytes: u64) -> bool {
        let _ = (at, bytes);
        false
    }

    /// Gives `at..at + bytes` storage again, if it was discarded or the file has a hole there.
    ///
    /// # Errors
    /// `NoSpace` when the file system is full, `Failed` after a failed sync or write, `Io` otherwise. The range must not be
    /// stored to then.
    fn provide(&self, at: u64, bytes: u64) -> Result<()> {
        let _ = (at, bytes);
        Ok(())
    }

    /// The ranges without storage, each as (first byte, byte after the last). They read as zeros.
    fn holes(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }

    /// Makes `at..at + bytes` durable by a call of the file system. Used for the life cycle of a region, not for operations.
    ///
    /// # Errors
    /// `Io` if the system call fails, `Failed` after a failed sync or write. If stores become durable by groups: the errors of
    /// [`Medium::commit_beside`].
    #[track_caller]
    fn sync(&self, at: u64, bytes: u64) -> Result<()>;

    /// The running group, if stores become durable by groups ([`crate::journal`]); `None` if they become durable by fences.
    fn group(&self) -> Option<Group> {
        None
    }

    /// Prepares an operation of more lines than [`Group::lines_max`]: allocates disk space for them, so that a full disk is
    /// reported before anything is changed.
    ///
    /// # Errors
    /// `NoSpace`; `Io`.
    fn reserve(&self, lines: u64) -> Result<()> {
        let _ = lines;
        Ok(())
    }

    /// Makes all earlier stores durable, if they become durable by groups. Otherwise fences have done it already, and this does
    /// nothing. `hold` keeps other threads from storing while the group is closed. Its result is dropped before the group is
    /// written, so the next group runs meanwhile. If `hold` returns `None`, nothing is done.
    ///
    /// # Errors
    /// As [`crate::journal::Journal::commit_beside`].
    fn commit_beside<G>(&self, hold: impl FnOnce() -> Option<G>) -> Result<()>
    where
        Self: Sized,
    {
        let _ = hold;
        Ok(())
    }

    /// Rolls back the stores that are not durable, if stores become durable by groups. See [`crate::journal::Journal::roll_back`].
    fn roll_back(&self) {}

    /// The file behind the medium's pages, if it is mapped and shared, so that the pages can be mapped a second time
    /// ([`crate::page_remap`]); otherwise `None`.
    fn pages(&self) -> Option<Pages<'_>> {
        None
    }

    /// The `count` lines from the line of byte `at` on, at most 64 KiB, for vector loads. `None` if this medium does not allow
    /// them ([`Medium::SHOWS_LINES`]), or does not have these lines at consecutive addresses.
    fn lines(&self, at: u64, count: usize) -> Option<&[Line]>;

    /// Reads the word at the 8-byte aligned offset `at`.
    #[inline(always)]
    fn word(&self, at: u64) -> u64 {
        self.line(at).0[(at / WORD % 8) as usize].load(Ordering::Relaxed)
    }
}

/// The lines touched by `at..at + bytes`, as offsets of their first bytes.
#[inline(always)]
pub fn lines_of(at: u64, bytes: u64) -> impl Iterator<Item = u64> {
    let first = at & !(LINE - 1);
    let end = at.saturating_add(bytes);
    (0..).map(move |i| first + i * LINE).take_while(move |line| *line < end)
}
