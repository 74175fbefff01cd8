//! Toy: the smallest engine, a list of sorted pages. A change writes a page anew. The registry has the toy only with the feature `toy`,
//! which is for tests.
//!
//! It shows the parts that an engine needs: one crate and one line of the registry. The kernel ([`index::leaf_list`]) has writers, write
//! groups, batches, snapshots, scans and the life cycle. The engine defines the page ([`page`]), the search for the page of a key ([`Toy`],
//! a map in volatile memory), and the replacement of a page ([`change`]).
//!
//! Invariants:
//! * T1: each page's link references the next page. The lower bounds ascend. The first page has no lower bound and stays first.
//! * T2: the volatile map has each page by its lower bound, except while the kernel's counter `changes` is odd: then a change of the map is
//!   in progress.
//! * T3: a block is allocated if and only if the list, an entry or the meta block references it (between operations).
#![forbid(unsafe_code)]

pub mod change;
mod family;
mod list;
pub mod page;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;

use index::leaf_list::Core;
use index::leaf_list::LeafList;
use index::leaf_list::garbage::find_garbage;
use index::leaf_list::meta::{META_BYTES, Meta};
use index::leaf_list::recover::recover_blocks;
use index::region::{create_region, open_region};
use index::{About, Batching, Form, Schema};
use pmem::sync::{AtomicU64, Mutex};
use pmem::{Error, Found, Medium, Region, Result};

pub use family::ToyFamily;
use page::{Page, Shape};

/// The description for the registry.
pub const ABOUT: About = About {
    name: "toy",
    about: "for tests: a list of sorted pages, of which a change writes one anew",
    leaf: "sorted",
    inner: "volatile",
    commit_protocol: "one word",
    durable: true,
    lines: (4, 64),
    default_lines: 16,
};

/// An index over a medium.
pub struct Toy<M: Medium, S: Schema> {
    core: Core<M, S, ()>,
    shape: Shape,
    meta: AtomicU64,
    /// Pages by their lower bound.
    pages: Mutex<BTreeMap<S::KeyBuf, u64>>,
}

impl<M: Medium, S: Schema> Deref for Toy<M, S> {
    type Target = Core<M, S, ()>;
    fn deref(&self) -> &Self::Target {
        &self.core
    }
}

impl<M: Medium, S: Schema> index::Create<M> for Toy<M, S> {
    fn create(medium: M, form: &Form) -> Result<Self> {
        let lines = form.node_lines;
        if !(2..=64).contains(&lines) || Shape::new::<S>(lines, form.payload_words).is_none() {
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

impl<M: Medium, S: Schema> Toy<M, S> {
    fn start(region: Region<M>, found: Found, form: &Form) -> Result<Self> {
        let lines = region.identity().node_lines;
        let payload_words = S::payload_words(&region.identity().kind).ok_or(Error::Nodes { lines })?;
        let shape = Shape::new::<S>(lines, payload_words).ok_or(Error::Nodes { lines })?;
        let meta = region.root()?;
        let core = Core::new(region, found, form.durability, form.stripes, ())?;
        let mut index = Self { core, shape, meta: AtomicU64::new(meta), pages: Mutex::default() };
        if meta != 0 {
            index.load()?;
        }
        find_garbage(&index)?;
        if found == Found::InUse {
            recover_blocks(&index)?;
        }
        if meta == 0 {
            index.format()?;
            index.load()?;
        }
        // No other thread has the index yet.
        if found == Found::InUse {
            index.finish_batch()?;
        }
        index.region.medium().commit_beside(|| Some(()))?;
        Ok(index)
    }

    /// Gives an index without a meta block a meta block and an empty page. Such an index is new, or a crash interrupted its creation.
    fn format(&mut self) -> Result<()> {
        let shape = self.shape;
        let root = self.core.make_root(shape.bytes(), META_BYTES, |medium, first, meta| {
            write_empty::<M, S>(medium, &shape, first, meta);
        })?;
        self.set_root_block(root);
        Ok(())
    }
}

/// Writes an empty page and a meta block that references it, and flushes them.
fn write_empty<M: Medium, S: Schema>(medium: &M, shape: &Shape, first: u64, meta: u64) {
    Page(first).compose::<M, S::Tail>(medium, shape, (0, 0), &[]);
    Meta(meta).create(medium, first);
}
