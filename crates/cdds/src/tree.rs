//! The tree: its parts, and how a change goes through it.
//!
//! A change is a version. Its entries begin, and those that it replaces end, at a version that nobody reads yet; new nodes and
//! entries in old ones are written back together; one fence later the current version is published, and with it all
//! of the change, however much that is. So a change has no log, and a batch costs what its writes cost.
//!
//! | fence passed | durable | after a crash |
//! |---|---|---|
//! | none, or some of shifts | any of: ends, starts, new nodes | their version is dead; entries may stand twice |
//! | payload | all of the change | the same |
//! | commit | root, count, version | nothing to do |
//!
//! Invariants:
//! * T1: what a view at the current version sees is exactly what was acknowledged. Entries of that version and all pinned ones
//!   are whole, and their nodes and records allocated (P1).
//! * T2: at every version, the entries that an inner node shows divide its range: the first has the node's lowest key, and each
//!   child lies between its entry's key and the next.
//! * T3: a block is allocated if and only if an entry names it that is reachable and not void (between operations).
//! * T4: nodes but the root have a parent, which may be several; levels fall by one with each step down.

use std::marker::PhantomData;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use pmem::alloc::{Allocator, Kind};
use pmem::log::{Format, Log};
use pmem::pending::Pending;
use pmem::region::{INTENTS, ROOT_AT};
use pmem::stripe::{Held, Stripes};
use pmem::sync::{AtomicU8, AtomicU64, Mutex, MutexGuard, Ordering, fence};
use pmem::{
    Durability, Error, Fence, Found, Geometry, Identity, Medium, Region, RegionOptions, Result, WORD,
};
use tree::{Schema, WriteOptions};

use crate::collect::Pass;
use crate::group::{CLOSED, CLOSING, FAILED, OPEN, READ_ONLY};
use crate::kept::Kept;
use crate::meta::{META_BYTES, Meta, State, in_flight};
use crate::node::{Header, Node, Shape};
use crate::persist::Persist;
use crate::pins::Pins;
use crate::version::{Dead, Death, INTERVALS, Interval, SharedDead, View};

/// The engine's name in the superblock.
pub const ENGINE: &str = "cdds";

/// How to make and open a tree.
#[derive(Clone, Debug)]
pub struct Options {
    /// Cache lines of a node, 2 to 64. (Of an existing tree, what it was made with.)
    pub node_lines: u64,
    /// The region's fixed sizes. (Of an existing tree, what it was made with.)
    pub geometry: Geometry,
    /// The promise, for the superblock.
    pub durability: Durability,
    /// Version stripes; a power of two.
    pub stripes: usize,
    /// A fence before and after each flush [thesis §4.1], and every entry of a node that is split ended in it [algorithm 3].
    pub faithful: bool,
    /// Blocks that a part of a batch may take before its bits are written and the next part begins; at most half of what the
    /// allocator's ring names. (Tests make it small.)
    pub wave_blocks: usize,
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
            wave_blocks: INTENTS / 2,
        }
    }
}

/// What is done at open about what a crash left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The version in flight is dead; its traces are removed beside use. Work bounded by what was in flight.
    Lazy,
    /// All of the tree is looked through, and the traces are removed [thesis algorithm 6].
    Scan,
}

/// A CDDS B-Tree over a medium.
pub struct Tree<M: Medium, S: Schema<Tail = [u64; 0]>> {
    pub(crate) region: Region<M>,
    pub(crate) shape: Shape,
    pub(crate) persist: Persist,
    pub(crate) stripes: Stripes,
    pub(crate) pins: Arc<Pins>,
    pub(crate) meta: Meta,
    /// Right for every version from the horizon to [`Tree::visible`].
    pub(crate) root: AtomicU64,
    /// The newest version that is durable.
    pub(crate) visible: AtomicU64,
    /// The newest version that there is.
    pub(crate) applied: AtomicU64,
    /// The newest version that somebody was told of who did not wait until it is durable.
    pub(crate) told: AtomicU64,
    /// Keys at the newest version.
    pub(crate) keys: AtomicU64,
    pub(crate) dead: SharedDead,
    pub(crate) state: AtomicU8,
    /// Over a medium of groups: who waits for which.
    pub(crate) pending: Option<Box<Pending>>,
    /// Keys at the newest durable version, over a medium of groups. With `visible` they are what a mark keeps.
    pub(crate) shown: Mutex<(u64, Option<u64>)>,
    /// Named versions.
    pub(crate) kept: Mutex<Vec<Kept>>,
    pub(crate) wave_blocks: usize,
    /// Who closes, and who keeps others from it.
    closing: Mutex<()>,
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
    /// Nodes that were replaced since open.
    pub retired: u64,
    /// A rollback of this group is not over: nothing changes before it is durable and nobody reads what it took back.
    pub rolled_back: Option<(u64, Interval)>,
}

/// A change in the making.
pub(crate) struct Change<'a> {
    pub writer: &'a mut Writer,
    /// Of the version that it makes.
    pub view: View,
    pub horizon: u64,
    /// What will be true.
    pub state: State,
    /// Something was stored in nodes.
    pub stored: bool,
    /// Blocks that an entry of this version named and names no more; who else does is asked at the end.
    pub dropped: Vec<(Kind, u64)>,
    /// Nodes that were inserted into since the last fence.
    pub unfenced: Vec<Node>,
    /// Nodes are being split by a key above all others.
    pub appends: bool,
    /// The version of its first wave, if one has ended ([`crate::batch`]).
    pub first_wave: Option<u64>,
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Tree<M, S> {
    /// Makes an empty tree in a fresh medium.
    ///
    /// # Errors
    /// What growing the medium may say.
    pub fn create(medium: M, options: &Options) -> Result<Self> {
        const { assert!(S::KEY_WORDS == 1, "an entry has one key word") };
        let lines = options.node_lines;
        if !(2..=64).contains(&lines) {
            return Err(Error::Nodes { lines });
        }
        let identity = Identity { engine: ENGINE.into(), kind: S::kind(1), node_lines: lines };
        let region = RegionOptions { geometry: options.geometry, identity };
        let region = Region::create(medium, &region, options.durability)?;
        Self::start(region, Found::New, options, Recovery::Lazy)
    }

    /// Opens the tree in a region, recovering it if it was not closed.
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
        let shape = Shape::new(region.identity().node_lines);
        let persist = Persist { faithful: options.faithful };
        let allocator = Allocator::new(&region);
        region.mark_in_use(options.durability)?;
        let log = match found {
            Found::New => Log::new(region.geometry(), Format::Redo),
            _ => Log::recover(region.medium(), region.geometry(), Format::Redo)?,
        };
        let root = region.root()?;
        let mut writer = Writer {
            log,
            allocator,
            held: Held::default(),
            state: State { root: 0, current: 1, keys: 0 },
            dead: Dead::default(),
            in_doubt: found == Found::InUse && root != 0,
            pass: None,
            retired: 0,
            rolled_back: None,
        };
        if root != 0 {
            writer.state = Meta(root).read(region.medium())?;
            writer.state = Meta(root).settle_cut(region.medium(), persist, writer.state)?;
            writer.dead = Meta(root).read_dead(region.medium(), writer.state.current)?;
            if Header::read(region.medium(), Node(writer.state.root)).is_none() {
                return Err(Error::Corrupt { what: "root", at: writer.state.root });
            }
        }
        let mut tree = Self {
            shape,
            persist,
            stripes: Stripes::new(options.stripes),
            pins: Arc::new(Pins::since(writer.state.current)),
            meta: Meta(root),
            root: AtomicU64::new(writer.state.root),
            visible: AtomicU64::new(writer.state.current),
            applied: AtomicU64::new(writer.state.current),
            told: AtomicU64::new(0),
            keys: AtomicU64::new(writer.state.keys),
            dead: SharedDead::new(&writer.dead),
            state: AtomicU8::new(OPEN),
            pending: region.medium().group().map(|_| Box::default()),
            shown: Mutex::new((writer.state.current, Some(writer.state.keys))),
            kept: Mutex::default(),
            wave_blocks: options.wave_blocks.clamp(1, INTENTS / 2),
            closing: Mutex::new(()),
            writer: Mutex::new(writer),
            region,
            parts: PhantomData,
        };
        if found == Found::InUse {
            tree.recover_blocks()?;
        }
        if root == 0 {
            tree.format()?;
        } else {
            tree.read_kept(&mut *tree.lock_writer()?)?;
        }
        if root != 0 && recovery == Recovery::Scan && (found == Found::InUse || tree.dead_intervals() > 0) {
            // Also of a tree that was closed with a list: else the next open after a crash would find something to do.
            tree.sweep_all()?;
        }
        // Nobody else has the tree yet.
        tree.region.medium().commit_beside(|| Some(()))?;
        tree.show_durable(tree.applied.load(Ordering::Acquire), tree.len());
        Ok(tree)
    }

    /// Gives a tree without a meta block (new, or crashed before it had one) that and an empty leaf.
    fn format(&mut self) -> Result<()> {
        let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (region, medium) = (&self.region, self.region.medium());
        let root = writer.allocator.take(region, &mut writer.log, Kind::Leaf, self.shape.bytes)?;
        let meta = Meta(writer.allocator.take(region, &mut writer.log, Kind::Inner, META_BYTES)?);
        writer.state = State { root, current: 1, keys: 0 };
        let header = Header { level: 0, birth: 1, low: 0 };
        Node(root).compose(medium, self.persist, &self.shape, header, &[], false);
        meta.create(medium, &writer.state);
        medium.fence(Fence::Payload);
        writer.allocator.flip(region);
        medium.publish(ROOT_AT, Region::<M>::root_word(meta.0));
        medium.flush(ROOT_AT, WORD);
        medium.fence(Fence::Commit);
        writer.allocator.finish(region, &mut writer.log);
        self.root.store(root, Ordering::Release);
        self.meta = meta;
        Ok(())
    }

    /// The writer's side, unless the tree was closed.
    pub(crate) fn lock_writer(&self) -> Result<MutexGuard<'_, Writer>> {
        self.stripes.give_way();
        let writer = self.writer_side();
        self.writable()?;
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

    /// Runs `make` as one version: all that it does is there afterwards, or nothing.
    pub(crate) fn change<T>(
        &self,
        writer: &mut Writer,
        make: impl FnOnce(&mut Change<'_>) -> Result<T>,
    ) -> Result<T> {
        self.settle_doubt(writer)?;
        let version = in_flight(writer.state.current, &writer.dead);
        let view = View { version, dead: writer.dead };
        let horizon = self.pins.horizon(&self.visible);
        let state = writer.state;
        let mut change = Change {
            writer,
            view,
            horizon,
            state,
            stored: false,
            dropped: Vec::new(),
            unfenced: Vec::new(),
            first_wave: None,
            appends: false,
        };
        let made = make(&mut change).and_then(|made| {
            match change.first_wave {
                Some(_) => self.end_wave(&mut change)?,
                None => self.give_dropped(&mut change)?,
            }
            Ok(made)
        });
        match made {
            Ok(made) => {
                if change.stored {
                    let waves = u64::from(change.first_wave.is_some());
                    change.state.current = change.view.version - waves;
                    self.publish(&mut change);
                }
                if change.first_wave.is_some() {
                    self.note_dead(&change.writer.dead); // B1
                }
                self.stripes.unlock(&mut change.writer.held);
                Ok(made)
            }
            Err(error) => {
                let Change { stored, first_wave, view, writer, .. } = change;
                writer.allocator.abort(&self.region, &mut writer.log);
                match first_wave {
                    Some(lo) => self.take_back_waves(writer, lo, view.version),
                    None => writer.in_doubt |= stored,
                }
                writer.pass = None;
                self.stripes.unlock(&mut writer.held);
                Err(error)
            }
        }
    }

    /// Rolls back the waves of a batch from the version `lo` on, and declares `dead`, the one in flight, dead.
    fn take_back_waves(&self, writer: &mut Writer, lo: u64, dead: u64) {
        let waves = Interval { lo, hi: dead - 1, death: Death::RolledBack };
        let mut list = writer.dead;
        list.push(waves);
        list.push(Interval { lo: dead, hi: dead, death: Death::Crashed });
        self.write_dead(writer, list);
        let state = State { current: dead + 1, ..writer.state };
        self.meta.commit(self.region.medium(), self.persist, &writer.state, &state);
        writer.state = state;
        self.show(&state);
    }

    /// As [`Tree::change`]; if nodes were replaced, the root may be left with one child, which then takes its place.
    pub(crate) fn change_and_promote<T>(
        &self,
        writer: &mut Writer,
        make: impl FnOnce(&mut Change<'_>) -> Result<T>,
    ) -> Result<T> {
        let retired = writer.retired;
        let made = self.change(writer, make)?;
        if writer.retired != retired {
            self.promote(writer)?;
        }
        Ok(made)
    }

    fn publish(&self, change: &mut Change<'_>) {
        let (medium, persist, writer) = (self.region.medium(), self.persist, &mut *change.writer);
        persist.fence(medium, Fence::Payload);
        if persist.faithful && writer.allocator.has_pending() {
            medium.fence(Fence::Payload); // the allocator's intents
        }
        writer.allocator.flip(&self.region);
        self.meta.commit(medium, persist, &writer.state, &change.state);
        writer.state = change.state;
        self.show(&writer.state);
        writer.allocator.finish(&self.region, &mut writer.log);
    }

    /// There is a new state, durable but over a medium of groups. The root first, which is right for the versions before, too.
    fn show(&self, state: &State) {
        self.root.store(state.root, Ordering::Release);
        self.keys.store(state.keys, Ordering::Release);
        self.applied.store(state.current, Ordering::SeqCst);
        if self.pending.is_none() {
            self.visible.store(state.current, Ordering::SeqCst);
        }
    }

    /// Readers see a version that is durable.
    pub(crate) fn show_durable(&self, version: u64, keys: u64) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        *shown = (version, Some(keys));
        self.visible.store(version, Ordering::SeqCst);
    }

    /// What is durable is the truth again: everything else was taken back from memory, under all stripes.
    pub(crate) fn read_back(&self, writer: &mut Writer) {
        if let Ok(state) = self.meta.read(self.region.medium())
            && let Ok(dead) = self.meta.read_dead(self.region.medium(), state.current)
        {
            (writer.state, writer.dead) = (state, dead);
            self.dead.set(&dead);
            self.show(&state);
        }
        self.told.store(0, Ordering::SeqCst);
    }

    /// The root becomes one that shows the same at every version from the horizon on. The caller fences.
    pub(crate) fn switch_root(&self, writer: &mut Writer, root: Node) {
        let state = State { root: root.0, ..writer.state };
        self.meta.commit(self.region.medium(), self.persist, &writer.state, &state);
        writer.state = state;
        self.show(&state);
    }

    /// Has the version in flight declared dead if it may have left traces (M1).
    ///
    /// # Errors
    /// `TooLarge` if there are too many dead intervals, which pins keep from being removed.
    pub(crate) fn settle_doubt(&self, writer: &mut Writer) -> Result<()> {
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
        self.note_dead(&dead);
        writer.dead = dead;
        self.dead.set(&dead);
    }

    /// Replaces the durable list of dead versions.
    pub(crate) fn note_dead(&self, dead: &Dead) {
        let written = self.meta.write_dead(self.region.medium(), self.persist, dead);
        assert!(written, "a list of dead versions has as many places as entries");
    }

    /// Takes back everything since the version `to`, with `keys` keys at that time, as one atomic step.
    pub(crate) fn roll_back_to(&self, to: u64, keys: u64) -> Result<()> {
        let mut writer = self.enter(1, 0)?;
        self.settle_doubt(&mut writer)?;
        if self.is_taken_back(to) || to > writer.state.current {
            return Err(Error::TakenBack { version: to });
        }
        if to == writer.state.current {
            return self.acknowledge(writer, WriteOptions::default());
        }
        self.free_intervals(&mut writer, 1)?;
        let mut dead = writer.dead;
        let interval = Interval { lo: to + 1, hi: writer.state.current, death: Death::RolledBack };
        dead.push(interval);
        // Until the next version is current the interval is none (M2).
        self.write_dead(&mut writer, dead);
        let state = State { current: in_flight(writer.state.current, &dead), keys, ..writer.state };
        self.meta.commit(self.region.medium(), self.persist, &writer.state, &state);
        writer.state = state;
        writer.pass = None;
        self.show(&state);
        // Nothing changes before the last look-up at a dead version is over (V2).
        fence(Ordering::SeqCst);
        match &self.pending {
            None => self.pins.wait_for_short(interval.lo..=interval.hi),
            Some(pending) => writer.rolled_back = Some((pending.ticket(), interval)),
        }
        if self.pending.is_some() {
            self.acknowledge(writer, WriteOptions::default())?;
            writer = self.enter(1, 0)?;
        }
        // Without room for the new list the old one stays, and the interval with it (K2).
        let _ = self.forget_dead(&mut writer);
        self.acknowledge(writer, WriteOptions::default())
    }

    /// Runs `look` while nobody changes or closes the tree; readers go on.
    ///
    /// # Errors
    /// `Closed` or `Failed`: it was not run.
    pub fn hold_writers<T>(&self, look: impl FnOnce() -> T) -> Result<T> {
        let _turn = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        let _writer = self.lock_writer()?;
        Ok(look())
    }

    /// Closes cleanly. Later writes are refused, reads go on.
    ///
    /// # Errors
    /// `Io` if the data or the mark cannot be synced; what recording a dead version may say; `Failed` if a sync failed before.
    pub fn close(&self) -> Result<()> {
        // Who comes second waits until the first is done.
        let _turn = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.state.load(Ordering::Acquire) == READ_ONLY {
            self.state.store(CLOSED, Ordering::Release);
            return Ok(());
        }
        let mut writer = match self.enter(1, 0) {
            Err(Error::Closed) => return Ok(()),
            other => other?,
        };
        self.settle_doubt(&mut writer)?;
        writer.log.settle(self.region.medium());
        let keys = writer.state.keys;
        if self.pending.is_some() {
            self.state.store(CLOSING, Ordering::Release);
            self.acknowledge(writer, WriteOptions::default())?;
            writer = self.writer_side();
        }
        // Before the mark: should its sync fail, it may be there all the same, and no write may follow it.
        self.state.store(FAILED, Ordering::Release);
        // A leader that waits for the lock with nothing to commit would otherwise wait for the mark's, and that for him.
        drop(writer);
        self.region.mark_clean(keys)?;
        self.state.store(CLOSED, Ordering::Release);
        Ok(())
    }

    /// Closes if it can: what a dropped store does. A tree that cannot be closed is recovered at the next open.
    pub fn close_on_drop(&self) {
        if !std::thread::panicking() {
            let _ = self.close();
        }
    }

    /// Number of keys at the newest version.
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
