//! The table of before-images. A before-image is the value that a write replaced; older readers still need it. The
//! table is a list of segments, oldest first. A segment contains the images of a span of time, in two ordered maps from
//! key to before-image: one for single writes, one for batches. Invariants B1 to B4 are in the parent module.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use pmem::sync::{AtomicBool, AtomicU64, Ordering};

use crate::schema::Schema;

/// Overhead of an image in bytes, in addition to its key and value: about one map node and two allocations.
pub(super) const IMAGE_BYTES: u64 = 96;

/// The value that a write replaced, or `None`, and a ticket: when it is durable, so is the value.
pub(super) type Image<S> = (Option<<S as Schema>::ValueBuf>, u64);

/// The images of single writes, or of batches, by key.
pub(super) struct Layer<S: Schema> {
    pub(super) images: BTreeMap<S::KeyBuf, Image<S>>,
    /// Bytes of the images, as they count against the bound.
    pub(super) bytes: u64,
}

impl<S: Schema> Default for Layer<S> {
    fn default() -> Self {
        Self { images: BTreeMap::new(), bytes: 0 }
    }
}

impl<S: Schema> Layer<S> {
    /// Bytes of an image, as they count against the bound.
    pub(super) fn bytes_of(key: &S::KeyBuf, old: Option<&S::ValueBuf>) -> u64 {
        let value = old.map_or(0, |old| S::value_bytes(S::borrow_value(old)).as_ref().len());
        IMAGE_BYTES + (S::key_bytes(S::borrow(key)).as_ref().len() + value) as u64
    }

    /// Inserts an image. The key has no image in this layer yet.
    pub(super) fn insert(&mut self, key: S::KeyBuf, old: Image<S>) {
        self.bytes += Self::bytes_of(&key, old.0.as_ref());
        self.images.insert(key, old);
    }

    /// The first key after `behind`, in the scan's direction.
    pub(super) fn next_key(&self, behind: &Bound<S::KeyBuf>, descending: bool) -> Option<&S::KeyBuf> {
        let behind = behind.as_ref();
        let found = if descending {
            self.images.range((Bound::Unbounded, behind)).next_back()
        } else {
            self.images.range((behind, Bound::Unbounded)).next()
        };
        found.map(|(key, _)| key)
    }

    /// Merges the images of a later segment. If both have an image of a key, the earlier one stays; the later ones are returned. The cost
    /// is proportional to the smaller layer.
    pub(super) fn merge(&mut self, mut later: Self) -> Self {
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
                self.bytes -= Self::bytes_of(&key, newer.0.as_ref());
                spare.insert(key, newer);
            }
            self.insert(key, old);
        }
        spare
    }
}

/// The anchor of views at a segment. Each view holds a reference to it.
#[derive(Debug)]
pub(super) struct Anchor {
    /// Number of the segment.
    pub(super) segment: u64,
    /// Snapshots at this anchor that have not failed. Changed under the write lock.
    pub(super) snapshots: AtomicU64,
    /// True if images that snapshots need were dropped.
    pub(super) fails_snapshots: AtomicBool,
    /// True if images that scans need were dropped.
    pub(super) fails_scans: AtomicBool,
}

impl Anchor {
    pub(super) fn new(segment: u64) -> Arc<Self> {
        let [fails_snapshots, fails_scans] = [false; 2].map(AtomicBool::new);
        Arc::new(Self { segment, snapshots: AtomicU64::new(0), fails_snapshots, fails_scans })
    }

    pub(super) fn snapshots(&self) -> u64 {
        self.snapshots.load(Ordering::Relaxed)
    }
}

/// The images of a span of time.
pub(super) struct Segment<S: Schema> {
    pub(super) anchor: Arc<Anchor>,
    /// Images of single writes. Only snapshots need them.
    pub(super) singles: Layer<S>,
    /// Images of batches.
    pub(super) batched: Layer<S>,
}

impl<S: Schema> Segment<S> {
    pub(super) fn new(anchor: Arc<Anchor>) -> Self {
        Self { anchor, singles: Layer::default(), batched: Layer::default() }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.singles.bytes + self.batched.bytes
    }

    /// True if no view can read the segment any more. New views are anchored at the newest segment only.
    pub(super) fn is_left(&self) -> bool {
        let [fails_snapshots, fails_scans] = [&self.anchor.fails_snapshots, &self.anchor.fails_scans]
            .map(|fails| fails.load(Ordering::Relaxed));
        Arc::strong_count(&self.anchor) == 1 || (fails_snapshots && fails_scans)
    }

    /// The image of a key for a snapshot or a scan (B3).
    pub(super) fn image(&self, key: &S::KeyBuf, of: Reader) -> Option<&Image<S>> {
        let single = (of == Reader::Snapshot).then(|| self.singles.images.get(key)).flatten();
        single.or_else(|| self.batched.images.get(key))
    }

    /// The first key with an image after `behind`, in the scan's direction.
    pub(super) fn next_key(
        &self,
        behind: &Bound<S::KeyBuf>,
        descending: bool,
        of: Reader,
    ) -> Option<&S::KeyBuf> {
        let single = (of == Reader::Snapshot).then(|| self.singles.next_key(behind, descending)).flatten();
        nearer(single, self.batched.next_key(behind, descending), descending)
    }

    /// Merges the images of the next segment. The oldest image of each key stays; the others are returned.
    pub(super) fn merge(&mut self, mut later: Self) -> Self {
        let mut hidden = Layer::default();
        // An image of a single write that follows an image of a batch would break B3. No snapshot reads it.
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

/// The key that a scan in this direction reaches first.
pub(super) fn nearer<K: Ord>(one: Option<K>, other: Option<K>, descending: bool) -> Option<K> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if (one < other) != descending { one } else { other }),
        (one, other) => one.or(other),
    }
}

/// All segments, by their numbers.
pub(super) struct Table<S: Schema> {
    pub(super) segments: BTreeMap<u64, Segment<S>>,
}

impl<S: Schema> Table<S> {
    /// Number of the newest segment (B4).
    pub(super) fn newest(&self) -> u64 {
        self.segments.last_key_value().map_or(0, |(number, _)| *number)
    }

    /// Number of the newest segment that anchors a snapshot that has not failed.
    pub(super) fn newest_snapshot(&self) -> Option<u64> {
        self.segments
            .iter()
            .rev()
            .find(|(_, segment)| segment.anchor.snapshots() > 0)
            .map(|(number, _)| *number)
    }

    /// The image of a key for a view that is anchored at segment `from`.
    pub(super) fn image(&self, from: u64, key: &S::KeyBuf, of: Reader) -> Option<&Image<S>> {
        self.segments.range(from..).find_map(|(_, segment)| segment.image(key, of))
    }

    pub(super) fn next_key(
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

/// The kinds of readers of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// Sees single writes at once, but no batch that ended after the scan began.
    Scan,
    /// Sees no write after the snapshot was opened.
    Snapshot,
}
