//! What an index over durable memory offers to a [`House`](crate::house): the same as [`Engine`](crate::Engine), without what files,
//! journals and promises are to it. A new index implements this, and all that a store is around it comes of itself.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use ::index::Decision;
use ::index::{Schema, Write, WriteOptions};
use pmem::region::Identity;
use pmem::{Durability, Durable, Found, alloc};
use bptree::roster::About;

use crate::engine::{Capabilities, Count, Cursor, History, Kind, NextPair, Pair, View};
use crate::error::Result;
use crate::store::Options;

/// A schema whose keys and values are those of a kind.
pub trait SchemaOf<K: Kind>:
    Schema<Key = K::Key, KeyBuf = K::KeyBuf, Value = K::Value, ValueBuf = K::ValueBuf>
{
}
impl<K: Kind, S> SchemaOf<K> for S where
    S: Schema<Key = K::Key, KeyBuf = K::KeyBuf, Value = K::Value, ValueBuf = K::ValueBuf>
{
}

/// How an index is to be made or opened.
#[derive(Clone, Copy)]
pub(crate) struct Form<'a> {
    pub engine: &'static About,
    /// Of one that is made.
    pub node_lines: u64,
    pub options: &'a Options,
    pub durability: Durability,
}

/// See the module's head. Errors are those of [`Engine`](crate::Engine).
pub(crate) trait Index<K: Kind>: Send + Sync + Sized + 'static
where
    K::Value: ToOwned,
{
    const CAPABILITIES: Capabilities;
    type Cursor<'a>: Cursor<K> + 'a
    where
        Self: 'a;

    /// Refuses options that no such index has.
    fn check_options(options: &Options, is_new: bool) -> Result<()>;
    fn create(memory: Durable, form: &Form<'_>) -> Result<Self>;
    fn open(memory: Durable, path: &Path, form: &Form<'_>) -> Result<(Self, Found)>;
    /// Refuses writes, and has nothing to close: its memory is its own.
    fn refuse_writes(&self);
    /// Starts what is done beside users; it ends when the index is closed.
    fn tend(this: &Arc<Self>) -> Option<JoinHandle<()>>;

    /// Ends the count of the keys, if it is still being taken.
    fn count_all(&self) -> Result<()> {
        Ok(())
    }

    fn get(&self, key: &K::Key, value: Option<&mut K::ValueBuf>) -> Result<bool>;
    fn put(&self, key: &K::Key, value: &K::Value, how: WriteOptions) -> Result<bool>;
    fn delete(&self, key: &K::Key, how: WriteOptions) -> Result<bool>;
    fn update(
        &self,
        key: &K::Key,
        decide: impl FnMut(Option<&K::Value>) -> Decision<Cow<'static, K::Value>>,
        how: WriteOptions,
    ) -> Result<()>;
    fn commit(&self) -> Result<()>;
    fn is_quiet(&self) -> bool;
    fn prefetch(&self, keys: &[&K::Key]);
    fn get_each(&self, keys: &[&K::Key], give: &mut dyn FnMut(Option<K::ValueBuf>) -> bool) -> Result<()>;
    fn write_many(&self, writes: &[Write<'_, K::Key, K::Value>], how: WriteOptions) -> Result<Vec<bool>>;
    fn batch(&self, writes: Vec<Pair<K>>, expected: &[Pair<K>], how: WriteOptions) -> Result<bool>;
    fn cursor(&self) -> Self::Cursor<'_>;
    fn len(&self) -> Count;
    fn sync(&self) -> Result<()>;
    fn check(&self) -> ::index::Report;
    fn append(&self, next: &mut NextPair<'_, K>) -> Result<u64>;
    fn clear(&self) -> Result<()>;
    fn close(&self) -> Result<()>;
    fn close_on_drop(&self);
    /// Runs `look` while nobody writes.
    fn hold_writers<T>(&self, look: impl FnOnce() -> T) -> Result<T>;

    fn identity(&self) -> &Identity;
    /// Bytes of the region.
    fn region_bytes(&self) -> u64;
    fn usage(&self) -> alloc::Usage;
    /// Bounds the memory for before-images, if it has any.
    fn set_snapshot_bytes(&self, _bytes: u64) {}
    /// See [`Engine::snapshot`](crate::Engine::snapshot).
    fn snapshot(&self) -> Result<Box<dyn View<K> + '_>>;
    /// Durable versions, if it has them.
    fn history(&self) -> Option<&dyn History<K>>;
}
