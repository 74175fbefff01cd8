//! Durable memory: the one door to it, and what every index needs behind that door.
//!
//! * [`medium`]: the [`Medium`] trait. Four verbs write (copy, publish, flush, fence), one reads (`line`).
//! * [`mod@file`]: files that memory is mapped from: what they lie on, their locks, their space.
//! * [`native`]: memory that the processor really maps: a file, `/dev/shm`, a DAX device, anonymous pages.
//! * [`journal`]: ordinary files, safe against power cuts: a private image and a journal of groups.
//! * [`buffer_pool`]: a buffer pool in front of any of them.
//! * [`observed`]: memory for proofs: every verb is told to an [`Observer`] ([`Counter`], a crash recorder).
//! * `counter`: what verbs cost, in total and by what they were for.
//! * [`copy`]: a region's bytes copied from file to file.
//! * [`region`]: one file = one region: superblock in two checksummed copies, log, heap.
//! * [`alloc`]: size-class chunks with durable bitmaps; an intent ring bounds what recovery has to ask.
//! * [`durable`]: mapped memory or a journal, as a store is opened.
//! * [`pending`]: what is stored and not durable yet, where a commit takes milliseconds: tickets, leaders, waiting readers.
//! * [`log`]: the redo-only log of [wB+ §3.1, figure 6], completed with laps, commit marks and settling.
//! * [`record`]: checksummed key and value bytes in blocks.
//! * [`simd`]: vector comparison of a node's keys, the only place that looks at a line as a vector.
//! * [`stripe`]: volatile version stripes: readers look twice instead of locking.
//! * [`window`]: a mapped file's pages a second time, in an order of their own.
//! * [`system`]: the system calls on files, and where tests let them fail.
//! * [`sync`]: atomics and waiting, the processor's or a model checker's; [`canary`]: what schedules leave out to see that they would
//!   notice.
//!
//! Invariants of the space:
//! * I1: nobody writes a durable byte except through a `Medium` verb.
//! * I2: addresses are offsets from the region's base, so a region may be mapped anywhere.
//! * I3: reading is total: an offset outside the region yields zeros, never a fault.

pub mod bus;
pub mod error;
pub mod file;
pub mod heap;
pub mod medium;
pub mod simd;
pub mod sync;
pub mod system;

pub use heap::{alloc, log, record, region};
pub use medium::{buffer_pool, copy, durable, journal, native, observed, window};
pub use sync::{canary, pending, stripe};

pub use buffer_pool::{Access, BufferPool};
pub use durable::Durable;
pub use error::{Error, Result};
pub use journal::Journal;
pub use medium::{Fence, Group, LINE, Line, Medium, WORD};
pub use native::{Durability, FenceOp, FlushOp, Native};
pub use observed::{Counter, Event, Memory, Observed, Observer, Recorder, Store};
pub use region::{Found, Geometry, Identity, Region, RegionOptions};
