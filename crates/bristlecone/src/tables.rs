//! Tables of a store, and deadlines of keys.
//!
//! A store that is made with [`Options::tables`](crate::Options::tables), which is the default, has several ordered key spaces, the tables,
//! in one region. A handle of a table has all methods of a store and sees only the keys of its table. A [`Transaction`](crate::Transaction)
//! may read and write several tables. The default table always exists; a handle from [`StoreOf::open`] is its handle.
//!
//! In such a store a key may have a deadline: a wall-clock time in milliseconds since 1970, from which on no read returns the key. The
//! deadline is durable with its value. A background thread removes expired keys; until then they still count in [`StoreOf::len`].
//! [`StoreOf::put`], a batch and a transaction's `put` remove the deadline of a key; [`StoreOf::update`] and [`StoreOf::compare_and_swap`]
//! keep it.
//!
//! If the clock jumps forward, keys expire early. If it jumps back, keys live longer, and a key that had expired and was not removed yet is
//! present again.

use std::sync::Arc;
use std::time::Duration;

use ::index::engine::{Count, Deadline, Expiring, Next, TableOps};
use ::index::kind::Kind;

use crate::error::{Error, Result};
use crate::store::StoreOf;

/// Errors of every method: `NoTables` if the store has none; `Pmem` with `Dropped` if the table was dropped, with `Length` if a key or
/// value is too long for a table, with `TooLarge` if a table's name is too long or there are too many tables; otherwise those of writes.
#[allow(clippy::missing_errors_doc)]
impl<K: Kind> StoreOf<K> {
    /// True if the store has tables and deadlines.
    pub fn has_tables(&self) -> bool {
        self.index().tables().is_some()
    }

    /// The name of this handle's table. Empty for the default table, and in a store without tables.
    pub fn table_name(&self) -> &str {
        self.index().tables().map_or("", |tables| &tables.slot().name)
    }

    pub(crate) fn table_ops(&self) -> Result<&dyn TableOps<K>> {
        self.index().tables().ok_or(Error::NoTables)
    }

    /// The table of this name, which has at most 255 bytes; the empty name is that of the default table. Makes the table in one step if it
    /// does not exist. If it exists, this takes one lookup in memory.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use bristlecone::{Options, Store};
    /// let store = Store::open(dir.path(), Options::default().tables(true))?;
    /// let users = store.table("users")?;
    /// users.put(b"1", b"Ada")?;
    /// assert_eq!((store.get(b"1")?, users.get(b"1")?), (None, Some(b"Ada".to_vec())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn table(&self, name: &str) -> Result<Self> {
        let table = self.table_ops()?.table(name, true)?;
        Ok(self.over(table.ok_or(pmem::Error::Dropped)?))
    }

    /// The table of this name, if it exists.
    pub fn find_table(&self, name: &str) -> Result<Option<Self>> {
        Ok(self.table_ops()?.table(name, false)?.map(|table| self.over(table)))
    }

    /// The tables and their numbers of keys, by name. The default table has an empty name.
    pub fn list_tables(&self) -> Result<Vec<(String, Count)>> {
        Ok(self.table_ops()?.list())
    }

    /// Number of keys of this table that have a deadline, among the `most` earliest deadlines of the store. O(`most`).
    pub fn count_deadlines(&self, most: usize) -> Result<u64> {
        Ok(self.table_ops()?.deadlines(most)?)
    }

    /// At most `most` keys with deadlines, of all tables, in the order of deadlines. `position` is where the previous call ended: an opaque
    /// value, empty for the first deadline and after the last one. A key may have been removed, or have another deadline by now. O(`most`).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use bristlecone::{Options, Store};
    /// # use std::time::Duration;
    /// # let store = Store::open(dir.path(), Options::default())?;
    /// store.put_with(b"later", b"", Duration::from_secs(60))?;
    /// store.put_with(b"sooner", b"", Duration::from_secs(30))?;
    /// let first = store.expiring(&mut Vec::new(), 1)?;
    /// assert_eq!(first[0].key, b"sooner");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expiring(&self, position: &mut Vec<u8>, most: usize) -> Result<Vec<Expiring<K>>> {
        Ok(self.table_ops()?.expiring(position, most)?)
    }

    /// Calls `told` from now on with the name of the table and the key of each expired key that is removed or replaced. `told` replaces an
    /// earlier one. It must not use the store. A key is absent from its deadline on, and is removed soon after it: by the background thread,
    /// or by the next write of the key.
    pub fn tell_expired(&self, told: impl Fn(&str, &[u8]) + Send + Sync + 'static) -> Result<()> {
        self.table_ops()?.tell_expired(Arc::new(told));
        Ok(())
    }

    /// Removes a table in one step; its handles return errors from then on. Its keys are removed in the background. The default table only
    /// becomes empty. False if there is no such table.
    pub fn drop_table(&self, name: &str) -> Result<bool> {
        let dropped = self.table_ops()?.drop_table(name)?;
        self.engine().start_maintenance();
        Ok(dropped)
    }

    /// Exchanges the contents of two tables in one step. False if one of them does not exist. A scan that runs meanwhile continues in the
    /// contents where it began.
    pub fn swap_tables(&self, one: &str, other: &str) -> Result<bool> {
        Ok(self.table_ops()?.swap(one, other)?)
    }

    /// Removes every key of every table in one step. [`StoreOf::clear`] removes those of this table.
    pub fn clear_all(&self) -> Result<()> {
        self.clear_all_but(&[])
    }

    /// Removes every key of every table in one step, but those of the tables with these names. A store without tables loses all keys.
    pub fn clear_all_but(&self, kept: &[&str]) -> Result<()> {
        match self.index().tables() {
            None => self.clear()?,
            Some(tables) => {
                tables.clear_all_but(kept)?;
                self.engine().start_maintenance();
            }
        }
        Ok(())
    }

    /// Milliseconds since 1970 by the clock of the deadlines ([`Options::clock`](crate::Options::clock)).
    pub fn now(&self) -> Result<u64> {
        Ok(self.table_ops()?.now())
    }

    /// Stores a value that expires after this time.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use bristlecone::{Options, Store};
    /// # use std::time::Duration;
    /// # let store = Store::open(dir.path(), Options::default().tables(true))?;
    /// store.put_with(b"session", b"Ada", Duration::from_secs(60))?;
    /// assert!(store.ttl(b"session")?.flatten().is_some_and(|left| left <= Duration::from_secs(60)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_with(&self, key: &K::Key, value: &K::Value, ttl: Duration) -> Result<()> {
        self.put_until(key, value, Some(self.after(ttl)?))
    }

    /// Stores a value with this deadline. `None`: it does not expire.
    pub fn put_until(&self, key: &K::Key, value: &K::Value, deadline: Deadline) -> Result<()> {
        K::validate(key, Some(value))?;
        self.change_until(key, |_| Next::Put(K::own_value(value), deadline))
    }

    /// Lets a key expire after this time. False if it is absent.
    pub fn expire(&self, key: &K::Key, ttl: Duration) -> Result<bool> {
        self.expire_at(key, Some(self.after(ttl)?))
    }

    /// Sets the deadline of a key. False if it is absent.
    pub fn expire_at(&self, key: &K::Key, deadline: Deadline) -> Result<bool> {
        let mut found = false;
        self.change_until(key, |old| {
            found = old.is_some();
            old.map_or(Next::Keep, |(value, _)| Next::Put(K::own_value(value), deadline))
        })?;
        Ok(found)
    }

    /// Removes the deadline of a key. False if the key is absent or has none.
    pub fn persist(&self, key: &K::Key) -> Result<bool> {
        let mut had_one = false;
        self.change_until(key, |old| {
            let old = old.filter(|(_, deadline)| deadline.is_some());
            had_one = old.is_some();
            old.map_or(Next::Keep, |(value, _)| Next::Put(K::own_value(value), None))
        })?;
        Ok(had_one)
    }

    /// The time until a key expires. The inner `None`: it does not expire. The outer `None`: it is absent.
    pub fn ttl(&self, key: &K::Key) -> Result<Option<Option<Duration>>> {
        let now = self.now()?;
        let left = |deadline: u64| Duration::from_millis(deadline.saturating_sub(now));
        Ok(self.deadline(key)?.map(|deadline| deadline.map(left)))
    }

    /// The deadline of a key. The outer `None`: the key is absent.
    pub fn deadline(&self, key: &K::Key) -> Result<Option<Deadline>> {
        self.get_until(key, &mut K::ValueBuf::default())
    }

    /// Copies the value of `key` into a buffer, and returns its deadline. `None` if the key is absent.
    pub fn get_until(&self, key: &K::Key, value: &mut K::ValueBuf) -> Result<Option<Deadline>> {
        K::validate(key, None)?;
        Ok(self.table_ops()?.get_until(key, value)?)
    }

    /// Reads and changes one key and its deadline in one step. `decide` gets the current value and deadline. It may be called again if
    /// another thread changed the key. It must not use the store.
    pub fn change_until(
        &self,
        key: &K::Key,
        mut decide: impl FnMut(Option<(&K::Value, Deadline)>) -> Next<K::ValueBuf>,
    ) -> Result<()> {
        K::validate(key, None)?;
        let tables = self.table_ops()?;
        let (mut refused, mut has_deadline) = (None, false);
        let mut decide = |old: Option<(&K::Value, Deadline)>| match decide(old) {
            Next::Put(value, deadline) => match K::validate(key, Some(K::value(&value))) {
                Ok(()) => {
                    has_deadline = deadline.is_some();
                    Next::Put(value, deadline)
                }
                Err(error) => {
                    refused = Some(error);
                    Next::Keep
                }
            },
            other => other,
        };
        self.timed_write(|| tables.change(key, &mut decide, self.how()))?;
        if has_deadline {
            // This thread removes expired keys.
            self.engine().start_maintenance();
        }
        refused.map_or(Ok(()), |length| Err(length.into()))
    }

    /// The deadline at the end of this time.
    fn after(&self, ttl: Duration) -> Result<u64> {
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Ok(self.now()?.saturating_add(millis))
    }

    /// True if both are handles of one store.
    pub(crate) fn is_same_store(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.engine().stored(), other.engine().stored())
    }
}
