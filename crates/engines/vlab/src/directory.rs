//! The software page table: the addresses of the buckets in key order, in volatile memory, with the words that search compares
//! [VLAB §5.1; the paper has the processor's page table, and compares in the buckets].
//!
//! An index into it is a bucket's place, so a search begins with a calculation: guided binary search [§4.2.3]. What it compares are
//! the buckets' `min` as words; of byte strings the eight bytes behind what all of them begin with, and the rest where words are equal.
//!
//! It is stored in segments of so many entries: it grows by one at a time, and gives its memory back one at a time.
//!
//! Invariants:
//! * D1: keys ascend; entry 0 is at or below every key.
//! * D2: of an entry that is not `SPLIT` the bucket holds every key from its own to the next entry's.
//! * D3: an entry's key and place never change once others see it; its address does only while [`crate::index::Vlab`] says so (V2).

use std::cmp::Ordering;
use std::ops::Range;

use index::Schema;
use index::leaf_list::bound::leading;
use pmem::sync::{AtomicU64, Ordering as Memory};

/// The bucket of this entry's key was given back; another holds its keys.
pub(crate) const ALIAS: u64 = 1 << 63;
/// Buckets between this entry and the next are in the braids.
pub(crate) const SPLIT: u64 = 1 << 62;
const ADDRESS: u64 = SPLIT - 1;
/// A range so short is searched by halves.
const SHORT: usize = 8;

/// How a place is searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guide {
    /// By halves alone.
    Halves,
    /// One estimate, then by halves in the range around it, or outside of it [VLAB §4.2.3].
    Once,
    /// Estimates as long as they are right, each in the square root of the range before it.
    Again,
    /// As [`Guide::Again`], in the part of the directory that a small table gives for the key's leading bits. Splits at medians make
    /// regions of uniform keys differ in how full their buckets are, which a straight line over all of them does not follow.
    Table,
}

/// Where search reads the words of entries.
pub(crate) trait Lows {
    /// The word of an entry.
    fn low(&self, i: usize) -> u64;
    /// True if it is seen without a look at the next entry that this one, which is at or below the key of this word, leads to the key's
    /// bucket.
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

/// The word that search compares, and where it leads: side by side, for who finds the one reads the other.
#[derive(Debug, Default)]
struct Place {
    low: u64,
    at: AtomicU64,
}

/// So many entries of a directory.
#[derive(Debug)]
struct Segment {
    places: [Place; SEGMENT],
    /// Bytes of the keys, where words are not the whole of them, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Segment {
    fn empty() -> Box<Self> {
        let places = std::array::from_fn(|_| Place::default());
        Box::new(Self { places, bytes: Vec::new(), ends: Vec::new() })
    }
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// What all keys but the first begin with.
    begin: Vec<u8>,
    segments: Vec<Box<Segment>>,
    len: usize,
    cells: Cells,
    /// Bytes of all keys in segments.
    key_bytes: u64,
}

impl Directory {
    /// An empty one with space for so many, whose keys but the first lie between these two, as a rule.
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

    /// Makes ready for an entry of a key, above all others, as far as one step goes; true when it can be appended.
    pub(crate) fn reach<S: Schema>(&mut self, key: &S::Key) -> bool {
        let word = self.word::<S>(key);
        self.len == 0 || self.cells.reach(word, self.len)
    }

    /// Appends an entry, above all others.
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

    /// Gives the memory of a segment back; false when there is none left. Nobody looks anything up any more.
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

    /// Address of an entry's bucket, with `ALIAS` and `SPLIT`.
    #[inline(always)]
    pub(crate) fn marked(&self, i: usize) -> u64 {
        self.place(i).at.load(Memory::Acquire)
    }

    /// Address of an entry's bucket.
    #[inline(always)]
    pub(crate) fn address(marked: u64) -> u64 {
        marked & ADDRESS
    }

    pub(crate) fn set(&self, i: usize, marked: u64) {
        self.place(i).at.store(marked, Memory::Release);
    }

    /// An entry's key.
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

    /// A key as a word in the order of `low`.
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

    /// Compares an entry's key.
    #[inline(always)]
    pub(crate) fn compare<S: Schema>(&self, i: usize, key: &S::Key) -> Ordering {
        self.compare_words::<S>(i, (self.low(i), self.word::<S>(key)), key)
    }

    /// Compares an entry's key, whose word is the first, with one whose word is the second.
    #[inline(always)]
    fn compare_words<S: Schema>(&self, i: usize, (low, word): (u64, u64), key: &S::Key) -> Ordering {
        match low.cmp(&word) {
            Ordering::Equal if !S::PLAIN => self.bytes_of(i).cmp(S::key_bytes(key).as_ref()),
            order => order,
        }
    }

    /// The last entry at or below a key (strictly below it, if so asked), or the first entry; and how many comparisons that took.
    #[inline]
    pub(crate) fn find<S: Schema>(&self, key: &S::Key, below: bool, guide: Guide) -> (usize, u32) {
        self.find_in::<S>(self, key, below, guide)
    }

    /// The same, where the words of entries (but that of the first) are read elsewhere. None may be above the entry's own: then an
    /// entry is found that is not before the one that [`Directory::find`] does, and whose word there is at or below the key.
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
        // `low` is at or below the key, `high` above it.
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

    /// Where between two places a key would be if keys were spread evenly; between the two, exclusively.
    #[inline(always)]
    fn estimate(&self, lows: &(impl Lows + ?Sized), (low, high): (usize, usize), word: u64) -> usize {
        // Entry 0 stands for the least key there is, and not for one that is there.
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

    /// The bucket at `target` holds what is in `from..to` now: entries there lead to it. Returns which these are, and how many
    /// of them led to a bucket of their own until now.
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

    /// A bucket whose `min` is `key` stands in the braids.
    pub(crate) fn note_split<S: Schema>(&self, key: &S::Key) {
        let (i, _) = self.find::<S>(key, false, Guide::Table);
        self.set(i, self.marked(i) | SPLIT);
    }
}

/// What the keys from `first` to `last` begin with.
fn common(first: &[u8], last: &[u8]) -> Vec<u8> {
    first.iter().zip(last).take_while(|(a, b)| a == b).map(|(a, _)| *a).collect()
}

/// The table of [`Guide::Table`]: the range of words in cells of one width, and the first entry of each. Cells are as many as entries, but
/// no more than stay in the processor's second-level cache.
#[derive(Debug, Default)]
struct Cells {
    base: u64,
    shift: u32,
    /// Number of cells there will be.
    count: usize,
    /// Of each cell so far the first entry that is in it or behind it. (Entry 0 is in front of all.)
    first: Vec<u32>,
}

/// Most cells.
const CELLS: usize = 1 << 16;
/// Cells without an entry of their own that one step fills.
const CELLS_OF_STEP: usize = 64;

impl Cells {
    fn new(base: u64, last: u64, entries: usize) -> Self {
        let span = last.saturating_sub(base);
        let count = entries.clamp(1, CELLS);
        // The least width with which they suffice.
        let bits = u64::BITS - span.leading_zeros();
        let shift = (0..bits).find(|shift| span >> shift < count as u64).unwrap_or(bits);
        Self { base, shift, count, first: Vec::with_capacity(count) }
    }

    /// Of words outside of the range too, in their order.
    #[inline(always)]
    fn of(&self, word: u64) -> usize {
        let cell = word.saturating_sub(self.base).checked_shr(self.shift).unwrap_or(0) as usize;
        cell.min(self.count.saturating_sub(1))
    }

    /// Fills cells in front of a word's, for entry `i`, which will have it: as many as one step does. True when few are left.
    fn reach(&mut self, word: u64, i: usize) -> bool {
        let cell = self.of(word);
        let end = cell.min(self.first.len() + CELLS_OF_STEP);
        while self.first.len() < end {
            self.first.push(i as u32);
        }
        end == cell
    }

    /// Entry `i` has this word; all before it have lesser ones, or the same.
    fn note(&mut self, word: u64, i: usize) {
        let cell = self.of(word);
        while self.first.len() <= cell {
            self.first.push(i as u32);
        }
    }

    /// An entry below this word, and one above it or the number of all.
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
