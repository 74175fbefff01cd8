//! The block allocator: chunks by size class with durable bitmaps, and an intent ring that bounds recovery.
//!
//! ```text
//! chunk   word 0: kind and block size, self-checking (0: free chunk)
//!         words 1..: bitmap, bit set = block allocated
//!         blocks, from the first offset that their alignment allows
//! ```
//!
//! The allocator has no fence of its own on the common path. Before an operation's first fence, the intent ring references each
//! block that the operation allocates or frees. Between that fence and the last fence their bits are flipped ([`Allocator::flip`]).
//! So at any crash a bit can disagree with the index only for blocks in the ring. Recovery asks the index which of those it
//! references, and nothing else. An intent carries the number of its operation. When an operation writes intents, the bits of all
//! earlier operations are durable, so recovery checks only the blocks of the newest operation. A stale intent would be harmless:
//! checking its block again changes nothing.
//!
//! Invariants:
//! * A1: a bit is flipped only after the intent of its block is durable in the ring.
//! * A2: within one session a freed block is allocated again only after the operation that freed it has ended.
//! * A3: a chunk's bitmap is durably all zeros before its word 0 gets a new kind. While word 0 may durably have an earlier kind,
//!   nothing else is written where that kind has its bitmap. Within the header's line both follow from the order of its stores.
//! * A4: when a chunk or block is allocated again, none of its words are in a log generation that is not truncated.
//! * A5: a record is moved by an ordinary update of its key to its present value, so a move needs no protocol of its own.
//! * A6: a chunk is discarded only when it is free: its bits are durably zero and the log has no record of it (A4). A crash may
//!   leave its old words, zeros, or a mixture. Each of these is an empty chunk or a free one. The chunk gets storage again before
//!   the next store to it.
//!
//! Commit point of an allocation: the index's own publish. Crash table:
//!
//! | fence passed | durable | recovery |
//! |---|---|---|
//! | none | some of: intents, block content | the index does not reference the block: bit cleared (was clear) |
//! | first | intents; some of: flipped bits | bit set according to the index |
//! | last | intents, bits, publish | nothing to do |

mod allocator;
mod class;
mod place;
mod ring;
mod space;
mod supply;
mod usage;

pub use allocator::Allocator;
pub use class::{Class, Kind};
pub use place::{Damaged, FoundClass, allocated, blocks_in, chunks, class_of, classes};
pub use ring::recover;
pub use usage::{Usage, usage};
