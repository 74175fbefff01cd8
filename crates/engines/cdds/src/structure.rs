//! The interface of a structure of versions: how it finds, writes and sweeps entries. [`Versioned`] has the rest.

use std::sync::Arc;

use index::{Kernel, Report, Schema, Write};
use pmem::alloc::Class;
use pmem::region::INTENTS;
use pmem::sync::{AtomicU64, Mutex};
use pmem::{Durability, Geometry, Medium, Region, Result};

use crate::meta::{Meta, State};
use crate::node::{Entry, Node, Shape};
use crate::passes::Maintenance;
use crate::persist::Persist;
use crate::pins::{Kept, Mark, Pins};
use crate::version::{Dead, Interval, SharedDead, View};

/// Options to create and open a tree; also the common options of a table.
#[derive(Clone, Debug)]
pub struct Options {
    /// Cache lines of a node, 2 to 64. An existing structure keeps its own.
    pub node_lines: u64,
    /// Fixed sizes of the region. An existing structure keeps its own.
    pub geometry: Geometry,
    /// Durability, as recorded in the superblock.
    pub durability: Durability,
    /// True if the keys belong to several tables, as recorded in the superblock ([`index::tables`]).
    pub tables: bool,
    /// Number of striped version locks; a power of two.
    pub stripes: usize,
    /// If set, a fence precedes and follows each flush [thesis §4.1], and a split ends every entry of the old node [algorithm 3].
    pub faithful: bool,
    /// Maximum blocks that a write group of a batch may allocate before it ends; at most half of the allocator's intent ring. Tests make it
    /// small.
    pub group_blocks: usize,
}

impl Options {
    /// Options for production.
    pub fn new(node_lines: u64, durability: Durability) -> Self {
        Self {
            node_lines,
            geometry: Geometry::default(),
            durability,
            tables: false,
            stripes: 1024,
            faithful: false,
            group_blocks: INTENTS / 2,
        }
    }
}

impl AsRef<Self> for Options {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// A structure of versions over a medium.
pub struct Versioned<M: Medium, X: Structure> {
    pub(crate) kernel: Kernel<M, X::Schema, Own<X::Pass>>,
    pub(crate) shape: Shape,
    pub(crate) persist: Persist,
    pub(crate) pins: Arc<Pins>,
    pub(crate) meta: Meta,
    /// The root. It is valid for every version from the horizon to [`Versioned::visible`].
    pub(crate) root: AtomicU64,
    /// The newest durable version.
    pub(crate) visible: AtomicU64,
    /// The newest version, durable or not.
    pub(crate) applied: AtomicU64,
    /// The newest version that was acknowledged to a caller that did not wait for durability.
    pub(crate) told: AtomicU64,
    pub(crate) dead: SharedDead,
    /// Over a journal: the newest durable version and its number of keys, for marks.
    pub(crate) shown: Mutex<(u64, Option<u64>)>,
    /// Named versions.
    pub(crate) kept: Mutex<Vec<Kept>>,
    pub(crate) group_blocks: usize,
    /// State of the background work.
    pub(crate) maintenance: Maintenance,
    /// The structure's own data.
    pub(crate) own: X,
}

/// The state that the writer's lock protects.
pub type Writer<P> = index::Writer<Own<P>>;

/// The structure's part of the writer's state.
pub struct Own<P> {
    pub(crate) state: State,
    pub(crate) dead: Dead,
    /// True if the version in flight may have left traces and no durable interval covers it (M1).
    pub(crate) in_doubt: bool,
    /// The running pass of the collector.
    pub(crate) pass: Option<P>,
    /// In a tree: the leaf of the next write, for which space was made.
    pub(crate) hint: Option<Node>,
    /// A rollback in this group that has not ended. Nothing may change until it is durable and no reader uses a rolled-back version.
    pub(crate) rolled_back: Option<(u64, Interval)>,
}

/// A change in progress.
pub struct Change<'a, P, C> {
    pub(crate) writer: &'a mut Writer<P>,
    /// The view of the version that the change makes.
    pub(crate) view: View,
    /// The state after the change.
    pub(crate) state: State,
    /// True if the change stored words in nodes.
    pub(crate) stored: bool,
    /// The version of its first write group, if a write group has ended ([`crate::batch`]).
    pub(crate) first_group: Option<u64>,
    /// The structure's part of the change.
    pub(crate) own: C,
}

/// The writer of a structure.
pub type WriterOf<X> = Writer<<X as Structure>::Pass>;
/// A change of a structure.
pub type ChangeOf<'a, X> = Change<'a, <X as Structure>::Pass, <X as Structure>::Part>;
/// A key as a caller passes it.
pub type KeyOf<X> = <<X as Structure>::Schema as Schema>::Key;
/// A value as a caller passes it.
pub type ValueOf<X> = <<X as Structure>::Schema as Schema>::Value;
/// A value as a structure returns it.
pub type ValueBufOf<X> = <<X as Structure>::Schema as Schema>::ValueBuf;
/// A write.
pub type WriteOf<'a, X> = Write<'a, KeyOf<X>, ValueOf<X>>;

/// See the module's head.
pub trait Structure: Sized {
    /// The engine's name in the superblock.
    const ENGINE: &'static str;
    /// Keys and values.
    type Schema: Schema<Tail = [u64; 0]>;
    /// Options to create and open a structure.
    type Options: AsRef<Options>;
    /// A pass of the collector.
    type Pass;
    /// The structure's part of a change.
    type Part;

    /// The structure below a root; `root` is 0 for a new structure.
    ///
    /// # Errors
    /// `Corrupt` if there is none.
    fn found<M: Medium>(medium: &M, root: u64, options: &Self::Options) -> Result<Self>;

    /// Writes an empty structure of version 1 that no word references yet, and flushes it. Returns its root.
    ///
    /// # Errors
    /// Errors of the allocator.
    fn format<M: Medium>(
        &self,
        region: &Region<M>,
        writer: &mut WriterOf<Self>,
        how: (&Shape, Persist),
        options: &Self::Options,
    ) -> Result<u64>;

    /// True if the structure references a block, which is neither the meta block nor the list of named versions.
    ///
    /// # Errors
    /// `Corrupt` if a node on the path is damaged.
    fn owns<M: Medium>(of: &Versioned<M, Self>, view: &View, class: Class, at: u64) -> Result<bool>;

    /// Makes the structure's part of a new change.
    ///
    /// # Errors
    /// `Corrupt`.
    fn begin<M: Medium>(of: &Versioned<M, Self>, writer: &WriterOf<Self>) -> Result<Self::Part>;

    /// Prepares the commit of a change or of a write group: frees the blocks that lost their last reference.
    ///
    /// # Errors
    /// `Corrupt`.
    fn finish<M: Medium>(of: &Versioned<M, Self>, change: &mut ChangeOf<'_, Self>) -> Result<()>;

    /// Prepares the structure's part of a change for the next write group.
    fn next_group(part: &mut Self::Part);

    /// Cleans up after a failed change, before its blocks are freed.
    fn abandon<M: Medium>(of: &Versioned<M, Self>, part: Self::Part);

    /// Runs `make` as one version, and then the structural work that the change requires.
    ///
    /// # Errors
    /// Those of `make`; `Corrupt`.
    fn change<M: Medium, T>(
        of: &Versioned<M, Self>,
        writer: &mut WriterOf<Self>,
        make: impl FnOnce(&mut ChangeOf<'_, Self>) -> Result<T>,
    ) -> Result<T> {
        of.change(writer, make)
    }

    /// Prepares these writes, which will be one version, before the writer's lock is taken.
    ///
    /// # Errors
    /// As a write.
    fn prepare<M: Medium>(_of: &Versioned<M, Self>, _writes: &[WriteOf<'_, Self>]) -> Result<()> {
        Ok(())
    }

    /// Makes space for these writes in operations without a version.
    ///
    /// # Errors
    /// As a write.
    fn make_space<M: Medium>(
        of: &Versioned<M, Self>,
        writer: &mut WriterOf<Self>,
        writes: &[WriteOf<'_, Self>],
    ) -> Result<()>;

    /// Stores a value as part of a change. True if a value was replaced.
    ///
    /// # Errors
    /// As a write.
    fn put_in<M: Medium>(
        of: &Versioned<M, Self>,
        change: &mut ChangeOf<'_, Self>,
        key: &KeyOf<Self>,
        value: &ValueOf<Self>,
    ) -> Result<bool>;

    /// Removes a key as part of a change. True if it was present.
    ///
    /// # Errors
    /// As a write.
    fn delete_in<M: Medium>(
        of: &Versioned<M, Self>,
        change: &mut ChangeOf<'_, Self>,
        key: &KeyOf<Self>,
    ) -> Result<bool>;

    /// The entry of a key in a view of a pinned version or of a newer one.
    ///
    /// # Errors
    /// `Corrupt` if a node on the path is damaged; `Failed` if the writer panicked while it changed such a node.
    fn find_in<M: Medium>(of: &Versioned<M, Self>, view: &View, key: &KeyOf<Self>) -> Result<Option<Entry>>;

    /// The entry in the form of the schema.
    fn of_schema(entry: &Entry) -> index::Entry;

    /// Counts the keys of a version.
    ///
    /// # Errors
    /// `TakenBack`, `Corrupt`, `Failed`.
    fn count<M: Medium>(of: &Versioned<M, Self>, mark: &Mark) -> Result<u64>;

    /// Removes the traces of dead versions, and no garbage [thesis algorithm 6].
    ///
    /// # Errors
    /// `Corrupt`.
    fn sweep<M: Medium>(of: &Versioned<M, Self>, writer: &mut WriterOf<Self>) -> Result<()>;

    /// Maximum lines that these writes change as one step. Without writes: the lines of operations such as a change of the named versions.
    ///
    /// # Errors
    /// `Corrupt`.
    fn lines_of<M: Medium>(
        of: &Versioned<M, Self>,
        writer: &WriterOf<Self>,
        writes: &[WriteOf<'_, Self>],
    ) -> Result<u64>;

    /// See [`Versioned::collect_some`].
    ///
    /// # Errors
    /// As there.
    fn collect_some<M: Medium>(of: &Versioned<M, Self>, places: usize) -> Result<bool>;

    /// Prepares a complete collection: no pass is running afterwards.
    ///
    /// # Errors
    /// As [`Versioned::collect_some`].
    fn begin_collection<M: Medium>(of: &Versioned<M, Self>) -> Result<()> {
        of.enter()?.pass = None;
        Ok(())
    }

    /// See [`Versioned::check`].
    fn check<M: Medium>(of: &Versioned<M, Self>) -> Report;

    /// See [`Versioned::clear`].
    ///
    /// # Errors
    /// As there.
    fn clear<M: Medium>(of: &Versioned<M, Self>) -> Result<()>;

    /// For salvage: true if there is a node at this address that may have entries of keys.
    fn is_leaf<M: Medium>(medium: &M, node: Node) -> bool;

    /// For salvage: false for an entry that does not count in its node, as far as this is known. `root` may be damaged, or 0.
    fn is_at_home<M: Medium>(_medium: &M, _root: u64, _node: Node, _entry: &Entry) -> bool {
        true
    }
}
