//! Write requests and their options.

use crate::schema::Schema;

/// A key with the value to store, or a key to remove.
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

/// A write with the keys and values of a schema.
pub type WriteOf<'a, S> = Write<'a, <S as Schema>::Key, <S as Schema>::Value>;

/// Bytes of the record that a write creates; 0 for a delete.
#[inline(always)]
pub fn record_bytes<S: Schema>(write: &WriteOf<'_, S>) -> u64 {
    match write {
        Write::Put(key, value) => S::record_bytes(key, value),
        Write::Delete(_) => 0,
    }
}

/// The outcome of an update's closure.
pub enum Decision<V> {
    /// Leave the key as it is.
    Keep,
    /// Store this value.
    Put(V),
    /// Remove the key.
    Delete,
}

/// Options of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Waits until this write and all earlier ones are durable. Without `sync`, the write is visible at once. It becomes durable with the
    /// next write that has `sync`, with [`crate::Life::commit`], or with a close. A read of the value waits until the value is durable, or
    /// commits it. Where fences make writes durable, every write is durable when the call returns.
    pub sync: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { sync: true }
    }
}
