//! The directory, a software page table: the addresses of the buckets in key order, in volatile memory, with the words that search compares
//! [VLAB §5.1].
//!
//! The paper has no such directory. It uses the processor's page table, and a search compares keys with the bounds in the buckets.
//!
//! An index into the directory is the *place* of a bucket. A search begins with a calculation: guided binary search [§4.2.3]. The search
//! compares the `min` of the buckets as words. For byte strings the word is the eight bytes after the common prefix of all keys. If words
//! are equal, the rest of the keys is compared.
//!
//! The directory is stored in segments of 1,024 entries. It grows by one segment at a time, and its memory is freed one segment at a
//! time.
//!
//! Invariants:
//! * D1: keys ascend. Entry 0 is at or below every key.
//! * D2: if an entry is not marked `SPLIT`, its bucket holds every key from the entry's key to the next entry's key.
//! * D3: an entry's key and place never change once other threads see the entry. The address in an entry changes only as V2 of
//!   [`crate::index`] allows.

use std::cmp::Ordering;
use std::ops::Range;

use index::Schema;
use index::leaf_list::bound::leading;
use pmem::sync::{AtomicU64, Ordering as Memory};

/// The bucket of this entry's key was freed. Another bucket holds its keys.
pub(crate) const ALIAS: u64 = 1 << 63;
/// Braids contain buckets between this entry and the next.
pub(crate) const SPLIT: u64 = 1 << 62;
const ADDRESS: u64 = SPLIT - 1;
/// Ranges up to this length are searched by binary search.
const SHORT: usize = 8;

/// The algorithm that searches for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guide {
    /// Binary search only.
    Halves,
    /// One estimate, then binary search in the range around it or outside of it [VLAB §4.2.3].
    Once,
    /// Repeats the estimate as long as the key is in the range around it. Each estimate reduces the range to its square root.
    Again,
    /// As [`Guide::Again`], in a part of the directory that a small table gives for the key's leading bits. Splits at medians fill regions
    /// of uniform keys unevenly, so one straight line over all of them fits badly.
    Table,
}

/// The source of the entries' words in a search.
pub(crate) trait Lows {
    /// The word of an entry.
    fn low(&self, i: usize) -> u64;
    /// True if this entry is known to lead to the bucket of the key with this word, without a read of the next entry. The entry is at or
    /// below the key.
    #[inline(always)]
    fn is_last(&self, _i: usize, _word: u64) -> bool {
        false
    }
}

impl Lows for Directory {
    #[inline(always)]
    fn low(&self, i: usize) -> u64 {
        self.place(i).low
    }
}

/// Entries of a segment.
pub(crate) const SEGMENT: usize = 1024;

/// The word that search compares, and the address. They are adjacent, because a search that finds one reads the other.
#[derive(Debug, Default)]
struct Place {
    low: u64,
    at: AtomicU64,
}

/// A part of a directory: [`SEGMENT`] entries.
#[derive(Debug)]
struct Segment {
    places: [Place; SEGMENT],
    /// If a word does not contain a whole key: the bytes of the keys, and the end of each key in them.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Segment {
    fn empty() -> Box<Self> {
        let places = std::array::from_fn(|_| Place::default());
        Box::new(Self { places, bytes: Vec::new(), ends: Vec::new() })
    }
}

/// The directory. See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// The common prefix of all keys except the first.
    begin: Vec<u8>,
    segments: Vec<Box<Segment>>,
    len: usize,
    cells: Cells,
    /// Bytes of all keys in segments.
    key_bytes: u64,
}

impl Directory {
    /// An empty directory with space for this many entries. Except for the first, keys usually lie in `range`.
    pub(crate) fn with_capacity<S: Schema>(entries: usize, range: Option<(&S::Key, &S::Key)>) -> Self {
        let begin = match range {
            Some((first, last)) if !S::PLAIN => {
                common(S::key_bytes(first).as_ref(), S::key_bytes(last).as_ref())
            }
            _ => Vec::new(),
        };
        let mut new = Self { begin, ..Self::default() };
        if let Some((first, last)) = range {
            new.cells = Cells::new(new.word::<S>(first), new.word::<S>(last), entries);
        }
        new.segments.reserve(entries.div_ceil(SEGMENT));
        new
    }

    /// Prepares the append of an entry above all others, as far as one step goes. True if the entry can be appended.
    pub(crate) fn reach<S: Schema>(&mut self, key: &S::Key) -> bool {
        let word = self.word::<S>(key);
        self.len == 0 || self.cells.reach(word, self.len)
    }

    /// Appends an entry above all others.
    pub(crate) fn push<S: Schema>(&mut self, key: &S::Key, at: u64) {
        let i = self.len;
        if i == self.segments.len() * SEGMENT {
            self.segments.push(Segment::empty());
        }
        let word = if i == 0 { 0 } else { self.word::<S>(key) };
        if i > 0 {
            self.cells.note(word, i);
        }
        let segment = &mut self.segments[i / SEGMENT];
        segment.places[i % SEGMENT] = Place { low: word, at: AtomicU64::new(at) };
        if !S::PLAIN {
            let bytes = S::key_bytes(key);
            segment.bytes.extend_from_slice(bytes.as_ref());
            segment.ends.push(segment.bytes.len());
            self.key_bytes += bytes.as_ref().len() as u64;
        }
        self.len += 1;
    }

    /// Frees the memory of one segment. False if none is left. No reader may still use the directory.
    pub(crate) fn take_down(&mut self) -> bool {
        self.len = 0;
        self.segments.pop().is_some()
    }

    /// Number of segments.
    pub(crate) fn segments(&self) -> usize {
        self.segments.len()
    }

    #[inline(always)]
    fn place(&self, i: usize) -> &Place {
        &self.segments[i / SEGMENT].places[i % SEGMENT]
    }

    /// Number of entries.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of volatile memory.
    pub(crate) fn memory(&self) -> u64 {
        let ends = if self.key_bytes == 0 { 0 } else { self.len * size_of::<usize>() };
        (self.segments.len() * size_of::<Segment>() + self.cells.first.len() * 4 + ends) as u64
            + self.key_bytes
    }

    /// Address of an entry's bucket, with the marks `ALIAS` and `SPLIT`.
    #[inline(always)]
    pub(crate) fn marked(&self, i: usize) -> u64 {
        self.place(i).at.load(Memory::Acquire)
    }

    /// Address of an entry's bucket, without the marks.
    #[inline(always)]
    pub(crate) fn address(marked: u64) -> u64 {
        marked & ADDRESS
    }

    pub(crate) fn set(&self, i: usize, marked: u64) {
        self.place(i).at.store(marked, Memory::Release);
    }

    /// The key of an entry.
    pub(crate) fn key<S: Schema>(&self, i: usize) -> S::KeyBuf {
        let key = if S::PLAIN { S::key_of(&self.low(i).to_le_bytes()) } else { S::key_of(self.bytes_of(i)) };
        key.unwrap_or_default()
    }

    fn bytes_of(&self, i: usize) -> &[u8] {
        let segment = &self.segments[i / SEGMENT];
        let i = i % SEGMENT;
        let from = if i == 0 { 0 } else { segment.ends[i - 1] };
        &segment.bytes[from..segment.ends[i]]
    }

    /// The word of a key, comparable with `low`.
    #[inline(always)]
    fn word<S: Schema>(&self, key: &S::Key) -> u64 {
        if S::PLAIN {
            return S::plain(S::probe(key));
        }
        let bytes = S::key_bytes(key);
        let bytes = bytes.as_ref();
        match bytes.strip_prefix(self.begin.as_slice()) {
            Some(rest) => leading(rest),
            None if bytes < self.begin.as_slice() => 0,
            None => u64::MAX,
        }
    }

    /// Compares an entry's key with `key`.
    #[inline(always)]
    pub(crate) fn compare<S: Schema>(&self, i: usize, key: &S::Key) -> Ordering {
        self.compare_words::<S>(i, (self.low(i), self.word::<S>(key)), key)
    }

    /// Compares an entry's key, which has the word `low`, with a key that has the word `word`.
    #[inline(always)]
    fn compare_words<S: Schema>(&self, i: usize, (low, word): (u64, u64), key: &S::Key) -> Ordering {
        match low.cmp(&word) {
            Ordering::Equal if !S::PLAIN => self.bytes_of(i).cmp(S::key_bytes(key).as_ref()),
            order => order,
        }
    }

    /// The last entry at or below a key (with `below`: strictly below it), or the first entry. Also returns the number of comparisons.
    #[inline]
    pub(crate) fn find<S: Schema>(&self, key: &S::Key, below: bool, guide: Guide) -> (usize, u32) {
        self.find_in::<S>(self, key, below, guide)
    }

    /// As [`Directory::find`], but `lows` gives the words of the entries (except the first). No word may be above the entry's own. Then the
    /// result is not before the entry that [`Directory::find`] returns, and its word in `lows` is at or below the key.
    #[inline(always)]
    pub(crate) fn find_in<S: Schema>(
        &self,
        lows: &(impl Lows + ?Sized),
        key: &S::Key,
        below: bool,
        guide: Guide,
    ) -> (usize, u32) {
        let word = self.word::<S>(key);
        let mut comparisons = 0;
        let mut is_low = |i: usize| {
            comparisons += 1;
            let order = self.compare_words::<S>(i, (lows.low(i), word), key);
            order.is_lt() || (!below && order.is_eq())
        };
        // `low` is always at or below the key, `high` always above it.
        let (mut low, mut high) = (0, self.len());
        if guide == Guide::Table {
            (low, high) = self.cells.range(word, high);
        }
        let mut guide = guide;
        while high - low > 1 {
            if guide == Guide::Halves || high - low <= SHORT {
                let mid = low.midpoint(high);
                if !is_low(mid) {
                    high = mid;
                    continue;
                }
                low = mid;
                if !below && lows.is_last(low, word) {
                    break;
                }
                continue;
            }
            // K / 2^α with α = log2(K) / 2.
            let reach = 1 << ((high - low).ilog2() / 2);
            let estimate = self.estimate(lows, (low, high), word);
            let mut is_right = true;
            if is_low(estimate) {
                low = estimate;
                if !below && lows.is_last(low, word) {
                    break;
                }
                let far = low + reach;
                if far < high {
                    is_right = !is_low(far);
                    *(if is_right { &mut high } else { &mut low }) = far;
                }
            } else {
                high = estimate;
                let far = high.saturating_sub(reach);
                if far > low {
                    is_right = is_low(far);
                    *(if is_right { &mut low } else { &mut high }) = far;
                }
            }
            if guide == Guide::Once || !is_right {
                guide = Guide::Halves;
            }
        }
        (low, comparisons)
    }

    /// Estimates the place of a key as if keys were evenly distributed. The estimate is strictly between the two places.
    #[inline(always)]
    fn estimate(&self, lows: &(impl Lows + ?Sized), (low, high): (usize, usize), word: u64) -> usize {
        // Entry 0 stands for the smallest possible key, so it is no data point.
        let (first, last) = (low.max(1), high.min(self.len() - 1));
        let (from, to) = (lows.low(first), lows.low(last));
        let place = if word <= from {
            first
        } else if word >= to {
            last
        } else {
            let part = u128::from(word - from) * (last - first) as u128 / u128::from(to - from);
            first + part as usize
        };
        place.clamp(low + 1, high - 1)
    }

    /// Redirects the entries with keys in `from..to` to the bucket at `target`, which now holds these keys. Returns the range of the
    /// entries, and how many of them had a bucket of their own before.
    pub(crate) fn redirect<S: Schema>(
        &self,
        from: &S::Key,
        to: Option<&S::Key>,
        target: u64,
    ) -> (Range<usize>, u64) {
        let (first, _) = self.find::<S>(from, false, Guide::Table);
        let first = if self.compare::<S>(first, from).is_lt() { first + 1 } else { first };
        let (mut end, mut fresh) = (first, 0);
        for i in first..self.len() {
            if to.is_some_and(|to| self.compare::<S>(i, to).is_ge()) {
                break;
            }
            end = i + 1;
            let old = self.marked(i);
            fresh += u64::from(old & ALIAS == 0);
            self.set(i, target | ALIAS | old & SPLIT);
        }
        (first..end, fresh)
    }

    /// Marks that braids contain a bucket whose `min` is `key`.
    pub(crate) fn note_split<S: Schema>(&self, key: &S::Key) {
        let (i, _) = self.find::<S>(key, false, Guide::Table);
        self.set(i, self.marked(i) | SPLIT);
    }
}

/// The common prefix of all keys from `first` to `last`.
fn common(first: &[u8], last: &[u8]) -> Vec<u8> {
    first.iter().zip(last).take_while(|(a, b)| a == b).map(|(a, _)| *a).collect()
}

/// The table of [`Guide::Table`]: it divides the range of words into cells of equal width and has the first entry of each cell. There are
/// as many cells as entries, but at most as many as the second-level cache holds.
#[derive(Debug, Default)]
struct Cells {
    base: u64,
    shift: u32,
    /// Number of cells of the complete table.
    count: usize,
    /// For each cell so far, the first entry in it or after it. Entry 0 is before all cells.
    first: Vec<u32>,
}

/// Maximum number of cells.
const CELLS: usize = 1 << 16;
/// Number of cells that one step fills in advance.
const CELLS_OF_STEP: usize = 64;

impl Cells {
    fn new(base: u64, last: u64, entries: usize) -> Self {
        let span = last.saturating_sub(base);
        let count = entries.clamp(1, CELLS);
        // The smallest width with which the cells cover the range.
        let bits = u64::BITS - span.leading_zeros();
        let shift = (0..bits).find(|shift| span >> shift < count as u64).unwrap_or(bits);
        Self { base, shift, count, first: Vec::with_capacity(count) }
    }

    /// The cell of a word. Words outside of the range get the first or the last cell.
    #[inline(always)]
    fn of(&self, word: u64) -> usize {
        let cell = word.saturating_sub(self.base).checked_shr(self.shift).unwrap_or(0) as usize;
        cell.min(self.count.saturating_sub(1))
    }

    /// Fills cells before the cell of entry `i`, which will have this word, up to the limit of one step. True if all of them are filled.
    fn reach(&mut self, word: u64, i: usize) -> bool {
        let cell = self.of(word);
        let end = cell.min(self.first.len() + CELLS_OF_STEP);
        while self.first.len() < end {
            self.first.push(i as u32);
        }
        end == cell
    }

    /// Records that entry `i` has this word. All earlier words are at or below it.
    fn note(&mut self, word: u64, i: usize) {
        let cell = self.of(word);
        while self.first.len() <= cell {
            self.first.push(i as u32);
        }
    }

    /// An entry below this word, and an entry above it or the number of entries.
    #[inline(always)]
    fn range(&self, word: u64, entries: usize) -> (usize, usize) {
        let cell = self.of(word);
        let first = self.first.get(cell).or(self.first.last()).map_or(1, |first| *first as usize);
        let behind = self.first.get(cell + 1).map_or(entries, |behind| *behind as usize);
        (first - 1, behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use index::{Keyed, Words};

    fn of_words(keys: impl IntoIterator<Item = u64>) -> Directory {
        let keys: Vec<u64> = keys.into_iter().collect();
        let range = keys.get(1).zip(keys.last());
        let mut directory = Directory::with_capacity::<Words>(keys.len(), range);
        keys.iter().for_each(|key| directory.push::<Words>(key, 64));
        directory
    }

    fn found(directory: &Directory, guide: Guide, key: u64) -> u32 {
        let (place, comparisons) = directory.find::<Words>(&key, false, guide);
        assert!(place == 0 || directory.low(place) <= key, "{guide:?} {key}");
        assert!(place + 1 == directory.len() || directory.low(place + 1) > key, "{guide:?} {key}");
        comparisons
    }

    #[test]
    fn an_estimate_saves_comparisons_where_keys_are_even_and_costs_few_where_they_are_not() {
        let mut rng = fastrand::Rng::with_seed(7);
        let count = 1_u64 << 20;
        let mut uniform: Vec<u64> = (0..count).map(|_| rng.u64(..)).collect();
        let mut clustered: Vec<u64> = (0..count)
            .map(|i| if i % 5 == 0 { rng.u64(..) } else { (1 << 62) + rng.u64(..1 << 53) })
            .collect();
        let mut skewed: Vec<u64> = (0..count).map(|_| (rng.f64() * 63.9).exp2() as u64).collect();
        for (name, keys, most) in [
            ("uniform", &mut uniform, 10.99),
            ("clustered", &mut clustered, 25.0),
            ("skewed", &mut skewed, 26.0),
        ] {
            keys[0] = 0;
            keys.sort_unstable();
            keys.dedup();
            let directory = of_words(keys.iter().copied());
            for guide in [Guide::Halves, Guide::Once, Guide::Again, Guide::Table] {
                let probes: Vec<u64> =
                    (0..20_000).map(|_| keys[rng.usize(..keys.len())] + rng.u64(..3)).collect();
                let counts: Vec<u32> = probes.iter().map(|key| found(&directory, guide, *key)).collect();
                let (sum, worst) = (counts.iter().sum::<u32>(), counts.iter().max().copied().unwrap_or(0));
                let mean = f64::from(sum) / counts.len() as f64;
                println!("{name}, {guide:?}: {mean:.2} comparisons, {worst} at most");
                assert!(worst <= 40, "{name}, {guide:?}: {worst} comparisons of 2 log2 B");
                assert!(
                    !matches!(guide, Guide::Again | Guide::Table) || mean < most,
                    "{name}: {mean} comparisons"
                );
            }
        }
    }

    #[test]
    fn every_place_is_found_in_directories_of_all_small_sizes() {
        for guide in [Guide::Halves, Guide::Once, Guide::Again, Guide::Table] {
            for len in 1..40_u64 {
                for step in [1, 3, 1 << 57] {
                    let directory = of_words((0..len).map(|i| i * step));
                    for key in (0..len).flat_map(|i| [i * step, i * step + 1, (i * step).wrapping_sub(1)]) {
                        found(&directory, guide, key);
                    }
                    found(&directory, guide, u64::MAX);
                }
            }
        }
    }

    #[test]
    fn byte_strings_are_found_behind_what_they_have_in_common() {
        let name = |i: u32| format!("customer:{i:05}").into_bytes();
        let mut directory = Directory::with_capacity::<Keyed>(100, Some((&name(2), &name(1998))));
        assert_eq!(directory.begin, b"customer:0");
        directory.push::<Keyed>(&[], 64);
        (1..1000).for_each(|i| directory.push::<Keyed>(&name(2 * i), 64));
        directory.push::<Keyed>(b"zebra", 64);
        for guide in [Guide::Again, Guide::Table] {
            for i in 0..2000_u32 {
                let expected = (i / 2) as usize;
                assert_eq!(directory.find::<Keyed>(&name(i), false, guide).0, expected, "{i}");
                let below = if i % 2 == 0 { expected.saturating_sub(1) } else { expected };
                assert_eq!(directory.find::<Keyed>(&name(i), true, guide).0, below, "{i}");
            }
            assert_eq!(directory.find::<Keyed>(b"a", false, guide).0, 0);
            assert_eq!(directory.find::<Keyed>(b"customer:1", false, guide).0, 999);
            assert_eq!(directory.find::<Keyed>(b"zebra", false, guide).0, 1000);
        }
        assert_eq!(directory.key::<Keyed>(1000), b"zebra");
    }
}
