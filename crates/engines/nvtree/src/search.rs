//! Search for the leaf of a key, and the reader's functions on a leaf ([`index::leaf_list::read`]).

use index::Entry;
use index::Report;
use index::engine::Anatomy;
use index::leaf_list::prelude::*;
use index::leaf_list::write_group::{Step, Stored, WriteOf};
use index::leaf_list::{LeafCopy, Writer};
use index::{Schema, Write};
use pmem::sync::Ordering;
use pmem::{Medium, Region, Result};

use crate::index::{NvTree, Own};
use crate::insert::{Change, What};
use crate::leaf::Leaf;

impl<M: Medium, S: Schema> LeafList for NvTree<M, S> {
    type Medium = M;
    type Schema = S;
    type Own = Own;
    type Change = Change;

    fn payload_words(&self) -> usize {
        self.shape.entries.payload_words
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
        Leaf(leaf).nxt(self.region.medium())
    }

    fn write_empty(&self, leaf: u64, root: u64) {
        crate::index::write_empty::<M, S>(self.region.medium(), &self.shape, leaf, root);
    }

    #[inline]
    fn leaf_of(&self, key: &S::Key, below: bool) -> u64 {
        let inner = self.inner();
        let leaf = inner.leaf(self.place_in(&inner, key, below));
        self.region.medium().prefetch(leaf, self.leaf_bytes());
        leaf
    }

    fn last_leaf(&self) -> u64 {
        let inner = self.inner();
        inner.leaf(inner.last())
    }

    #[inline]
    fn is_leaf(&self, leaf: u64) -> bool {
        let (medium, leaf) = (self.region.medium(), Leaf(leaf));
        leaf.nxt(medium).is_some() && leaf.count(medium, &self.shape).is_some()
    }

    fn lower_bound(&self, leaf: u64) -> u64 {
        Leaf(leaf).min(self.region.medium())
    }

    fn upper_bound(&self, leaf: u64) -> u64 {
        let medium = self.region.medium();
        match Leaf(leaf).nxt(medium) {
            None | Some(0) => 0,
            Some(nxt) if nxt < medium.len() => Leaf(nxt).min(medium),
            Some(_) => 0,
        }
    }

    #[inline]
    fn entry_of(&self, leaf: u64, key: &S::Key) -> Option<Entry<S::Tail>> {
        let (medium, shape, leaf) = (self.region.medium(), &self.shape, Leaf(leaf));
        leaf.find::<M, S>(medium, shape, S::probe(key))
            .map(|slot| leaf.entry::<M, S::Tail>(medium, shape, slot))
    }

    fn entries_of(&self, leaf: u64, copy: &mut LeafCopy<S>) {
        let live = Leaf(leaf).live::<M, S>(self.region.medium(), &self.shape);
        copy.clear();
        live.into_iter().for_each(|(_, entry)| copy.push(entry));
    }

    fn leaves_for(&self, leaf: u64, writes: u64) -> u64 {
        let capacity = self.shape.capacity() as u64;
        let held = Leaf(leaf).count(self.region.medium(), &self.shape).map_or(capacity, |count| count as u64);
        let appended = if S::PLAIN { writes } else { 2 * writes };
        if held + appended <= capacity {
            return 0;
        }
        // A replaced leaf has half of its space free. An update of a byte string may leave one entry of it unused.
        2 * (2 + appended.div_ceil(capacity / 2 - 1))
    }

    #[inline]
    fn store(&self, writer: &mut Writer<Own>, write: &WriteOf<'_, Self>, leaf: u64) -> Result<Step<Change>> {
        match write {
            Write::Put(key, value) => self.store_value(writer, Leaf(leaf), key, value),
            Write::Delete(key) => self.store_removal(writer, Leaf(leaf), key),
        }
    }

    #[inline]
    fn publish(&self, change: &Change) {
        let (medium, leaf, log) = (self.region.medium(), change.leaf, &change.log);
        match change.what {
            What::Append { count, negatives } => leaf.publish_count(medium, log, count, negatives),
            What::Sign(slot) => leaf.publish_sign(medium, log, slot),
        }
    }

    #[inline]
    fn conclude(&self, writer: &mut Writer<Own>, write: &WriteOf<'_, Self>, stored: &Stored<Change>) {
        match write {
            Write::Put(..) => _ = self.keys.fetch_add(u64::from(!stored.was_there), Ordering::AcqRel),
            Write::Delete(key) => {
                self.keys.fetch_sub(1, Ordering::AcqRel);
                // The key is removed. If a neighbour is damaged, reads of the neighbour report it. A lack of space is no error here.
                let _ = self.thin_out(writer, key, stored.change.leaf);
            }
        }
        self.rebuild_some(writer);
    }

    fn put_locked(&self, writer: &mut Writer<Own>, key: &S::Key, value: &S::Value) -> Result<bool> {
        self.put_in_leaf(writer, key, value)
    }

    fn delete_locked(&self, writer: &mut Writer<Own>, key: &S::Key) -> Result<bool> {
        self.delete_in_leaf(writer, key)
    }

    fn reload(&self, writer: &mut Writer<Own>) {
        writer.rebuild = None;
        let _ = self.load(pmem::Found::InUse);
    }

    fn check(&self) -> Report {
        NvTree::check(self)
    }

    fn anatomy(&self, _keys: &mut dyn Iterator<Item = &S::Key>) -> Option<Anatomy> {
        let paths = self.paths();
        Some(Anatomy {
            leaves: paths.leaves as u64,
            leaf_bytes: self.shape.bytes(),
            extra_bytes: paths.inner_bytes,
            comparisons: None,
        })
    }

    fn salvage<R: Medium>(region: &Region<R>, leaf: u64) -> Vec<Entry<S::Tail>> {
        crate::salvage::entries::<R, S>(region, leaf)
    }
}
