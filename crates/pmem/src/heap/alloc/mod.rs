//! The block allocator. A chunk has blocks of one size class, and a durable bitmap of its allocated blocks. An *intent ring*
//! bounds the work of recovery: it lists the blocks that the newest operations allocate or free.
//!
//! ```text
//! chunk   word 0: class (kind and size of the blocks), with a hash of 16 bits; a word of zeros: free chunk
//!         words 1..: bitmap, bit set = block allocated
//!         blocks, from the first offset that their alignment allows
//! ring    words: offset of a block (48 bits), number of the operation (16 bits)
//! ```
//!
//! Usually the allocator adds no fence to an operation. Before its first fence, an operation writes an *intent* for each block that it
//! allocates or frees: the block's offset and the operation's number, in the next word of the ring. Between its first and its last fence,
//! the operation flips the bits of these blocks ([`Allocator::flip`]). So after a crash, a bit can contradict the index only if the ring
//! has an intent of its block. Recovery asks the index whether it references such a block, and sets the bit to the answer. The pieces of a
//! large value have no intents. Recovery sets their bits to the bit of their record ([`crate::record`]). When an operation writes its
//! intents, the bits of all earlier operations are durable. So only the blocks of the newest operation need this check. If recovery finds
//! older intents in the ring, too, their check changes nothing.
//!
//! Invariants:
//! * A1: a bit is flipped only after the intent of its block (for a piece: of its record) is durable in the ring.
//! * A2: between open and close, a freed block is allocated again only after the operation that freed it has ended.
//! * A3: word 0 of a chunk gets a new class only after all bitmap words of that class are durably zero. As long as word 0 may durably have
//!   an older class, the bitmap words of the older class are not used for anything else. Both rules hold for bitmap words in the line of
//!   word 0 because the stores to one line keep their order, and for all other bitmap words because of a fence.
//! * A4: a chunk or block is allocated again only when the redo log has no record of its words. If the log has one, the allocator
//!   truncates the log first.
//! * A5: a record is moved by an ordinary update of its key to its present value, so a move needs no protocol of its own.
//! * A6: the allocator *discards* a chunk (its storage returns to the file system) only if the chunk is free: its bits are durably zero,
//!   and the log has no record of it (A4). After a crash, each word of the chunk has its old value or is zero. So word 0 has a class or is
//!   zero, and no bit is set: the chunk has no allocated block in either case. Before the next store to the chunk, the allocator provides
//!   storage for it again.
//!
//! Commit point of an allocation and of a free: the commit point of the operation in the index. Crash table:
//!
//! | fence passed ([`crate::Fence`]) | durable | recovery |
//! |---|---|---|
//! | none | some intents; some content of the new blocks | index and bits are unchanged |
//! | first | all intents; some flipped bits; perhaps the commit | each bit is set if the index references the block, otherwise cleared |
//! | last | all intents, all bits, the commit | nothing to do |

mod allocator;
mod class;
mod place;
mod ring;
mod space;
mod supply;
mod usage;

pub use allocator::Allocator;
pub use class::{Class, Kind};
pub use place::{Damaged, FoundClass, allocated, blocks_in, chunks, class_of, classes, sample};
pub use ring::{newest, recover};
pub use usage::{Usage, usage};
