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

use std::marker::PhantomData;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use arc_swap::ArcSwap;
use pmem::alloc::{Allocator, Kind};
use pmem::log::{Format, Log};
use pmem::pending::Pending;
use pmem::region::{Identity, ROOT_AT};
use pmem::stripe::{Held, Stripes};
use pmem::sync::{AtomicU8, AtomicU64, Mutex, MutexGuard, Ordering};
use pmem::{Durability, Error, Fence, Found, Geometry, Medium, Region, RegionOptions, Result, WORD};
use tree::Schema;
use tree::before::Batches;
use tree::shape::Tail;

use crate::braids::Braids;
use crate::bucket::{Bucket, Links, Shape};
use crate::combine::Rebuild;
use crate::directory::{Directory, Guide};
use crate::meta::{META_BYTES, Meta};

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
    /// Directory entries that an operation takes over while a combine runs: what bounds the time that it may cost.
    pub combine_step: usize,
    /// How a place is searched for.
    pub guide: Guide,
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
        }
    }
}

pub(crate) const OPEN: u8 = 0;
pub(crate) const READ_ONLY: u8 = 1;
/// Is being closed: no more writes, and those before are committed.
pub(crate) const CLOSING: u8 = 2;
pub(crate) const CLOSED: u8 = 3;
pub(crate) const FAILED: u8 = 4;
/// A batch failed half-way: whoever leads next takes it back.
pub(crate) const BROKEN: u8 = 5;

/// What leads to the buckets: replaced whole when buckets come or go.
#[derive(Debug)]
pub(crate) struct View<S: Schema> {
    pub directory: Arc<Directory>,
    pub braids: Braids<S>,
}

/// A VLAB index over a medium.
pub struct Vlab<M: Medium, S: Schema> {
    pub(crate) region: Region<M>,
    pub(crate) shape: Shape,
    pub(crate) faithful: bool,
    pub(crate) braids_max: usize,
    pub(crate) braid_buckets: Option<usize>,
    pub(crate) combine_step: usize,
    pub(crate) guide: Guide,
    pub(crate) stripes: Stripes,
    pub(crate) view: ArcSwap<View<S>>,
    /// Splits and merges that were shown so far (V2).
    pub(crate) changes: AtomicU64,
    pub(crate) keys: AtomicU64,
    pub(crate) state: AtomicU8,
    pub(crate) meta: Meta,
    /// Over a medium of groups: who waits for which.
    pub(crate) pending: Option<Box<Pending>>,
    /// What batches replaced.
    pub(crate) batches: Batches<S>,
    /// Who closes, and who keeps others from it.
    closing: Mutex<()>,
    writer: Mutex<Writer<S>>,
    parts: PhantomData<fn() -> S>,
}

/// What only the writer has.
pub(crate) struct Writer<S: Schema> {
    pub log: Log,
    pub allocator: Allocator,
    pub held: Held,
    /// The running combine.
    pub rebuild: Option<Rebuild<S>>,
    /// Entries of the directory whose bucket was given back.
    pub aliases: u64,
}

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
        let kind = S::kind(options.payload_words);
        let identity = Identity { engine: ENGINE.into(), kind, node_lines: lines };
        let region = RegionOptions { geometry: options.geometry, identity };
        let region = Region::create(medium, &region, options.durability)?;
        Self::start(region, Found::New, options)
    }

    /// Opens the index in a region, recovering it if it was not closed.
    ///
    /// # Errors
    /// `Mismatch` if something else lives there; `Corrupt` if the list is damaged; what [`Region::open`] says.
    pub fn open(medium: M, path: &Path, options: &Options) -> Result<(Self, Found)> {
        let (region, found) = Region::open(medium, path)?;
        let identity = region.identity();
        if identity.engine != ENGINE || S::payload_words(&identity.kind).is_none() {
            return Err(Error::Mismatch {
                found: format!("engine {} over {}", identity.engine, identity.kind),
                asked: format!("{ENGINE} over {}", S::NAME),
            });
        }
        Ok((Self::start(region, found, options)?, found))
    }

    fn start(region: Region<M>, found: Found, options: &Options) -> Result<Self> {
        let lines = region.identity().node_lines;
        let payload_words = S::payload_words(&region.identity().kind).ok_or(Error::Nodes { lines })?;
        let shape = Shape::new::<S>(lines, payload_words).ok_or(Error::Nodes { lines })?;
        let allocator = Allocator::new(&region);
        region.mark_in_use(options.durability)?;
        let log = match found {
            Found::New => Log::new(region.geometry(), Format::Redo),
            _ => Log::recover(region.medium(), region.geometry(), Format::Redo)?,
        };
        let root = region.root()?;
        let faithful = if root == 0 { options.faithful } else { Meta(root).mode(region.medium())?.0 };
        let view = View { directory: Arc::default(), braids: Braids::default() };
        let mut index = Self {
            shape,
            faithful,
            braids_max: options.braids.max(1),
            braid_buckets: options.braid_buckets,
            combine_step: options.combine_step.max(1),
            guide: options.guide,
            stripes: Stripes::new(options.stripes),
            view: ArcSwap::from_pointee(view),
            changes: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            state: AtomicU8::new(OPEN),
            meta: Meta(root),
            pending: region.medium().group().map(|_| Box::default()),
            batches: Batches::default(),
            closing: Mutex::new(()),
            writer: Mutex::new(Writer { log, allocator, held: Held::default(), rebuild: None, aliases: 0 }),
            region,
            parts: PhantomData,
        };
        if root != 0 {
            index.load(found)?;
        }
        if found == Found::InUse {
            index.recover_blocks()?;
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

    /// Gives an index without a meta block (new, or crashed before it had one) that and an empty bucket.
    fn format(&mut self) -> Result<()> {
        let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (region, medium) = (&self.region, self.region.medium());
        let first = Bucket(writer.allocator.take(region, &mut writer.log, Kind::Leaf, self.shape.bytes())?);
        let meta = Meta(writer.allocator.take(region, &mut writer.log, Kind::Inner, META_BYTES)?);
        let links = Links { nxt: 0, min: 0, max: 0 };
        first.compose::<_, S::Tail>(medium, &self.shape, links, [].into_iter());
        meta.create(medium, first.0, self.faithful);
        medium.fence(Fence::Payload);
        writer.allocator.flip(region);
        medium.publish(ROOT_AT, Region::<M>::root_word(meta.0));
        medium.flush(ROOT_AT, WORD);
        medium.fence(Fence::Commit); // [format]
        writer.allocator.finish(region, &mut writer.log);
        self.meta = meta;
        Ok(())
    }

    /// The writer's side, unless the index was closed.
    pub(crate) fn lock_writer(&self) -> Result<MutexGuard<'_, Writer<S>>> {
        self.stripes.give_way();
        let writer = self.writer_side();
        self.writable()?;
        Ok(writer)
    }

    /// The writer's side, whatever state the index is in.
    pub(crate) fn writer_side(&self) -> MutexGuard<'_, Writer<S>> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.stripes.take_over();
        writer
    }

    /// True once it takes no more writes, whatever the reason.
    pub fn is_closed(&self) -> bool {
        self.writable().is_err()
    }

    /// Refuses every write from now on, and has nothing to close: for an index over memory of its own.
    pub fn refuse_writes(&self) {
        self.state.store(READ_ONLY, Ordering::Release);
    }

    /// Runs `look` while nobody changes or closes the index; readers go on.
    ///
    /// # Errors
    /// `Closed` or `Failed`: it was not run.
    pub fn hold_writers<T>(&self, look: impl FnOnce() -> T) -> Result<T> {
        let _turn = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        let _writer = self.lock_writer()?;
        Ok(look())
    }

    /// Makes everything durable by the means of the file system.
    ///
    /// # Errors
    /// `Io` if the system call fails: later writes are refused then. Where durability goes by groups, as [`Vlab::commit`].
    pub fn sync(&self) -> Result<()> {
        if self.pending.is_some() {
            return self.commit();
        }
        let outcome = self.region.medium().sync(0, self.region.medium().len());
        if outcome.is_err() {
            self.state.store(FAILED, Ordering::Release);
        }
        outcome
    }

    /// Closes cleanly. Later writes are refused, reads go on.
    ///
    /// # Errors
    /// `Io` if the data or the mark cannot be synced; `Failed` if a sync failed before.
    pub fn close(&self) -> Result<()> {
        // Who comes second waits until the first is done.
        let _turn = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.state.load(Ordering::Acquire) == READ_ONLY {
            self.state.store(CLOSED, Ordering::Release);
            return Ok(());
        }
        let mut writer = match self.lock_writer() {
            Err(Error::Closed) => return Ok(()),
            other => other?,
        };
        writer.log.settle(self.region.medium());
        if let Some(pending) = &self.pending {
            self.state.store(CLOSING, Ordering::Release);
            let ticket = pending.ticket();
            drop(writer);
            self.settle(pending, ticket)?;
            writer = self.writer_side();
        }
        // Before the mark: should its sync fail, it may be there all the same, and no write may follow it.
        self.state.store(FAILED, Ordering::Release);
        // A leader that waits for the lock with nothing to commit would otherwise wait for the mark's, and that for him.
        drop(writer);
        self.region.mark_clean(self.len())?;
        self.state.store(CLOSED, Ordering::Release);
        Ok(())
    }

    /// Closes if it can: what a dropped store does. An index that cannot be closed is recovered at the next open.
    pub fn close_on_drop(&self) {
        if !std::thread::panicking() {
            let _ = self.close();
        }
    }

    /// Number of keys.
    pub fn len(&self) -> u64 {
        self.keys.load(Ordering::Acquire)
    }

    /// True without keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The region.
    pub fn region(&self) -> &Region<M> {
        &self.region
    }

    /// Sizes of buckets.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// What leads to the buckets.
    pub fn paths(&self) -> Paths {
        let view = self.view.load();
        Paths {
            directory: view.directory.len(),
            braids: view.braids.braids(),
            in_braids: view.braids.count(),
            directory_bytes: view.directory.memory(),
        }
    }

    /// Gives up the running operation, passing its error on.
    #[cold]
    pub(crate) fn give_up(&self, writer: &mut Writer<S>, error: Error) -> Error {
        writer.allocator.abort(&self.region, &mut writer.log);
        error
    }

    /// Publishes a view in which a split or merge is seen (V2). The stripes of its buckets are odd.
    pub(crate) fn show(&self, view: View<S>) {
        self.view.store(Arc::new(view));
        self.changes.fetch_add(1, Ordering::AcqRel);
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
}

/// True if a value is one word of its entry, which an update can switch alone.
pub(crate) const fn is_one_word<S: Schema>() -> bool {
    S::PLAIN && S::Tail::EMPTY
}
