//! The trees of [`crate::roster`] as engines of the registry.

use std::marker::PhantomData;
use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

use index::batch::Batching;
use index::check::Report;
use index::engine::{
    self, Anatomy, Capabilities, Count, Create, Cursor, Decide, Family, Form, Index, KeyValue, NextPair,
    Salvaged, View, WithIndex,
};
use index::garbage::{free_all, free_once, with_space, write_singly};
use index::kind::{Fixed, Kind};
use index::{Schema, SchemaOf, SnapshotView, Words, Write, WriteOptions};
use pmem::{Found, Geometry, Medium, Native, Region, Result};

use crate::commit_protocol::CommitProtocol;
use crate::layout::{Layout, Layouts};
use crate::roster::{ByteStrings, log_records};
use crate::scan::TreeCursor;
use crate::session::Session;
use crate::shape::{Link, Node};
use crate::tree::{Tree, TreeOptions};

/// Number of leaves that one step of an append writes.
const LEAVES_APPENDED: usize = 32;
/// Maximum bytes of keys and values in one step, approximately.
const BYTES_APPENDED: u64 = 16 << 20;
/// Number of keys that one step of the count visits.
const KEYS_COUNTED: usize = 256;

/// An engine of the roster: schema of byte strings, layouts, commit protocol.
pub struct TreeFamily<B, L, D>(PhantomData<(B, L, D)>);

impl<B: ByteStrings, L: Layouts, D: CommitProtocol> Family for TreeFamily<B, L, D> {
    const CAPABILITIES: Capabilities =
        Capabilities { durable: D::DURABLE, fixed_values: L::PAGES, ..Capabilities::KERNEL };
    type Bytes<M: Medium> = Tree<M, B, L, D>;
    type Words<M: Medium> = Tree<M, Words, L, D>;

    fn fixed<M: Medium, V: WithIndex<M, Fixed>>(with: V) -> Option<V::Out> {
        // A constant of the types: combinations that no engine has are not compiled.
        if const { L::PAGES } { Some(with.with::<Tree<M, index::Fixed, L, D>>()) } else { None }
    }
}

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Create<M> for Tree<M, S, L, D> {
    fn create(medium: M, form: &Form) -> Result<Self> {
        let geometry = form.geometry.unwrap_or_else(|| Geometry {
            log_records: log_records::<D>(form.node_lines),
            ..Geometry::default()
        });
        let options = TreeOptions {
            payload_words: form.payload_words,
            geometry,
            stripes: form.stripes,
            tables: form.tables,
            ..TreeOptions::new(form.engine, form.node_lines, form.durability)
        };
        Self::create(medium, &options)
    }

    fn open(medium: M, path: &Path, form: &Form) -> Result<(Self, Found)> {
        Self::open(medium, path, form.engine, form.durability, form.stripes)
    }
}

impl<K: Kind, M: Medium, S: SchemaOf<K>, L: Layouts, D: CommitProtocol> Index<K> for Tree<M, S, L, D> {
    fn get(&self, key: &K::Key, value: Option<&mut K::ValueBuf>) -> Result<bool> {
        self.get(key, value)
    }

    fn put(&self, key: &K::Key, value: &K::Value, how: WriteOptions) -> Result<bool> {
        with_space(self, || self.put_as(key, value, how))
    }

    fn delete(&self, key: &K::Key, how: WriteOptions) -> Result<bool> {
        self.delete_as(key, how)
    }

    fn update(&self, key: &K::Key, decide: &mut Decide<'_, K::Value>, how: WriteOptions) -> Result<()> {
        with_space(self, || self.update(key, &mut *decide, how))
    }

    fn get_each(&self, keys: &[&K::Key], give: &mut dyn FnMut(Option<K::ValueBuf>) -> bool) -> Result<()> {
        self.get_each(keys, give)
    }

    fn write_many(&self, writes: &[Write<'_, K::Key, K::Value>], how: WriteOptions) -> Result<Vec<bool>> {
        if self.has_garbage() {
            return write_singly(self, writes, how);
        }
        self.write_many(writes, how)
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

    fn cursor(&self) -> Box<dyn Cursor<K> + '_> {
        Box::new(self.cursor())
    }

    fn snapshot(&self) -> Result<Box<dyn View<K> + '_>> {
        Ok(Box::new(SnapshotView::of(self, Self::cursor_of)?))
    }

    fn append(&self, next: &mut NextPair<'_, K>, fill: f64) -> Result<u64> {
        free_all(self)?;
        // Whole leaves, except if values are long.
        let most = self.bulk_leaf(fill) * LEAVES_APPENDED;
        let mut appended = 0;
        loop {
            let pairs = index::engine::take_pairs::<K>(next, most, BYTES_APPENDED)?;
            if pairs.is_empty() {
                return Ok(appended);
            }
            let borrowed = pairs.iter().map(|(key, value)| (K::key(key), K::value(value)));
            appended += self.bulk_load(borrowed, fill)?;
        }
    }

    fn session(&self) -> Result<Option<Box<dyn engine::Session<K> + '_>>> {
        Ok(Some(Box::new(self.session()?)))
    }

    fn clear(&self) -> Result<()> {
        self.clear()
    }

    fn len(&self) -> Count {
        let (keys, pending) = self.len();
        Count { keys, pending }
    }

    fn count_all(&self) -> Result<()> {
        while self.count_some(1 << 16)? {}
        Ok(())
    }

    fn has_maintenance(&self) -> bool {
        self.len().1 || self.has_garbage()
    }

    /// Counts keys after a crash, then frees the blocks of a cleared structure. A damaged leaf ends the count. Then the count stays
    /// pending, and reads of that leaf report the damage.
    fn maintain(&self) -> Option<Duration> {
        let counts = self.len().1 && matches!(self.count_some(KEYS_COUNTED), Ok(true));
        (counts || matches!(free_once(self), Ok(true))).then_some(Duration::ZERO)
    }

    fn check(&self) -> Report {
        self.check()
    }

    fn anatomy(&self, _keys: &[K::KeyBuf]) -> Option<Anatomy> {
        let (found, leaf_bytes) = (self.check(), self.leaf_shape().bytes());
        // Inner nodes have as many bytes as leaves.
        let extra_bytes = (found.nodes - found.leaves) * leaf_bytes;
        Some(Anatomy { leaves: found.leaves, leaf_bytes, extra_bytes, comparisons: None })
    }

    fn salvage_leaf(region: &Region<Native>, leaf: u64) -> Vec<Salvaged<K>> {
        let (medium, identity, node) = (region.medium(), region.identity(), Node(leaf));
        let Some(payload_words) = S::payload_words(&identity.kind) else { return Vec::new() };
        let shape = L::Leaf::shape(identity.node_lines, S::KEY_WORDS, payload_words);
        if Link::read(medium, node).is_none_or(|link| link.level != 0) {
            return Vec::new();
        }
        // If the slot array is not valid, the order is derived by comparison. A damaged slot array may reference entries that are not in
        // use.
        let order = L::Leaf::order::<_, S>(medium, &shape, node);
        order.iter().map(|index| Salvaged::of::<_, S>(region, &shape.entry(medium, node, index))).collect()
    }
}

impl<K: Kind, M: Medium, S: SchemaOf<K>, L: Layouts, D: CommitProtocol> Cursor<K>
    for TreeCursor<'_, M, S, L, D>
{
    fn seek(&mut self, from: Bound<&K::Key>, descending: bool) -> Result<()> {
        self.seek(from.map(K::own_key), descending);
        Ok(())
    }

    fn next(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool> {
        self.next(key, value)
    }
}

impl<K: Kind, M: Medium, S: SchemaOf<K>, L: Layouts, D: CommitProtocol> engine::Session<K>
    for Session<'_, M, S, L, D>
{
    fn put(&mut self, key: &K::Key, value: &K::Value) -> Result<bool> {
        self.put(key, value)
    }

    fn delete(&mut self, key: &K::Key) -> Result<bool> {
        self.delete(key)
    }
}
