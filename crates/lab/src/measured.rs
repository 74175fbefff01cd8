//! The ordered maps that are measured: all ordered engines of the registry, and the map of the standard library. The methods take batches
//! of keys, so each batch costs one virtual call of [`Measured`], not one for each key.

use std::borrow::Borrow as _;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Bound;

use bptree::Tree;
use bptree::commit_protocol::CommitProtocol;
use bptree::layout::Layouts;
use bptree::roster::{self, ByteStrings};
use bristlecone::registry;
use index::engine::Anatomy;
use index::kind::{Bytes, Fixed, Kind, U64};
use index::{About, Create, Family, Form, Index, Keyed, Visitor, WithIndex, Write, WriteOptions};
use pmem::{Durability, Medium, Result};

use crate::Error;
use crate::keys::{Key, Text};

/// Number of writes between two maintenance steps of an index. In a store, a thread does this maintenance.
const MAINTAINED_AFTER: usize = 128;

/// An ordered map. Each batch returns a sum that depends on all answers.
pub trait Measured<K = u64> {
    /// Name in tables.
    fn name(&self) -> &str;
    /// Loads ascending keys into the empty map and returns their number. Leaves, if the map has any, are filled to `fill`.
    fn load(&mut self, keys: &[K], fill: f64) -> Result<u64>;
    /// Number of keys found.
    fn get(&mut self, keys: &[K]) -> Result<u64>;
    /// Number of keys that were new.
    fn insert(&mut self, keys: &[K]) -> Result<u64>;
    /// Number of values replaced.
    fn update(&mut self, keys: &[K], value: u64) -> Result<u64>;
    /// Number of keys removed.
    fn delete(&mut self, keys: &[K]) -> Result<u64>;
    /// Like `get`, with `group` keys per call; one by one if the map has no such operation.
    fn get_many(&mut self, keys: &[K], group: usize) -> Result<u64> {
        let _ = group;
        self.get(keys)
    }
    /// Like `insert`, with `group` keys per call.
    fn insert_many(&mut self, keys: &[K], group: usize) -> Result<u64> {
        let _ = group;
        self.insert(keys)
    }
    /// Like `delete`, with `group` keys per call.
    fn delete_many(&mut self, keys: &[K], group: usize) -> Result<u64> {
        let _ = group;
        self.delete(keys)
    }
    /// Number of pairs found in scans of `length` from each key.
    fn scan(&mut self, keys: &[K], length: usize) -> Result<u64>;
    /// Describes a fault, if the map does not contain exactly these ascending keys with their inserted values.
    fn fault(&mut self, keys: &[K]) -> Result<Option<String>>;
    /// Bytes of memory or file in use, if known.
    fn bytes(&self) -> Option<u64>;
    /// Sizes of the structure. Some engines also count the comparisons of a lookup of `keys`. `None` if the engine measures neither.
    fn anatomy(&mut self, _keys: &[K]) -> Option<Anatomy> {
        None
    }
}

/// Parameters of a new index.
pub struct Making<M> {
    /// Name in tables.
    pub name: String,
    /// The memory of the index.
    pub medium: M,
    /// Cache lines of a node.
    pub node_lines: u64,
    /// The durability of the index.
    pub durability: Durability,
    /// Words of a value: 1, or more for indexes of [`of_fixed`].
    pub payload_words: usize,
}

impl<M: Medium> Making<M> {
    fn make<K: Kind, I: Index<K> + Create<M>>(self, engine: &'static str) -> Result<Of<I, K>> {
        let Self { name, medium, node_lines, durability, payload_words } = self;
        let form = Form { payload_words, ..Form::new(engine, node_lines, durability) };
        let index = I::create(medium, &form)?;
        Ok(Of { name, index, words: payload_words, unmaintained: Cell::new(0), kind: PhantomData })
    }
}

type Made<K> = std::result::Result<Box<dyn Measured<K>>, Error>;

/// Makes an index of integers.
///
/// # Errors
/// `Pmem` for an error of the medium.
pub fn of_words<M: Medium>(engine: &'static About, making: Making<M>) -> Made<u64> {
    registry::visit(engine.name, OfWords(making)).expect("the engine was taken from the registry")
}

struct OfWords<M>(Making<M>);

impl<M: Medium> Visitor for OfWords<M> {
    type Out = Made<u64>;
    fn visit<F: Family>(self, about: &'static About) -> Self::Out {
        Ok(Box::new(self.0.make::<U64, F::Words<M>>(about.name)?))
    }
}

/// Makes an index from integers to byte strings of one length.
///
/// # Errors
/// `Pmem` for an error of the medium; `OneWord` for engines that do not support larger values.
pub fn of_fixed<M: Medium>(engine: &'static About, making: Making<M>) -> Made<u64> {
    registry::visit(engine.name, OfFixed(making)).expect("the engine was taken from the registry")
}

struct OfFixed<M>(Making<M>);

impl<M: Medium> Visitor for OfFixed<M> {
    type Out = Made<u64>;
    fn visit<F: Family>(self, about: &'static About) -> Self::Out {
        F::fixed(MakeFixed(self.0, about)).unwrap_or(Err(Error::OneWord(about.name)))
    }
}

struct MakeFixed<M>(Making<M>, &'static About);

impl<M: Medium> WithIndex<M, Fixed> for MakeFixed<M> {
    type Out = Made<u64>;
    fn with<I: Index<Fixed> + Create<M>>(self) -> Self::Out {
        Ok(Box::new(self.0.make::<Fixed, I>(self.1.name)?))
    }
}

/// Makes an index of strings. Its nodes contain 8-byte pointers to the keys, as in all trees of the wB+ paper.
///
/// # Errors
/// `Pmem` for an error of the medium; `Unfit` for engines that are not B+-trees, and for those with 4 KiB nodes.
pub fn of_pointers<M: Medium>(engine: &'static About, making: Making<M>) -> Made<Text> {
    roster::visit(engine.name, OfPointers(making)).unwrap_or(Err(Error::Unfit(engine.name)))
}

struct OfPointers<M>(Making<M>);

impl<M: Medium> roster::Visitor for OfPointers<M> {
    type Out = Made<Text>;
    fn visit<B: ByteStrings, L: Layouts, D: CommitProtocol>(self, about: &'static About) -> Self::Out {
        // A constant of the types, so that unused variants are not compiled.
        if const { L::PAGES } {
            return Err(Error::Unfit(about.name));
        }
        Ok(Box::new(self.0.make::<Bytes, Tree<M, Keyed, L, D>>(about.name)?))
    }
}

/// Makes an index of strings. Its entries contain a pointer to the key and the first 8 bytes of the key ([`index::Prefixed`]).
///
/// # Errors
/// `Pmem` for an error of the medium; `Unfit` for engines other than `wbtree`, `wbtree-bmp` and `wbtree-slot`.
pub fn of_prefixes<M: Medium>(engine: &'static About, making: Making<M>) -> Made<Text> {
    if !["wbtree", "wbtree-bmp", "wbtree-slot"].contains(&engine.name) {
        return Err(Error::Unfit(engine.name));
    }
    registry::visit(engine.name, OfPrefixes(making)).expect("the engine was taken from the registry")
}

struct OfPrefixes<M>(Making<M>);

impl<M: Medium> Visitor for OfPrefixes<M> {
    type Out = Made<Text>;
    fn visit<F: Family>(self, about: &'static About) -> Self::Out {
        Ok(Box::new(self.0.make::<Bytes, F::Bytes<M>>(about.name)?))
    }
}

fn count<K>(keys: &[K], mut each: impl FnMut(&K) -> Result<bool>) -> Result<u64> {
    let mut sum = 0;
    for key in keys {
        sum += u64::from(each(key)?);
    }
    Ok(sum)
}

/// An index of the registry.
struct Of<I, K> {
    name: String,
    index: I,
    /// Number of words of a value.
    words: usize,
    /// Number of writes since the last maintenance step.
    unmaintained: Cell<usize>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind, I: Index<K>> Of<I, K> {
    /// Does the maintenance that this many writes require.
    fn maintain(&self, writes: usize) {
        if self.index.has_maintenance() {
            let unmaintained = self.unmaintained.get() + writes;
            (0..unmaintained / MAINTAINED_AFTER).for_each(|_| _ = self.index.maintain());
            self.unmaintained.set(unmaintained % MAINTAINED_AFTER);
        }
    }

    /// Counts the keys for which the operation returns true. Uses a session if the engine has sessions, else single calls.
    fn each<N>(
        &self,
        keys: &[N],
        in_session: impl Fn(&mut dyn index::engine::Session<K>, &N) -> Result<bool>,
        alone: impl Fn(&I, &N) -> Result<bool>,
    ) -> Result<u64> {
        if let Some(mut session) = self.index.session()? {
            return count(keys, |key| in_session(&mut *session, key));
        }
        let mut sum = 0;
        for keys in keys.chunks(2 * MAINTAINED_AFTER) {
            sum += count(keys, |key| alone(&self.index, key))?;
            self.maintain(keys.len());
        }
        Ok(sum)
    }

    /// Number of writes whose key existed (`was_there`) or did not exist.
    fn write(&self, writes: &[Write<'_, K::Key, K::Value>], was_there: bool) -> Result<u64> {
        let met = self.index.write_many(writes, WriteOptions::default())?;
        self.maintain(writes.len());
        Ok(met.iter().filter(|met| **met == was_there).count() as u64)
    }
}

const SYNCED: WriteOptions = WriteOptions { sync: true };

impl<K: Kind, I: Index<K>, N: Key<K>> Measured<N> for Of<I, K> {
    fn name(&self) -> &str {
        &self.name
    }

    fn load(&mut self, keys: &[N], fill: f64) -> Result<u64> {
        let (words, mut keys) = (self.words, keys.iter());
        let mut next = |to: &mut K::KeyBuf, value: &mut K::ValueBuf| {
            let Some(key) = keys.next() else { return Ok(false) };
            *to = key.owned();
            *value = K::own_value(N::value(key.number(), words).borrow());
            Ok(true)
        };
        self.index.append(&mut next, fill)
    }

    fn get(&mut self, keys: &[N]) -> Result<u64> {
        let mut value = K::ValueBuf::default();
        count(keys, |key| self.index.get(key.key(), Some(&mut value)))
    }

    fn insert(&mut self, keys: &[N]) -> Result<u64> {
        let value = |key: &N| N::value(key.number(), self.words);
        self.each(
            keys,
            |session, key| Ok(!session.put(key.key(), value(key).borrow())?),
            |index, key| Ok(!index.put(key.key(), value(key).borrow(), SYNCED)?),
        )
    }

    fn update(&mut self, keys: &[N], value: u64) -> Result<u64> {
        let value = || N::value(value, self.words);
        self.each(
            keys,
            |session, key| session.put(key.key(), value().borrow()),
            |index, key| index.put(key.key(), value().borrow(), SYNCED),
        )
    }

    fn delete(&mut self, keys: &[N]) -> Result<u64> {
        self.each(
            keys,
            |session, key| session.delete(key.key()),
            |index, key| index.delete(key.key(), SYNCED),
        )
    }

    fn get_many(&mut self, keys: &[N], group: usize) -> Result<u64> {
        let (mut sum, mut refs) = (0, Vec::with_capacity(group));
        for keys in keys.chunks(group) {
            refs.clear();
            refs.extend(keys.iter().map(Key::key));
            self.index.get_each(&refs, &mut |value| {
                sum += u64::from(value.is_some());
                true
            })?;
        }
        Ok(sum)
    }

    fn insert_many(&mut self, keys: &[N], group: usize) -> Result<u64> {
        let mut sum = 0;
        for keys in keys.chunks(group) {
            let values: Vec<N::Value> = keys.iter().map(|key| N::value(key.number(), self.words)).collect();
            let puts = keys.iter().zip(&values).map(|(key, value)| Write::Put(key.key(), value.borrow()));
            sum += self.write(&puts.collect::<Vec<_>>(), false)?;
        }
        Ok(sum)
    }

    fn delete_many(&mut self, keys: &[N], group: usize) -> Result<u64> {
        let mut sum = 0;
        for keys in keys.chunks(group) {
            sum += self.write(&keys.iter().map(|key| Write::Delete(key.key())).collect::<Vec<_>>(), true)?;
        }
        Ok(sum)
    }

    fn scan(&mut self, keys: &[N], length: usize) -> Result<u64> {
        let (mut key, mut value, mut met) = (K::KeyBuf::default(), K::ValueBuf::default(), 0);
        let mut cursor = self.index.cursor();
        for from in keys {
            cursor.seek(Bound::Included(from.key()), false)?;
            for _ in 0..length {
                if !cursor.next(&mut key, &mut value)? {
                    break;
                }
                met += u64::from(from.key() <= K::key(&key));
            }
        }
        Ok(met)
    }

    fn fault(&mut self, keys: &[N]) -> Result<Option<String>> {
        if let Some(problem) = self.index.check().problems.into_iter().next() {
            return Ok(Some(problem));
        }
        let (mut key, mut value) = (K::KeyBuf::default(), K::ValueBuf::default());
        let mut cursor = self.index.cursor();
        cursor.seek(Bound::Unbounded, false)?;
        for expected in keys {
            let there = cursor.next(&mut key, &mut value)?;
            if !there || key != expected.owned() || !N::is(&value, expected.number()) {
                return Ok(Some(format!("{expected:?} or its value is not where it has to be")));
            }
        }
        let more = cursor.next(&mut key, &mut value)?;
        Ok(more.then(|| format!("a key too many: {key:?}")))
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.index.region_bytes())
    }

    fn anatomy(&mut self, keys: &[N]) -> Option<Anatomy> {
        self.index.anatomy(&keys.iter().map(Key::owned).collect::<Vec<_>>())
    }
}

impl Measured for BTreeMap<u64, u64> {
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
