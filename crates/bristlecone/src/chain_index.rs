//! Indexes over one list of leaves, VLAB and the NV-Tree, as indexes of a store.

use std::borrow::Cow;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use ::index::Decision;
use ::index::chain::prelude::*;
use ::index::{Schema, Snapshot, Write, WriteOptions};
use pmem::region::Identity;
use pmem::{Durable, Found, Medium, alloc};

use crate::engine::{Capabilities, Count, Cursor, History, Kind, NextPair, Pair, View};
use crate::error::Result;
use crate::index::{Form, Index, SchemaOf};
use crate::store::Options;
use crate::tree_index::payload_words;

/// Pairs that are appended in one group.
const APPENDED: usize = 4096;
/// Bytes of them, at most about so many.
const APPENDED_BYTES: u64 = 16 << 20;

/// How such an index is made and opened.
pub(crate) trait Listed: Chain<Medium = Durable> + 'static {
    fn create(memory: Durable, form: &Form<'_>, payload_words: usize) -> pmem::Result<Self>;
    fn open(
        memory: Durable,
        path: &Path,
        form: &Form<'_>,
        payload_words: usize,
    ) -> pmem::Result<(Self, Found)>;
}

#[cfg(feature = "vlab")]
impl<S: Schema> Listed for vlab::Vlab<Durable, S> {
    fn create(memory: Durable, form: &Form<'_>, payload_words: usize) -> pmem::Result<Self> {
        let options = vlab::Options::new(form.node_lines, form.durability);
        Self::create(memory, &vlab::Options { payload_words, ..options })
    }

    fn open(
        memory: Durable,
        path: &Path,
        form: &Form<'_>,
        payload_words: usize,
    ) -> pmem::Result<(Self, Found)> {
        let options = vlab::Options::new(form.node_lines, form.durability);
        Self::open(memory, path, &vlab::Options { payload_words, ..options })
    }
}

#[cfg(feature = "paper-engines")]
impl<S: Schema> Listed for nvtree::NvTree<Durable, S> {
    fn create(memory: Durable, form: &Form<'_>, payload_words: usize) -> pmem::Result<Self> {
        let options = nvtree::Options::new(form.node_lines, form.durability);
        Self::create(memory, &nvtree::Options { payload_words, ..options })
    }

    fn open(
        memory: Durable,
        path: &Path,
        form: &Form<'_>,
        payload_words: usize,
    ) -> pmem::Result<(Self, Found)> {
        let options = nvtree::Options::new(form.node_lines, form.durability);
        Self::open(memory, path, &nvtree::Options { payload_words, ..options })
    }
}

/// See the module's head.
pub(crate) struct ChainIndex<T>(T);

impl<K: Kind, T: Listed> Index<K> for ChainIndex<T>
where
    K::Value: ToOwned,
    T::Schema: SchemaOf<K>,
{
    const CAPABILITIES: Capabilities = Capabilities {
        ordered: true,
        durable: true,
        snapshots: true,
        versions: false,
        atomic_batch: true,
        several_writers: false,
        fixed_values: true,
    };
    type Cursor<'a> = ::index::chain::Cursor<'a, T>;

    fn check_options(options: &Options, is_new: bool) -> Result<()> {
        payload_words::<T::Schema>(options.value_bytes, is_new).map(drop)
    }

    fn create(memory: Durable, form: &Form<'_>) -> Result<Self> {
        let payload_words = payload_words::<T::Schema>(form.options.value_bytes, true)?;
        Ok(Self(T::create(memory, form, payload_words)?))
    }

    fn open(memory: Durable, path: &Path, form: &Form<'_>) -> Result<(Self, Found)> {
        let payload_words = payload_words::<T::Schema>(form.options.value_bytes, false)?;
        let (index, found) = T::open(memory, path, form, payload_words)?;
        let kind = &index.region().identity().kind;
        if form.options.value_bytes.is_some() && T::Schema::payload_words(kind) != Some(payload_words) {
            return Err(
                pmem::Error::Mismatch { found: kind.clone(), asked: T::Schema::kind(payload_words) }.into()
            );
        }
        Ok((Self(index), found))
    }

    fn refuse_writes(&self) {
        self.0.refuse_writes();
    }

    fn tend(_: &Arc<Self>) -> Option<JoinHandle<()>> {
        None
    }

    fn get(&self, key: &K::Key, value: Option<&mut K::ValueBuf>) -> Result<bool> {
        Ok(self.0.get(key, value)?)
    }

    fn put(&self, key: &K::Key, value: &K::Value, how: WriteOptions) -> Result<bool> {
        Ok(self.0.put_as(key, value, how)?)
    }

    fn delete(&self, key: &K::Key, how: WriteOptions) -> Result<bool> {
        Ok(self.0.delete_as(key, how)?)
    }

    fn update(
        &self,
        key: &K::Key,
        decide: impl FnMut(Option<&K::Value>) -> Decision<Cow<'static, K::Value>>,
        how: WriteOptions,
    ) -> Result<()> {
        Ok(self.0.update(key, decide, how)?)
    }

    fn commit(&self) -> Result<()> {
        Ok(self.0.commit()?)
    }

    fn is_quiet(&self) -> bool {
        self.0.is_quiet()
    }

    fn prefetch(&self, keys: &[&K::Key]) {
        self.0.prefetch(keys);
    }

    fn get_each(&self, keys: &[&K::Key], give: &mut dyn FnMut(Option<K::ValueBuf>) -> bool) -> Result<()> {
        Ok(self.0.get_each(keys, give)?)
    }

    fn write_many(&self, writes: &[Write<'_, K::Key, K::Value>], how: WriteOptions) -> Result<Vec<bool>> {
        Ok(self.0.write_many_as(writes, how)?)
    }

    fn batch(&self, writes: Vec<Pair<K>>, expected: &[Pair<K>], how: WriteOptions) -> Result<bool> {
        Ok(self.0.batch(writes, expected, how)?)
    }

    fn cursor(&self) -> Self::Cursor<'_> {
        self.0.cursor()
    }

    fn len(&self) -> Count {
        Count { keys: self.0.len(), pending: false }
    }

    fn sync(&self) -> Result<()> {
        Ok(self.0.sync()?)
    }

    fn check(&self) -> ::index::Report {
        self.0.check()
    }

    fn append(&self, next: &mut NextPair<'_, K>) -> Result<u64> {
        let mut appended = 0;
        loop {
            let (mut pairs, mut bytes) = (Vec::new(), 0);
            while pairs.len() < APPENDED && bytes < APPENDED_BYTES {
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
            appended += self.0.bulk_load(pairs.iter().map(|(key, value)| (K::key(key), K::value(value))))?;
        }
    }

    fn clear(&self) -> Result<()> {
        Ok(self.0.clear()?)
    }

    fn close(&self) -> Result<()> {
        Ok(self.0.close()?)
    }

    fn close_on_drop(&self) {
        self.0.close_on_drop();
    }

    fn hold_writers<R>(&self, look: impl FnOnce() -> R) -> Result<R> {
        Ok(self.0.hold_writers(look)?)
    }

    fn identity(&self) -> &Identity {
        self.0.region().identity()
    }

    fn region_bytes(&self) -> u64 {
        self.0.region().medium().len()
    }

    fn usage(&self) -> alloc::Usage {
        alloc::usage(self.0.region())
    }

    fn set_snapshot_bytes(&self, bytes: u64) {
        self.0.images.set_limit(bytes);
    }

    fn snapshot(&self) -> Result<Box<dyn View<K> + '_>> {
        Ok(Box::new(Volatile(Snapshots::snapshot(&self.0)?)))
    }

    fn history(&self) -> Option<&dyn History<K>> {
        None
    }
}

impl<K: Kind, T: Chain> Cursor<K> for ::index::chain::Cursor<'_, T>
where
    T::Schema: SchemaOf<K>,
{
    fn seek(&mut self, from: Bound<&K::Key>, descending: bool) -> Result<()> {
        self.seek(from.map(K::own_key), descending);
        Ok(())
    }

    fn next(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool> {
        Ok(self.next(key, value)?)
    }
}

/// A snapshot by before-images.
struct Volatile<'a, T: Listed>(Snapshot<'a, T>);

impl<K: Kind, T: Listed> View<K> for Volatile<'_, T>
where
    T::Schema: SchemaOf<K>,
{
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
        Box::new(T::cursor_of(&self.0))
    }
}
