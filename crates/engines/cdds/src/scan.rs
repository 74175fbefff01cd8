//! Scans, both ways, of one version.
//!
//! A cursor pins its version, so all that it gives out was there together, and a leaf's neighbour is found by a descent for the
//! key that bounds the leaf at that version: leaves have no links.

use std::ops::Bound;

use index::Schema;
use index::Target;
use pmem::{Error, Medium, Result};

use crate::entry_order::{Order, Sorted};
use crate::node::Entry;
use crate::ordered::{Ordered, Tree};
use crate::pins::Mark;
use crate::snapshot::SnapshotOf;
use crate::version::View;

/// A version of the tree.
pub type Snapshot<'a, M, S, O = Sorted> = SnapshotOf<'a, M, Ordered<S, O>>;

/// A position in key order. It holds no lock; what it sees is kept as long as it lives.
pub struct Cursor<'a, M: Medium, S: Schema<Tail = [u64; 0]>, O: Order = Sorted> {
    tree: &'a Tree<M, S, O>,
    _mark: Mark,
    view: View,
    descending: bool,
    /// Where to descend to next; none at the end.
    next: Option<Bound<S::KeyBuf>>,
    /// The first leaf was read: its bound needs no look at each entry.
    is_inside: bool,
    page: Vec<Entry>,
    given: usize,
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>, O: Order> Tree<M, S, O> {
    /// A cursor before the first key of the newest durable version.
    pub fn cursor(&self) -> Cursor<'_, M, S, O> {
        self.cursor_at(self.mark_to_read())
    }

    pub(crate) fn cursor_at(&self, mark: Mark) -> Cursor<'_, M, S, O> {
        Cursor {
            tree: self,
            view: self.view_at(mark.version()),
            _mark: mark,
            descending: false,
            next: Some(Bound::Unbounded),
            is_inside: false,
            page: Vec::new(),
            given: 0,
        }
    }
}

impl<'a, M: Medium, S: Schema<Tail = [u64; 0]>, O: Order> Snapshot<'a, M, S, O> {
    /// A cursor before the first key. It keeps the version itself, also when the snapshot is dropped.
    pub fn cursor(&self) -> Cursor<'a, M, S, O> {
        self.of.cursor_at(self.mark.clone())
    }
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>, O: Order> Cursor<'_, M, S, O> {
    /// Places the cursor before the first key of `from` (ascending) or behind the last key of it (descending).
    pub fn seek(&mut self, from: Bound<S::KeyBuf>, descending: bool) {
        self.next = Some(from);
        self.is_inside = false;
        self.descending = descending;
        self.page.clear();
        self.given = 0;
    }

    /// Moves one key on and copies key and value out; false at the end.
    ///
    /// # Errors
    /// `TakenBack` if a rollback took the cursor's version back; `Corrupt` if a node or record is damaged.
    pub fn next(&mut self, key: &mut S::KeyBuf, value: &mut S::ValueBuf) -> Result<bool> {
        while self.given == self.page.len() {
            let Some(from) = self.next.take() else { return Ok(false) };
            self.load(from)?;
        }
        let entry = self.page[self.given];
        self.given += 1;
        // It keeps the record.
        let _reading = self.tree.reading(self.view.version)?;
        let of_tree = entry.of_tree();
        if !S::read_pair(self.tree.region.medium(), &of_tree, key, value) {
            return Err(Error::Corrupt { what: "record", at: entry.payload });
        }
        Ok(true)
    }

    /// Reads the leaf that `from` leads to.
    fn load(&mut self, from: Bound<S::KeyBuf>) -> Result<()> {
        let (tree, view) = (self.tree, self.view.clone());
        let _reading = tree.reading(view.version)?;
        let probe = from.as_ref().map(|key| S::probe(S::borrow(key)));
        let target = match Target::of_scan(probe, self.descending) {
            // Before the least key there is nothing, and no child to find.
            Target::Below(probe) if !self.is_inside => Target::Holding(probe),
            target => target,
        };
        let mut tries = tree.stripes.tries();
        let leaf = loop {
            let leaf = tree.find_leaf(&view, target)?;
            self.page.clear();
            self.given = 0;
            O::read::<M, S>(tree.look(leaf.node, &view), probe, self.descending, &mut self.page);
            if tree.stripes.check(leaf.version) {
                break leaf;
            }
            tries.fail()?;
        };
        // A crash may have left an entry twice.
        self.page.dedup_by_key(|entry| entry.words());
        if self.descending {
            self.page.reverse();
        }
        let was_inside = std::mem::replace(&mut self.is_inside, true);
        let bound = if self.descending { leaf.low } else { leaf.high };
        let Some(word) = bound else { return Ok(()) };
        let mut key = S::KeyBuf::default();
        if !tree.key_of_word(word, &mut key) {
            return Err(Error::Corrupt { what: "separator", at: word });
        }
        // Each step leads on, whatever the region holds.
        let leads_on = match &from {
            Bound::Unbounded => true,
            // The first leaf may begin where the scan was asked to; none behind it where the one before did.
            Bound::Included(from) | Bound::Excluded(from) if self.descending => {
                key < *from || (key == *from && !was_inside)
            }
            Bound::Included(from) | Bound::Excluded(from) => key > *from,
        };
        if !leads_on {
            return Err(Error::Corrupt { what: "separator", at: word });
        }
        self.next = Some(if self.descending { Bound::Excluded(key) } else { Bound::Included(key) });
        Ok(())
    }
}
