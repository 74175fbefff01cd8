//! The ordered maps that are compared. Batches keep the call through the object out of the measured loop.

use std::borrow::Borrow as _;
use std::collections::BTreeMap;
use std::ops::Bound;

use index::{Fixed, Keyed, Prefixed, Schema, Words, Write, WriteOptions};
use pmem::{Durability, Medium, Result};
use bptree::discipline::Discipline;
use bptree::layout::Layouts;
use bptree::roster::{self, About, ByteStrings, Visitor};
use bptree::{Bitmap, SlotOnly, Slotted, Tree, TreeOptions, WriteAtomic};

use crate::keys::{Key, Text};
use crate::{Error, rooms};

/// An ordered map. Each batch returns a sum that depends on every answer.
pub trait Contender<K = u64> {
    /// Name in tables.
    fn name(&self) -> &str;
    /// Loads ascending keys into the empty map, leaves `fill` full if it has leaves. Number of keys loaded.
    fn load(&mut self, keys: &[K], fill: f64) -> Result<u64>;
    /// Number of keys found.
    fn get(&mut self, keys: &[K]) -> Result<u64>;
    /// Number of keys that were new.
    fn insert(&mut self, keys: &[K]) -> Result<u64>;
    /// Number of values replaced.
    fn update(&mut self, keys: &[K], value: u64) -> Result<u64>;
    /// Number of keys removed.
    fn delete(&mut self, keys: &[K]) -> Result<u64>;
    /// As `get`, so many keys a call. One by one, if the map has no other way.
    fn get_many(&mut self, keys: &[K], group: usize) -> Result<u64> {
        let _ = group;
        self.get(keys)
    }
    /// As `insert`, so many keys a call.
    fn insert_many(&mut self, keys: &[K], group: usize) -> Result<u64> {
        let _ = group;
        self.insert(keys)
    }
    /// As `delete`, so many keys a call.
    fn delete_many(&mut self, keys: &[K], group: usize) -> Result<u64> {
        let _ = group;
        self.delete(keys)
    }
    /// Number of pairs met in scans of `length` from each key.
    fn scan(&mut self, keys: &[K], length: usize) -> Result<u64>;
    /// What is wrong, if the map has to hold just these ascending keys with the values of their insertion.
    fn fault(&mut self, keys: &[K]) -> Result<Option<String>>;
    /// Bytes of memory or file in use, if known.
    fn bytes(&self) -> Option<u64>;
    /// Of what it is made, asked with keys that are there; `None` if it has no leaves.
    fn anatomy(&mut self, keys: &[K]) -> Result<Option<Anatomy>> {
        let _ = keys;
        Ok(None)
    }
}

/// Of what an index is made.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Anatomy {
    /// Nodes that hold entries.
    pub leaves: u64,
    /// Bytes of each.
    pub leaf_bytes: u64,
    /// Bytes of what leads to them: inner nodes, or what stands for these, in durable memory or not.
    pub extra_bytes: u64,
    /// Comparisons until a key's leaf is found, on average, where that is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparisons: Option<f64>,
}

/// One of our trees.
pub struct OurTree<M: Medium, S: Schema, L: Layouts, D: Discipline> {
    name: String,
    tree: Tree<M, S, L, D>,
}

/// What a tree is made with.
pub struct Making<M> {
    /// Name in tables.
    pub name: String,
    /// Where.
    pub medium: M,
    /// Cache lines of a node.
    pub node_lines: u64,
    /// What it promises.
    pub durability: Durability,
    /// Words of a value: 1, or more of trees of [`of_fixed`].
    pub payload_words: usize,
}

impl<M: Medium> Making<M> {
    fn tree<S: Schema, L: Layouts, D: Discipline>(self, engine: &str) -> Result<OurTree<M, S, L, D>> {
        let mut options = TreeOptions::new(engine, self.node_lines, self.durability);
        options.geometry.log_records = roster::log_records::<D>(self.node_lines);
        options.payload_words = self.payload_words;
        Ok(OurTree { name: self.name, tree: Tree::create(self.medium, &options)? })
    }
}

/// Makes an engine's tree of integers.
///
/// # Errors
/// `Pmem` if the medium refuses.
pub fn of_words<M: Medium>(
    engine: &'static About,
    making: Making<M>,
) -> std::result::Result<Box<dyn Contender>, Error> {
    if rooms::has(engine.name) {
        return Ok(rooms::of_words(engine.name, making)?);
    }
    Ok(roster::visit(engine.name, OfWords(making)).expect("an engine is a tree of the roster")?)
}

struct OfWords<M>(Making<M>);

impl<M: Medium> Visitor for OfWords<M> {
    type Out = Result<Box<dyn Contender>>;
    fn visit<B: ByteStrings, L: Layouts, D: Discipline>(self, about: &'static About) -> Self::Out {
        Ok(Box::new(self.0.tree::<Words, L, D>(about.name)?))
    }
}

/// Makes an engine's tree of integers to bytes of one length.
///
/// # Errors
/// `Pmem` if the medium refuses; `OneWord` for engines that have none.
pub fn of_fixed<M: Medium>(
    engine: &'static About,
    making: Making<M>,
) -> std::result::Result<Box<dyn Contender>, Error> {
    if rooms::has(engine.name) {
        return rooms::of_fixed(engine.name, making)?.ok_or(Error::OneWord(engine.name));
    }
    roster::visit(engine.name, OfFixed(making)).expect("an engine is a tree of the roster")
}

struct OfFixed<M>(Making<M>);

impl<M: Medium> Visitor for OfFixed<M> {
    type Out = std::result::Result<Box<dyn Contender>, Error>;
    fn visit<B: ByteStrings, L: Layouts, D: Discipline>(self, about: &'static About) -> Self::Out {
        if const { L::PAGES } {
            return Ok(Box::new(self.0.tree::<Fixed, L, D>(about.name)?));
        }
        Err(Error::OneWord(about.name))
    }
}

/// Makes an engine's tree of strings by 8-byte key pointers, as all trees of the wB+ paper have them.
///
/// # Errors
/// `Pmem` if the medium refuses; `Unfit` for the engines of 4 KiB nodes, of which no experiment has strings.
pub fn of_pointers<M: Medium>(
    engine: &'static About,
    making: Making<M>,
) -> std::result::Result<Box<dyn Contender<Text>>, Error> {
    if rooms::has(engine.name) {
        return Err(Error::Unfit(engine.name));
    }
    roster::visit(engine.name, OfPointers(making)).expect("an engine is a tree of the roster")
}

struct OfPointers<M>(Making<M>);

impl<M: Medium> Visitor for OfPointers<M> {
    type Out = std::result::Result<Box<dyn Contender<Text>>, Error>;
    fn visit<B: ByteStrings, L: Layouts, D: Discipline>(self, about: &'static About) -> Self::Out {
        // A constant of the types: what is not wanted is not compiled.
        if const { L::PAGES } {
            return Err(Error::Unfit(about.name));
        }
        Ok(Box::new(self.0.tree::<Keyed, L, D>(about.name)?))
    }
}

/// Makes a wB+-Tree of strings with inline 8-byte prefixes, our default.
///
/// # Errors
/// `Pmem` if the medium refuses; `Unfit` for other engines, of which no experiment has prefixes.
pub fn of_prefixes<M: Medium>(
    engine: &'static About,
    making: Making<M>,
) -> std::result::Result<Box<dyn Contender<Text>>, Error> {
    Ok(match engine.name {
        "wbtree" => Box::new(making.tree::<Prefixed, (Slotted, Slotted), WriteAtomic>(engine.name)?),
        "wbtree-bmp" => Box::new(making.tree::<Prefixed, (Bitmap, Slotted), WriteAtomic>(engine.name)?),
        "wbtree-slot" => Box::new(making.tree::<Prefixed, (SlotOnly, SlotOnly), WriteAtomic>(engine.name)?),
        _ => return Err(Error::Unfit(engine.name)),
    })
}

impl<M: Medium, S: Schema, L: Layouts, D: Discipline> OurTree<M, S, L, D> {
    /// Words of a value.
    fn words(&self) -> usize {
        self.tree.leaf_shape().payload_words
    }

    /// How many of the writes met a key that was there, or was not.
    fn write(&self, writes: &[Write<'_, S::Key, S::Value>], was_there: bool) -> Result<u64> {
        let met = self.tree.write_many(writes, WriteOptions::default())?;
        Ok(met.iter().filter(|met| **met == was_there).count() as u64)
    }
}

pub(crate) fn count<K>(keys: &[K], mut each: impl FnMut(&K) -> Result<bool>) -> Result<u64> {
    let mut sum = 0;
    for key in keys {
        sum += u64::from(each(key)?);
    }
    Ok(sum)
}

impl<M: Medium, S: Schema, L: Layouts, D: Discipline, K: Key<S>> Contender<K> for OurTree<M, S, L, D> {
    fn name(&self) -> &str {
        &self.name
    }

    fn load(&mut self, keys: &[K], fill: f64) -> Result<u64> {
        let words = self.words();
        let values: Vec<K::Value> = keys.iter().map(|key| K::value(key.number(), words)).collect();
        self.tree.bulk_load(keys.iter().zip(&values).map(|(key, value)| (key.key(), value.borrow())), fill)
    }

    fn get(&mut self, keys: &[K]) -> Result<u64> {
        let mut value = S::ValueBuf::default();
        count(keys, |key| self.tree.get(key.key(), Some(&mut value)))
    }

    fn insert(&mut self, keys: &[K]) -> Result<u64> {
        let (words, mut session) = (self.words(), self.tree.session()?);
        count(keys, |key| Ok(!session.put(key.key(), K::value(key.number(), words).borrow())?))
    }

    fn update(&mut self, keys: &[K], value: u64) -> Result<u64> {
        let (words, mut session) = (self.words(), self.tree.session()?);
        count(keys, |key| session.put(key.key(), K::value(value, words).borrow()))
    }

    fn delete(&mut self, keys: &[K]) -> Result<u64> {
        let mut session = self.tree.session()?;
        count(keys, |key| session.delete(key.key()))
    }

    // Only of plain keys, which are what is measured: of others they would be compiled for nothing.
    fn get_many(&mut self, keys: &[K], group: usize) -> Result<u64> {
        if const { !S::PLAIN } {
            return self.get(keys);
        }
        let mut sum = 0;
        let mut refs: Vec<&S::Key> = Vec::with_capacity(group);
        for keys in keys.chunks(group) {
            refs.clear();
            refs.extend(keys.iter().map(Key::key));
            sum += self.tree.get_many(&refs)?.iter().flatten().count() as u64;
        }
        Ok(sum)
    }

    fn insert_many(&mut self, keys: &[K], group: usize) -> Result<u64> {
        if const { !S::PLAIN } {
            return self.insert(keys);
        }
        let words = self.words();
        let mut sum = 0;
        for keys in keys.chunks(group) {
            let values: Vec<K::Value> = keys.iter().map(|key| K::value(key.number(), words)).collect();
            let puts = keys.iter().zip(&values).map(|(key, value)| Write::Put(key.key(), value.borrow()));
            sum += self.write(&puts.collect::<Vec<_>>(), false)?;
        }
        Ok(sum)
    }

    fn delete_many(&mut self, keys: &[K], group: usize) -> Result<u64> {
        if const { !S::PLAIN } {
            return self.delete(keys);
        }
        let mut sum = 0;
        for keys in keys.chunks(group) {
            sum += self.write(&keys.iter().map(|key| Write::Delete(key.key())).collect::<Vec<_>>(), true)?;
        }
        Ok(sum)
    }

    fn scan(&mut self, keys: &[K], length: usize) -> Result<u64> {
        let (mut key, mut value, mut met) = (S::KeyBuf::default(), S::ValueBuf::default(), 0);
        let mut cursor = self.tree.cursor();
        for from in keys {
            cursor.seek(Bound::Included(from.owned()), false);
            for _ in 0..length {
                if !cursor.next(&mut key, &mut value)? {
                    break;
                }
                met += u64::from(S::order_probe(S::probe(from.key()), S::borrow(&key)).is_le());
            }
        }
        Ok(met)
    }

    fn fault(&mut self, keys: &[K]) -> Result<Option<String>> {
        if let Some(problem) = self.tree.check().problems.into_iter().next() {
            return Ok(Some(problem));
        }
        let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
        let mut cursor = self.tree.cursor();
        cursor.seek(Bound::Unbounded, false);
        for expected in keys {
            let there = cursor.next(&mut key, &mut value)?;
            if !there || key != expected.owned() || !K::is(&value, expected.number()) {
                return Ok(Some(format!("{expected:?} or its value is not where it has to be")));
            }
        }
        let more = cursor.next(&mut key, &mut value)?;
        Ok(more.then(|| format!("a key too many: {key:?}")))
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.tree.region().medium().len())
    }

    fn anatomy(&mut self, _keys: &[K]) -> Result<Option<Anatomy>> {
        let (found, leaf_bytes) = (self.tree.check(), self.tree.leaf_shape().bytes());
        // Inner nodes are as large as leaves.
        let extra_bytes = (found.nodes - found.leaves) * leaf_bytes;
        Ok(Some(Anatomy { leaves: found.leaves, leaf_bytes, extra_bytes, comparisons: None }))
    }
}

impl Contender for BTreeMap<u64, u64> {
    fn name(&self) -> &str {
        "std BTreeMap"
    }

    fn load(&mut self, keys: &[u64], _fill: f64) -> Result<u64> {
        self.extend(keys.iter().map(|key| (*key, *key)));
        Ok(self.len() as u64)
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

    fn fault(&mut self, keys: &[u64]) -> Result<Option<String>> {
        let same = self.iter().map(|(key, value)| (*key, *value)).eq(keys.iter().map(|key| (*key, *key)));
        Ok((!same).then(|| "other pairs than were stored".to_owned()))
    }

    fn bytes(&self) -> Option<u64> {
        None
    }
}
