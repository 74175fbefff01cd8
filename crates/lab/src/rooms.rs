//! Contenders that are no trees of the roster: each says how it does one thing, and the batches are written once.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::ops::Bound;

use index::chain::prelude::*;
use index::{Fixed, Schema, Words, Write, WriteOptions};
use pmem::{Medium, Result};

use crate::contender::{Anatomy, Contender, Making, count};
use crate::keys::Key;

/// Operations after which an index does what it would do beside its users, as a store has it done.
const TENDED_AFTER: usize = 256;

/// The engine that is in no durable memory.
const BWTREE: &str = "bwtree";

/// True if an index of this name is measured.
pub fn has(name: &str) -> bool {
    [cdds::ENGINE, cdds::ENGINE_UNSORTED, vlab::ENGINE, nvtree::ENGINE, BWTREE].contains(&name)
}

/// Makes the index of integers of this name, which [`has`] knows.
///
/// # Errors
/// What making it may say.
pub fn of_words<M: Medium>(engine: &str, making: Making<M>) -> Result<Box<dyn Contender>> {
    if engine == vlab::ENGINE {
        let (name, index) = buckets::<M, Words>(making)?;
        return Ok(Box::new(Room { name, index: Listed { index, anatomy: of_buckets } }));
    }
    if engine == nvtree::ENGINE {
        let (name, index) = logs::<M, Words>(making)?;
        return Ok(Box::new(Room { name, index: Listed { index, anatomy: of_logs } }));
    }
    let (name, medium) = (making.name, making.medium);
    if engine == BWTREE {
        let page_bytes = making.node_lines as usize * 64;
        let options = bwtree::Options::of_pages(page_bytes);
        let index = bwtree::Tree::new(options).expect("pages of whole lines");
        return Ok(Box::new(Room { name, index }));
    }
    let options = cdds::Options::new(making.node_lines, making.durability);
    if engine == cdds::ENGINE_UNSORTED {
        let index = cdds::Tree::<M, Words, cdds::Unsorted>::create(medium, &options)?;
        return Ok(Box::new(Room { name, index }));
    }
    let index = cdds::Tree::<M, Words>::create(medium, &options)?;
    Ok(Box::new(Room { name, index }))
}

/// Makes the index of integers to bytes of one length of this name; `None` if it has none.
///
/// # Errors
/// What making it may say.
pub fn of_fixed<M: Medium>(engine: &str, making: Making<M>) -> Result<Option<Box<dyn Contender>>> {
    let words = making.payload_words;
    let found = RefCell::default();
    Ok(match engine {
        vlab::ENGINE => {
            let (name, index) = buckets::<M, Fixed>(making)?;
            Some(Box::new(Room { name, index: Wide { index, words, found, anatomy: of_buckets } }))
        }
        nvtree::ENGINE => {
            let (name, index) = logs::<M, Fixed>(making)?;
            Some(Box::new(Room { name, index: Wide { index, words, found, anatomy: of_logs } }))
        }
        _ => None,
    })
}

fn buckets<M: Medium, S: Schema>(making: Making<M>) -> Result<(String, vlab::Vlab<M, S>)> {
    let payload_words = making.payload_words;
    let options = vlab::Options { payload_words, ..vlab::Options::new(making.node_lines, making.durability) };
    Ok((making.name, vlab::Vlab::create(making.medium, &options)?))
}

fn logs<M: Medium, S: Schema>(making: Making<M>) -> Result<(String, nvtree::NvTree<M, S>)> {
    let payload_words = making.payload_words;
    let options =
        nvtree::Options { payload_words, ..nvtree::Options::new(making.node_lines, making.durability) };
    Ok((making.name, nvtree::NvTree::create(making.medium, &options)?))
}

fn of_buckets<M: Medium, S: Schema<Key = u64>>(index: &vlab::Vlab<M, S>, keys: &[u64]) -> Anatomy {
    let paths = index.paths();
    let compared: u64 = keys.iter().map(|key| u64::from(index.comparisons(key))).sum();
    Anatomy {
        leaves: (paths.directory + paths.in_braids) as u64,
        leaf_bytes: index.leaf_bytes(),
        extra_bytes: paths.directory_bytes + paths.braids_bytes,
        comparisons: Some(compared as f64 / keys.len().max(1) as f64),
    }
}

fn of_logs<M: Medium, S: Schema>(index: &nvtree::NvTree<M, S>, _keys: &[u64]) -> Anatomy {
    let paths = index.paths();
    Anatomy {
        leaves: paths.leaves as u64,
        leaf_bytes: index.leaf_bytes(),
        extra_bytes: paths.inner_bytes,
        comparisons: None,
    }
}

/// An index of integers.
trait Index {
    fn get(&self, key: &u64, value: &mut u64) -> Result<bool>;
    fn put(&self, key: &u64, value: &u64) -> Result<bool>;
    fn delete(&self, key: &u64) -> Result<bool>;
    /// One by one, if an index has no better way.
    fn write_many(&self, writes: &[Write<'_, u64, u64>]) -> Result<Vec<bool>> {
        let each = writes.iter().map(|write| match write {
            Write::Put(key, value) => self.put(key, value),
            Write::Delete(key) => self.delete(key),
        });
        each.collect()
    }
    /// Meets pairs from a key on, until `meet` says false.
    fn scan(&self, from: Bound<u64>, meet: &mut dyn FnMut(u64, u64) -> bool) -> Result<()>;
    /// Does what so many operations leave to be done.
    fn tend(&self, _operations: usize) -> Result<()> {
        Ok(())
    }
    fn problems(&self) -> Vec<String>;
    fn bytes(&self) -> u64;
    /// Of what it is made, if that is known.
    fn anatomy(&self, _keys: &[u64]) -> Option<Anatomy> {
        None
    }
}

impl<M: Medium, O: cdds::Order> Index for cdds::Tree<M, Words, O> {
    fn get(&self, key: &u64, value: &mut u64) -> Result<bool> {
        self.get(key, Some(value))
    }
    fn put(&self, key: &u64, value: &u64) -> Result<bool> {
        self.put(key, value)
    }
    fn delete(&self, key: &u64) -> Result<bool> {
        self.delete(key)
    }
    fn write_many(&self, writes: &[Write<'_, u64, u64>]) -> Result<Vec<bool>> {
        self.write_many(writes)
    }
    fn scan(&self, from: Bound<u64>, meet: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        let (mut key, mut value) = (0, 0);
        let mut cursor = self.cursor();
        cursor.seek(from, false);
        while cursor.next(&mut key, &mut value)? && meet(key, value) {}
        Ok(())
    }
    fn tend(&self, operations: usize) -> Result<()> {
        // An operation leaves a part of a node behind.
        self.collect_some(operations / 4).map(drop)
    }
    fn problems(&self) -> Vec<String> {
        self.check().problems
    }
    fn bytes(&self) -> u64 {
        self.region().medium().len()
    }
}

/// An index over one list of leaves.
struct Listed<T> {
    index: T,
    anatomy: fn(&T, &[u64]) -> Anatomy,
}

impl<T: Chain<Schema = Words>> Index for Listed<T> {
    fn get(&self, key: &u64, value: &mut u64) -> Result<bool> {
        self.index.get(key, Some(value))
    }
    fn put(&self, key: &u64, value: &u64) -> Result<bool> {
        self.index.put(key, value)
    }
    fn delete(&self, key: &u64) -> Result<bool> {
        self.index.delete(key)
    }
    fn write_many(&self, writes: &[Write<'_, u64, u64>]) -> Result<Vec<bool>> {
        self.index.write_many_as(writes, WriteOptions::default())
    }
    fn scan(&self, from: Bound<u64>, meet: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        let (mut key, mut value) = (0, 0);
        let mut cursor = self.index.cursor();
        cursor.seek(from, false);
        while cursor.next(&mut key, &mut value)? && meet(key, value) {}
        Ok(())
    }
    fn problems(&self) -> Vec<String> {
        self.index.check().problems
    }
    fn bytes(&self) -> u64 {
        self.index.region().medium().len()
    }
    fn anatomy(&self, keys: &[u64]) -> Option<Anatomy> {
        Some((self.anatomy)(&self.index, keys))
    }
}

/// The same, with values of so many words made of a number.
struct Wide<T> {
    index: T,
    words: usize,
    /// What was found last: its memory is used again.
    found: RefCell<Vec<u8>>,
    anatomy: fn(&T, &[u64]) -> Anatomy,
}

impl<T: Chain<Schema = Fixed>> Index for Wide<T> {
    fn get(&self, key: &u64, value: &mut u64) -> Result<bool> {
        let mut found = self.found.borrow_mut();
        let is_found = self.index.get(key, Some(&mut found))?;
        if is_found {
            *value = number_of(&found);
        }
        Ok(is_found)
    }
    fn put(&self, key: &u64, value: &u64) -> Result<bool> {
        self.index.put(key, <u64 as Key<Fixed>>::value(*value, self.words).borrow())
    }
    fn delete(&self, key: &u64) -> Result<bool> {
        self.index.delete(key)
    }
    fn scan(&self, from: Bound<u64>, meet: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        let (mut key, mut value) = (0, Vec::new());
        let mut cursor = self.index.cursor();
        cursor.seek(from, false);
        while cursor.next(&mut key, &mut value)? && meet(key, number_of(&value)) {}
        Ok(())
    }
    fn problems(&self) -> Vec<String> {
        self.index.check().problems
    }
    fn bytes(&self) -> u64 {
        self.index.region().medium().len()
    }
    fn anatomy(&self, keys: &[u64]) -> Option<Anatomy> {
        Some((self.anatomy)(&self.index, keys))
    }
}

/// The number that a value is made of; another one than its first word says, if it is made of none.
fn number_of(value: &Vec<u8>) -> u64 {
    let number = value.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    if <u64 as Key<Fixed>>::is(value, number) { number } else { !number }
}

/// Pairs of words are never refused.
const NEVER: &str = "a word is not too long";

impl Index for bwtree::Tree<bwtree::Words> {
    fn get(&self, key: &u64, value: &mut u64) -> Result<bool> {
        Ok(self.get_with(key, |found| *value = *found).is_some())
    }
    fn put(&self, key: &u64, value: &u64) -> Result<bool> {
        Ok(self.put(key, value).expect(NEVER))
    }
    fn delete(&self, key: &u64) -> Result<bool> {
        Ok(self.delete(key).expect(NEVER))
    }
    fn scan(&self, from: Bound<u64>, meet: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        self.range(from.as_ref(), Bound::Unbounded).all(|(key, value)| meet(key, value));
        Ok(())
    }
    fn problems(&self) -> Vec<String> {
        self.check().problems
    }
    fn bytes(&self) -> u64 {
        self.memory().total()
    }
}

struct Room<T> {
    name: String,
    index: T,
}

impl<T: Index> Room<T> {
    fn each(&self, keys: &[u64], mut write: impl FnMut(&u64) -> Result<bool>) -> Result<u64> {
        let mut sum = 0;
        for keys in keys.chunks(TENDED_AFTER) {
            sum += count(keys, &mut write)?;
            self.index.tend(keys.len())?;
        }
        Ok(sum)
    }

    /// How many of the writes met a key that was there, or was not.
    fn many<'k>(
        &self,
        keys: &'k [u64],
        group: usize,
        was_there: bool,
        write: fn(&'k u64) -> Write<'k, u64, u64>,
    ) -> Result<u64> {
        let mut sum = 0;
        for keys in keys.chunks(group) {
            let met = self.index.write_many(&keys.iter().map(write).collect::<Vec<_>>())?;
            sum += met.iter().filter(|met| **met == was_there).count() as u64;
            self.index.tend(keys.len())?;
        }
        Ok(sum)
    }
}

impl<T: Index> Contender for Room<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn load(&mut self, keys: &[u64], _fill: f64) -> Result<u64> {
        self.insert(keys)
    }

    fn get(&mut self, keys: &[u64]) -> Result<u64> {
        let mut value = 0;
        count(keys, |key| self.index.get(key, &mut value))
    }

    fn insert(&mut self, keys: &[u64]) -> Result<u64> {
        self.each(keys, |key| Ok(!self.index.put(key, key)?))
    }

    fn update(&mut self, keys: &[u64], value: u64) -> Result<u64> {
        self.each(keys, |key| self.index.put(key, &value))
    }

    fn delete(&mut self, keys: &[u64]) -> Result<u64> {
        self.each(keys, |key| self.index.delete(key))
    }

    fn insert_many(&mut self, keys: &[u64], group: usize) -> Result<u64> {
        self.many(keys, group, false, |key| Write::Put(key, key))
    }

    fn delete_many(&mut self, keys: &[u64], group: usize) -> Result<u64> {
        self.many(keys, group, true, Write::Delete)
    }

    fn scan(&mut self, keys: &[u64], length: usize) -> Result<u64> {
        let mut met = 0;
        for from in keys {
            let mut left = length;
            self.index.scan(Bound::Included(*from), &mut |key, _| {
                met += u64::from(key >= *from);
                left -= 1;
                left > 0
            })?;
        }
        Ok(met)
    }

    fn fault(&mut self, keys: &[u64]) -> Result<Option<String>> {
        if let Some(problem) = self.index.problems().into_iter().next() {
            return Ok(Some(problem));
        }
        let mut expected = keys.iter();
        let mut fault = None;
        self.index.scan(Bound::Unbounded, &mut |key, value| {
            if expected.next() != Some(&key) || value != key {
                fault = Some(format!("{key} with {value} is not where it has to be"));
            }
            fault.is_none()
        })?;
        Ok(fault.or_else(|| expected.next().map(|key| format!("{key} is not there"))))
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.index.bytes())
    }

    fn anatomy(&mut self, keys: &[u64]) -> Result<Option<Anatomy>> {
        Ok(self.index.anatomy(keys))
    }
}
