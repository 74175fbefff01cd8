//! The keys as a command sees them: a database, accessed directly in the store or, between MULTI and EXEC, through a transaction.
//!
//! A handler of a command that is allowed in a transaction uses only [`Access`]. So the same code runs inside and outside transactions.
//!
//! A value is a string or a structure ([`crate::structures`]). Methods for strings return `WrongType` if a key holds a structure.
//! Methods for any type say so.

use std::borrow::Cow;

use bristlecone::transaction::ATTEMPTS;
use bristlecone::{Bytes, Change, Deadline, Error, Next, Store, Transaction, TransactionTable};

use crate::notifications::{Event, Events};
use crate::shared::{Databases, Shared, Written};
use crate::structures::{self, Damaged, Head, Value};
use crate::waiting::Turns;

/// The reason why an access failed.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// An error of the store.
    #[error("ERR {0}")]
    Store(#[from] Error),
    /// A damaged value.
    #[error("ERR {0}")]
    Damaged(#[from] Damaged),
    /// The value has another type.
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    /// The element of a structure is too long.
    #[error("ERR an element of {bytes} bytes is too long: at most {limit} are possible")]
    Element {
        /// Its length in bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

/// Result of an access.
pub type Result<T, E = AccessError> = std::result::Result<T, E>;

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
        /// The turns of the clients that the command has woken.
        turns: Turns,
        /// The events of the command.
        events: Events,
    },
    /// The calls take effect together when the transaction commits.
    Transaction {
        /// The transaction. Its own methods use database 0.
        transaction: &'a mut Transaction<Bytes>,
        /// The server.
        shared: &'a Shared,
        /// Number of the database.
        db: usize,
        /// The events of the transaction.
        events: &'a mut Events,
    },
}

/// A table of a transaction.
pub(crate) fn table<'t>(
    transaction: &'t mut Transaction<Bytes>,
    databases: &Databases,
    db: usize,
) -> bristlecone::Result<TransactionTable<'t, Bytes>> {
    match db {
        0 => Ok(transaction.own()),
        _ => transaction.table(databases.get(db)?),
    }
}

/// The string in a stored value.
fn string(stored: &[u8]) -> Result<&[u8]> {
    match structures::decode(stored)? {
        Value::String(string) => Ok(string),
        Value::Structure(_) => Err(AccessError::WrongType),
    }
}

/// Turns a stored value into its string.
pub(crate) fn take_string(stored: &mut Vec<u8>) -> Result<()> {
    let mark = stored.len() - string(stored)?.len();
    if mark > 0 {
        stored.drain(..mark);
    }
    Ok(())
}

/// Every method returns the errors of the store.
#[allow(clippy::missing_errors_doc)]
impl<'a> Access<'a> {
    /// The keys of a database of the store.
    pub fn new(shared: &'a Shared, db: usize) -> bristlecone::Result<Self> {
        let (store, events) = (shared.databases.get(db)?, Events::new(shared));
        Ok(Self::Store { shared, db, store, turns: Turns::default(), events })
    }

    /// The events that are noted and not published yet.
    pub fn events(&mut self) -> &mut Events {
        match self {
            Self::Store { events, .. } => events,
            Self::Transaction { events, .. } => events,
        }
    }

    /// Notes an event of a key.
    pub fn note(&mut self, event: Event, key: &[u8]) {
        let db = self.db();
        self.events().note(event, db, key);
    }

    /// Notes that a key was made, if `is_new`.
    fn note_new(&mut self, key: &[u8], is_new: bool) {
        let db = self.db();
        if is_new {
            self.events().note(Event::NEW, db, key);
        }
    }

    /// Notes that a command has read a key, and whether it was found.
    pub fn note_read(&mut self, key: &[u8], is_found: bool) {
        let db = self.db();
        if !is_found {
            self.events().note(Event::MISS, db, key);
        }
    }

    /// Number of the database.
    #[must_use]
    pub fn db(&self) -> usize {
        match self {
            Self::Store { db, .. } | Self::Transaction { db, .. } => *db,
        }
    }

    /// The server.
    #[must_use]
    pub fn shared(&self) -> &'a Shared {
        match self {
            Self::Store { shared, .. } | Self::Transaction { shared, .. } => shared,
        }
    }

    /// The turns of the clients that the command has woken. `None` in a transaction.
    pub fn turns(&mut self) -> Option<&mut Turns> {
        match self {
            Self::Store { turns, .. } => Some(turns),
            Self::Transaction { .. } => None,
        }
    }

    /// Copies the string of a key into a buffer. False if the key is absent.
    pub fn get_into(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.stored_into(key, value)?;
        self.note_read(key, found);
        if found {
            take_string(value)?;
        }
        Ok(found)
    }

    /// Copies the stored form of a value of any type into a buffer. False if the key is absent.
    pub fn stored_into(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        match self {
            Self::Store { store, .. } => Ok(store.get_into(key, value)?),
            Self::Transaction { .. } => {
                let found = self.stored_until(key)?;
                let is_there = found.is_some();
                *value = found.map(|(value, _)| value).unwrap_or_default();
                Ok(is_there)
            }
        }
    }

    /// The stored form of a value of any type, and the deadline of its key.
    fn stored_until(&mut self, key: &[u8]) -> Result<Option<(Vec<u8>, Deadline)>> {
        match self {
            Self::Store { store, .. } if store.has_tables() => {
                let mut value = Vec::new();
                Ok(store.get_until(key, &mut value)?.map(|deadline| (value, deadline)))
            }
            Self::Store { store, .. } => Ok(store.get(key)?.map(|value| (value, None))),
            Self::Transaction { transaction, shared, db, .. } => {
                Ok(table(transaction, &shared.databases, *db)?.get_until(key)?)
            }
        }
    }

    /// The deadline of a key with a value of any type. `None` if the key is absent.
    pub fn deadline(&mut self, key: &[u8]) -> Result<Option<Deadline>> {
        Ok(self.stored_until(key)?.map(|(_, deadline)| deadline))
    }

    /// True if the key is present, with a value of any type.
    pub fn contains(&mut self, key: &[u8]) -> Result<bool> {
        match self {
            Self::Store { store, .. } => Ok(store.contains(key)?),
            Self::Transaction { .. } => Ok(self.stored_until(key)?.is_some()),
        }
    }

    /// Reads the strings of `keys` at one moment and passes them to `give`, in the order of `keys`, until `give` returns false. `None` for an
    /// absent key, and for a value of another type.
    pub fn get_each(&mut self, keys: &[&[u8]], mut give: impl FnMut(Option<Vec<u8>>) -> bool) -> Result<()> {
        let (mut damaged, mut names) = (Ok(()), keys.iter());
        let (mut missing, has_misses) = (Vec::<&[u8]>::new(), self.events().has_misses());
        let mut give = |stored: Option<Vec<u8>>| {
            let mut stored = stored;
            let key: Option<&[u8]> = names.next().copied();
            missing.extend(key.filter(|_| has_misses && stored.is_none()));
            match stored.as_mut().map(take_string).transpose() {
                Ok(_) => give(stored),
                Err(AccessError::WrongType) => give(None),
                Err(error) => {
                    damaged = Err(error);
                    false
                }
            }
        };
        if let Self::Store { store, .. } = self {
            store.get_each(keys, give)?;
        } else {
            for key in keys {
                if !give(self.stored_until(key)?.map(|(value, _)| value)) {
                    break;
                }
            }
        }
        missing.iter().for_each(|key| self.note_read(key, false));
        damaged
    }

    /// Stores a string in place of a value of any type, and removes the key's deadline.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        // The value that is replaced may be a structure, whose elements are garbage then.
        if self.shared().structures.is_used() || self.events().has_new() {
            return self.replace(key, |_| Next::Put(value.to_vec(), None));
        }
        match self {
            Self::Store { shared, db, store, .. } => {
                let stored = structures::encode(value);
                Ok(shared.watches.write(*db, key, || store.put(key, &stored).map(|_| ()))?)
            }
            Self::Transaction { transaction, shared, db, .. } => {
                Ok(table(transaction, &shared.databases, *db)?.put(key, &structures::encode(value))?)
            }
        }
    }

    /// Removes a key with a value of any type. True if it was present.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        match self {
            Self::Store { shared, db, store, .. } if !shared.structures.is_used() => {
                Ok(shared.watches.write_if(*db, key, || {
                    let found = store.delete(key);
                    let changed = !matches!(found, Ok(false));
                    (found, changed)
                })?)
            }
            _ => {
                let mut was_there = false;
                self.change_stored(key, |old| {
                    was_there = old.is_some();
                    if was_there { Next::Delete } else { Next::Keep }
                })?;
                Ok(was_there)
            }
        }
    }

    /// Reads and changes a string in one step. A new one keeps the deadline. `decide` may be called again.
    pub fn update(
        &mut self,
        key: &[u8],
        mut decide: impl FnMut(Option<&[u8]>) -> Change<'static, [u8]>,
    ) -> Result<()> {
        match self {
            Self::Store { shared, db, store, .. } => {
                let (mut refused, mut is_new) = (Ok(()), false);
                shared.watches.write_if(*db, key, || {
                    let mut changed = false;
                    let update = store.update(key, |old| {
                        let old = match old.map(string).transpose() {
                            Ok(old) => old,
                            Err(error) => {
                                refused = Err(error);
                                return Change::Keep;
                            }
                        };
                        let change = decide(old);
                        changed = !matches!(change, Change::Keep);
                        is_new = old.is_none() && matches!(change, Change::Put(_));
                        match change {
                            Change::Put(value) => {
                                shared.eviction.charge(value.len());
                                Change::Put(Cow::Owned(structures::encode(&value).into_owned()))
                            }
                            other => other,
                        }
                    });
                    (update, changed)
                })?;
                self.note_new(key, is_new);
                refused
            }
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

    /// Reads and changes a string and its deadline in one step. `decide` may be called again. A store without tables refuses a deadline with
    /// `NoTables`.
    pub fn change(
        &mut self,
        key: &[u8],
        decide: impl FnMut(Option<(&[u8], Deadline)>) -> Next<Vec<u8>>,
    ) -> Result<()> {
        self.change_string(key, false, decide)
    }

    /// As [`Access::change`], for a command that also returns the string.
    pub fn read_and_change(
        &mut self,
        key: &[u8],
        decide: impl FnMut(Option<(&[u8], Deadline)>) -> Next<Vec<u8>>,
    ) -> Result<()> {
        self.change_string(key, true, decide)
    }

    fn change_string(
        &mut self,
        key: &[u8],
        is_read: bool,
        mut decide: impl FnMut(Option<(&[u8], Deadline)>) -> Next<Vec<u8>>,
    ) -> Result<()> {
        let mut refused = Ok(());
        self.change_as(key, is_read, |old| match old.map(|(stored, _)| string(stored)).transpose() {
            Ok(value) => encoded(decide(value.zip(old.map(|(_, deadline)| deadline)))),
            Err(error) => {
                refused = Err(error);
                Next::Keep
            }
        })?;
        refused
    }

    /// Stores a string, or removes a key, whatever type its value has. `decide` gets the deadline of a key that is present, and may be called
    /// again.
    pub fn replace(
        &mut self,
        key: &[u8],
        mut decide: impl FnMut(Option<Deadline>) -> Next<Vec<u8>>,
    ) -> Result<()> {
        self.change_stored(key, |old| encoded(decide(old.map(|(_, deadline)| deadline))))
    }

    /// Reads and changes a stored value of any type and its deadline in one step. `decide` may be called again.
    pub fn change_stored(
        &mut self,
        key: &[u8],
        decide: impl FnMut(Option<(&[u8], Deadline)>) -> Next<Vec<u8>>,
    ) -> Result<()> {
        self.change_as(key, false, decide)
    }

    /// `is_read`: an absent key is noted as such.
    fn change_as(
        &mut self,
        key: &[u8],
        is_read: bool,
        mut decide: impl FnMut(Option<(&[u8], Deadline)>) -> Next<Vec<u8>>,
    ) -> Result<()> {
        let shared = self.shared();
        let (mut lost, mut is_absent, mut is_put) = (None, false, false);
        let decide = |old: Option<(&[u8], Deadline)>| {
            let next = decide(old);
            (is_absent, is_put) = (old.is_none(), matches!(next, Next::Put(..)));
            lost = match &next {
                Next::Keep => None,
                Next::Delete => old.and_then(|(stored, _)| structures::head_of(stored)),
                Next::Put(value, _) => old
                    .and_then(|(stored, _)| structures::head_of(stored))
                    .filter(|head| structures::head_of(value).is_none_or(|new| new.id != head.id)),
            };
            if let Next::Put(value, Some(_)) = &next
                && structures::head_of(value).is_some()
            {
                shared.structures.garbage.note_deadline();
            }
            next
        };
        match self {
            Self::Store { db, store, .. } => Self::change_in(shared, *db, store, key, decide)?,
            Self::Transaction { transaction, db, .. } => {
                let mut decide = decide;
                let mut table = table(transaction, &shared.databases, *db)?;
                let old = table.get_until(key)?;
                match decide(old.as_ref().map(|(value, deadline)| (&value[..], *deadline))) {
                    Next::Keep => {}
                    Next::Delete => table.delete(key)?,
                    Next::Put(value, deadline) => {
                        shared.eviction.charge(value.len());
                        table.put_until(key, &value, deadline)?;
                    }
                }
            }
        }
        if let Some(head) = lost {
            shared.structures.garbage.hint(head.id);
            // Clients that wait for a group of the stream get an error.
            let db = self.db();
            if head.kind == structures::Kind::Stream
                && let Some(turns) = self.turns()
            {
                shared.waiters.wake([(db, key)], turns);
            }
        }
        self.note_read(key, !(is_read && is_absent));
        self.note_new(key, is_absent && is_put);
        Ok(())
    }

    fn change_in(
        shared: &Shared,
        db: usize,
        store: &Store,
        key: &[u8],
        mut decide: impl FnMut(Option<(&[u8], Deadline)>) -> Next<Vec<u8>>,
    ) -> bristlecone::Result<()> {
        if store.has_tables() {
            return shared.watches.write_if(db, key, || {
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
            });
        }
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
        shared.watches.write(db, key, update)?;
        if refused { Err(Error::NoTables) } else { Ok(()) }
    }

    /// Stores a string if the key is absent. True if it was stored.
    pub fn put_if_absent(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        let mut stored = false;
        let mut decide = |is_there: bool| {
            stored = !is_there;
            stored.then(|| structures::encode(value).into_owned())
        };
        match self {
            Self::Store { shared, db, store, .. } => shared.watches.write_if(*db, key, || {
                let mut changed = false;
                let update = store.update(key, |old| match decide(old.is_some()) {
                    Some(value) => {
                        changed = true;
                        Change::Put(Cow::Owned(value))
                    }
                    None => Change::Keep,
                });
                (update, changed)
            })?,
            Self::Transaction { .. } => {
                self.change_stored(key, |old| match decide(old.is_some()) {
                    Some(value) => Next::Put(value, None),
                    None => Next::Keep,
                })?;
                return Ok(stored);
            }
        }
        self.note_new(key, stored);
        Ok(stored)
    }

    /// Number of keys that the transaction has added to the database so far; 0 outside a transaction.
    pub fn keys_added(&mut self) -> Result<i64> {
        match self {
            Self::Store { .. } => Ok(0),
            Self::Transaction { transaction, shared, db, .. } => {
                Ok(table(transaction, &shared.databases, *db)?.keys_added()?)
            }
        }
    }

    /// Calls `run`, perhaps again after a conflict. All writes of one call of `run` take effect together.
    pub fn together<R>(&mut self, mut run: impl FnMut(&mut Together<'_>) -> Result<R>) -> Result<R> {
        let (shared, events) = match self {
            Self::Transaction { transaction, shared, events, .. } => {
                return run(&mut Together { transaction, shared, events });
            }
            Self::Store { shared, events, .. } => (*shared, events),
        };
        for _ in 0..ATTEMPTS {
            if let Some((result, keys)) = attempt(shared, &mut run, events)? {
                if !keys.is_empty()
                    && let Some(turns) = self.turns()
                {
                    shared.waiters.wake(keys.iter().map(|(db, key)| (*db, &key[..])), turns);
                }
                return Ok(result);
            }
        }
        Err(Error::Conflict { attempts: ATTEMPTS }.into())
    }
}

/// Runs a transaction once. Returns its result and the keys that it wrote. `None` after a conflict.
fn attempt<R>(
    shared: &Shared,
    run: &mut impl FnMut(&mut Together<'_>) -> Result<R>,
    events: &mut Events,
) -> Result<Option<(R, Written)>> {
    let before = events.len();
    let mut transaction = Transaction::new(&shared.store);
    let result = run(&mut Together { transaction: &mut transaction, shared, events }).and_then(|result| {
        let keys = shared.databases.written(&transaction);
        let committed = shared.watches.commit(None, || 0, &keys, || transaction.commit());
        Ok(committed.transpose()?.unwrap_or(false).then_some((result, keys)))
    });
    if !matches!(result, Ok(Some(_))) {
        events.truncate(before);
    }
    result
}

/// The stored form of a string that is to be stored.
fn encoded(next: Next<Vec<u8>>) -> Next<Vec<u8>> {
    match next {
        Next::Put(value, deadline) if value.starts_with(&structures::MAGIC) => {
            Next::Put(structures::encode(&value).into_owned(), deadline)
        }
        other => other,
    }
}

/// The databases in a transaction.
pub struct Together<'a> {
    pub(crate) transaction: &'a mut Transaction<Bytes>,
    /// The server.
    pub shared: &'a Shared,
    /// The events of the transaction.
    pub events: &'a mut Events,
}

impl Together<'_> {
    /// A database.
    ///
    /// # Errors
    /// Those of opening a table.
    pub fn db(&mut self, db: usize) -> Result<Keys<'_>> {
        let table = table(self.transaction, &self.shared.databases, db)?;
        Ok(Keys { table, shared: self.shared, db, events: self.events })
    }
}

/// The keys of a database in a transaction.
pub struct Keys<'a> {
    table: TransactionTable<'a, Bytes>,
    shared: &'a Shared,
    db: usize,
    events: &'a mut Events,
}

/// Every method returns the errors of the store.
#[allow(clippy::missing_errors_doc)]
impl Keys<'_> {
    /// True if the key is present, with a value of any type.
    pub fn contains(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.table.contains(key)?)
    }

    /// The string of a key.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut found = self.table.get(key)?;
        found.as_mut().map(take_string).transpose()?;
        Ok(found)
    }

    /// The stored form of a value of any type, and the deadline of its key.
    pub fn stored(&mut self, key: &[u8]) -> Result<Option<(Vec<u8>, Deadline)>> {
        Ok(self.table.get_until(key)?)
    }

    /// As [`Keys::stored`], without a copy of the value.
    pub fn look_up(&mut self, key: &[u8]) -> Result<Option<(&[u8], Deadline)>> {
        Ok(self.table.look_up(key)?.map(|(value, deadline)| (&value[..], deadline)))
    }

    /// The head of a key's structure. `None` for an absent key and for a string.
    pub fn head(&mut self, key: &[u8]) -> Result<Option<Head>> {
        Ok(self.look_up(key)?.and_then(|(stored, _)| structures::head_of(stored)))
    }

    /// Stores a string in place of a value of any type. The key has no deadline then.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.note_new(key)?;
        self.note_garbage(key)?;
        Ok(self.table.put(key, &structures::encode(value))?)
    }

    /// Stores the stored form of a value in place of a value of any type.
    pub fn put_stored(&mut self, key: &[u8], stored: &[u8], deadline: Deadline) -> Result<()> {
        self.note_garbage(key)?;
        Ok(self.table.put_until(key, stored, deadline)?)
    }

    /// Writes the head of a structure, which the key has already or did not have.
    pub fn put_head(&mut self, key: &[u8], head: &Head, deadline: Deadline) -> Result<()> {
        Ok(self.table.put_until(key, &head.encode(), deadline)?)
    }

    /// Removes a key with a value of any type.
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.note_garbage(key)?;
        Ok(self.table.delete(key)?)
    }

    /// Removes a key whose elements are moved or removed in the same transaction.
    pub fn delete_head(&mut self, key: &[u8]) -> Result<()> {
        Ok(self.table.delete(key)?)
    }

    /// Notes an event of a key.
    pub fn note(&mut self, event: Event, key: &[u8]) {
        self.events.note(event, self.db, key);
    }

    /// Notes that a command has read a key, and whether it was found.
    pub fn note_read(&mut self, key: &[u8], is_found: bool) {
        if !is_found {
            self.events.note(Event::MISS, self.db, key);
        }
    }

    /// Notes that a key is about to be made, if it is absent.
    pub fn note_new(&mut self, key: &[u8]) -> Result<()> {
        if self.events.has_new() && !self.table.contains(key)? {
            self.events.note(Event::NEW, self.db, key);
        }
        Ok(())
    }

    /// If the key has a structure, its elements are garbage soon.
    fn note_garbage(&mut self, key: &[u8]) -> Result<()> {
        if self.shared.structures.is_used()
            && let Some(head) = self.head(key)?
        {
            self.shared.structures.garbage.hint(head.id);
        }
        Ok(())
    }
}
