//! `Transaction`: reads and writes of several keys that take effect in one step.
//!
//! A transaction collects its writes in memory and remembers its reads. [`StoreOf::transaction`] commits the writes in one step, on the
//! condition that every key that was read still has its value and deadline, and that every range that was scanned still has the same pairs.
//! If a condition does not hold, nothing has changed, and the transaction runs again. So committed transactions are serializable in the
//! order of their commits (optimistic concurrency control by validation).
//!
//! The commit takes the writer's lock and compares the values that were read with the present ones. If ranges were scanned, the commit must
//! scan them again, and it cannot do this under the writer's lock. So before it takes that lock, it keeps all other writes of the store out
//! by a second lock, and scans the ranges. Only a store with [tables](crate::tables) has this second lock.
//!
//! Until the commit, two reads may return values of different moments. If the values that were read never existed together, the transaction
//! does not commit, but its code has run: this code must not rely on conditions that hold only between values of one moment.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use ::index::Kind;
use ::index::engine::{Commit, Deadline, KeyValue, Next, TableRead, TableWrite};

use crate::error::{Error, Result};
use crate::store::StoreOf;

/// Number of times that a transaction runs before it fails with [`Error::Conflict`].
pub const ATTEMPTS: usize = 100;

/// A value and its deadline; `None` for an absent key.
type State<K> = Option<(<K as Kind>::ValueBuf, Deadline)>;
/// The number of a table in the transaction, and a key of it.
type TableKey<K> = (usize, <K as Kind>::KeyBuf);

/// A range that was scanned, and its pairs in the store.
struct Scanned<K: Kind> {
    table: usize,
    range: (Bound<K::KeyBuf>, Bound<K::KeyBuf>),
    descending: bool,
    pairs: Vec<(K::KeyBuf, K::ValueBuf)>,
    /// True if the scan stopped before it met the end of the range.
    stopped: bool,
}

/// The reads and writes of a running transaction. See [`StoreOf::transaction`].
pub struct Transaction<K: Kind> {
    /// Handles of the tables. The first one is that of the transaction's own methods.
    tables: Vec<StoreOf<K>>,
    /// Keys that were read from the store, as they were then.
    reads: BTreeMap<TableKey<K>, State<K>>,
    writes: BTreeMap<TableKey<K>, State<K>>,
    scans: Vec<Scanned<K>>,
}

impl<K: Kind> std::fmt::Debug for Transaction<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { reads, writes, scans, .. } = self;
        let mut shown = f.debug_struct("Transaction");
        shown
            .field("reads", &reads.len())
            .field("writes", &writes.len())
            .field("scans", &scans.len())
            .finish()
    }
}

/// A table in a running transaction. See [`Transaction::table`].
#[derive(Debug)]
pub struct TransactionTable<'t, K: Kind> {
    transaction: &'t mut Transaction<K>,
    table: usize,
}

/// Errors of every method: those of the method of the same name of [`StoreOf`].
#[allow(clippy::missing_errors_doc)]
impl<K: Kind> Transaction<K> {
    /// A transaction without retries: its caller decides what to do after a conflict. Nothing is written before [`Transaction::commit`].
    #[must_use]
    pub fn new(store: &StoreOf<K>) -> Self {
        let (reads, writes) = (BTreeMap::new(), BTreeMap::new());
        Self { tables: vec![store.clone()], reads, writes, scans: Vec::new() }
    }

    /// Another table of the same store. Its reads and writes belong to this transaction.
    ///
    /// # Errors
    /// `Option` if it is a handle of another store; `NoTables` if the store has none.
    pub fn table(&mut self, table: &StoreOf<K>) -> Result<TransactionTable<'_, K>> {
        let slot = table.table_ops()?.slot();
        let is_same = |known: &StoreOf<K>| known.table_ops().is_ok_and(|ops| Arc::ptr_eq(ops.slot(), slot));
        let known = self.tables.iter().position(is_same);
        if known.is_none() && !self.tables[0].is_same_store(table) {
            return Err(Error::Option(
                "a transaction cannot use tables of two stores: open one for each".into(),
            ));
        }
        let number = known.unwrap_or(self.tables.len());
        if known.is_none() {
            self.tables.push(table.clone());
        }
        Ok(TransactionTable { transaction: self, table: number })
    }

    /// The table of the transaction's own methods.
    pub fn own(&mut self) -> TransactionTable<'_, K> {
        TransactionTable { transaction: self, table: 0 }
    }

    /// The value of a key: as this transaction wrote it, or as it is in the store. A value from the store is durable in the same way as for
    /// [`StoreOf::get`]. O(log n) in the writes and reads so far, and a lookup when the key is read for the first time.
    pub fn get(&mut self, key: &K::Key) -> Result<Option<K::ValueBuf>> {
        self.own().get(key)
    }

    /// True if the key is present.
    pub fn contains(&mut self, key: &K::Key) -> Result<bool> {
        self.own().contains(key)
    }

    /// Stores a value.
    pub fn put(&mut self, key: &K::Key, value: &K::Value) -> Result<()> {
        self.own().put(key, value)
    }

    /// Removes a key.
    pub fn delete(&mut self, key: &K::Key) -> Result<()> {
        self.own().delete(key)
    }

    /// Number of keys that the commit will add to the table of the transaction's own methods, negative if it removes more. Looks up the
    /// keys that were written without being read.
    pub fn keys_added(&mut self) -> Result<i64> {
        self.own().keys_added()
    }

    /// The keys that the transaction writes, each with the handle of its table.
    pub fn written(&self) -> impl Iterator<Item = (&StoreOf<K>, &K::KeyBuf)> {
        self.writes.keys().map(|(table, key)| (&self.tables[*table], key))
    }

    fn read(&mut self, table: usize, key: &K::Key) -> Result<&State<K>> {
        let Self { tables, reads, writes, .. } = self;
        let at = (table, K::own_key(key));
        if let Some(state) = writes.get(&at) {
            return Ok(state);
        }
        let entry = match reads.entry(at) {
            Entry::Occupied(known) => return Ok(known.into_mut()),
            Entry::Vacant(entry) => entry,
        };
        let store = &tables[table];
        let state = match store.has_tables() {
            false => store.get(key)?.map(|value| (value, None)),
            true => {
                let mut value = K::ValueBuf::default();
                store.get_until(key, &mut value)?.map(|deadline| (value, deadline))
            }
        };
        Ok(entry.insert(state))
    }

    /// Commits. False if a key that was read has another value or deadline by now, or a range that was scanned has other pairs; then
    /// nothing has changed.
    ///
    /// A transaction of several keys needs an engine with batches ([`crate::Capabilities::atomic_batch`]).
    pub fn commit(self) -> Result<bool> {
        let Self { tables, reads, mut writes, scans } = self;
        let own = &tables[0];
        if writes.is_empty() && reads.is_empty() && scans.is_empty() {
            return Ok(true);
        }
        let Some(ops) = own.index().tables() else {
            let pairs = |states: BTreeMap<TableKey<K>, State<K>>| -> Vec<KeyValue<K>> {
                states.into_iter().map(|((_, key), state)| (key, state.map(|(value, _)| value))).collect()
            };
            let (writes, reads) = (pairs(writes), pairs(reads));
            return own.commit_batch(writes, &reads);
        };
        if writes.len() == 1
            && reads.is_empty()
            && scans.is_empty()
            && let Some(((table, key), next)) = writes.pop_first()
        {
            // One key needs no batch, which some engines do not have.
            tables[table].change_until(K::key(&key), |_| match next.clone() {
                Some((value, deadline)) => Next::Put(value, deadline),
                None => Next::Delete,
            })?;
            return Ok(true);
        }
        let slot = |table: usize| -> Result<_> { Ok(Arc::clone(tables[table].table_ops()?.slot())) };
        let has_deadline = writes.values().flatten().any(|(_, deadline)| deadline.is_some());
        let writes = writes
            .into_iter()
            .map(|((table, key), next)| Ok(TableWrite { table: slot(table)?, key, next }))
            .collect::<Result<_>>()?;
        let reads = reads.into_iter().map(|((table, key), state)| {
            let (value, deadline) = state.unzip();
            Ok(TableRead { table: slot(table)?, key, value, deadline: Some(deadline.flatten()) })
        });
        let reads = reads.collect::<Result<Vec<_>>>()?;
        let mut failed = None;
        let mut is_unchanged = || {
            let unchanged = scans.iter().map(|scan| scan.is_unchanged(&tables[scan.table]));
            for unchanged in unchanged {
                match unchanged {
                    Ok(true) => {}
                    Ok(false) => return Ok(false),
                    Err(error) => {
                        failed = Some(error);
                        return Ok(false);
                    }
                }
            }
            Ok(true)
        };
        let validate = (!scans.is_empty()).then_some(&mut is_unchanged as _);
        let committed =
            own.timed_write(|| ops.commit_tables(Commit { writes, reads: &reads, validate }, own.how()))?;
        if let Some(error) = failed {
            return Err(error);
        }
        if has_deadline && committed {
            own.engine().start_maintenance();
        }
        Ok(committed)
    }
}

/// The writes to a table whose keys are in the range, in key order.
fn writes_in<'w, K: Kind>(
    writes: &'w BTreeMap<TableKey<K>, State<K>>,
    table: usize,
    (low, high): &(Bound<K::KeyBuf>, Bound<K::KeyBuf>),
) -> impl Iterator<Item = (&'w TableKey<K>, &'w State<K>)> {
    let is_above = |key: &K::KeyBuf| match low {
        Bound::Included(low) => key >= low,
        Bound::Excluded(low) => key > low,
        Bound::Unbounded => true,
    };
    let is_below = |key: &K::KeyBuf| match high {
        Bound::Included(high) => key <= high,
        Bound::Excluded(high) => key < high,
        Bound::Unbounded => true,
    };
    let start = match low {
        Bound::Included(low) | Bound::Excluded(low) => (table, low.clone()),
        Bound::Unbounded => (table, K::KeyBuf::default()),
    };
    writes
        .range(start..)
        .filter(move |((_, key), _)| is_above(key))
        .take_while(move |((of, key), _)| *of == table && is_below(key))
}

impl<K: Kind> Scanned<K> {
    /// True if the range still has the pairs that were read.
    fn is_unchanged(&self, table: &StoreOf<K>) -> Result<bool> {
        let scan = table.scan(self.range.clone());
        let mut scan = if self.descending { scan.descending() } else { scan };
        let mut pairs = self.pairs.iter();
        let (mut is_unchanged, mut is_longer) = (true, false);
        let needs_more = |left: usize| left > 0 || !self.stopped;
        if needs_more(pairs.len()) {
            scan.visit(|key, value| match pairs.next() {
                Some((read, pair)) => {
                    is_unchanged = key == K::key(read) && value == K::value(pair);
                    is_unchanged && needs_more(pairs.len())
                }
                None => {
                    is_longer = true;
                    false
                }
            })?;
        }
        Ok(is_unchanged && pairs.len() == 0 && !is_longer)
    }
}

/// Errors of every method: those of the method of the same name of [`StoreOf`].
#[allow(clippy::missing_errors_doc)]
impl<K: Kind> TransactionTable<'_, K> {
    /// The value of a key, as for [`Transaction::get`].
    pub fn get(&mut self, key: &K::Key) -> Result<Option<K::ValueBuf>> {
        Ok(self.look_up(key)?.map(|(value, _)| value.clone()))
    }

    /// The value and the deadline of a key.
    pub fn get_until(&mut self, key: &K::Key) -> Result<Option<(K::ValueBuf, Deadline)>> {
        Ok(self.look_up(key)?.map(|(value, deadline)| (value.clone(), deadline)))
    }

    /// As [`TransactionTable::get_until`], without a copy of the value.
    pub fn look_up(&mut self, key: &K::Key) -> Result<Option<(&K::ValueBuf, Deadline)>> {
        K::validate(key, None)?;
        Ok(self.transaction.read(self.table, key)?.as_ref().map(|(value, deadline)| (value, *deadline)))
    }

    /// True if the key is present.
    pub fn contains(&mut self, key: &K::Key) -> Result<bool> {
        Ok(self.look_up(key)?.is_some())
    }

    /// Stores a value. The key has no deadline then.
    pub fn put(&mut self, key: &K::Key, value: &K::Value) -> Result<()> {
        self.put_until(key, value, None)
    }

    /// Stores a value with this deadline.
    pub fn put_until(&mut self, key: &K::Key, value: &K::Value, deadline: Deadline) -> Result<()> {
        K::validate(key, Some(value))?;
        if deadline.is_some() {
            self.transaction.tables[self.table].table_ops()?;
        }
        let next = Some((K::own_value(value), deadline));
        self.transaction.writes.insert((self.table, K::own_key(key)), next);
        Ok(())
    }

    /// Removes a key.
    pub fn delete(&mut self, key: &K::Key) -> Result<()> {
        K::validate(key, None)?;
        self.transaction.writes.insert((self.table, K::own_key(key)), None);
        Ok(())
    }

    /// Passes the pairs of a range to `visit`, in key order (in descending order if `descending`), until it returns false. It sees the
    /// transaction's own writes. The pairs are kept for the commit, so the memory that this takes grows with their number.
    ///
    /// # Errors
    /// `NoTables` if the store has no tables; otherwise as [`StoreOf::scan`].
    pub fn scan(
        &mut self,
        range: impl RangeBounds<K::KeyBuf>,
        descending: bool,
        visit: impl FnMut(&K::Key, &K::Value) -> bool,
    ) -> Result<()> {
        self.scan_as(range, descending, true, visit)
    }

    /// As [`TransactionTable::scan`], but the commit does not compare the range, and the pairs are not kept. For ranges that have a *guard*: a
    /// key that this transaction has read before, and that each change of the range changes in the same transaction. Then the commit is
    /// refused if the range has changed, because the guard has.
    ///
    /// # Errors
    /// As [`TransactionTable::scan`].
    pub fn scan_guarded(
        &mut self,
        range: impl RangeBounds<K::KeyBuf>,
        descending: bool,
        visit: impl FnMut(&K::Key, &K::Value) -> bool,
    ) -> Result<()> {
        self.scan_as(range, descending, false, visit)
    }

    fn scan_as(
        &mut self,
        range: impl RangeBounds<K::KeyBuf>,
        descending: bool,
        is_validated: bool,
        mut visit: impl FnMut(&K::Key, &K::Value) -> bool,
    ) -> Result<()> {
        let Transaction { tables, writes, scans, .. } = &mut *self.transaction;
        let (store, table) = (&tables[self.table], self.table);
        store.table_ops()?;
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        let scan = store.scan(range.clone());
        let mut scan = if descending { scan.descending() } else { scan };
        let mut own = writes_in::<K>(writes, table, &range)
            .map(|((_, key), next)| (key, next.as_ref().map(|(value, _)| value)))
            .collect::<Vec<_>>();
        if !descending {
            own.reverse();
        }
        let (mut pairs, mut stopped) = (Vec::new(), false);
        let mut stored = scan.next().transpose()?;
        // If this scan found nothing after the pairs, the commit must find nothing there either.
        let mut met_end = stored.is_none();
        while !stopped {
            // The next key of both. A write replaces the stored pair.
            let takes_own = match (own.last(), &stored) {
                (None, None) => break,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some((mine, _)), Some((other, _))) => {
                    if descending {
                        *mine >= other
                    } else {
                        *mine <= other
                    }
                }
            };
            let written = if takes_own { own.pop() } else { None };
            let reads_next =
                stored.as_ref().is_some_and(|(key, _)| written.is_none_or(|(mine, _)| mine == key));
            let read = if reads_next { stored.take() } else { None };
            let shown = match (&written, &read) {
                (Some((key, value)), _) => value.map(|value| (K::key(key), K::value(value))),
                (None, pair) => pair.as_ref().map(|(key, value)| (K::key(key), K::value(value))),
            };
            stopped = shown.is_some_and(|(key, value)| !visit(key, value));
            if let Some(pair) = read {
                if is_validated {
                    pairs.push(pair);
                }
                if !stopped {
                    stored = scan.next().transpose()?;
                    met_end = stored.is_none();
                }
            }
        }
        drop(scan);
        if !is_validated {
            return Ok(());
        }
        if let (true, Some(pair)) = (stopped, stored) {
            // It was read only for its place in the order.
            pairs.push(pair);
        }
        scans.push(Scanned { table, range, descending, pairs, stopped: stopped && !met_end });
        Ok(())
    }

    /// Number of keys that the commit will add to the table, negative if it removes more. Looks up the keys that were written without being
    /// read.
    pub fn keys_added(&mut self) -> Result<i64> {
        let Self { transaction, table } = self;
        let written = transaction.writes.iter().filter(|((of, _), _)| of == table);
        let written: Vec<_> = written.map(|((_, key), next)| (key.clone(), next.is_some())).collect();
        let mut added = 0;
        for (key, is_there) in written {
            let at = (*table, key);
            if !transaction.reads.contains_key(&at) {
                let own = transaction.writes.remove(&at);
                let read = transaction.read(*table, K::key(&at.1)).map(|_| ());
                transaction.writes.extend(own.map(|own| (at.clone(), own)));
                read?;
            }
            let was_there = transaction.reads.get(&at).is_some_and(Option::is_some);
            added += i64::from(is_there) - i64::from(was_there);
        }
        Ok(added)
    }
}

impl<K: Kind> StoreOf<K> {
    /// Runs `run` as a transaction: its reads see its own writes, and all of it takes effect in one step, or nothing. If another thread
    /// changed a key that it read, or a range that it scanned, `run` is called again with a new transaction. After an error of `run`
    /// nothing has changed.
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
