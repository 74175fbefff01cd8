//! Before-images: the values that writes replaced, kept in volatile memory for older readers.
//!
//! Three kinds of readers need them. A get during a batch reads the values from before the batch. A scan that began before the end of a
//! batch does not see that batch, but it sees later single writes. A snapshot reads the contents at the time when it was opened.
//!
//! Images are kept in *segments*. A segment contains the images of a span of time. Each scan and each snapshot has a *view* ([`View`]). The
//! view is anchored at the segment that was the newest one when the view was made. To read a key, the view searches the segments for the
//! first image of the key, from its anchor to the newest one; a scan counts only images of batches. If there is no image, the value is in
//! the index. A segment that is not the newest one, and at which no view is anchored, is merged into the segment before it. If there is no
//! segment before it, it is dropped. So memory grows with the number of changed keys, not with the number of changes.
//!
//! Scans and snapshots look up images one by one, in key order. A reader copies only the image that it returns.
//!
//! [`Images::set_limit`] bounds the memory. At the bound, the oldest segments lose their images, and the snapshots that
//! are anchored at these segments fail with [`pmem::Error::SnapshotBytes`]. A scan that is anchored there fails in the
//! same way if a dropped image may be from a batch: without the image, the scan would show a part of that batch. The
//! images of a running batch do not count against the bound until the batch ends. Until then, the maximum size of a
//! batch bounds them.
//!
//! A reader first validates its read of the index and then checks the images. Three readers take no lock for this check: a get while no
//! batch runs, a scan if no batch ran since it began, and a snapshot while the index keeps no images at all. All others take a read lock
//! for each lookup. The writer takes the write lock to insert images. It builds the images of a batch before it takes the lock.
//!
//! Invariants:
//! * B1: an image is inserted before its key changes in the index. So a reader that sees the change sees the image.
//! * B2: images are inserted, and snapshots are opened, only under the index's writer lock.
//! * B3: within a segment, a key's image from a single write is older than its image from a batch.
//! * B4: new views are anchored at the newest segment. The newest segment is never merged or removed. The end of a
//!   batch begins a new segment. The opening of a snapshot also begins one if no batch is running and the newest
//!   segment contains images or has lost images to the bound.

mod table;
mod view;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use arc_swap::ArcSwap;
use pmem::Result;
use pmem::omission::{Omission, is_omitted};
use pmem::sync::{AtomicU64, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard, step};

use crate::schema::Schema;
use table::{Anchor, Layer, Reader, Segment, Table};
pub use view::{Scanned, Scans, View};

/// A key and its value; `None` if the key is absent or is to be removed.
pub type Pair<S> = (<S as Schema>::KeyBuf, Option<<S as Schema>::ValueBuf>);

/// Default bound of the memory for before-images, in bytes.
pub const SNAPSHOT_BYTES: u64 = 256 << 20;
/// Memory and use of before-images. `copied` counts since the index was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes of the images that are kept.
    pub bytes: u64,
    /// Number of images that are kept.
    pub images: u64,
    /// Number of images that were copied for readers.
    pub copied: u64,
    /// Open snapshots that have not failed. A scan of a snapshot counts as another one.
    pub snapshots: u64,
}

/// Images that no view needs any more.
pub struct Spare<S: Schema> {
    _segments: [Vec<Segment<S>>; 2],
}

impl<S: Schema> Default for Spare<S> {
    fn default() -> Self {
        Self { _segments: [Vec::new(), Vec::new()] }
    }
}

/// The before-images of an index.
pub struct Images<S: Schema> {
    /// Anchor of the newest segment.
    newest: ArcSwap<Anchor>,
    table: RwLock<Table<S>>,
    /// Number of the newest segment that has received images of a batch; 0: none.
    batched: AtomicU64,
    /// Number of the running batch's segment; 0: no batch is running.
    running: AtomicU64,
    /// Snapshots that are open and have not failed. The number leaves 0 only under the writer's lock.
    snapshots: AtomicU64,
    /// Incremented with every insertion.
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

    /// Sets the bound of the memory for images, in bytes.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// The memory and use of images. Linear in the number of segments, not of images.
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

    /// True if single writes must save before-images. The caller holds the writer's lock.
    #[inline(always)]
    pub fn saves(&self) -> bool {
        self.snapshots.load(Ordering::Relaxed) > 0
    }

    /// Saves the value of a key before a single write changes it (B1), if an open snapshot has no image of the key yet. The caller holds
    /// the writer's lock. `now` reads the key's value.
    ///
    /// # Errors
    /// As `now`.
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
            // Only snapshots read it, and what they show is durable.
            segment.singles.insert(key, (old, 0));
            self.note(segment.bytes() - before);
        }
        let spare = self.keep_bound(&mut table);
        drop(table);
        drop(spare);
        Ok(())
    }

    /// Begins a batch: saves the current values of its keys before the first one changes (B1). The pairs are in ascending order. When
    /// `ticket` is durable, so are these values. The caller holds the writer's lock.
    pub fn begin(&self, pairs: Vec<Pair<S>>, ticket: u64) {
        step();
        let bytes = pairs.iter().map(|(key, old)| Layer::<S>::bytes_of(key, old.as_ref())).sum();
        let images = pairs.into_iter().map(|(key, old)| (key, (old, ticket))).collect();
        let batch = Layer { images, bytes };
        let mut table = self.write();
        let newest = table.newest();
        let spare = table.segments.get_mut(&newest).map(|segment| {
            let before = segment.bytes();
            let spare = segment.batched.merge(batch);
            self.note(segment.bytes() - before);
            spare
        });
        drop(table);
        drop(spare);
        self.batched.store(newest, Ordering::Release);
        self.running.store(newest, Ordering::Release);
    }

    /// Ends the running batch, if there is one, after its last change or its rollback. The caller holds the writer's lock. Returns the
    /// images that no view needs any more: freeing them takes time, so the caller drops them without the lock.
    #[must_use]
    pub fn end(&self) -> Spare<S> {
        if self.running.load(Ordering::Relaxed) == 0 {
            return Spare::default();
        }
        step();
        let mut table = self.write();
        // This order under the lock matters: a get that sees the batch running waits for the lock and checks `running` again.
        self.begin_segment(&mut table);
        self.running.store(0, Ordering::Release);
        let spare = self.sweep(&mut table);
        let dropped = self.keep_bound(&mut table);
        Spare { _segments: [spare, dropped] }
    }

    /// True while a batch runs. The reader must call this after it has validated its read.
    #[inline(always)]
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire) != 0 && !is_omitted(Omission::Batches)
    }

    /// The state of a key before the running batch, if the batch writes the key: true if the key was present, with its value; and a ticket:
    /// when it is durable, so is this state. `None` if the batch does not write the key.
    #[cold]
    pub fn before(&self, key: &S::Key, value: Option<&mut S::ValueBuf>) -> Option<(bool, u64)> {
        step();
        let table = self.read();
        let running = self.running.load(Ordering::Relaxed);
        let (old, ticket) = table.segments.get(&running)?.batched.images.get(&own::<S>(key))?;
        if let (Some(value), Some(old)) = (value, old) {
            self.copied.fetch_add(1, Ordering::Relaxed);
            value.clone_from(old);
        }
        Some((old.is_some(), *ticket))
    }

    /// A view of the index as it is now, for a scan: it sees later single writes but no later batch. It costs one atomic increment.
    pub fn view(&self) -> View<'_, S> {
        step();
        View::new(self, self.newest.load_full(), Reader::Scan)
    }

    /// A view of the index as it is now, for a snapshot. The caller holds the writer's lock.
    pub(crate) fn snapshot(&self) -> View<'_, S> {
        let mut table = self.write();
        let newest = table.segments.last_key_value().map(|(_, segment)| segment);
        let is_fresh = newest.is_some_and(|newest| {
            newest.bytes() == 0 && !newest.anchor.fails_snapshots.load(Ordering::Relaxed)
        });
        // After a batch that failed halfway, readers see the values from before it.
        if !is_fresh && self.running.load(Ordering::Relaxed) == 0 {
            self.begin_segment(&mut table);
        }
        let anchor = self.newest.load_full();
        self.count_snapshot(&anchor);
        drop(table);
        View::new(self, anchor, Reader::Snapshot)
    }

    /// Counts a snapshot at its anchor. The caller holds the table's write lock.
    fn count_snapshot(&self, anchor: &Anchor) {
        if !anchor.fails_snapshots.load(Ordering::Relaxed) {
            anchor.snapshots.fetch_add(1, Ordering::Relaxed);
            self.snapshots.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes a snapshot from its anchor.
    fn leave(&self, anchor: &Anchor) {
        let _table = self.write();
        if !anchor.fails_snapshots.load(Ordering::Relaxed) {
            anchor.snapshots.fetch_sub(1, Ordering::Relaxed);
            self.snapshots.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts inserted images. The caller holds the table's write lock.
    fn note(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Release);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Counts dropped images. The release order makes a reader that sees the new count also see that its view failed.
    fn forget(&self, spare: &Segment<S>) {
        self.bytes.fetch_sub(spare.bytes(), Ordering::Release);
    }

    /// Begins a new segment, at which new views are anchored (B4).
    fn begin_segment(&self, table: &mut Table<S>) {
        let number = table.newest() + 1;
        let anchor = Anchor::new(number);
        table.segments.insert(number, Segment::new(Arc::clone(&anchor)));
        self.newest.store(anchor);
    }

    /// Removes segments without views, and images that no view needs. The caller drops them without the lock.
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

    /// Drops the oldest images until the bound holds, and fails the views that need them.
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
            // A scan needs no image of a single write.
            if self.batched.load(Ordering::Relaxed) >= anchor.segment {
                anchor.fails_scans.store(true, Ordering::Release);
            }
            self.forget(segment);
            spare.push(std::mem::replace(segment, Segment::new(anchor)));
        }
        spare
    }
}

/// Copies a key.
fn own<S: Schema>(key: &S::Key) -> S::KeyBuf {
    S::key_of(S::key_bytes(key).as_ref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use pmem::Error;

    use super::table::IMAGE_BYTES;
    use super::*;
    use crate::Words;

    fn run(images: &Images<Words>, pairs: &[(u64, Option<u64>)]) {
        images.begin(pairs.to_vec(), 0);
        drop(images.end());
    }

    #[test]
    fn a_get_beside_a_batch_sees_what_was_before_and_behind_it_nothing_of_that() {
        let images = Images::<Words>::default();
        let now = images.view();
        images.begin(vec![(3, Some(30)), (5, None)], 0);
        let mut value = 0;
        assert!(images.is_running());
        assert_eq!((images.before(&3, Some(&mut value)), value), (Some((true, 0)), 30));
        assert_eq!((images.before(&5, None), images.before(&4, None)), (Some((false, 0)), None));
        drop(images.end());
        assert!(!images.is_running());
        assert_eq!(images.before(&3, None), None);
        // A view reads the oldest image since its moment.
        run(&images, &[(3, Some(33)), (4, Some(40))]);
        let replaced = [3, 4, 5, 6].map(|key| now.replaced(&key).unwrap());
        assert_eq!(replaced, [Some(Some(30)), Some(Some(40)), Some(None), None]);
        drop(now);
        assert_eq!(images.held().bytes, 0);
    }

    #[test]
    fn of_a_key_the_oldest_image_for_each_view_is_kept_and_scans_see_no_single_write() {
        let images = Images::<Words>::default();
        let save = |key, old| images.save(&key, || Ok(Some(old))).unwrap();
        save(1, 1); // no snapshot: nothing is kept
        let scan = images.view();
        let old = images.snapshot();
        save(1, 10);
        save(1, 11); // the snapshot has one already
        let young = images.snapshot();
        save(1, 12);
        run(&images, &[(1, Some(13)), (2, Some(20))]);
        let read = |view: &View<'_, Words>, key| view.replaced(&key).unwrap().flatten();
        assert_eq!((read(&old, 1), read(&young, 1), read(&scan, 1)), (Some(10), Some(12), Some(13)));
        assert_eq!((read(&old, 2), read(&young, 2), read(&scan, 2)), (Some(20), Some(20), Some(20)));
        // Key 1: one image for each snapshot and one for the batch. Key 2: one for the batch.
        assert_eq!(images.held().images, 4);
        drop(young);
        assert_eq!((read(&old, 1), read(&scan, 1), read(&scan, 2)), (Some(10), Some(13), Some(20)));
        drop(old);
        assert_eq!((images.held().images, read(&scan, 1)), (2, Some(13)), "the scan needs no single writes");
        drop(scan);
        assert_eq!((images.held().images, images.held().bytes), (0, 0));
    }

    #[test]
    fn the_bound_fails_the_oldest_view_alone_and_a_running_batch_is_exempt_until_it_ends() {
        let images = Images::<Words>::default();
        images.set_limit(10 * (IMAGE_BYTES + 16));
        let (scan, snapshot) = (images.view(), images.snapshot());
        images.begin((0..11).map(|key| (key, Some(key))).collect(), 0);
        assert_eq!(images.before(&7, None), Some((true, 0)), "what the running batch replaced is kept");
        assert_eq!(snapshot.replaced(&7).unwrap(), Some(Some(7)));
        drop(images.end());
        for view in [scan, snapshot] {
            assert!(matches!(view.replaced(&7), Err(Error::SnapshotBytes { .. })));
        }
        let snapshot = images.snapshot();
        images.save(&1, || Ok(None)).unwrap();
        assert_eq!((snapshot.replaced(&1).unwrap(), images.held().images), (Some(None), 1));
    }
}
