//! Reads ahead: the tree names the images that saves, moves and scans will read soon, so that the shelf can read them together.
//!
//! A scan does not know where it will end. So it reads ahead only from the fifth evicted leaf on, first few leaves and then more. Two
//! groups of leaves are asked for: the one that the scan is in, and the next one.

use std::borrow::Borrow;

use crate::image::{self, Address};
use crate::node::{Body, Head};
use crate::page::Outline;
use crate::paged::Kept;
use crate::pairs::{Pairs, Place};
use crate::table::Pid;
use crate::tree::Tree;

/// The evicted leaf of a scan at which it begins to read ahead.
const BEGIN: u32 = 5;
/// Number of leaves in the first group of a scan, with the leaf that is being read. Each group has twice as many as the one before, up to the
/// second number.
const FIRST: usize = 2;
const MOST: usize = 64;

/// What a scan has read ahead.
#[derive(Debug)]
pub(crate) struct Ahead<K> {
    /// Number of evicted leaves that the scan has reached.
    evicted: u32,
    /// Number of leaves in the next group.
    count: usize,
    /// The leaves up to the second key are asked for. From the first key on, the next group is due. `None` behind the last leaf of the scan.
    due: Option<K>,
    end: Option<K>,
}

impl<K> Default for Ahead<K> {
    fn default() -> Self {
        Self { evicted: 0, count: FIRST, due: None, end: None }
    }
}

impl<P: Pairs> Tree<P> {
    /// Tells the shelf which images the saves of the next leaves will read: of `count` leaves from the one that contains `from` on (`None`:
    /// the first leaf). Returns the key at which the leaf behind them begins; `None` behind the last one. O(log records + count).
    pub fn prefetch_leaves(&self, from: Option<&P::Key>, count: usize) -> Option<P::KeyBuf> {
        let place = from.map_or(Place::First, Place::At);
        self.prefetch_group(
            place,
            false,
            count,
            |_| true,
            |head, addresses| self.read_by_save(head, addresses),
        )
    }

    /// Tells the shelf which images the saves of the next pages will read: of `count` pages from this number on that the eviction looks at.
    /// Returns the number after the last of them.
    pub fn prefetch_pages(&self, mut from: u32, count: usize) -> u32 {
        let (visit, mut addresses) = (self.visit(), Vec::new());
        for _ in 0..count {
            let Some(page) = self.candidates.next(from) else { break };
            if let Some(head) = visit.load(Pid(page)) {
                self.read_by_save(head, &mut addresses);
            }
            from = page.saturating_add(1);
        }
        drop(visit);
        self.prefetch(addresses);
        from
    }

    /// Tells the shelf that the images of the evicted leaves among these pages will be read.
    pub fn prefetch_images(&self, pages: &[u32]) {
        let (visit, mut addresses) = (self.visit(), Vec::new());
        let heads = pages.iter().filter_map(|page| visit.load(Pid(*page)));
        heads.for_each(|head| read_all(head, &mut addresses));
        drop(visit);
        self.prefetch(addresses);
    }

    /// Notes that a scan has reached an evicted leaf, the one that contains `place`, and reads ahead. `is_wanted` is true for keys before
    /// the end of the range. The caller has no visit. O(log records) and the leaves that are asked for; if the scan descends, O(log
    /// records) for each.
    pub(crate) fn read_ahead(
        &self,
        ahead: &mut Ahead<P::KeyBuf>,
        place: Place<'_, P>,
        descends: bool,
        is_wanted: impl Fn(&P::Key) -> bool,
    ) {
        ahead.evicted = ahead.evicted.saturating_add(1);
        let count = &mut ahead.count;
        let has_reached = |edge: &P::Key| match place {
            Place::At(key) | Place::Before(key) if descends => key <= edge,
            Place::At(key) | Place::Before(key) => key >= edge,
            Place::First | Place::Last => false,
        };
        let mut group = |place: Place<'_, P>| {
            let end = self.prefetch_group(place, descends, *count, &is_wanted, read_all);
            *count = (2 * *count).min(MOST);
            end
        };
        if ahead.evicted == BEGIN {
            ahead.due = group(place);
            ahead.end = ahead.due.as_ref().and_then(|due| group(behind(due.borrow(), descends)));
        } else if ahead.due.as_ref().is_some_and(|due| has_reached(due.borrow())) {
            // Leaves in memory may have been between the last group and this one.
            let end = ahead.end.as_ref().and_then(|end| {
                let end = end.borrow();
                group(if has_reached(end) { place } else { behind(end, descends) })
            });
            ahead.due = std::mem::replace(&mut ahead.end, end);
        }
    }

    /// Asks for the images that `note` names, of `count` leaves from the one that contains `place` on, before a key that is not wanted.
    /// Returns the key that separates them from the next leaf.
    fn prefetch_group(
        &self,
        place: Place<'_, P>,
        descends: bool,
        count: usize,
        is_wanted: impl Fn(&P::Key) -> bool,
        note: impl Fn(Head<'_, P>, &mut Vec<Address>),
    ) -> Option<P::KeyBuf> {
        let (visit, mut addresses) = (self.visit(), Vec::new());
        let (_, mut head) = visit.leaf(place);
        let mut number = 1;
        let end = loop {
            note(head, &mut addresses);
            let Outline { low, high, right, .. } = Outline::of(head);
            let edge = if descends { low } else { high };
            let Some(edge) = edge.map(Borrow::borrow).filter(|edge| is_wanted(edge)) else { break None };
            let next = match number < count {
                false => None,
                true if descends => Some(visit.leaf(Place::Before(edge)).1),
                true => right.and_then(|right| visit.load(right)),
            };
            let Some(next) = next else { break Some(P::own_key(edge)) };
            (head, number) = (next, number + 1);
        };
        drop(visit);
        self.prefetch(addresses);
        end
    }

    fn prefetch(&self, mut addresses: Vec<Address>) {
        if let (Some(shelf), false) = (&self.shelf, addresses.is_empty()) {
            shelf.prefetch(&mut addresses);
        }
    }

    /// Adds the images that a save of this page will read, if it stays as it is.
    fn read_by_save(&self, head: Head<'_, P>, addresses: &mut Vec<Address>) {
        let (Body::Evicted { leaf, .. }, Some(shelf)) = (head.body(), &self.shelf) else { return };
        let Kept { unsaved, late } = &leaf.kept;
        if late.is_empty() {
            return;
        }
        let mut changes = unsaved.len();
        if unsaved.is_empty() && leaf.image.base.is_some() {
            addresses.push(leaf.image.address);
            changes = shelf.size(leaf.image.address);
        }
        if changes + late.len() > head.bytes() / image::SHARE {
            addresses.push(leaf.image.whole());
        }
    }
}

/// The leaf behind this end of another one.
fn behind<P: Pairs>(edge: &P::Key, descends: bool) -> Place<'_, P> {
    if descends { Place::Before(edge) } else { Place::At(edge) }
}

/// Adds the images that have the records of this page, if it is an evicted leaf.
fn read_all<P: Pairs>(head: Head<'_, P>, addresses: &mut Vec<Address>) {
    if let Body::Evicted { leaf, .. } = head.body() {
        addresses.extend(leaf.image.base);
        addresses.push(leaf.image.address);
    }
}
