//! The trees over durable memory as engines.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pmem::copy::Progress;
use pmem::journal::Replay;
use pmem::native::Backing;
use pmem::{Durability, Durable, Found, Journal, Medium, Native, alloc};
use tree::discipline::Discipline;
use tree::insert::Decision;
use tree::layout::Layouts;
use tree::roster::{self, About};
use tree::shape::Tail;
use tree::{Schema, Tree, TreeCursor, TreeOptions, Write, WriteOptions};

use crate::backup::{self, Backup, Form};
use crate::engine::{
    Capabilities, Change, CheckReport, Count, Cursor, Decide, Engine, JournalActivity, JournalStats, Kind,
    NextPair, Pair, Space, Stats,
};
use crate::error::{Error, Result};
use crate::latency::LatencyStats;
use crate::place::{Hold, Place, Promise};
use crate::store::Options;

/// Most bytes of a region: what a log record's home word can name.
const MAX_BYTES: u64 = 1 << 42;

/// A schema whose keys and values are those of a kind.
pub trait SchemaOf<K: Kind>:
    Schema<Key = K::Key, KeyBuf = K::KeyBuf, Value = K::Value, ValueBuf = K::ValueBuf>
{
}
impl<K: Kind, S> SchemaOf<K> for S where
    S: Schema<Key = K::Key, KeyBuf = K::KeyBuf, Value = K::Value, ValueBuf = K::ValueBuf>
{
}

struct TreeEngine<K, S: Schema, L: Layouts, D: Discipline> {
    tree: Arc<Tree<Durable, S, L, D>>,
    about: Opened,
    keeper: Option<Keeper>,
    /// Counts keys; ends once the tree is closed.
    counter: Option<JoinHandle<()>>,
    kind: PhantomData<fn() -> K>,
}

/// Where a tree is to be opened.
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

/// A thread beside a journaled tree: takes full halves home, and commits what was written without sync and is waited for by
/// nobody, at the latest after [`IDLE`]. Ends when this is dropped.
struct Keeper {
    journal: Arc<Journal>,
    thread: Option<JoinHandle<()>>,
}

/// How full leaves are that are written in key order: keys that come later need not split each at once.
const FILL: f64 = 0.9;

/// How long writes without sync stay uncommitted.
const IDLE: Duration = Duration::from_millis(500);

impl Keeper {
    fn start<S: Schema, L: Layouts, D: Discipline>(
        journal: Arc<Journal>,
        tree: Weak<Tree<Durable, S, L, D>>,
    ) -> Self {
        let shared = Arc::clone(&journal);
        let keep = move || {
            let commit = || tree.upgrade().map(|tree| tree.commit());
            loop {
                match shared.wait_until_due(IDLE) {
                    Ok(true) => _ = shared.checkpoint(),
                    Ok(false) if shared.group().is_some_and(|group| group.lines > 0) => _ = commit(),
                    Ok(false) => {}
                    Err(pmem::Error::Closed) => return,
                    // The journal takes no more: whoever writes without sync learns it from the tree.
                    Err(_) => {
                        commit();
                        return;
                    }
                }
            }
        };
        // Without a thread, commits that find both halves full make their own checkpoints.
        let thread = std::thread::Builder::new().name("journal".into()).spawn(keep).ok();
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

/// Opens (or makes) a tree as an engine.
pub(crate) fn open<K: Kind, S: SchemaOf<K>, L: Layouts, D: Discipline>(
    engine: &'static About,
    home: Home,
    options: &Options,
) -> Result<Arc<dyn Engine<K>>>
where
    K::Value: ToOwned,
{
    let node_lines = options.node_lines.unwrap_or(engine.default_lines);
    if !engine.allows(node_lines) {
        let (least, most) = engine.lines;
        return Err(Error::Option(format!(
            "a node of {node_lines} lines: nodes of {} have {least} to {most} lines of 64 bytes",
            engine.name
        )));
    }
    if options.max_bytes > MAX_BYTES {
        return Err(Error::Option(format!(
            "a maximum of {} bytes: a store has at most {MAX_BYTES}",
            options.max_bytes
        )));
    }
    let is_new = !matches!(home, Home::Found(..) | Home::Copy(..) | Home::Given(_, Some(_)));
    let is_copy = matches!(home, Home::Copy(..));
    let payload_words = payload_words::<S>(options.value_bytes, is_new)?;
    let made = |durability| {
        let mut made = TreeOptions::new(engine.name, node_lines, durability);
        made.payload_words = payload_words;
        made.geometry.log_records = roster::log_records::<D>(node_lines);
        made
    };
    let (tree, found, place, promise, journal, replay, since) = match home {
        Home::Nowhere => {
            let promise = Promise {
                backing: Backing::Tmpfs,
                durability: Durability::Process,
                journaled: false,
                medium: "anonymous memory",
                reason: "a volatile engine: nothing survives the process",
            };
            let medium = Native::anonymous(options.max_bytes, promise.durability)?;
            let since = Instant::now();
            (
                Tree::<_, S, L, D>::create(medium.into(), &made(promise.durability))?,
                Found::New,
                None,
                promise,
                None,
                None,
                since,
            )
        }
        Home::Given(journal, replay) => {
            let promise = Promise {
                backing: Backing::Ordinary,
                durability: Durability::Power,
                journaled: true,
                medium: "a journal over files of the caller's",
                reason: "a journal: each group of writes is durable with one sync",
            };
            let (memory, since) = (Durable::from(Arc::clone(&journal)), Instant::now());
            let (tree, found) = match replay {
                None => (Tree::<_, S, L, D>::create(memory, &made(promise.durability))?, Found::New),
                Some(_) => {
                    let name = std::path::Path::new("store");
                    Tree::<_, S, L, D>::open(memory, name, engine.name, promise.durability, 1024)?
                }
            };
            (tree, found, None, promise, Some(journal), replay, since)
        }
        Home::Unnamed(memory) => {
            let promise = Promise {
                backing: Backing::Ordinary,
                durability: Durability::Process,
                journaled: false,
                medium: "a file without a name",
                reason: "it gets one when all of it is durable",
            };
            let since = Instant::now();
            let tree = Tree::<_, S, L, D>::create(memory, &made(promise.durability))?;
            (tree, Found::New, None, promise, None, None, since)
        }
        Home::New(place) => {
            let (memory, _) = place.memory(options)?;
            let journal = memory.journal().cloned();
            let tree = Tree::<_, S, L, D>::create(memory, &made(place.promise.durability))?;
            place.finish()?;
            let (promise, since) = (place.promise, place.since);
            (tree, Found::New, Some(place), promise, journal, None, since)
        }
        Home::Found(place, memory, replay) | Home::Copy(place, memory, replay) => {
            let (durability, journal) = (place.promise.durability, memory.journal().cloned());
            let (tree, found) = Tree::<_, S, L, D>::open(memory, &place.path, engine.name, durability, 1024)?;
            if options.value_bytes.is_some() && tree.leaf_shape().payload_words != payload_words {
                let found = tree.region().identity().kind.clone();
                return Err(pmem::Error::Mismatch { found, asked: S::kind(payload_words) }.into());
            }
            let (promise, since) = (place.promise, place.since);
            (tree, found, Some(place), promise, journal, replay, since)
        }
    };
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
        tree.refuse_writes();
    }
    let tree = Arc::new(tree);
    // A copy is closed at once, and counted then.
    let counter = if tree.len().1 && !is_copy { count_in_background(&tree) } else { None };
    let keeper = journal.map(|journal| Keeper::start(journal, Arc::downgrade(&tree)));
    Ok(Arc::new(TreeEngine { tree, about, keeper, counter, kind: PhantomData }))
}

/// Words of a payload in a tree of such values, 1 where the store that there is will say.
fn payload_words<S: Schema>(value_bytes: Option<u64>, is_new: bool) -> Result<usize> {
    match value_bytes {
        None if S::Tail::EMPTY || !is_new => Ok(1),
        None => Err(Error::Option(
            "a new store of values of one length: say how many bytes a value has, a multiple of 8 up to 120"
                .into(),
        )),
        Some(bytes) if S::Tail::EMPTY => Err(Error::Option(format!(
            "values of {bytes} bytes each: only a store from 64-bit keys to bytes of one length has them"
        ))),
        Some(bytes) => tree::Fixed::words_of(bytes).ok_or_else(|| {
            Error::Option(format!("values of {bytes} bytes each: they can have a multiple of 8 up to 120"))
        }),
    }
}

/// What a tree of these layouts and this discipline can do.
pub fn capabilities<L: Layouts, D: Discipline>() -> Capabilities {
    Capabilities {
        ordered: true,
        durable: D::DURABLE,
        snapshots: false,
        atomic_batch: true,
        several_writers: false,
        fixed_values: L::PAGES,
    }
}

/// Counts the keys of a recovered tree beside its users, a little at a time; ends with the tree.
fn count_in_background<S: Schema, L: Layouts, D: Discipline>(
    tree: &Arc<Tree<Durable, S, L, D>>,
) -> Option<JoinHandle<()>> {
    let tree = Arc::downgrade(tree);
    let count = move || {
        // A damaged leaf ends the count: it stays pending, and reads of that leaf say what is wrong.
        while let Some(tree) = tree.upgrade() {
            if !matches!(tree.count_some(256), Ok(true)) {
                break;
            }
            drop(tree);
            std::thread::yield_now();
        }
    };
    // Without a thread the keys are counted at close; until then the count stays pending.
    std::thread::Builder::new().name("count keys".into()).spawn(count).ok()
}

impl<K: Kind, S: SchemaOf<K>, L: Layouts, D: Discipline> Engine<K> for TreeEngine<K, S, L, D>
where
    K::Value: ToOwned,
{
    fn capabilities(&self) -> Capabilities {
        capabilities::<L, D>()
    }

    fn get(&self, key: &K::Key, value: &mut K::ValueBuf) -> Result<bool> {
        Ok(self.tree.get(key, Some(value))?)
    }

    fn contains(&self, key: &K::Key) -> Result<bool> {
        Ok(self.tree.get(key, None)?)
    }

    fn put(&self, key: &K::Key, value: &K::Value, how: WriteOptions) -> Result<bool> {
        Ok(self.tree.put_as(key, value, how)?)
    }

    fn delete(&self, key: &K::Key, how: WriteOptions) -> Result<bool> {
        Ok(self.tree.delete_as(key, how)?)
    }

    fn update(&self, key: &K::Key, decide: &mut Decide<'_, K::Value>, how: WriteOptions) -> Result<()> {
        let decide = |old: Option<&K::Value>| match decide(old) {
            Change::Keep => Decision::Keep,
            Change::Put(value) => Decision::<Cow<'static, K::Value>>::Put(value),
            Change::Delete => Decision::Delete,
        };
        Ok(self.tree.update(key, decide, how)?)
    }

    fn commit(&self) -> Result<()> {
        if self.about.is_read_only() {
            return Ok(());
        }
        Ok(self.tree.commit()?)
    }

    fn commits_with_sync(&self) -> bool {
        self.keeper.is_some()
    }

    fn is_quiet(&self) -> bool {
        self.tree.is_quiet()
    }

    fn prefetch(&self, keys: &[&K::Key]) {
        self.tree.prefetch(keys);
    }

    fn get_each(&self, keys: &[&K::Key], give: &mut dyn FnMut(Option<K::ValueBuf>) -> bool) -> Result<()> {
        Ok(self.tree.get_each(keys, give)?)
    }

    fn write_many(&self, writes: &[Write<'_, K::Key, K::Value>], how: WriteOptions) -> Result<Vec<bool>> {
        Ok(self.tree.write_many(writes, how)?)
    }

    fn batch(&self, writes: Vec<Pair<K>>, expected: &[Pair<K>], how: WriteOptions) -> Result<bool> {
        Ok(self.tree.batch(writes, expected, how)?)
    }

    fn cursor(&self) -> Box<dyn Cursor<K> + '_> {
        Box::new(EngineCursor { cursor: self.tree.cursor(), kind: PhantomData })
    }

    fn len(&self) -> Count {
        let (keys, pending) = self.tree.len();
        Count { keys, pending }
    }

    fn sync(&self) -> Result<()> {
        if self.about.is_read_only() {
            return Ok(());
        }
        Ok(self.tree.sync()?)
    }

    fn check(&self) -> Result<CheckReport> {
        let report = self.tree.check();
        Ok(CheckReport {
            keys: report.keys,
            nodes: report.nodes,
            levels: report.levels,
            live_bytes: report.live_bytes,
            problems: report.problems,
        })
    }

    fn stats(&self) -> Stats {
        let (keys, keys_pending) = self.tree.len();
        Stats {
            engine: self.about.engine.into(),
            kind: self.tree.region().identity().kind.clone(),
            medium: self.about.promise.medium.into(),
            durability: self.about.promise.durability.to_string(),
            durability_reason: self.about.promise.reason.into(),
            keys,
            keys_pending,
            file_bytes: self.about.place.as_ref().and_then(|place| place.file_bytes()),
            region_bytes: self.tree.region().medium().len(),
            node_bytes: self.tree.leaf_shape().bytes(),
            recovery_us: self.about.recovery_us,
            opened: self.about.opened.into(),
            read_only: self.about.is_read_only(),
            journal: self.journal_stats(),
            latency: LatencyStats::default(),
        }
    }

    fn space(&self) -> Space {
        let alloc::Usage { live_bytes, free_bytes, overhead_bytes } = alloc::usage(self.tree.region());
        Space { live_bytes, free_bytes, overhead_bytes }
    }

    fn backup(&self, dir: &Path, progress: Progress<'_>) -> Result<Backup> {
        let promise = &self.about.promise;
        match (&self.keeper, &self.about.place) {
            (Some(Keeper { journal, .. }), _) => {
                // What was written without sync before the call is there too.
                self.tree.commit()?;
                backup::make(dir, Form::new(promise, journal.capacity_bytes()), progress, &|to, progress| {
                    Ok(journal.copy_region(to, progress)?)
                })
            }
            // Its memory may differ from the files by what recovery stored, so the files are read once more.
            (None, Some(place)) if place.hold != Hold::Alone => {
                backup::backup(place.path.parent().unwrap_or(Path::new(".")), dir, progress)
            }
            (None, Some(place)) => backup::make(dir, Form::new(promise, 0), progress, &|to, progress| {
                self.tree.hold_writers(|| backup::copy_mapped(place, to, progress))?
            }),
            (None, None) => Err(Error::Option(format!(
                "{} keeps nothing: there is no store to back up",
                self.about.engine
            ))),
        }
    }

    fn append(&self, next: &mut NextPair<'_, K>) -> Result<u64> {
        // Whole leaves, but where values are long.
        let (most, bytes_most) = (self.tree.bulk_leaf(FILL) * 32, 16 << 20);
        let mut appended = 0;
        loop {
            let (mut pairs, mut bytes) = (Vec::new(), 0);
            while pairs.len() < most && bytes < bytes_most {
                let (mut key, mut value) = (K::KeyBuf::default(), K::ValueBuf::default());
                if !next(&mut key, &mut value)? {
                    break;
                }
                bytes += K::payload_bytes(K::key(&key), K::value(&value));
                pairs.push((key, value));
            }
            if pairs.is_empty() {
                return Ok(appended);
            }
            let borrowed = pairs.iter().map(|(key, value)| (K::key(key), K::value(value)));
            appended += self.tree.bulk_load(borrowed, FILL)?;
        }
    }

    fn clear(&self) -> Result<()> {
        Ok(self.tree.clear()?)
    }

    fn close(&self) -> Result<()> {
        self.tree.close()?;
        // The next open has nothing to bring home.
        Ok(self.keeper.as_ref().map_or(Ok(()), |keeper| keeper.journal.close())?)
    }
}

impl<K, S: Schema, L: Layouts, D: Discipline> TreeEngine<K, S, L, D> {
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

impl<K, S: Schema, L: Layouts, D: Discipline> Drop for TreeEngine<K, S, L, D> {
    fn drop(&mut self) {
        self.tree.close_on_drop();
        // It holds the tree, and that the files, while it counts.
        if let Some(counter) = self.counter.take().filter(|_| !std::thread::panicking()) {
            let _ = counter.join();
        }
        if let Some(keeper) = self.keeper.as_ref().filter(|_| !std::thread::panicking()) {
            let _ = keeper.journal.close();
        }
    }
}

struct EngineCursor<'a, K, S: Schema, L, D: Discipline> {
    cursor: TreeCursor<'a, Durable, S, L, D>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind, S: SchemaOf<K>, L: Layouts, D: Discipline> Cursor<K> for EngineCursor<'_, K, S, L, D> {
    fn seek(&mut self, from: Bound<&K::Key>, descending: bool) -> Result<()> {
        self.cursor.seek(from.map(K::own_key), descending);
        Ok(())
    }

    fn next(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool> {
        Ok(self.cursor.next(key, value)?)
    }
}
