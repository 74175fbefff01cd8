//! The index: its parts, and how a change goes through it.
//!
//! An insert, an update and a delete are each an append, of one entry (of byte strings an update has two), behind the last:
//!
//! | fence passed | durable | after a crash |
//! |---|---|---|
//! | none | the entry behind the count, perhaps | nothing: the count does not reach it (L1); a record's block is nobody's and is freed |
//! | payload | the entry | the same |
//! | commit | its sign and the count, one 8-byte store | nothing to do |
//!
//! So an update is never seen as a delete: there is one count for both, and the newest entry wins. A value is replaced by an entry of its
//! own; there is nothing that is stored in place but the sign of an entry in a full leaf, when it is deleted: one word, which is the
//! commit, and no space is needed for taking something away (`delete`).
//!
//! A leaf that is full is replaced: see [`replace`](crate::replace).
//!
//! Invariants:
//! * N1: from the head on, each leaf's `nxt` leads to the next; their `min` ascend, and only the first has none.
//! * N2: the inner nodes lead every key to the leaf that holds it, but while the stripe of that leaf is odd (C1 of [`::index::leaf_list`]).
//! * N3: a block is allocated if and only if the list, a live entry or the root names it (between operations).

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use index::Batching;
use index::Schema;
use index::leaf_list::Core;
use index::leaf_list::LeafList;
use index::leaf_list::garbage::find_garbage;
use index::leaf_list::recover::recover_blocks;
use index::region::{create_region, open_region};
use pmem::sync::{AtomicU64, step};
use pmem::{Durability, Error, Found, Geometry, Medium, Region, Result};

use crate::inner::{Inner, SPACE};
use crate::leaf::{Leaf, Shape};
use crate::meta::{META_BYTES, Meta};
use crate::rebuild::Rebuild;

/// The engine's name in the superblock.
pub const ENGINE: &str = "nvtree";

/// How to make and open an index.
#[derive(Clone, Debug)]
pub struct Options {
    /// Cache lines of a leaf, 2 to 64. (Of an existing index, what it was made with.)
    pub lines: u64,
    /// Words of a value in its entry. (Of an existing index, what it was made with.)
    pub payload_words: usize,
    /// The region's fixed sizes. (Of an existing index, what it was made with.)
    pub geometry: Geometry,
    /// The promise, for the superblock.
    pub durability: Durability,
    /// Version stripes; a power of two.
    pub stripes: usize,
    /// Leaves that a parent of leaves has space for, at least 4; a rebuild leaves half of it free.
    pub space: usize,
}

impl Options {
    /// Production settings.
    pub fn new(lines: u64, durability: Durability) -> Self {
        let geometry = Geometry::default();
        Self { lines, payload_words: 1, geometry, durability, stripes: 1024, space: SPACE }
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

/// What the writer has besides.
#[derive(Default)]
pub struct Own {
    /// The running rebuild.
    pub(crate) rebuild: Option<Rebuild>,
    /// Rebuilds that were brought to their end at once, for a parent of leaves had no space left.
    pub(crate) hurried: u64,
}

/// What only the writer has.
pub(crate) type Writer = index::leaf_list::Writer<Own>;

impl<M: Medium, S: Schema> Deref for NvTree<M, S> {
    type Target = Core<M, S, Own>;
    fn deref(&self) -> &Self::Target {
        &self.core
    }
}

impl<M: Medium, S: Schema> NvTree<M, S> {
    /// Makes an empty index in a fresh medium.
    ///
    /// # Errors
    /// `Nodes` if leaves of so few lines hold too few entries; what growing the medium may say.
    pub fn create(medium: M, options: &Options) -> Result<Self> {
        let lines = options.lines;
        let shape =
            (2..=64).contains(&lines).then(|| Shape::new::<S>(lines, options.payload_words)).flatten();
        if shape.is_none() {
            return Err(Error::Nodes { lines });
        }
        let (sizes, how) = ((lines, options.payload_words), (options.geometry, options.durability));
        Self::start(create_region::<M, S>(medium, ENGINE, sizes, how)?, Found::New, options)
    }

    /// Opens the index in a region, recovering it if it was not closed.
    ///
    /// # Errors
    /// `Mismatch` if something else lives there; `Corrupt` if the list is damaged; what [`Region::open`] says.
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
        // Nobody else has the index yet.
        if found == Found::InUse {
            index.finish_batch()?;
        }
        index.region.medium().commit_beside(|| Some(()))?;
        Ok(index)
    }

    /// Gives an index without a meta block (new, or crashed before it had one) that and an empty leaf.
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

    /// Sizes of leaves.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The inner nodes of this moment.
    #[inline(always)]
    pub(crate) fn inner(&self) -> Guard<Arc<Inner>> {
        step();
        self.shown.load()
    }

    /// Readers take these inner nodes from now on.
    pub(crate) fn set_inner(&self, inner: Inner) {
        step();
        self.shown.store(Arc::new(inner));
    }

    /// What leads to the leaves.
    pub fn paths(&self) -> Paths {
        let hurried = self.writer_side().hurried;
        let inner = self.inner();
        Paths { leaves: inner.leaves(), parents: inner.parents(), inner_bytes: inner.memory(), hurried }
    }
}

/// What leads to the leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Leaves.
    pub leaves: usize,
    /// Parents of leaves.
    pub parents: usize,
    /// Bytes of volatile memory that the inner nodes take.
    pub inner_bytes: u64,
    /// Rebuilds since open for which an insert had to wait.
    pub hurried: u64,
}

/// Writes an empty leaf and a meta block that leads to it, and starts writing them back.
pub(crate) fn write_empty<M: Medium, S: Schema>(medium: &M, shape: &Shape, first: u64, meta: u64) {
    Leaf(first).compose::<_, S::Tail>(medium, shape, (0, 0), [].into_iter());
    Meta(meta).create(medium, first);
}
