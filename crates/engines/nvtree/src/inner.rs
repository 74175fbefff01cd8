//! Inner nodes: volatile, contiguous, and addressed by calculation.
//!
//! ```text
//! levels   the smallest word of each node below, 16 in a node: child i of node n is node 16 n + i of the next level
//! parents  nodes above the leaves: `space` entries each (word, address of a leaf), four entries in a line, ascending
//! ```
//!
//! The only pointers are those to leaves. The words of the levels never change. Parents add and remove leaves by shifting their entries.
//! When a parent has little space left, all inner nodes are rebuilt ([`rebuild`](crate::rebuild)).
//!
//! An entry has one word for the lower bound of its leaf. With 64-bit keys the word is the bound. With byte strings it is 8 bytes of the
//! bound, those after the common prefix of all bounds at the time of the build. If words are equal, the separator that the leaf references
//! is compared.
//!
//! Invariants:
//! * I1: entries ascend through all parents. No parent is empty. Entry 0 of parent 0 is the first leaf and is below all keys.
//! * I2: a parent's word in the level above is at or below the words of its entries. So a key's entry is in the last parent whose word is
//!   not above the key. Exception: if a merge removed the first leaf of that parent, the key's entry may be in an earlier parent.
//! * I3: while entries are shifted, a reader may find any leaf or none. [`index::leaf_list::Core::changes`] is odd meanwhile.

use index::Schema;
use index::leaf_list::bound::leading;
use pmem::Line;
use pmem::simd::{BELOW, UP_TO, pairs};
use pmem::sync::{AtomicU64, Ordering, step};

/// Entries in a line of a parent.
const IN_LINE: usize = 4;
/// Maximum entries of a parent of leaves: the number that one vector comparison covers.
pub const SPACE: usize = 16 * IN_LINE;
/// Children of an inner node. Their words fill two lines.
const FANOUT: usize = 16;

/// A place in the parents: number of the parent, number of the entry.
pub(crate) type Place = (usize, usize);

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    /// The common prefix of all bounds at the time of the build.
    begin: Vec<u8>,
    /// Words of all levels, from the top level down.
    levels: Vec<u64>,
    /// Index of the first word of each level.
    starts: Vec<usize>,
    /// Maximum number of entries of a parent, and number of its lines.
    space: usize,
    lines: usize,
    pairs: Vec<Line>,
    /// Number of entries of each parent.
    entries: Vec<AtomicU64>,
    /// Number of entries of all parents.
    leaves: AtomicU64,
    /// Number of leaves at the time of the build.
    built: usize,
}

impl Inner {
    /// Empty inner nodes for bounds with the prefix `begin`, with capacity for `parents` parents of `space` entries.
    pub(crate) fn with_capacity(begin: Vec<u8>, parents: usize, space: usize) -> Self {
        let lines = space.div_ceil(IN_LINE);
        let mut new = Self { begin, space, lines, ..Self::default() };
        new.pairs.reserve(parents * lines);
        new.entries.reserve(parents);
        new
    }

    /// Appends a leaf after all others. Parents are half filled.
    pub(crate) fn push(&mut self, word: u64, leaf: u64) {
        if self.entries.last().is_none_or(|last| get(last) >= self.space / 2) {
            self.pairs.resize_with(self.pairs.len() + self.lines, Line::zero);
            self.entries.push(AtomicU64::new(0));
        }
        let parent = self.entries.len() - 1;
        let entry = self.entries_of(parent);
        self.set(parent, entry, word, leaf);
        self.count(parent, entry + 1);
    }

    /// Sets the number of entries of a parent.
    fn count(&self, parent: usize, entries: usize) {
        let leaves = self.leaves() + entries - self.entries_of(parent);
        self.leaves.store(leaves as u64, Ordering::Relaxed);
        self.entries[parent].store(entries as u64, Ordering::Relaxed);
    }

    /// Builds the levels above the complete parents.
    pub(crate) fn finish(&mut self) {
        let firsts = (0..self.parents()).map(|parent| self.word(parent, 0)).collect();
        let mut levels: Vec<Vec<u64>> = vec![firsts];
        while levels[levels.len() - 1].len() > FANOUT {
            levels.push(levels[levels.len() - 1].iter().copied().step_by(FANOUT).collect());
        }
        for level in levels.into_iter().rev() {
            self.starts.push(self.levels.len());
            self.levels.extend(level);
        }
        self.built = self.leaves();
    }

    /// Number of parents of leaves.
    #[inline(always)]
    pub(crate) fn parents(&self) -> usize {
        self.entries.len()
    }

    /// Number of leaves.
    pub(crate) fn leaves(&self) -> usize {
        get(&self.leaves)
    }

    /// Bytes of volatile memory.
    pub(crate) fn memory(&self) -> u64 {
        8 * (self.levels.len() + self.entries.len()) as u64 + size_of_val(self.pairs.as_slice()) as u64
    }

    /// Number of entries of a parent.
    #[inline(always)]
    pub(crate) fn entries_of(&self, parent: usize) -> usize {
        get(&self.entries[parent])
    }

    /// True if a parent has no space for another leaf.
    pub(crate) fn is_full(&self, parent: usize) -> bool {
        self.entries_of(parent) >= self.space
    }

    /// True if a parent is three quarters full. With several parents, also if the number of leaves is below a quarter of the number at the
    /// time of the build.
    pub(crate) fn wants_rebuild(&self, parent: usize) -> bool {
        self.entries_of(parent) * 4 >= self.space * 3
            || (self.parents() > 1 && self.leaves() * 4 < self.built)
    }

    /// The line of an entry, and the entry's two words in it. The schedule explorer does not see accesses to a line, so each is an explicit
    /// step.
    #[inline(always)]
    fn pair(&self, (parent, entry): Place) -> (&Line, [usize; 2]) {
        step();
        let first = entry % IN_LINE * 2;
        (&self.pairs[parent * self.lines + entry / IN_LINE], [first, first + 1])
    }

    #[inline(always)]
    pub(crate) fn word(&self, parent: usize, entry: usize) -> u64 {
        let (line, [word, _]) = self.pair((parent, entry));
        line.0[word].load(Ordering::Relaxed)
    }

    /// Address of the leaf at a place.
    #[inline(always)]
    pub(crate) fn leaf(&self, place: Place) -> u64 {
        let (line, [_, leaf]) = self.pair(place);
        line.0[leaf].load(Ordering::Relaxed)
    }

    fn set(&self, parent: usize, entry: usize, word: u64, leaf: u64) {
        let (line, [word_at, _]) = self.pair((parent, entry));
        line.0[word_at].store(word, Ordering::Relaxed);
        self.replace((parent, entry), leaf);
    }

    /// The last leaf's place.
    pub(crate) fn last(&self) -> Place {
        let parent = self.parents() - 1;
        (parent, self.entries_of(parent).saturating_sub(1))
    }

    /// The place before another one; `None` before the first.
    pub(crate) fn before(&self, (parent, entry): Place) -> Option<Place> {
        match (parent, entry) {
            (0, 0) => None,
            (parent, 0) => Some((parent - 1, self.entries_of(parent - 1).saturating_sub(1))),
            (parent, entry) => Some((parent, entry - 1)),
        }
    }

    /// The place after another one; `None` after the last.
    pub(crate) fn behind(&self, (parent, entry): Place) -> Option<Place> {
        if entry + 1 < self.entries_of(parent) {
            return Some((parent, entry + 1));
        }
        (parent + 1 < self.parents()).then_some((parent + 1, 0))
    }

    /// Replaces the leaf at a place by one with the same bound.
    pub(crate) fn replace(&self, place: Place, leaf: u64) {
        let (line, [_, leaf_at]) = self.pair(place);
        line.0[leaf_at].store(leaf, Ordering::Relaxed);
    }

    /// Inserts a leaf after a place. The parent is not full.
    pub(crate) fn insert_behind(&self, (parent, entry): Place, word: u64, leaf: u64) {
        let entries = self.entries_of(parent);
        for i in (entry + 1..entries).rev() {
            self.set(parent, i + 1, self.word(parent, i), self.leaf((parent, i)));
        }
        self.set(parent, entry + 1, word, leaf);
        self.count(parent, entries + 1);
    }

    /// Removes a leaf that is not the only one of its parent.
    pub(crate) fn remove(&self, (parent, entry): Place) {
        let entries = self.entries_of(parent);
        for i in entry + 1..entries {
            self.set(parent, i - 1, self.word(parent, i), self.leaf((parent, i)));
        }
        self.count(parent, entries - 1);
    }

    /// The common prefix of all bounds.
    pub(crate) fn begin(&self) -> &[u8] {
        &self.begin
    }

    /// The word of a key, comparable with the entries' words.
    #[inline(always)]
    pub(crate) fn word_of<S: Schema>(&self, key: &S::Key) -> u64 {
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

    /// The last parent whose word in the lowest level is at or below `word`, or the first parent.
    #[inline(always)]
    fn descend(&self, word: u64) -> usize {
        let mut node = 0;
        for (i, start) in self.starts.iter().enumerate() {
            let end = self.starts.get(i + 1).copied().unwrap_or(self.levels.len());
            let first = start + node * FANOUT;
            let words = &self.levels[first..end.min(first + FANOUT)];
            let low = words.iter().map(|least| usize::from(*least <= word)).sum::<usize>();
            node = node * FANOUT + low.saturating_sub(1);
        }
        node
    }

    /// The last entry of a parent at or below a word (with `below`: strictly below it), by vector instructions. `None` if vector
    /// instructions cannot be used or if all entries are above. In explored schedules each word is a step of its own, so vectors are not
    /// used.
    #[inline(always)]
    fn rank<S: Schema>(&self, parent: usize, word: u64, below: bool) -> Option<usize> {
        if !S::PLAIN || self.space > SPACE || cfg!(shuttle) {
            return None;
        }
        let entries = self.entries_of(parent);
        let first = parent * self.lines;
        let lines = self.pairs.get(first..first + entries.div_ceil(IN_LINE))?;
        let mask = if below { pairs::<BELOW>(lines, word) } else { pairs::<UP_TO>(lines, word) }?;
        let mask = mask & (u64::MAX >> (SPACE - entries.clamp(1, SPACE)));
        (mask.count_ones() as usize).checked_sub(1)
    }

    /// The last place at or below a key (with `below`: strictly below it), or the first place. `is_above` compares the bounds of leaves
    /// whose word is the key's: true if the leaf's bound is above the key (with `below`: at or above it).
    #[inline]
    pub(crate) fn find<S: Schema>(&self, key: &S::Key, below: bool, is_above: impl Fn(u64) -> bool) -> Place {
        let word = self.word_of::<S>(key);
        let is_low = |parent: usize, entry: usize| {
            let least = self.word(parent, entry);
            least < word
                || (least == word && if S::PLAIN { !below } else { !is_above(self.leaf((parent, entry))) })
        };
        let mut parent = if self.starts.is_empty() { self.parents() - 1 } else { self.descend(word) };
        if let Some(entry) = self.rank::<S>(parent, word, below) {
            return (parent, entry);
        }
        // The search nearly always ends here (I2). If many leaves have the same word, the entry may be many parents to the left.
        let mut step = 1;
        let mut above = parent + 1;
        while parent > 0 && !is_low(parent, 0) {
            above = parent;
            parent = parent.saturating_sub(step);
            step *= 2;
        }
        while above - parent > 1 {
            let middle = parent.midpoint(above);
            if is_low(middle, 0) { parent = middle } else { above = middle }
        }
        let (mut low, mut high) = (0, self.entries_of(parent));
        while high - low > 1 {
            let middle = low.midpoint(high);
            if is_low(parent, middle) { low = middle } else { high = middle }
        }
        (parent, low)
    }
}

fn get(count: &AtomicU64) -> usize {
    count.load(Ordering::Relaxed) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use index::{Keyed, Words};

    /// Compares inserts, removals and searches with an ordered list, for parents that hold any number of entries.
    #[test]
    fn leaves_are_found_whatever_was_taken_in_and_let_go() {
        for space in [4, 8, 64] {
            let mut random = fastrand::Rng::with_seed(space as u64);
            let mut inner = Inner::with_capacity(Vec::new(), 8, space);
            let mut model: Vec<(u64, u64)> = (0..300).map(|i| (i * 1000, 64 * (i + 1))).collect();
            model.iter().for_each(|(word, leaf)| inner.push(*word, *leaf));
            inner.finish();
            let mut taken = 0;
            for step in 0..4000 {
                let key = random.u64(..301_000);
                let expected = model.partition_point(|(word, _)| *word <= key) - 1;
                let place = inner.find::<Words>(&key, false, |_| false);
                assert_eq!(inner.leaf(place), model[expected].1, "{space}: {key}");
                let below = inner.find::<Words>(&key, true, |_| false);
                let strictly = model.partition_point(|(word, _)| *word < key).saturating_sub(1);
                assert_eq!(inner.leaf(below), model[strictly].1, "{space}: below {key}");
                if random.bool() && !inner.is_full(place.0) && model[expected].0 != key {
                    inner.insert_behind(place, key, (1 << 32) | (step * 64));
                    model.insert(expected + 1, (key, (1 << 32) | (step * 64)));
                    taken += 1;
                } else if expected > 0 && inner.entries_of(place.0) > 1 {
                    inner.remove(place);
                    model.remove(expected);
                }
            }
            assert!(taken > 200, "{taken}");
            let mut place = Some((0, 0));
            let walked = std::iter::from_fn(|| {
                let at = place?;
                place = inner.behind(at);
                Some((inner.word(at.0, at.1), inner.leaf(at)))
            });
            assert!(walked.eq(model.iter().copied()));
        }
    }

    #[test]
    fn words_that_are_the_same_are_told_apart_by_the_bounds_of_the_leaves() {
        let keys: Vec<Vec<u8>> = (0..200).map(|i| format!("samesame{i:04}").into_bytes()).collect();
        for begin in [b"".to_vec(), b"samesame0".to_vec()] {
            let mut inner = Inner::with_capacity(begin, 8, 4);
            inner.push(0, 0);
            for (i, key) in keys.iter().enumerate().skip(1) {
                inner.push(inner.word_of::<Keyed>(key), i as u64);
            }
            inner.finish();
            for (i, key) in keys.iter().enumerate() {
                let place = inner.find::<Keyed>(key, false, |leaf| leaf > 0 && keys[leaf as usize] > *key);
                assert_eq!(inner.leaf(place), i as u64);
                let place = inner.find::<Keyed>(key, true, |leaf| leaf > 0 && keys[leaf as usize] >= *key);
                assert_eq!(inner.leaf(place), i.saturating_sub(1) as u64);
            }
        }
    }
}
