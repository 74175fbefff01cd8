//! The implementation of the trait [`LeafList`]: the search for the leaf of a key, and the other functions that the trait requires.

use index::engine::Anatomy;
use index::leaf_list::garbage::find_garbage;
use index::leaf_list::prelude::*;
use index::leaf_list::write_group::{Step, Stored, WriteOf};
use index::leaf_list::{Following, LeafCopy, Writer};
use index::{Entry, Report, Schema, Write};
use pmem::sync::Ordering;
use pmem::{Found, Medium, Region, Result};

use crate::change::Change;
use crate::index::{Line, Own};
use crate::leaf::{Leaf, Shape, entries, entry_of};
use crate::orders::Order;
use crate::vectored::{CopyEntries, Find, Lead, LeadMany, LeadToScan, LookAt, LookOnce};

impl<M: Medium, S: Schema> LeafList for Line<M, S> {
    type Medium = M;
    type Schema = S;
    type Own = Own<S>;
    type Change = Change;
    const SESSIONS: bool = true;

    fn payload_words(&self) -> usize {
        1
    }

    fn leaf_bytes(&self) -> u64 {
        self.shape.bytes()
    }

    fn root_block(&self) -> u64 {
        self.root.load(Ordering::Acquire)
    }

    fn set_root_block(&self, root: u64) {
        self.root.store(root, Ordering::Release);
    }

    fn head(&self) -> Result<u64> {
        self.meta().head(self.region.medium())
    }

    fn next_leaf(&self, leaf: u64) -> Option<u64> {
        Leaf(leaf).next(self.region.medium())
    }

    fn write_empty(&self, leaf: u64, root: u64) {
        self.forget_order(leaf);
        crate::index::write_empty::<M, S>(self.region.medium(), &self.shape, leaf, root);
    }

    #[inline]
    fn leaf_of(&self, key: &S::Key, below: bool) -> u64 {
        self.with_vectors(Lead(self, key, below))
    }

    fn leaf_to_scan(&self, key: &S::Key, below: bool, following: &mut Following) -> u64 {
        self.with_vectors(LeadToScan(self, key, below, following))
    }

    #[inline]
    fn prefetch_to_scan(&self, leaf: u64) {
        self.region.medium().prefetch(leaf, self.leaf_bytes());
        if !S::PLAIN {
            self.orders.prefetch(leaf);
        }
    }

    fn leaves_of(&self, keys: &[&S::Key], leaves: &mut [u64]) {
        self.with_vectors(LeadMany(self, keys, leaves, false));
    }

    fn leaves_to_read(&self, keys: &[&S::Key], leaves: &mut [u64]) {
        self.with_vectors(LeadMany(self, keys, leaves, true));
    }

    fn last_leaf(&self) -> u64 {
        let last = self.directory.last_leaf::<S>();
        if self.is_loading() { self.walk(last, None) } else { last }
    }

    #[inline]
    fn is_leaf(&self, leaf: u64) -> bool {
        leaf != 0 && Leaf(leaf).next(self.region.medium()).is_some()
    }

    fn lower_bound(&self, leaf: u64) -> u64 {
        Leaf(leaf).low(self.region.medium())
    }

    fn upper_bound(&self, leaf: u64) -> u64 {
        let medium = self.region.medium();
        match Leaf(leaf).next(medium) {
            Some(next) if next != 0 && next < medium.len() => Leaf(next).low(medium),
            _ => 0,
        }
    }

    #[inline]
    fn entry_of(&self, leaf: u64, key: &S::Key) -> Option<Entry<S::Tail>> {
        let slot = self.with_vectors(Find(self, Leaf(leaf), key))?;
        Some(entry_of::<S>(Leaf(leaf).slot::<M, S>(self.region.medium(), slot)))
    }

    #[inline]
    fn look_once(&self, key: &S::Key, value: Option<&mut S::ValueBuf>) -> Option<(bool, u64)> {
        self.with_vectors(LookOnce(self, key, value))
    }

    #[inline]
    fn look_at(&self, at: (u64, u64), key: &S::Key, value: Option<&mut S::ValueBuf>) -> Option<(bool, u64)> {
        self.with_vectors(LookAt(self, at, key, value))
    }

    #[inline]
    fn entry_with_leaf(&self, leaf: u64, key: &S::Key) -> (Option<Entry<S::Tail>>, bool) {
        let entry = LeafList::entry_of(self, leaf, key);
        (entry, self.has_found(entry.is_some(), leaf))
    }

    fn entries_of(&self, leaf: u64, copy: &mut LeafCopy<S>) {
        self.with_vectors(CopyEntries(self, Leaf(leaf), copy));
    }

    fn keep_order(&self, leaf: u64, copy: &LeafCopy<S>, is_good: impl FnOnce() -> bool) {
        // Only copies of byte strings have slots.
        let Some(order) = Order::new(copy.slots_in_order()) else { return };
        if self.orders.of(leaf).is_none() {
            // Without the lock this scan keeps nothing.
            let Some(_writer) = self.try_writer_side() else { return };
            self.orders.allocate(leaf);
        }
        if let Some(line) = self.orders.of(leaf) {
            line.fill(order.words(), is_good);
        }
    }

    fn leaves_for(&self, leaf: u64, writes: u64) -> u64 {
        let medium = self.region.medium();
        let free = Leaf(leaf).free::<M, S>(medium, &self.shape, None).count_ones();
        let is_only = S::PLAIN && Leaf(leaf).low(medium) == 0 && Leaf(leaf).next(medium) == Some(0);
        if writes <= u64::from(free) && !is_only {
            return 0;
        }
        // After a split both leaves have half of their slots free, except after a split for ascending keys.
        2 * (2 + writes.div_ceil(self.shape.slots as u64 / 2))
    }

    #[inline]
    fn store(
        &self,
        writer: &mut Writer<Own<S>>,
        write: &WriteOf<'_, Self>,
        leaf: u64,
    ) -> Result<Step<Change>> {
        match write {
            Write::Put(key, value) => self.store_value(writer, Leaf(leaf), key, value),
            Write::Delete(key) => self.store_removal(writer, Leaf(leaf), key),
        }
    }

    #[inline]
    fn publish(&self, change: &Change) {
        change.publish(self.region.medium());
    }

    #[inline]
    fn conclude(&self, writer: &mut Writer<Own<S>>, write: &WriteOf<'_, Self>, stored: &Stored<Change>) {
        match write {
            Write::Put(key, _) if !stored.was_there => self.count_key(writer, key, true),
            Write::Put(..) => {}
            Write::Delete(key) => {
                self.count_key(writer, key, false);
                if stored.change.leaves_line_sparse::<M, S>(self.region.medium()) {
                    // The key is removed. If a neighbour is damaged, reads of the neighbour report it. A lack of space is no error here.
                    let _ = self.thin_out(writer, key, Leaf(stored.change.leaf));
                }
            }
        }
    }

    #[inline]
    fn put_locked(&self, writer: &mut Writer<Own<S>>, key: &S::Key, value: &S::Value) -> Result<bool> {
        self.put_in_leaf(writer, key, value)
    }

    #[inline]
    fn delete_locked(&self, writer: &mut Writer<Own<S>>, key: &S::Key) -> Result<bool> {
        self.delete_in_leaf(writer, key)
    }

    fn reload(&self, writer: &mut Writer<Own<S>>) {
        writer.newest = (0, 0);
        self.orders.clear_all();
        // If the head is damaged, the next read reports it. The old leaves of a cleared list must not be taken (O1 of `load`).
        let _ = find_garbage(self);
        let _ = self.begin_loading(writer, Found::InUse);
        while let Ok(true) = self.load_step(writer) {}
    }

    fn is_loading(&self) -> bool {
        self.loading.load(Ordering::Relaxed)
    }

    fn load_some(&self) -> Result<bool> {
        self.load_step(&mut self.writer_side())
    }

    fn check(&self) -> Report {
        Line::check(self)
    }

    fn anatomy(&self, _keys: &mut dyn Iterator<Item = &S::Key>) -> Option<Anatomy> {
        Some(Anatomy {
            leaves: self.directory.leaves(),
            leaf_bytes: self.leaf_bytes(),
            extra_bytes: self.directory.memory::<S>() + self.orders.memory(),
            comparisons: None,
        })
    }

    fn salvage<R: Medium>(region: &Region<R>, leaf: u64) -> Vec<Entry<S::Tail>> {
        let identity = region.identity();
        let shape =
            S::payload_words(&identity.kind).and_then(|words| Shape::new::<S>(identity.node_lines, words));
        shape.map_or_else(Vec::new, |shape| entries::<R, S>(region.medium(), leaf, &shape))
    }
}
