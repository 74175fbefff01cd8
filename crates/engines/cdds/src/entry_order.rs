//! How a node keeps its entries: by key, as the thesis does, or as they came, as its alternate implementation does [thesis §4.4.1].
//!
//! The thesis gives the latter one sentence: without order in nodes there is less to write, and lookups take longer. It tells
//! leaves from inner nodes neither there nor where it speaks of order, and searches both by one procedure (`find`); so
//! here no node has an order. Without one its algorithm 2 is what it says: an entry goes into an empty slot, or, where none is
//! left, over the first dead entry. Nothing is shifted, so an entry is put by stores to one line wherever its key belongs, and no
//! fence stands between; and a crash leaves no entry twice. A search looks at each entry that its view sees. Whoever needs an
//! order (a split, which has to find the median; a merge; a scan; the collector) sorts what it has read.
//!
//! Invariants:
//! * O1 ([`Sorted`]): N4 of [`crate::node`].
//! * O2 ([`Unsorted`]): of the slots of a node that are not void, no two have the same key and start.

use std::cmp::Ordering;
use std::ops::Bound;

use index::Schema;
use index::Target;
use index::sorting::sort_by_first;
use pmem::Medium;

use crate::mask::Mask;
use crate::node::{Entry, Node, compare, read_key};
pub use crate::simd_scan::Look;
use crate::simd_scan::SimdScan;

impl<'a, M: Medium> Look<'a, M> {
    /// Slots of entries that the view sees.
    fn seen(self) -> impl DoubleEndedIterator<Item = (usize, Entry)> {
        let entries = (0..self.shape.slots).map(move |slot| (slot, self.node.entry(self.medium, slot)));
        entries.filter(move |(_, entry)| self.view.sees(entry.start, entry.end))
    }

    fn compare<S: Schema>(self, slot: usize, probe: S::Probe<'_>) -> Ordering {
        compare::<M, S>(self.medium, self.node.slot_at(slot), probe)
    }

    /// The slots that the view sees, those before the target and the others; `None` if they are to be looked at one by one.
    #[inline(always)]
    fn parted<S: Schema>(self, target: Target<S::Probe<'_>>) -> Option<(Mask, Mask)> {
        let (seen, before) = match target {
            Target::Holding(probe) | Target::Below(probe) => {
                let simd_scan = self.simd_scan::<S>(probe)?;
                (simd_scan.census.seen, simd_scan.before(matches!(target, Target::Holding(_))))
            }
            Target::First => (self.census::<S>()?.seen, Mask::default()),
            Target::Last => self.census::<S>().map(|census| (census.seen, census.seen))?,
        };
        Some((Mask(seen.0 & before.0), Mask(seen.0 & !before.0)))
    }

    /// See [`Node::bound`].
    #[inline]
    pub fn bound<S: Schema>(self, probe: S::Probe<'_>, above: bool) -> usize {
        match self.simd_scan::<S>(probe) {
            Some(simd_scan) => simd_scan.bound(above),
            None => self.node.bound::<M, S>(self.medium, self.shape, self.view, probe, above),
        }
    }
}

/// Slots of a node that an entry may be put into.
#[derive(Clone, Copy, Debug)]
pub struct Holes {
    /// Nobody uses them.
    pub empty: Mask,
    /// Nobody sees their entries any more.
    pub dead: Mask,
}

/// See the module's head.
pub trait Order: Send + Sync + 'static {
    /// The engine's name in the superblock.
    const ENGINE: &'static str;
    /// An entry that is put may shift others. Then empty slots of a new node stand between its entries, and a crash may leave an
    /// entry twice.
    const SHIFTS: bool;

    /// Slots of a leaf with this key that the view sees: one, and after a crash perhaps a copy of it.
    fn holding<M: Medium, S: Schema>(at: Look<'_, M>, probe: S::Probe<'_>) -> Mask;

    /// Of the links of an inner node that the view sees the one to take for `target`, and the next behind it; none if there is none
    /// (a race, or damage).
    fn links<M: Medium, S: Schema>(
        at: Look<'_, M>,
        target: Target<S::Probe<'_>>,
    ) -> Option<(Entry, Option<Entry>)>;

    /// Reads the entries of a leaf from a key on, or (`descending`) up to it, that the view sees, into `page`, by key. A copy that a
    /// crash left comes behind its entry.
    fn read<M: Medium, S: Schema>(
        at: Look<'_, M>,
        from: Bound<S::Probe<'_>>,
        descending: bool,
        page: &mut Vec<Entry>,
    );

    /// Entries of an inner node that are not void with keys up to the probe, from the last of them on: of one key that with the greatest start first.
    fn up_to<M: Medium, S: Schema>(at: Look<'_, M>, probe: S::Probe<'_>) -> impl Iterator<Item = Entry>;

    /// Slots of one node as they come, by key, and of one key by start.
    fn by_key<M: Medium, S: Schema>(
        medium: &M,
        slots: impl Iterator<Item = (usize, Entry)>,
    ) -> impl Iterator<Item = (usize, Entry)>;

    /// For an entry that belongs, if there is an order, before slot `before()`: the slot to put it before, and the one to be
    /// overwritten for it ([`Node::insert`]). None if all are taken.
    fn place(node: Node, holes: Holes, before: impl FnOnce() -> usize) -> Option<(usize, usize)>;
}

/// By key, and of one key by start: a search is a binary one, and a put may shift entries.
#[derive(Debug)]
pub struct Sorted;

impl Order for Sorted {
    const ENGINE: &'static str = crate::tree::ENGINE;
    const SHIFTS: bool = true;

    #[inline(always)]
    fn holding<M: Medium, S: Schema>(at: Look<'_, M>, probe: S::Probe<'_>) -> Mask {
        let by_halves = || {
            let first = at.node.bound::<M, S>(at.medium, at.shape, at.view, probe, false);
            let used = (first..at.shape.slots).map(|slot| (slot, at.node.entry(at.medium, slot)));
            let used = used.filter(|(_, entry)| !at.view.is_void(entry.start));
            let same = used.take_while(|(slot, _)| at.compare::<S>(*slot, probe).is_eq());
            Mask::from_iter(same.filter(|(_, e)| at.view.sees(e.start, e.end)).map(|(slot, _)| slot))
        };
        at.simd_scan::<S>(probe).map_or_else(by_halves, SimdScan::found)
    }

    #[inline(always)]
    fn links<M: Medium, S: Schema>(
        at: Look<'_, M>,
        target: Target<S::Probe<'_>>,
    ) -> Option<(Entry, Option<Entry>)> {
        if let Some((before, behind)) = at.parted::<S>(target) {
            let entry = |slot: usize| at.node.entry(at.medium, slot);
            if let Some(slot) = before.last() {
                return Some((entry(slot), behind.first().map(entry)));
            }
            let mut behind = behind.map(entry);
            let first = behind.next()?;
            return Some((first, behind.find(|link| link.key != first.key)));
        }
        let (slots, view) = (at.shape.slots, at.view);
        let bound = match target {
            Target::Holding(probe) => at.bound::<S>(probe, true),
            Target::Below(probe) => at.bound::<S>(probe, false),
            Target::First => 0,
            Target::Last => slots,
        };
        let mut behind = (bound..slots).map(|slot| at.node.entry(at.medium, slot));
        let mut next = behind.by_ref().find(|entry| view.sees(entry.start, entry.end));
        let link = match at.node.last_seen(at.medium, view, bound) {
            Some((_, link)) => link,
            // Keys below the first child's are none; only `First` comes here.
            None => {
                let first = next?;
                next = behind.find(|e| e.key != first.key && view.sees(e.start, e.end));
                first
            }
        };
        Some((link, next))
    }

    fn read<M: Medium, S: Schema>(
        at: Look<'_, M>,
        from: Bound<S::Probe<'_>>,
        descending: bool,
        page: &mut Vec<Entry>,
    ) {
        let slots = at.shape.slots;
        let range = match (from, descending) {
            (Bound::Unbounded, _) => 0..slots,
            (Bound::Included(probe), false) => at.bound::<S>(probe, false)..slots,
            (Bound::Excluded(probe), false) => at.bound::<S>(probe, true)..slots,
            (Bound::Included(probe), true) => 0..at.bound::<S>(probe, true),
            (Bound::Excluded(probe), true) => 0..at.bound::<S>(probe, false),
        };
        let entries = range.map(|slot| at.node.entry(at.medium, slot));
        page.extend(entries.filter(|entry| at.view.sees(entry.start, entry.end)));
    }

    fn up_to<M: Medium, S: Schema>(at: Look<'_, M>, probe: S::Probe<'_>) -> impl Iterator<Item = Entry> {
        let entries = (0..at.bound::<S>(probe, true)).rev().map(move |slot| at.node.entry(at.medium, slot));
        entries.filter(move |entry| !at.view.is_void(entry.start))
    }

    fn by_key<M: Medium, S: Schema>(
        _: &M,
        slots: impl Iterator<Item = (usize, Entry)>,
    ) -> impl Iterator<Item = (usize, Entry)> {
        slots
    }

    fn place(node: Node, holes: Holes, before: impl FnOnce() -> usize) -> Option<(usize, usize)> {
        let before = before();
        let hole = node.best_hole(Mask(holes.empty.0 | holes.dead.0), before)?;
        Some((before, hole))
    }
}

/// As they came: a put shifts nothing, and a search looks at all.
#[derive(Debug)]
pub struct Unsorted;

impl Order for Unsorted {
    const ENGINE: &'static str = crate::tree::ENGINE_UNSORTED;
    const SHIFTS: bool = false;

    #[inline]
    fn holding<M: Medium, S: Schema>(at: Look<'_, M>, probe: S::Probe<'_>) -> Mask {
        let one_by_one = || {
            let same = at.seen().filter(|(slot, _)| at.compare::<S>(*slot, probe).is_eq());
            Mask::from_iter(same.map(|(slot, _)| slot))
        };
        at.simd_scan::<S>(probe).map_or_else(one_by_one, SimdScan::found)
    }

    #[inline]
    fn links<M: Medium, S: Schema>(
        at: Look<'_, M>,
        target: Target<S::Probe<'_>>,
    ) -> Option<(Entry, Option<Entry>)> {
        let (mut last, mut next) = (Nearest::<S>::new(Ordering::Greater), Nearest::<S>::new(Ordering::Less));
        let parted = at.parted::<S>(target);
        // From behind: a new node's links ascend, so the first one below the target is the last below it.
        for (slot, link) in at.seen().rev() {
            let is_before = match target {
                _ if let Some((before, _)) = parted => before.has(slot),
                Target::Holding(probe) => at.compare::<S>(slot, probe).is_le(),
                Target::Below(probe) => at.compare::<S>(slot, probe).is_lt(),
                Target::First => false,
                Target::Last => true,
            };
            let of = if is_before { &mut last } else { &mut next };
            of.meet(at, slot, link)?;
        }
        if last.found.is_some() {
            return last.found.map(|link| (link, next.found));
        }
        // Keys below the first child's are none; only `First` comes here.
        let first = next.found?;
        let mut second = Nearest::<S>::new(Ordering::Less);
        for (slot, link) in at.seen().rev().filter(|(_, link)| link.key != first.key) {
            second.meet(at, slot, link)?;
        }
        Some((first, second.found))
    }

    fn read<M: Medium, S: Schema>(
        at: Look<'_, M>,
        from: Bound<S::Probe<'_>>,
        descending: bool,
        page: &mut Vec<Entry>,
    ) {
        let is_asked = |slot: usize| match (from, descending) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(probe), false) => at.compare::<S>(slot, probe).is_ge(),
            (Bound::Excluded(probe), false) => at.compare::<S>(slot, probe).is_gt(),
            (Bound::Included(probe), true) => at.compare::<S>(slot, probe).is_le(),
            (Bound::Excluded(probe), true) => at.compare::<S>(slot, probe).is_lt(),
        };
        let asked = at.seen().filter(|(slot, _)| is_asked(*slot));
        page.extend(Self::by_key::<M, S>(at.medium, asked).map(|(_, entry)| entry));
    }

    fn up_to<M: Medium, S: Schema>(at: Look<'_, M>, probe: S::Probe<'_>) -> impl Iterator<Item = Entry> {
        let used = at.node.used(at.medium, at.shape, at.view);
        let up_to = used.filter(|(slot, _)| at.compare::<S>(*slot, probe).is_le());
        let by_key: Vec<(usize, Entry)> = Self::by_key::<M, S>(at.medium, up_to).collect();
        by_key.into_iter().rev().map(|(_, entry)| entry)
    }

    /// A key that cannot be read, of damaged memory, comes first; who asks for the pair is told.
    fn by_key<M: Medium, S: Schema>(
        medium: &M,
        slots: impl Iterator<Item = (usize, Entry)>,
    ) -> impl Iterator<Item = (usize, Entry)> {
        // Keys that were copied out have an order whatever memory does meanwhile.
        let mut keyed: Vec<_> = slots
            .map(|(slot, entry)| {
                let mut key = S::KeyBuf::default();
                read_key::<M, S>(medium, entry.words(), &mut key);
                ((key, entry.start), (slot, entry))
            })
            .collect();
        sort_by_first(&mut keyed);
        keyed.into_iter().map(|(_, entry)| entry)
    }

    fn place(_: Node, holes: Holes, _: impl FnOnce() -> usize) -> Option<(usize, usize)> {
        holes.empty.first().or_else(|| holes.dead.first()).map(|slot| (slot, slot))
    }
}

/// Of the links that it met, the one with the greatest or the least key.
struct Nearest<S: Schema> {
    /// How another one's key compares that takes its place.
    wanted: Ordering,
    found: Option<Entry>,
    key: S::KeyBuf,
}

impl<S: Schema> Nearest<S> {
    fn new(wanted: Ordering) -> Self {
        Self { wanted, found: None, key: S::KeyBuf::default() }
    }

    /// `None` if its key cannot be read.
    #[inline]
    fn meet<M: Medium>(&mut self, at: Look<'_, M>, slot: usize, link: Entry) -> Option<()> {
        let is_nearer = || at.compare::<S>(slot, S::probe(S::borrow(&self.key))) == self.wanted;
        if self.found.is_none() || is_nearer() {
            self.found = Some(link);
            return read_key::<M, S>(at.medium, link.words(), &mut self.key).then_some(());
        }
        Some(())
    }
}
