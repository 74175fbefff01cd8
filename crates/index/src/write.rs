//! What an index is asked to write, and how.

use crate::schema::Schema;

/// A key to be stored with its value, or to be removed.
#[derive(Debug)]
pub enum Write<'a, K: ?Sized, V: ?Sized> {
    /// Store this value under the key.
    Put(&'a K, &'a V),
    /// Remove the key.
    Delete(&'a K),
}

impl<'a, K: ?Sized, V: ?Sized> Write<'a, K, V> {
    /// The key.
    pub fn key(&self) -> &'a K {
        match self {
            Write::Put(key, _) | Write::Delete(key) => key,
        }
    }
}

impl<K: ?Sized, V: ?Sized> Clone for Write<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K: ?Sized, V: ?Sized> Copy for Write<'_, K, V> {}

/// A write of keys and values of a schema.
pub type WriteOf<'a, S> = Write<'a, <S as Schema>::Key, <S as Schema>::Value>;

/// Bytes of the record that a write makes.
#[inline(always)]
pub fn record_bytes<S: Schema>(write: &WriteOf<'_, S>) -> u64 {
    match write {
        Write::Put(key, value) => S::record_bytes(key, value),
        Write::Delete(_) => 0,
    }
}

/// What an update decides.
pub enum Decision<V> {
    /// Leave the key as it is.
    Keep,
    /// Store this value.
    Put(V),
    /// Remove the key.
    Delete,
}

/// How a write is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Wait until it, and everything before it, is durable. Without this, what is written is seen at once and durable after
    /// the next write with it, a [`crate::Life::commit`] or a close; a reader waits, or sees to it, that what it read is durable
    /// before it answers. Where fences make writes durable they are durable at once either way.
    pub sync: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { sync: true }
    }
}
