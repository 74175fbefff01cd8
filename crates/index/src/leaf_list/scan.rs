//! Scans in both directions, concurrent with the writer.
//!
//! A cursor copies the entries of one leaf, validates the copy, and sorts it. The bound of the leaf leads to the next leaf. If a record has
//! changed since, the cursor finds the leaf again from the last returned key. So a scan returns each key at most once and in order. It
//! misses no key that was present throughout the scan.

use std::ops::Bound;

use crate::images::{Scanned, Scans, View};
use crate::schema::Schema;
use pmem::stripe::Version;
use pmem::{Error, Result};

use super::bound::read_bound;
use super::copy::LeafCopy;
use super::core::{KeyBufOf, LeafList, SchemaOf, ValueBufOf};
use super::read::Reads;
use crate::group::Life;

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
    /// The version of the page's leaf, and the key at which the next leaf begins.
    version: Option<Version>,
    beyond: Option<KeyBufOf<T>>,
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
            version: None,
            beyond: None,
            // The contents of a snapshot are durable already.
            durable: !view.is_snapshot(),
            scanned: Scanned::new(view),
        }
    }

    /// Makes the cursor return entries that are not durable yet. For callers that only need the keys in order to change them.
    #[must_use]
    pub(crate) fn unsettled(mut self) -> Self {
        self.durable = false;
        self
    }

    /// Places the cursor before the first key of `from` (ascending) or after the last key of it (descending).
    pub fn seek(&mut self, from: Bound<KeyBufOf<T>>, descending: bool) {
        self.scanned.begin();
        self.from = from;
        self.descending = descending;
        self.ended = false;
        self.page.clear();
        self.given = 0;
        self.beyond = None;
    }

    /// Moves to the next key and copies key and value. False at the end.
    ///
    /// # Errors
    /// `Corrupt` if a leaf or a record is damaged. `SnapshotBytes` if before-images of the scan's view were dropped.
    pub fn next(&mut self, key: &mut KeyBufOf<T>, value: &mut ValueBufOf<T>) -> Result<bool> {
        self.next_seen(key, value)
    }

    /// As [`Cursor::next`], for the current contents of the index instead of the view. For callers that only need the keys in order to
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
            let find = |key: &KeyBufOf<T>, below| {
                index.leaf_to_scan(SchemaOf::<T>::borrow(key), below, self.descending)
            };
            let seen = index.see(|| match (&from, self.descending) {
                (Bound::Unbounded, true) => index.last_leaf(),
                (Bound::Unbounded, false) => find(&KeyBufOf::<T>::default(), false),
                (Bound::Excluded(key), true) => find(key, true),
                (Bound::Included(key) | Bound::Excluded(key), _) => find(key, false),
            });
            let leaf = seen.leaf;
            let edge = if self.descending { index.lower_bound(leaf) } else { index.upper_bound(leaf) };
            let mut beyond = KeyBufOf::<T>::default();
            let is_bound = edge == 0 || read_bound::<_, SchemaOf<T>>(medium, edge, &mut beyond);
            self.page.clear();
            self.given = 0;
            let sound = index.is_leaf(leaf) & is_bound & index.entries_of(leaf, &mut self.page);
            if !index.is_good(&seen) {
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
            self.version = Some(seen.version);
            self.ended = edge == 0;
            self.beyond = (edge != 0).then_some(beyond);
            self.order();
            return Ok(true);
        }
    }

    /// Sorts the page and removes the keys that the scan has passed.
    fn order(&mut self) {
        let (from, descending) = (&self.from, self.descending);
        self.page.retain(|key| match (from, descending) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(from), false) => key >= from,
            (Bound::Excluded(from), false) => key > from,
            (Bound::Included(from), true) => key <= from,
            (Bound::Excluded(from), true) => key < from,
        });
        self.page.sort();
        if descending {
            self.page.pairs().reverse();
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

    fn next_held(&mut self, key: &mut KeyBufOf<T>, value: &mut ValueBufOf<T>) -> Result<bool> {
        let index = self.index;
        let medium = index.region.medium();
        let mut tries = index.stripes.tries();
        loop {
            let Some((of_entry, entry)) = self.page.pairs().get_mut(self.given) else {
                if !self.turn()? {
                    return Ok(false);
                }
                continue;
            };
            let sound = SchemaOf::<T>::read_value(medium, entry, value);
            // Plain entries contain their value, and the copy of the page was validated.
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
            if SchemaOf::<T>::PLAIN {
                key.clone_from(of_entry);
            } else {
                // The page does not need this key again.
                std::mem::swap(key, of_entry);
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
