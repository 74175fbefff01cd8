//! Scans, both ways, beside the writer.
//!
//! A cursor copies a leaf's entries between two looks at it and puts them in order; it goes on to the next leaf by the bound of
//! this one. If a record has changed meanwhile it looks for the leaf again, from the last key it gave out: so a scan gives each key at
//! most once, in order, and misses none that was there throughout.

use std::ops::Bound;

use crate::images::{Scanned, Scans, View};
use crate::schema::Schema;
use crate::sorting::sort_unstable_by_first;
use pmem::stripe::Version;
use pmem::{Error, Result};

use super::bound::read_bound;
use super::core::{KeyBufOf, LeafList, Pages, SchemaOf, ValueBufOf};
use super::read::Reads;
use crate::group::Life;

/// A position in key order. It holds no lock.
pub struct Cursor<'a, T: LeafList> {
    index: &'a T,
    descending: bool,
    /// What the index was read up to, and nothing more: batches are noted by it. Where to look when the page is stale.
    from: Bound<KeyBufOf<T>>,
    /// There is nothing beyond the page.
    ended: bool,
    page: Pages<SchemaOf<T>>,
    given: usize,
    /// The look at the page's leaf, and where to go on behind it.
    version: Option<Version>,
    beyond: Option<KeyBufOf<T>>,
    /// What is seen.
    scanned: Scanned<'a, SchemaOf<T>>,
    /// Gives out what is durable alone.
    durable: bool,
}

impl<'a, T: LeafList> Cursor<'a, T> {
    /// A cursor before the first key.
    pub(crate) fn new(index: &'a T) -> Self {
        Self::through(index, index.images.view())
    }

    /// A cursor before the first key of what a view sees.
    pub(crate) fn through(index: &'a T, view: View<'a, SchemaOf<T>>) -> Self {
        Self {
            index,
            descending: false,
            from: Bound::Unbounded,
            ended: false,
            page: Vec::new(),
            given: 0,
            version: None,
            beyond: None,
            // What a snapshot sees is durable.
            durable: !view.is_snapshot(),
            scanned: Scanned::new(view),
        }
    }

    /// Does not wait for what is not durable yet: for those who only want keys to change.
    #[must_use]
    pub(crate) fn unsettled(mut self) -> Self {
        self.durable = false;
        self
    }

    /// Places the cursor before the first key of `from` (ascending) or behind the last key of it (descending).
    pub fn seek(&mut self, from: Bound<KeyBufOf<T>>, descending: bool) {
        self.scanned.begin();
        self.from = from;
        self.descending = descending;
        self.ended = false;
        self.page.clear();
        self.given = 0;
        self.beyond = None;
    }

    /// Moves one key on and copies key and value out; false at the end.
    ///
    /// # Errors
    /// `Corrupt` if a leaf or record is damaged; `SnapshotBytes` if the scan or its snapshot is too old.
    pub fn next(&mut self, key: &mut KeyBufOf<T>, value: &mut ValueBufOf<T>) -> Result<bool> {
        self.next_seen(key, value)
    }

    /// As [`Cursor::next`] of what the index holds, whatever the scan's view is: for a caller that only wants keys to change.
    pub(crate) fn next_now(&mut self, key: &mut KeyBufOf<T>, value: &mut ValueBufOf<T>) -> Result<bool> {
        let more = self.next_held(key, value)?;
        if more {
            self.advance(key);
        }
        Ok(more)
    }

    /// The page is spent, or none was read: reads the next; false if there is none.
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
            // Asked before anything is read.
            let pending = index.pending.as_ref().filter(|pending| self.durable && !pending.has_failed());
            let seen = index.see(|| match (&from, self.descending) {
                (Bound::Unbounded, true) => index.last_leaf(),
                (Bound::Unbounded, false) => {
                    index.leaf_of(SchemaOf::<T>::borrow(&KeyBufOf::<T>::default()), false)
                }
                (Bound::Excluded(key), true) => index.leaf_of(SchemaOf::<T>::borrow(key), true),
                (Bound::Included(key) | Bound::Excluded(key), _) => {
                    index.leaf_of(SchemaOf::<T>::borrow(key), false)
                }
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
                && index.settle(pending, ticket).is_err()
            {
                continue; // it was taken back
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

    /// Puts the page in order, without what the scan is past.
    fn order(&mut self) {
        let (from, descending) = (&self.from, self.descending);
        self.page.retain(|(key, _)| match (from, descending) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(from), false) => key >= from,
            (Bound::Excluded(from), false) => key > from,
            (Bound::Included(from), true) => key <= from,
            (Bound::Excluded(from), true) => key < from,
        });
        sort_unstable_by_first(&mut self.page);
        if descending {
            self.page.reverse();
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
            let Some((of_entry, entry)) = self.page.get(self.given) else {
                if !self.turn()? {
                    return Ok(false);
                }
                continue;
            };
            let sound = SchemaOf::<T>::read_value(medium, entry, value);
            // The words of plain entries were copied between two looks.
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
            key.clone_from(of_entry);
            self.given += 1;
            return Ok(true);
        }
    }
}

/// Each step leads on, whatever the region holds.
fn leads_on<K: Ord>(from: &Bound<K>, beyond: &K, descending: bool) -> bool {
    match from {
        Bound::Unbounded => true,
        Bound::Included(from) if descending => beyond <= from,
        Bound::Excluded(from) if descending => beyond < from,
        Bound::Included(from) | Bound::Excluded(from) => beyond > from,
    }
}
