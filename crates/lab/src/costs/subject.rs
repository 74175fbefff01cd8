//! An index on memory that counts stores, flushes and fences.

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::sync::Arc;

use bptree::Tree;
use bptree::commit_protocol::CommitProtocol;
use bptree::layout::{Layout, Layouts};
use bptree::roster::{ByteStrings, Visitor};
use index::shape::Shape;
use index::{About, Create, Fixed, Form, Index, Kind, Schema, SchemaOf, Words, WriteOptions, kind};
use pmem::{Durability, Error, Memory, Observed};

use super::survey::{self, Way};
use super::tape::{Deaf, Spent, Tape};
use crate::keys::Key;

/// A tree of 64-bit keys whose stores, flushes and fences are all counted.
pub trait Subject {
    /// Loads ascending keys, with leaves filled to `fill`.
    fn bulk_load(&mut self, keys: &[u64], fill: f64) -> pmem::Result<()>;
    /// Stores a key with a value made from `number`. True if the key existed.
    fn put(&mut self, key: u64, number: u64) -> pmem::Result<bool>;
    /// Removes a key. True if the key existed.
    fn delete(&mut self, key: u64) -> pmem::Result<bool>;
    /// The path to a key in the present tree.
    fn way(&self, key: u64) -> pmem::Result<Way>;
    /// Returns the counts since the last call.
    fn take(&mut self) -> Spent;
}

/// How to load ascending keys into an empty index.
#[derive(Clone, Copy)]
pub(super) enum Load {
    /// With the index's own load of ascending keys.
    Appended,
    /// Through splits of leaves of this capacity, so that they get the requested fill.
    Split(usize),
}

/// Reads the path to a key from memory without counting.
pub(super) type WayOf<I> = fn(&I, &Observed, u64) -> pmem::Result<Way>;

struct Counted<I, K> {
    index: I,
    words: usize,
    load: Load,
    way: WayOf<I>,
    tape: Arc<Tape>,
    quiet: Observed,
    kind: PhantomData<fn() -> K>,
}

const SYNCED: WriteOptions = WriteOptions { sync: true };

impl<K, I> Subject for Counted<I, K>
where
    K: Kind<Key = u64, KeyBuf = u64>,
    I: Index<K>,
    u64: Key<K>,
{
    fn bulk_load(&mut self, keys: &[u64], fill: f64) -> pmem::Result<()> {
        if let Load::Split(capacity) = self.load {
            return load_by_splits(self, keys, fill, capacity);
        }
        let (words, mut keys) = (self.words, keys.iter());
        let mut next = |key: &mut u64, value: &mut K::ValueBuf| {
            let Some(next) = keys.next() else { return Ok(false) };
            *key = *next;
            *value = K::own_value(<u64 as Key<K>>::value(*next, words).borrow());
            Ok(true)
        };
        self.index.append(&mut next, fill).map(drop)
    }

    fn put(&mut self, key: u64, number: u64) -> pmem::Result<bool> {
        self.index.put(&key, <u64 as Key<K>>::value(number, self.words).borrow(), SYNCED)
    }

    fn delete(&mut self, key: u64) -> pmem::Result<bool> {
        self.index.delete(&key, SYNCED)
    }

    fn way(&self, key: u64) -> pmem::Result<Way> {
        (self.way)(&self.index, &self.quiet, key)
    }

    fn take(&mut self) -> Spent {
        self.tape.take()
    }
}

/// Loads a list, which has no bulk load with a fill factor. Keys in descending order split the first leaf repeatedly, and each split leaves
/// a half-full right leaf. Then inserts fill the leaves, or deletes empty them, to the requested fill.
fn load_by_splits(list: &mut dyn Subject, keys: &[u64], fill: f64, capacity: usize) -> pmem::Result<()> {
    let half = capacity.div_ceil(2);
    let each = ((capacity as f64 * fill) as usize).max(1);
    // The number after a random key is free, except with negligible probability.
    let spare = |of: &[u64]| -> Vec<u64> {
        let missing = half.saturating_sub(of.len());
        of.iter().cycle().zip(0..missing as u64).map(|(key, i)| key + 1 + i / of.len() as u64).collect()
    };
    for of in keys.rchunks(each) {
        let mut first: Vec<u64> = of.iter().copied().take(half).chain(spare(of)).collect();
        first.sort_unstable();
        first.into_iter().rev().try_for_each(|key| list.put(key, key).map(drop))?;
    }
    for of in keys.rchunks(each) {
        of.iter().skip(half).try_for_each(|key| list.put(*key, *key).map(drop))?;
        spare(of).into_iter().try_for_each(|key| list.delete(key).map(drop))?;
    }
    Ok(())
}

/// Parameters of a tree to make.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Cache lines of a node.
    pub node_lines: u64,
    /// Bytes of a leaf entry: one of [`ENTRY_BYTES`]. Only trees of large nodes support more than 16.
    pub entry_bytes: u64,
    /// Bytes of memory.
    pub capacity: u64,
}

/// Sizes of an entry that can be measured.
pub const ENTRY_BYTES: [u64; 4] = [16, 32, 64, 128];

impl Plan {
    /// Number of words of a value.
    pub fn payload_words(self) -> usize {
        (self.entry_bytes / pmem::WORD) as usize - 1
    }

    /// Makes an index with `create`, on a medium that records to a tape.
    pub(super) fn count<K, I>(
        self,
        create: impl FnOnce(Observed) -> pmem::Result<I>,
        load: Load,
        way: WayOf<I>,
    ) -> pmem::Result<Box<dyn Subject>>
    where
        K: Kind<Key = u64, KeyBuf = u64>,
        I: Index<K> + 'static,
        u64: Key<K>,
    {
        let tape = Arc::new(Tape::default());
        let memory = Memory::new(self.capacity, 0);
        let quiet = Observed::new(Arc::clone(&memory), Arc::new(Deaf));
        let index = create(Observed::new(memory, Arc::clone(&tape) as Arc<_>))?;
        let words = self.payload_words();
        Ok(Box::new(Counted { index, words, load, way, tape, quiet, kind: PhantomData }))
    }

    fn make<K, S, L: Layouts, D: CommitProtocol>(self, name: &'static str) -> pmem::Result<Box<dyn Subject>>
    where
        K: Kind<Key = u64, KeyBuf = u64>,
        S: SchemaOf<K>,
        u64: Key<K>,
    {
        let form = Form {
            payload_words: self.payload_words(),
            ..Form::new(name, self.node_lines, Durability::Power)
        };
        let create = |medium| <Tree<Observed, S, L, D> as Create<Observed>>::create(medium, &form);
        self.count::<K, _>(create, Load::Appended, way::<S, L, D>)
    }
}

fn way<S: Schema, L: Layouts, D: CommitProtocol>(
    tree: &Tree<Observed, S, L, D>,
    quiet: &Observed,
    key: u64,
) -> pmem::Result<Way> {
    let root = tree.region().root()?;
    survey::way::<_, L>(quiet, tree.leaf_shape(), tree.inner_shape(), root, key)
        .ok_or(Error::Corrupt { what: "way from the root", at: root })
}

impl Visitor for Plan {
    type Out = pmem::Result<Box<dyn Subject>>;

    fn visit<B: ByteStrings, L: Layouts, D: CommitProtocol>(self, about: &'static About) -> Self::Out {
        if const { L::PAGES } && self.entry_bytes > ENTRY_BYTES[0] {
            return self.make::<kind::Fixed, Fixed, L, D>(about.name);
        }
        self.make::<kind::U64, Words, L, D>(about.name)
    }
}

/// Computes the shape of the leaves of a plan.
#[derive(Clone, Copy, Debug)]
pub struct LeafShape(pub Plan);

impl Visitor for LeafShape {
    type Out = Shape;

    fn visit<B: ByteStrings, L: Layouts, D: CommitProtocol>(self, _about: &'static About) -> Shape {
        L::Leaf::shape(self.0.node_lines, 1, self.0.payload_words())
    }
}
