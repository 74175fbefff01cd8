//! Scans in both directions, concurrent with the writer.
//!
//! A cursor copies the entries of one leaf (the page), orders them, and validates the copy. Each leaf has a lower and an upper bound of its
//! keys. To find the next leaf, an ascending cursor searches for the leaf that begins at the upper bound, and a descending cursor for the
//! leaf below the lower bound. If keys and values are byte strings, they are in records outside of the leaf, which the cursor reads later.
//! After each record it validates the leaf again. If the leaf has changed since it was copied, the cursor searches for the leaf again, from
//! the last returned key. So a scan returns each key at most once and in order. It misses no key that was present throughout the scan.
//!
//! The records of a leaf are scattered in the region. While an ascending cursor returns the entries of a leaf, it
//! prefetches the records of the next leaf, a few at a time. In its first leaf a cursor prefetches few records at
//! first, and then more and more, and it reads the next leaf only after some entries. So a short scan prefetches few
//! records that it does not return.

use std::mem;
use std::ops::Bound;

use crate::images::{Scanned, Scans, View};
use crate::schema::Schema;
use pmem::simd::Vectors;
use pmem::stripe::Version;
use pmem::{Error, LINE, Medium, Result};

use super::bound::read_bound;
use super::copy::LeafCopy;
use super::core::{KeyBufOf, LeafList, SchemaOf, ValueBufOf};
use super::following::Following;
use super::read::Reads;
use crate::group::Life;

/// Maximum number of records of the page that are prefetched ahead of the one that is read. Used only if the records were not prefetched
/// while the previous leaf was returned.
const RECORDS_AHEAD: usize = 24;
/// Number of records of the next leaf that are prefetched together. A scan begins with as many records ahead.
const TOGETHER: usize = 8;

/// A position in key order. It holds no lock.
pub struct Cursor<'a, T: LeafList> {
    index: &'a T,
    descending: bool,
    /// Exactly the position up to which the index was read: images are merged in from here. If the page is stale, the scan continues here.
    from: Bound<KeyBufOf<T>>,
    /// True if no leaf follows the page.
    ended: bool,
    page: LeafCopy<SchemaOf<T>>,
    given: usize,
    /// The entries of the next leaf. They were not validated. They become the page if the leaf's version is still the same then.
    ahead: LeafCopy<SchemaOf<T>>,
    /// The leaf of `ahead`; 0: none.
    leaf_ahead: u64,
    /// The version of this leaf, from before the copy.
    version_ahead: Option<Version>,
    /// Number of the first entries of `ahead` whose records were prefetched.
    sent: usize,
    /// True if the records of the page were prefetched while the leaf before it was returned.
    prefetched: bool,
    /// The leaf of the page, until the next leaf is looked at.
    leaf: Option<u64>,
    /// Number of the first entries of the page whose records were prefetched, and of those that are prefetched ahead.
    requested: usize,
    distance: usize,
    vectors: Option<Vectors>,
    /// The version of the page's leaf, and the key at which the next leaf begins.
    version: Option<Version>,
    beyond: Option<KeyBufOf<T>>,
    /// The leaves after the page.
    following: Following,
    /// The scan's view and its state.
    scanned: Scanned<'a, SchemaOf<T>>,
    /// True if the cursor waits until the returned entries are durable.
    durable: bool,
}

impl<'a, T: LeafList> Cursor<'a, T> {
    /// A cursor before the first key.
    pub(crate) fn new(index: &'a T) -> Self {
        Self::through(index, index.images.view())
    }

    /// A cursor before the first key of a view.
    pub(crate) fn through(index: &'a T, view: View<'a, SchemaOf<T>>) -> Self {
        Self {
            index,
            descending: false,
            from: Bound::Unbounded,
            ended: false,
            page: LeafCopy::default(),
            given: 0,
            ahead: LeafCopy::default(),
            leaf_ahead: 0,
            version_ahead: None,
            sent: 0,
            prefetched: false,
            leaf: None,
            requested: 0,
            distance: TOGETHER,
            vectors: Vectors::of_processor(),
            version: None,
            beyond: None,
            following: Following::none(),
            // The contents of a snapshot are durable already.
            durable: !view.is_snapshot(),
            scanned: Scanned::new(view),
        }
    }

    /// Makes the cursor return entries that are not durable yet. Used by callers that only need the keys in order to change them.
    #[must_use]
    pub(crate) fn unsettled(mut self) -> Self {
        self.durable = false;
        self
    }

    /// Places the cursor at the bound `from`. Then [`Cursor::next`] returns the keys above the bound in ascending order, or the keys below
    /// it in descending order. It also returns the key of an included bound.
    pub fn seek(&mut self, from: Bound<KeyBufOf<T>>, descending: bool) {
        self.scanned.begin();
        self.from = from;
        self.descending = descending;
        self.ended = false;
        self.page.clear();
        self.given = 0;
        self.ahead.clear();
        (self.leaf_ahead, self.sent) = (0, 0);
        self.version_ahead = None;
        self.distance = TOGETHER;
        self.beyond = None;
    }

    /// Moves to the next key and copies key and value. False at the end.
    ///
    /// # Errors
    /// `Corrupt` if a leaf or a record is damaged. `SnapshotBytes` if before-images of the scan's view were dropped.
    #[inline]
    pub fn next(&mut self, key: &mut KeyBufOf<T>, value: &mut ValueBufOf<T>) -> Result<bool> {
        // Whether the view has images was looked up after the page was read. Its entries are what the view saw then.
        if !self.scanned.merges() && self.next_of_page(key, value) {
            return Ok(true);
        }
        self.next_in_view(key, value)
    }

    /// As [`Cursor::next`]. A function of its own, so that the usual case saves no registers.
    #[inline(never)]
    fn next_in_view(&mut self, key: &mut KeyBufOf<T>, value: &mut ValueBufOf<T>) -> Result<bool> {
        self.next_seen(key, value)
    }

    /// The next entry of the page, if keys and values are in the entries: the copy of the page was validated. `from` follows later
    /// ([`Cursor::next_behind`]).
    #[inline(always)]
    fn next_of_page(&mut self, key: &mut KeyBufOf<T>, value: &mut ValueBufOf<T>) -> bool {
        if SchemaOf::<T>::PLAIN
            && let Some(entry) = self.page.nth(self.given, self.descending)
        {
            self.given += 1;
            return SchemaOf::<T>::read_pair(self.index.region.medium(), entry, key, value);
        }
        false
    }

    /// As [`Cursor::next`], for the current contents of the index instead of the view. Used by callers that only need the keys in order to
    /// change them.
    pub(crate) fn next_now(&mut self, key: &mut KeyBufOf<T>, value: &mut ValueBufOf<T>) -> Result<bool> {
        let more = self.next_held(key, value)?;
        if more {
            self.advance(key);
        }
        Ok(more)
    }

    /// Reads the next page. False if there is none.
    fn turn(&mut self) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let mut continues = self.beyond.is_some();
        let from = match self.beyond.take() {
            None => self.from.clone(),
            Some(beyond) if self.descending => Bound::Excluded(beyond),
            Some(beyond) => Bound::Included(beyond),
        };
        let index = self.index;
        let medium = index.region.medium();
        let mut tries = index.stripes.tries();
        loop {
            // This must come before any read.
            let pending = index.pending.as_ref().filter(|pending| self.durable && !pending.has_failed());
            let changes = index.changes.settled(&index.stripes);
            let known = if continues { self.following.take(changes) } else { None };
            let leaf = match known {
                Some(leaf) => leaf,
                None => self.search(&from, changes),
            };
            continues = false;
            let seen = index.seen_at(leaf, changes);
            self.following.to_load(known.is_none()).iter().for_each(|leaf| index.prefetch_to_scan(*leaf));
            let bounds = (index.lower_bound(leaf), index.upper_bound(leaf));
            let (other_edge, edge) = if self.descending { (bounds.1, bounds.0) } else { bounds };
            let mut beyond = KeyBufOf::<T>::default();
            let is_bound = edge == 0 || read_bound::<_, SchemaOf<T>>(medium, edge, &mut beyond);
            self.given = 0;
            self.prefetched = leaf == self.leaf_ahead;
            if self.prefetched && self.version_ahead.take() == Some(seen.version) {
                mem::swap(&mut self.page, &mut self.ahead);
            } else {
                index.entries_of(leaf, &mut self.page);
            }
            let must_sort = edge != 0 && !self.page.was_ordered();
            let shared = if must_sort { self.shared_bytes(other_edge, &beyond) } else { 0 };
            if !self.prefetched {
                self.page.prefetch(medium);
            }
            let is_ordered = self.page.order(medium, self.vectors, shared, self.prefetched);
            let is_cut = self.page.cut(medium, &self.from, self.descending);
            let sound = index.is_leaf(leaf) & is_bound & is_ordered & is_cut;
            if !index.is_good(&seen) {
                self.page.clear();
                tries.fail()?;
                continue;
            }
            if let Some(pending) = pending
                && let Some(ticket) = pending.wait_for_node(leaf)
                && index.wait_to_read(pending, ticket).is_err()
            {
                continue; // rolled back: read again
            }
            let leads_on = edge == 0 || leads_on(&from, &beyond, self.descending);
            if !sound || !leads_on {
                self.page.clear();
                return Err(Error::Corrupt { what: "leaf", at: leaf });
            }
            if !self.page.was_ordered() {
                index.keep_order(leaf, &self.page, || index.is_good(&seen));
            }
            self.version = Some(seen.version);
            self.ended = edge == 0;
            self.beyond = (edge != 0).then_some(beyond);
            self.ahead.clear();
            (self.leaf_ahead, self.sent) = (0, 0);
            (self.leaf, self.requested) = (Some(leaf), 0);
            return Ok(true);
        }
    }

    /// Searches for the leaf from which the scan reads next, and for the leaves that follow. `changes` is the number of structure changes.
    fn search(&mut self, from: &Bound<KeyBufOf<T>>, changes: u64) -> u64 {
        let (index, following) = (self.index, &mut self.following);
        following.begin(self.descending, changes);
        let mut find =
            |key: &KeyBufOf<T>, below| index.leaf_to_scan(SchemaOf::<T>::borrow(key), below, following);
        match (from, self.descending) {
            (Bound::Unbounded, true) => index.last_leaf(),
            (Bound::Unbounded, false) => find(&KeyBufOf::<T>::default(), false),
            (Bound::Excluded(key), true) => find(key, true),
            (Bound::Included(key) | Bound::Excluded(key), _) => find(key, false),
        }
    }

    /// Number of first bytes that are the same in both bounds of a leaf, and so in all of its keys. `bound` is the word of one bound,
    /// `beyond` the key of the other. 0 with 64-bit keys, or if there is no bound.
    fn shared_bytes(&self, bound: u64, beyond: &KeyBufOf<T>) -> usize {
        if SchemaOf::<T>::PLAIN || bound == 0 {
            return 0;
        }
        let mut key = KeyBufOf::<T>::default();
        if !read_bound::<_, SchemaOf<T>>(self.index.region.medium(), bound, &mut key) {
            return 0;
        }
        let bytes = |key| SchemaOf::<T>::key_bytes(SchemaOf::<T>::borrow(key));
        let (key, beyond) = (bytes(&key), bytes(beyond));
        key.as_ref().iter().zip(beyond.as_ref()).take_while(|(a, b)| a == b).count()
    }

    /// Copies the leaf after this one.
    fn look_ahead(&mut self, leaf: u64) {
        let medium = self.index.region.medium();
        let next = self.index.next_leaf(leaf).filter(|next| !self.descending && *next < medium.len());
        self.leaf_ahead = next.unwrap_or(0);
        if self.leaf_ahead != 0 {
            self.version_ahead = Some(self.index.stripes.read(self.leaf_ahead));
            self.index.entries_of(self.leaf_ahead, &mut self.ahead);
            // The key of the bound is in a record, too.
            medium.prefetch(self.index.upper_bound(self.leaf_ahead), LINE);
        }
    }

    /// Prefetches records of the page, if the page was not prefetched. At every [`TOGETHER`]th entry, also prefetches some records of
    /// the next leaf. All records of the next leaf are prefetched before the last entries of the page are returned.
    fn prefetch_some(&mut self) {
        let is_step = self.given.is_multiple_of(TOGETHER);
        if !self.prefetched {
            if is_step && self.given > 0 {
                self.distance = RECORDS_AHEAD.min(self.distance + TOGETHER);
            }
            let wanted = self.page.len().min(self.given + self.distance);
            (self.requested..wanted).for_each(|position| self.prefetch(position));
            self.requested = wanted;
        }
        if !is_step {
            return;
        }
        // In its first leaf a scan looks ahead only if it needs the next leaf soon. It may end before.
        let is_near = self.prefetched || self.given > TOGETHER || self.page.len() - self.given <= TOGETHER;
        if let Some(leaf) = self.leaf.take_if(|_| is_near) {
            self.look_ahead(leaf);
        }
        let medium = self.index.region.medium();
        let entries = self.ahead.entries();
        let wanted = (self.given + 2 * TOGETHER) * entries.len() / self.page.len().max(1);
        let wanted = wanted.min(entries.len()).max(self.sent);
        let some = &entries[self.sent..wanted];
        // A prefetch waits for its page walk, and the walks for several records overlap. So the first lines are requested first.
        some.iter().for_each(|entry| SchemaOf::<T>::prefetch_key(medium, entry.key));
        some.iter().for_each(|entry| SchemaOf::<T>::prefetch(medium, entry));
        self.sent = wanted;
    }

    /// True if a key comes after the position of the scan, and is inside the leaf's other bound.
    #[inline(always)]
    fn may_return(&self, key: &KeyBufOf<T>) -> bool {
        let is_below = SchemaOf::<T>::is_below;
        let is_behind = match &self.from {
            Bound::Unbounded => true,
            Bound::Included(from) if self.descending => !is_below(from, key),
            Bound::Excluded(from) if self.descending => is_below(key, from),
            Bound::Included(from) => !is_below(key, from),
            Bound::Excluded(from) => is_below(from, key),
        };
        is_behind && self.beyond.as_ref().is_none_or(|beyond| is_below(key, beyond) != self.descending)
    }

    /// Prefetches the record at a position of the page.
    #[inline(always)]
    fn prefetch(&self, position: usize) {
        if let Some(entry) = self.page.nth(position, self.descending) {
            SchemaOf::<T>::prefetch(self.index.region.medium(), entry);
        }
    }
}

impl<'a, T: LeafList> Scans<'a, SchemaOf<T>> for Cursor<'a, T> {
    #[inline(always)]
    fn scanned(&mut self) -> &mut Scanned<'a, SchemaOf<T>> {
        &mut self.scanned
    }

    fn position(&self) -> (&Bound<KeyBufOf<T>>, bool) {
        (&self.from, self.descending)
    }

    fn advance(&mut self, key: &KeyBufOf<T>) {
        match &mut self.from {
            Bound::Excluded(from) => from.clone_from(key),
            from => *from = Bound::Excluded(key.clone()),
        }
    }

    fn settle_image(&self, ticket: u64) -> Result<()> {
        if self.durable { self.index.wait_for_image(ticket) } else { Ok(()) }
    }

    #[inline(always)]
    fn next_held(&mut self, key: &mut KeyBufOf<T>, value: &mut ValueBufOf<T>) -> Result<bool> {
        if self.next_of_page(key, value) { Ok(true) } else { self.next_behind(key, value) }
    }
}

impl<T: LeafList> Cursor<'_, T> {
    /// As [`Scans::next_held`]: reads another page, or the record of an entry.
    #[inline(never)]
    fn next_behind(&mut self, key: &mut KeyBufOf<T>, value: &mut ValueBufOf<T>) -> Result<bool> {
        let index = self.index;
        let medium = index.region.medium();
        let mut tries = index.stripes.tries();
        let last = self.given.checked_sub(1).filter(|_| SchemaOf::<T>::PLAIN);
        if let Some(last) = last.and_then(|last| self.page.nth(last, self.descending)) {
            let mut given = KeyBufOf::<T>::default();
            if SchemaOf::<T>::read_key(medium, last.key, &mut given) {
                self.from = Bound::Excluded(given);
            }
        }
        loop {
            if !SchemaOf::<T>::PLAIN && self.given < self.page.len() {
                self.prefetch_some();
            }
            let Some(entry) = self.page.nth(self.given, self.descending) else {
                if !self.turn()? {
                    return Ok(false);
                }
                continue;
            };
            let sound = SchemaOf::<T>::read_pair(medium, entry, key, value);
            if !SchemaOf::<T>::PLAIN && !self.version.is_some_and(|version| index.stripes.check(version)) {
                tries.fail()?;
                self.page.clear();
                self.given = 0;
                self.beyond = None;
                self.ended = false;
                continue;
            }
            if !sound {
                return Err(Error::Corrupt { what: "record", at: entry.payload });
            }
            // The page was ordered without the first bytes that the bounds share. So its order is right only if the keys are inside the
            // bounds.
            if !SchemaOf::<T>::PLAIN && !self.may_return(key) {
                return Err(Error::Corrupt { what: "place of a key, record", at: entry.payload });
            }
            self.given += 1;
            return Ok(true);
        }
    }
}

/// True if the scan advances: this bounds the scan, whatever the region contains.
fn leads_on<K: Ord>(from: &Bound<K>, beyond: &K, descending: bool) -> bool {
    match from {
        Bound::Unbounded => true,
        Bound::Included(from) if descending => beyond <= from,
        Bound::Excluded(from) if descending => beyond < from,
        Bound::Included(from) | Bound::Excluded(from) => beyond > from,
    }
}
