//! `Transaction`: reads and writes of several keys that take effect in one step.
//!
//! A transaction collects its writes in memory and remembers what it read. [`StoreOf::transaction`] commits both as one batch: the writes,
//! with the condition that every key that was read still has its value. The writer checks the conditions and applies the writes under one
//! lock. If a condition does not hold, nothing has changed, and the transaction runs again. So committed transactions are serializable in
//! the order of their commits (optimistic concurrency control by validation).
//!
//! Until the commit, two reads may be of different moments. Such a transaction never commits, but its code runs: it must not rely on
//! conditions that hold only between keys of one moment.

use std::collections::BTreeMap;

use ::index::Kind;

use crate::error::{Error, Result};
use crate::store::StoreOf;

/// Number of times that a transaction runs before it fails with [`Error::Conflict`].
pub const ATTEMPTS: usize = 100;

/// The reads and writes of a running transaction. See [`StoreOf::transaction`].
pub struct Transaction<K: Kind> {
    store: StoreOf<K>,
    /// The value of each key that was read from the store, as it was then.
    reads: BTreeMap<K::KeyBuf, Option<K::ValueBuf>>,
    writes: BTreeMap<K::KeyBuf, Option<K::ValueBuf>>,
}

impl<K: Kind> std::fmt::Debug for Transaction<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { reads, writes, .. } = self;
        f.debug_struct("Transaction").field("reads", &reads.len()).field("writes", &writes.len()).finish()
    }
}

/// Errors of every method: those of the method of the same name of [`StoreOf`].
#[allow(clippy::missing_errors_doc)]
impl<K: Kind> Transaction<K> {
    /// A transaction without retries: its caller decides what to do after a conflict. Nothing is written before [`Transaction::commit`].
    #[must_use]
    pub fn new(store: &StoreOf<K>) -> Self {
        Self { store: store.clone(), reads: BTreeMap::new(), writes: BTreeMap::new() }
    }

    /// The value of a key: as this transaction wrote it, or as it is in the store, durable as for [`StoreOf::get`]. O(log n) in the writes
    /// and reads so far, and a lookup when the key is read for the first time.
    pub fn get(&mut self, key: &K::Key) -> Result<Option<K::ValueBuf>> {
        let owned = K::own_key(key);
        if let Some(written) = self.writes.get(&owned) {
            return Ok(written.clone());
        }
        if let Some(read) = self.reads.get(&owned) {
            return Ok(read.clone());
        }
        let value = self.store.get(key)?;
        self.reads.insert(owned, value.clone());
        Ok(value)
    }

    /// True if the key is present.
    pub fn contains(&mut self, key: &K::Key) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Stores a value.
    pub fn put(&mut self, key: &K::Key, value: &K::Value) -> Result<()> {
        K::validate(key, Some(value))?;
        self.writes.insert(K::own_key(key), Some(K::own_value(value)));
        Ok(())
    }

    /// Removes a key.
    pub fn delete(&mut self, key: &K::Key) -> Result<()> {
        K::validate(key, None)?;
        self.writes.insert(K::own_key(key), None);
        Ok(())
    }

    /// The keys that the transaction writes.
    pub fn written(&self) -> impl Iterator<Item = &K::KeyBuf> {
        self.writes.keys()
    }

    /// Number of keys that the commit will add to the store, negative if it removes more. Looks up the keys that were written without being
    /// read.
    pub fn keys_added(&mut self) -> Result<i64> {
        let unread = |key: &&K::KeyBuf| !self.reads.contains_key(*key);
        let unread: Vec<K::KeyBuf> = self.writes.keys().filter(unread).cloned().collect();
        for key in unread {
            let value = self.store.get(K::key(&key))?;
            self.reads.insert(key, value);
        }
        let change = |(key, written): (&K::KeyBuf, &Option<K::ValueBuf>)| {
            let was_there = self.reads.get(key).is_some_and(Option::is_some);
            i64::from(written.is_some()) - i64::from(was_there)
        };
        Ok(self.writes.iter().map(change).sum())
    }

    /// Commits. False if a key that was read has another value by now; then nothing has changed.
    ///
    /// A transaction of several keys needs an engine with batches ([`crate::Capabilities::atomic_batch`]).
    pub fn commit(self) -> Result<bool> {
        let Self { store, reads, writes } = self;
        let reads: Vec<_> = reads.into_iter().collect();
        store.commit_batch(writes.into_iter().collect(), &reads)
    }
}

impl<K: Kind> StoreOf<K> {
    /// Runs `run` as a transaction: its reads see its own writes, and all of it takes effect in one step, or nothing. If another thread
    /// changed a key that it read, `run` is called again with a new transaction. After an error of `run` nothing has changed.
    ///
    /// A committed transaction is as durable as a single write: when this returns, or with the ticket of [`StoreOf::apply`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = bristlecone::StoreU64::open(dir.path(), bristlecone::Options::default())?;
    /// store.put(&1, &10)?;
    /// let left = store.transaction(|accounts| {
    ///     let balance = accounts.get(&1)?.unwrap_or(0);
    ///     accounts.put(&1, &(balance - 3))?;
    ///     accounts.put(&2, &3)?;
    ///     Ok(balance - 3)
    /// })?;
    /// assert_eq!((left, store.get(&2)?), (7, Some(3)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Conflict` if other threads changed its keys each of [`ATTEMPTS`] times. Otherwise those of `run` and of
    /// [`Batch::commit`](crate::Batch::commit).
    pub fn transaction<R>(&self, mut run: impl FnMut(&mut Transaction<K>) -> Result<R>) -> Result<R> {
        for _ in 0..ATTEMPTS {
            let mut transaction = Transaction::new(self);
            let result = run(&mut transaction)?;
            if transaction.commit()? {
                return Ok(result);
            }
        }
        Err(Error::Conflict { attempts: ATTEMPTS })
    }
}
