//! What a structure of versions has to say for itself: how entries are found, written and swept. All the rest is
//! [`Versioned`]'s.

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

/// How to make and open a tree, or what a table has in common with one.
#[derive(Clone, Debug)]
pub struct Options {
    /// Cache lines of a node, 2 to 64. (Of an existing one, what it was made with.)
    pub node_lines: u64,
    /// The region's fixed sizes. (Of an existing one, what it was made with.)
    pub geometry: Geometry,
    /// The promise, for the superblock.
    pub durability: Durability,
    /// Version stripes; a power of two.
    pub stripes: usize,
    /// A fence before and after each flush [thesis §4.1], and every entry of a node that is split ended in it [algorithm 3].
    pub faithful: bool,
    /// Blocks that a part of a batch may take before its bits are written and the next part begins; at most half of what the
    /// allocator's ring names. (Tests make it small.)
    pub group_blocks: usize,
}

impl Options {
    /// Production settings.
    pub fn new(node_lines: u64, durability: Durability) -> Self {
        Self {
            node_lines,
            geometry: Geometry::default(),
            durability,
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
    /// Right for every version from the horizon to [`Versioned::visible`].
    pub(crate) root: AtomicU64,
    /// The newest version that is durable.
    pub(crate) visible: AtomicU64,
    /// The newest version that there is.
    pub(crate) applied: AtomicU64,
    /// The newest version that was acknowledged to a caller who did not wait for its durability.
    pub(crate) told: AtomicU64,
    pub(crate) dead: SharedDead,
    /// Keys at the newest durable version, over a medium of groups. With `visible` they are what a mark keeps.
    pub(crate) shown: Mutex<(u64, Option<u64>)>,
    /// Named versions.
    pub(crate) kept: Mutex<Vec<Kept>>,
    pub(crate) group_blocks: usize,
    /// Work beside users.
    pub(crate) maintenance: Maintenance,
    /// What is the structure's own.
    pub(crate) own: X,
}

/// What only the writer has.
pub type Writer<P> = index::Writer<Own<P>>;

/// What the writer has besides.
pub struct Own<P> {
    pub(crate) state: State,
    pub(crate) dead: Dead,
    /// The version in flight may have left traces, and no durable interval says so (M1).
    pub(crate) in_doubt: bool,
    /// The running pass of the collector.
    pub(crate) pass: Option<P>,
    /// Of a tree the leaf of the one write that there was made space for, and that comes next.
    pub(crate) hint: Option<Node>,
    /// A rollback in this group has not ended: nothing changes until it is durable and no reader sees what it took back.
    pub(crate) rolled_back: Option<(u64, Interval)>,
}

/// A change in the making.
pub struct Change<'a, P, C> {
    pub(crate) writer: &'a mut Writer<P>,
    /// Of the version that it makes.
    pub(crate) view: View,
    /// What will be true.
    pub(crate) state: State,
    /// Something was stored in nodes.
    pub(crate) stored: bool,
    /// The version of its first write group, if one has ended ([`crate::batch`]).
    pub(crate) first_group: Option<u64>,
    /// What the structure keeps of it.
    pub(crate) own: C,
}

/// The writer of a structure.
pub type WriterOf<X> = Writer<<X as Structure>::Pass>;
/// A change of a structure.
pub type ChangeOf<'a, X> = Change<'a, <X as Structure>::Pass, <X as Structure>::Part>;
/// A key as it is passed in.
pub type KeyOf<X> = <<X as Structure>::Schema as Schema>::Key;
/// A value as it is passed in.
pub type ValueOf<X> = <<X as Structure>::Schema as Schema>::Value;
/// A value as it is handed out.
pub type ValueBufOf<X> = <<X as Structure>::Schema as Schema>::ValueBuf;
/// A write.
pub type WriteOf<'a, X> = Write<'a, KeyOf<X>, ValueOf<X>>;

/// See the module's head.
pub trait Structure: Sized {
    /// The engine's name in the superblock.
    const ENGINE: &'static str;
    /// Keys and values.
    type Schema: Schema<Tail = [u64; 0]>;
    /// How one is made and opened.
    type Options: AsRef<Options>;
    /// A pass of the collector.
    type Pass;
    /// What a change keeps beside what all changes do.
    type Part;

    /// The structure below a root, or a new one (0).
    ///
    /// # Errors
    /// `Corrupt` if there is none.
    fn found<M: Medium>(medium: &M, root: u64, options: &Self::Options) -> Result<Self>;

    /// Writes an empty structure that nobody can reach yet, of version 1, starts its write-back and returns its root.
    ///
    /// # Errors
    /// What the allocator says.
    fn format<M: Medium>(
        &self,
        region: &Region<M>,
        writer: &mut WriterOf<Self>,
        how: (&Shape, Persist),
        options: &Self::Options,
    ) -> Result<u64>;

    /// True if the structure leads to a block, which is neither the meta block nor the list of named versions.
    ///
    /// # Errors
    /// `Corrupt` if something on the way is damaged.
    fn owns<M: Medium>(of: &Versioned<M, Self>, view: &View, class: Class, at: u64) -> Result<bool>;

    /// What a new change keeps.
    ///
    /// # Errors
    /// `Corrupt`.
    fn begin<M: Medium>(of: &Versioned<M, Self>, writer: &WriterOf<Self>) -> Result<Self::Part>;

    /// The change is about to become true, or a write group of it: what it gave up is given back.
    ///
    /// # Errors
    /// `Corrupt`.
    fn finish<M: Medium>(of: &Versioned<M, Self>, change: &mut ChangeOf<'_, Self>) -> Result<()>;

    /// A write group ended: what the next one begins with.
    fn next_group(part: &mut Self::Part);

    /// The change failed: blocks that it took are about to be given up.
    fn abandon<M: Medium>(of: &Versioned<M, Self>, part: Self::Part);

    /// Runs `make` as one version and tidies up behind it.
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

    /// Before these are written as one version, and before the writer's side is entered.
    ///
    /// # Errors
    /// As a write.
    fn prepare<M: Medium>(_of: &Versioned<M, Self>, _writes: &[WriteOf<'_, Self>]) -> Result<()> {
        Ok(())
    }

    /// Makes space for these writes by operations of no version.
    ///
    /// # Errors
    /// As a write.
    fn make_space<M: Medium>(
        of: &Versioned<M, Self>,
        writer: &mut WriterOf<Self>,
        writes: &[WriteOf<'_, Self>],
    ) -> Result<()>;

    /// Puts, as part of a change; true if a value was replaced.
    ///
    /// # Errors
    /// As a write.
    fn put_in<M: Medium>(
        of: &Versioned<M, Self>,
        change: &mut ChangeOf<'_, Self>,
        key: &KeyOf<Self>,
        value: &ValueOf<Self>,
    ) -> Result<bool>;

    /// Removes, as part of a change; true if the key was there.
    ///
    /// # Errors
    /// As a write.
    fn delete_in<M: Medium>(
        of: &Versioned<M, Self>,
        change: &mut ChangeOf<'_, Self>,
        key: &KeyOf<Self>,
    ) -> Result<bool>;

    /// The entry of a key in a view of a version that is pinned, or in one of a newer version.
    ///
    /// # Errors
    /// `Corrupt` if something on the way is damaged.
    fn find_in<M: Medium>(of: &Versioned<M, Self>, view: &View, key: &KeyOf<Self>) -> Result<Option<Entry>>;

    /// What the schema calls an entry.
    fn of_schema(entry: &Entry) -> index::Entry;

    /// Counts the keys of a version.
    ///
    /// # Errors
    /// `TakenBack`, `Corrupt`.
    fn count<M: Medium>(of: &Versioned<M, Self>, mark: &Mark) -> Result<u64>;

    /// Removes the traces of dead versions, and nothing else [thesis algorithm 6].
    ///
    /// # Errors
    /// `Corrupt`.
    fn sweep<M: Medium>(of: &Versioned<M, Self>, writer: &mut WriterOf<Self>) -> Result<()>;

    /// Most lines that these writes change as one step; without any, what the list of named versions and the like take.
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

    /// Before a whole collection: no pass runs.
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

    /// For salvage: true if there is a node here that has entries of keys.
    fn is_leaf<M: Medium>(medium: &M, node: Node) -> bool;

    /// For salvage: false of what only seems to be an entry of a node, as far as can be told. `root` may be damaged, or 0.
    fn is_at_home<M: Medium>(_medium: &M, _root: u64, _node: Node, _entry: &Entry) -> bool {
        true
    }
}
