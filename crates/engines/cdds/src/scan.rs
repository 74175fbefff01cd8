//! Scans of one version in both directions.
//!
//! A cursor pins its version, so all pairs that it returns existed at the same time. Leaves have no links. The next leaf is found by a
//! descent for the key that bounds the present leaf at that version.

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

/// A position in key order. It holds no lock. It keeps its version as long as it lives.
pub struct Cursor<'a, M: Medium, S: Schema<Tail = [u64; 0]>, O: Order = Sorted> {
    tree: &'a Tree<M, S, O>,
    _mark: Mark,
    view: View,
    descending: bool,
    /// The bound for the next descent. `None` at the end.
    next: Option<Bound<S::KeyBuf>>,
    /// True after the first leaf: only the first leaf may have entries outside the scan's bound.
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
    /// A cursor before the first key. It keeps the version itself, also after the snapshot is dropped.
    pub fn cursor(&self) -> Cursor<'a, M, S, O> {
        self.of.cursor_at(self.mark.clone())
    }
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>, O: Order> Cursor<'_, M, S, O> {
    /// Places the cursor at the bound `from`: before the first key at or after it (ascending), or after the last key at or before it
    /// (descending). An excluded bound leaves its key out.
    pub fn seek(&mut self, from: Bound<S::KeyBuf>, descending: bool) {
        self.next = Some(from);
        self.is_inside = false;
        self.descending = descending;
        self.page.clear();
        self.given = 0;
    }

    /// Moves to the next key and copies key and value. False at the end.
    ///
    /// # Errors
    /// `TakenBack` if the cursor's version was rolled back; `Corrupt` if a node or record is damaged; `Failed` if the writer panicked while
    /// it changed a node that is read.
    pub fn next(&mut self, key: &mut S::KeyBuf, value: &mut S::ValueBuf) -> Result<bool> {
        while self.given == self.page.len() {
            let Some(from) = self.next.take() else { return Ok(false) };
            self.load(from)?;
        }
        let entry = self.page[self.given];
        self.given += 1;
        // This pin keeps the record.
        let _reading = self.tree.reading(self.view.version)?;
        let of_tree = entry.of_tree();
        if !S::read_pair(self.tree.region.medium(), &of_tree, key, value) {
            return Err(Error::Corrupt { what: "record", at: entry.payload });
        }
        Ok(true)
    }

    /// Reads the leaf of `from`.
    fn load(&mut self, from: Bound<S::KeyBuf>) -> Result<()> {
        let (tree, view) = (self.tree, self.view.clone());
        let _reading = tree.reading(view.version)?;
        let probe = from.as_ref().map(|key| S::probe(S::borrow(key)));
        let target = match Target::of_scan(probe, self.descending) {
            // No key is below the least key, and a descent below it would find no child.
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
        // Each step must advance, whatever the region contains. Otherwise a scan of damaged nodes would not end.
        let leads_on = match &from {
            Bound::Unbounded => true,
            // The first leaf may begin at the scan's bound. A later leaf must not begin where the one before it began.
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
