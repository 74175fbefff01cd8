//! Persistent B+-Trees over durable memory: one skeleton times layouts times commit protocols.
//!
//! * [`shape`]: the geometry of a node, entries, and the [`Edit`](shape::Edit) that joins layouts and commit protocols; `level`:
//!   leaves and inner nodes alike.
//! * [`layout`]: how a node keeps its entries: sorted, counter, bitmap, slots, slot+bitmap; one for leaves, one for inner nodes.
//! * [`commit_protocol`]: how an edit becomes durable: volatile, write-atomic, undo-redo log, redo log, shadow.
//! * [`tree`]: the tree itself; the protocol of a change is read there.
//! * [`batch`]: what a batch needs. [`space`]: what an operation may store, and the space for it in a group.
//! * [`session`]: the writer's lock held over several changes.
//! * [`search`], [`insert`], [`delete`], [`clear`], [`shadow`], [`split`], [`merge`], [`scan`], [`bulk`], [`recover`], [`count`], [`check`]: what it
//!   does. [`batched_ops`]: what it does with many keys at once.
//!
//! [`roster`] names the combinations that are engines. All else is the kernel's ([`index`]): keys and values, life cycle, groups, batches.
//!
//! Invariants of every tree here:
//! * T1: all leaves are at level 0, linked from left to right by their link words.
//! * T2: an inner entry (separator, child): every key below the child is at or above the separator and below the next.
//! * T3: no node but the root is empty; an inner node other than the root has at least one separator.
//! * T4: the state that recovery finds after any crash satisfies T1 to T3 for exactly the acknowledged operations, the
//!   one in flight wholly there or absent.

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
