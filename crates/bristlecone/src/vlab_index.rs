//! VLAB as an index.

use std::borrow::Cow;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use pmem::region::Identity;
use pmem::{Durable, Found, Medium, alloc};
use tree::insert::Decision;
use tree::{Write, WriteOptions};
use vlab::Vlab;

use crate::engine::{Capabilities, Count, Cursor, History, Kind, NextPair, Pair};
use crate::error::Result;
use crate::index::{Form, Index, SchemaOf};
use crate::store::Options;
use crate::tree_index::payload_words;

/// Pairs that are appended in one group.
const APPENDED: usize = 4096;
/// Bytes of them, at most about so many.
const APPENDED_BYTES: u64 = 16 << 20;

fn options(form: &Form<'_>, payload_words: usize) -> vlab::Options {
    vlab::Options { payload_words, ..vlab::Options::new(form.node_lines, form.durability) }
}

impl<K: Kind, S: SchemaOf<K>> Index<K> for Vlab<Durable, S>
where
    K::Value: ToOwned,
{
    const CAPABILITIES: Capabilities = Capabilities {
        ordered: true,
        durable: true,
        snapshots: false,
        atomic_batch: true,
        several_writers: false,
        fixed_values: true,
    };
    type Cursor<'a> = vlab::Cursor<'a, Durable, S>;

    fn check_options(options: &Options, is_new: bool) -> Result<()> {
        payload_words::<S>(options.value_bytes, is_new).map(drop)
    }

    fn create(memory: Durable, form: &Form<'_>) -> Result<Self> {
        let payload_words = payload_words::<S>(form.options.value_bytes, true)?;
        Ok(Self::create(memory, &options(form, payload_words))?)
    }

    fn open(memory: Durable, path: &Path, form: &Form<'_>) -> Result<(Self, Found)> {
        let payload_words = payload_words::<S>(form.options.value_bytes, false)?;
        let (index, found) = Self::open(memory, path, &options(form, payload_words))?;
        let kind = &index.region().identity().kind;
        if form.options.value_bytes.is_some() && S::payload_words(kind) != Some(payload_words) {
            return Err(pmem::Error::Mismatch { found: kind.clone(), asked: S::kind(payload_words) }.into());
        }
        Ok((index, found))
    }

    fn refuse_writes(&self) {
        self.refuse_writes();
    }

    fn tend(_: &Arc<Self>) -> Option<JoinHandle<()>> {
        None
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
        Ok(self.commit()?)
    }

    fn is_quiet(&self) -> bool {
        self.is_quiet()
    }

    fn prefetch(&self, keys: &[&K::Key]) {
        self.prefetch(keys);
    }

    fn get_each(&self, keys: &[&K::Key], give: &mut dyn FnMut(Option<K::ValueBuf>) -> bool) -> Result<()> {
        Ok(self.get_each(keys, give)?)
    }

    fn write_many(&self, writes: &[Write<'_, K::Key, K::Value>], how: WriteOptions) -> Result<Vec<bool>> {
        Ok(self.write_many_as(writes, how)?)
    }

    fn batch(&self, writes: Vec<Pair<K>>, expected: &[Pair<K>], how: WriteOptions) -> Result<bool> {
        Ok(self.batch(writes, expected, how)?)
    }

    fn cursor(&self) -> Self::Cursor<'_> {
        self.cursor()
    }

    fn len(&self) -> Count {
        Count { keys: self.len(), pending: false }
    }

    fn sync(&self) -> Result<()> {
        Ok(self.sync()?)
    }

    fn check(&self) -> tree::check::Report {
        self.check()
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
            appended += self.bulk_load(pairs.iter().map(|(key, value)| (K::key(key), K::value(value))))?;
        }
    }

    fn clear(&self) -> Result<()> {
        Ok(self.clear()?)
    }

    fn close(&self) -> Result<()> {
        Ok(self.close()?)
    }

    fn close_on_drop(&self) {
        self.close_on_drop();
    }

    fn hold_writers<T>(&self, look: impl FnOnce() -> T) -> Result<T> {
        Ok(self.hold_writers(look)?)
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

    fn history(&self) -> Option<&dyn History<K>> {
        None
    }
}

impl<K: Kind, S: SchemaOf<K>> Cursor<K> for vlab::Cursor<'_, Durable, S> {
    fn seek(&mut self, from: Bound<&K::Key>, descending: bool) -> Result<()> {
        self.seek(from.map(K::own_key), descending);
        Ok(())
    }

    fn next(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool> {
        Ok(self.next(key, value)?)
    }
}
