//! The keys as a command sees them: a database, accessed directly in the store or, between MULTI and EXEC, through a transaction.
//!
//! A handler of a command that is allowed in a transaction uses only [`Access`]. So the same code runs inside and outside transactions.

use std::borrow::Cow;

use bristlecone::{Bytes, Change, Deadline, Error, Next, Result, Store, Transaction, TransactionTable};

use crate::shared::{Databases, Shared};

/// Access of a command to the keys of the database that its connection has selected.
pub enum Access<'a> {
    /// Each call takes effect by itself.
    Store {
        /// The server.
        shared: &'a Shared,
        /// Number of the database.
        db: usize,
        /// The database.
        store: &'a Store,
    },
    /// The calls take effect together when the transaction commits.
    Transaction {
        /// The transaction. Its own methods use database 0.
        transaction: &'a mut Transaction<Bytes>,
        /// The server.
        shared: &'a Shared,
        /// Number of the database.
        db: usize,
    },
}

/// A table of a transaction.
fn table<'t>(
    transaction: &'t mut Transaction<Bytes>,
    databases: &Databases,
    db: usize,
) -> Result<TransactionTable<'t, Bytes>> {
    match db {
        0 => Ok(transaction.own()),
        _ => transaction.table(databases.get(db)?),
    }
}

/// Every method returns the errors of the store.
#[allow(clippy::missing_errors_doc)]
impl<'a> Access<'a> {
    /// The keys of a database of the store.
    pub fn new(shared: &'a Shared, db: usize) -> Result<Self> {
        Ok(Self::Store { shared, db, store: shared.databases.get(db)? })
    }

    /// Number of the database.
    #[must_use]
    pub fn db(&self) -> usize {
        match self {
            Self::Store { db, .. } | Self::Transaction { db, .. } => *db,
        }
    }

    /// Copies the value of a key into a buffer. False if the key is absent.
    pub fn get_into(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        match self {
            Self::Store { store, .. } => store.get_into(key, value),
            Self::Transaction { .. } => {
                let found = self.get_until(key)?;
                let is_there = found.is_some();
                *value = found.map(|(value, _)| value).unwrap_or_default();
                Ok(is_there)
            }
        }
    }

    /// The value and the deadline of a key.
    pub fn get_until(&mut self, key: &[u8]) -> Result<Option<(Vec<u8>, Deadline)>> {
        match self {
            Self::Store { store, .. } if store.has_tables() => {
                let mut value = Vec::new();
                Ok(store.get_until(key, &mut value)?.map(|deadline| (value, deadline)))
            }
            Self::Store { store, .. } => Ok(store.get(key)?.map(|value| (value, None))),
            Self::Transaction { transaction, shared, db } => {
                table(transaction, &shared.databases, *db)?.get_until(key)
            }
        }
    }

    /// True if the key is present.
    pub fn contains(&mut self, key: &[u8]) -> Result<bool> {
        match self {
            Self::Store { store, .. } => store.contains(key),
            Self::Transaction { .. } => Ok(self.get_until(key)?.is_some()),
        }
    }

    /// Reads the values of `keys` at one moment and passes them to `give`, in the order of `keys`, until `give` returns false.
    pub fn get_each(&mut self, keys: &[&[u8]], mut give: impl FnMut(Option<Vec<u8>>) -> bool) -> Result<()> {
        if let Self::Store { store, .. } = self {
            return store.get_each(keys, give);
        }
        for key in keys {
            if !give(self.get_until(key)?.map(|(value, _)| value)) {
                break;
            }
        }
        Ok(())
    }

    /// Stores a value and removes the key's deadline.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Self::Store { shared, db, store } => {
                shared.watches.write(*db, key, || store.put(key, value).map(|_| ()))
            }
            Self::Transaction { transaction, shared, db } => {
                table(transaction, &shared.databases, *db)?.put(key, value)
            }
        }
    }

    /// Removes a key. True if it was present.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        match self {
            Self::Store { shared, db, store } => shared.watches.write_if(*db, key, || {
                let found = store.delete(key);
                let changed = !matches!(found, Ok(false));
                (found, changed)
            }),
            Self::Transaction { transaction, shared, db } => {
                let mut table = table(transaction, &shared.databases, *db)?;
                let was_there = table.contains(key)?;
                if was_there {
                    table.delete(key)?;
                }
                Ok(was_there)
            }
        }
    }

    /// Reads and changes a key in one step. A new value keeps the deadline. `decide` may be called again.
    pub fn update(
        &mut self,
        key: &[u8],
        mut decide: impl FnMut(Option<&[u8]>) -> Change<'static, [u8]>,
    ) -> Result<()> {
        match self {
            Self::Store { shared, db, store } => shared.watches.write_if(*db, key, || {
                let mut changed = false;
                let update = store.update(key, |old| {
                    let change = decide(old);
                    changed = !matches!(change, Change::Keep);
                    if let Change::Put(value) = &change {
                        shared.eviction.charge(value.len());
                    }
                    change
                });
                (update, changed)
            }),
            Self::Transaction { .. } => self.change(key, |old| {
                let deadline = old.and_then(|(_, deadline)| deadline);
                match decide(old.map(|(value, _)| value)) {
                    Change::Keep => Next::Keep,
                    Change::Delete => Next::Delete,
                    Change::Put(value) => Next::Put(value.into_owned(), deadline),
                }
            }),
        }
    }

    /// Reads and changes a key and its deadline in one step. `decide` may be called again. A store without tables refuses a deadline with
    /// `NoTables`.
    pub fn change(
        &mut self,
        key: &[u8],
        mut decide: impl FnMut(Option<(&[u8], Deadline)>) -> Next<Vec<u8>>,
    ) -> Result<()> {
        match self {
            Self::Store { shared, db, store } if store.has_tables() => {
                shared.watches.write_if(*db, key, || {
                    let mut changed = false;
                    let change = store.change_until(key, |old| {
                        let next = decide(old);
                        changed = !matches!(next, Next::Keep);
                        if let Next::Put(value, _) = &next {
                            shared.eviction.charge(value.len());
                        }
                        next
                    });
                    (change, changed)
                })
            }
            Self::Store { shared, db, store } => {
                let mut refused = false;
                let update = || {
                    store.update(key, |old| {
                        let next = decide(old.map(|value| (value, None)));
                        refused = matches!(next, Next::Put(_, Some(_)));
                        match next {
                            Next::Put(value, None) => {
                                shared.eviction.charge(value.len());
                                Change::Put(Cow::Owned(value))
                            }
                            Next::Put(..) | Next::Keep => Change::Keep,
                            Next::Delete => Change::Delete,
                        }
                    })
                };
                shared.watches.write(*db, key, update)?;
                if refused { Err(Error::NoTables) } else { Ok(()) }
            }
            Self::Transaction { transaction, shared, db } => {
                let mut table = table(transaction, &shared.databases, *db)?;
                let old = table.get_until(key)?;
                match decide(old.as_ref().map(|(value, deadline)| (&value[..], *deadline))) {
                    Next::Keep => Ok(()),
                    Next::Delete => table.delete(key),
                    Next::Put(value, deadline) => {
                        shared.eviction.charge(value.len());
                        table.put_until(key, &value, deadline)
                    }
                }
            }
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

    /// Number of keys that the transaction has added to the database so far; 0 outside a transaction.
    pub fn keys_added(&mut self) -> Result<i64> {
        match self {
            Self::Store { .. } => Ok(0),
            Self::Transaction { transaction, shared, db } => {
                table(transaction, &shared.databases, *db)?.keys_added()
            }
        }
    }

    /// Calls `run`, perhaps again after a conflict. `run` may write only these keys, each in the database with the given number. All
    /// writes of one call of `run` take effect together.
    pub fn together<R>(
        &mut self,
        keys: &[(usize, &[u8])],
        mut run: impl FnMut(&mut Together<'_>) -> Result<R>,
    ) -> Result<R> {
        match self {
            Self::Store { shared, .. } => shared.watches.write_all(keys, || {
                shared.store.transaction(|transaction| {
                    run(&mut Together { transaction, databases: &shared.databases })
                })
            }),
            Self::Transaction { transaction, shared, .. } => {
                run(&mut Together { transaction, databases: &shared.databases })
            }
        }
    }
}

/// The databases in a transaction.
pub struct Together<'a> {
    transaction: &'a mut Transaction<Bytes>,
    databases: &'a Databases,
}

impl Together<'_> {
    /// A database.
    ///
    /// # Errors
    /// Those of opening a table.
    pub fn db(&mut self, db: usize) -> Result<TransactionTable<'_, Bytes>> {
        table(self.transaction, self.databases, db)
    }
}
