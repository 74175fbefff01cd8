//! A tree on memory that counts.

use std::borrow::Borrow;
use std::sync::Arc;

use index::{Fixed, Schema, Words};
use pmem::{Durability, Error, Geometry, Memory, Observed};
use bptree::discipline::Discipline;
use bptree::layout::{Layout, Layouts};
use bptree::roster::{self, About, ByteStrings, Visitor};
use bptree::shape::Shape;
use bptree::{Tree, TreeOptions};

use super::survey::{self, Way};
use super::tape::{Deaf, Spent, Tape};
use crate::keys::Key;

/// A tree of 64-bit keys whose every store, flush and fence is counted.
pub trait Subject {
    /// Loads ascending keys, leaves filled to `fill`.
    fn bulk_load(&mut self, keys: &[u64], fill: f64) -> pmem::Result<()>;
    /// Stores a key, with a value made from a number; true if it was there.
    fn put(&mut self, key: u64, number: u64) -> pmem::Result<bool>;
    /// Removes a key; true if it was there.
    fn delete(&mut self, key: u64) -> pmem::Result<bool>;
    /// The way to a key, as the tree is now.
    fn way(&self, key: u64) -> pmem::Result<Way>;
    /// What was done since the last time.
    fn take(&mut self) -> Spent;
}

struct Counted<S: Schema, L: Layouts, D: Discipline> {
    tree: Tree<Observed, S, L, D>,
    tape: Arc<Tape>,
    quiet: Observed,
}

impl<S: Schema<Key = u64, KeyBuf = u64>, L: Layouts, D: Discipline> Subject for Counted<S, L, D>
where
    u64: Key<S>,
{
    fn bulk_load(&mut self, keys: &[u64], fill: f64) -> pmem::Result<()> {
        let words = self.tree.leaf_shape().payload_words;
        let values: Vec<_> = keys.iter().map(|key| <u64 as Key<S>>::value(*key, words)).collect();
        self.tree.bulk_load(keys.iter().zip(values.iter().map(Borrow::borrow)), fill).map(drop)
    }

    fn put(&mut self, key: u64, number: u64) -> pmem::Result<bool> {
        let words = self.tree.leaf_shape().payload_words;
        self.tree.put(&key, <u64 as Key<S>>::value(number, words).borrow())
    }

    fn delete(&mut self, key: u64) -> pmem::Result<bool> {
        self.tree.delete(&key)
    }

    fn way(&self, key: u64) -> pmem::Result<Way> {
        let root = self.tree.region().root()?;
        survey::way::<_, L>(&self.quiet, self.tree.leaf_shape(), self.tree.inner_shape(), root, key)
            .ok_or(Error::Corrupt { what: "way from the root", at: root })
    }

    fn take(&mut self) -> Spent {
        self.tape.take()
    }
}

/// A tree to be made.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Lines of a node.
    pub node_lines: u64,
    /// Bytes of an entry of a leaf: one of [`ENTRY_BYTES`]; more than 16 only in trees of large nodes.
    pub entry_bytes: u64,
    /// Bytes of memory.
    pub capacity: u64,
}

/// Sizes of an entry that can be measured.
pub const ENTRY_BYTES: [u64; 4] = [16, 32, 64, 128];

impl Plan {
    /// Words of a value.
    pub fn payload_words(self) -> usize {
        (self.entry_bytes / pmem::WORD) as usize - 1
    }

    fn make<S: Schema<Key = u64, KeyBuf = u64>, L: Layouts, D: Discipline>(
        self,
        name: &str,
    ) -> pmem::Result<Box<dyn Subject>>
    where
        u64: Key<S>,
    {
        let tape = Arc::new(Tape::default());
        let memory = Memory::new(self.capacity, 0);
        let quiet = Observed::new(Arc::clone(&memory), Arc::new(Deaf));
        let medium = Observed::new(memory, Arc::clone(&tape) as Arc<_>);
        let log_records = roster::log_records::<D>(self.node_lines);
        let options = TreeOptions {
            payload_words: self.payload_words(),
            geometry: Geometry { log_records, ..Geometry::default() },
            ..TreeOptions::new(name, self.node_lines, Durability::Power)
        };
        let tree = Tree::<_, S, L, D>::create(medium, &options)?;
        Ok(Box::new(Counted { tree, tape, quiet }))
    }
}

impl Visitor for Plan {
    type Out = pmem::Result<Box<dyn Subject>>;

    fn visit<B: ByteStrings, L: Layouts, D: Discipline>(self, about: &'static About) -> Self::Out {
        if const { L::PAGES } && self.entry_bytes > ENTRY_BYTES[0] {
            return self.make::<Fixed, L, D>(about.name);
        }
        self.make::<Words, L, D>(about.name)
    }
}

/// Asks for the shape of leaves of this plan.
#[derive(Clone, Copy, Debug)]
pub struct LeafShape(pub Plan);

impl Visitor for LeafShape {
    type Out = Shape;

    fn visit<B: ByteStrings, L: Layouts, D: Discipline>(self, _about: &'static About) -> Shape {
        L::Leaf::shape(self.0.node_lines, 1, self.0.payload_words())
    }
}
