//! The order of entries in a node: by key, as in the thesis, or in order of arrival, as in its alternate implementation [thesis §4.4.1].
//!
//! The thesis has one sentence on the alternative: without order there is less to write, and lookups take longer. This sentence does not
//! distinguish leaves and inner nodes, and one procedure (`find`) searches both. So in the alternative ([`Unsorted`]) neither leaves nor
//! inner nodes have an order. The thesis's algorithm 2 then applies as printed: an entry goes into an empty slot. If no slot is empty, it
//! overwrites the first dead entry. Nothing is shifted. A put of any key stores to one line, without a fence between its stores. A crash
//! leaves no entry twice. A search reads every entry that its view sees. A split, a merge, a scan and the collector sort the entries that
//! they read.
//!
//! Invariants:
//! * O1 ([`Sorted`]): N4 of [`crate::node`].
//! * O2 ([`Unsorted`]): within a node, no two slots that are not void have the same key and the same start.

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
    /// Slots and entries that the view sees.
    fn seen(self) -> impl DoubleEndedIterator<Item = (usize, Entry)> {
        let entries = (0..self.shape.slots).map(move |slot| (slot, self.node.entry(self.medium, slot)));
        entries.filter(move |(_, entry)| self.view.sees(entry.start, entry.end))
    }

    fn compare<S: Schema>(self, slot: usize, probe: S::Probe<'_>) -> Ordering {
        compare::<M, S>(self.medium, self.node.slot_at(slot), probe)
    }

    /// The slots that the view sees: those before the target, and the others. `None` if they must be compared one by one.
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

/// Slots of a node that an entry may be stored in.
#[derive(Clone, Copy, Debug)]
pub struct Holes {
    /// Slots that are not in use.
    pub empty: Mask,
    /// Slots with entries that no reader sees any more.
    pub dead: Mask,
}

/// See the module's head.
pub trait Order: Send + Sync + 'static {
    /// The engine's name in the superblock.
    const ENGINE: &'static str;
    /// True if a put may shift entries. Then a new node has empty slots between its entries, and a crash may leave an entry twice.
    const SHIFTS: bool;

    /// Slots of a leaf with this key that the view sees. After a crash there may be a copy of the entry.
    fn holding<M: Medium, S: Schema>(at: Look<'_, M>, probe: S::Probe<'_>) -> Mask;

    /// The link of an inner node for `target` that the view sees, and the next one after it. `None` if there is none (a race, or damage).
    fn links<M: Medium, S: Schema>(
        at: Look<'_, M>,
        target: Target<S::Probe<'_>>,
    ) -> Option<(Entry, Option<Entry>)>;

    /// Appends to `page`, in key order, the entries of a leaf that the view sees, from a key on or (`descending`) up to it. A copy that a
    /// crash left comes after its entry.
    fn read<M: Medium, S: Schema>(
        at: Look<'_, M>,
        from: Bound<S::Probe<'_>>,
        descending: bool,
        page: &mut Vec<Entry>,
    );

    /// The entries of an inner node with keys up to the probe that are not void, in descending order. The greatest start of a
    /// key comes first.
    fn up_to<M: Medium, S: Schema>(at: Look<'_, M>, probe: S::Probe<'_>) -> impl Iterator<Item = Entry>;

    /// Sorts slots of one node by key, and slots with equal keys by start.
    fn by_key<M: Medium, S: Schema>(
        medium: &M,
        slots: impl Iterator<Item = (usize, Entry)>,
    ) -> impl Iterator<Item = (usize, Entry)>;

    /// The place and the slot for a new entry, as [`Node::insert`] takes them. In a sorted node the entry belongs before slot `before()`.
    /// `None` if all slots are taken.
    fn place(node: Node, holes: Holes, before: impl FnOnce() -> usize) -> Option<(usize, usize)>;
}

/// Entries are sorted by key, and entries with equal keys by start. A search is binary. A put may shift entries.
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
            // No key is below the first child's, so only `First` gets here.
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

/// Entries are in order of arrival. A put shifts nothing. A search compares all entries.
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
        // From the end: in a new node the links ascend, so the first link below the target is the greatest one.
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
        // No key is below the first child's, so only `First` gets here.
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

    /// Keys that cannot be read, because of damage, come first. A read of the pair reports the damage.
    fn by_key<M: Medium, S: Schema>(
        medium: &M,
        slots: impl Iterator<Item = (usize, Entry)>,
    ) -> impl Iterator<Item = (usize, Entry)> {
        // The keys are copied before the sort, so their order is consistent even if the memory changes meanwhile.
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

/// The link with the greatest or the least key of those that it met.
struct Nearest<S: Schema> {
    /// The result of the comparison with which another link replaces the present one.
    wanted: Ordering,
    found: Option<Entry>,
    key: S::KeyBuf,
}

impl<S: Schema> Nearest<S> {
    fn new(wanted: Ordering) -> Self {
        Self { wanted, found: None, key: S::KeyBuf::default() }
    }

    /// `None` if the link's key cannot be read.
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
