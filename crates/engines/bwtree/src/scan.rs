//! Cursors over key ranges, which read a few records at a time and validate the page before.
//!
//! A cursor knows a leaf by the number of the leaf's state, and a position in it. Before it reads the next records, it validates that the leaf
//! is still in this state: each state of a page has a unique number. If it is not, the cursor takes its position again, behind the last
//! returned key. Between its calls a cursor holds no thread slot, so it delays no free.
//!
//! A key that exists throughout a scan is in some leaf at every moment. The cursor continues by key, never by page, so it returns the key
//! exactly once.
//!
//! Linearization point of each record: the validation before it. Paper: Bw-tree §III-C.

use std::borrow::Borrow;
use std::ops::{Bound, Range};

use crate::ahead::Ahead;
use crate::error::{Error, Result};
use crate::node::{Body, Head};
use crate::pairs::{Pairs, Place, Spot, Spotted, by_key};
use crate::table::Pid;
use crate::tree::Tree;

/// An iterator over the records of a key range, in ascending or descending order of keys. Each record is current at its validation; the
/// whole scan is not a snapshot.
#[derive(Debug)]
pub struct Cursor<'t, P: Pairs> {
    tree: &'t Tree<P>,
    descends: bool,
    /// The bounds of the rest of the range.
    from: Bound<P::KeyBuf>,
    to: Bound<P::KeyBuf>,
    /// The page, and the number of its state.
    of: Option<(Pid, u64)>,
    rest: Rest,
    /// The key of the last record.
    last: Option<P::KeyBuf>,
    /// The end of the page, if the range continues after it.
    then: Option<P::KeyBuf>,
    is_done: bool,
    error: Option<Error>,
    /// Number of states of pages from which records were read.
    states: u64,
    ahead: Ahead<P::KeyBuf>,
}

/// Number of records between the next one and the one that is prefetched.
const AHEAD: usize = 4;

/// The records of a leaf that a scan has still to return. They are in the run of the leaf's base page, and in the slab of its changes.
///
/// A leaf without visible changes has all its records in the run, in key order. A leaf with visible changes has the number of the last one.
/// A later base page of the same state has no visible changes. So two base pages with the same number and the same number of visible changes
/// have the same records in the same places.
#[derive(Debug, Default)]
struct Rest {
    /// A part of the run.
    run: Range<usize>,
    /// The newest change of each key in the range, in key order: its position in the run and its place in the slab.
    changes: Vec<(Spot, u32)>,
    /// A part of the changes.
    left: Range<usize>,
    /// Number of visible changes.
    seen: u32,
}

impl Rest {
    /// Notes the records of a leaf between two bounds. The bounds belong in the leaf, or are its low or its high key. O(log records +
    /// changes).
    fn of<P: Pairs>(&mut self, head: Head<'_, P>, run: &P::Leaf, from: Bound<&P::Key>, to: Bound<&P::Key>) {
        let start = match from {
            Bound::Unbounded => 0,
            Bound::Included(key) => P::spot(run, key).records().0,
            Bound::Excluded(key) => P::spot(run, key).records().1,
        };
        let end = match to {
            Bound::Unbounded => P::len(run),
            Bound::Included(key) => P::spot(run, key).records().1,
            Bound::Excluded(key) => P::spot(run, key).records().0,
        };
        self.run = start..end.max(start);
        self.seen = head.seen();
        self.changes.clear();
        if self.seen > 0 {
            // At the ends, the positions do not say whether a key is inside.
            let is_inside = |(spot, record): &Spotted<'_, P>| {
                let (at, key) = (spot.records().0, P::record_key(*record));
                (start..=end).contains(&at)
                    && ((at > start && at < end) || (is_from::<P>(key, from) && is_to::<P>(key, to)))
            };
            let places = (0..self.seen).rev().filter_map(|place| Some((head.change(place)?, place)));
            let mut found: Vec<_> = places.filter(|(change, _)| is_inside(change)).collect();
            found.iter().for_each(|((_, record), _)| P::fetch(*record));
            // The sort is stable, so the newest change of a key stays first.
            found.sort_by(|(a, _), (b, _)| by_key::<P>(a, b));
            found.dedup_by(|(later, _), (first, _)| by_key::<P>(later, first).is_eq());
            self.changes.extend(found.into_iter().map(|((spot, _), place)| (spot, place)));
        }
        self.left = 0..self.changes.len();
    }

    /// Prefetches a record that will be next soon.
    #[inline(always)]
    fn fetch_ahead<P: Pairs>(&self, run: &P::Leaf, descends: bool) {
        let Range { start, end } = self.run;
        let ahead = if descends { end.wrapping_sub(1 + AHEAD) } else { start + AHEAD };
        if self.run.contains(&ahead) {
            P::fetch(P::at(run, ahead));
        }
    }

    /// Takes the next record. `None` if there are no more.
    #[inline(always)]
    fn next<'g, P: Pairs>(
        &mut self,
        head: Head<'g, P>,
        run: &'g P::Leaf,
        descends: bool,
    ) -> Option<(&'g P::Key, &'g P::Value)> {
        loop {
            let next = if descends { self.left.end.checked_sub(1) } else { Some(self.left.start) };
            let change = next.filter(|at| self.left.contains(at)).and_then(|at| self.changes.get(at));
            let change = change.filter(|(spot, _)| {
                let (from, behind) = spot.records();
                if descends { behind >= self.run.end } else { from <= self.run.start }
            });
            let record = match (change, descends) {
                (Some(&(spot, place)), _) => {
                    let (from, behind) = spot.records();
                    if descends {
                        (self.left.end, self.run.end) = (self.left.end - 1, from.max(self.run.start));
                    } else {
                        (self.left.start, self.run.start) = (self.left.start + 1, behind.min(self.run.end));
                    }
                    head.change(place)?.1
                }
                (None, false) => P::at(run, self.run.next()?),
                (None, true) => P::at(run, self.run.next_back()?),
            };
            if let Some(value) = P::record_value(record) {
                return Some((P::record_key(record), value));
            }
        }
    }
}

fn own<P: Pairs>(bound: Bound<&P::Key>) -> Bound<P::KeyBuf> {
    bound.map(P::own_key)
}

fn borrow<P: Pairs>(bound: &Bound<P::KeyBuf>) -> Bound<&P::Key> {
    bound.as_ref().map(Borrow::borrow)
}

fn is_from<P: Pairs>(key: &P::Key, from: Bound<&P::Key>) -> bool {
    match from {
        Bound::Unbounded => true,
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
    }
}

fn is_to<P: Pairs>(key: &P::Key, to: Bound<&P::Key>) -> bool {
    match to {
        Bound::Unbounded => true,
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
    }
}

/// True if no key is between the bounds.
fn is_empty<P: Pairs>(from: Bound<&P::Key>, to: Bound<&P::Key>) -> bool {
    match (from, to) {
        (Bound::Included(from), to) => !is_to::<P>(from, to),
        (Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
        _ => false,
    }
}

impl<P: Pairs> Tree<P> {
    /// The records between two bounds, in ascending order. The range is empty if no key is between the bounds.
    pub fn range(&self, from: Bound<&P::Key>, to: Bound<&P::Key>) -> Cursor<'_, P> {
        Cursor {
            tree: self,
            descends: false,
            from: own::<P>(from),
            to: own::<P>(to),
            of: None,
            rest: Rest::default(),
            last: None,
            then: None,
            is_done: is_empty::<P>(from, to),
            error: None,
            states: 0,
            ahead: Ahead::default(),
        }
    }

    /// The records between two bounds, in descending order.
    pub fn range_descending(&self, from: Bound<&P::Key>, to: Bound<&P::Key>) -> Cursor<'_, P> {
        Cursor { descends: true, ..self.range(from, to) }
    }

    /// All records, in ascending order.
    pub fn iter(&self) -> Cursor<'_, P> {
        self.range(Bound::Unbounded, Bound::Unbounded)
    }
}

impl<'t, P: Pairs> IntoIterator for &'t Tree<P> {
    type Item = (P::KeyBuf, P::ValueBuf);
    type IntoIter = Cursor<'t, P>;

    fn into_iter(self) -> Cursor<'t, P> {
        self.iter()
    }
}

impl<P: Pairs> Cursor<'_, P> {
    /// Number of states of pages that the cursor has read. All pairs that it returned, and the absence of all others, are from these states.
    pub fn states(&self) -> u64 {
        self.states
    }

    /// The error that ended the scan, if there was one. Only a tree with a shelf has such errors.
    pub fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    /// Finds the leaf at which the scan continues.
    ///
    /// # Errors
    /// `Unreadable` if the leaf is not in memory and cannot be read.
    fn find(&mut self) -> Result<()> {
        let (from, to) = (borrow::<P>(&self.from), borrow::<P>(&self.to));
        let place = match (self.descends, from, to) {
            (false, Bound::Unbounded, _) => Place::First,
            (false, Bound::Included(key) | Bound::Excluded(key), _) => Place::At(key),
            (true, _, Bound::Unbounded) => Place::Last,
            (true, _, Bound::Included(key)) => Place::At(key),
            (true, _, Bound::Excluded(key)) => Place::Before(key),
        };
        // A leaf whose low key is the first key of the range is the last one of a descending scan.
        let beyond = match from {
            Bound::Included(key) | Bound::Excluded(key) => Bound::Excluded(key),
            Bound::Unbounded => Bound::Unbounded,
        };
        let visit = self.tree.visit();
        let (pid, head) = visit.leaf(place);
        if let Some(stub) = head.evicted() {
            drop(visit);
            let is_wanted = |edge: &P::Key| match self.descends {
                true => is_from::<P>(edge, beyond),
                false => is_to::<P>(edge, to),
            };
            self.tree.read_ahead(&mut self.ahead, place, self.descends, is_wanted);
            // The next step of the scan finds the leaf in memory.
            return self.tree.page_in(pid, stub);
        }
        let Body::Leaf { run, bounds, .. } = head.body() else {
            // The leaf has a merge delta. After the consolidation it is a base page.
            visit.maintain(pid);
            return Ok(());
        };
        // The part of the range that is in the leaf.
        let low = bounds.low.as_ref().map(Borrow::borrow).filter(|low| is_from::<P>(low, beyond));
        let high = bounds.high.as_ref().map(Borrow::borrow).filter(|high| is_to::<P>(high, to));
        let from = if low.is_some() { Bound::Unbounded } else { from };
        let to = if high.is_some() { Bound::Unbounded } else { to };
        self.rest.of(head, run, from, to);
        self.then = if self.descends { low } else { high }.map(P::own_key);
        self.of = Some((pid, head.lsn()));
        self.states += 1;
        Ok(())
    }

    /// Finds the leaf of the next records, unless the cursor stands in it. False at the end, or after an error.
    #[inline(always)]
    pub fn place(&mut self) -> bool {
        while self.of.is_none() && !self.is_done {
            if let Err(error) = self.find() {
                (self.error, self.is_done) = (Some(error), true);
            }
        }
        self.of.is_some()
    }

    /// Calls `with` with the next records of the leaf, as long as it returns true, at most `max` times and at least once. Returns the
    /// number of calls, 0 if the leaf has no more records. All records are of one state of the leaf. `None`: the leaf has another state
    /// now. Then, and after 0 calls, the cursor needs [a leaf](Self::place) again. While `with` runs, memory that is retired cannot be
    /// freed.
    #[inline(always)]
    pub fn visit(&mut self, max: usize, mut with: impl FnMut(&P::Key, &P::Value) -> bool) -> Option<usize> {
        let (pid, lsn) = self.of?;
        let visit = self.tree.visit();
        let head = visit.load(pid).filter(|head| head.lsn() == lsn && head.seen() == self.rest.seen);
        if let Some(head) = head
            && let Body::Leaf { run, .. } = head.body()
        {
            let (mut last, mut count) = (None, 0);
            loop {
                self.rest.fetch_ahead::<P>(run, self.descends);
                let Some((key, value)) = self.rest.next(head, run, self.descends) else { break };
                (last, count) = (Some(key), count + 1);
                if !with(key, value) || count >= max {
                    break;
                }
            }
            if let Some(last) = last {
                P::own_key_in(last, &mut self.last);
                return Some(count);
            }
            // The scan continues in the next leaf.
            self.last = None;
            match self.then.take() {
                None => self.is_done = true,
                Some(low) if self.descends => self.to = Bound::Excluded(low),
                Some(high) => self.from = Bound::Included(high),
            }
            self.of = None;
            return Some(0);
        }
        if let Some(last) = self.last.take() {
            // The scan continues behind the last record.
            *if self.descends { &mut self.to } else { &mut self.from } = Bound::Excluded(last);
        }
        self.of = None;
        None
    }

    /// Calls `with` with the next record. `None` at the end, or after an error. While `with` runs, memory that is retired cannot be freed.
    pub fn next_with<R>(&mut self, with: impl FnOnce(&P::Key, &P::Value) -> R) -> Option<R> {
        let (mut with, mut found) = (Some(with), None);
        while self.place() {
            let take = |key: &P::Key, value: &P::Value| {
                found = with.take().map(|with| with(key, value));
                false
            };
            if self.visit(1, take).is_some_and(|count| count > 0) {
                break;
            }
        }
        found
    }
}

impl<P: Pairs> Iterator for Cursor<'_, P> {
    type Item = (P::KeyBuf, P::ValueBuf);

    fn next(&mut self) -> Option<Self::Item> {
        self.next_with(|key, value| (P::own_key(key), P::own_value(value)))
    }
}
