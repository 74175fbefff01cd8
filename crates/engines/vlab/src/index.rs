//! The index: its parts, and how a change goes through it.
//!
//! | fence passed | durable | after a crash |
//! |---|---|---|
//! | insert: none | the entry in a free slot, perhaps | nothing: its bit is clear (K1) |
//! | payload | the entry | the same; a record's block is nobody's and is freed |
//! | commit | its bit | nothing to do |
//!
//! A delete is the last step alone; an update of a word is that word; of more it is an insert under the bitmap word of the old entry,
//! whose publish clears one bit and sets the other. See `split` and `merge` for the rest.
//!
//! Invariants:
//! * V1: from the head on, each bucket's `nxt` leads to the one whose `min` is this one's `max`; the first has no `min`, and is never
//!   given back.
//! * V2: the view leads every key to the bucket that holds it, but while the stripe of that bucket is odd. Whoever looked a bucket up
//!   before a split or merge finds `changes` changed after it.
//! * V3: a block is allocated if and only if the list, an entry or the meta block names it (between operations).

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
use pmem::sync::{AtomicU64, Ordering, step};
use pmem::{Durability, Error, Found, Geometry, Medium, Region, Result};

use crate::braids::Braids;
use crate::bucket::{Bucket, Links, Shape};
use crate::combine::{Rebuild, Retired, Work};
use crate::directory::{Directory, Guide};
use crate::meta::{META_BYTES, Meta};
use crate::rewired::{Addressing, Way, Why, Wiring};

/// The engine's name in the superblock.
pub const ENGINE: &str = "vlab";

/// Entries of a head of one page [VLAB §6.1].
const BRAIDS: usize = 512;
/// Directory entries that an operation takes over while a combine runs.
const STEP: usize = 64;

/// How to make and open an index.
#[derive(Clone, Debug)]
pub struct Options {
    /// Cache lines of a bucket, 2 to 64. (Of an existing index, what it was made with.)
    pub lines: u64,
    /// Words of a value in its entry. (Of an existing index, what it was made with.)
    pub payload_words: usize,
    /// The region's fixed sizes. (Of an existing index, what it was made with.)
    pub geometry: Geometry,
    /// The promise, for the superblock.
    pub durability: Durability,
    /// Version stripes; a power of two.
    pub stripes: usize,
    /// Splits by the paper's six steps with a fence each. (Of an existing index, what it was made with.)
    pub faithful: bool,
    /// Most braids.
    pub braids: usize,
    /// Most buckets of a braid; without it, twice the logarithm of the number of all buckets.
    pub braid_buckets: Option<usize>,
    /// Steps that an operation takes while a combine runs, each a directory entry or a part of its table: what bounds the time that it may
    /// cost ([`crate::combine`]).
    pub combine_step: usize,
    /// How a place is searched for.
    pub guide: Guide,
    /// How a place becomes an address.
    pub addressing: Addressing,
    /// Most mappings of the kernel's for [`Addressing::Rewired`], of which about one for each bucket is needed; in any case no more than
    /// the system leaves to all windows of the process ([`pmem::window::mappings_max`]).
    pub mappings_max: Option<u64>,
}

impl Options {
    /// Production settings.
    pub fn new(lines: u64, durability: Durability) -> Self {
        Self {
            lines,
            payload_words: 1,
            geometry: Geometry::default(),
            durability,
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

/// What leads to the buckets: replaced whole when buckets come or go.
#[derive(Debug)]
pub(crate) struct View<S: Schema> {
    pub directory: Arc<Directory>,
    /// To the pages of its buckets.
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

/// What the writer has besides.
pub struct Own<S: Schema> {
    /// The running combine.
    pub(crate) rebuild: Option<Rebuild<S>>,
    /// Entries of the directory whose bucket was given back.
    pub(crate) aliases: u64,
    /// Windows that come and go.
    pub(crate) wiring: Wiring,
    /// What combines replaced.
    pub(crate) retired: Retired<S>,
    /// What they cost.
    pub(crate) work: Work,
}

/// What only the writer has.
pub(crate) type Writer<S> = index::leaf_list::Writer<Own<S>>;

impl<M: Medium, S: Schema> Vlab<M, S> {
    /// Makes an empty index in a fresh medium.
    ///
    /// # Errors
    /// `Nodes` if buckets of so few lines hold too few entries; what growing the medium may say.
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
        // Nobody else has the index yet.
        if found == Found::InUse {
            index.finish_batch()?;
        }
        index.begin_window(&mut index.writer_side());
        index.region.medium().commit_beside(|| Some(()))?;
        Ok(index)
    }

    /// Gives an index without a meta block (new, or crashed before it had one) that and an empty bucket.
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

    /// Sizes of buckets.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// What leads to the buckets.
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

    /// The view of this moment.
    #[inline(always)]
    pub(crate) fn view(&self) -> Guard<Arc<View<S>>> {
        step();
        self.shown.load()
    }

    /// Readers take this view from now on.
    pub(crate) fn set_view(&self, view: View<S>) {
        step();
        self.shown.store(Arc::new(view));
    }

    /// Publishes a view in which a split or merge is seen (V2). The stripes of its buckets are odd.
    pub(crate) fn show(&self, view: View<S>) {
        self.set_view(view);
        self.changes.fetch_add(2, Ordering::AcqRel);
    }
}

/// How many buckets are found which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Entries of the directory.
    pub directory: usize,
    /// Braids.
    pub braids: usize,
    /// Buckets in braids.
    pub in_braids: usize,
    /// Bytes of volatile memory that the directory takes.
    pub directory_bytes: u64,
    /// Bytes of the kernel's memory that the window takes; 0 without one. See [`Vlab::addressed`].
    pub window_bytes: u64,
    /// And the braids.
    pub braids_bytes: u64,
}

/// True if a value is one word of its entry, which an update can switch alone.
pub(crate) const fn is_one_word<S: Schema>() -> bool {
    S::PLAIN && S::Tail::EMPTY
}

/// Writes an empty bucket and a meta block that leads to it, and starts writing them back.
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
