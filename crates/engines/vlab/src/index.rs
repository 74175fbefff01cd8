//! The index: its parts, and the steps of a change.
//!
//! | fence passed ([`pmem::Fence`]) | durable | after a crash |
//! |---|---|---|
//! | none | perhaps the entry in a free slot | nothing to do: its bit is clear (K1 of `bucket`) |
//! | payload | the entry | its bit is clear; if it has a record, the record's block is freed |
//! | commit | its bit | nothing to do |
//!
//! The table is for an insert. A delete consists of the last step only. An update of a value of one word publishes that word. An update of
//! a wider value writes the new entry to a free slot of the same bitmap word. One publish of this word then clears the old entry's bit and
//! sets the new one's. `split` and `merge` have tables of their own.
//!
//! Invariants:
//! * V1: from the head on, each bucket's `nxt` references the next bucket. The `min` of the next bucket equals the `max` of this bucket.
//!   The first bucket has no `min` and is never freed.
//! * V2: the view leads every key to the bucket that holds it, except while that bucket's version is locked. The view is the directory and
//!   the braids: short lists of the buckets that were added after the directory was built. A split or merge changes the counter `changes`.
//!   So a reader's validation fails if the reader found its bucket before the split or merge.
//! * V3: between operations, a block is allocated if and only if the list, an entry or the meta block references it.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use index::Batching;
use index::Schema;
use index::Tail;
use index::leaf_list::Core;
use index::leaf_list::LeafList;
use index::leaf_list::garbage::find_garbage;
use index::leaf_list::recover::recover_blocks;
use index::region::{create_region, open_region};
use pmem::sync::{AtomicU64, step};
use pmem::{Durability, Error, Found, Geometry, Medium, Region, Result};

use crate::braids::Braids;
use crate::bucket::{Bucket, Links, Shape};
use crate::combine::{Rebuild, Retired, Work};
use crate::directory::{Directory, Guide};
use crate::meta::{META_BYTES, Meta};
use crate::rewired::{Addressing, Way, Why, Wiring};

/// The engine's name in the superblock.
pub const ENGINE: &str = "vlab";

/// Default of [`Options::braids`]: the entries that fit into a head of one page [VLAB §6.1].
const BRAIDS: usize = 512;
/// Default of [`Options::combine_step`].
const STEP: usize = 64;

/// Options to create and open an index.
#[derive(Clone, Debug)]
pub struct Options {
    /// Cache lines of a bucket, 2 to 64. An existing index keeps its own.
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
    /// True if a split is the paper's six steps with a fence each, and a combine is durable. An existing index keeps its own.
    pub faithful: bool,
    /// Maximum number of braids.
    pub braids: usize,
    /// Maximum buckets of a braid. `None`: twice the logarithm of the number of all buckets.
    pub braid_buckets: Option<usize>,
    /// Maximum number of steps that an operation does for a running combine. A step is a directory entry or a part of the directory's
    /// table. The maximum bounds the cost of an operation ([`crate::combine`]).
    pub combine_step: usize,
    /// The algorithm that finds the place of a key in the directory.
    pub guide: Guide,
    /// The way from a place in the directory to the bucket's address.
    pub addressing: Addressing,
    /// Maximum number of kernel mappings for [`Addressing::Rewired`], which needs about one per bucket. The limit of all windows of the
    /// process applies in any case ([`pmem::page_remap::mappings_max`]).
    pub mappings_max: Option<u64>,
}

impl Options {
    /// Options for production.
    pub fn new(lines: u64, durability: Durability) -> Self {
        Self {
            lines,
            payload_words: 1,
            geometry: Geometry::default(),
            durability,
            tables: false,
            stripes: 1024,
            faithful: false,
            braids: BRAIDS,
            braid_buckets: None,
            combine_step: STEP,
            guide: Guide::Table,
            addressing: Addressing::Directory,
            mappings_max: None,
        }
    }
}

/// One version of the search structures: directory and braids. The writer replaces the whole view when it adds or removes buckets.
#[derive(Debug)]
pub(crate) struct View<S: Schema> {
    pub directory: Arc<Directory>,
    /// The way to the pages of the directory's buckets.
    pub way: Way,
    pub braids: Braids<S>,
}

/// A VLAB index over a medium.
pub struct Vlab<M: Medium, S: Schema> {
    core: Core<M, S, Own<S>>,
    pub(crate) shape: Shape,
    pub(crate) faithful: bool,
    pub(crate) braids_max: usize,
    pub(crate) braid_buckets: Option<usize>,
    pub(crate) combine_step: usize,
    pub(crate) guide: Guide,
    pub(crate) addressing: Addressing,
    pub(crate) mappings_max: Option<u64>,
    shown: ArcSwap<View<S>>,
    pub(crate) root: AtomicU64,
}

impl<M: Medium, S: Schema> Deref for Vlab<M, S> {
    type Target = Core<M, S, Own<S>>;
    fn deref(&self) -> &Self::Target {
        &self.core
    }
}

/// The part of the writer's state that only VLAB needs.
pub struct Own<S: Schema> {
    /// The running combine.
    pub(crate) rebuild: Option<Rebuild<S>>,
    /// Number of directory entries whose bucket was freed.
    pub(crate) aliases: u64,
    /// Windows that are being made or removed.
    pub(crate) wiring: Wiring,
    /// Directories and braids that combines replaced.
    pub(crate) retired: Retired<S>,
    /// Counts of the work of combines.
    pub(crate) work: Work,
}

/// The state that the writer's lock protects.
pub(crate) type Writer<S> = index::leaf_list::Writer<Own<S>>;

impl<M: Medium, S: Schema> Vlab<M, S> {
    /// Creates an empty index in a fresh medium.
    ///
    /// # Errors
    /// `Nodes` if a bucket has fewer than 2 or more than 64 lines, or holds too few entries. Also the errors of growing the medium.
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
    /// `Mismatch` if the region holds something else; `Nodes` if its buckets have an impossible size; `Corrupt` if the list is damaged; the
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
        let faithful = if root == 0 { options.faithful } else { Meta(root).mode(region.medium())?.0 };
        let way = Way::Directory(Why::Making);
        let view = View { directory: Arc::default(), way, braids: Braids::default() };
        let (wiring, retired) = (Wiring::default(), Retired::default());
        let own = Own { rebuild: None, aliases: 0, wiring, retired, work: Work::default() };
        let mut index = Self {
            shape,
            faithful,
            braids_max: options.braids.max(1),
            braid_buckets: options.braid_buckets,
            combine_step: options.combine_step.max(1),
            guide: options.guide,
            addressing: options.addressing,
            mappings_max: options.mappings_max,
            shown: ArcSwap::from_pointee(view),
            root: AtomicU64::new(root),
            core: Core::new(region, found, options.durability, options.stripes, own)?,
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
        index.begin_window(&mut index.writer_side());
        index.region.medium().commit_beside(|| Some(()))?;
        Ok(index)
    }

    /// Writes a meta block and an empty bucket. The index has no meta block: it is new, or it crashed before it had one.
    fn format(&mut self) -> Result<()> {
        let (shape, faithful) = (self.shape, self.faithful);
        let root = self.core.make_root(shape.bytes(), META_BYTES, |medium, first, meta| {
            write_empty::<M, S>(medium, &shape, (first, meta), faithful);
        });
        self.set_root_block(root?);
        Ok(())
    }

    /// The meta block.
    pub(crate) fn meta(&self) -> Meta {
        Meta(self.root_block())
    }

    /// Geometry of the buckets.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Sizes of the search structures.
    pub fn paths(&self) -> Paths {
        let view = self.view();
        Paths {
            directory: view.directory.len(),
            braids: view.braids.braids(),
            in_braids: view.braids.count(),
            directory_bytes: view.directory.memory(),
            window_bytes: match &view.way {
                Way::Directory(_) => 0,
                Way::Window(window) => window.memory(),
            },
            braids_bytes: view.braids.memory(),
        }
    }

    /// The current view.
    #[inline(always)]
    pub(crate) fn view(&self) -> Guard<Arc<View<S>>> {
        step();
        self.shown.load()
    }

    /// Replaces the view for all later reads.
    pub(crate) fn set_view(&self, view: View<S>) {
        step();
        self.shown.store(Arc::new(view));
    }

    /// Publishes a view that includes a split or merge (V2). The versions of the changed buckets are locked.
    pub(crate) fn show(&self, view: View<S>) {
        self.set_view(view);
        self.changes.add();
    }
}

/// Sizes of the search structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Number of directory entries.
    pub directory: usize,
    /// Number of braids.
    pub braids: usize,
    /// Number of buckets in braids.
    pub in_braids: usize,
    /// Bytes of volatile memory of the directory.
    pub directory_bytes: u64,
    /// Bytes of kernel memory of the window; 0 without one. See [`Vlab::addressed`].
    pub window_bytes: u64,
    /// Bytes of volatile memory of the braids.
    pub braids_bytes: u64,
}

/// True if a value is one word of its entry, so that an update can publish it alone.
pub(crate) const fn is_one_word<S: Schema>() -> bool {
    S::PLAIN && S::Tail::EMPTY
}

/// Writes an empty bucket and a meta block that references it, and flushes both.
pub(crate) fn write_empty<M: Medium, S: Schema>(
    medium: &M,
    shape: &Shape,
    (first, meta): (u64, u64),
    faithful: bool,
) {
    let links = Links { nxt: 0, min: 0, max: 0 };
    Bucket(first).compose::<_, S::Tail>(medium, shape, links, [].into_iter());
    Meta(meta).create(medium, first, faithful);
}
