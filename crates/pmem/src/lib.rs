//! Durable memory and the parts that every durable index needs: media, region, allocator, records, redo log, version locks.
//!
//! * [`medium`]: the trait [`Medium`], the only access to durable memory. A writer uses copy, publish, flush and fence; a reader
//!   uses `line`.
//! * [`mod@file`]: files that memory is mapped from: kind of file system, locks, space.
//! * [`native`]: mapped memory: a file, `/dev/shm`, a DAX device, or anonymous pages.
//! * [`journal`]: ordinary files that survive a power failure: a private image and a journal of groups.
//! * [`buffer_pool`]: a buffer pool in front of any medium.
//! * [`observed`]: memory for tests that reports every operation to an [`Observer`] ([`Counter`], a crash recorder).
//! * `counter`: counts of words, flushes and fences, in total and by purpose.
//! * [`copy`]: copies a region's bytes from file to file.
//! * [`region`]: one file = one region: superblock in two checksummed copies, log, heap.
//! * [`alloc`]: chunks by size class with durable bitmaps; an intent ring bounds the work of recovery.
//! * [`durable`]: mapped memory or a journal, chosen when a store is opened.
//! * [`pending`]: changes that a journal has not made durable yet: tickets, leaders, waiting readers.
//! * [`log`]: the logs of [wB+ §3.1, figures 5 and 6], completed with log generations, commit marks and truncation.
//! * [`record`]: checksummed key and value bytes in blocks.
//! * [`simd`]: vector comparison of a node's keys, the only module that reads a line as a vector.
//! * [`stripe`]: volatile striped version locks: readers validate instead of locking. [`changes`]: the counter with which
//!   readers validate the way to a leaf. [`kept`]: words that a reader
//!   derived from a node and keeps for later readers.
//! * [`page_remap`]: pages of a mapped file, mapped a second time in another order.
//! * [`system`]: the system calls on files; tests inject faults there. [`error`]: the error type. [`bus`]: the message
//!   when a mapped page cannot be read.
//! * [`direct`]: memory and files for direct I/O. [`ring`]: many reads with few system calls.
//! * [`sync`]: atomics, locks and waiting, from the standard library or from a model checker; [`omission`]: faults that tests
//!   inject into the protocols between threads.
//!
//! Invariants of the crate:
//! * I1: the bytes of an open region change only through `Medium` operations.
//! * I2: addresses are offsets from the region's base, so a region may be mapped at any address.
//! * I3: no offset makes a read fail. A read outside the region returns zeros if its offset is inside the reserved range of addresses.
//!   Mapped memory masks larger offsets into that range. Only a page that the file cannot supply ends the process ([`bus`]).

pub mod bus;
pub mod direct;
pub mod error;
pub mod file;
#[cfg(test)]
mod format_page;
pub mod heap;
pub mod medium;
pub mod ring;
pub mod simd;
pub mod sync;
pub mod system;

pub use heap::{alloc, log, record, region};
pub use medium::{buffer_pool, copy, durable, journal, native, observed, page_remap};
pub use sync::{changes, gathering, kept, omission, pending, stripe};

pub use buffer_pool::{Access, BufferPool};
pub use durable::Durable;
pub use error::{Error, Result};
pub use journal::Journal;
pub use medium::{Fence, Group, LINE, Line, Medium, WORD};
pub use native::{Durability, FenceOp, FlushOp, Native};
pub use observed::{Counter, Event, Memory, Observed, Observer, Recorder, Store};
pub use region::{Found, Geometry, Identity, Region, RegionOptions};
