//! The index: its parts, and the steps of a change.
//!
//! An insert, an update and a delete each append one entry. An update of a byte string appends two. Each entry has a *sign*, a bit in the
//! header of the leaf: an entry with the negative sign removes a key.
//!
//! | fence passed ([`pmem::Fence`]) | durable | after a crash |
//! |---|---|---|
//! | none | perhaps the new entry | nothing to do: the count excludes it (L1 of `leaf`); its record's block has no owner and is freed |
//! | payload | the new entry | the same |
//! | commit | the entry's sign, and the count (one 8-byte store, in the line of the signs) | nothing to do |
//!
//! One store of the count publishes both entries of an update of a byte string. So no reader sees the update as a delete. The newest entry
//! of a key wins, so a new entry replaces a value. A delete in a full leaf changes only the sign of the entry, in place: one word, which
//! is the commit point and needs no space (`delete`).
//!
//! A full leaf is replaced: see [`replace`](crate::replace).
//!
//! Invariants:
//! * N1: from the head on, each leaf's link `nxt` leads to the next leaf. The leaves' lower bounds `min` ascend. Only the first leaf has no
//!   `min`.
//! * N2: the inner nodes lead every key to the leaf that holds it, except while that leaf's version is locked (C1 of
//!   [`::index::leaf_list`]).
//! * N3: between operations, a block is allocated if and only if the list, a live entry or the root references it.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use index::Batching;
use index::Schema;
use index::leaf_list::Core;
use index::leaf_list::LeafList;
use index::leaf_list::garbage::find_garbage;
use index::leaf_list::meta::{META_BYTES, Meta};
use index::leaf_list::recover::recover_blocks;
use index::region::{create_region, open_region};
use pmem::sync::{AtomicU64, step};
use pmem::{Durability, Error, Found, Geometry, Medium, Region, Result};

use crate::inner::{Inner, SPACE};
use crate::leaf::{Leaf, Shape};
use crate::rebuild::Rebuild;

/// The engine's name in the superblock.
pub const ENGINE: &str = "nvtree";

/// Options to create and open an index.
#[derive(Clone, Debug)]
pub struct Options {
    /// Cache lines of a leaf, 2 to 64. An existing index keeps its own.
    pub lines: u64,
    /// Words of a value in its entry. An existing index keeps its own.
    pub payload_words: usize,
    /// Fixed sizes of the region. An existing index keeps its own.
    pub geometry: Geometry,
    /// Durability, for the superblock.
    pub durability: Durability,
    /// True for the keys of several tables, for the superblock ([`index::tables`]).
    pub tables: bool,
    /// Number of striped version locks; a power of two.
    pub stripes: usize,
    /// Maximum leaves of a parent, at least 4. A rebuild leaves half of this space free.
    pub space: usize,
}

impl Options {
    /// Options for production.
    pub fn new(lines: u64, durability: Durability) -> Self {
        let geometry = Geometry::default();
        Self { lines, payload_words: 1, geometry, durability, tables: false, stripes: 1024, space: SPACE }
    }
}

/// An NV-Tree over a medium.
pub struct NvTree<M: Medium, S: Schema> {
    core: Core<M, S, Own>,
    pub(crate) shape: Shape,
    pub(crate) space: usize,
    shown: ArcSwap<Inner>,
    pub(crate) root: AtomicU64,
}

/// The index's own part of the writer's state.
#[derive(Default)]
pub struct Own {
    /// The running rebuild.
    pub(crate) rebuild: Option<Rebuild>,
    /// Number of rebuilds that were completed at once, because a parent of leaves was full.
    pub(crate) hurried: u64,
}

/// The state that the writer's lock protects.
pub(crate) type Writer = index::leaf_list::Writer<Own>;

impl<M: Medium, S: Schema> Deref for NvTree<M, S> {
    type Target = Core<M, S, Own>;
    fn deref(&self) -> &Self::Target {
        &self.core
    }
}

impl<M: Medium, S: Schema> NvTree<M, S> {
    /// Creates an empty index in a fresh medium.
    ///
    /// # Errors
    /// `Nodes` if a leaf has fewer than 2 or more than 64 lines, or holds too few entries. Also the errors of growing the medium.
    pub fn create(medium: M, options: &Options) -> Result<Self> {
        let lines = options.lines;
        let shape =
            (2..=64).contains(&lines).then(|| Shape::new::<S>(lines, options.payload_words)).flatten();
        if shape.is_none() {
            return Err(Error::Nodes { lines });
        }
        let (sizes, how) = ((lines, options.payload_words), (options.geometry, options.durability));
        Self::start(create_region::<M, S>(medium, ENGINE, sizes, how, options.tables)?, Found::New, options)
    }

    /// Opens the index in a region. Recovers it if it was not closed cleanly.
    ///
    /// # Errors
    /// `Mismatch` if the region holds something else; `Nodes` if its leaves have an impossible size; `Corrupt` if the list is damaged; the
    /// errors of [`Region::open`]. After a crash also the errors of completing an interrupted batch.
    pub fn open(medium: M, path: &Path, options: &Options) -> Result<(Self, Found)> {
        let (region, found) = open_region::<M, S>(medium, path, ENGINE)?;
        Ok((Self::start(region, found, options)?, found))
    }

    fn start(region: Region<M>, found: Found, options: &Options) -> Result<Self> {
        let lines = region.identity().node_lines;
        let payload_words = S::payload_words(&region.identity().kind).ok_or(Error::Nodes { lines })?;
        let shape = Shape::new::<S>(lines, payload_words).ok_or(Error::Nodes { lines })?;
        let root = region.root()?;
        let mut index = Self {
            shape,
            space: options.space.max(4),
            shown: ArcSwap::from_pointee(Inner::default()),
            root: AtomicU64::new(root),
            core: Core::new(region, found, options.durability, options.stripes, Own::default())?,
        };
        if root != 0 {
            index.load(found)?;
        }
        find_garbage(&index)?;
        if found == Found::InUse {
            recover_blocks(&index)?;
        }
        if root == 0 {
            index.format()?;
            index.load(Found::New)?;
        }
        // No other thread has the index yet.
        if found == Found::InUse {
            index.finish_batch()?;
        }
        index.region.medium().commit_beside(|| Some(()))?;
        Ok(index)
    }

    /// Writes a meta block and an empty leaf. The index has no meta block: it is new, or it crashed before it had one.
    fn format(&mut self) -> Result<()> {
        let shape = self.shape;
        let root = self.core.make_root(shape.bytes(), META_BYTES, |medium, first, meta| {
            write_empty::<M, S>(medium, &shape, first, meta);
        });
        self.set_root_block(root?);
        Ok(())
    }

    /// The meta block.
    pub(crate) fn meta(&self) -> Meta {
        Meta(self.root_block())
    }

    /// Geometry of the leaves.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The current inner nodes.
    #[inline(always)]
    pub(crate) fn inner(&self) -> Guard<Arc<Inner>> {
        step();
        self.shown.load()
    }

    /// Replaces the inner nodes for all later reads.
    pub(crate) fn set_inner(&self, inner: Inner) {
        step();
        self.shown.store(Arc::new(inner));
    }

    /// Sizes of the search structure.
    pub fn paths(&self) -> Paths {
        let hurried = self.writer_side().hurried;
        let inner = self.inner();
        Paths { leaves: inner.leaves(), parents: inner.parents(), inner_bytes: inner.memory(), hurried }
    }
}

/// Sizes of the search structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Number of leaves.
    pub leaves: usize,
    /// Number of parents of leaves.
    pub parents: usize,
    /// Bytes of volatile memory of the inner nodes.
    pub inner_bytes: u64,
    /// Number of rebuilds since the open that an insert had to wait for.
    pub hurried: u64,
}

/// Writes an empty leaf and a meta block that references it, and flushes both.
pub(crate) fn write_empty<M: Medium, S: Schema>(medium: &M, shape: &Shape, first: u64, meta: u64) {
    Leaf(first).compose::<_, S::Tail>(medium, shape, (0, 0), [].into_iter());
    Meta(meta).create(medium, first);
}
