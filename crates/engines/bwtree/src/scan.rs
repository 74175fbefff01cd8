//! Cursors over key ranges, which copy pages and validate the copy before each record.
//!
//! A cursor copies the records of a leaf that are in its range. Before it returns the next record, it validates that the page has not
//! changed: each state of a page has a unique number. If the page has changed, the cursor copies the rest again, from the last returned key
//! on. Between two records a cursor holds no thread slot, so it delays no free.
//!
//! A key that exists throughout a scan is in some leaf at every moment. The cursor continues by key, never by page, so it returns the key
//! exactly once.
//!
//! Linearization point of each record: its validation. Paper: Bw-tree §III-C.

use std::borrow::Borrow;
use std::ops::Bound;

use crate::error::{Error, Result};
use crate::page::{Outline, Records};
use crate::pairs::{Pairs, Place};
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
    /// Copied records, in the order of the scan.
    page: Copied,
    /// The page of the copy, and the number of its state.
    of: Option<(Pid, u64)>,
    /// The end of the page, if the range continues after it.
    then: Option<P::KeyBuf>,
    is_done: bool,
    error: Option<Error>,
    /// Number of pages that were copied.
    copies: u64,
}

/// Copies of records, in one buffer.
#[derive(Debug, Default)]
struct Copied {
    bytes: Vec<u8>,
    /// For each record the ends of the bytes of its key and of its value. Each begins at the end before it; the first key at 0.
    ends: Vec<(usize, usize)>,
    /// Number of records that were returned.
    returned: usize,
}

impl Copied {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.returned = 0;
    }

    fn push<P: Pairs>(&mut self, record: P::Record<'_>) {
        let Some(value) = P::record_value(record) else { return };
        P::write_key(P::record_key(record), &mut self.bytes);
        let key = self.bytes.len();
        P::write_value(value, &mut self.bytes);
        self.ends.push((key, self.bytes.len()));
    }

    /// The bytes of the key and of the value of a record.
    fn get(&self, i: usize) -> Option<(&[u8], &[u8])> {
        let start = if i == 0 { 0 } else { self.ends.get(i - 1)?.1 };
        let (key, value) = *self.ends.get(i)?;
        Some((&self.bytes[start..key], &self.bytes[key..value]))
    }

    /// The key that was returned last.
    fn last_key<P: Pairs>(&self) -> Option<P::KeyBuf> {
        P::read_key(self.get(self.returned.checked_sub(1)?)?.0)
    }
}

fn own<P: Pairs>(bound: Bound<&P::Key>) -> Bound<P::KeyBuf> {
    bound.map(P::own_key)
}

fn borrow<P: Pairs>(bound: &Bound<P::KeyBuf>) -> Bound<&P::Key> {
    bound.as_ref().map(Borrow::borrow)
}

fn is_from<P: Pairs>(key: &P::Key, from: &Bound<P::KeyBuf>) -> bool {
    match borrow::<P>(from) {
        Bound::Unbounded => true,
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
    }
}

fn is_to<P: Pairs>(key: &P::Key, to: &Bound<P::KeyBuf>) -> bool {
    match borrow::<P>(to) {
        Bound::Unbounded => true,
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
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
            page: Copied::default(),
            of: None,
            then: None,
            is_done: false,
            error: None,
            copies: 0,
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
    /// Number of times that the cursor copied a page. All pairs that it returns, and the absence of all others, are from these copies.
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// The error that ended the scan, if there was one. Only a tree with a shelf has such errors.
    pub fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    /// Copies the rest of the range in the leaf at which the scan continues.
    ///
    /// # Errors
    /// `Unreadable` if the leaf is not in memory and cannot be read.
    fn copy(&mut self) -> Result<()> {
        let place = match (self.descends, borrow::<P>(&self.from), borrow::<P>(&self.to)) {
            (false, Bound::Unbounded, _) => Place::First,
            (false, Bound::Included(key) | Bound::Excluded(key), _) => Place::At(key),
            (true, _, Bound::Unbounded) => Place::Last,
            (true, _, Bound::Included(key)) => Place::At(key),
            (true, _, Bound::Excluded(key)) => Place::Before(key),
        };
        let visit = self.tree.visit();
        let (pid, head) = visit.leaf(place);
        if let Some(stub) = head.evicted() {
            drop(visit);
            // The next step of the scan copies the page.
            return self.tree.page_in(pid, stub);
        }
        let records = Records::of(head).live;
        let start = records.partition_point(|own| !is_from::<P>(P::record_key(*own), &self.from));
        let end = records.partition_point(|own| is_to::<P>(P::record_key(*own), &self.to));
        let copied = records.get(start..end).unwrap_or_default().iter();
        self.page.clear();
        if self.descends {
            copied.rev().for_each(|own| self.page.push::<P>(*own));
        } else {
            copied.for_each(|own| self.page.push::<P>(*own));
        }
        self.of = Some((pid, head.lsn()));
        self.copies += 1;
        let outline = Outline::of(head);
        self.then = if self.descends {
            // The page has no keys below its low key, so the scan continues below it.
            outline.low.map(Borrow::borrow).filter(|low| is_from::<P>(low, &self.from)).map(P::own_key)
        } else {
            outline.high.map(Borrow::borrow).filter(|high| is_to::<P>(high, &self.to)).map(P::own_key)
        };
        Ok(())
    }

    /// Validation: true if the copied page has not changed.
    fn is_fresh(&self) -> bool {
        let visit = self.tree.visit();
        self.of.is_some_and(|(pid, lsn)| visit.load(pid).is_some_and(|head| head.lsn() == lsn))
    }
}

impl<P: Pairs> Cursor<'_, P> {
    /// Calls `with` with the next record. `None` at the end, or after an error.
    pub fn next_with<R>(&mut self, with: impl FnOnce(&P::Key, &P::Value) -> R) -> Option<R> {
        while !self.is_done {
            if self.of.is_none() {
                if let Err(error) = self.copy() {
                    (self.error, self.is_done) = (Some(error), true);
                }
            } else if self.page.returned == self.page.ends.len() {
                self.of = None;
                match self.then.take() {
                    None => self.is_done = true,
                    Some(low) if self.descends => self.to = Bound::Excluded(low),
                    Some(high) => self.from = Bound::Included(high),
                }
            } else if self.is_fresh() {
                self.page.returned += 1;
                let (key, value) = self.page.get(self.page.returned - 1)?;
                return P::with_bytes(key, value, with);
            } else {
                // The scan continues behind the last record.
                let last = self.page.last_key::<P>();
                match last.map(Bound::Excluded) {
                    Some(behind) if self.descends => self.to = behind,
                    Some(behind) => self.from = behind,
                    None => {}
                }
                self.of = None;
            }
        }
        None
    }
}

impl<P: Pairs> Iterator for Cursor<'_, P> {
    type Item = (P::KeyBuf, P::ValueBuf);

    fn next(&mut self) -> Option<Self::Item> {
        self.next_with(|key, value| (P::own_key(key), P::own_value(value)))
    }
}
