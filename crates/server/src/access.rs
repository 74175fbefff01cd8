//! The keys as a command sees them: the store, or a transaction between MULTI and EXEC.
//!
//! A handler of a command that is allowed in a transaction uses only [`Access`]. So the same code runs in both.

use std::borrow::Cow;

use bristlecone::{Bytes, Change, Result, Transaction};

use crate::shared::Shared;

/// The keys of a command.
pub enum Access<'a> {
    /// Each call takes effect by itself.
    Store(&'a Shared),
    /// The calls take effect together when the transaction commits.
    Transaction(&'a mut Transaction<Bytes>),
}

/// Errors of every method: those of the store.
#[allow(clippy::missing_errors_doc)]
impl Access<'_> {
    /// Copies the value of a key into a buffer. False if the key is absent.
    pub fn get_into(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        match self {
            Self::Store(shared) => shared.store.get_into(key, value),
            Self::Transaction(transaction) => {
                let found = transaction.get(key)?;
                let is_there = found.is_some();
                *value = found.unwrap_or_default();
                Ok(is_there)
            }
        }
    }

    /// True if the key is present.
    pub fn contains(&mut self, key: &[u8]) -> Result<bool> {
        match self {
            Self::Store(shared) => shared.store.contains(key),
            Self::Transaction(transaction) => transaction.contains(key),
        }
    }

    /// Passes the values of keys to `give`, in their order and of one moment, until it returns false.
    pub fn get_each(&mut self, keys: &[&[u8]], mut give: impl FnMut(Option<Vec<u8>>) -> bool) -> Result<()> {
        match self {
            Self::Store(shared) => shared.store.get_each(keys, give),
            Self::Transaction(transaction) => {
                for key in keys {
                    if !give(transaction.get(key)?) {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// Stores a value.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Self::Store(shared) => shared.watches.write([key], || shared.store.put(key, value).map(|_| ())),
            Self::Transaction(transaction) => transaction.put(key, value),
        }
    }

    /// Removes a key. True if it was present.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        match self {
            Self::Store(shared) => shared.watches.write([key], || shared.store.delete(key)),
            Self::Transaction(transaction) => {
                let was_there = transaction.contains(key)?;
                if was_there {
                    transaction.delete(key)?;
                }
                Ok(was_there)
            }
        }
    }

    /// Reads and changes a key in one step.
    pub fn update(
        &mut self,
        key: &[u8],
        mut decide: impl FnMut(Option<&[u8]>) -> Change<'static, [u8]>,
    ) -> Result<()> {
        match self {
            Self::Store(shared) => shared.watches.write([key], || shared.store.update(key, decide)),
            Self::Transaction(transaction) => match decide(transaction.get(key)?.as_deref()) {
                Change::Keep => Ok(()),
                Change::Delete => transaction.delete(key),
                Change::Put(value) => transaction.put(key, &value),
            },
        }
    }

    /// Stores a value if the key is absent. True if it was stored.
    pub fn put_if_absent(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        let mut stored = false;
        self.update(key, |old| {
            stored = old.is_none();
            if stored { Change::Put(Cow::Owned(value.to_vec())) } else { Change::Keep }
        })?;
        Ok(stored)
    }

    /// Number of keys that the transaction adds to the store so far.
    pub fn keys_added(&mut self) -> Result<i64> {
        match self {
            Self::Store(_) => Ok(0),
            Self::Transaction(transaction) => transaction.keys_added(),
        }
    }

    /// Runs `run`, which writes only these keys. Its calls take effect together.
    pub fn together<R>(
        &mut self,
        keys: &[bytes::Bytes],
        mut run: impl FnMut(&mut Transaction<Bytes>) -> Result<R>,
    ) -> Result<R> {
        match self {
            Self::Store(shared) => {
                shared.watches.write(keys.iter().map(AsRef::as_ref), || shared.store.transaction(run))
            }
            Self::Transaction(transaction) => run(transaction),
        }
    }
}
