//! The `Medium`: the only door to durable memory.
//!
//! Addresses are byte offsets from the region's base. A line is 64 bytes, eight words of 8 bytes, each an atomic, so
//! that a reader beside the writer is defined behaviour. The verbs, and what the crash model says of them:
//!
//! | verb | order | after a crash |
//! |---|---|---|
//! | `copy` | none | the word survives or not, whatever else does |
//! | `publish` | after every earlier store of this thread | within its line, all earlier stores survive if it does |
//! | `flush` | none | what the line holds now is durable once a `fence` follows |
//! | `fence` | all earlier flushes | |
//! | `discard` | none | each word is what it was, or zero |
//!
//! Anything not flushed and fenced may still become durable at any time: a cache evicts when it likes.

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
    /// A line of zeros: what every read outside the region sees.
    pub const fn zero() -> Self {
        Self([const { AtomicU64::new(0) }; 8])
    }

    /// A line with the words that this one has now.
    pub fn copied(&self) -> Self {
        Self(std::array::from_fn(|word| AtomicU64::new(self.0[word].load(Ordering::Relaxed))))
    }
}

/// What a fence is for: the cost model counts by it, the mutation run names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fence {
    /// A cleared valid bit must be durable before the words it guards change.
    Guard,
    /// Unused space was written; it must be durable before it is published.
    Payload,
    /// The old value of a word must be in the log before the word is overwritten.
    Undo,
    /// The publish that commits an operation.
    Commit,
    /// What a commit in the log wrote home is made durable in the same operation.
    Home,
    /// The allocator opens a chunk or returns one.
    Allocate,
    /// The log's home lines are made durable before the log is used again.
    Checkpoint,
    /// Superblock and life cycle of the region.
    Superblock,
}

/// How full the running group is, in lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Lines that it stored to so far.
    pub lines: u64,
    /// Most lines that several operations together should store to.
    pub lines_max: u64,
    /// Most lines that one large operation may store to, such as a batch.
    pub lines_limit: u64,
}

/// Where the pages of a medium are in a file ([`Medium::pages`]).
#[derive(Clone, Copy, Debug)]
pub struct Pages<'a> {
    /// The file.
    pub(crate) file: &'a File,
    /// Its byte at the medium's offset 0, whole pages.
    pub(crate) origin: u64,
    /// Bytes of the medium.
    pub(crate) len: u64,
}

/// Durable memory. See the module's head for the verbs' meaning.
///
/// Reading is total: an offset outside the region reads as zeros. Writing outside it is a bug of the caller and panics
/// (native memory: faults), which is why everything read from a region is validated before it is written through.
pub trait Medium: Send + Sync + 'static {
    /// [`Medium::lines`] may answer. A medium that observes reads does not, and code for vectors is not compiled for it.
    const SHOWS_LINES: bool = true;

    /// The line that holds byte `at`.
    fn line(&self, at: u64) -> &Line;

    /// Stores a payload word at the 8-byte aligned offset `at`.
    #[track_caller]
    fn copy(&self, at: u64, value: u64);

    /// Stores one word after everything stored before it, at the 8-byte aligned offset `at`.
    #[track_caller]
    fn publish(&self, at: u64, value: u64);

    /// Starts writing back every line that `at..at + bytes` touches.
    #[track_caller]
    fn flush(&self, at: u64, bytes: u64);

    /// Waits until all flushed lines are durable.
    #[track_caller]
    fn fence(&self, why: Fence);

    /// Asks the processor for every line of `at..at + bytes`.
    fn prefetch(&self, at: u64, bytes: u64);

    /// Bytes that may be read and written.
    fn len(&self) -> u64;

    /// True if the region has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the region `bytes` long; new bytes are zero and backed by allocated storage.
    ///
    /// # Errors
    /// `NoSpace` when the file system is full, `Full` beyond the reserved range, `Io` otherwise. Nothing changes then.
    fn grow(&self, bytes: u64) -> Result<()>;

    /// The content of `at..at + bytes` is needed no more: its storage may go back to the file system. Reads give the old bytes or
    /// zeros from now on, after a crash too, and [`Medium::provide`] comes before the next store there. False if the storage is kept.
    #[track_caller]
    fn discard(&self, at: u64, bytes: u64) -> bool {
        let _ = (at, bytes);
        false
    }

    /// Gives `at..at + bytes` storage again where it was discarded, or the file was found to have none.
    ///
    /// # Errors
    /// `NoSpace` when the file system is full, `Io` otherwise. Nothing may be stored there then.
    fn provide(&self, at: u64, bytes: u64) -> Result<()> {
        let _ = (at, bytes);
        Ok(())
    }

    /// What has no storage, from the first byte to the one behind the last: it reads as zeros.
    fn holes(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }

    /// Makes `at..at + bytes` durable by the means of the file system (life cycle of a region, not operations).
    ///
    /// # Errors
    /// `Io` if the system call fails.
    #[track_caller]
    fn sync(&self, at: u64, bytes: u64) -> Result<()>;

    /// The running group, where stores become durable by groups ([`crate::journal`]) and not by fences; else `None`.
    fn group(&self) -> Option<Group> {
        None
    }

    /// An operation of more lines than [`Group::lines_max`] is about to begin: makes space for them on the disk, so that a full one is
    /// told before anything is changed.
    ///
    /// # Errors
    /// `NoSpace`; `Io`.
    fn reserve(&self, lines: u64) -> Result<()> {
        let _ = lines;
        Ok(())
    }

    /// Makes everything stored before it durable, where that goes by groups; elsewhere fences have done it already. `hold`
    /// keeps whoever stores away while the group is closed; what it returns is dropped before the group is written, so that
    /// the next one runs meanwhile. If it returns `None`, nothing is done.
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

    /// Takes back what was stored and not made durable, where that goes by groups. See [`crate::journal::Journal::roll_back`].
    fn roll_back(&self) {}

    /// Where its pages are in a file that is mapped and shared, so that they can be mapped a second time ([`crate::window`]);
    /// `None` if they are not.
    fn pages(&self) -> Option<Pages<'_>> {
        None
    }

    /// A run of lines for vector loads, if this medium allows them ([`Medium::SHOWS_LINES`]): a node's, 64 KiB at most.
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
    let end = at + bytes;
    (0..).map(move |i| first + i * LINE).take_while(move |line| *line < end)
}
