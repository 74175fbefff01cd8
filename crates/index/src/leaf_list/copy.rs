//! A copy of a leaf's entries in key order, for scans. It reuses its buffers.
//!
//! An engine may keep the order of a leaf from an earlier copy. Then the engine adds the entries to the copy in this
//! order, and the new entries last. If there are few new entries, the copy inserts each of them at its place. If there
//! are many, or if no order was kept, the copy orders all entries.
//!
//! To order entries, the copy reads the *lead* of each key: one word. With 64-bit keys, the lead is the key. With byte
//! strings, the bounds of the leaf show a number of first bytes that all keys of the leaf share. The lead consists of
//! the eight bytes after them. Entries are ordered by their leads. If leads are equal, the later bytes of the keys
//! decide.
//!
//! All methods tolerate entries that a writer changes meanwhile. In this case the order is meaningless, and the
//! reader's validation fails.

use std::cmp::Ordering;
use std::mem;
use std::ops::{Bound, Range};
use std::sync::atomic::Ordering::Relaxed;

use pmem::simd::{BELOW, Body, Columns, EQUAL, PAIRS, Vectors};
use pmem::{Line, Medium};

use crate::entry::Entry;
use crate::schema::Schema;
use crate::sorting::{sort_by_first, sort_unstable_by_first};

/// Maximum number of entries that are ordered by counting.
const COUNTED: usize = 64;
/// Maximum number of entries that are inserted into a known order. Each takes a binary search, which reads some records.
const INSERTED: usize = 2;
/// As [`INSERTED`], if the records are in the cache.
const INSERTED_LOADED: usize = 8;
/// Number of records that a search in a copy loads together.
const PIVOTS: usize = 8;
/// Maximum number of further leads that are compared if the leads of two keys are equal. If these are equal, too, the keys are copied and
/// compared.
const LEADS: usize = 8;

/// The entries of a leaf.
pub struct LeafCopy<S: Schema> {
    /// As they were added.
    entries: Vec<Entry<S::Tail>>,
    /// The number of each entry's slot in the leaf. Empty if the engine does not add them.
    slots: Vec<u8>,
    /// Number of the first entries that are in key order.
    ordered: usize,
    leads: Leads,
    /// The positions of the entries, in key order. With 64-bit keys the entries themselves are brought into key order.
    order: Vec<u32>,
    /// Space for entries that are brought into key order.
    sorted: Vec<Entry<S::Tail>>,
    /// The part of `order` that a scan returns.
    returned: Range<usize>,
    /// Runs in `order` of entries whose first bytes are equal, and the number of these bytes.
    equal: Vec<(Range<usize>, usize)>,
    /// The entries of a run by later bytes.
    later: Vec<(u64, u32)>,
}

impl<S: Schema> Default for LeafCopy<S> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            slots: Vec::new(),
            ordered: 0,
            leads: Leads::default(),
            order: Vec::new(),
            sorted: Vec::new(),
            returned: 0..0,
            equal: Vec::new(),
            later: Vec::new(),
        }
    }
}

impl<S: Schema> LeafCopy<S> {
    /// Removes all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.slots.clear();
        self.order.clear();
        (self.ordered, self.returned) = (0, 0..0);
    }

    /// Reserves space for a leaf's entries.
    pub fn reserve(&mut self, entries: usize) {
        self.entries.reserve(entries);
        self.slots.reserve(entries);
        self.order.reserve(entries);
    }

    /// Adds an entry.
    #[inline(always)]
    pub fn push(&mut self, entry: Entry<S::Tail>) {
        self.entries.push(entry);
    }

    /// Adds entries with the numbers of their slots in the leaf, so that an engine can keep the order of the slots.
    #[inline(always)]
    pub fn push_slots(
        &mut self,
        slots: impl Iterator<Item = usize>,
        entry: impl Fn(usize) -> Entry<S::Tail>,
    ) {
        let first = self.slots.len();
        slots.for_each(|slot| self.slots.push(slot as u8));
        self.entries.extend(self.slots[first..].iter().map(|slot| entry(usize::from(*slot))));
    }

    /// Sets the entries to these pairs of 64-bit keys and values, in key order. For callers that run inside of [`Vectors::run_body`].
    #[inline(always)]
    pub fn set_sorted(&mut self, vectors: Vectors, pairs: &Columns) {
        self.entries.resize(pairs.len(), Entry::new([0; 2], 0));
        let entries = &mut self.entries[..];
        let mut place = |at: usize, key: u64, payload: u64| {
            if let Some(entry) = entries.get_mut(at) {
                *entry = Entry::new([key, 0], payload);
            }
        };
        // Two keys are equal only in a damaged leaf, or if the leaf changes meanwhile.
        if !pairs.sort(Some(vectors), &mut place) {
            sort_slowly(pairs).into_iter().enumerate().for_each(|(at, (key, value))| place(at, key, value));
        }
        self.ordered = pairs.len();
    }

    /// Marks the entries that were added so far: they are in key order.
    pub fn set_ordered(&mut self) {
        self.ordered = self.entries.len();
    }

    /// With byte strings: the slots of all entries in key order. Empty if the engine does not add slots.
    pub fn slots_in_order(&self) -> impl Iterator<Item = usize> {
        let slot = |position: &u32| self.slots.get(*position as usize);
        self.order.iter().map_while(slot).map(|slot| usize::from(*slot))
    }

    /// True if the engine knew the order of all entries.
    pub(crate) fn was_ordered(&self) -> bool {
        self.is_ordered()
    }

    fn is_ordered(&self) -> bool {
        self.ordered == self.entries.len()
    }

    /// The entries as they were added.
    pub(crate) fn entries(&self) -> &[Entry<S::Tail>] {
        &self.entries
    }

    /// Number of entries that a scan returns.
    pub(crate) fn len(&self) -> usize {
        self.returned.len()
    }

    /// The entry at a position of those that a scan returns, from the greatest key on if `descending`.
    #[inline(always)]
    pub(crate) fn nth(&self, position: usize, descending: bool) -> Option<&Entry<S::Tail>> {
        let position = if descending {
            self.returned.end.checked_sub(position + 1).filter(|position| *position >= self.returned.start)?
        } else {
            Some(self.returned.start + position).filter(|position| *position < self.returned.end)?
        };
        self.entry_at(position)
    }

    /// True if most entries are in key order, so that the others are inserted into the order. `are_loaded`: the records are in the cache.
    fn is_nearly_ordered(&self, are_loaded: bool) -> bool {
        let others = if are_loaded { INSERTED_LOADED } else { INSERTED };
        self.ordered > 0 && self.entries.len() - self.ordered <= others
    }

    /// Prefetches the first lines of the records that [`LeafCopy::order`] reads whatever their keys are.
    pub(crate) fn prefetch<M: Medium>(&self, medium: &M) {
        let first = if self.is_nearly_ordered(false) { self.ordered } else { 0 };
        self.entries[first..].iter().for_each(|entry| S::prefetch_key(medium, entry.key));
    }

    /// Orders the entries by key. All keys have the same first `shared` bytes. `are_loaded`: the records are in the cache. False if a key
    /// cannot be read (a race, or damage).
    pub(crate) fn order<M: Medium>(
        &mut self,
        medium: &M,
        vectors: Option<Vectors>,
        shared: usize,
        are_loaded: bool,
    ) -> bool {
        let len = self.entries.len();
        self.returned = 0..len;
        if S::PLAIN {
            self.order_plain(vectors);
            return true;
        }
        if self.is_nearly_ordered(are_loaded) {
            self.order.clear();
            self.order.extend(0..self.ordered as u32);
            return (self.ordered..len).all(|position| self.insert(medium, position, shared));
        }
        self.leads.resize(len);
        for (position, entry) in self.entries.iter().enumerate() {
            let Some(lead) = S::lead(medium, entry.key, shared) else { return false };
            self.leads.set(position, lead);
        }
        let are_different = self.leads.order(vectors, &mut self.order);
        are_different || self.order_equal_leads(medium, shared + size_of::<u64>())
    }

    /// Brings entries with 64-bit keys into key order.
    fn order_plain(&mut self, vectors: Option<Vectors>) {
        let len = self.entries.len();
        if self.is_ordered() {
            return;
        }
        self.leads.resize(len);
        self.entries.iter().enumerate().for_each(|(position, entry)| self.leads.set(position, entry.key[0]));
        self.leads.order(vectors, &mut self.order);
        self.sorted.clear();
        self.sorted.extend(self.order.iter().filter_map(|position| self.entries.get(*position as usize)));
        mem::swap(&mut self.entries, &mut self.sorted);
    }

    /// Inserts an entry into the order. False if its key cannot be read, or if a record beside its place is damaged ([`LeafCopy::is_sound`]).
    fn insert<M: Medium>(&mut self, medium: &M, position: usize, shared: usize) -> bool {
        let (entries, key) = (&self.entries, self.entries[position].key);
        let Some(lead) = S::lead(medium, key, shared) else { return false };
        let is_below = |other: &u32| {
            let other = entries[*other as usize].key;
            match S::lead(medium, other, shared) {
                Some(other_lead) if other_lead == lead => S::compare_keys(medium, other, key).is_lt(),
                other_lead => other_lead < Some(lead),
            }
        };
        let place = self.order.partition_point(is_below);
        let is_right = self.is_sound(medium, place.checked_sub(1)) && self.is_sound(medium, Some(place));
        self.order.insert(place, position as u32);
        is_right
    }

    /// True if the record at a place in key order is sound, or if there is none. One damaged record can mislead a binary search. Then the
    /// search ends beside this record.
    fn is_sound<M: Medium>(&self, medium: &M, place: Option<usize>) -> bool {
        let Some(entry) = place.and_then(|place| self.entry_at(place)) else { return true };
        let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
        S::PLAIN || S::read_pair(medium, entry, &mut key, &mut value)
    }

    /// Orders the entries whose leads are equal by the bytes of their keys after the first `skipped` ones: eight at a time, and then by
    /// whole keys. An order that changes meanwhile does no harm here. False if a key cannot be read.
    fn order_equal_leads<M: Medium>(&mut self, medium: &M, skipped: usize) -> bool {
        let skipped_max = skipped + LEADS * size_of::<u64>();
        let lead = |position: u32| self.leads.get(position as usize);
        let key = |position: u32| self.entries.get(position as usize).map_or([0; 2], |entry| entry.key);
        self.equal.clear();
        self.equal.extend(runs(&self.order, |a, b| lead(*a) == lead(*b)).map(|run| (run, skipped)));
        while let Some((run, skipped)) = self.equal.pop() {
            let order = &mut self.order[run.clone()];
            if skipped >= skipped_max {
                let mut keys = Vec::with_capacity(order.len());
                for position in &*order {
                    let mut buffer = S::KeyBuf::default();
                    if !S::read_key(medium, key(*position), &mut buffer) {
                        return false;
                    }
                    keys.push((buffer, *position));
                }
                sort_unstable_by_first(&mut keys);
                order.iter_mut().zip(&keys).for_each(|(to, (_, position))| *to = *position);
                continue;
            }
            self.later.clear();
            for position in &*order {
                let Some(lead) = S::lead(medium, key(*position), skipped) else { return false };
                self.later.push((lead, *position));
            }
            self.later.sort_unstable();
            order.iter_mut().zip(&self.later).for_each(|(to, (_, position))| *to = *position);
            let equal = runs(&self.later, |a, b| a.0 == b.0);
            let at = |of: Range<usize>| run.start + of.start..run.start + of.end;
            self.equal.extend(equal.map(|of| (at(of), skipped + size_of::<u64>())));
        }
        true
    }

    /// Sets the entries that a scan from this position returns. False if the record beside the position is damaged
    /// ([`LeafCopy::is_sound`]).
    pub(crate) fn cut<M: Medium>(&mut self, medium: &M, from: &Bound<S::KeyBuf>, descending: bool) -> bool {
        let len = self.entries.len();
        self.returned = 0..len;
        let (key, includes) = match from {
            Bound::Unbounded => return true,
            Bound::Included(key) => (key, true),
            Bound::Excluded(key) => (key, false),
        };
        let probe = S::probe(S::borrow(key));
        let is_before = |place: usize| {
            self.entry_at(place).is_some_and(|entry| match S::compare_words(medium, entry.key, probe) {
                Ordering::Less => true,
                Ordering::Equal => includes == descending,
                Ordering::Greater => false,
            })
        };
        // Most copies keep all of their entries.
        if descending && (len == 0 || is_before(len - 1)) || !descending && !is_before(0) {
            return true;
        }
        if S::PLAIN && len <= COUNTED {
            // To count has no branches to mispredict.
            let (word, equal) = (S::plain(probe), includes == descending);
            let is_before = |entry: &Entry<S::Tail>| (entry.key[0] < word) | (equal & (entry.key[0] == word));
            let before = self.entries.iter().map(|entry| usize::from(is_before(entry))).sum();
            self.returned = if descending { 0..before } else { before..len };
            return true;
        }
        let (mut low, mut high) = (0, len);
        while low < high {
            // The records of several steps are loaded together, so their cache misses overlap.
            let step = ((high - low) / PIVOTS).max(1);
            let pivot = |i: usize| low + step / 2 + i * step;
            let count = (high - low - step / 2).div_ceil(step);
            (0..count)
                .filter_map(|i| self.entry_at(pivot(i)))
                .for_each(|entry| S::prefetch_key(medium, entry.key));
            let (mut first, mut last) = (0, count);
            while first < last {
                let middle = first.midpoint(last);
                if is_before(pivot(middle)) { first = middle + 1 } else { last = middle }
            }
            let below = first.checked_sub(1).map_or(low, |i| pivot(i) + 1);
            (low, high) = (below, if first < count { pivot(first) } else { high });
        }
        self.returned = if descending { 0..low } else { low..len };
        // The entry on the other side of the position. The scan itself reads the one on this side.
        let beside = if descending { Some(low) } else { low.checked_sub(1) };
        self.is_sound(medium, beside)
    }

    /// The entry at a place in key order.
    #[inline(always)]
    fn entry_at(&self, place: usize) -> Option<&Entry<S::Tail>> {
        if S::PLAIN {
            return self.entries.get(place);
        }
        self.entries.get(*self.order.get(place)? as usize)
    }
}

/// The leads of entries, in the order of the leaf. They are in lines, so that vectors can compare them.
#[derive(Default)]
struct Leads {
    lines: Vec<Line>,
    len: usize,
}

impl Leads {
    /// Sets the number of leads. No lead is above the unused words of the last line.
    fn resize(&mut self, len: usize) {
        self.len = len;
        self.lines.resize_with(len.div_ceil(8), Line::zero);
        if let Some(last) = self.lines.last() {
            last.0.iter().for_each(|word| word.store(u64::MAX, Relaxed));
        }
    }

    #[inline(always)]
    fn set(&self, position: usize, lead: u64) {
        self.lines[position / 8].0[position % 8].store(lead, Relaxed);
    }

    #[inline(always)]
    fn get(&self, position: usize) -> u64 {
        self.lines.get(position / 8).map_or(0, |line| line.0[position % 8].load(Relaxed))
    }

    /// Sets `order` to the positions of the leads in ascending order. True if no two leads are equal. False if two are equal, or if this is
    /// unknown.
    fn order(&self, vectors: Option<Vectors>, order: &mut Vec<u32>) -> bool {
        order.clear();
        order.extend(0..self.len as u32);
        if let Some(vectors) = vectors.filter(|_| self.len <= COUNTED) {
            return vectors.run_body(Count(self, order));
        }
        order.sort_unstable_by_key(|position| self.get(*position as usize));
        false
    }
}

/// Orders at most [`COUNTED`] leads: the place of a lead is the number of smaller ones, and of equal ones before it. Counting has no
/// branches to mispredict. True if no two leads are equal.
struct Count<'a>(&'a Leads, &'a mut [u32]);

impl Body for Count<'_> {
    type Out = bool;
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> bool {
        let Self(leads, order) = self;
        let Some(vectors) = vectors else { return false };
        let mut taken = 0_u64;
        for position in 0..order.len() {
            let below = vectors.words::<BELOW>(&leads.lines, leads.get(position)).count_ones();
            taken |= 1 << (below % 64);
            if let Some(place) = order.get_mut(below as usize) {
                *place = position as u32;
            }
        }
        if taken.count_ones() as usize == order.len() {
            return true;
        }
        for position in 0..order.len() {
            let lead = leads.get(position);
            let before = (1 << (position % 64)) - 1;
            let below = vectors.words::<BELOW>(&leads.lines, lead);
            let place = (below | vectors.words::<EQUAL>(&leads.lines, lead) & before).count_ones();
            if let Some(place) = order.get_mut(place as usize) {
                *place = position as u32;
            }
        }
        false
    }
}

/// Sorts at most 64 slots by their 64-bit keys. Returns the slots and their number. For callers that run inside of
/// [`Vectors::run_body`].
#[inline(always)]
pub fn slots_by_key(
    vectors: Option<Vectors>,
    slots: impl Iterator<Item = (usize, u64)>,
) -> ([u8; PAIRS], usize) {
    let mut pairs = Columns::default();
    slots.for_each(|(slot, key)| pairs.push(key, slot as u64));
    let mut sorted = [0; PAIRS];
    let mut place = |at: usize, _: u64, slot: u64| sorted[at % PAIRS] = slot as u8;
    if !pairs.sort(vectors, &mut place) {
        sort_slowly(&pairs).into_iter().enumerate().for_each(|(at, (key, slot))| place(at, key, slot));
    }
    (sorted, pairs.len())
}

/// The pairs in the order of their keys. Pairs with equal keys keep their order.
#[cold]
fn sort_slowly(pairs: &Columns) -> Vec<(u64, u64)> {
    let mut sorted: Vec<_> = pairs.pairs().collect();
    sort_by_first(&mut sorted);
    sorted
}

/// The runs of at least two equal neighbours.
fn runs<T>(of: &[T], equal: impl Fn(&T, &T) -> bool) -> impl Iterator<Item = Range<usize>> {
    let mut end = 0;
    of.chunk_by(equal).filter_map(move |run| {
        let start = end;
        end += run.len();
        (run.len() > 1).then_some(start..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_sorted_by_their_keys() {
        let mut random = fastrand::Rng::with_seed(4);
        for len in 0..=PAIRS {
            // Different keys, among them the greatest word; then two that are equal, as in a damaged leaf.
            let mut keys: Vec<u64> = (0..len as u64).map(|i| u64::MAX - i * i).collect();
            random.shuffle(&mut keys);
            for are_different in [true, false] {
                if let (false, [first, .., last]) = (are_different, &mut keys[..]) {
                    *last = *first;
                }
                let slots = || keys.iter().enumerate().map(|(i, key)| (PAIRS - 1 - i, *key));
                let mut expected: Vec<_> = slots().enumerate().collect();
                expected.sort_by_key(|(position, (_, key))| (*key, *position));
                let expected: Vec<u8> = expected.into_iter().map(|(_, (slot, _))| slot as u8).collect();
                for vectors in [None, Vectors::of_processor()] {
                    let (sorted, count) = slots_by_key(vectors, slots());
                    assert_eq!(sorted[..count], expected, "{vectors:?}");
                }
            }
        }
    }

    #[test]
    fn leads_are_ordered_with_and_without_vectors() {
        let mut random = fastrand::Rng::with_seed(3);
        for len in (0..140).chain([1000]) {
            let vectors = Vectors::of_processor();
            let mut leads = Leads::default();
            leads.resize(len);
            let words: Vec<u64> = (0..len).map(|_| random.u64(..) >> 1 << random.u32(..2)).collect();
            words.iter().enumerate().for_each(|(position, lead)| leads.set(position, *lead));
            let mut expected: Vec<u32> = (0..len as u32).collect();
            expected.sort_by_key(|position| words[*position as usize]);
            let (mut plain, mut counted) = (Vec::new(), Vec::new());
            assert!(!leads.order(None, &mut plain));
            assert_eq!(leads.order(vectors, &mut counted), vectors.is_some() && len <= COUNTED);
            assert_eq!((&plain, &counted), (&expected, &expected));
            // Equal leads, and the greatest word.
            for lead in [words.first().copied().unwrap_or(0), u64::MAX] {
                leads.resize(len);
                (0..len).for_each(|position| leads.set(position, lead));
                assert_eq!(leads.order(vectors, &mut counted), vectors.is_some() && len < 2);
                counted.sort_unstable();
                assert!(counted.into_iter().eq(0..len as u32));
                counted = Vec::new();
            }
        }
    }
}
