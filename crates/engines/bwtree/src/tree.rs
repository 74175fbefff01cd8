//! The tree, and its operations on single keys.
//!
//! An update has these steps:
//!
//! 1. Find the leaf and read the key's record.
//! 2. Draw a log sequence number (LSN) above that of the page's head.
//! 3. Claim a place in the leaf's slab and write the change there.
//! 4. Exchange the page's word for one that makes the change visible.
//!
//! If no place is left, or another thread claimed the place and has not exchanged the word yet, the update installs a new base page with
//! the change. So no thread waits for another one. If the exchange fails, the LSN is unused and the update starts again.
//!
//! Invariants:
//! * T1: of two updates of a page the later one has the larger LSN, and an update replaces exactly the record that it read.
//! * T2: a page that a split or a merge makes gets an LSN above those of all nodes from which it was made. So of two updates of a key the
//!   later one has the larger LSN, even if the key moved to another page in between. The LSNs of updates of different keys have no such
//!   order.
//!
//! Linearization point of an update: the exchange. Paper: Bw-tree §III.

use crate::epoch::{Epochs, ThreadSlot};
use crate::error::Result;
use crate::eviction::Candidates;
use crate::late::Blind;
use crate::node::{
    Body, Claimed, Graves, Head, Made, Node, Retired, SEEN_MAX, Weighed, delta_bytes, evicted_bytes,
    inner_bytes, leaf_bytes,
};
use crate::omission::Omission;
use crate::options::Options;
use crate::page::{Bounds, New, Step, Term, lookup, step};
use crate::paged::{NewEvicted, Paging, Saved, Shelf};
use crate::pairs::{At, Changes, Pairs, RECORD_BYTES, Read, Spot, Spotted, Target, merged_count};
use crate::pool::{BATCH, BATCH_SMALL};
use crate::stats::{Count, Memory};
use crate::sync::RwLock;
use crate::table::{Pid, ROOT, Table};
use std::borrow::Borrow;
use std::cell::Cell;
use std::sync::Arc;

/// The decision of [`Tree::update`] about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<V> {
    /// Change nothing.
    Keep,
    /// Store this value.
    Put(V),
    /// Remove the key.
    Delete,
}

/// An ordered map that threads share by reference. Without a shelf, no operation waits for another thread.
#[derive(Debug)]
pub struct Tree<P: Pairs> {
    pub(crate) table: Table<P>,
    pub(crate) graves: Graves<P>,
    /// Declared after the table and the nodes, because it owns their memory and must drop last.
    pub(crate) epochs: Epochs<Weighed<P>>,
    pub(crate) options: Options,
    /// Images of leaves. Without a shelf no leaf is evicted.
    pub(crate) shelf: Option<Arc<dyn Shelf>>,
    /// Bytes of changes that evicted leaves keep.
    pub(crate) unsaved: std::sync::atomic::AtomicU64,
    /// Number of evicted leaves whose late changes are not counted.
    pub(crate) uncounted: std::sync::atomic::AtomicU64,
    pub(crate) paging: Paging,
    pub(crate) candidates: Candidates,
    /// Threads that merge leaves read-lock it; an eviction write-locks it (V2).
    pub(crate) merging: RwLock<()>,
}

/// Makes updates part of a log.
///
/// The tree calls `begin` after it read the key's page, and before the exchange that makes the update visible. So of two updates of a key,
/// the later one begins later. An entry that is dropped without `commit` belongs to an update that did not happen.
pub trait Recorder<P: Pairs> {
    /// An update in the log that may not have happened yet.
    type Entry;
    /// Adds an update to the log. `None` as the value: the key is removed.
    ///
    /// # Errors
    /// [`Error::NotLogged`](crate::Error::NotLogged): then the update does not happen.
    fn begin(&self, key: &P::Key, value: Option<&P::Value>) -> Result<Self::Entry>;
    /// The update has happened.
    fn commit(&self, entry: Self::Entry);
}

/// No log.
impl<P: Pairs> Recorder<P> for () {
    type Entry = ();
    #[inline(always)]
    fn begin(&self, _key: &P::Key, _value: Option<&P::Value>) -> Result<()> {
        Ok(())
    }
    #[inline(always)]
    fn commit(&self, (): ()) {}
}

/// The way in which a change went into a leaf.
enum Way {
    /// Into a place of the leaf's slab.
    Beside,
    /// With a new base page.
    Renewed,
}

/// An active operation. Nodes that it finds in the tree exist until it ends.
pub(crate) struct Visit<'t, P: Pairs> {
    pub(crate) tree: &'t Tree<P>,
    pub(crate) slot: ThreadSlot<'t, Weighed<P>>,
    /// This operation holds [`Tree::merging`].
    pub(crate) keeps_leaves: Cell<bool>,
}

impl<P: Pairs> Default for Tree<P> {
    fn default() -> Self {
        Self::of(Options::default())
    }
}

impl<P: Pairs> Tree<P> {
    /// An empty tree.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) if an option is invalid.
    pub fn new(options: Options) -> Result<Self> {
        options.check()?;
        Ok(Self::of(options))
    }

    fn of(options: Options) -> Self {
        let batch_bytes = if options.weighs_records { BATCH_SMALL } else { BATCH };
        let (table, epochs) = (Table::new(options.segment_entries), Epochs::new(batch_bytes));
        let (graves, paging) = (Graves::new(), Paging::new());
        let tree = Self {
            table,
            graves,
            epochs,
            options,
            shelf: None,
            paging,
            candidates: Candidates::new(),
            merging: RwLock::new(()),
            unsaved: 0.into(),
            uncounted: 0.into(),
        };
        let bounds = Bounds { low: None, high: None, right: None };
        // The first PID of a table is ROOT.
        let visit = tree.visit();
        visit.allocate(visit.leaf_page(New { level: 0, lsn: 0, bytes: 0 }, &[], bounds, Saved::default()));
        drop(visit);
        tree
    }

    /// The options of the tree.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// An LSN above those of all updates that have returned. O(thread slots).
    pub fn next_lsn(&self) -> u64 {
        self.epochs.drawn() + 1
    }

    #[inline]
    pub(crate) fn visit(&self) -> Visit<'_, P> {
        Visit { tree: self, slot: self.epochs.enter(), keeps_leaves: Cell::new(false) }
    }

    /// A copy of a key's value. O(log records).
    #[inline]
    pub fn get(&self, key: &P::Key) -> Option<P::ValueBuf> {
        self.get_with(key, P::own_value)
    }

    /// Calls `with` with a key's value, without a copy. While `with` runs, memory that is retired cannot be freed. O(log records).
    ///
    /// # Panics
    /// If the tree has a shelf, and a page cannot be read: use [`look_up`](Self::look_up).
    #[inline]
    pub fn get_with<R>(&self, key: &P::Key, with: impl FnOnce(&P::Value) -> R) -> Option<R> {
        self.look_up(key, with).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Calls `with` with a key's value, without a copy. While `with` runs, memory that is retired cannot be freed. O(log records), and one
    /// read if the page is not in memory.
    ///
    /// # Errors
    /// `Unreadable`.
    #[inline]
    pub fn look_up<R>(&self, key: &P::Key, with: impl FnOnce(&P::Value) -> R) -> Result<Option<R>> {
        loop {
            let visit = self.visit();
            let (pid, head) = visit.leaf(At(key));
            if let Some(stub) = head.evicted() {
                let known = self.kept_value(head, key);
                drop(visit);
                let known = if known.is_some() { known } else { self.read_record(pid, stub, key)? };
                match known {
                    Some(value) => return Ok(value.map(|value| with(value.borrow()))),
                    None => continue,
                }
            }
            self.touch(head);
            let found = lookup(head, key).and_then(P::record_value).map(with);
            // Changes of a base page alone do not cause a consolidation: it would not make lookups faster.
            let limit = self.options.leaf_chain_read;
            if limit > 0 && !head.is_base() && head.depth() >= limit {
                visit.maintain(pid);
            }
            return Ok(found);
        }
    }

    /// Notes that a leaf is used, for the eviction.
    #[inline(always)]
    fn touch(&self, head: Head<'_, P>) {
        if self.shelf.is_some()
            && let Body::Leaf { saved, .. } = head.body()
        {
            saved.touch();
        }
    }

    /// Bytes that a record takes in a page.
    #[inline(always)]
    pub(crate) fn weight(&self, record: P::Record<'_>) -> usize {
        RECORD_BYTES + if self.options.weighs_records { P::record_weight(record) } else { 0 }
    }

    /// True if the key exists. O(log records).
    pub fn contains(&self, key: &P::Key) -> bool {
        self.get_with(key, |_| ()).is_some()
    }

    /// Stores a value under a key. Returns whether the key existed. O(log records).
    ///
    /// # Errors
    /// `KeyTooLong`, `ValueTooLong`.
    pub fn put(&self, key: &P::Key, value: &P::Value) -> Result<bool> {
        self.change(key, |_| Change::Put(value)).map(|(was_there, _)| was_there)
    }

    /// Stores a value under a key, if the key does not exist. Returns whether it was inserted. O(log records).
    ///
    /// # Errors
    /// `KeyTooLong`, `ValueTooLong`.
    pub fn insert(&self, key: &P::Key, value: &P::Value) -> Result<bool> {
        P::check_value(value)?;
        let decide = |old: Option<&P::Value>| if old.is_some() { Change::Keep } else { Change::Put(value) };
        self.change(key, decide).map(|(was_there, _)| !was_there)
    }

    /// Removes a key. Returns whether it existed. O(log records).
    ///
    /// # Errors
    /// `KeyTooLong`.
    pub fn delete(&self, key: &P::Key) -> Result<bool> {
        self.change(key, |_| Change::<&P::Value>::Delete).map(|(was_there, _)| was_there)
    }

    /// Reads a key, calls `decide` with its value, and applies the decision, atomically. If another thread changes the page in between,
    /// `decide` is called again. Returns whether the key existed at the last call. O(log records).
    ///
    /// # Errors
    /// `KeyTooLong`, `ValueTooLong`.
    pub fn update<V: Borrow<P::Value>>(
        &self,
        key: &P::Key,
        decide: impl FnMut(Option<&P::Value>) -> Change<V>,
    ) -> Result<bool> {
        self.change(key, decide).map(|(was_there, _)| was_there)
    }

    /// As [`put`](Self::put), but returns the LSN of the update.
    ///
    /// # Errors
    /// `KeyTooLong`, `ValueTooLong`.
    pub fn put_with_lsn(&self, key: &P::Key, value: &P::Value) -> Result<u64> {
        self.change(key, |_| Change::Put(value)).map(|(_, lsn)| lsn)
    }

    /// As [`update`](Self::update), and adds the update to a log.
    ///
    /// # Errors
    /// `KeyTooLong`, `ValueTooLong`, `Unreadable`, `NotLogged`.
    pub fn update_logged<V: Borrow<P::Value>>(
        &self,
        key: &P::Key,
        decide: impl FnMut(Option<&P::Value>) -> Change<V>,
        log: &impl Recorder<P>,
    ) -> Result<bool> {
        self.change_logged(ROOT, key, decide, log, None).map(|(was_there, _)| was_there == Some(true))
    }

    #[inline]
    fn change<V: Borrow<P::Value>>(
        &self,
        key: &P::Key,
        decide: impl FnMut(Option<&P::Value>) -> Change<V>,
    ) -> Result<(bool, u64)> {
        let (was_there, lsn) = self.change_logged(ROOT, key, decide, &(), None)?;
        Ok((was_there == Some(true), lsn))
    }

    /// The common path of all updates. Looks for the key in the leaf `start` first. Returns whether the key existed, and the LSN, or 0 if
    /// nothing was changed. With `blind`, an evicted leaf may get this late change, and then it is not known whether the key existed.
    #[inline(always)]
    pub(crate) fn change_logged<V: Borrow<P::Value>>(
        &self,
        start: Pid,
        key: &P::Key,
        mut decide: impl FnMut(Option<&P::Value>) -> Change<V>,
        log: &impl Recorder<P>,
        blind: Option<Blind<'_, P>>,
    ) -> Result<(Option<bool>, u64)> {
        P::check_key(key)?;
        'visits: loop {
            let visit = self.visit();
            loop {
                let (pid, head) = visit.leaf_from(start, At(key));
                if let Some(stub) = head.evicted() {
                    drop(visit);
                    if let Some(blind) = blind
                        && let Some(lsn) = self.change_late(pid, stub, key, blind, log)?
                    {
                        return Ok((None, lsn));
                    }
                    self.page_in(pid, stub)?;
                    continue 'visits;
                }
                let Some((old, spot)) = head.locate(key) else {
                    // The leaf has a merge delta. Maintenance completes the merge and consolidates the leaf, which then has a slab for the
                    // change.
                    visit.maintain(pid);
                    continue;
                };
                self.touch(head);
                // Bytes of the page without the key's record.
                let rest = head.bytes() - old.map_or(0, |old| self.weight(old));
                let old = old.and_then(P::record_value);
                let was_there = old.is_some();
                let decided = decide(old);
                if let Change::Put(value) = &decided {
                    P::check_value(value.borrow())?;
                }
                let (value, records) = match &decided {
                    Change::Keep => return Ok((Some(was_there), 0)),
                    Change::Delete if !was_there => return Ok((Some(false), 0)),
                    Change::Delete => (None, -1),
                    Change::Put(value) => (Some(value.borrow()), i64::from(!was_there)),
                };
                let entry = log.begin(key, value)?;
                let lsn = visit.draw(head.lsn());
                let block = Some(P::fresh_space(key, value))
                    .filter(|bytes| *bytes > 0)
                    .map(|bytes| visit.slot.take(bytes));
                let fresh = P::fresh(key, value, block);
                let bytes = rest + value.map_or(0, |_| self.weight(P::record(&fresh)));
                let Some(way) = visit.place(pid, head, fresh, spot, lsn, bytes) else {
                    visit.count(Count::UpdateFailures);
                    continue;
                };
                log.commit(entry);
                visit.count(Count::Updates);
                visit.slot.count(Count::Records, records.cast_unsigned());
                let may_split = matches!(way, Way::Renewed) || self.options.weighs_records;
                let is_large = may_split && bytes > self.options.leaf_split_bytes;
                let is_small = records < 0 && bytes < self.options.leaf_merge_bytes && pid != ROOT;
                if is_large || is_small {
                    visit.maintain(pid);
                }
                return Ok((Some(was_there), lsn));
            }
        }
    }

    /// Number of records. Exact when no thread writes and no leaf is [`uncounted`](Self::uncounted). O(thread slots).
    pub fn len(&self) -> u64 {
        // The sum may be negative: a deletion may be counted before the insertion of the same record is.
        self.epochs.tally(Count::Records).cast_signed().max(0).cast_unsigned()
    }

    /// Bytes that the tree has allocated from the system, without the mapping table. O(1).
    #[inline]
    pub fn held_bytes(&self) -> u64 {
        self.epochs.held()
    }

    /// Memory of the tree, from counters. Exact when no thread writes. O(thread slots).
    pub fn memory(&self) -> Memory {
        // This order of reads keeps freed <= retired <= made, because each object was made and retired before it was freed.
        let [freed, retired, made] =
            [Count::FreedBytes, Count::RetiredBytes, Count::MadeBytes].map(|count| self.epochs.tally(count));
        Memory {
            page_bytes: made.saturating_sub(retired),
            limbo_bytes: retired.saturating_sub(freed),
            table_bytes: self.table.memory() as u64,
            spare_bytes: self.epochs.held().saturating_sub(made.saturating_sub(freed)),
        }
    }

    /// True if there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<P: Pairs> Visit<'_, P> {
    pub(crate) fn shelf_exists(&self) -> bool {
        self.tree.shelf.is_some()
    }

    pub(crate) fn count(&self, count: Count) {
        self.slot.count(count, 1);
    }

    /// Applies a change of a key to a leaf that is a base page: in a place of its slab, or with a new base page. `None` if the leaf is no
    /// longer in the state `head`.
    #[inline(always)]
    fn place(
        &self,
        pid: Pid,
        head: Head<'_, P>,
        fresh: P::Fresh,
        spot: Spot,
        lsn: u64,
        bytes: usize,
    ) -> Option<Way> {
        let record = P::record(&fresh);
        let way = match head.claim(record, spot, lsn, bytes) {
            Some(Claimed(word)) => {
                self.tree.table.exchange(pid, head, word, Omission::Update).then_some(Way::Beside)
            }
            None => self.renew(pid, head, record, lsn, bytes).then_some(Way::Renewed),
        };
        if way.is_some() {
            // The page owns the record from now on (N6).
            self.slot.count(Count::MadeBytes, P::record_memory(record) as u64);
        } else {
            self.drop_fresh(fresh);
        }
        way
    }

    /// Replaces a leaf that is a base page with a new base page, with one change in its slab. False if the leaf is no longer in the state
    /// `head`.
    #[cold]
    fn renew(&self, pid: Pid, head: Head<'_, P>, record: P::Record<'_>, lsn: u64, bytes: usize) -> bool {
        // Without the change, the new page is the same state as the old one, so it keeps the number.
        let Some((page, dead)) = self.merged(head, head.lsn()) else { return false };
        let word = page.with_change(record, lsn, bytes);
        let done = self.exchange(pid, head, page, word, Omission::Consolidation);
        if done {
            self.retire(Retired::chain(head, &dead));
        }
        self.count(if done { Count::Consolidations } else { Count::ConsolidationFailures });
        done
    }

    /// Changes a page's word to `word`, which leads to `made`, if the page's state is still `head`. Frees `made` otherwise.
    fn exchange(
        &self,
        pid: Pid,
        head: Head<'_, P>,
        made: Made<P>,
        word: *mut Node<P>,
        omission: Omission,
    ) -> bool {
        let bytes = made.head().memory();
        let done = self.tree.table.exchange(pid, head, word, omission);
        if done {
            self.slot.count(Count::MadeBytes, bytes as u64);
        } else {
            self.drop_made(made);
        }
        done
    }

    /// Puts a delta in front of a page, if the page's state is still the one that the delta was made for.
    pub(crate) fn append(&self, pid: Pid, head: Head<'_, P>, delta: Made<P>, omission: Omission) -> bool {
        let word = delta.word();
        self.exchange(pid, head, delta, word, omission)
    }

    /// Replaces a chain with a base page, if the page's state is still `head`. Retires the chain, and the records that the new page does
    /// not have.
    pub(crate) fn replace(
        &self,
        pid: Pid,
        head: Head<'_, P>,
        page: Made<P>,
        dead: &[P::Record<'_>],
        omission: Omission,
    ) -> bool {
        let word = page.word();
        let done = self.exchange(pid, head, page, word, omission);
        if done {
            self.retire(Retired::chain(head, dead));
        }
        done
    }

    /// See [`Table::allocate`].
    pub(crate) fn allocate(&self, page: Made<P>) -> Option<Pid> {
        let bytes = page.head().memory();
        let is_leaf = page.head().is_base() && page.head().level() == 0;
        match self.tree.table.allocate(page) {
            Ok(pid) => {
                if is_leaf && self.tree.shelf.is_some() {
                    self.tree.candidates.set(pid.0);
                }
                self.slot.count(Count::MadeBytes, bytes as u64);
                Some(pid)
            }
            Err(page) => {
                self.drop_made(page);
                None
            }
        }
    }

    /// Number of places in the slab of a new leaf.
    fn places(&self) -> u32 {
        self.tree.options.leaf_chain.min(SEEN_MAX)
    }

    /// Makes a base page of these records.
    pub(crate) fn leaf_page(
        &self,
        new: New,
        records: &[P::Record<'_>],
        bounds: Bounds<P>,
        saved: Saved,
    ) -> Made<P> {
        let copied = if self.tree.options.weighs_records { P::copied_bytes(records) } else { 0 };
        let block = self.slot.take_for_node(leaf_bytes::<P>(records.len(), self.places(), copied));
        Made::leaf(block, new, bounds, self.places(), saved, |low, high, space, word| {
            P::leaf(records, low, high, copied, space, word)
        })
    }

    /// Makes a leaf of records that were read from an image, with `copied` bytes of copies.
    pub(crate) fn read_page(
        &self,
        new: New,
        (read, copied): (&[Read<'_, P>], usize),
        bounds: Bounds<P>,
        saved: Saved,
    ) -> Made<P> {
        // Most leaves that are read do not change before they are evicted.
        let places = self.places().div_ceil(4);
        let block = self.slot.take_for_node(leaf_bytes::<P>(read.len(), places, copied));
        Made::leaf(block, new, bounds, places, saved, |low, high, space, word| {
            P::leaf_of_read(read, low, high, copied, space, word)
        })
    }

    /// Makes a leaf whose contents are not in memory.
    pub(crate) fn evicted_page(&self, new: New, bounds: Bounds<P>, leaf: NewEvicted<'_>) -> Made<P> {
        Made::evicted(self.slot.take_for_node(evicted_bytes::<P>(leaf.bytes())), new, bounds, leaf)
    }

    /// Makes a base page of these terms.
    pub(crate) fn inner_page(&self, new: New, terms: &[Term<'_, P>], bounds: Bounds<P>) -> Made<P> {
        Made::inner(self.slot.take_for_node(inner_bytes::<P>(terms)), new, terms, bounds)
    }

    /// Consolidates a leaf that is a base page: makes a new base page with its changes applied. Also returns the records that the new page
    /// does not have. `None` if the head is not a base page.
    pub(crate) fn merged<'g>(&self, head: Head<'g, P>, lsn: u64) -> Option<(Made<P>, Vec<P::Record<'g>>)> {
        self.merged_as(head, lsn, Saved::after::<P>)
    }

    /// As [`merged`](Self::merged). `saved` makes that of the new page from that of the old one, the number of its records, and its changes.
    pub(crate) fn merged_as<'g>(
        &self,
        head: Head<'g, P>,
        lsn: u64,
        saved: impl FnOnce(&Saved, usize, &[Spotted<'g, P>]) -> Saved,
    ) -> Option<(Made<P>, Vec<P::Record<'g>>)> {
        let Body::Leaf { run, saved: known, .. } = head.body() else { return None };
        let (changes, replaced) = Changes::<P>(head.changes().collect()).sorted();
        let copied = if self.tree.options.weighs_records { P::merged_copies(run, &changes) } else { 0 };
        let records = merged_count::<P>(run, &changes);
        let block = self.slot.take_for_node(leaf_bytes::<P>(records, self.places(), copied));
        let saved = saved(known, P::len(run), &changes);
        let (page, mut dead) = Made::merged(block, head, lsn, self.places(), (&changes, copied), saved)?;
        dead.extend(replaced);
        Some((page, dead))
    }

    /// Makes a delta in front of `head`.
    pub(crate) fn delta(&self, head: Head<'_, P>, lsn: u64, bytes: usize, body: Body<P>) -> Made<P> {
        Made::delta(self.slot.take_for_node(delta_bytes::<P>()), head, lsn, bytes, body)
    }

    /// Draws a number for a new state of a page whose current number is `above`.
    #[inline(always)]
    pub(crate) fn draw(&self, above: u64) -> u64 {
        self.slot.draw(above)
    }

    /// The newest state of a page.
    #[inline(always)]
    pub(crate) fn load(&self, pid: Pid) -> Option<Head<'_, P>> {
        self.tree.table.load(pid, &self.slot)
    }

    /// The leaf that contains the target, and its head.
    #[inline(always)]
    pub(crate) fn leaf(&self, target: impl Target<P>) -> (Pid, Head<'_, P>) {
        self.leaf_from(ROOT, target)
    }

    /// As [`leaf`](Self::leaf). Looks first at the page to which an inner page has led for this target. The thread has held a thread slot
    /// since then, so the page's number has no other page (M2). If a structure change has moved the target, the descent begins at the root.
    #[inline(always)]
    pub(crate) fn leaf_from(&self, pid: Pid, target: impl Target<P>) -> (Pid, Head<'_, P>) {
        if pid != ROOT
            && let Some(head) = self.load(pid)
            && let Step::Here = step(head, target, 0)
        {
            return (pid, head);
        }
        loop {
            if let Some(found) = self.find(target, 0) {
                return found;
            }
        }
    }

    /// The page on `level` that contains the target, and its head. `None` if the tree has fewer levels. O(levels).
    ///
    /// A descent that finds an incomplete split or merge completes it.
    #[inline(always)]
    pub(crate) fn find(&self, target: impl Target<P>, level: u32) -> Option<(Pid, Head<'_, P>)> {
        let mut pid = ROOT;
        loop {
            let Some(head) = self.load(pid) else {
                pid = ROOT;
                continue;
            };
            if head.level() < level {
                return None;
            }
            match step(head, target, level) {
                Step::Child(child) => pid = child,
                Step::Here => return Some((pid, head)),
                Step::Right(key, right) => {
                    self.count(Count::Helped);
                    self.post_index(pid, head.level(), key, right);
                    pid = right;
                }
                Step::Removed => {
                    self.count(Count::Helped);
                    self.finish_removal(head);
                    pid = ROOT;
                }
            }
        }
    }
}
