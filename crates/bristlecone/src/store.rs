//! `Store`: a durable ordered map in a directory.

use std::borrow::Cow;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::Arc;

use ::index::engine::{Capabilities, Change, Count, Cursor, KeyValue};
use ::index::kind::{Bytes, Fixed, Kind, U64};
use ::index::{Index, Report as CheckReport, Write, WriteOptions};
use pmem::Journal;
use pmem::journal::Replay;

use crate::backup::{self, Backup};
use crate::durable_engine::Engine;
use crate::error::{Error, Result};
use crate::latency::{Latencies, Timed};
use crate::options::Options;
use crate::registry;
use crate::stats::{Space, Stats};

/// Number of keys that [`StoreOf::delete_range`] removes in one group.
const DELETED_TOGETHER: usize = 1000;
/// Maximum bytes of the buffer that [`Store::get_with`] keeps for the next call.
const KEPT_VALUE_BYTES: usize = 1 << 20;

/// A store of one kind of keys and values. A clone is cheap. Many threads can read while another thread writes.
pub struct StoreOf<K: Kind> {
    engine: Arc<Engine<K>>,
    /// The table of this handle; all keys if the store has no tables.
    index: Arc<dyn Index<K>>,
    how: WriteOptions,
    /// True if a commit is a sync. Then a write with sync waits for one.
    has_syncs: bool,
    latencies: Arc<Latencies>,
}

/// A store from byte strings to byte strings.
pub type Store = StoreOf<Bytes>;
/// A store from 64-bit integers to 64-bit integers.
pub type StoreU64 = StoreOf<U64>;
/// A store from 64-bit integers to bytes of one length. The values are inside the entries of 4 KiB nodes.
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
    /// Opens the store in directory `path`. Recovers it if it was not closed.
    ///
    /// # Errors
    /// The directory cannot be used; the file is foreign, damaged, of another format version, engine or kind, or in use; the engine is
    /// unknown or not compiled; an option is not valid; the file system is full; there is no store and [`Options::create`] is false. See
    /// [`crate::ErrorKind`].
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        Ok(Self::from_engine(K::open(path.as_ref(), &options)?))
    }

    /// Opens a store whose journal and data file are the caller's own implementation of files ([`pmem::journal::storage::Storage`]).
    /// `replay` is the result of opening the journal; `None` for new files.
    ///
    /// # Errors
    /// As [`StoreOf::open`].
    pub fn open_over(journal: Journal, replay: Option<Replay>, options: Options) -> Result<Self> {
        Ok(Self::from_engine(K::open_over(journal, replay, &options)?))
    }
}

/// Errors of every method: those of [`Engine`] and [`Kind::validate`].
#[allow(clippy::missing_errors_doc)]
impl<K: Kind> StoreOf<K> {
    pub(crate) fn engine(&self) -> &Engine<K> {
        &self.engine
    }

    pub(crate) fn latencies(&self) -> &Arc<Latencies> {
        &self.latencies
    }

    pub(crate) fn engine_shared(&self) -> Arc<Engine<K>> {
        Arc::clone(&self.engine)
    }

    /// Makes a store of an engine.
    pub fn from_engine(engine: Arc<Engine<K>>) -> Self {
        let (has_syncs, index) = (engine.commits_with_sync(), Arc::clone(engine.index()));
        Self { engine, index, how: WriteOptions::default(), has_syncs, latencies: Arc::default() }
    }

    /// The same store with other options for writes. Without sync, a write returns before it is durable.
    #[must_use]
    pub fn with(&self, how: WriteOptions) -> Self {
        Self { how, ..self.over(Arc::clone(&self.index)) }
    }

    /// A handle of another table of the same store.
    pub(crate) fn over(&self, index: Arc<dyn Index<K>>) -> Self {
        let (engine, latencies) = (Arc::clone(&self.engine), Arc::clone(&self.latencies));
        Self { engine, index, how: self.how, has_syncs: self.has_syncs, latencies }
    }

    pub(crate) fn index(&self) -> &Arc<dyn Index<K>> {
        &self.index
    }

    pub(crate) fn how(&self) -> WriteOptions {
        self.how
    }

    /// Makes all writes without sync durable. Does nothing where fences make writes durable: on persistent memory, on memory file systems,
    /// with process durability.
    pub fn commit(&self) -> Result<()> {
        if !self.has_syncs {
            return self.engine.commit();
        }
        self.latencies.each(Timed::Commit, || self.engine.commit())
    }

    /// True if every write was durable at the time of this call. Otherwise, a read blocks for one commit if the latest write of its key is
    /// not durable yet. A server calls this to decide whether to do other work first.
    pub fn is_quiet(&self) -> bool {
        self.engine.is_quiet()
    }

    /// The capabilities of the engine.
    pub fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    /// The value of `key`.
    pub fn get(&self, key: &K::Key) -> Result<Option<K::ValueBuf>> {
        let mut value = K::ValueBuf::default();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Copies the value of `key` into a buffer. False if the key is absent.
    pub fn get_into(&self, key: &K::Key, value: &mut K::ValueBuf) -> Result<bool> {
        K::validate(key, None)?;
        self.latencies.sample(Timed::Get, || self.index.get(key, Some(value)).map_err(Error::from))
    }

    /// True if the key is present.
    pub fn contains(&self, key: &K::Key) -> Result<bool> {
        K::validate(key, None)?;
        self.latencies.sample(Timed::Get, || self.index.get(key, None).map_err(Error::from))
    }

    /// Stores a value. True if the key was present.
    pub fn put(&self, key: &K::Key, value: &K::Value) -> Result<bool> {
        K::validate(key, Some(value))?;
        self.timed_write(|| self.index.put(key, value, self.how))
    }

    /// Stores a value, and does not tell whether the key was present. So an engine whose pages may be outside of memory (`bwtree` in files)
    /// need not read the key's page: this is much faster than [`StoreOf::put`] if the data is larger than memory. Then [`StoreOf::len`] is
    /// pending, and [`StoreOf::count`] counts all keys again. In other engines, and in a store with deadlines, it is `put`.
    pub fn set(&self, key: &K::Key, value: &K::Value) -> Result<()> {
        K::validate(key, Some(value))?;
        self.timed_write(|| self.index.set(key, Some(value), self.how)).map(drop)
    }

    /// Removes a key, and does not tell whether it was present: as [`StoreOf::set`].
    pub fn unset(&self, key: &K::Key) -> Result<()> {
        K::validate(key, None)?;
        self.timed_write(|| self.index.set(key, None, self.how)).map(drop)
    }

    /// Removes a key. True if the key was present.
    pub fn delete(&self, key: &K::Key) -> Result<bool> {
        K::validate(key, None)?;
        self.timed_write(|| self.index.delete(key, self.how))
    }

    /// Times every write that waits for a sync, and samples other writes.
    pub(crate) fn timed_write<T>(&self, write: impl FnOnce() -> pmem::Result<T>) -> Result<T> {
        Ok(match self.has_syncs && self.how.sync {
            true => self.latencies.each(Timed::Write, write),
            false => self.latencies.sample(Timed::Write, write),
        }?)
    }

    /// The values of many keys, in the order of `keys`; `None` for an absent key. The lookups advance together, so their cache misses
    /// overlap. If the index is larger than the processor's cache, this is several times faster than as many calls of [`StoreOf::get`].
    pub fn get_many(&self, keys: &[&K::Key]) -> Result<Vec<Option<K::ValueBuf>>> {
        let mut values = Vec::with_capacity(keys.len());
        self.get_each(keys, |value| {
            values.push(value);
            true
        })?;
        Ok(values)
    }

    /// As [`StoreOf::get_many`], but passes one value at a time to `give`, until `give` returns false. Use it if all values together would
    /// take too much memory.
    pub fn get_each(
        &self,
        keys: &[&K::Key],
        mut give: impl FnMut(Option<K::ValueBuf>) -> bool,
    ) -> Result<()> {
        keys.iter().try_for_each(|key| K::validate(key, None))?;
        Ok(self.index.get_each(keys, &mut give)?)
    }

    /// Applies many writes. True for each write whose key was present. Writes of one key apply in their order. The writes share lookups,
    /// fences and commits. All are durable when the call returns, unless this handle writes without sync ([`StoreOf::with`]). Each write is
    /// atomic by itself: after a crash before the return, some may be present and others not. [`StoreOf::batch`] makes several writes
    /// atomic together.
    pub fn write_many(&self, writes: &[Write<'_, K::Key, K::Value>]) -> Result<Vec<bool>> {
        writes.iter().try_for_each(|write| match write {
            Write::Put(key, value) => K::validate(key, Some(value)),
            Write::Delete(key) => K::validate(key, None),
        })?;
        Ok(self.index.write_many(writes, self.how)?)
    }

    /// Stores many values. True for each key that was present. See [`StoreOf::write_many`].
    pub fn put_many(&self, pairs: &[(&K::Key, &K::Value)]) -> Result<Vec<bool>> {
        self.write_many(&pairs.iter().map(|(key, value)| Write::Put(*key, *value)).collect::<Vec<_>>())
    }

    /// Removes many keys. True for each key that was present. See [`StoreOf::write_many`].
    pub fn delete_many(&self, keys: &[&K::Key]) -> Result<Vec<bool>> {
        self.write_many(&keys.iter().map(|key| Write::Delete(*key)).collect::<Vec<_>>())
    }

    pub(crate) fn commit_batch(&self, writes: Vec<KeyValue<K>>, required: &[KeyValue<K>]) -> Result<bool> {
        if required.is_empty() {
            self.index.set_batch(writes, self.how)?;
            return Ok(true);
        }
        Ok(self.index.batch(writes, required, self.how)?)
    }

    /// Reads and changes one key in one step: no other write takes effect between the read and the change. `decide` gets the current value.
    /// It may be called again, with the then current value: if the store had to make space, or if another write came first. Only the last
    /// call counts. `decide` must not use the store.
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
        self.timed_write(|| self.index.update(key, &mut decide, self.how))?;
        refused.map_or(Ok(()), |length| Err(length.into()))
    }

    /// Stores a value if the key is absent. True if it was stored.
    pub fn put_if_absent(&self, key: &K::Key, value: &K::Value) -> Result<bool> {
        self.compare_and_swap(key, None, Some(value))
    }

    /// Replaces `expected` by `new`; `None` means absent. True if the key had the expected value.
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
        self.timed_write(|| self.index.update(key, &mut decide, self.how))?;
        Ok(swapped)
    }

    /// The pairs whose keys are in `range`, in key order; [`Scan::descending`] reverses the order. An engine without key order
    /// ([`Capabilities::ordered`]) returns an error at the first step; use [`StoreOf::walk`] there.
    ///
    /// A scan returns every key that is present throughout exactly once, whatever other threads write. It sees all or none of each
    /// [`Batch`](crate::Batch): all if the batch was committed before the first step.
    pub fn scan(&self, range: impl RangeBounds<K::KeyBuf>) -> Scan<'_, K> {
        Scan::over(self.index.cursor(), &range)
    }

    /// All pairs, in the engine's own order; an ordered engine returns them in key order. The guarantees with concurrent writers are those
    /// of [`StoreOf::scan`].
    pub fn walk(&self) -> Scan<'_, K> {
        Scan::walk(self.index.cursor(), None)
    }

    /// The pairs that a walk returns after this key. The key itself may have been removed.
    pub fn walk_behind(&self, key: &K::Key) -> Scan<'_, K> {
        Scan::walk(self.index.cursor(), Some(K::own_key(key)))
    }

    /// The smallest key and its value.
    pub fn first(&self) -> Result<Option<(K::KeyBuf, K::ValueBuf)>> {
        self.scan(..).next().transpose()
    }

    /// The largest key and its value.
    pub fn last(&self) -> Result<Option<(K::KeyBuf, K::ValueBuf)>> {
        self.scan(..).descending().next().transpose()
    }

    /// Number of keys, durable or not. It is exact, unless the count after a crash is still running, or keys were [`set`](StoreOf::set).
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> Count {
        self.index.len()
    }

    /// Number of keys, durable or not. Finishes the count after a crash if it is still running. Counts again if keys were
    /// [`set`](StoreOf::set).
    ///
    /// # Errors
    /// `Pmem` if a node is damaged.
    pub fn count(&self) -> Result<u64> {
        self.index.count_all()?;
        Ok(self.index.len().keys)
    }

    /// True if there is no key. Reads at most one key, except that it passes over keys whose deadline has passed.
    pub fn is_empty(&self) -> Result<bool> {
        let (mut key, mut value) = (K::KeyBuf::default(), K::ValueBuf::default());
        Ok(!self.walk().next_into(&mut key, &mut value)?)
    }

    /// Removes the keys in a range, in groups. Returns their number. Not atomic: while the call runs, and after a crash, some of the keys
    /// are gone and others are present. Keys that other threads write during the call may stay.
    pub fn delete_range(&self, range: impl RangeBounds<K::KeyBuf>) -> Result<u64> {
        let high = range.end_bound().cloned();
        let (mut low, mut removed) = (range.start_bound().cloned(), 0);
        loop {
            let pairs = self.scan((low, high.clone())).take(DELETED_TOGETHER).collect::<Result<Vec<_>>>()?;
            let Some((last, _)) = pairs.last() else { return Ok(removed) };
            low = Bound::Excluded(last.clone());
            let keys: Vec<_> = pairs.iter().map(|(key, _)| K::key(key)).collect();
            removed += self.delete_many(&keys)?.into_iter().filter(|found| *found).count() as u64;
        }
    }

    /// Makes every acknowledged write survive a power cut, as far as the medium can. If this fails, later writes are refused.
    pub fn sync(&self) -> Result<()> {
        self.engine.sync()
    }

    /// Checks everything: structure, order, checksums, ownership of every block. Takes time linear in the size of the region.
    pub fn check(&self) -> Result<CheckReport> {
        Ok(self.engine.check())
    }

    /// Description, sizes, counts, and latencies since the open. Does not read the region; [`StoreOf::space`] shows how its bytes are used.
    pub fn stats(&self) -> Stats {
        Stats { latency: self.latencies.stats(), ..self.engine.stats() }
    }

    /// Use of the region's bytes. Reads the head of every chunk of 256 KiB, while reads and writes go on. For a file that was just opened,
    /// the heads come from the disk.
    pub fn space(&self) -> Space {
        self.engine.space()
    }

    /// Removes every key.
    pub fn clear(&self) -> Result<()> {
        self.index.clear()?;
        // The maintenance thread frees the blocks.
        self.engine.start_maintenance();
        Ok(())
    }

    /// Closes the store cleanly. Other clones can still read. Their writes are refused, even if the close fails. Dropping the last clone
    /// closes the store too.
    pub fn close(&self) -> Result<()> {
        self.engine.close()
    }
}

#[allow(clippy::missing_errors_doc)]
impl<K: registry::Open> StoreOf<K> {
    /// Makes a store in `dir` with the state of this store at one moment after the call began. It has every write that was acknowledged
    /// before the call. If it has a later write, it has every write that was acknowledged before that one began. The backup opens as after
    /// a clean close. To restore it, copy it back, or back it up to the store's directory.
    ///
    /// Readers and writers go on, because the pairs come from a [`StoreOf::snapshot`]. The bound
    /// [`Options::snapshot_bytes`](crate::Options::snapshot_bytes) applies. A store with named versions is copied byte by byte, so that the
    /// versions are kept; its writers may wait meanwhile. `progress` gets the number of copied keys and of all keys (for such a store:
    /// bytes). The backup has a journal if the store has one. On another kind of file system, it has a journal if a new store there would
    /// have one.
    ///
    /// `progress` must not write to the store. Such a write could wait for the backup.
    ///
    /// `dir` must not exist, or must be empty. Nothing in it looks like a store before all of it is durable. If anything fails, the
    /// incomplete backup is removed, and this store is unchanged.
    pub fn backup(&self, dir: impl AsRef<Path>, progress: impl Fn(u64, u64)) -> Result<Backup> {
        backup::of_engine(&self.engine, dir.as_ref(), &progress)
    }
}

thread_local! {
    /// The buffer of [`Store::get_with`].
    static VALUE: std::cell::Cell<Vec<u8>> = const { std::cell::Cell::new(Vec::new()) };
}

impl Store {
    /// Passes the value of `key` to `read`, without an allocation for each call. `None` if the key is absent.
    ///
    /// # Errors
    /// As [`StoreOf::get`].
    pub fn get_with<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        // A call within `read` gets a new buffer.
        let mut value = VALUE.take();
        let found = self.get_into(key, &mut value);
        let result = found.map(|found| found.then(|| read(&value)));
        if value.capacity() <= KEPT_VALUE_BYTES {
            VALUE.set(value);
        }
        result
    }

    /// The pairs whose keys start with `prefix`, in key order.
    pub fn scan_prefix(&self, prefix: &[u8]) -> Scan<'_, Bytes> {
        self.scan(prefix_range(prefix))
    }
}

/// The range of the keys that start with `prefix`.
pub fn prefix_range(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    // The end is the first key after all of them: cut trailing bytes of 255, then add one to the last byte.
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

/// True if a key is not behind the end of a range, in the direction of the scan.
fn is_before_end<K: Kind>(
    key: &K::Key,
    low: &Bound<K::KeyBuf>,
    high: &Bound<K::KeyBuf>,
    descending: bool,
) -> bool {
    match if descending { low } else { high } {
        Bound::Unbounded => true,
        Bound::Included(end) if descending => key >= K::key(end),
        Bound::Excluded(end) if descending => key > K::key(end),
        Bound::Included(end) => key <= K::key(end),
        Bound::Excluded(end) => key < K::key(end),
    }
}

/// An iterator over pairs in a range. See [`StoreOf::scan`] and [`StoreOf::walk`].
pub struct Scan<'a, K: Kind> {
    cursor: Box<dyn Cursor<K> + 'a>,
    low: Bound<K::KeyBuf>,
    high: Bound<K::KeyBuf>,
    descending: bool,
    /// `Some` for a walk in the engine's own order. It starts after the inner key, or at the beginning.
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

    /// The same range in descending order.
    #[must_use]
    pub fn descending(mut self) -> Self {
        self.descending = true;
        self.walks = None;
        self.state = ScanState::Unplaced;
        self
    }

    /// Moves to the next pair and copies it into the caller's buffers. False at the end.
    ///
    /// # Errors
    /// `Pmem` if the store is corrupt; `Unordered` if the engine has no key order.
    pub fn next_into(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool> {
        if !self.begin()? {
            return Ok(false);
        }
        let is_inside = self.cursor.next(key, value)?
            && is_before_end::<K>(K::key(key), &self.low, &self.high, self.descending);
        if !is_inside {
            self.state = ScanState::Ended;
        }
        Ok(is_inside)
    }

    /// Calls `with` with the next pairs, as long as it returns true. The next call continues behind the last of them. An engine may lend
    /// its own bytes, without copies: with `bwtree` this is nearly twice as fast as [`Scan::next_into`]. Then it reads up to 32 pairs
    /// together, and frees no memory while `with` runs, so `with` should not wait.
    ///
    /// # Errors
    /// As [`Scan::next_into`].
    pub fn visit(&mut self, mut with: impl FnMut(&K::Key, &K::Value) -> bool) -> Result<()> {
        if !self.begin()? {
            return Ok(());
        }
        let (low, high, descending) = (&self.low, &self.high, self.descending);
        let mut is_inside = true;
        let is_stopped = self.cursor.visit(&mut |key, value| {
            is_inside = is_before_end::<K>(key, low, high, descending);
            is_inside && with(key, value)
        })?;
        if !(is_stopped && is_inside) {
            self.state = ScanState::Ended;
        }
        Ok(())
    }

    /// Places the cursor, if it has no place. False if the scan has ended.
    fn begin(&mut self) -> Result<bool> {
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
        Ok(!matches!(self.state, ScanState::Ended))
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
