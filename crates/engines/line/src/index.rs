//! The index: its parts, and how it is created and opened.
//!
//! An open builds a directory of some leaves. The other leaves are added while the index is in use (`load`). After a crash, an open also
//! frees the slots of *strays*: entries whose keys belong to another leaf ([`split`](crate::split)).
//!
//! Invariants:
//! * E1: from the head on, each leaf's link leads to the next leaf. The lower bounds ascend. Only the first leaf has no lower bound.
//! * E2: the directory and the links lead every key to the leaf that holds it, except during a change of the directory (C1 of
//!   [`::index::leaf_list`]).
//! * E3: between operations, a block is allocated if and only if something references it: the list, a used slot, the root, an unfinished
//!   batch, or a cleared list that is being freed.

use std::ops::Deref;
use std::path::Path;

use index::leaf_list::garbage::find_garbage;
use index::leaf_list::meta::{META_BYTES, Meta};
use index::leaf_list::recover::recover_blocks;
use index::leaf_list::{Core, LeafList};
use index::region::{create_region, open_region};
use index::{Batching, Form, Schema};
use pmem::simd::{Body, Vectors};
use pmem::sync::{AtomicBool, AtomicU64};
use pmem::{Error, Found, Medium, Region, Result};

use crate::directory::{Directory, Spare};
use crate::leaf::{Leaf, Shape};
use crate::load::Loading;
use crate::orders::Orders;
use crate::vectored::Free;

/// The engine's name in the superblock.
pub const ENGINE: &str = "line";

/// An index over a medium.
pub struct Line<M: Medium, S: Schema> {
    core: Core<M, S, Own<S>>,
    pub(crate) shape: Shape,
    pub(crate) vectors: Option<Vectors>,
    pub(crate) directory: Directory,
    pub(crate) orders: Orders,
    /// True while the directory does not contain all leaves.
    pub(crate) loading: AtomicBool,
    pub(crate) root: AtomicU64,
}

/// The index's own part of the writer's state.
pub struct Own<S: Schema> {
    pub(crate) loading: Option<Loading<S>>,
    pub(crate) spare: Spare,
    /// Leaf and slot of the newest insert; (0, 0) if they are not known.
    pub(crate) newest: (u64, usize),
}

impl<S: Schema> Default for Own<S> {
    fn default() -> Self {
        Self { loading: None, spare: Spare::default(), newest: (0, 0) }
    }
}

/// The state that the writer's lock protects.
pub(crate) type Writer<S> = index::leaf_list::Writer<Own<S>>;

impl<M: Medium, S: Schema> Deref for Line<M, S> {
    type Target = Core<M, S, Own<S>>;
    fn deref(&self) -> &Self::Target {
        &self.core
    }
}

impl<M: Medium, S: Schema> index::Create<M> for Line<M, S> {
    fn create(medium: M, form: &Form) -> Result<Self> {
        let lines = form.node_lines;
        if Shape::new::<S>(lines, form.payload_words).is_none() {
            return Err(Error::Nodes { lines });
        }
        let how = (form.geometry.unwrap_or_default(), form.durability);
        let sizes = (lines, form.payload_words);
        Self::start(create_region::<M, S>(medium, form.engine, sizes, how, form.tables)?, Found::New, form)
    }

    fn open(medium: M, path: &Path, form: &Form) -> Result<(Self, Found)> {
        let (region, found) = open_region::<M, S>(medium, path, form.engine)?;
        Ok((Self::start(region, found, form)?, found))
    }
}

impl<M: Medium, S: Schema> Line<M, S> {
    fn start(region: Region<M>, found: Found, form: &Form) -> Result<Self> {
        let lines = region.identity().node_lines;
        let payload_words = S::payload_words(&region.identity().kind).ok_or(Error::Nodes { lines })?;
        let shape = Shape::new::<S>(lines, payload_words).ok_or(Error::Nodes { lines })?;
        let root = region.root()?;
        let mut index = Self {
            shape,
            vectors: Vectors::of_processor(),
            directory: Directory::default(),
            orders: Orders::new(region.geometry().chunk_bytes, shape.bytes()),
            loading: AtomicBool::new(false),
            root: AtomicU64::new(root),
            core: Core::new(region, found, form.durability, form.stripes, Own::default())?,
        };
        find_garbage(&index)?;
        if root != 0 {
            index.begin_loading(&mut index.writer_side(), found)?;
        }
        if found == Found::InUse {
            if root != 0 {
                index.free_strays()?;
            }
            recover_blocks(&index)?;
        }
        if root == 0 {
            index.format()?;
            index.begin_loading(&mut index.writer_side(), Found::New)?;
        }
        index.load_little();
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

    /// Runs `body`, compiled for the processor's vector instructions if it has any and the medium shows its lines.
    #[inline(always)]
    pub(crate) fn with_vectors<B: Body>(&self, body: B) -> B::Out {
        match self.vectors {
            Some(vectors) if M::SHOWS_LINES => vectors.run_body(body),
            _ => body.run(None),
        }
    }

    /// True if there is a leaf at an address to which a search led. If the search found its key there and the directory is complete, line 0
    /// of the leaf is not read: a complete directory leads to leaves only.
    #[inline(always)]
    pub(crate) fn has_found(&self, found: bool, leaf: u64) -> bool {
        found && leaf != 0 && !self.is_loading() || self.is_leaf(leaf)
    }

    /// Writer: forgets the kept order of a leaf before it frees a slot (W1 of [`orders`](crate::orders)).
    #[inline(always)]
    pub(crate) fn forget_order(&self, leaf: u64) {
        if !S::PLAIN {
            self.orders.clear(leaf);
        }
    }

    /// Number of used slots of a leaf.
    pub(crate) fn used(&self, leaf: Leaf) -> usize {
        self.shape.slots - self.with_vectors(Free(self, leaf)).count_ones() as usize
    }
}

/// Writes an empty leaf and a meta block that references it, and flushes both.
pub(crate) fn write_empty<M: Medium, S: Schema>(medium: &M, shape: &Shape, first: u64, meta: u64) {
    Leaf(first).compose::<M, S>(medium, shape, (0, 0), &[]);
    Meta(meta).create(medium, first);
}
