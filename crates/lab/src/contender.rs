//! The ordered maps that are compared. Batches keep the call through the object out of the measured loop.

use std::collections::BTreeMap;
use std::ops::Bound;

use pmem::{Medium, Result};
use tree::discipline::Discipline;
use tree::layout::Layouts;
use tree::{Tree, Words};

/// An ordered map from `u64` to `u64`. Each batch returns a sum that depends on every answer.
pub trait Contender {
    /// Name in tables.
    fn name(&self) -> &str;
    /// Number of keys found.
    fn get(&mut self, keys: &[u64]) -> Result<u64>;
    /// Number of keys that were new.
    fn insert(&mut self, keys: &[u64]) -> Result<u64>;
    /// Number of values replaced.
    fn update(&mut self, keys: &[u64], value: u64) -> Result<u64>;
    /// Number of keys removed.
    fn delete(&mut self, keys: &[u64]) -> Result<u64>;
    /// Number of pairs met in scans of `length` from each key.
    fn scan(&mut self, keys: &[u64], length: usize) -> Result<u64>;
    /// Bytes of memory or file in use, if known.
    fn bytes(&self) -> Option<u64>;
}

/// One of our trees.
pub struct OurTree<M, L: Layouts, D: Discipline> {
    name: String,
    tree: Tree<M, Words, L, D>,
}

impl<M: Medium, L: Layouts, D: Discipline> OurTree<M, L, D> {
    /// Gives a tree a name.
    pub fn new(name: impl Into<String>, tree: Tree<M, Words, L, D>) -> Self {
        Self { name: name.into(), tree }
    }
}

fn count(keys: &[u64], mut each: impl FnMut(&u64) -> Result<bool>) -> Result<u64> {
    let mut sum = 0;
    for key in keys {
        sum += u64::from(each(key)?);
    }
    Ok(sum)
}

impl<M: Medium, L: Layouts, D: Discipline> Contender for OurTree<M, L, D> {
    fn name(&self) -> &str {
        &self.name
    }

    fn get(&mut self, keys: &[u64]) -> Result<u64> {
        let mut value = 0;
        count(keys, |key| self.tree.get(key, Some(&mut value)))
    }

    fn insert(&mut self, keys: &[u64]) -> Result<u64> {
        let mut session = self.tree.session()?;
        count(keys, |key| Ok(!session.put(key, key)?))
    }

    fn update(&mut self, keys: &[u64], value: u64) -> Result<u64> {
        let mut session = self.tree.session()?;
        count(keys, |key| session.put(key, &value))
    }

    fn delete(&mut self, keys: &[u64]) -> Result<u64> {
        let mut session = self.tree.session()?;
        count(keys, |key| session.delete(key))
    }

    fn scan(&mut self, keys: &[u64], length: usize) -> Result<u64> {
        let (mut key, mut value, mut met) = (0, 0, 0);
        let mut cursor = self.tree.cursor();
        for from in keys {
            cursor.seek(Bound::Included(*from), false);
            for _ in 0..length {
                if !cursor.next(&mut key, &mut value)? {
                    break;
                }
                met += u64::from(key >= *from);
            }
        }
        Ok(met)
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.tree.region().medium().len())
    }
}

impl Contender for BTreeMap<u64, u64> {
    fn name(&self) -> &str {
        "std BTreeMap"
    }

    fn get(&mut self, keys: &[u64]) -> Result<u64> {
        count(keys, |key| Ok(BTreeMap::get(self, key).is_some()))
    }

    fn insert(&mut self, keys: &[u64]) -> Result<u64> {
        count(keys, |key| Ok(BTreeMap::insert(self, *key, *key).is_none()))
    }

    fn update(&mut self, keys: &[u64], value: u64) -> Result<u64> {
        count(keys, |key| Ok(BTreeMap::insert(self, *key, value).is_some()))
    }

    fn delete(&mut self, keys: &[u64]) -> Result<u64> {
        count(keys, |key| Ok(self.remove(key).is_some()))
    }

    fn scan(&mut self, keys: &[u64], length: usize) -> Result<u64> {
        let mut met = 0;
        for from in keys {
            for (key, value) in self.range(*from..).take(length) {
                std::hint::black_box(value);
                met += u64::from(key >= from);
            }
        }
        Ok(met)
    }

    fn bytes(&self) -> Option<u64> {
        None
    }
}
