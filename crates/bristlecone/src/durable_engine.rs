//! The code of an open store that is the same for all engines behind `Index`: opening and creation, the journal thread and the maintenance
//! thread, the promised durability, statistics, and copies for backups.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ::index::engine::{About, Capabilities, Count, Create, Form, TableOps};
use ::index::tables::Clock;
use ::index::{Index, Kind, Schema, schema};
use pmem::copy::{Progress, Target};
use pmem::file::Backing;
use pmem::journal::{MEMORY_MIN, Replay};
use pmem::{Durability, Durable, Found, Journal, LINE, Medium, Native, alloc};

use crate::committer::{Committer, spawn};
use crate::error::{Error, Result};
use crate::in_files;
use crate::latency::LatencyStats;
use crate::options::Options;
use crate::stats::{JournalActivity, JournalStats, LimboStats, Space, Stats};
use crate::store_dir::{CopyForm, Hold, Promise, StoreDir};
use crate::tabled::{Tabled, count};

/// The parts of an engine's registry entry that opening a store needs.
#[derive(Clone, Copy)]
pub(crate) struct Described {
    pub about: &'static About,
    pub capabilities: Capabilities,
}

/// Maximum size of a region in bytes. A log record cannot reference addresses above it.
const MAX_BYTES: u64 = 1 << 42;

/// An index as the engine of a store.
pub struct Engine<K: Kind> {
    index: Arc<dyn Index<K>>,
    opened: Opened,
    capabilities: Capabilities,
    journal: Option<JournalThread>,
    /// True if a commit syncs or writes a file.
    commits_with_sync: bool,
    committer: Arc<Committer>,
    /// Thread of the index's background work. It ends when no work is left, or the index is closed.
    maintenance: Arc<Mutex<Maintenance>>,
    /// True if the caller made the index ([`Engine::over`]).
    is_lent: bool,
}

impl<K: Kind> Deref for Engine<K> {
    type Target = dyn Index<K>;
    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &*self.index
    }
}

/// The memory in which an index is opened or made.
pub(crate) enum Home {
    /// Anonymous memory, for volatile indexes.
    Nowhere,
    /// A new file that becomes a store.
    New(StoreDir),
    /// Memory of a file without a name. The caller names the file when the store is complete.
    Unnamed(Durable),
    /// A store, with the replay of its journal.
    Found(StoreDir, Durable, Option<Replay>),
    /// A copy of a store that becomes a store, with the replay of its journal.
    Copy(StoreDir, Durable, Option<Replay>),
    /// A journal over the caller's files. `None` for new files, otherwise the replay.
    Given(Arc<Journal>, Option<Replay>),
}

impl Home {
    /// True if a store exists there.
    fn is_found(&self) -> bool {
        matches!(self, Self::Found(..) | Self::Copy(..) | Self::Given(_, Some(_)))
    }

    /// Prepares the memory. Does not depend on the engine, so it is compiled once.
    fn prepare(self, options: &Options) -> Result<Prepared> {
        Ok(match self {
            Self::Nowhere => {
                let promise = Promise {
                    backing: Backing::Tmpfs,
                    durability: Durability::Process,
                    journaled: false,
                    medium: "anonymous memory",
                    reason: "the engine keeps nothing after the process",
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
            Self::New(store_dir) => {
                let (memory, _) = store_dir.memory(options)?;
                Prepared::at(store_dir, memory)
            }
            Self::Found(store_dir, memory, replay) | Self::Copy(store_dir, memory, replay) => {
                let found = Some(store_dir.path.clone());
                Prepared { found, replay, ..Prepared::at(store_dir, memory) }
            }
        })
    }
}

/// Memory in which an index is made or opened, and its properties.
struct Prepared {
    memory: Durable,
    /// The path of an existing store, for errors. `None` for a new store.
    found: Option<PathBuf>,
    store_dir: Option<StoreDir>,
    promise: Promise,
    journal: Option<Arc<Journal>>,
    replay: Option<Replay>,
    /// Time at which the open began.
    since: Instant,
}

impl Prepared {
    /// New memory outside a directory.
    fn new(memory: Durable, promise: Promise) -> Self {
        let since = Instant::now();
        Self { memory, found: None, store_dir: None, promise, journal: None, replay: None, since }
    }

    /// New memory of a store's directory.
    fn at(dir: StoreDir, memory: Durable) -> Self {
        let (promise, since, journal) = (dir.promise, dir.since, memory.journal().cloned());
        Self { store_dir: Some(dir), journal, since, ..Self::new(memory, promise) }
    }
}

/// The thread of a journal. It checkpoints full halves of the journal. It commits writes without sync that no caller waits for, at the
/// latest after [`IDLE`]. Dropping this ends the thread.
struct JournalThread {
    journal: Arc<Journal>,
    thread: Option<JoinHandle<()>>,
}

/// Maximum time for which writes without sync stay uncommitted.
const IDLE: Duration = Duration::from_millis(500);

impl JournalThread {
    fn start<K: Kind>(journal: Arc<Journal>, index: Weak<dyn Index<K>>) -> Self {
        let shared = Arc::clone(&journal);
        let keep = move || {
            let commit = || index.upgrade().map(|index| index.commit());
            loop {
                match shared.wait_until_due(IDLE) {
                    Ok(true) => _ = shared.checkpoint(),
                    Ok(false) if shared.group().is_some_and(|group| group.lines > 0) => _ = commit(),
                    Ok(false) => {}
                    Err(pmem::Error::Closed) => return,
                    // The journal has failed. A caller that writes without sync gets the error from the index.
                    Err(_) => {
                        commit();
                        return;
                    }
                }
            }
        };
        // Without this thread, a commit that finds both halves full does the checkpoint itself.
        let thread = spawn("journal", Box::new(keep));
        Self { journal, thread }
    }
}

impl Drop for JournalThread {
    fn drop(&mut self) {
        self.journal.end_waits();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Maximum time between two steps of maintenance. The thread notices the close of an index within this time.
const REST_MAX: Duration = Duration::from_secs(1);

/// The thread of the index's background work.
#[derive(Default)]
struct Maintenance {
    thread: Option<JoinHandle<()>>,
    /// True from the start of the thread until it has decided, under the lock, to end.
    runs: bool,
    /// True if work was announced since the thread last looked for work.
    is_asked: bool,
}

/// Starts the thread for the index's background work. It ends when no work is left, or the index is gone. Without the thread, writers do
/// the work that they need, and a close finishes the count.
fn maintain<K: Kind>(index: Weak<dyn Index<K>>, state: Arc<Mutex<Maintenance>>) -> Option<JoinHandle<()>> {
    let steps = move || {
        while let Some(index) = index.upgrade() {
            let rest = index.maintain();
            drop(index);
            match rest {
                Some(Duration::ZERO) => std::thread::yield_now(),
                Some(rest) => std::thread::park_timeout(rest.min(REST_MAX)),
                None => {
                    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                    // Work that was announced during the last step may have been missed by it.
                    if !std::mem::take(&mut state.is_asked) {
                        state.runs = false;
                        return;
                    }
                }
            }
        }
    };
    spawn("maintenance", Box::new(steps))
}

/// How an engine was opened.
struct Opened {
    engine: &'static str,
    node_lines: u64,
    /// The directory of the store. `None` without one.
    store_dir: Option<StoreDir>,
    promise: Promise,
    opened: &'static str,
    recovery_us: u64,
    replay: Option<Replay>,
}

impl Opened {
    fn is_read_only(&self) -> bool {
        self.store_dir.as_ref().is_some_and(|dir| dir.hold != Hold::Alone)
    }
}

/// Number of cache lines of a node.
///
/// # Errors
/// `Option` if the engine does not allow this number.
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

/// Number of words of a value inside its entry. 1 if an existing store determines it.
fn payload_words<K: Kind>(value_bytes: Option<u64>, is_new: bool) -> Result<usize> {
    match value_bytes {
        None if !K::HAS_VALUE_BYTES || !is_new => Ok(1),
        None => Err(Error::Option(
            "a new store of values of one length: say how many bytes a value has, a multiple of 8 up to 120"
                .into(),
        )),
        Some(bytes) if !K::HAS_VALUE_BYTES => Err(Error::Option(format!(
            "values of {bytes} bytes each: only a store from 64-bit keys to bytes of one length has them"
        ))),
        Some(bytes) => ::index::Fixed::words_of(bytes).ok_or_else(|| {
            Error::Option(format!("values of {bytes} bytes each: they can have a multiple of 8 up to 120"))
        }),
    }
}

/// Opens or makes an index as an engine.
pub(crate) fn open<K: Tabled, I: Index<K> + Create<Durable>>(
    engine: Described,
    home: Home,
    options: &Options,
) -> Result<Arc<Engine<K>>> {
    let create_or_open = |memory, path: Option<&Path>, form: &Form| match path {
        Some(path) => I::open(memory, path, form).map(|(index, found)| (Arc::new(index) as _, found)),
        None => I::create(memory, form).map(|index| (Arc::new(index) as _, Found::New)),
    };
    open_with(engine, home, options, &create_or_open)
}

/// Makes an index in memory, or opens the existing one. The path is `Some` for an existing store.
type CreateOrOpen<'a, K> =
    dyn Fn(Durable, Option<&Path>, &Form) -> pmem::Result<(Arc<dyn Index<K>>, Found)> + 'a;

/// As [`open`]. Compiled once for all engines of a kind.
fn open_with<K: Tabled>(
    engine: Described,
    home: Home,
    options: &Options,
    create_or_open: &CreateOrOpen<'_, K>,
) -> Result<Arc<Engine<K>>> {
    let Described { about, capabilities } = engine;
    let node_lines = node_lines(about, options)?;
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
    options.check_has_no_pages(about.name)?;
    let payload_words = payload_words::<K>(options.value_bytes, !home.is_found())?;
    let is_copy = matches!(home, Home::Copy(..));
    let Prepared { memory, found, store_dir, promise, journal, replay, since } = home.prepare(options)?;
    if let (Some(journal), Some(bytes)) = (&journal, options.memory_bytes) {
        journal.bound_memory(bytes);
    }
    let usual = Form::new(about.name, node_lines, promise.durability);
    let tables = options.tables && K::HAS_TABLES && capabilities.ordered;
    let form = Form { payload_words, max_bytes: options.max_bytes, tables, ..usual };
    let (index, is_found) = (create_or_open(memory, found.as_deref(), &form)?, found.is_some());
    let (index, found): (Arc<dyn Index<K>>, Found) = index;
    if is_found && options.value_bytes.is_some() {
        check_value_bytes(&*index, payload_words)?;
    }
    if !is_found {
        store_dir.iter().try_for_each(StoreDir::finish)?;
    }
    index.set_snapshot_bytes(options.snapshot_bytes);
    let opened = Opened {
        engine: about.name,
        node_lines,
        store_dir,
        promise,
        opened: found_text(found),
        recovery_us: since.elapsed().as_micros() as u64,
        replay,
    };
    if opened.is_read_only() {
        index.refuse_writes();
    }
    let kind = index.identity().map(|identity| identity.kind.ends_with(schema::TABLES));
    let index = match kind.unwrap_or(tables) {
        true => K::with_tables(index, found, options.clock.clone())?,
        false => index,
    };
    // The backup closes a copy at once, and the clean mark needs the number of keys.
    if is_copy {
        index.count_all()?;
    }
    let journal = journal.map(|journal| JournalThread::start(journal, Arc::downgrade(&index)));
    let (committer, maintenance) = (Arc::default(), Arc::default());
    let commits_with_sync = journal.is_some();
    let engine = Engine {
        index,
        opened,
        capabilities,
        journal,
        commits_with_sync,
        committer,
        maintenance,
        is_lent: false,
    };
    if !is_copy {
        engine.start_maintenance();
    }
    Ok(Arc::new(engine))
}

fn found_text(found: Found) -> &'static str {
    match found {
        Found::New => "new",
        Found::Clean { .. } => "clean",
        Found::InUse => "recovered",
    }
}

/// Refuses a store whose values have another length than requested.
fn check_value_bytes<K: Kind>(index: &dyn Index<K>, payload_words: usize) -> Result<()> {
    match index.identity() {
        Some(identity) if ::index::Fixed::payload_words(&identity.kind) != Some(payload_words) => {
            let asked = ::index::Fixed::kind(payload_words);
            Err(pmem::Error::Mismatch {
                found: format!("keys and values of the kind \"{}\"", identity.kind),
                asked: format!("\"{asked}\""),
                remedy: "omit `value_bytes` to open it",
            }
            .into())
        }
        _ => Ok(()),
    }
}

/// Errors of every method: those of [`Index`] and [`Lifecycle`](::index::Lifecycle).
#[allow(clippy::missing_errors_doc)]
impl<K: Kind> Engine<K> {
    /// The capabilities of the engine.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// An engine over an index in files of its own.
    pub(crate) fn in_files(
        Described { about, capabilities }: Described,
        index: Arc<dyn Index<K>>,
        found: Found,
        store_dir: StoreDir,
        node_lines: u64,
        options: &Options,
    ) -> Result<Self>
    where
        K: Tabled,
    {
        let (promise, since) = (store_dir.promise, store_dir.since);
        let opened = Opened {
            engine: about.name,
            node_lines,
            store_dir: Some(store_dir),
            promise,
            opened: found_text(found),
            recovery_us: since.elapsed().as_micros() as u64,
            replay: None,
        };
        let has_tables = index.identity().is_some_and(|identity| identity.kind.ends_with(schema::TABLES));
        let index = match has_tables {
            true => K::with_tables(index, found, options.clock.clone())?,
            false => index,
        };
        let engine = Self {
            index,
            opened,
            capabilities,
            journal: None,
            commits_with_sync: true,
            committer: Arc::default(),
            maintenance: Arc::default(),
            is_lent: false,
        };
        engine.start_maintenance();
        Ok(engine)
    }

    /// An engine over an index that the caller has made or opened on a medium of its own, where fences make writes durable. Crash tests
    /// observe such a medium. The engine starts no thread: the caller runs [`Index::maintain`]. Dropping the engine does not close the index.
    ///
    /// # Errors
    /// As [`StoreOf::open`](crate::StoreOf::open), for the tables of an existing index.
    pub fn over(
        about: &'static About,
        capabilities: Capabilities,
        index: Arc<dyn Index<K>>,
        found: Found,
        clock: Clock,
    ) -> Result<Arc<Self>>
    where
        K: Tabled,
    {
        let promise = Promise {
            backing: Backing::Tmpfs,
            durability: Durability::Power,
            journaled: false,
            medium: "memory of the caller's",
            reason: "fences make writes durable",
        };
        let identity = index.identity();
        let opened = Opened {
            engine: about.name,
            node_lines: identity.map_or(about.default_lines, |identity| identity.node_lines),
            store_dir: None,
            promise,
            opened: found_text(found),
            recovery_us: 0,
            replay: None,
        };
        let has_tables = identity.is_some_and(|identity| identity.kind.ends_with(schema::TABLES));
        let index = if has_tables { K::with_tables(index, found, clock)? } else { index };
        Ok(Arc::new(Self {
            index,
            opened,
            capabilities,
            journal: None,
            commits_with_sync: false,
            committer: Arc::default(),
            maintenance: Arc::default(),
            is_lent: true,
        }))
    }

    /// The identity of a store in files. `None` for other stores.
    pub(crate) fn identity_in_files(&self) -> Result<Option<in_files::Identity>> {
        let Some(store_dir) = &self.opened.store_dir else { return Ok(None) };
        let dir = store_dir.path.parent().unwrap_or(Path::new("."));
        in_files::Identity::of_store(dir)
    }

    /// Makes all writes without sync durable.
    pub fn commit(&self) -> Result<()> {
        if self.opened.is_read_only() {
            return Ok(());
        }
        Ok(self.index.commit()?)
    }

    /// The futures that wait for commits, and the index that commits.
    pub(crate) fn committer(&self) -> (&Arc<Committer>, &Arc<dyn Index<K>>) {
        (&self.committer, &self.index)
    }

    /// True if a commit syncs a file. Otherwise a write is durable after its fences.
    pub fn commits_with_sync(&self) -> bool {
        self.commits_with_sync
    }

    /// True if nothing is kept: there is neither a file nor a journal.
    fn is_volatile(&self) -> bool {
        self.journal.is_none() && self.opened.store_dir.is_none()
    }

    /// Number of keys of all tables. Finishes the count after a crash if it is still running.
    pub(crate) fn keys(&self) -> Result<u64> {
        self.index.count_all()?;
        Ok(count(&*self.index).keys)
    }

    /// The index: the default table, if the store has tables.
    pub(crate) fn index(&self) -> &Arc<dyn Index<K>> {
        &self.index
    }

    /// The index that holds the stored keys: those of all tables, the catalog and the deadlines, if the store has tables.
    pub(crate) fn stored(&self) -> &Arc<dyn Index<K>> {
        self.index.tables().map_or(&self.index, TableOps::stored)
    }

    /// Makes every acknowledged write survive a power cut, as far as the medium can.
    pub fn sync(&self) -> Result<()> {
        if self.opened.is_read_only() {
            return Ok(());
        }
        Ok(self.index.sync()?)
    }

    /// Description, sizes and counts. Without latencies, which the store measures.
    pub fn stats(&self) -> Stats {
        let Count { keys, pending } = count(&*self.index);
        let (identity, opened, paging) = (self.index.identity(), &self.opened, self.index.paging());
        let lines = identity.map_or(opened.node_lines, |identity| identity.node_lines);
        Stats {
            engine: opened.engine.into(),
            kind: identity.map_or_else(|| K::NAME.into(), |identity| identity.kind.clone()),
            medium: opened.promise.medium.into(),
            durability: match self.is_volatile() {
                true => "none".into(),
                false => opened.promise.durability.to_string(),
            },
            durability_reason: opened.promise.reason.into(),
            keys,
            keys_pending: pending,
            file_bytes: opened.store_dir.as_ref().and_then(StoreDir::file_bytes),
            region_bytes: self.index.region_bytes(),
            node_bytes: lines * if paging.is_some() { in_files::PAGE_LINES } else { 1 } * LINE,
            recovery_us: opened.recovery_us,
            opened: opened.opened.into(),
            read_only: opened.is_read_only(),
            beside_writer: opened.store_dir.as_ref().is_some_and(|dir| dir.hold == Hold::BesideWriter),
            journal: self.journal_stats(),
            limbo: self.index.limbo_bytes().map(|bytes| LimboStats { bytes }),
            paging,
            latency: LatencyStats::default(),
        }
    }

    /// Use of the region's bytes.
    pub fn space(&self) -> Space {
        let alloc::Usage { live_bytes, free_bytes, overhead_bytes } = self.index.usage();
        Space { live_bytes, free_bytes, overhead_bytes }
    }

    /// The directory of the store, if this engine only reads it.
    pub(crate) fn read_only_dir(&self) -> Option<&StoreDir> {
        self.opened.store_dir.as_ref().filter(|dir| dir.hold != Hold::Alone)
    }

    /// The form that a copy of the store has.
    ///
    /// # Errors
    /// `Option` if the engine is volatile.
    pub(crate) fn form_of_copy(&self) -> Result<CopyForm> {
        if self.is_volatile() {
            return Err(Error::Option(format!(
                "{} keeps nothing: there is no store to back up",
                self.opened.engine
            )));
        }
        let journal_bytes = self.journal.as_ref().map_or(0, |thread| thread.journal.capacity_bytes());
        Ok(CopyForm::new(&self.opened.promise, journal_bytes))
    }

    /// Copies the region as a crash at this moment would leave it. Readers go on.
    ///
    /// # Errors
    /// `NoSpace` if the target's file system is full; `Io`; `Corrupt` if the journal cannot be read back.
    pub(crate) fn copy_region(&self, to: &Target<'_>, progress: Progress<'_>) -> Result<()> {
        if let Some(JournalThread { journal, .. }) = &self.journal {
            return Ok(journal.copy_region(to, progress)?);
        }
        let Some(store_dir) = &self.opened.store_dir else { return Ok(()) };
        let mut copied = Ok(());
        self.index.hold_writers(&mut || copied = store_dir.copy_mapped(to, progress))?;
        copied
    }

    /// Closes the store cleanly. The next open finds an exact count and needs no recovery. Later writes are refused.
    pub fn close(&self) -> Result<()> {
        self.index.close()?;
        // After this the next open has no group to replay.
        Ok(self.journal.as_ref().map_or(Ok(()), |thread| thread.journal.close())?)
    }

    fn journal_stats(&self) -> Option<JournalStats> {
        let Some(JournalThread { journal, .. }) = &self.journal else {
            // A store that is only read has no open journal.
            return self.opened.store_dir.as_ref().and_then(StoreDir::journal_seen);
        };
        let (done, replay) = (journal.activity(), self.opened.replay);
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

impl<K: Kind> Engine<K> {
    /// Starts the maintenance thread if it has work and does not run.
    pub(crate) fn start_maintenance(&self) {
        if self.is_lent || !self.index.has_maintenance() {
            return;
        }
        let mut state = self.maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_asked = true;
        if !state.runs || state.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            state.thread = maintain(Arc::downgrade(&self.index), Arc::clone(&self.maintenance));
            state.runs = state.thread.is_some();
        }
    }
}

impl<K: Kind> Drop for Engine<K> {
    fn drop(&mut self) {
        if std::thread::panicking() || self.is_lent {
            return;
        }
        self.committer.end();
        // If the close fails, the next open recovers the index.
        let _ = self.index.close();
        // The running thread holds the index, and the index holds the files.
        let maintenance = self.maintenance.lock().unwrap_or_else(PoisonError::into_inner).thread.take();
        if let Some(maintenance) = maintenance {
            maintenance.thread().unpark();
            let _ = maintenance.join();
        }
        if let Some(JournalThread { journal, .. }) = &self.journal {
            let _ = journal.close();
        }
    }
}
