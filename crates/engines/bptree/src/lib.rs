//! Persistent B+-trees in durable memory: one tree algorithm for all combinations of node layout and commit protocol.
//!
//! * [`shape`]: the geometry of a node, entries, and [`Edit`](shape::Edit), the interface between layouts and commit protocols. `level`:
//!   functions for nodes whose level is known only at run time.
//! * [`layout`]: the arrangement of entries in a node: sorted, counter, bitmap, slots, slot+bitmap. A tree has one layout for its leaves
//!   and one for its inner nodes.
//! * [`commit_protocol`]: the sequence of stores, flushes and fences that makes an edit durable: write-atomic (three variants), undo-redo
//!   log, redo log, write-ahead log, shadow copy; and `Volatile`, which stores only.
//! * [`tree`]: the tree and the steps of a change.
//! * [`batch`]: the tree's part of a batch. [`space`]: the maximum number of lines that an operation changes; the operation reserves space
//!   for them in the running commit group.
//! * [`session`]: a session holds the writer's lock over several changes.
//! * [`search`], [`insert`], [`delete`], [`clear`], [`shadow`], [`split`], [`merge`], [`scan`], [`bulk`], [`recover`], [`count`],
//!   [`check`]: the operations. [`batched_ops`]: operations on many keys at once.
//!
//! [`roster`] lists the combinations that are engines. The kernel ([`index`]) has the rest: keys and values, life cycle, group commit,
//! batches.
//!
//! Invariants of every tree (T4: of every durable tree):
//! * T1: all leaves are at level 0. Their link words link them from left to right.
//! * T2: an inner entry is a pair (separator, child). Each key in the child's subtree is greater than or equal to the separator and less
//!   than the next separator.
//! * T3: only the root may be empty. An inner node other than the root has at least one separator.
//! * T4: the state that recovery finds after a crash satisfies T1 to T3. It contains all acknowledged operations. The operation in flight
//!   at the crash is complete or absent.

pub mod batch;
pub mod batched_ops;
pub mod bulk;
pub mod check;
pub mod clear;
pub mod commit_protocol;
pub mod count;
pub mod delete;
pub mod family;
pub mod insert;
pub mod layout;
mod level;
pub mod merge;
pub mod recover;
pub mod roster;
pub mod scan;
pub mod search;
pub mod session;
pub mod shadow;
pub mod shape;
pub mod space;
pub mod split;
pub mod tree;

pub use self::family::TreeFamily;
pub use self::tree::{Tree, TreeOptions};
pub use commit_protocol::{LineOrder, Redo, Shadow, Stepwise, UndoRedo, Volatile, WriteAhead, WriteAtomic};
pub use layout::{Bitmap, Counted, SlotOnly, Slotted, Sorted};
pub use pmem::{Error, Result};
pub use scan::TreeCursor;
