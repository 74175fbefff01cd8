//! `Batch`: writes of several keys that take place together or not at all.

use ::index::Kind;
use ::index::engine::KeyValue;

use crate::error::Result;
use crate::store::StoreOf;

/// Writes that a store will do in one step: after a crash all of them are there or none, and every reader sees all or none. Of
/// several writes of one key the last counts. Made by [`StoreOf::batch`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let store = bristlecone::Store::open(dir.path(), Default::default())?;
/// store.put(b"alice", b"10")?;
/// let mut transfer = store.batch();
/// transfer.require(b"alice", Some(b"10")).put(b"alice", b"7").put(b"bob", b"3");
/// assert!(transfer.commit()?);
/// # Ok::<(), bristlecone::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a batch does nothing before `commit`"]
pub struct Batch<'s, K: Kind> {
    store: &'s StoreOf<K>,
    writes: Vec<KeyValue<K>>,
    required: Vec<KeyValue<K>>,
}

impl<'s, K: Kind> Batch<'s, K> {
    /// Stores a value.
    pub fn put(&mut self, key: &K::Key, value: &K::Value) -> &mut Self {
        self.writes.push((K::own_key(key), Some(K::own_value(value))));
        self
    }

    /// Removes a key.
    pub fn delete(&mut self, key: &K::Key) -> &mut Self {
        self.writes.push((K::own_key(key), None));
        self
    }

    /// Makes the whole batch depend on what a key is before it: this value, or absent (`None`).
    pub fn require(&mut self, key: &K::Key, value: Option<&K::Value>) -> &mut Self {
        self.required.push((K::own_key(key), value.map(K::own_value)));
        self
    }

    /// Number of writes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// True without writes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Does it. False if a key was not as required: then nothing was done.
    ///
    /// # Errors
    /// `KeyLength`, `ValueLength`; `Pmem` with `TooLarge` if its keys and values have more than 256 MiB, with `NoSpace` or
    /// `Full` if there is no space: nothing has changed then.
    /// `NoBatches` if an engine changes each key by itself, unless the batch is of one key.
    /// `Unfinished` if it failed behind its commit point: no more writes are taken, and the next open finishes it.
    pub fn commit(self) -> Result<bool> {
        for (key, value) in self.writes.iter().chain(&self.required) {
            K::validate(K::key(key), value.as_ref().map(K::value))?;
        }
        self.store.commit_batch(self.writes, &self.required)
    }
}

impl<K: Kind> StoreOf<K> {
    /// Begins a batch: writes of several keys that take place together or not at all.
    pub fn batch(&self) -> Batch<'_, K> {
        Batch { store: self, writes: Vec::new(), required: Vec::new() }
    }
}
