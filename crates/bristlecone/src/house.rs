//! Indexes over durable memory as engines: what files, journals, promises and threads beside them are to any of them.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ::index::Decision;
use ::index::{Write, WriteOptions};
use pmem::copy::Progress;
use pmem::file::Backing;
use pmem::journal::{MEMORY_MIN, Replay};
use pmem::{Durability, Durable, Found, Journal, LINE, Medium, Native, alloc};
use tree::roster::About;

use crate::backup::{self, Backup};
use crate::engine::{
    Capabilities, Change, CheckReport, Count, Cursor, Decide, Engine, History, JournalActivity, JournalStats,
    Kind, NextPair, Pair, Space, Stats, View,
};
use crate::error::{Error, Result};
use crate::index::{Form, Index};
use crate::latency::LatencyStats;
use crate::place::{Hold, Place, Promise};
use crate::store::Options;

/// Most bytes of a region: what a log record's home word can name.
const MAX_BYTES: u64 = 1 << 42;

struct House<K: Kind, I: Index<K>>
where
    K::Value: ToOwned,
{
    index: Arc<I>,
    about: Opened,
    keeper: Option<Keeper>,
    /// What the index does beside its users; ends once it is closed.
    tender: Option<JoinHandle<()>>,
    kind: PhantomData<fn() -> K>,
}

/// Where an index is to be opened.
pub(crate) enum Home {
    /// In anonymous memory: it is volatile.
    Nowhere,
    /// In a file that is still to be made a store.
    New(Place),
    /// In memory of a file that its caller gives a name when it is a whole store.
    Unnamed(Durable),
    /// In a store, with what its journal held.
    Found(Place, Durable, Option<Replay>),
    /// In a copy of a store that is to be made a store, with what its journal held.
    Copy(Place, Durable, Option<Replay>),
    /// In a journal over files of the caller's: new ones, or with what it held.
    Given(Arc<Journal>, Option<Replay>),
}

impl Home {
    /// True if there is a store in it already.
    fn is_found(&self) -> bool {
        matches!(self, Self::Found(..) | Self::Copy(..) | Self::Given(_, Some(_)))
    }

    /// The memory, and what has to be known of it. (All that does not depend on the engine, so that it is compiled once.)
    fn prepare(self, options: &Options) -> Result<Prepared> {
        Ok(match self {
            Self::Nowhere => {
                let promise = Promise {
                    backing: Backing::Tmpfs,
                    durability: Durability::Process,
                    journaled: false,
                    medium: "anonymous memory",
                    reason: "a volatile engine: nothing survives the process",
                };
                let medium = Native::anonymous(options.max_bytes, promise.durability)?;
                Prepared::new(medium.into(), promise)
            }
            Self::Given(journal, replay) => {
                let promise = Promise {
                    backing: Backing::Ordinary,
                    durability: Durability::Power,
                    journaled: true,
                    medium: "a journal over files of the caller's",
                    reason: "a journal: each group of writes is durable with one sync",
                };
                let found = replay.map(|_| PathBuf::from("store"));
                let prepared = Prepared::new(Durable::from(Arc::clone(&journal)), promise);
                Prepared { found, journal: Some(journal), replay, ..prepared }
            }
            Self::Unnamed(memory) => {
                let promise = Promise {
                    backing: Backing::Ordinary,
                    durability: Durability::Process,
                    journaled: false,
                    medium: "a file without a name",
                    reason: "it gets one when all of it is durable",
                };
                Prepared::new(memory, promise)
            }
            Self::New(place) => {
                let (memory, _) = place.memory(options)?;
                Prepared::at(place, memory)
            }
            Self::Found(place, memory, replay) | Self::Copy(place, memory, replay) => {
                let found = Some(place.path.clone());
                Prepared { found, replay, ..Prepared::at(place, memory) }
            }
        })
    }
}

/// Memory in which an index is to be made or opened.
struct Prepared {
    memory: Durable,
    /// If there is a store in it already, the path by which errors name it.
    found: Option<PathBuf>,
    place: Option<Place>,
    promise: Promise,
    journal: Option<Arc<Journal>>,
    replay: Option<Replay>,
    /// When opening began.
    since: Instant,
}

impl Prepared {
    /// New memory without a place in the file system.
    fn new(memory: Durable, promise: Promise) -> Self {
        let since = Instant::now();
        Self { memory, found: None, place: None, promise, journal: None, replay: None, since }
    }

    /// New memory of a place.
    fn at(place: Place, memory: Durable) -> Self {
        let (promise, since, journal) = (place.promise, place.since, memory.journal().cloned());
        Self { place: Some(place), journal, since, ..Self::new(memory, promise) }
    }
}

/// A thread beside an index. (The standard library's part of it is compiled once so, and not for each engine.)
pub(crate) fn spawn(name: &str, work: Box<dyn FnOnce() + Send>) -> Option<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).ok()
}

/// A thread beside a journaled index: takes full halves home, and commits what was written without sync and is waited for by
/// nobody, at the latest after [`IDLE`]. Ends when this is dropped.
struct Keeper {
    journal: Arc<Journal>,
    thread: Option<JoinHandle<()>>,
}

/// How long writes without sync stay uncommitted.
const IDLE: Duration = Duration::from_millis(500);

impl Keeper {
    fn start<K: Kind, I: Index<K>>(journal: Arc<Journal>, index: Weak<I>) -> Self
    where
        K::Value: ToOwned,
    {
        let shared = Arc::clone(&journal);
        let keep = move || {
            let commit = || index.upgrade().map(|index| index.commit());
            loop {
                match shared.wait_until_due(IDLE) {
                    Ok(true) => _ = shared.checkpoint(),
                    Ok(false) if shared.group().is_some_and(|group| group.lines > 0) => _ = commit(),
                    Ok(false) => {}
                    Err(pmem::Error::Closed) => return,
                    // The journal takes no more: whoever writes without sync learns it from the index.
                    Err(_) => {
                        commit();
                        return;
                    }
                }
            }
        };
        // Without a thread, commits that find both halves full make their own checkpoints.
        let thread = spawn("journal", Box::new(keep));
        Self { journal, thread }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.journal.end_waits();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What an engine knows of how it was opened.
struct Opened {
    engine: &'static str,
    /// Where it is, if that is a directory.
    place: Option<Place>,
    promise: Promise,
    opened: &'static str,
    recovery_us: u64,
    replay: Option<Replay>,
}

impl Opened {
    fn is_read_only(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.hold != Hold::Alone)
    }
}

/// Cache lines of a node of an engine.
///
/// # Errors
/// `Option` if it has no such nodes.
pub(crate) fn node_lines(engine: &About, options: &Options) -> Result<u64> {
    let node_lines = options.node_lines.unwrap_or(engine.default_lines);
    if !engine.allows(node_lines) {
        let (least, most) = engine.lines;
        return Err(Error::Option(format!(
            "a node of {node_lines} lines: nodes of {} have {least} to {most} lines of 64 bytes",
            engine.name
        )));
    }
    Ok(node_lines)
}

/// Opens (or makes) an index as an engine.
pub(crate) fn open<K: Kind, I: Index<K>>(
    engine: &'static About,
    home: Home,
    options: &Options,
) -> Result<Arc<dyn Engine<K>>>
where
    K::Value: ToOwned,
{
    let node_lines = node_lines(engine, options)?;
    if options.max_bytes > MAX_BYTES {
        return Err(Error::Option(format!(
            "a maximum of {} bytes: a store has at most {MAX_BYTES}",
            options.max_bytes
        )));
    }
    if let Some(bytes) = options.memory_bytes.filter(|bytes| *bytes < MEMORY_MIN) {
        return Err(Error::Option(format!(
            "a bound of {bytes} bytes on the memory for writes: it is at least {MEMORY_MIN}"
        )));
    }
    I::check_options(options, !home.is_found())?;
    let is_copy = matches!(home, Home::Copy(..));
    let Prepared { memory, found, place, promise, journal, replay, since } = home.prepare(options)?;
    if let (Some(journal), Some(bytes)) = (&journal, options.memory_bytes) {
        journal.bound_memory(bytes);
    }
    let form = Form { engine, node_lines, options, durability: promise.durability };
    let (index, found) = match (&found, &place) {
        (Some(path), _) => I::open(memory, path, &form)?,
        (None, place) => {
            let index = I::create(memory, &form)?;
            place.iter().try_for_each(Place::finish)?;
            (index, Found::New)
        }
    };
    index.set_snapshot_bytes(options.snapshot_bytes);
    let about = Opened {
        engine: engine.name,
        place,
        promise,
        opened: match found {
            Found::New => "new",
            Found::Clean { .. } => "clean",
            Found::InUse => "recovered",
        },
        recovery_us: since.elapsed().as_micros() as u64,
        replay,
    };
    let read_only = about.is_read_only();
    if read_only {
        index.refuse_writes();
    }
    let index = Arc::new(index);
    // A copy is closed at once, with the number of its keys.
    let tender = if is_copy { None } else { I::tend(&index) };
    if is_copy {
        index.count_all()?;
    }
    let keeper = journal.map(|journal| Keeper::start::<K, I>(journal, Arc::downgrade(&index)));
    Ok(Arc::new(House { index, about, keeper, tender, kind: PhantomData }))
}

impl<K: Kind, I: Index<K>> Engine<K> for House<K, I>
where
    K::Value: ToOwned,
{
    fn capabilities(&self) -> Capabilities {
        I::CAPABILITIES
    }

    fn get(&self, key: &K::Key, value: &mut K::ValueBuf) -> Result<bool> {
        self.index.get(key, Some(value))
    }

    fn contains(&self, key: &K::Key) -> Result<bool> {
        self.index.get(key, None)
    }

    fn put(&self, key: &K::Key, value: &K::Value, how: WriteOptions) -> Result<bool> {
        self.index.put(key, value, how)
    }

    fn delete(&self, key: &K::Key, how: WriteOptions) -> Result<bool> {
        self.index.delete(key, how)
    }

    fn update(&self, key: &K::Key, decide: &mut Decide<'_, K::Value>, how: WriteOptions) -> Result<()> {
        let decide = |old: Option<&K::Value>| match decide(old) {
            Change::Keep => Decision::Keep,
            Change::Put(value) => Decision::<Cow<'static, K::Value>>::Put(value),
            Change::Delete => Decision::Delete,
        };
        self.index.update(key, decide, how)
    }

    fn commit(&self) -> Result<()> {
        if self.about.is_read_only() {
            return Ok(());
        }
        self.index.commit()
    }

    fn commits_with_sync(&self) -> bool {
        self.keeper.is_some()
    }

    fn is_quiet(&self) -> bool {
        self.index.is_quiet()
    }

    fn prefetch(&self, keys: &[&K::Key]) {
        self.index.prefetch(keys);
    }

    fn get_each(&self, keys: &[&K::Key], give: &mut dyn FnMut(Option<K::ValueBuf>) -> bool) -> Result<()> {
        self.index.get_each(keys, give)
    }

    fn write_many(&self, writes: &[Write<'_, K::Key, K::Value>], how: WriteOptions) -> Result<Vec<bool>> {
        self.index.write_many(writes, how)
    }

    fn batch(&self, writes: Vec<Pair<K>>, expected: &[Pair<K>], how: WriteOptions) -> Result<bool> {
        self.index.batch(writes, expected, how)
    }

    fn cursor(&self) -> Box<dyn Cursor<K> + '_> {
        Box::new(self.index.cursor())
    }

    fn len(&self) -> Count {
        self.index.len()
    }

    fn count(&self) -> Result<u64> {
        self.index.count_all()?;
        Ok(self.index.len().keys)
    }

    fn sync(&self) -> Result<()> {
        if self.about.is_read_only() {
            return Ok(());
        }
        self.index.sync()
    }

    fn check(&self) -> Result<CheckReport> {
        let report = self.index.check();
        Ok(CheckReport {
            keys: report.keys,
            nodes: report.nodes,
            levels: report.levels,
            live_bytes: report.live_bytes,
            problems: report.problems,
        })
    }

    fn stats(&self) -> Stats {
        let (Count { keys, pending }, identity) = (self.index.len(), self.index.identity());
        Stats {
            engine: self.about.engine.into(),
            kind: identity.kind.clone(),
            medium: self.about.promise.medium.into(),
            durability: self.about.promise.durability.to_string(),
            durability_reason: self.about.promise.reason.into(),
            keys,
            keys_pending: pending,
            file_bytes: self.about.place.as_ref().and_then(|place| place.file_bytes()),
            region_bytes: self.index.region_bytes(),
            node_bytes: identity.node_lines * LINE,
            recovery_us: self.about.recovery_us,
            opened: self.about.opened.into(),
            read_only: self.about.is_read_only(),
            journal: self.journal_stats(),
            limbo: None,
            latency: LatencyStats::default(),
        }
    }

    fn space(&self) -> Space {
        let alloc::Usage { live_bytes, free_bytes, overhead_bytes } = self.index.usage();
        Space { live_bytes, free_bytes, overhead_bytes }
    }

    fn backup(&self, dir: &Path, progress: Progress<'_>) -> Result<Backup> {
        let promise = &self.about.promise;
        match (&self.keeper, &self.about.place) {
            (Some(Keeper { journal, .. }), _) => {
                // What was written without sync before the call is there too.
                self.index.commit()?;
                backup::make(
                    dir,
                    backup::Form::new(promise, journal.capacity_bytes()),
                    progress,
                    &|to, progress| Ok(journal.copy_region(to, progress)?),
                )
            }
            // Its memory may differ from the files by what recovery stored, so the files are read once more.
            (None, Some(place)) if place.hold != Hold::Alone => {
                backup::backup(place.path.parent().unwrap_or(Path::new(".")), dir, progress)
            }
            (None, Some(place)) => {
                backup::make(dir, backup::Form::new(promise, 0), progress, &|to, progress| {
                    self.index.hold_writers(|| backup::copy_mapped(place, to, progress))?
                })
            }
            (None, None) => Err(Error::Option(format!(
                "{} keeps nothing: there is no store to back up",
                self.about.engine
            ))),
        }
    }

    fn append(&self, next: &mut NextPair<'_, K>) -> Result<u64> {
        self.index.append(next)
    }

    fn clear(&self) -> Result<()> {
        self.index.clear()
    }

    fn snapshot(&self) -> Result<Option<Box<dyn View<K> + '_>>> {
        Ok(Some(self.index.snapshot()?))
    }

    fn history(&self) -> Option<&dyn History<K>> {
        self.index.history()
    }

    fn close(&self) -> Result<()> {
        self.index.close()?;
        // The next open has nothing to bring home.
        Ok(self.keeper.as_ref().map_or(Ok(()), |keeper| keeper.journal.close())?)
    }
}

impl<K: Kind, I: Index<K>> House<K, I>
where
    K::Value: ToOwned,
{
    fn journal_stats(&self) -> Option<JournalStats> {
        let Some(Keeper { journal, .. }) = &self.keeper else {
            // Only read, it is not open here.
            return self.about.place.as_ref().and_then(Place::journal_seen);
        };
        let (done, replay) = (journal.activity(), self.about.replay);
        let activity = JournalActivity {
            groups: journal.newest(),
            groups_since_open: done.groups,
            syncs_since_open: done.syncs,
            checkpoints_since_open: done.checkpoints,
            waiting_bytes: done.waiting_bytes,
            replayed_groups: replay.map_or(0, |replay| replay.groups),
            replayed_bytes: replay.map_or(0, |replay| replay.bytes),
        };
        let (bytes, file_bytes) = (journal.capacity_bytes(), journal.file_bytes());
        Some(JournalStats { bytes, file_bytes, activity: Some(activity) })
    }
}

impl<K: Kind, I: Index<K>> Drop for House<K, I>
where
    K::Value: ToOwned,
{
    fn drop(&mut self) {
        self.index.close_on_drop();
        // It holds the index, and that the files, while it works.
        if let Some(tender) = self.tender.take().filter(|_| !std::thread::panicking()) {
            tender.thread().unpark();
            let _ = tender.join();
        }
        if let Some(keeper) = self.keeper.as_ref().filter(|_| !std::thread::panicking()) {
            let _ = keeper.journal.close();
        }
    }
}
