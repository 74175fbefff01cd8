//! The block allocator: chunks by size class with durable bitmaps, and an intent ring that bounds recovery.
//!
//! ```text
//! chunk   word 0: kind and block size, self-checking (0: free chunk)
//!         words 1..: bitmap, bit set = block allocated
//!         blocks, from the first offset that their alignment allows
//! ```
//!
//! The allocator has no fence of its own on the common path. Before an operation's first fence the intent ring names each
//! block that the operation allocates or frees. Between that fence and its last one their bits are flipped
//! ([`Allocator::flip`]). So at any crash a bit can disagree with the index only for blocks named in the ring, and
//! recovery asks the index who owns those, nothing else. An intent carries its operation's number: when one operation names
//! blocks, the bits of those before it are durable, so only the newest operation's blocks are asked for. A stale intent
//! would be harmless: asking again changes nothing.
//!
//! Invariants:
//! * A1: a bit that is flipped was named in the ring, durably, before.
//! * A2: within one session a block is handed out again only after the operation that gave it back has ended.
//! * A3: a chunk's bitmap is all zeros, durably, before its word 0 names a new kind; and nothing else is written where an earlier
//!   kind had its bitmap while word 0 may durably name that. Within the header's line both follow from the order of its stores.
//! * A4: no block of a chunk holds home words of an unsettled log lap when the chunk or block is handed out again.
//! * A5: a record is moved by an ordinary update of its key to the value that it has, so a move needs no protocol of its own.
//! * A6: a chunk is discarded only when it is free: its bits are durably zero and the log has no record of it (A4). What a crash leaves
//!   of it, its old words, zeros or some of both, is an empty chunk or a free one. It is given storage before it is stored to again.
//!
//! Commit point of an allocation is the index's own publish; crash table:
//!
//! | fence passed | durable | recovery |
//! |---|---|---|
//! | none | some of: intents, block content | the block has no owner: bit cleared (was clear) |
//! | first | intents; some of: flipped bits | bit set to what the index says |
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
