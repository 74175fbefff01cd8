//! The table of before-images: segments by time, in each the images of single writes and of batches by key. See the module above for
//! its invariants.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use pmem::sync::{AtomicBool, AtomicU64, Ordering};

use crate::schema::Schema;

/// Bytes of an image beside those of its key and value: about what a node of the map and two allocations take.
pub(super) const IMAGE_BYTES: u64 = 96;

/// Images of one kind, by key.
pub(super) struct Layer<S: Schema> {
    pub(super) images: BTreeMap<S::KeyBuf, Option<S::ValueBuf>>,
    /// Bytes that they count.
    pub(super) bytes: u64,
}

impl<S: Schema> Default for Layer<S> {
    fn default() -> Self {
        Self { images: BTreeMap::new(), bytes: 0 }
    }
}

impl<S: Schema> Layer<S> {
    /// Bytes that an image counts.
    pub(super) fn bytes_of(key: &S::KeyBuf, old: Option<&S::ValueBuf>) -> u64 {
        let value = old.map_or(0, |old| S::value_bytes(S::borrow_value(old)).as_ref().len());
        IMAGE_BYTES + (S::key_bytes(S::borrow(key)).as_ref().len() + value) as u64
    }

    /// Adds the image of a key that has none here.
    pub(super) fn insert(&mut self, key: S::KeyBuf, old: Option<S::ValueBuf>) {
        self.bytes += Self::bytes_of(&key, old.as_ref());
        self.images.insert(key, old);
    }

    /// The first key behind a bound.
    pub(super) fn next_key(&self, behind: &Bound<S::KeyBuf>, descending: bool) -> Option<&S::KeyBuf> {
        let behind = behind.as_ref();
        let found = if descending {
            self.images.range((Bound::Unbounded, behind)).next_back()
        } else {
            self.images.range((behind, Bound::Unbounded)).next()
        };
        found.map(|(key, _)| key)
    }

    /// Takes in the images of a later span; of a key in both the earlier image stays. Returns the others. Costs the smaller of the two.
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
pub(super) struct Anchor {
    /// Number of the segment.
    pub(super) segment: u64,
    /// Snapshots that are anchored here and have not failed. Changed under the write lock.
    pub(super) snapshots: AtomicU64,
    /// Images that snapshots need were dropped.
    pub(super) fails_snapshots: AtomicBool,
    /// Images that scans need were dropped.
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
    /// Images of writes by themselves: snapshots alone need them.
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

    /// True if no view can read it any more. A new view is anchored at the newest segment only.
    pub(super) fn is_left(&self) -> bool {
        let [fails_snapshots, fails_scans] = [&self.anchor.fails_snapshots, &self.anchor.fails_scans]
            .map(|fails| fails.load(Ordering::Relaxed));
        Arc::strong_count(&self.anchor) == 1 || (fails_snapshots && fails_scans)
    }

    /// The image of a key for a snapshot, or for a scan (B3).
    pub(super) fn image(&self, key: &S::KeyBuf, of: Reader) -> Option<&Option<S::ValueBuf>> {
        let single = (of == Reader::Snapshot).then(|| self.singles.images.get(key)).flatten();
        single.or_else(|| self.batched.images.get(key))
    }

    /// The first key with an image behind a bound, in the direction of a scan.
    pub(super) fn next_key(
        &self,
        behind: &Bound<S::KeyBuf>,
        descending: bool,
        of: Reader,
    ) -> Option<&S::KeyBuf> {
        let single = (of == Reader::Snapshot).then(|| self.singles.next_key(behind, descending)).flatten();
        nearer(single, self.batched.next_key(behind, descending), descending)
    }

    /// Takes in the images of the segment that follows: the oldest image of a key stays. Returns the others.
    pub(super) fn merge(&mut self, mut later: Self) -> Self {
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

    /// Number of the newest segment that a live snapshot is anchored at.
    pub(super) fn newest_snapshot(&self) -> Option<u64> {
        self.segments
            .iter()
            .rev()
            .find(|(_, segment)| segment.anchor.snapshots() > 0)
            .map(|(number, _)| *number)
    }

    /// The image of a key for a view of segment `from`.
    pub(super) fn image(&self, from: u64, key: &S::KeyBuf, of: Reader) -> Option<&Option<S::ValueBuf>> {
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

/// What reads through a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// Sees single writes as they come, and no batch that ended after its begin.
    Scan,
    /// Sees no write since it was opened.
    Snapshot,
}
