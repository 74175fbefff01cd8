//! The implementation of [`Index`] for all indexes over a list of leaves.

use std::ops::Bound;
use std::time::Duration;

use pmem::{Native, Region, Result};

use super::core::LeafList;
use super::prelude::*;
use super::session::Session;
use crate::check::Report;
use crate::engine::{self, Anatomy, Count, Decide, Index, KeyValue, NextPair, Salvaged, View};
use crate::garbage::{free_all, free_once, with_space, write_singly};
use crate::kind::{Kind, SchemaOf};
use crate::snapshot::SnapshotView;
use crate::write::{Write, WriteOptions};

/// Maximum number of pairs that are loaded with one commit.
const APPENDED: usize = 4096;
/// Approximate maximum of their bytes.
const BYTES_APPENDED: u64 = 16 << 20;

impl<K: Kind, T: LeafList<Schema: SchemaOf<K>>> Index<K> for T {
    fn get(&self, key: &K::Key, value: Option<&mut K::ValueBuf>) -> Result<bool> {
        Reads::get(self, key, value)
    }

    fn put(&self, key: &K::Key, value: &K::Value, how: WriteOptions) -> Result<bool> {
        with_space(self, || self.put_as(key, value, how))
    }

    fn delete(&self, key: &K::Key, how: WriteOptions) -> Result<bool> {
        self.delete_as(key, how)
    }

    fn update(&self, key: &K::Key, decide: &mut Decide<'_, K::Value>, how: WriteOptions) -> Result<()> {
        with_space(self, || Writes::update(self, key, &mut *decide, how))
    }

    fn session(&self) -> Result<Option<Box<dyn engine::Session<K> + '_>>> {
        Ok(Session::new(self)?.map(|session| Box::new(session) as Box<dyn engine::Session<K>>))
    }

    fn get_each(&self, keys: &[&K::Key], give: &mut dyn FnMut(Option<K::ValueBuf>) -> bool) -> Result<()> {
        Reads::get_each(self, keys, give)
    }

    fn write_many(&self, writes: &[Write<'_, K::Key, K::Value>], how: WriteOptions) -> Result<Vec<bool>> {
        if self.has_garbage() {
            return write_singly(self, writes, how);
        }
        self.write_many_as(writes, how)
    }

    fn batch_found(
        &self,
        writes: Vec<KeyValue<K>>,
        expected: &[KeyValue<K>],
        how: WriteOptions,
        found: &mut Vec<bool>,
    ) -> Result<bool> {
        if !self.has_garbage() {
            return Batching::batch_found(self, writes, expected, how, found);
        }
        with_space(self, || Batching::batch_found(self, writes.clone(), expected, how, found))
    }

    fn cursor(&self) -> Box<dyn engine::Cursor<K> + '_> {
        Box::new(LeafList::cursor(self))
    }

    fn snapshot(&self) -> Result<Box<dyn View<K> + '_>> {
        Ok(Box::new(SnapshotView::of(self, T::cursor_of)?))
    }

    fn append(&self, next: &mut NextPair<'_, K>, _fill: f64) -> Result<u64> {
        free_all(self)?;
        let mut appended = 0;
        loop {
            let pairs = engine::take_pairs::<K>(next, APPENDED, BYTES_APPENDED)?;
            if pairs.is_empty() {
                return Ok(appended);
            }
            appended += self.bulk_load(pairs.iter().map(|(key, value)| (K::key(key), K::value(value))))?;
        }
    }

    fn clear(&self) -> Result<()> {
        Writes::clear(self)
    }

    fn len(&self) -> Count {
        // Read first: a count that ends in between is then only called pending.
        let pending = self.is_loading();
        Count { keys: self.kernel().len(), pending }
    }

    fn count_all(&self) -> Result<()> {
        while self.load_some()? {}
        Ok(())
    }

    fn has_maintenance(&self) -> bool {
        self.has_garbage() || self.is_loading()
    }

    /// Finishes the loading of an index, then frees the blocks of a cleared structure. A damaged leaf ends the loading. Then the count
    /// stays pending, and reads of that leaf report the damage.
    fn maintain(&self) -> Option<Duration> {
        let loads = self.is_loading() && matches!(self.load_some(), Ok(true));
        (loads || matches!(free_once(self), Ok(true))).then_some(Duration::ZERO)
    }

    fn check(&self) -> Report {
        LeafList::check(self)
    }

    fn anatomy(&self, keys: &[K::KeyBuf]) -> Option<Anatomy> {
        LeafList::anatomy(self, &mut keys.iter().map(K::key))
    }

    fn salvage_leaf(region: &Region<Native>, leaf: u64) -> Vec<Salvaged<K>> {
        let of = |entry| Salvaged::of::<_, T::Schema>(region, &entry);
        T::salvage(region, leaf).into_iter().map(of).collect()
    }
}

impl<K: Kind, T: LeafList<Schema: SchemaOf<K>>> engine::Cursor<K> for super::Cursor<'_, T> {
    fn seek(&mut self, from: Bound<&K::Key>, descending: bool) -> Result<()> {
        self.seek(from.map(K::own_key), descending);
        Ok(())
    }

    fn next(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool> {
        self.next(key, value)
    }
}
