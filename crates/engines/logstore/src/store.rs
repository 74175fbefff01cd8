//! The store: a Bw-tree with its commit log, its images and its checkpoints.
//!
//! * An update adds its record to the log after it read the key's page, and before the exchange that makes it visible. So the order of the
//!   records of a key is the order of its updates. The update returns when its record is durable as promised.
//! * A batch closes the gate for other writers, adds one record, and applies its updates. Readers see all of it or nothing.
//! * A checkpoint saves all dirty leaves in key order, and names the images of all leaves. Afterwards the log before it is removed.
//! * Recovery builds the inner pages from the checkpoint, without reading a leaf, and repeats the records of the log behind it. Most leaves
//!   get them as late changes, without being read.
//! * Above the memory budget, the store evicts leaves that were not used since the last round. Dirty ones are saved first. The thread of the
//!   upkeep does this; operations help if it does not keep up, or if there is none.
//!
//! Differences from the paper's protocol (§V): a page's image may contain updates that are not durable in the log yet. Such an image counts
//! only once a checkpoint names it, and the checkpoint is published when these updates are durable (C1 of `checkpoint`). So no update has to
//! be kept out of a flush, no page is divided at the end of the stable log, and a split needs no system transaction.
//!
//! Invariants:
//! * A1: a call that returns an update's success, or a value, returns after the update, or the value's update, is durable as promised.
//! * A2: while a batch runs, no leaf is evicted. So its pages are in memory from its reads to its last update, or have room for its late
//!   changes, and it cannot fail between its first update and its last.
//! * A3: if a write or sync of the log fails, a sync of images, or the sync that makes a checkpoint durable, all later updates are refused.
//!   Reads of durable values go on. After any other failure, such as a full disk, later updates and checkpoints try again.
//! * A4: one thread at a time saves, evicts and makes checkpoints: the one with the lock of `Upkeep`.
//! * A5: checkpoints are replaced, and files removed, only under the lock of the files. A copy holds it. It is taken before the lock of
//!   `Upkeep`; a thread that has that one only tries to take it.

use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bwtree::{Change, Pairs, Recorder, Shelf, Tree};
use pmem::pending::defer;
use pmem::{Error, Result};

use crate::buffer::Entry;
use crate::checkpoint::{self, Checkpoint};
use crate::copy;
use crate::counts::Counts;
use crate::gate::Gate;
use crate::live::Live;
use crate::log::{self, Log};
use crate::marks::Marks;
use crate::omission::{Omission, is_omitted};
use crate::place::Place;
use crate::record;
use crate::segment::Parts;
use crate::segments::Segments;
use crate::settings::{Opened, Settings, StoreStats, VALUE_BYTES_MAX};
use crate::sync::{Mutex, lock, try_lock};
use crate::upkeep::Upkeep;

/// A store.
#[derive(Debug)]
pub struct Store<P: Pairs> {
    pub(crate) tree: Tree<P>,
    /// `None` if the store is read-only.
    pub(crate) log: Option<Log>,
    /// LSN of images that are made before there is a log.
    pub(crate) base: u64,
    pub(crate) segments: Arc<Segments>,
    pub(crate) place: Place,
    pub(crate) settings: Settings,
    pub(crate) gate: Gate,
    pub(crate) marks: Marks,
    pub(crate) counts: Counts,
    pub(crate) upkeep: Mutex<Upkeep>,
    /// Held by the thread that copies the files, and by one that makes a checkpoint (A5).
    pub(crate) files: Mutex<()>,
    /// The counts of the upkeep when they were last read.
    known: Mutex<StoreStats>,
    /// Bytes that the last round of the eviction left, if it could not evict enough.
    pub(crate) least_bytes: AtomicU64,
    /// Bytes of the log at the last checkpoint.
    pub(crate) log_at: AtomicU64,
    /// Updates wait while [`log_length`](Self::log_length) is above this.
    pub(crate) log_allowed: AtomicU64,
    /// The thread that calls [`upkeep`](Self::upkeep), if there is one.
    pub(crate) helper: Mutex<Option<std::thread::Thread>>,
    /// Updates are refused.
    pub(crate) closed: AtomicBool,
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static THREAD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// A number of this thread.
pub(crate) fn thread() -> usize {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    THREAD.with(|own| {
        if own.get() == usize::MAX {
            own.set(NEXT.fetch_add(1, Ordering::Relaxed) as usize);
        }
        own.get()
    })
}

/// Adds single updates to the log.
struct Single<'s> {
    log: &'s Log,
    marks: &'s Marks,
    counts: &'s Counts,
    /// Bytes of the key and the value of the last record.
    bytes: Cell<u64>,
    /// End of the last committed record.
    end: Cell<u64>,
    /// The first error of the log.
    error: RefCell<Option<Error>>,
}

impl<'s, P: Pairs> Recorder<P> for Single<'s> {
    type Entry = Entry<'s>;

    fn begin(&self, key: &P::Key, value: Option<&P::Value>) -> bwtree::Result<Entry<'s>> {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            record::encode::<P>(key, value, scratch);
            match check_length(scratch.len()).and_then(|()| self.log.add(scratch)) {
                Ok(entry) => {
                    if is_omitted(Omission::Slow) {
                        std::thread::sleep(std::time::Duration::from_micros(200));
                    }
                    self.bytes.set(record::pair_bytes(scratch.len(), 1));
                    self.marks.note(key, entry.end);
                    Ok(entry)
                }
                Err(error) => {
                    let why = error.to_string();
                    self.error.borrow_mut().get_or_insert(error);
                    Err(bwtree::Error::NotLogged { why })
                }
            }
        })
    }

    fn commit(&self, entry: Entry<'s>) {
        self.end.set(entry.end);
        self.counts.put(thread(), self.bytes.get());
        entry.commit();
    }
}

impl<P: Pairs> Store<P> {
    /// Makes an empty store. Its files are in `dir` and their names begin with `stem`; files of an unfinished store are overwritten.
    /// `store` is a random number.
    ///
    /// # Errors
    /// `NoSpace`; `Io`.
    pub fn create(dir: &Path, stem: &str, store: u64, settings: Settings) -> Result<Self> {
        let place = Place { dir: dir.to_owned(), stem: stem.to_owned(), store };
        for kind in [log::LOG, crate::segments::PAGES] {
            for number in place.numbers(kind)? {
                let path = place.path(kind, number);
                pmem::system::remove_file(&path)
                    .map_err(|source| pmem::file::io("cannot remove", &path, source))?;
            }
        }
        let compresses = settings.compresses.unwrap_or_default();
        checkpoint::Writer::begin(&place, 0, 0, compresses)?.publish(0, settings.survives_power)?;
        checkpoint::make_durable(&place, settings.survives_power)?;
        Ok(Self::open(dir, stem, store, settings)?.0)
    }

    /// Opens a store. O(leaves), and the length of the log behind the last checkpoint.
    ///
    /// # Errors
    /// `Foreign`, `Version`, `Corrupt`, `NoSpace`, `Io`.
    pub fn open(dir: &Path, stem: &str, store: u64, settings: Settings) -> Result<(Self, Opened)> {
        let place = Place { dir: dir.to_owned(), stem: stem.to_owned(), store };
        let path = checkpoint::path(&place);
        let why = "the store's checkpoint is missing";
        let Checkpoint { number, redo, end, compresses, leaves } =
            checkpoint::load::<P>(&place)?.ok_or(Error::Foreign { path, why })?;
        let images = leaves.iter().flat_map(|leaf| [Some(leaf.image.address), leaf.image.base]);
        let mut used: Vec<u64> = images.flatten().map(|address| Parts::of(address).segment).collect();
        used.sort_unstable();
        used.dedup();
        let compresses = settings.compresses.unwrap_or(compresses);
        let segments = Arc::new(Segments::open(place.clone(), &settings, &used, compresses)?);
        let mut opened = Opened { leaves: leaves.len() as u64, ..Opened::default() };
        let mut live = Live::default();
        leaves.iter().for_each(|leaf| live.add(leaf));
        let live_bytes = live.bytes();
        segments.resize(settings.segment(live_bytes));
        let shelf: Arc<dyn Shelf> = Arc::clone(&segments) as _;
        let tree = Tree::restore(settings.pages(), shelf, leaves).map_err(refused)?;
        let mut own = Self {
            tree,
            log: None,
            // Above the images of the checkpoint, and below the next record.
            base: end.saturating_add(1),
            segments,
            place: place.clone(),
            gate: Gate::new(),
            marks: Marks::new(),
            counts: Counts::default(),
            upkeep: Mutex::new(Upkeep::new(number, opened.leaves)),
            files: Mutex::default(),
            known: Mutex::default(),
            closed: AtomicBool::new(settings.read_only),
            least_bytes: AtomicU64::new(0),
            log_at: AtomicU64::new(0),
            helper: Mutex::default(),
            log_allowed: AtomicU64::new(u64::MAX),
            settings,
        };
        let replayed = own.replay(redo, &mut opened)?;
        // L6: a store with a second checkpoint had a file when it was made.
        let is_missing = number > 0 && replayed.files.is_empty();
        if replayed.end < end || is_missing {
            // C1: the log was durable up to there.
            return Err(Error::Corrupt { what: "end of the commit log", at: replayed.end });
        }
        let files = replayed.files.len() as u64;
        if !own.settings.read_only {
            let (sizes, base) = (own.settings.sizes(), replayed.end);
            own.log = Some(Log::begin(place, sizes, own.settings.survives_power, base, replayed.files)?);
        }
        lock(&own.upkeep).stats.live_bytes = live_bytes;
        // The log that was replayed counts, so that repeated crashes do not let it grow. A file takes space also if it has few records.
        let length = replayed.bytes.max(files * (own.settings.log_bytes / 4));
        own.log_at.store(0u64.wrapping_sub(length), Ordering::Relaxed);
        Ok((own, opened))
    }

    pub(crate) fn log(&self) -> Result<&Log> {
        match &self.log {
            None => Err(Error::ReadOnly),
            Some(_) if self.closed.load(Ordering::Acquire) => Err(Error::Closed),
            Some(log) => log.check().map(|()| log),
        }
    }

    /// Copies the value of a key with `copy`, which may be called several times. False if the key is absent. O(log keys), and at most one
    /// read of an image.
    ///
    /// # Errors
    /// `Io`, `Corrupt`; `Failed` if the value is not durable and cannot become so.
    pub fn get(&self, key: &P::Key, mut copy: impl FnMut(&P::Value)) -> Result<bool> {
        let found = self
            .gate
            .read(thread(), || self.tree.look_up(key, &mut copy))
            .map_err(|error| self.refused(error))?;
        self.counts.leaves(thread(), 1);
        self.wait_readable(self.marks.end(key))?;
        self.relieve();
        Ok(found.is_some())
    }

    /// As [`get`](Self::get), for several keys: all values are those of one moment with respect to batches.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_each(&self, keys: &[&P::Key]) -> Result<Vec<Option<P::ValueBuf>>> {
        let read = || -> bwtree::Result<Vec<_>> {
            keys.iter().map(|key| self.tree.look_up(key, P::own_value)).collect()
        };
        let values = self.gate.read(thread(), read).map_err(|error| self.refused(error))?;
        self.counts.leaves(thread(), keys.len() as u64);
        let end = keys.iter().map(|key| self.marks.end(*key)).max();
        self.wait_readable(end.unwrap_or(0))?;
        self.relieve();
        Ok(values)
    }

    /// Reads a key, calls `decide` with its value, and applies the decision in one step. `decide` may be called several times. Returns
    /// whether the key was present. If `sync`, the update is durable as promised when this returns.
    ///
    /// # Errors
    /// `NoSpace`, `Length`: nothing has changed. `Io`, `Corrupt`, `Closed`, `ReadOnly`, `Failed`.
    pub fn update<V: Borrow<P::Value>>(
        &self,
        key: &P::Key,
        decide: impl FnMut(Option<&P::Value>) -> Change<V>,
        sync: bool,
    ) -> Result<bool> {
        self.write(key, sync, |log| self.tree.update_logged(key, decide, log))
    }

    /// Stores a value under a key, or removes the key. Returns whether the key was present; `None`: this is not known, because the leaf is not
    /// in memory and was not read. If `sync`, the update is durable as promised when this returns.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn set(&self, key: &P::Key, value: Option<&P::Value>, sync: bool) -> Result<Option<bool>> {
        self.write(key, sync, |log| self.tree.set(key, value, false, log))
    }

    /// Makes an update of one key part of the log, and ends it.
    fn write<T>(
        &self,
        key: &P::Key,
        sync: bool,
        run: impl FnOnce(&Single<'_>) -> bwtree::Result<T>,
    ) -> Result<T> {
        let log = self.log()?;
        log.write_ahead()?;
        let (marks, counts) = (&self.marks, &self.counts);
        let (bytes, end, error) = (Cell::new(0), Cell::new(0), RefCell::new(None));
        let single = Single { log, marks, counts, bytes, end, error };
        let done = {
            let _gate = self.gate.single(thread());
            run(&single)
        };
        let done = match single.error.into_inner() {
            Some(error) => return Err(error),
            None => done.map_err(|error| self.refused(error))?,
        };
        self.counts.leaves(thread(), 1);
        let end = if single.end.get() > 0 { single.end.get() } else { self.marks.end(key) };
        self.end(end, sync)?;
        self.relieve_after_updates(1);
        Ok(done)
    }

    /// A cursor over the pairs between two bounds. A scan is not a snapshot: each pair is as it was when the cursor read it.
    pub fn range(&self, from: Bound<&P::Key>, to: Bound<&P::Key>, descends: bool) -> StoreCursor<'_, P> {
        let cursor = match descends {
            false => self.tree.range(from, to),
            true => self.tree.range_descending(from, to),
        };
        StoreCursor { store: self, cursor, states: 0 }
    }

    /// Runs `run` while no other thread writes.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Failed`: `run` was not called.
    pub fn hold_writers(&self, run: &mut dyn FnMut()) -> Result<()> {
        self.log()?;
        let _alone = self.gate.alone();
        run();
        Ok(())
    }

    /// Number of keys. It may be wrong until [`is_counted`](Self::is_counted).
    pub fn len(&self) -> u64 {
        self.tree.len()
    }

    /// True if all keys are counted. False while leaves have late changes that were not read yet.
    pub fn is_counted(&self) -> bool {
        self.tree.uncounted() == 0
    }

    /// Counts all keys: reads the leaves with late changes. Those of updates meanwhile may be left.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn count_all(&self) -> Result<()> {
        let mut page = 0;
        while !self.is_counted() && self.tree.count_leaf(page).map_err(|error| self.refused(error))? {
            page += 1;
            self.relieve();
        }
        Ok(())
    }

    /// True if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The tree, for statistics.
    pub fn tree(&self) -> &Tree<P> {
        &self.tree
    }

    /// Makes all updates durable as promised.
    ///
    /// # Errors
    /// `Io`, `Failed`.
    pub fn commit(&self) -> Result<()> {
        match &self.log {
            None => Ok(()),
            Some(log) if self.closed.load(Ordering::Acquire) => log.check(),
            Some(log) => log.commit_all().map(drop),
        }
    }

    /// LSN below which all updates are durable as promised.
    pub fn stable(&self) -> u64 {
        self.log.as_ref().map_or(u64::MAX, Log::stable)
    }

    /// True if all updates are durable as promised.
    pub fn is_quiet(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.end() <= log.stable())
    }

    /// Waits until all records below `end` are durable as promised.
    ///
    /// # Errors
    /// `Io`, `Failed`.
    pub fn wait_for(&self, end: u64) -> Result<()> {
        self.log.as_ref().map_or(Ok(()), |log| log.commit(end))
    }

    /// Waits until all updates are durable as promised, or notes the wait if this thread defers its waits ([`pmem::pending`]).
    ///
    /// # Errors
    /// `Io`, `Failed`.
    pub fn wait_for_all(&self) -> Result<()> {
        self.log.as_ref().map_or(Ok(()), |log| self.wait(log.end()))
    }

    /// As [`wait_for`](Self::wait_for), or notes the wait if this thread defers its waits.
    fn wait(&self, end: u64) -> Result<()> {
        if self.stable() >= end || defer(end) { Ok(()) } else { self.wait_for(end) }
    }

    /// Translates an error of the tree. If an image cannot be read, the reason is that of the segments.
    pub(crate) fn refused(&self, error: bwtree::Error) -> Error {
        let is_unreadable = matches!(error, bwtree::Error::Unreadable { .. });
        is_unreadable.then(|| self.segments.take_error()).flatten().unwrap_or_else(|| refused(error))
    }

    /// Ends an update whose record ends at `end`: waits, or notes the record if this thread defers its waits. Without `sync`, and if the
    /// thread defers nothing, the update becomes durable later.
    pub(crate) fn end(&self, end: u64, sync: bool) -> Result<()> {
        if sync {
            return self.wait(end);
        }
        if self.stable() < end {
            defer(end);
        }
        Ok(())
    }

    /// A1 for readers.
    #[inline(always)]
    pub(crate) fn wait_readable(&self, end: u64) -> Result<()> {
        self.wait(end)
    }

    /// Refuses all later updates.
    pub fn refuse_writes(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Makes a checkpoint of everything, and refuses all later updates. The next open has nothing to replay.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint). The next open recovers the store then.
    pub fn close(&self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        {
            let _alone = self.gate.alone();
            if self.closed.swap(true, Ordering::AcqRel) {
                return Ok(());
            }
        }
        // Not before the gate: a thread that keeps writers out may wait for this lock.
        let _files = lock(&self.files);
        let closed = self.checkpoint_in(&mut lock(&self.upkeep));
        log.drop_spare();
        closed
    }

    /// Copies the files of the store into `dir`, in the state of one moment: the last checkpoint, its images, and the log behind it. Reads
    /// and updates go on, and so does the eviction. No checkpoint is made meanwhile, so the log grows. `progress` gets the copied bytes and
    /// all bytes.
    ///
    /// # Errors
    /// `NoSpace`; `Io`; `Failed`.
    pub fn copy_to(&self, dir: &Path, progress: copy::Progress<'_>) -> Result<u64> {
        let _files = lock(&self.files);
        let extent = match &self.log {
            Some(log) => log.extent()?,
            None => None,
        };
        copy::copy(&self.place.dir, &self.place.stem, dir, extent, progress)
    }

    /// Sizes and counts. Does not wait for a checkpoint: the counts of the upkeep may be those before it.
    pub fn stats(&self) -> StoreStats {
        let mut known = lock(&self.known);
        if let Some(upkeep) = try_lock(&self.upkeep) {
            *known = upkeep.stats;
        }
        let (written, read) = self.segments.traffic();
        let (used_leaves, put_bytes) = self.counts.sum();
        let (waits, waited) = self.counts.waits();
        StoreStats {
            used_leaves,
            put_bytes,
            waits,
            waited,
            log: self.log.as_ref().map(Log::stats).unwrap_or_default(),
            image_bytes_written: written,
            image_bytes_read: read,
            saved_bytes: self.segments.saved(),
            segment_bytes: self.segments.sizes().iter().map(|(_, bytes)| bytes).sum(),
            paged_in: self.tree.paged_in(),
            unsaved_bytes: self.tree.unsaved_bytes(),
            memory: self.tree.memory(),
            ..*known
        }
    }

    /// Checks the tree and all images. Returns the problems, and the tree's own report.
    pub fn check(&self) -> (Vec<String>, bwtree::Check) {
        let counted = self.count_all();
        let report = self.tree.check();
        let mut problems = report.problems.clone();
        problems.extend(counted.err().map(|error| error.to_string()));
        let (mut cursor, mut last, mut keys) = (self.tree.iter(), None::<P::KeyBuf>, 0u64);
        for (key, _) in cursor.by_ref() {
            if last.as_ref().is_some_and(|last| *last >= key) {
                problems.push(format!("key {key:?} comes after {last:?}"));
            }
            last = Some(key);
            keys += 1;
            if keys.is_multiple_of(64) {
                self.relieve_now();
            }
        }
        if let Some(error) = cursor.take_error() {
            problems.push(error.to_string());
        } else if report.is_quiet && keys != report.records {
            problems.push(format!("{} keys are counted, {keys} are there", report.records));
        }
        (problems, report)
    }
}

/// A cursor; see [`Store::range`].
#[derive(Debug)]
pub struct StoreCursor<'s, P: Pairs> {
    store: &'s Store<P>,
    cursor: bwtree::Cursor<'s, P>,
    /// Number of states of pages that the cursor has read and that are durable.
    states: u64,
}

impl<P: Pairs> StoreCursor<'_, P> {
    /// The next pair. `None` at the end.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn next_pair(&mut self) -> Result<Option<(P::KeyBuf, P::ValueBuf)>> {
        self.next_with(|key, value| (P::own_key(key), P::own_value(value)))
    }

    /// Calls `with` with the next pair. `None` at the end.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn next_with<R>(&mut self, with: impl FnOnce(&P::Key, &P::Value) -> R) -> Result<Option<R>> {
        let (mut with, mut found) = (Some(with), None);
        self.visit(1, |key, value| {
            found = with.take().map(|with| with(key, value));
            false
        })?;
        Ok(found)
    }

    /// Calls `with` with the next pairs, as long as it returns true. False at the end. Up to `together` pairs, and at least one, are read
    /// together. While `with` runs, memory that is retired cannot be freed.
    ///
    /// # Errors
    /// As [`Store::get`]. `with` may have been called.
    #[inline(always)]
    pub fn visit(
        &mut self,
        together: usize,
        mut with: impl FnMut(&P::Key, &P::Value) -> bool,
    ) -> Result<bool> {
        let store = self.store;
        let mut goes_on = true;
        while goes_on {
            if !self.cursor.place() {
                return self.cursor.take_error().map_or(Ok(false), |error| Err(store.refused(error)));
            }
            // A3: after a failure only pairs that are not durable are errors. A key whose removal has failed may be absent.
            let log = store.log.as_ref().filter(|log| log.check().is_ok());
            let marks = log.is_none().then_some(&store.marks);
            // A1, also for keys that are absent: the pages may lack keys whose removal is not durable.
            if let Some(log) = log
                && self.states != self.cursor.states()
            {
                self.states = self.cursor.states();
                store.counts.leaves(thread(), 1);
                let end = log.end();
                if store.stable() < end && !defer(end) {
                    // The leaf may change during the wait, each time. So each wait is for a pair, or for the end of the leaf.
                    let mut first = None;
                    let read = self.cursor.visit(1, |key, value| {
                        first = Some((P::own_key(key), P::own_value(value)));
                        false
                    });
                    if read.is_none() {
                        continue;
                    }
                    store.wait_for(end)?;
                    goes_on = first.is_none_or(|(key, value)| with(key.borrow(), value.borrow()));
                    continue;
                }
            }
            let mut refused = None;
            self.cursor.visit(together, |key, value| {
                if let Some(marks) = marks {
                    refused = store.wait_readable(marks.end(key)).err();
                }
                goes_on = refused.is_none() && with(key, value);
                goes_on
            });
            refused.map_or(Ok(()), Err)?;
            store.relieve();
        }
        Ok(true)
    }
}

/// Refuses a value that is too long, by the bytes of its update in a record.
pub(crate) fn check_length(bytes: usize) -> Result<()> {
    let bytes = bytes as u64;
    match bytes > VALUE_BYTES_MAX {
        true => Err(Error::Length { of: "key and value", bytes, limit: VALUE_BYTES_MAX }),
        false => Ok(()),
    }
}

/// An error of the images, inside of the tree.
pub(crate) struct Failure(pub(crate) Error);

impl From<bwtree::Error> for Failure {
    fn from(error: bwtree::Error) -> Self {
        Self(refused(error))
    }
}

impl From<Failure> for Error {
    fn from(Failure(error): Failure) -> Self {
        error
    }
}

/// Translates an error of the tree.
fn refused(error: bwtree::Error) -> Error {
    let too_long = |of, bytes, max| Error::Length { of, bytes: bytes as u64, limit: max as u64 };
    match error {
        bwtree::Error::KeyTooLong { bytes, max } => too_long("a key", bytes, max),
        bwtree::Error::ValueTooLong { bytes, max } => too_long("a value", bytes, max),
        bwtree::Error::NotLogged { .. } => Error::Failed,
        bwtree::Error::Unreadable { .. } => Error::Corrupt { what: "image of a page", at: 0 },
        _ => Error::Unsupported { engine: "bwtree", what: "pages of this size" },
    }
}
