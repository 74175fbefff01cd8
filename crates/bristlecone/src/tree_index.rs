//! The trees of [`bptree::roster`] as indexes.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use ::index::{Batching, Decision, Kernel, Life, Schema, Snapshot, Snapshots, Tail, Write, WriteOptions};
use pmem::region::Identity;
use pmem::{Durable, Found, Medium, alloc};
use bptree::discipline::Discipline;
use bptree::layout::Layouts;
use bptree::roster;
use bptree::{Tree, TreeCursor, TreeOptions};

use crate::engine::{Capabilities, Count, Cursor, History, Kind, NextPair, Pair, View};
use crate::error::{Error, Result};
use crate::index::{Form, Index, SchemaOf};
use crate::store::Options;

/// How full leaves are that are written in key order: keys that come later need not split each at once.
const FILL: f64 = 0.9;
/// Version stripes.
const STRIPES: usize = 1024;

/// Words of a payload in a tree of such values, 1 where the store that there is will say.
pub(crate) fn payload_words<S: Schema>(value_bytes: Option<u64>, is_new: bool) -> Result<usize> {
    match value_bytes {
        None if S::Tail::EMPTY || !is_new => Ok(1),
        None => Err(Error::Option(
            "a new store of values of one length: say how many bytes a value has, a multiple of 8 up to 120"
                .into(),
        )),
        Some(bytes) if S::Tail::EMPTY => Err(Error::Option(format!(
            "values of {bytes} bytes each: only a store from 64-bit keys to bytes of one length has them"
        ))),
        Some(bytes) => ::index::Fixed::words_of(bytes).ok_or_else(|| {
            Error::Option(format!("values of {bytes} bytes each: they can have a multiple of 8 up to 120"))
        }),
    }
}

/// Counts the keys of a recovered tree beside its users, a little at a time; ends with the tree.
fn count_in_background<S: Schema, L: Layouts, D: Discipline>(
    tree: &Arc<Tree<Durable, S, L, D>>,
) -> Option<JoinHandle<()>> {
    let tree = Arc::downgrade(tree);
    let count = move || {
        // A damaged leaf ends the count: it stays pending, and reads of that leaf say what is wrong.
        while let Some(tree) = tree.upgrade() {
            if !matches!(tree.count_some(256), Ok(true)) {
                break;
            }
            drop(tree);
            std::thread::yield_now();
        }
    };
    // Without a thread the keys are counted at close; until then the count stays pending.
    crate::house::spawn("count keys", Box::new(count))
}

impl<K: Kind, S: SchemaOf<K>, L: Layouts, D: Discipline> Index<K> for Tree<Durable, S, L, D>
where
    K::Value: ToOwned,
{
    const CAPABILITIES: Capabilities = Capabilities {
        ordered: true,
        durable: D::DURABLE,
        snapshots: true,
        versions: false,
        atomic_batch: true,
        several_writers: false,
        fixed_values: L::PAGES,
    };
    type Cursor<'a> = EngineCursor<'a, K, S, L, D>;

    fn check_options(options: &Options, is_new: bool) -> Result<()> {
        payload_words::<S>(options.value_bytes, is_new).map(drop)
    }

    fn create(memory: Durable, form: &Form<'_>) -> Result<Self> {
        let mut made = TreeOptions::new(form.engine.name, form.node_lines, form.durability);
        made.payload_words = payload_words::<S>(form.options.value_bytes, true)?;
        made.geometry.log_records = roster::log_records::<D>(form.node_lines);
        Ok(Self::create(memory, &made)?)
    }

    fn open(memory: Durable, path: &Path, form: &Form<'_>) -> Result<(Self, Found)> {
        let payload_words = payload_words::<S>(form.options.value_bytes, false)?;
        let (tree, found) = Self::open(memory, path, form.engine.name, form.durability, STRIPES)?;
        if form.options.value_bytes.is_some() && tree.leaf_shape().payload_words != payload_words {
            let found = tree.region().identity().kind.clone();
            return Err(pmem::Error::Mismatch { found, asked: S::kind(payload_words) }.into());
        }
        Ok((tree, found))
    }

    fn refuse_writes(&self) {
        Kernel::refuse_writes(self);
    }

    fn tend(this: &Arc<Self>) -> Option<JoinHandle<()>> {
        if this.len().1 { count_in_background(this) } else { None }
    }

    fn count_all(&self) -> Result<()> {
        while self.count_some(1 << 16)? {}
        Ok(())
    }

    fn get(&self, key: &K::Key, value: Option<&mut K::ValueBuf>) -> Result<bool> {
        Ok(self.get(key, value)?)
    }

    fn put(&self, key: &K::Key, value: &K::Value, how: WriteOptions) -> Result<bool> {
        Ok(self.put_as(key, value, how)?)
    }

    fn delete(&self, key: &K::Key, how: WriteOptions) -> Result<bool> {
        Ok(self.delete_as(key, how)?)
    }

    fn update(
        &self,
        key: &K::Key,
        decide: impl FnMut(Option<&K::Value>) -> Decision<Cow<'static, K::Value>>,
        how: WriteOptions,
    ) -> Result<()> {
        Ok(self.update(key, decide, how)?)
    }

    fn commit(&self) -> Result<()> {
        Ok(Life::commit(self)?)
    }

    fn is_quiet(&self) -> bool {
        Kernel::is_quiet(self)
    }

    fn prefetch(&self, keys: &[&K::Key]) {
        self.prefetch(keys);
    }

    fn get_each(&self, keys: &[&K::Key], give: &mut dyn FnMut(Option<K::ValueBuf>) -> bool) -> Result<()> {
        Ok(self.get_each(keys, give)?)
    }

    fn write_many(&self, writes: &[Write<'_, K::Key, K::Value>], how: WriteOptions) -> Result<Vec<bool>> {
        Ok(self.write_many(writes, how)?)
    }

    fn batch(&self, writes: Vec<Pair<K>>, expected: &[Pair<K>], how: WriteOptions) -> Result<bool> {
        Ok(Batching::batch(self, writes, expected, how)?)
    }

    fn cursor(&self) -> EngineCursor<'_, K, S, L, D> {
        EngineCursor { cursor: self.cursor(), kind: PhantomData }
    }

    fn len(&self) -> Count {
        let (keys, pending) = self.len();
        Count { keys, pending }
    }

    fn sync(&self) -> Result<()> {
        Ok(Life::sync(self)?)
    }

    fn check(&self) -> ::index::Report {
        self.check()
    }

    fn append(&self, next: &mut NextPair<'_, K>) -> Result<u64> {
        // Whole leaves, but where values are long.
        let (most, bytes_most) = (self.bulk_leaf(FILL) * 32, 16 << 20);
        let mut appended = 0;
        loop {
            let (mut pairs, mut bytes) = (Vec::new(), 0);
            while pairs.len() < most && bytes < bytes_most {
                let (mut key, mut value) = (K::KeyBuf::default(), K::ValueBuf::default());
                if !next(&mut key, &mut value)? {
                    break;
                }
                bytes += K::payload_bytes(K::key(&key), K::value(&value));
                pairs.push((key, value));
            }
            if pairs.is_empty() {
                return Ok(appended);
            }
            let borrowed = pairs.iter().map(|(key, value)| (K::key(key), K::value(value)));
            appended += self.bulk_load(borrowed, FILL)?;
        }
    }

    fn clear(&self) -> Result<()> {
        Ok(self.clear()?)
    }

    fn close(&self) -> Result<()> {
        Ok(Life::close(self)?)
    }

    fn close_on_drop(&self) {
        Life::close_on_drop(self);
    }

    fn hold_writers<T>(&self, look: impl FnOnce() -> T) -> Result<T> {
        Ok(Life::hold_writers(self, look)?)
    }

    fn identity(&self) -> &Identity {
        self.region().identity()
    }

    fn region_bytes(&self) -> u64 {
        self.region().medium().len()
    }

    fn usage(&self) -> alloc::Usage {
        alloc::usage(self.region())
    }

    fn set_snapshot_bytes(&self, bytes: u64) {
        self.images.set_limit(bytes);
    }

    fn snapshot(&self) -> Result<Box<dyn View<K> + '_>> {
        Ok(Box::new(Volatile(Snapshots::snapshot(self)?)))
    }

    fn history(&self) -> Option<&dyn History<K>> {
        None
    }
}

/// A snapshot by before-images.
struct Volatile<'a, S: Schema, L: Layouts, D: Discipline>(Snapshot<'a, Tree<Durable, S, L, D>>);

impl<K: Kind, S: SchemaOf<K>, L: Layouts, D: Discipline> View<K> for Volatile<'_, S, L, D> {
    fn version(&self) -> Option<u64> {
        None
    }

    fn keys(&self) -> Option<u64> {
        None
    }

    fn get(&self, key: &K::Key, value: &mut K::ValueBuf) -> Result<bool> {
        Ok(self.0.get(key, Some(value))?)
    }

    fn cursor(&self) -> Box<dyn Cursor<K> + '_> {
        Box::new(EngineCursor { cursor: Tree::cursor_of(&self.0), kind: PhantomData })
    }
}

pub struct EngineCursor<'a, K, S: Schema, L, D: Discipline> {
    cursor: TreeCursor<'a, Durable, S, L, D>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind, S: SchemaOf<K>, L: Layouts, D: Discipline> Cursor<K> for EngineCursor<'_, K, S, L, D> {
    fn seek(&mut self, from: Bound<&K::Key>, descending: bool) -> Result<()> {
        self.cursor.seek(from.map(K::own_key), descending);
        Ok(())
    }

    fn next(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool> {
        Ok(self.cursor.next(key, value)?)
    }
}
