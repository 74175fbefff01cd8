//! The part that the CDDS B-Tree and the CDDS hash table share: the state, the writer, and the steps of a change.
//!
//! Each change creates one version. (A large batch creates several, see [`crate::batch`].) Every entry has a start version and an end
//! version. The change stores its version as the start of its new entries and as the end of the entries that it replaces or deletes. No
//! reader uses this version yet. The change flushes all these words and passes one fence (*payload*). Then it publishes its version as the
//! current version, with root and count, and passes a second fence (*commit*). This publish is the commit point of the whole change,
//! whatever its size. So a change needs no log. A batch that creates only one version costs no more than its writes. The trait
//! [`Structure`] has the other part: the layout of the entries and the search for them. A structure may pass fences of its own before the
//! payload fence, for example when it shifts entries.
//!
//! | fence passed ([`pmem::Fence`]) | durable | after a crash |
//! |---|---|---|
//! | none, or only the structure's | some words of the change | the version is declared dead: its starts and ends do not count |
//! | payload | the whole change; perhaps also root, count and current version | the same; or nothing to do, if the current version is durable |
//! | commit | also root, count and current version | nothing to do |
//!
//! Invariants:
//! * S1: a view at the current version sees exactly the published changes. Every entry that a view at a pinned version sees is valid, and
//!   its node and its record are allocated (P1 of [`crate::pins`]).
//! * S2: between operations, a block is allocated if and only if the region's root word, the meta block, the structure, or the list of the
//!   versions that users named references it.

use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use index::region::{create_region, open_region};
use index::{Embed, Guard, Kernel, Life, Schema, WriteOptions, owner};
use pmem::alloc::{Class, Kind};
use pmem::log::Format;
use pmem::pending::Pending;
use pmem::region::{INTENTS, ROOT_AT};
use pmem::sync::{AtomicU64, Mutex, Ordering, fence};
use pmem::{Error, Fence, Found, Medium, Region, Result, WORD};

use crate::meta::{META_BYTES, Meta, State, in_flight};
use crate::node::Shape;
use crate::passes::Maintenance;
use crate::persist::Persist;
use crate::pins::Pins;
use crate::structure::{Change, ChangeOf, Own, Structure, Versioned, WriterOf};
use crate::version::{Dead, Death, INTERVALS, Interval, SharedDead, View};

/// Minimum number of free places in the list of dead intervals before a rollback over a journal.
const INTERVALS_SPARE: usize = 4;

/// The error of a change that would leave this many dead intervals.
pub(crate) fn too_many_intervals(asked: usize) -> Error {
    Error::TooLarge { of: "intervals of dead versions", asked: asked as u64, limit: INTERVALS as u64 }
}

/// The work of an open after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Declares the version in flight dead. Background work removes its traces. The work is bounded by the operation in flight.
    Lazy,
    /// Visits all nodes and removes the traces [thesis algorithm 6].
    Scan,
}

impl<M: Medium, X: Structure> Deref for Versioned<M, X> {
    type Target = Kernel<M, X::Schema, Own<X::Pass>>;
    fn deref(&self) -> &Self::Target {
        &self.kernel
    }
}

impl<M: Medium, X: Structure> Versioned<M, X> {
    /// Creates an empty structure in a fresh medium.
    ///
    /// # Errors
    /// `Nodes` for an invalid node size. Also the errors of growing the medium.
    pub fn create(medium: M, options: &X::Options) -> Result<Self> {
        const { assert!(X::Schema::KEY_WORDS == 1, "an entry has one key word") };
        let common = options.as_ref();
        let lines = common.node_lines;
        if !(2..=64).contains(&lines) {
            return Err(Error::Nodes { lines });
        }
        let how = (common.geometry, common.durability);
        let region = create_region::<M, X::Schema>(medium, X::ENGINE, (lines, 1), how, common.tables)?;
        Self::start(region, Found::New, options, Recovery::Lazy)
    }

    /// Opens the structure in a region. Recovers it if it was not closed cleanly.
    ///
    /// # Errors
    /// `Mismatch` if the region holds something else. Also the errors of [`Region::open`] and of recovery.
    pub fn open(medium: M, path: &Path, options: &X::Options, recovery: Recovery) -> Result<(Self, Found)> {
        const { assert!(X::Schema::KEY_WORDS == 1, "an entry has one key word") };
        let (region, found) = open_region::<M, X::Schema>(medium, path, X::ENGINE)?;
        Ok((Self::start(region, found, options, recovery)?, found))
    }

    fn start(region: Region<M>, found: Found, of: &X::Options, recovery: Recovery) -> Result<Self> {
        let options = of.as_ref();
        let shape = Shape::new(region.identity().node_lines);
        let persist = Persist { faithful: options.faithful };
        let (durability, stripes) = (options.durability, options.stripes);
        let own = Own {
            state: State { root: 0, current: 1, keys: 0 },
            dead: Dead::default(),
            in_doubt: false,
            pass: None,
            hint: None,
            rolled_back: None,
        };
        let mut kernel = Kernel::new(region, found, durability, stripes, Format::Redo, own)?;
        let (region, writer) = kernel.parts_mut();
        let root = region.root()?;
        if root != 0 {
            writer.in_doubt = found == Found::InUse;
            writer.state = Meta(root).read(region.medium())?;
            writer.state = Meta(root).settle_cut(region.medium(), persist, writer.state)?;
            writer.dead = Meta(root).read_dead(region.medium(), writer.state.current)?;
        }
        let (state, dead) = (writer.state, SharedDead::new(&writer.dead));
        let own = X::found(region.medium(), state.root, of)?;
        let mut this = Self {
            kernel,
            shape,
            persist,
            pins: Arc::new(Pins::since(state.current)),
            meta: Meta(root),
            root: AtomicU64::new(state.root),
            visible: AtomicU64::new(state.current),
            applied: AtomicU64::new(state.current),
            told: AtomicU64::new(0),
            dead,
            shown: Mutex::new((state.current, Some(state.keys))),
            kept: Mutex::default(),
            group_blocks: options.group_blocks.clamp(1, INTENTS / 2),
            maintenance: Maintenance::default(),
            own,
        };
        this.keys.store(state.keys, Ordering::Release);
        if found == Found::InUse {
            this.recover_blocks()?;
        }
        if root == 0 {
            this.format(of)?;
        } else {
            this.read_kept(&mut *this.lock_writer()?)?;
        }
        if root != 0 && recovery == Recovery::Scan && (found == Found::InUse || this.dead_intervals() > 0) {
            // The sweep also runs after a clean close with dead intervals. Otherwise an open after a later crash would have more to do.
            X::sweep(&this, &mut *this.lock_writer()?)?;
        }
        // No other thread has the structure yet.
        this.region.medium().commit_beside(|| Some(()))?;
        this.show_version(this.applied.load(Ordering::Acquire), this.len());
        Ok(this)
    }

    /// Writes a meta block and an empty structure to a region without a meta block. The region is new, or a crash interrupted its creation.
    fn format(&mut self, options: &X::Options) -> Result<()> {
        let (region, writer) = self.kernel.parts_mut();
        let medium = region.medium();
        let root = self.own.format(region, writer, (&self.shape, self.persist), options)?;
        let meta = Meta(writer.allocator.take(region, &mut writer.log, Kind::Inner, META_BYTES)?);
        writer.state = State { root, current: 1, keys: 0 };
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

    /// Resolves the allocator's intents by searching for the owner of each block.
    fn recover_blocks(&self) -> Result<()> {
        let view = self.view_at(self.version());
        let is_made = self.root.load(Ordering::Acquire) != 0;
        owner::recover_blocks(&self.region, |class, at| Ok(is_made && self.owns(&view, class, at)?))
    }

    fn owns(&self, view: &View, class: Class, at: u64) -> Result<bool> {
        let medium = self.region.medium();
        match class.kind {
            Kind::Inner if at == self.meta.0 => Ok(class.block_bytes == META_BYTES),
            Kind::Batch => Ok(at == self.meta.kept(medium)),
            _ => X::owns(self, view, class, at),
        }
    }

    /// The view at a pinned version.
    pub(crate) fn view_at(&self, version: u64) -> View {
        View { version, dead: self.dead.get() }
    }

    /// The view at the current version.
    pub(crate) fn view_now(&self, writer: &WriterOf<X>) -> View {
        View { version: writer.state.current, dead: writer.dead.clone() }
    }

    /// Runs `make` as one version: all of its changes are kept, or none.
    pub(crate) fn change<T>(
        &self,
        writer: &mut WriterOf<X>,
        make: impl FnOnce(&mut ChangeOf<'_, X>) -> Result<T>,
    ) -> Result<T> {
        self.settle_doubt(writer)?;
        let version = in_flight(writer.state.current, &writer.dead);
        let view = View { version, dead: writer.dead.clone() };
        let own = X::begin(self, writer)?;
        let state = writer.state;
        let mut change = Change { writer, view, state, stored: false, first_group: None, own };
        let made = make(&mut change).and_then(|made| {
            match change.first_group {
                Some(_) => self.end_group(&mut change)?,
                None => X::finish(self, &mut change)?,
            }
            Ok(made)
        });
        match made {
            Ok(made) => {
                if change.stored {
                    let write_groups = u64::from(change.first_group.is_some());
                    change.state.current = change.view.version - write_groups;
                    self.publish(&mut change);
                }
                if change.first_group.is_some() {
                    self.note_dead(&change.writer.dead); // B1
                }
                self.stripes.unlock(&mut change.writer.held);
                Ok(made)
            }
            Err(error) => {
                let Change { stored, first_group, view, writer, own, .. } = change;
                X::abandon(self, own);
                writer.allocator.abort(&self.region, &mut writer.log);
                match first_group {
                    Some(lo) => self.roll_back_groups(writer, lo, view.version),
                    None => writer.in_doubt |= stored,
                }
                writer.pass = None;
                self.stripes.unlock(&mut writer.held);
                Err(error)
            }
        }
    }

    /// Rolls back the write groups of a batch from version `lo` on, and declares `dead`, the version in flight, dead.
    fn roll_back_groups(&self, writer: &mut WriterOf<X>, lo: u64, dead: u64) {
        let write_groups = Interval { lo, hi: dead - 1, death: Death::RolledBack };
        let mut list = writer.dead.clone();
        list.push(write_groups);
        list.push(Interval { lo: dead, hi: dead, death: Death::Crashed });
        self.write_dead(writer, list);
        let state = State { current: dead + 1, ..writer.state };
        self.switch(writer, state);
    }

    fn publish(&self, change: &mut ChangeOf<'_, X>) {
        let writer = &mut *change.writer;
        self.fence_payload(writer, Fence::Payload);
        writer.allocator.flip(&self.region);
        self.switch(writer, change.state);
        writer.allocator.finish(&self.region, &mut writer.log);
    }

    /// Makes the stores of the running operation and the allocator's intents durable.
    #[track_caller]
    pub(crate) fn fence_payload(&self, writer: &WriterOf<X>, why: Fence) {
        self.persist.fence(self.region.medium(), why);
        if self.persist.faithful && writer.allocator.has_pending() {
            self.region.medium().fence(why); // for the allocator's intents
        }
    }

    /// Makes a new state visible to readers. Over a journal it is not durable yet, so [`Versioned::visible`] does not change. The root
    /// comes first, because it is valid for the versions before, too.
    fn show(&self, state: &State) {
        self.root.store(state.root, Ordering::Release);
        self.keys.store(state.keys, Ordering::Release);
        self.applied.store(state.current, Ordering::SeqCst);
        if self.pending.is_none() {
            self.visible.store(state.current, Ordering::SeqCst);
        }
    }

    /// Makes a durable version visible to readers.
    pub(crate) fn show_version(&self, version: u64, keys: u64) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        *shown = (version, Some(keys));
        self.visible.store(version, Ordering::SeqCst);
    }

    /// Reloads the durable state after a rollback of the memory. All version locks are locked.
    pub(crate) fn read_back(&self, writer: &mut WriterOf<X>) {
        if let Ok(state) = self.meta.read(self.region.medium())
            && let Ok(dead) = self.meta.read_dead(self.region.medium(), state.current)
        {
            self.dead.set(&dead);
            (writer.state, writer.dead) = (state, dead);
            self.show(&state);
        }
        self.told.store(0, Ordering::SeqCst);
    }

    /// Makes `state` the current state. All of its data is durable, and its root shows the same at every version from the horizon on.
    pub(crate) fn switch(&self, writer: &mut WriterOf<X>, state: State) {
        self.meta.commit(self.region.medium(), self.persist, &writer.state, &state);
        writer.state = state;
        self.show(&state);
    }

    /// Declares the version in flight dead if it may have left traces (M1).
    ///
    /// # Errors
    /// `TooLarge` if there are too many dead intervals, because pins keep their traces from being removed.
    pub(crate) fn settle_doubt(&self, writer: &mut WriterOf<X>) -> Result<()> {
        if !writer.in_doubt {
            return Ok(());
        }
        let with_it =
            |writer: &WriterOf<X>| writer.dead.with_crashed(in_flight(writer.state.current, &writer.dead));
        let mut dead = with_it(writer);
        if dead.is_none() {
            X::sweep(self, writer)?;
            if !writer.in_doubt {
                return Ok(());
            }
            dead = with_it(writer);
        }
        let dead = dead.ok_or_else(|| too_many_intervals(INTERVALS + 1))?;
        self.write_dead(writer, dead);
        writer.in_doubt = false;
        Ok(())
    }

    /// Ends a pass. It visited all traces of the versions that were dead at its beginning (`removes`), and with `doubt` those of the
    /// version in flight. Removes these versions from the list, except for intervals that a mark keeps.
    pub(crate) fn end_pass(&self, writer: &mut WriterOf<X>, removes: &[Interval], doubt: bool) {
        // Without space for the new list of names the intervals stay (K2).
        let is_forgotten = removes.is_empty() || self.forget_dead(writer).is_ok();
        if !is_forgotten || (!doubt && removes.is_empty()) {
            return;
        }
        // The removal of the traces must be durable before the list changes.
        self.region.medium().fence(Fence::Guard);
        // While a mark keeps a rolled-back version, its interval stays, so that reads return `TakenBack`.
        let is_kept = |interval: &Interval| self.pins.keeps_any(interval.lo..=interval.hi);
        let removed: Vec<Interval> = removes.iter().filter(|interval| !is_kept(interval)).copied().collect();
        let dead = writer.dead.without(&removed);
        // If the version in flight is in doubt, the durable list may contain a rollback that was not committed.
        if doubt || dead.intervals() != writer.dead.intervals() {
            self.write_dead(writer, dead);
        }
        writer.in_doubt &= !doubt;
    }

    /// Replaces the durable list of dead versions, and the list for readers.
    pub(crate) fn write_dead(&self, writer: &mut WriterOf<X>, dead: Dead) {
        self.note_dead(&dead);
        self.dead.set(&dead);
        writer.dead = dead;
    }

    /// Replaces the durable list of dead versions.
    pub(crate) fn note_dead(&self, dead: &Dead) {
        let written = self.meta.write_dead(self.region.medium(), self.persist, dead);
        assert!(written, "a list of dead versions has as many places as entries");
    }

    /// Rolls back everything since the version `to`, which had `keys` keys, as one atomic step.
    pub(crate) fn roll_back_to(&self, to: u64, keys: u64) -> Result<()> {
        self.spare_intervals()?;
        let mut writer = self.enter()?;
        self.settle_doubt(&mut writer)?;
        if self.is_taken_back(to) || to > writer.state.current {
            return Err(Error::TakenBack { version: to });
        }
        if to == writer.state.current {
            return self.acknowledge(writer, WriteOptions::default());
        }
        self.free_intervals(&mut writer, 1)?;
        let taken_back = self.roll_back_locked(&mut writer, to, keys);
        self.end_roll_back(writer, taken_back)
    }

    /// Over a journal, if the list of dead intervals has few free places, removes traces of dead versions step by step. A complete sweep in
    /// one step may not fit into a group.
    pub(crate) fn spare_intervals(&self) -> Result<()> {
        match self.pending.is_some() && self.dead_intervals() + INTERVALS_SPARE > INTERVALS {
            true => self.collect_all(),
            false => Ok(()),
        }
    }

    /// Makes all versions after `to` dead. There is space for one more interval. [`Versioned::end_roll_back`] must follow.
    pub(crate) fn roll_back_locked(&self, writer: &mut WriterOf<X>, to: u64, keys: u64) -> Interval {
        let mut dead = writer.dead.clone();
        let interval = Interval { lo: to + 1, hi: writer.state.current, death: Death::RolledBack };
        dead.push(interval);
        // The interval does not count until the next version is current (M2).
        let current = in_flight(writer.state.current, &dead);
        self.write_dead(writer, dead);
        self.switch(writer, State { current, keys, ..writer.state });
        writer.pass = None;
        interval
    }

    /// Waits until a rollback is durable and no reader uses a rolled-back version.
    pub(crate) fn end_roll_back<'a>(
        &'a self,
        mut writer: Guard<'a, Self>,
        taken_back: Interval,
    ) -> Result<()> {
        // Nothing may change before the last lookup at a dead version has ended (V2).
        fence(Ordering::SeqCst);
        match &self.pending {
            None => self.pins.wait_for_short(taken_back.lo..=taken_back.hi),
            Some(pending) => {
                writer.rolled_back = Some((pending.ticket(), taken_back));
                self.acknowledge(writer, WriteOptions::default())?;
                writer = self.enter()?;
            }
        }
        // Without space for the new list, the old list and the interval stay (K2).
        let _ = self.forget_dead(&mut writer);
        self.acknowledge(writer, WriteOptions::default())
    }

    /// The newest durable version.
    pub fn version(&self) -> u64 {
        self.visible.load(Ordering::SeqCst)
    }

    /// Number of dead intervals whose traces were not removed yet.
    pub fn dead_intervals(&self) -> usize {
        self.dead.get().intervals().len()
    }

    /// Geometry of the nodes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(crate) fn meta_at(&self) -> u64 {
        self.meta.0
    }
}

impl<M: Medium, X: Structure> Embed for Versioned<M, X> {
    type Medium = M;
    type Schema = X::Schema;
    type Own = Own<X::Pass>;
    type Shown = State;

    #[inline(always)]
    fn kernel(&self) -> &Kernel<M, X::Schema, Own<X::Pass>> {
        &self.kernel
    }

    fn shown(&self, writer: &WriterOf<X>) -> State {
        writer.state
    }

    fn show_durable(&self, state: State) {
        self.show_version(state.current, state.keys);
    }

    fn reload(&self, writer: &mut WriterOf<X>) {
        self.read_back(writer);
    }

    fn waits_for(&self, pending: &Pending, writer: &mut WriterOf<X>) -> Option<u64> {
        let (ticket, interval) = writer.rolled_back?;
        if pending.durable() < ticket {
            return Some(ticket);
        }
        self.pins.wait_for_short(interval.lo..=interval.hi);
        writer.rolled_back = None;
        None
    }

    fn enter_to_close(&self) -> Result<Guard<'_, Self>> {
        let mut writer = self.enter()?;
        self.settle_doubt(&mut writer)?;
        Ok(writer)
    }
}
