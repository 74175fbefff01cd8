//! `Store`: a directory with a durable ordered map in it.

use std::borrow::Cow;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::Arc;

use ::index::engine::{Capabilities, Change, Count, Cursor, KeyValue};
use ::index::kind::{Bytes, Fixed, Kind, U64};
use ::index::{Report as CheckReport, Write, WriteOptions};
use pmem::Journal;
use pmem::journal::Replay;

use crate::backup::{self, Backup};
use crate::durable_engine::Engine;
use crate::error::{Error, Result};
use crate::latency::{Latencies, Timed};
use crate::options::Options;
use crate::registry;
use crate::stats::{Space, Stats};

/// A store of one kind of keys and values. Cheap to clone; many readers beside a writer, from any thread.
pub struct StoreOf<K: Kind> {
    engine: Arc<Engine<K>>,
    how: WriteOptions,
    /// A commit is a sync, and so is a write that waits for one.
    has_syncs: bool,
    latencies: Arc<Latencies>,
}

/// A store from byte strings to byte strings.
pub type Store = StoreOf<Bytes>;
/// A store from 64-bit integers to 64-bit integers.
pub type StoreU64 = StoreOf<U64>;
/// A store from 64-bit integers to bytes of one length, inside the entries of an index of 4 KiB nodes.
pub type StoreFixed = StoreOf<Fixed>;

impl<K: Kind> std::fmt::Debug for StoreOf<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("kind", &K::NAME).field("how", &self.how).finish_non_exhaustive()
    }
}

impl<K: Kind> Clone for StoreOf<K> {
    fn clone(&self) -> Self {
        self.with(self.how)
    }
}

impl<K: registry::Open> StoreOf<K> {
    /// Opens the store in directory `path`, recovering it if it was not closed.
    ///
    /// # Errors
    /// What [`crate::Error`] lists: the directory cannot be used, the file is foreign, damaged, newer, in use.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        Ok(Self::from_engine(K::open(path.as_ref(), &options)?))
    }

    /// Opens the store in a journal over files of the caller's own kind ([`pmem::journal::storage::Storage`]): `replay` is
    /// what opening the journal found, `None` for new files.
    ///
    /// # Errors
    /// As [`StoreOf::open`].
    pub fn open_over(journal: Journal, replay: Option<Replay>, options: Options) -> Result<Self> {
        Ok(Self::from_engine(K::open_over(journal, replay, &options)?))
    }
}

/// Errors of every method: see [`Engine`] and [`Kind::validate`].
#[allow(clippy::missing_errors_doc)]
impl<K: Kind> StoreOf<K> {
    pub(crate) fn engine(&self) -> &Engine<K> {
        &self.engine
    }

    /// Wraps an engine.
    pub fn from_engine(engine: Arc<Engine<K>>) -> Self {
        let has_syncs = engine.commits_with_sync();
        Self { engine, how: WriteOptions::default(), has_syncs, latencies: Arc::default() }
    }

    /// The same store, written to in another way: without sync, a write returns before it is durable.
    #[must_use]
    pub fn with(&self, how: WriteOptions) -> Self {
        let (engine, latencies) = (Arc::clone(&self.engine), Arc::clone(&self.latencies));
        Self { engine, how, has_syncs: self.has_syncs, latencies }
    }

    /// Makes everything written without sync as durable as was promised. Where writes need no sync for that (on persistent
    /// memory, on memory file systems, with process durability), there is nothing to do.
    pub fn commit(&self) -> Result<()> {
        if !self.has_syncs {
            return self.engine.commit();
        }
        self.latencies.each(Timed::Commit, || self.engine.commit())
    }

    /// True if everything written was durable a moment ago. If not, a read of a key whose newest write is not durable takes as
    /// long as a commit: a server lets other work go on meanwhile.
    pub fn is_quiet(&self) -> bool {
        self.engine.is_quiet()
    }

    /// What the engine can do.
    pub fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    /// The value of `key`.
    pub fn get(&self, key: &K::Key) -> Result<Option<K::ValueBuf>> {
        let mut value = K::ValueBuf::default();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Copies the value of `key` into a buffer; false if absent.
    pub fn get_into(&self, key: &K::Key, value: &mut K::ValueBuf) -> Result<bool> {
        K::validate(key, None)?;
        self.latencies.sample(Timed::Get, || self.engine.get(key, Some(value)).map_err(Error::from))
    }

    /// True if the key is there.
    pub fn contains(&self, key: &K::Key) -> Result<bool> {
        K::validate(key, None)?;
        self.latencies.sample(Timed::Get, || self.engine.get(key, None).map_err(Error::from))
    }

    /// Stores a value; true if one was replaced.
    pub fn put(&self, key: &K::Key, value: &K::Value) -> Result<bool> {
        K::validate(key, Some(value))?;
        self.timed_write(|| self.engine.put(key, value, self.how))
    }

    /// Removes a key; true if it was there.
    pub fn delete(&self, key: &K::Key) -> Result<bool> {
        K::validate(key, None)?;
        self.timed_write(|| self.engine.delete(key, self.how))
    }

    /// Every write that waits for a sync is timed, of the others some.
    fn timed_write<T>(&self, write: impl FnOnce() -> pmem::Result<T>) -> Result<T> {
        Ok(match self.has_syncs && self.how.sync {
            true => self.latencies.each(Timed::Write, write),
            false => self.latencies.sample(Timed::Write, write),
        }?)
    }

    /// The values of many keys, in their order; `None` for an absent one. The lookups overlap, which takes a fraction of the time
    /// of as many calls of [`StoreOf::get`] when the index is larger than the processor's cache.
    pub fn get_many(&self, keys: &[&K::Key]) -> Result<Vec<Option<K::ValueBuf>>> {
        let mut values = Vec::with_capacity(keys.len());
        self.get_each(keys, |value| {
            values.push(value);
            true
        })?;
        Ok(values)
    }

    /// As [`StoreOf::get_many`], one value after the other, until `give` returns false: for values that together would be too much.
    pub fn get_each(
        &self,
        keys: &[&K::Key],
        mut give: impl FnMut(Option<K::ValueBuf>) -> bool,
    ) -> Result<()> {
        keys.iter().try_for_each(|key| K::validate(key, None))?;
        Ok(self.engine.get_each(keys, &mut give)?)
    }

    /// Lets the processor bring in what reads of these keys will touch: for those who know the keys and want the values one by one.
    pub fn prefetch(&self, keys: &[&K::Key]) {
        self.engine.prefetch(keys);
    }

    /// Carries out many writes, in their order where they are of one key, and says of each whether its key was there. They
    /// share lookups, fences and commits, and all are durable when this returns; but each is whole or absent by itself
    /// after a crash before that; [`StoreOf::batch`] makes them one.
    pub fn write_many(&self, writes: &[Write<'_, K::Key, K::Value>]) -> Result<Vec<bool>> {
        writes.iter().try_for_each(|write| match write {
            Write::Put(key, value) => K::validate(key, Some(value)),
            Write::Delete(key) => K::validate(key, None),
        })?;
        Ok(self.engine.write_many(writes, self.how)?)
    }

    /// Stores many values; says of each whether one was replaced. See [`StoreOf::write_many`].
    pub fn put_many(&self, pairs: &[(&K::Key, &K::Value)]) -> Result<Vec<bool>> {
        self.write_many(&pairs.iter().map(|(key, value)| Write::Put(*key, *value)).collect::<Vec<_>>())
    }

    /// Removes many keys; says of each whether it was there. See [`StoreOf::write_many`].
    pub fn delete_many(&self, keys: &[&K::Key]) -> Result<Vec<bool>> {
        self.write_many(&keys.iter().map(|key| Write::Delete(*key)).collect::<Vec<_>>())
    }

    pub(crate) fn commit_batch(&self, writes: Vec<KeyValue<K>>, required: &[KeyValue<K>]) -> Result<bool> {
        Ok(self.engine.batch(writes, required, self.how)?)
    }

    /// Reads and changes one key in one step: `decide` sees the current value, and no other write comes between.
    /// It may be called again if the first attempt had to make space; it must not use the store.
    pub fn update(
        &self,
        key: &K::Key,
        mut decide: impl FnMut(Option<&K::Value>) -> Change<'static, K::Value>,
    ) -> Result<()> {
        K::validate(key, None)?;
        let mut refused = None;
        let mut decide = |old: Option<&K::Value>| match decide(old) {
            Change::Put(value) => match K::validate(key, Some(value.as_ref())) {
                Ok(()) => Change::Put(value),
                Err(error) => {
                    refused = Some(error);
                    Change::Keep
                }
            },
            other => other,
        };
        self.timed_write(|| self.engine.update(key, &mut decide, self.how))?;
        refused.map_or(Ok(()), |length| Err(length.into()))
    }

    /// Stores a value if the key is absent; true if it was stored.
    pub fn put_if_absent(&self, key: &K::Key, value: &K::Value) -> Result<bool> {
        self.compare_and_swap(key, None, Some(value))
    }

    /// Replaces `expected` by `new` (`None` stands for "absent"); true if the key held what was expected.
    pub fn compare_and_swap(
        &self,
        key: &K::Key,
        expected: Option<&K::Value>,
        new: Option<&K::Value>,
    ) -> Result<bool> {
        K::validate(key, new)?;
        let mut swapped = false;
        let mut decide = |old: Option<&K::Value>| {
            swapped = old == expected;
            match (swapped, new) {
                (false, _) => Change::Keep,
                (true, Some(value)) => Change::Put(Cow::Owned(value.to_owned())),
                (true, None) => Change::Delete,
            }
        };
        self.timed_write(|| self.engine.update(key, &mut decide, self.how))?;
        Ok(swapped)
    }

    /// The pairs whose keys lie in `range`, in key order; `.descending()` turns it round. An engine without order
    /// ([`Capabilities::ordered`]) says so at the first step: see [`StoreOf::walk`].
    ///
    /// A scan sees every key that was there throughout exactly once, whatever is written meanwhile, and all or nothing of every
    /// [`Batch`](crate::Batch): all if it was committed before the first step.
    pub fn scan(&self, range: impl RangeBounds<K::KeyBuf>) -> Scan<'_, K> {
        Scan::over(self.engine.cursor(), &range)
    }

    /// All pairs, in whatever order the engine has them: of an ordered one, as [`StoreOf::scan`] does. What is said there of writes
    /// beside it is true here too.
    pub fn walk(&self) -> Scan<'_, K> {
        Scan::walk(self.engine.cursor(), None)
    }

    /// The pairs that a walk meets behind this key, which need not be there any more.
    pub fn walk_behind(&self, key: &K::Key) -> Scan<'_, K> {
        Scan::walk(self.engine.cursor(), Some(K::own_key(key)))
    }

    /// The smallest key and its value.
    pub fn first(&self) -> Result<Option<(K::KeyBuf, K::ValueBuf)>> {
        self.scan(..).next().transpose()
    }

    /// The largest key and its value.
    pub fn last(&self) -> Result<Option<(K::KeyBuf, K::ValueBuf)>> {
        self.scan(..).descending().next().transpose()
    }

    /// Number of keys, durable or not; exact, unless they are still being counted in the background after a crash.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> Count {
        self.engine.len()
    }

    /// Number of keys, durable or not. If they are being counted, this counts the rest.
    ///
    /// # Errors
    /// `Pmem` if a node is damaged.
    pub fn count(&self) -> Result<u64> {
        self.engine.count()
    }

    /// Makes everything acknowledged survive the machine, as far as the medium can. If that fails, later writes are refused.
    pub fn sync(&self) -> Result<()> {
        self.engine.sync()
    }

    /// Verifies everything: structure, order, checksums, ownership of every block.
    pub fn check(&self) -> Result<CheckReport> {
        Ok(self.engine.check())
    }

    /// What the store is, its sizes and counts, and how long operations took since it was opened. Takes no look at the region:
    /// for what is in use of that see [`StoreOf::space`].
    pub fn stats(&self) -> Stats {
        Stats { latency: self.latencies.stats(), ..self.engine.stats() }
    }

    /// What the region's bytes are used for. The head of every chunk of 256 KiB is looked at, beside readers and writers; those of a
    /// file that was just opened are read from its disk.
    pub fn space(&self) -> Space {
        self.engine.space()
    }

    /// Removes every key.
    pub fn clear(&self) -> Result<()> {
        Ok(self.engine.clear()?)
    }

    /// Closes cleanly. Other clones stay readable; their writes are refused, even if it fails. Dropping the last clone does
    /// the same.
    pub fn close(&self) -> Result<()> {
        self.engine.close()
    }
}

#[allow(clippy::missing_errors_doc)]
impl<K: registry::Open> StoreOf<K> {
    /// Makes a store in `dir` that holds this one as of one moment after the call began: every write acknowledged before is
    /// there, and if a write that was made meanwhile is, so is every write acknowledged before it began. It is found as after a
    /// clean close, and may be copied back, or backed up to, where the store should be again.
    ///
    /// Readers and writers go on: the pairs come from a [`StoreOf::snapshot`], and bound by
    /// [`Options::snapshot_bytes`](crate::Options::snapshot_bytes) as that is. A store with named versions is copied as it stands, so that
    /// they are kept; its writers may wait meanwhile. `progress` gets how many keys (of such a store: bytes) are copied, and of how
    /// many. The backup has a journal if the store has one; on another kind of file system, if a new store there would have one.
    ///
    /// `progress` must not write to the store: that may be what waits for it.
    ///
    /// `dir` does not exist or is empty. Nothing in it looks like a store until all of it is durable; if anything fails, what was
    /// made is removed, and this store is as it was.
    pub fn backup(&self, dir: impl AsRef<Path>, progress: impl Fn(u64, u64)) -> Result<Backup> {
        backup::of_engine(&self.engine, dir.as_ref(), &progress)
    }
}

impl Store {
    /// The pairs whose keys start with `prefix`, in key order.
    pub fn scan_prefix(&self, prefix: &[u8]) -> Scan<'_, Bytes> {
        self.scan(prefix_range(prefix))
    }
}

/// The range of the keys that start with `prefix`.
pub fn prefix_range(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    // The first key behind all of them: the prefix with its last byte below 255 raised and the rest cut off.
    let mut end = prefix.to_vec();
    while end.last() == Some(&255) {
        end.pop();
    }
    let high = match end.last_mut() {
        Some(last) => {
            *last += 1;
            Bound::Excluded(end)
        }
        None => Bound::Unbounded,
    };
    (Bound::Included(prefix.to_vec()), high)
}

enum ScanState {
    Unplaced,
    Placed,
    Ended,
}

/// An iterator over pairs in key order. See [`StoreOf::scan`].
pub struct Scan<'a, K: Kind> {
    cursor: Box<dyn Cursor<K> + 'a>,
    low: Bound<K::KeyBuf>,
    high: Bound<K::KeyBuf>,
    descending: bool,
    /// In the engine's own order, behind this key.
    walks: Option<Option<K::KeyBuf>>,
    state: ScanState,
}

impl<'a, K: Kind> Scan<'a, K> {
    pub(crate) fn over(cursor: Box<dyn Cursor<K> + 'a>, range: &impl RangeBounds<K::KeyBuf>) -> Self {
        Self {
            cursor,
            low: range.start_bound().cloned(),
            high: range.end_bound().cloned(),
            descending: false,
            walks: None,
            state: ScanState::Unplaced,
        }
    }

    pub(crate) fn walk(cursor: Box<dyn Cursor<K> + 'a>, behind: Option<K::KeyBuf>) -> Self {
        Self { walks: Some(behind), ..Self::over(cursor, &..) }
    }

    /// The same range from its end, largest key first.
    #[must_use]
    pub fn descending(mut self) -> Self {
        self.descending = true;
        self.walks = None;
        self.state = ScanState::Unplaced;
        self
    }

    /// Moves on, reusing the caller's buffers; false at the end.
    ///
    /// # Errors
    /// `Pmem` for a corrupt store, `Unordered` for an engine without order.
    pub fn next_into(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool> {
        if let ScanState::Ended = self.state {
            return Ok(false);
        }
        if let ScanState::Unplaced = self.state {
            match &self.walks {
                Some(behind) => self.cursor.walk(behind.as_ref().map(K::key))?,
                None => {
                    let from = if self.descending { &self.high } else { &self.low };
                    self.cursor.seek(from.as_ref().map(K::key), self.descending)?;
                }
            }
            self.state = ScanState::Placed;
        }
        let inside = self.cursor.next(key, value)? && {
            let key = K::key(key);
            match if self.descending { &self.low } else { &self.high } {
                Bound::Unbounded => true,
                Bound::Included(end) if self.descending => key >= K::key(end),
                Bound::Excluded(end) if self.descending => key > K::key(end),
                Bound::Included(end) => key <= K::key(end),
                Bound::Excluded(end) => key < K::key(end),
            }
        };
        if !inside {
            self.state = ScanState::Ended;
        }
        Ok(inside)
    }
}

impl<K: Kind> Iterator for Scan<'_, K> {
    type Item = Result<(K::KeyBuf, K::ValueBuf)>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut key, mut value) = (K::KeyBuf::default(), K::ValueBuf::default());
        match self.next_into(&mut key, &mut value) {
            Ok(true) => Some(Ok((key, value))),
            Ok(false) => None,
            Err(error) => {
                self.state = ScanState::Ended;
                Some(Err(error))
            }
        }
    }
}
