//! `Batch`: an atomic set of writes of several keys.

use ::index::Kind;
use ::index::engine::KeyValue;

use crate::error::Result;
use crate::store::StoreOf;

/// Writes that a store applies in one step. After a crash all of them are present or none is; every reader sees all or none. If several
/// writes are of one key, the last one counts. [`StoreOf::batch`] makes a batch.
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

    /// Adds a condition: the batch applies only if the key has this value before it, or is absent (`None`).
    pub fn require(&mut self, key: &K::Key, value: Option<&K::Value>) -> &mut Self {
        self.required.push((K::own_key(key), value.map(K::own_value)));
        self
    }

    /// Number of writes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// True if there are no writes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Applies the batch. False if a condition did not hold; then nothing has changed.
    ///
    /// # Errors
    /// `KeyLength`, `ValueLength`; `Pmem` with `TooLarge` if keys and values exceed 256 MiB, with `Length` if a key or value is too long
    /// for a table, with `NoSpace` or `Full` if there is no space. Nothing has changed then.
    /// `NoBatches` if the engine has no batches and the writes and conditions are of several keys.
    /// `Pmem` with `Unfinished` if the batch failed after its commit point. Then the store takes no more writes, and the next open finishes
    /// the batch.
    /// Otherwise as for a single write.
    pub fn commit(self) -> Result<bool> {
        for (key, value) in self.writes.iter().chain(&self.required) {
            K::validate(K::key(key), value.as_ref().map(K::value))?;
        }
        self.store.commit_batch(self.writes, &self.required)
    }
}

impl<K: Kind> StoreOf<K> {
    /// Begins a batch: an atomic set of writes of several keys.
    pub fn batch(&self) -> Batch<'_, K> {
        Batch { store: self, writes: Vec::new(), required: Vec::new() }
    }
}
