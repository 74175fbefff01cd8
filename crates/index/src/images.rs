//! Before-images: the values that writes replaced, kept in volatile memory for the readers that may still ask for them.
//!
//! Three kinds of readers ask. A get beside a running batch reads the values from before the batch. A scan that began before a batch
//! ended reads on without that batch. A snapshot reads the store as it was when the snapshot was opened.
//!
//! Images are kept in *segments*. A segment holds the images of a span of time; each view is anchored at the segment that was the
//! newest one when the view was made. The value of a key in a view is its image in the first segment, from the anchor on, that has one;
//! without an image it is the value in the index. A segment that no view is anchored at is merged into the segment before it, or dropped
//! if there is none. So memory grows with the keys that changed, not with the number of changes.
//!
//! Scans and snapshots look images up one by one, in key order: no reader copies more than the image that it gives out.
//!
//! Memory is bounded by [`Images::set_limit`]. At the bound the oldest segment is dropped and its views fail with
//! [`Error::SnapshotBytes`]. A scan fails as a snapshot does: to go on with the present would show half of a batch. The images of the
//! running batch itself are exempt from the bound until the batch ends; a batch's record bounds them.
//!
//! A reader validates what it read of the index, then asks for images. Gets without a running batch, scans without a batch since
//! their begin, and snapshots without a write since they were opened take no lock here. The others take a read lock for each
//! lookup. The writer takes the write lock to insert, and for at most [`INSERTED`] images at a time.
//!
//! Invariants:
//! * B1: an image is inserted before its key changes in the index; a reader that sees the change sees the image.
//! * B2: one writer inserts at a time: it holds the index's writer lock. A snapshot is opened under this lock.
//! * B3: of one key, within a segment, the image of a single write is older than the image of a batch.
//! * B4: the newest segment is the one that new views are anchored at; it is never merged or removed. A batch that ends begins a new one.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError};

use arc_swap::ArcSwap;
use pmem::canary::{Canary, sings};
use pmem::sync::{AtomicBool, AtomicU64, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard, step};
use pmem::{Error, Result};

use crate::schema::Schema;

/// A key and its value; none if it is absent, or is to be.
pub type Pair<S> = (<S as Schema>::KeyBuf, Option<<S as Schema>::ValueBuf>);

/// Bytes of before-images that are kept by default.
pub const SNAPSHOT_BYTES: u64 = 256 << 20;
/// Images of a batch that are inserted under one hold of the lock.
pub const INSERTED: usize = 256;
/// Bytes of an image beside those of its key and value: about what a node of the map and two allocations take.
const IMAGE_BYTES: u64 = 96;

/// Images of one kind, by key.
struct Layer<S: Schema> {
    images: BTreeMap<S::KeyBuf, Option<S::ValueBuf>>,
    /// Bytes that they count.
    bytes: u64,
}

impl<S: Schema> Default for Layer<S> {
    fn default() -> Self {
        Self { images: BTreeMap::new(), bytes: 0 }
    }
}

impl<S: Schema> Layer<S> {
    /// Bytes that an image counts.
    fn bytes_of(key: &S::KeyBuf, old: Option<&S::ValueBuf>) -> u64 {
        let value = old.map_or(0, |old| S::value_bytes(S::borrow_value(old)).as_ref().len());
        IMAGE_BYTES + (S::key_bytes(S::borrow(key)).as_ref().len() + value) as u64
    }

    /// Adds the image of a key that has none here.
    fn insert(&mut self, key: S::KeyBuf, old: Option<S::ValueBuf>) {
        self.bytes += Self::bytes_of(&key, old.as_ref());
        self.images.insert(key, old);
    }

    /// The first key behind a bound.
    fn next_key(&self, behind: &Bound<S::KeyBuf>, descending: bool) -> Option<&S::KeyBuf> {
        let behind = behind.as_ref();
        let found = if descending {
            self.images.range((Bound::Unbounded, behind)).next_back()
        } else {
            self.images.range((behind, Bound::Unbounded)).next()
        };
        found.map(|(key, _)| key)
    }

    /// Takes in the images of a later span; of a key in both the earlier image stays. Returns the others. Costs the smaller of the two.
    fn merge(&mut self, mut later: Self) -> Self {
        let mut spare = Self::default();
        if self.images.len() >= later.images.len() {
            for (key, old) in later.images {
                let is_spare = self.images.contains_key(&key);
                if is_spare { &mut spare } else { &mut *self }.insert(key, old);
            }
            return spare;
        }
        std::mem::swap(self, &mut later);
        for (key, old) in later.images {
            if let Some((key, newer)) = self.images.remove_entry(&key) {
                self.bytes -= Self::bytes_of(&key, newer.as_ref());
                spare.insert(key, newer);
            }
            self.insert(key, old);
        }
        spare
    }
}

/// Where a view is anchored. A view holds a count of it.
#[derive(Debug)]
struct Anchor {
    /// Number of the segment.
    segment: u64,
    /// Snapshots that are anchored here and have not failed. Changed under the write lock.
    snapshots: AtomicU64,
    /// Images that snapshots need were dropped.
    fails_snapshots: AtomicBool,
    /// Images that scans need were dropped.
    fails_scans: AtomicBool,
}

impl Anchor {
    fn new(segment: u64) -> Arc<Self> {
        let [fails_snapshots, fails_scans] = [false; 2].map(AtomicBool::new);
        Arc::new(Self { segment, snapshots: AtomicU64::new(0), fails_snapshots, fails_scans })
    }

    fn snapshots(&self) -> u64 {
        self.snapshots.load(Ordering::Relaxed)
    }
}

/// The images of a span of time.
struct Segment<S: Schema> {
    anchor: Arc<Anchor>,
    /// Images of writes by themselves: snapshots alone need them.
    singles: Layer<S>,
    /// Images of batches.
    batched: Layer<S>,
}

impl<S: Schema> Segment<S> {
    fn new(anchor: Arc<Anchor>) -> Self {
        Self { anchor, singles: Layer::default(), batched: Layer::default() }
    }

    fn bytes(&self) -> u64 {
        self.singles.bytes + self.batched.bytes
    }

    /// True if no view can read it any more. A new view is anchored at the newest segment only.
    fn is_left(&self) -> bool {
        let [fails_snapshots, fails_scans] = [&self.anchor.fails_snapshots, &self.anchor.fails_scans]
            .map(|fails| fails.load(Ordering::Relaxed));
        Arc::strong_count(&self.anchor) == 1 || (fails_snapshots && fails_scans)
    }

    /// The image of a key for a snapshot, or for a scan (B3).
    fn image(&self, key: &S::KeyBuf, of: Reader) -> Option<&Option<S::ValueBuf>> {
        let single = (of == Reader::Snapshot).then(|| self.singles.images.get(key)).flatten();
        single.or_else(|| self.batched.images.get(key))
    }

    /// The first key with an image behind a bound, in the direction of a scan.
    fn next_key(&self, behind: &Bound<S::KeyBuf>, descending: bool, of: Reader) -> Option<&S::KeyBuf> {
        let single = (of == Reader::Snapshot).then(|| self.singles.next_key(behind, descending)).flatten();
        nearer(single, self.batched.next_key(behind, descending), descending)
    }

    /// Takes in the images of the segment that follows: the oldest image of a key stays. Returns the others.
    fn merge(&mut self, mut later: Self) -> Self {
        let mut hidden = Layer::default();
        // A single write behind a batch would break B3, and no snapshot reads its image.
        let is_hidden = |key: &S::KeyBuf| self.batched.images.contains_key(key);
        if !self.batched.images.is_empty() && later.singles.images.keys().any(is_hidden) {
            for (key, old) in std::mem::take(&mut later.singles).images {
                if is_hidden(&key) { &mut hidden } else { &mut later.singles }.insert(key, old);
            }
        }
        let mut singles = self.singles.merge(later.singles);
        singles.merge(hidden);
        let batched = self.batched.merge(later.batched);
        Self { anchor: later.anchor, singles, batched }
    }
}

/// Of two keys the one that a scan comes to first.
fn nearer<K: Ord>(one: Option<K>, other: Option<K>, descending: bool) -> Option<K> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if (one < other) != descending { one } else { other }),
        (one, other) => one.or(other),
    }
}

/// All segments, by their numbers.
struct Table<S: Schema> {
    segments: BTreeMap<u64, Segment<S>>,
}

impl<S: Schema> Table<S> {
    /// Number of the newest segment (B4).
    fn newest(&self) -> u64 {
        self.segments.last_key_value().map_or(0, |(number, _)| *number)
    }

    /// Number of the newest segment that a live snapshot is anchored at.
    fn newest_snapshot(&self) -> Option<u64> {
        self.segments
            .iter()
            .rev()
            .find(|(_, segment)| segment.anchor.snapshots() > 0)
            .map(|(number, _)| *number)
    }

    /// The image of a key for a view of segment `from`.
    fn image(&self, from: u64, key: &S::KeyBuf, of: Reader) -> Option<&Option<S::ValueBuf>> {
        self.segments.range(from..).find_map(|(_, segment)| segment.image(key, of))
    }

    fn next_key(
        &self,
        from: u64,
        behind: &Bound<S::KeyBuf>,
        descending: bool,
        of: Reader,
    ) -> Option<&S::KeyBuf> {
        let keys = self.segments.range(from..).map(|(_, segment)| segment.next_key(behind, descending, of));
        keys.fold(None, |nearest, key| nearer(nearest, key, descending))
    }
}

/// What reads through a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// Sees single writes as they come, and no batch that ended after its begin.
    Scan,
    /// Sees no write since it was opened.
    Snapshot,
}

/// What before-images take, and what readers asked for. Counts since the index was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes of the images that are kept.
    pub bytes: u64,
    /// Images that are kept.
    pub images: u64,
    /// Images that were copied out for readers.
    pub copied: u64,
    /// Snapshots that are open and have not failed, a scan of a snapshot counted as another one.
    pub snapshots: u64,
}

/// The before-images of an index.
pub struct Images<S: Schema> {
    /// Anchor of the newest segment.
    newest: ArcSwap<Anchor>,
    table: RwLock<Table<S>>,
    /// Number of the newest segment that got images of a batch; 0 none.
    batched: AtomicU64,
    /// Number of the running batch's segment; 0 none.
    running: AtomicU64,
    /// Live snapshots. Grows under the writer's lock.
    snapshots: AtomicU64,
    /// Moves on with every insertion.
    changes: AtomicU64,
    bytes: AtomicU64,
    limit: AtomicU64,
    copied: AtomicU64,
}

impl<S: Schema> Default for Images<S> {
    fn default() -> Self {
        let first = Anchor::new(1);
        let segments = BTreeMap::from([(1, Segment::new(Arc::clone(&first)))]);
        let [batched, running, snapshots, changes, bytes, copied] = [0; 6].map(AtomicU64::new);
        let limit = AtomicU64::new(SNAPSHOT_BYTES);
        let (newest, table) = (ArcSwap::new(first), RwLock::new(Table { segments }));
        Self { newest, table, batched, running, snapshots, changes, bytes, limit, copied }
    }
}

impl<S: Schema> Images<S> {
    fn read(&self) -> RwLockReadGuard<'_, Table<S>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table<S>> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the bound of memory for images, in bytes.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// What is kept. Walks over the segments, not over their images.
    pub fn held(&self) -> Held {
        let table = self.read();
        let count = |segment: &Segment<S>| segment.singles.images.len() + segment.batched.images.len();
        Held {
            bytes: self.bytes.load(Ordering::Relaxed),
            images: table.segments.values().map(count).sum::<usize>() as u64,
            copied: self.copied.load(Ordering::Relaxed),
            snapshots: self.snapshots.load(Ordering::Relaxed),
        }
    }

    /// True if single writes have to be saved. The writer's lock is held.
    #[inline(always)]
    pub fn saves(&self) -> bool {
        self.snapshots.load(Ordering::Relaxed) > 0
    }

    /// A key is about to be changed by itself (B1): keeps its value for the snapshots that have none of it yet. The writer's lock is
    /// held.
    ///
    /// # Errors
    /// What `now` says, which reads the key's value.
    pub fn save(&self, key: &S::Key, now: impl FnOnce() -> Result<Option<S::ValueBuf>>) -> Result<()> {
        let key = own::<S>(key);
        let is_needed = {
            let table = self.read();
            let since = table.newest_snapshot();
            since.is_some_and(|since| table.image(since, &key, Reader::Snapshot).is_none())
        };
        if !is_needed {
            return Ok(());
        }
        let old = now()?;
        let mut table = self.write();
        let newest = table.newest();
        if let Some(segment) = table.segments.get_mut(&newest) {
            let before = segment.bytes();
            segment.singles.insert(key, old);
            self.note(segment.bytes() - before);
        }
        let spare = self.keep_bound(&mut table);
        drop(table);
        drop(spare);
        Ok(())
    }

    /// A batch is about to change its first key (B1); its keys, ascending, as they are. The writer's lock is held.
    pub fn begin(&self, pairs: Vec<Pair<S>>) {
        step();
        let mut pairs = pairs.into_iter().peekable();
        let newest = self.read().newest();
        while pairs.peek().is_some() {
            let mut table = self.write();
            if let Some(segment) = table.segments.get_mut(&newest) {
                let before = segment.bytes();
                pairs.by_ref().take(INSERTED).for_each(|(key, old)| segment.batched.insert(key, old));
                self.note(segment.bytes() - before);
            }
        }
        self.batched.store(newest, Ordering::Release);
        self.running.store(newest, Ordering::Release);
    }

    /// The running batch, if there is one, has changed its last key, or was taken back. The writer's lock is held.
    pub fn end(&self) {
        if self.running.load(Ordering::Relaxed) == 0 {
            return;
        }
        step();
        let mut table = self.write();
        // In this order, under the lock: a get that finds the batch running waits for the lock and asks again.
        self.begin_segment(&mut table);
        self.running.store(0, Ordering::Release);
        let spare = self.sweep(&mut table);
        let dropped = self.keep_bound(&mut table);
        drop(table);
        drop((spare, dropped));
    }

    /// True while a batch runs. To be asked after what was read is validated.
    #[inline(always)]
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire) != 0 && !sings(Canary::Batches)
    }

    /// What a key was before the running batch, if it is one of that: whether it was there, and its value.
    #[cold]
    pub fn before(&self, key: &S::Key, value: Option<&mut S::ValueBuf>) -> Option<bool> {
        step();
        let table = self.read();
        let running = self.running.load(Ordering::Relaxed);
        let old = table.segments.get(&running)?.batched.images.get(&own::<S>(key))?;
        if let (Some(value), Some(old)) = (value, old) {
            self.copied.fetch_add(1, Ordering::Relaxed);
            value.clone_from(old);
        }
        Some(old.is_some())
    }

    /// The index as it is now, but for what single writes change. It costs one atomic count.
    pub fn view(&self) -> View<'_, S> {
        step();
        View::new(self, self.newest.load_full(), Reader::Scan)
    }

    /// The index as it is now. The writer's lock is held.
    pub(crate) fn snapshot(&self) -> View<'_, S> {
        let mut table = self.write();
        let newest = table.segments.last_key_value().map(|(_, segment)| segment);
        let is_fresh = newest.is_some_and(|newest| {
            newest.bytes() == 0 && !newest.anchor.fails_snapshots.load(Ordering::Relaxed)
        });
        // Of a batch that failed halfway the values before it are what is seen.
        if !is_fresh && self.running.load(Ordering::Relaxed) == 0 {
            self.begin_segment(&mut table);
        }
        let anchor = self.newest.load_full();
        self.count_snapshot(&anchor);
        drop(table);
        View::new(self, anchor, Reader::Snapshot)
    }

    /// A snapshot is anchored here. The write lock is held.
    fn count_snapshot(&self, anchor: &Anchor) {
        if !anchor.fails_snapshots.load(Ordering::Relaxed) {
            anchor.snapshots.fetch_add(1, Ordering::Relaxed);
            self.snapshots.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A snapshot leaves.
    fn leave(&self, anchor: &Anchor) {
        let _table = self.write();
        if !anchor.fails_snapshots.load(Ordering::Relaxed) {
            anchor.snapshots.fetch_sub(1, Ordering::Relaxed);
            self.snapshots.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Images of so many bytes are inserted. The write lock is held.
    fn note(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Release);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// These images are dropped. A reader that sees that they are gone sees that its view failed.
    fn forget(&self, spare: &Segment<S>) {
        self.bytes.fetch_sub(spare.bytes(), Ordering::Release);
    }

    /// Views that come are anchored at a new segment (B4).
    fn begin_segment(&self, table: &mut Table<S>) {
        let number = table.newest() + 1;
        let anchor = Anchor::new(number);
        table.segments.insert(number, Segment::new(Arc::clone(&anchor)));
        self.newest.store(anchor);
    }

    /// Takes out the segments that no view is anchored at, and the images that no view needs. They are dropped without the lock.
    #[must_use]
    fn sweep(&self, table: &mut Table<S>) -> Vec<Segment<S>> {
        let mut spare = Vec::new();
        let newest = table.newest();
        let left = table.segments.range(..newest).filter(|(_, segment)| segment.is_left());
        let left: Vec<u64> = left.map(|(number, _)| *number).collect();
        for number in left {
            let Some(segment) = table.segments.remove(&number) else { continue };
            spare.push(match table.segments.range_mut(..number).next_back() {
                Some((_, earlier)) => earlier.merge(segment),
                None => segment,
            });
        }
        for segment in table.segments.values_mut() {
            if segment.anchor.snapshots() > 0 {
                break;
            }
            if segment.singles.bytes > 0 {
                let mut stripped = Segment::new(Arc::clone(&segment.anchor));
                std::mem::swap(&mut stripped.singles, &mut segment.singles);
                spare.push(stripped);
            }
        }
        spare.iter().for_each(|spare| self.forget(spare));
        spare
    }

    /// Drops the oldest images, and fails the views that need them, until the bound is kept.
    #[must_use]
    fn keep_bound(&self, table: &mut Table<S>) -> Vec<Segment<S>> {
        let limit = self.limit.load(Ordering::Relaxed);
        let mut spare = Vec::new();
        if self.bytes.load(Ordering::Relaxed) <= limit || self.running.load(Ordering::Relaxed) != 0 {
            return spare;
        }
        for segment in table.segments.values_mut() {
            if self.bytes.load(Ordering::Relaxed) <= limit {
                break;
            }
            let anchor = Arc::clone(&segment.anchor);
            let snapshots = anchor.snapshots.swap(0, Ordering::Relaxed);
            self.snapshots.fetch_sub(snapshots, Ordering::Relaxed);
            anchor.fails_snapshots.store(true, Ordering::Release);
            // A scan needs no image of single writes.
            if self.batched.load(Ordering::Relaxed) >= anchor.segment {
                anchor.fails_scans.store(true, Ordering::Release);
            }
            self.forget(segment);
            spare.push(std::mem::replace(segment, Segment::new(anchor)));
        }
        spare
    }
}

/// A key of its own.
fn own<S: Schema>(key: &S::Key) -> S::KeyBuf {
    S::key_of(S::key_bytes(key).as_ref()).unwrap_or_default()
}

/// What a scan, a snapshot, or a read of many keys sees: the index at one moment.
pub struct View<'a, S: Schema> {
    of: Reader,
    anchor: Arc<Anchor>,
    /// After the anchor: it is dropped when the view is no longer counted there.
    after: Leaving<'a, S>,
}

impl<'a, S: Schema> View<'a, S> {
    fn new(images: &'a Images<S>, anchor: Arc<Anchor>, of: Reader) -> Self {
        let after = Leaving { images, is_snapshot: of == Reader::Snapshot, segment: anchor.segment };
        Self { of, anchor, after }
    }

    /// Another view of the same moment.
    #[must_use]
    pub(crate) fn again(&self) -> Self {
        let images = self.after.images;
        if self.of == Reader::Snapshot {
            let _table = images.write();
            images.count_snapshot(&self.anchor);
        }
        Self::new(images, Arc::clone(&self.anchor), self.of)
    }

    /// True if this is a snapshot: it sees no single writes either.
    pub fn is_snapshot(&self) -> bool {
        self.of == Reader::Snapshot
    }

    /// True if there may be images that this view has to read. To be asked after what was read of the index is validated.
    ///
    /// # Errors
    /// `SnapshotBytes` if images that it needs were dropped.
    #[inline(always)]
    pub fn may_hide(&self) -> Result<bool> {
        let images = self.after.images;
        match self.of {
            Reader::Scan if images.batched.load(Ordering::Acquire) < self.anchor.segment => Ok(false),
            Reader::Scan => self.hides(&self.anchor.fails_scans),
            // Asked in this order: images are dropped after the view was failed.
            Reader::Snapshot if images.bytes.load(Ordering::Acquire) == 0 => {
                self.hides(&self.anchor.fails_snapshots)?;
                Ok(false)
            }
            Reader::Snapshot => self.hides(&self.anchor.fails_snapshots),
        }
    }

    fn hides(&self, fails: &AtomicBool) -> Result<bool> {
        if fails.load(Ordering::Acquire) {
            let limit_bytes = self.after.images.limit.load(Ordering::Relaxed);
            return Err(Error::SnapshotBytes { limit_bytes });
        }
        Ok(true)
    }

    /// What a key was at this view's moment, if that was replaced. To be asked after what was read of the index is validated.
    ///
    /// # Errors
    /// As [`View::may_hide`].
    #[inline]
    pub fn replaced(&self, key: &S::Key) -> Result<Option<Option<S::ValueBuf>>> {
        if self.may_hide()? { self.image(&own::<S>(key)) } else { Ok(None) }
    }

    #[cold]
    fn image(&self, key: &S::KeyBuf) -> Result<Option<Option<S::ValueBuf>>> {
        step();
        let images = self.after.images;
        let image = images.read().image(self.anchor.segment, key, self.of).cloned();
        // The bound may have been reached before the lookup.
        self.may_hide()?;
        images.copied.fetch_add(u64::from(image.is_some()), Ordering::Relaxed);
        Ok(image)
    }

    /// The first key with an image behind a bound, and the number of changes when it was looked for.
    fn next_key(&self, behind: &Bound<S::KeyBuf>, descending: bool) -> Result<(u64, Option<S::KeyBuf>)> {
        step();
        let table = self.after.images.read();
        let changes = self.after.images.changes.load(Ordering::Acquire);
        let key = table.next_key(self.anchor.segment, behind, descending, self.of).cloned();
        drop(table);
        self.may_hide()?;
        Ok((changes, key))
    }
}

impl<S: Schema> Drop for View<'_, S> {
    fn drop(&mut self) {
        if self.of == Reader::Snapshot {
            self.after.images.leave(&self.anchor);
        }
    }
}

/// What comes after a view has left its anchor.
struct Leaving<'a, S: Schema> {
    images: &'a Images<S>,
    is_snapshot: bool,
    segment: u64,
}

impl<S: Schema> Drop for Leaving<'_, S> {
    fn drop(&mut self) {
        let images = self.images;
        let keeps_images = self.is_snapshot || images.batched.load(Ordering::Acquire) >= self.segment;
        if keeps_images && images.bytes.load(Ordering::Relaxed) > 0 {
            let spare = images.sweep(&mut images.write());
            drop(spare);
        }
    }
}

/// A scan through a view: how far it has come, in the index and in the images.
pub struct Scanned<'a, S: Schema> {
    /// What it sees.
    pub view: View<'a, S>,
    /// Images are merged in. Before that the cursor's own position says how far it has come.
    merges: bool,
    /// Everything given out is behind this.
    behind: Bound<S::KeyBuf>,
    /// A pair of the index that the scan has not come to.
    ahead: Option<(S::KeyBuf, S::ValueBuf)>,
    /// The index has no more.
    ended: bool,
    /// The next key with an image, and the number of changes when that was so.
    near: Option<(u64, Option<S::KeyBuf>)>,
}

impl<'a, S: Schema> Scanned<'a, S> {
    /// A scan that begins.
    pub fn new(view: View<'a, S>) -> Self {
        Self { view, merges: false, behind: Bound::Unbounded, ahead: None, ended: false, near: None }
    }

    /// Begins again at another place: of a snapshot at the same moment, else at the present.
    pub fn begin(&mut self) {
        let view = if self.view.is_snapshot() { self.view.again() } else { self.view.after.images.view() };
        *self = Self::new(view);
    }

    /// The next pair of the view, if the index was asked for its next pair; `None` behind a key that was absent.
    fn take(&mut self, descending: bool) -> Result<Taken<S>> {
        let changes = self.view.after.images.changes.load(Ordering::Acquire);
        if self.near.as_ref().is_none_or(|(then, _)| *then != changes) {
            self.near = Some(self.view.next_key(&self.behind, descending)?);
        }
        let near = self.near.as_ref().and_then(|(_, near)| near.as_ref());
        let is_image = match (near, &self.ahead) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(near), Some((ahead, _))) if descending => near >= ahead,
            (Some(near), Some((ahead, _))) => near <= ahead,
        };
        let Some(key) = near.filter(|_| is_image).cloned() else {
            return Ok(match self.ahead.take() {
                Some(pair) => {
                    self.pass(&pair.0);
                    Taken::Pair(pair)
                }
                None => Taken::End,
            });
        };
        self.near = None;
        let old = self.view.image(&key)?;
        self.ahead.take_if(|(ahead, _)| *ahead == key);
        self.pass(&key);
        Ok(match old.flatten() {
            Some(value) => Taken::Pair((key, value)),
            None => Taken::Absent,
        })
    }

    /// Everything up to this key was given out.
    fn pass(&mut self, key: &S::KeyBuf) {
        match &mut self.behind {
            Bound::Excluded(behind) => behind.clone_from(key),
            behind => *behind = Bound::Excluded(key.clone()),
        }
    }
}

enum Taken<S: Schema> {
    Pair((S::KeyBuf, S::ValueBuf)),
    /// The next key of the view was absent at its moment.
    Absent,
    End,
}

/// A cursor of an index, and the pairs that its view sees.
pub trait Scans<'a, S: Schema> {
    /// The scan's state.
    fn scanned(&mut self) -> &mut Scanned<'a, S>;
    /// Where the index was read up to, and whether it is read downwards.
    fn position(&self) -> (&Bound<S::KeyBuf>, bool);
    /// The next pair that the index holds. Then the caller has to [`Scans::advance`].
    ///
    /// # Errors
    /// `Corrupt`; what reading may say.
    fn next_held(&mut self, key: &mut S::KeyBuf, value: &mut S::ValueBuf) -> Result<bool>;
    /// The index was read up to this key.
    fn advance(&mut self, key: &S::KeyBuf);

    /// Moves one key on and copies key and value out; false at the end.
    ///
    /// # Errors
    /// As [`Scans::next_held`], and as [`View::may_hide`].
    #[inline(always)]
    fn next_seen(&mut self, key: &mut S::KeyBuf, value: &mut S::ValueBuf) -> Result<bool> {
        if !self.scanned().merges {
            let more = self.next_held(key, value)?;
            if !self.scanned().view.may_hide()? {
                if more {
                    self.advance(key);
                }
                return Ok(more);
            }
            let behind = self.position().0.clone();
            if more {
                self.advance(key);
            }
            let scanned = self.scanned();
            (scanned.merges, scanned.behind, scanned.ended) = (true, behind, !more);
            scanned.ahead = more.then(|| (std::mem::take(key), std::mem::take(value)));
        }
        self.next_merged(key, value)
    }

    /// As [`Scans::next_seen`] where there are images.
    #[cold]
    fn next_merged(&mut self, key: &mut S::KeyBuf, value: &mut S::ValueBuf) -> Result<bool> {
        let descending = self.position().1;
        loop {
            if self.scanned().ahead.is_none() && !self.scanned().ended {
                let more = self.next_held(key, value)?;
                if more {
                    self.advance(key);
                }
                let scanned = self.scanned();
                scanned.ended = !more;
                scanned.ahead = more.then(|| (std::mem::take(key), std::mem::take(value)));
            }
            match self.scanned().take(descending)? {
                Taken::Pair(pair) => {
                    (*key, *value) = pair;
                    return Ok(true);
                }
                Taken::Absent => {}
                Taken::End => return Ok(false),
            }
        }
    }
}
