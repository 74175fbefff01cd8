//! The table: its parts, and how a change goes through it.

use std::marker::PhantomData;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use pmem::alloc::{Allocator, Kind};
use pmem::log::{Format, Log};
use pmem::region::ROOT_AT;
use pmem::stripe::{Held, Stripes};
use pmem::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};
use pmem::{
    Durability, Error, Fence, Found, Geometry, Identity, Medium, Region, RegionOptions, Result, WORD,
};
use tree::Schema;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::collect::Pass;
use super::directory::{Directory, SEGMENT_SLOTS_MAX};
use crate::meta::{META_BYTES, Meta, State, in_flight};
use crate::node::{Entry, Shape};
use crate::persist::Persist;
use crate::pins::{Pins, Readers};
use crate::tree::Recovery;
use crate::version::{Dead, Death, INTERVALS, Interval, SharedDead, View};

/// The engine's name in the superblock.
pub const ENGINE: &str = "cdds-hash";
/// The stripe of what is above the buckets.
pub(crate) const DIRECTORY: u64 = 0;

/// The stripe of a bucket: of its slot, its nodes, and what they name.
pub(crate) fn stripe_of(bucket: u64) -> u64 {
    (bucket + 1) << 6
}

/// How to make and open a table.
#[derive(Clone, Debug)]
pub struct Options {
    /// Cache lines of a node, 2 to 64. (Of an existing table, what it was made with.)
    pub node_lines: u64,
    /// The region's fixed sizes. (Of an existing table, what it was made with.)
    pub geometry: Geometry,
    /// The promise, for the superblock.
    pub durability: Durability,
    /// Version stripes; a power of two.
    pub stripes: usize,
    /// A fence before and after each flush [thesis §4.1].
    pub faithful: bool,
    /// Slots of a segment of the directory: a power of two, 2 to 16,384. (Of an existing table, what it was made with.)
    pub segment_slots: u64,
    /// Seed of the hash: unknown to others where they choose the keys. (Of an existing table, what it was made with.)
    pub seed: u64,
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
            segment_slots: 4096,
            seed: 0,
        }
    }
}

/// A CDDS hash table over a medium.
pub struct Table<M: Medium, S: Schema<Tail = [u64; 0]>> {
    pub(crate) region: Region<M>,
    pub(crate) shape: Shape,
    pub(crate) persist: Persist,
    pub(crate) stripes: Stripes,
    pub(crate) pins: Arc<Pins>,
    meta: Meta,
    /// Address of the directory's top.
    pub(crate) top: AtomicU64,
    seed: u64,
    /// The newest version that is durable.
    pub(crate) visible: AtomicU64,
    keys: AtomicU64,
    dead: SharedDead,
    closed: AtomicBool,
    writer: Mutex<Writer>,
    parts: PhantomData<fn() -> S>,
}

/// What only the writer has.
pub(crate) struct Writer {
    pub log: Log,
    pub allocator: Allocator,
    pub held: Held,
    pub state: State,
    pub dead: Dead,
    /// The version in flight may have left traces, and no durable interval says so (M1).
    pub in_doubt: bool,
    /// The running pass of the collector.
    pub pass: Option<Pass>,
}

/// A change in the making.
pub(crate) struct Change<'a> {
    pub writer: &'a mut Writer,
    /// Of the version that it makes.
    pub view: View,
    pub readers: Readers,
    pub directory: Directory,
    /// Keys that there will be.
    pub keys: u64,
    /// Something was stored in nodes.
    pub stored: bool,
    /// Slots that lead to new nodes, with what they held.
    pub linked: Vec<(u64, u64)>,
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Table<M, S> {
    /// Makes an empty table in a fresh medium.
    ///
    /// # Errors
    /// `Nodes` for a size that is none, `Durability` for a medium that becomes durable by groups; what growing the medium may
    /// say.
    ///
    /// # Panics
    /// If segments are not of a size that [`Options::segment_slots`] allows.
    pub fn create(medium: M, options: &Options) -> Result<Self> {
        const { assert!(S::KEY_WORDS == 1, "an entry has one key word") };
        let (lines, slots) = (options.node_lines, options.segment_slots);
        if !(2..=64).contains(&lines) {
            return Err(Error::Nodes { lines });
        }
        assert!(slots.is_power_of_two() && (2..=SEGMENT_SLOTS_MAX).contains(&slots), "slots of a segment");
        let identity = Identity { engine: ENGINE.into(), kind: S::kind(1), node_lines: lines };
        let region = RegionOptions { geometry: options.geometry, identity };
        let region = Region::create(medium, &region, options.durability)?;
        Self::start(region, Found::New, options, Recovery::Lazy)
    }

    /// Opens the table in a region, recovering it if it was not closed.
    ///
    /// # Errors
    /// `Mismatch` if something else lives there; what [`Region::open`] and recovery say.
    pub fn open(medium: M, path: &Path, options: &Options, recovery: Recovery) -> Result<(Self, Found)> {
        const { assert!(S::KEY_WORDS == 1, "an entry has one key word") };
        let (region, found) = Region::open(medium, path)?;
        let identity = region.identity();
        if identity.engine != ENGINE || S::payload_words(&identity.kind).is_none() {
            return Err(Error::Mismatch {
                found: format!("engine {} over {}", identity.engine, identity.kind),
                asked: format!("{ENGINE} over {}", S::NAME),
            });
        }
        Ok((Self::start(region, found, options, recovery)?, found))
    }

    fn start(region: Region<M>, found: Found, options: &Options, recovery: Recovery) -> Result<Self> {
        if region.medium().group().is_some() {
            return Err(Error::Durability("the CDDS hash table needs memory in which a fence makes durable"));
        }
        let allocator = Allocator::new(&region);
        region.mark_in_use(options.durability)?;
        let log = match found {
            Found::New => Log::new(region.geometry(), Format::Redo),
            _ => Log::recover(region.medium(), region.geometry(), Format::Redo)?,
        };
        let (root, medium) = (region.root()?, region.medium());
        let mut writer = Writer {
            log,
            allocator,
            held: Held::default(),
            state: State { root: 0, current: 1, keys: 0 },
            dead: Dead::default(),
            in_doubt: found == Found::InUse && root != 0,
            pass: None,
        };
        let mut seed = options.seed;
        if root != 0 {
            writer.state = Meta(root).read(medium)?;
            writer.dead = Meta(root).read_dead(medium, writer.state.current)?;
            seed = directory_at(medium, writer.state.root)?.seed(medium);
        }
        let mut table = Self {
            shape: Shape::new(region.identity().node_lines),
            persist: Persist { faithful: options.faithful },
            stripes: Stripes::new(options.stripes),
            pins: Arc::default(),
            meta: Meta(root),
            top: AtomicU64::new(writer.state.root),
            seed,
            visible: AtomicU64::new(writer.state.current),
            keys: AtomicU64::new(writer.state.keys),
            dead: SharedDead::new(&writer.dead),
            closed: AtomicBool::new(false),
            writer: Mutex::new(writer),
            region,
            parts: PhantomData,
        };
        if found == Found::InUse {
            table.recover_blocks()?;
        }
        if root == 0 {
            table.format(options.segment_slots)?;
        } else if recovery == Recovery::Scan && (found == Found::InUse || table.dead_intervals() > 0) {
            table.sweep_locked(&mut *table.lock_writer()?)?;
        }
        Ok(table)
    }

    /// Gives a table without a meta block (new, or crashed before it had one) that and one empty bucket.
    fn format(&mut self, segment_slots: u64) -> Result<()> {
        let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (region, medium) = (&self.region, self.region.medium());
        let sizes = Directory::first(0, segment_slots);
        let mut take = |bytes| writer.allocator.take(region, &mut writer.log, Kind::Inner, bytes);
        let (top, segment) = (take(sizes.top_bytes())?, take(sizes.segment_bytes())?);
        let meta = Meta(take(META_BYTES)?);
        let directory = Directory::first(top, segment_slots);
        directory.write_top(medium, self.persist, self.seed, &[segment]);
        directory.write_segment(medium, self.persist, 0, segment);
        writer.state = State { root: top, current: 1, keys: 0 };
        meta.create(medium, &writer.state);
        medium.fence(Fence::Payload);
        writer.allocator.flip(region);
        medium.publish(ROOT_AT, Region::<M>::root_word(meta.0));
        medium.flush(ROOT_AT, WORD);
        medium.fence(Fence::Commit);
        writer.allocator.finish(region, &mut writer.log);
        self.top.store(top, Ordering::Release);
        self.meta = meta;
        Ok(())
    }

    /// The writer's side, unless the table was closed.
    pub(crate) fn lock_writer(&self) -> Result<MutexGuard<'_, Writer>> {
        self.stripes.give_way();
        let writer = self.writer_side();
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        self.stripes.take_over();
        Ok(writer)
    }

    pub(crate) fn writer_side(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is seen at a pinned version.
    pub(crate) fn view_at(&self, version: u64) -> View {
        View { version, dead: self.dead.get() }
    }

    /// What is seen at the current version.
    pub(crate) fn view_now(&self, writer: &Writer) -> View {
        View { version: writer.state.current, dead: writer.dead }
    }

    /// The writer's directory.
    ///
    /// # Errors
    /// `Corrupt` if its top is damaged.
    pub(crate) fn directory(&self, writer: &Writer) -> Result<Directory> {
        directory_at(self.region.medium(), writer.state.root)
    }

    /// Runs `make` as one version: all that it does is there afterwards, or nothing.
    pub(crate) fn change<T>(
        &self,
        writer: &mut Writer,
        make: impl FnOnce(&mut Change<'_>) -> Result<T>,
    ) -> Result<T> {
        self.settle_doubt(writer)?;
        let version = in_flight(writer.state.current, &writer.dead);
        let mut change = Change {
            view: View { version, dead: writer.dead },
            readers: self.pins.readers(&self.visible),
            directory: self.directory(writer)?,
            keys: writer.state.keys,
            stored: false,
            linked: Vec::new(),
            writer,
        };
        let made = make(&mut change);
        let Change { keys, stored, linked, writer, .. } = change;
        if made.is_err() {
            self.unlink(&linked);
            writer.allocator.abort(&self.region, &mut writer.log);
            writer.in_doubt |= stored;
            writer.pass = None;
        } else if stored {
            self.commit(writer, State { current: version, keys, ..writer.state });
        }
        self.stripes.unlock(&mut writer.held);
        made
    }

    /// Takes new nodes off the slots that lead to them, durably, before they are given up.
    fn unlink(&self, linked: &[(u64, u64)]) {
        let medium = self.region.medium();
        for (slot_at, first) in linked.iter().rev() {
            medium.publish(*slot_at, *first);
            medium.flush(*slot_at, WORD);
        }
        if !linked.is_empty() {
            medium.fence(Fence::Guard);
        }
    }

    /// What was written for the running operation is durable, and so are the allocator's intents.
    pub(crate) fn fence_payload(&self, writer: &Writer, why: Fence) {
        self.persist.fence(self.region.medium(), why);
        if self.persist.faithful && writer.allocator.has_pending() {
            self.region.medium().fence(why);
        }
    }

    fn commit(&self, writer: &mut Writer, state: State) {
        self.fence_payload(writer, Fence::Payload);
        writer.allocator.flip(&self.region);
        self.switch(writer, state);
        writer.allocator.finish(&self.region, &mut writer.log);
    }

    /// Makes a state the durable truth, and shows it to readers.
    pub(crate) fn switch(&self, writer: &mut Writer, state: State) {
        self.meta.commit(self.region.medium(), self.persist, &writer.state, &state);
        writer.state = state;
        self.top.store(state.root, Ordering::Release);
        self.keys.store(state.keys, Ordering::Release);
        self.visible.store(state.current, Ordering::SeqCst);
    }

    /// Runs an operation of the allocator that is of no version. What fails has changed nothing yet.
    pub(crate) fn operation<T>(
        &self,
        writer: &mut Writer,
        make: impl FnOnce(&mut Writer) -> Result<T>,
    ) -> Result<T> {
        let made = make(writer);
        if made.is_err() {
            writer.allocator.abort(&self.region, &mut writer.log);
        }
        self.stripes.unlock(&mut writer.held);
        made
    }

    /// Has the version in flight declared dead if it may have left traces (M1).
    ///
    /// # Errors
    /// `TooLarge` if there are too many dead intervals; what a sweep may say.
    fn settle_doubt(&self, writer: &mut Writer) -> Result<()> {
        if !writer.in_doubt {
            return Ok(());
        }
        let with_it =
            |writer: &Writer| writer.dead.with_crashed(in_flight(writer.state.current, &writer.dead));
        let mut dead = with_it(writer);
        if dead.is_none() {
            self.sweep_locked(writer)?;
            if !writer.in_doubt {
                return Ok(());
            }
            dead = with_it(writer);
        }
        let dead = dead.ok_or(Error::TooLarge { records: INTERVALS + 1, limit: INTERVALS })?;
        self.write_dead(writer, dead);
        writer.in_doubt = false;
        Ok(())
    }

    /// Replaces the list of dead versions, durably.
    pub(crate) fn write_dead(&self, writer: &mut Writer, dead: Dead) {
        let written = self.meta.write_dead(self.region.medium(), self.persist, &dead);
        assert!(written, "a list of dead versions has as many places as entries");
        writer.dead = dead;
        self.dead.set(&dead);
    }

    /// Takes back everything since the version `to`, with `keys` keys at that time, as one atomic step. False if snapshots
    /// keep a version in between: nothing has changed then.
    pub(crate) fn roll_back_locked(&self, writer: &mut Writer, to: u64, keys: u64) -> Result<bool> {
        self.settle_doubt(writer)?;
        if to == writer.state.current {
            return Ok(true);
        }
        if writer.dead.intervals().len() == INTERVALS {
            self.sweep_locked(writer)?;
        }
        if writer.dead.intervals().len() == INTERVALS {
            return Err(Error::TooLarge { records: INTERVALS + 1, limit: INTERVALS });
        }
        // Until the next version is shown nobody begins to keep this one (V2).
        let Some(none_above) = self.pins.none_above(to) else { return Ok(false) };
        let (lo, hi) = (to + 1, writer.state.current);
        let mut dead = writer.dead;
        dead.push(Interval { lo, hi, death: Death::RolledBack });
        // Until the next version is current the interval is none (M2).
        self.write_dead(writer, dead);
        let current = in_flight(writer.state.current, &dead);
        self.switch(writer, State { current, keys, ..writer.state });
        writer.pass = None;
        drop(none_above);
        // Nothing changes before the last look-up at a dead version is over.
        self.pins.wait_for_short(lo..=hi);
        Ok(true)
    }

    /// Closes cleanly. Later writes are refused, reads go on.
    ///
    /// # Errors
    /// `Io` if the data or the mark cannot be synced; what recording a dead version may say.
    pub fn close(&self) -> Result<()> {
        let mut writer = self.writer_side();
        if self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.settle_doubt(&mut writer)?;
        writer.log.settle(self.region.medium());
        self.closed.store(true, Ordering::Release);
        self.region.mark_clean(writer.state.keys)
    }

    /// The hash of a key's bytes.
    #[inline]
    pub(crate) fn hash(&self, key: &S::Key) -> u64 {
        self.hash_bytes(S::key_bytes(key).as_ref())
    }

    #[inline]
    fn hash_bytes(&self, bytes: &[u8]) -> u64 {
        xxh3_64_with_seed(bytes, self.seed)
    }

    /// The hash of the key that an entry has.
    #[inline]
    pub(crate) fn hash_of(&self, entry: &Entry) -> u64 {
        // The bytes of a 64-bit key, as the schema has them, are its word.
        if S::PLAIN { self.hash_bytes(&entry.key.to_le_bytes()) } else { entry.key }
    }

    /// Number of keys at the newest durable version.
    pub fn len(&self) -> u64 {
        self.keys.load(Ordering::Acquire)
    }

    /// True without keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The newest durable version.
    pub fn version(&self) -> u64 {
        self.visible.load(Ordering::SeqCst)
    }

    /// Number of buckets now.
    ///
    /// # Errors
    /// `Corrupt` if the directory is damaged.
    pub fn buckets(&self) -> Result<u64> {
        Ok(self.directory(&self.writer_side())?.buckets)
    }

    /// Dead intervals of versions whose traces were not removed yet.
    pub fn dead_intervals(&self) -> usize {
        self.dead.get().intervals().len()
    }

    /// The region.
    pub fn region(&self) -> &Region<M> {
        &self.region
    }

    /// Sizes of nodes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(crate) fn meta_at(&self) -> u64 {
        self.meta.0
    }
}

fn directory_at<M: Medium>(medium: &M, top: u64) -> Result<Directory> {
    Directory::read(medium, top).ok_or(Error::Corrupt { what: "directory", at: top })
}

/// What the schema calls this entry: in a record, the key is beside the value.
pub(crate) fn of_schema<S: Schema<Tail = [u64; 0]>>(entry: &Entry) -> tree::shape::Entry {
    let key = if S::PLAIN { entry.key } else { entry.payload };
    tree::shape::Entry::new([key, 0], entry.payload)
}
