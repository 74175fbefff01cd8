//! Tables: several key spaces in one ordered index of byte strings, with deadlines of keys.
//!
//! This layer is above the engines. An engine sees only keys and values (`keys` has their layout). All tables are in one index, so one
//! batch, one snapshot and one log cover all of them.
//!
//! * [`catalog`]: names and numbers of the tables. `table`: a table as an [`Index`]. `cursor`: its cursors and snapshots.
//! * `salvage`: copies the tables of a damaged store to a new store.
//! * `commit`: writes of several keys and tables in one step. `expiry`: deadlines. `upkeep`: counts, the catalog's changes, and background
//!   work.
//!
//! From its deadline on, a key is absent for every reader. A background thread removes the key later. For this purpose,
//! the index has an entry for each deadline, and the entries are in the order of the deadlines. The clock is the wall
//! clock, as in Redis: if it jumps forward, keys expire early; if it jumps back, they live longer, and keys that
//! expired and were not removed yet are present again.
//!
//! Invariants:
//! * T1: a table is created, dropped, cleared or swapped by one write of the catalog, while no other write runs (`gate`).
//! * T2: a value with a deadline has an entry. The entry is written before the value, and is removed after the value
//!   was changed or removed, or both changes are in one batch. So a crash leaves at most entries without a value, which
//!   the background thread removes when their deadline passes.
//! * T3: two changes of deadlines of one key do not overlap: each holds the key's lock (`stripes`). A writer that sets no deadline, and
//!   that saw no deadline in the index, takes no lock. If another writer sets a deadline meanwhile and such a writer then replaces the
//!   value, the new value has no deadline, and the entry of the deadline stays until the deadline passes.
//! * T4: a table's number is used again only after all of its keys are removed, and not before the next open.
//! * T5: the numbers of keys are exact when counting has ended. Counting visits the keys in order, and advances only
//!   while no write runs. A write changes the number of keys only if counting has passed its key.
//! * T6: a clean close stores the numbers of keys. An open uses the stored numbers only after a clean close.
//! * T7: a change of the catalog is visible only when it is durable. Otherwise a reader could see a clear that is not durable, and would
//!   not wait for its commit. A reader waits only if it finds a dirty mark (the mark of a change that is not durable) of its key, but a
//!   clear gives the table a new number, and keys of the new number have no dirty marks.

pub mod catalog;
mod commit;
mod cursor;
mod expiry;
mod keys;
mod salvage;
mod table;
mod upkeep;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError};

use pmem::pending::defer_waits;
use pmem::sync::{AtomicBool, Mutex, MutexGuard, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard};
use pmem::{Error, Found, Result};

use crate::engine::{Index, OnExpired, Slot};
use crate::kind::Bytes;
use crate::write::WriteOptions;
use catalog::Catalog;
use keys::DEADLINES;

pub use keys::{TABLE_KEY_BYTES_MAX, TABLE_VALUE_BYTES_MAX};
pub use salvage::{is_pair, repeat, salvage};
pub use table::Table;

/// The clock of the deadlines. The default is the system's clock; before 1970 it shows 1970.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock {
    /// A clock that shows what `now` returns: milliseconds since 1970. For tests.
    pub fn new(now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(|| {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            since.map_or(0, |since| since.as_millis() as u64)
        })
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Clock").field(&(self.0)()).finish()
    }
}

/// Options of a write that does not wait until it is durable.
const UNSYNCED: WriteOptions = WriteOptions { sync: false };
/// Number of locks for keys with deadlines. Schedules have few keys, and some of them must share a lock.
const STRIPES: usize = if cfg!(shuttle) { 4 } else { 256 };

/// The tables of an index.
pub struct Tables {
    index: Arc<dyn Index<Bytes>>,
    clock: Clock,
    /// Writers of keys share it. Changes of the catalog, steps of the count, and transactions with scans exclude them.
    gate: RwLock<Gate>,
    /// True if the index has, or may have, entries of deadlines.
    has_deadlines: AtomicBool,
    stripes: Box<[Mutex<()>]>,
    /// Held during a step of background work.
    upkeep: Mutex<()>,
    /// True if the index takes no more writes: it was closed or is only read. Then there is no background work.
    has_ended: AtomicBool,
    /// Learns of each removal of an expired key.
    on_expired: RwLock<Option<OnExpired>>,
}

/// State that changes only while no write runs.
struct Gate {
    slots: BTreeMap<String, Arc<Slot>>,
    /// Numbers of dropped tables whose keys are not removed yet.
    dropped: Vec<u32>,
    /// Numbers that became free since the open. A cursor may still stand in their keys, so they are not used again.
    retired: Vec<u32>,
    counted: Counted,
    /// True if a write did not tell whether its key was present. Then the counts are wrong until [`Tables::count_all`] counts again: not in
    /// the background, because that would read the whole index again and again.
    is_stale: AtomicBool,
}

/// The progress of counting.
enum Counted {
    All,
    /// The keys up to this one are counted.
    To(Vec<u8>),
}

impl Slot {
    fn new(name: &str, id: u32) -> Self {
        Self { name: name.to_owned(), id: id.into(), keys: 0.into() }
    }

    /// The number in the stored keys.
    fn id(&self) -> Result<u32> {
        match self.id.load(Ordering::Acquire) {
            0 => Err(Error::Dropped),
            id => Ok(id),
        }
    }
}

impl Gate {
    fn new(catalog: Catalog) -> Self {
        let slots = catalog.ids.iter().map(|(name, id)| (name.clone(), Arc::new(Slot::new(name, *id))));
        let (dropped, retired) = (catalog.dropped, Vec::new());
        let (counted, is_stale) = (Counted::To(Vec::new()), AtomicBool::new(false));
        Self { slots: slots.collect(), dropped, retired, counted, is_stale }
    }

    fn catalog(&self) -> Catalog {
        let id = |slot: &Arc<Slot>| slot.id.load(Ordering::Acquire);
        Catalog {
            ids: self.slots.iter().map(|(name, slot)| (name.clone(), id(slot))).collect(),
            dropped: self.dropped.clone(),
        }
    }

    /// The table with this number. O(n) in the number of tables.
    fn slot_of(&self, id: u32) -> Option<&Arc<Slot>> {
        self.slots.values().find(|slot| slot.id.load(Ordering::Acquire) == id)
    }

    /// False if the count has not reached a stored key yet.
    fn is_counted(&self, stored: &[u8]) -> bool {
        match &self.counted {
            Counted::All => true,
            Counted::To(position) => stored <= position.as_slice(),
        }
    }

    /// True if all tables have their numbers of keys.
    fn has_counts(&self) -> bool {
        matches!(self.counted, Counted::All) && !self.is_stale.load(Ordering::Relaxed)
    }

    /// Counts a write of a key that [is counted](Self::is_counted) (T5). `None`: it is not known whether the key was there.
    fn note_set(&self, slot: &Slot, is_counted: bool, was_there: Option<bool>, is_there: bool) {
        match was_there {
            _ if !is_counted => {}
            None => self.is_stale.store(true, Ordering::Relaxed),
            Some(was_there) if was_there == is_there => {}
            Some(true) => _ = slot.keys.fetch_sub(1, Ordering::Relaxed),
            Some(false) => _ = slot.keys.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Counts a write of a stored key (T5).
    fn note(&self, slot: &Slot, stored: &[u8], was_there: bool, is_there: bool) {
        self.note_set(slot, self.is_counted(stored), Some(was_there), is_there);
    }
}

impl Tables {
    /// The tables of an ordered index.
    ///
    /// # Errors
    /// `Corrupt` if the catalog is damaged; those of reads.
    pub fn open(index: Arc<dyn Index<Bytes>>, found: Found, clock: Clock) -> Result<Arc<Self>> {
        let tables = Self {
            gate: RwLock::new(Gate::new(Catalog::default())),
            has_deadlines: AtomicBool::new(false),
            upkeep: Mutex::default(),
            has_ended: AtomicBool::new(false),
            on_expired: RwLock::default(),
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            index,
            clock,
        };
        let mut gate = tables.exclusive();
        tables.load(&mut gate, matches!(found, Found::Clean { .. }))?;
        if let Found::New = found {
            gate.counted = Counted::All;
        }
        drop(gate);
        Ok(Arc::new(tables))
    }

    /// The table that always exists.
    #[must_use]
    pub fn default_table(self: &Arc<Self>) -> Table {
        let slot = Arc::clone(&self.shared().slots[catalog::DEFAULT]);
        Table::new(Arc::clone(self), slot)
    }

    /// Reads the catalog, and the counts of a clean close.
    fn load(&self, gate: &mut Gate, is_clean: bool) -> Result<()> {
        let mut bytes = Vec::new();
        let catalog = match self.index.get(keys::CATALOG, Some(&mut bytes))? {
            true => Catalog::decode(&bytes)?,
            false => Catalog::default(),
        };
        let counts = is_clean && self.index.get(keys::COUNTS, Some(&mut bytes))?;
        let counts = counts.then(|| catalog::decode_counts(&bytes)).flatten();
        // The first key after the entries may be damaged. Then the index may have deadlines.
        let has_deadlines = match self.first_entry() {
            Err(Error::Corrupt { .. }) => true,
            entry => entry?.is_some(),
        };
        self.has_deadlines.store(has_deadlines, Ordering::Release);
        let former = std::mem::replace(gate, Gate::new(catalog));
        gate.retired = former.retired;
        // Handles of tables that still exist go on.
        for (name, slot) in former.slots {
            let id = gate.slots.get(&name).map_or(0, |new| new.id.load(Ordering::Acquire));
            slot.id.store(id, Ordering::Release);
            slot.keys.store(0, Ordering::Relaxed);
            if id != 0 {
                gate.slots.insert(name, slot);
            }
        }
        if let Some(counts) = counts {
            for slot in gate.slots.values() {
                let keys = counts.get(&slot.id.load(Ordering::Acquire)).copied().unwrap_or(0);
                slot.keys.store(keys, Ordering::Relaxed);
            }
            gate.counted = Counted::All;
        }
        Ok(())
    }

    /// The key of the first entry of a deadline.
    fn first_entry(&self) -> Result<Option<Vec<u8>>> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut cursor = self.index.cursor();
        cursor.seek(Bound::Included(DEADLINES), false)?;
        Ok((cursor.next(&mut key, &mut value)? && key.starts_with(DEADLINES)).then_some(key))
    }

    fn now(&self) -> u64 {
        (self.clock.0)()
    }

    /// True if a value with this deadline is absent.
    fn is_past(&self, deadline: Option<u64>) -> bool {
        deadline.is_some_and(|deadline| deadline <= self.now())
    }

    fn has_deadlines(&self) -> bool {
        self.has_deadlines.load(Ordering::Acquire)
    }

    fn shared(&self) -> RwLockReadGuard<'_, Gate> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn exclusive(&self) -> RwLockWriteGuard<'_, Gate> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock of a stored key's deadline.
    fn stripe(&self, stored: &[u8]) -> MutexGuard<'_, ()> {
        self.lock_stripe(stripe_of(stored))
    }

    fn lock_stripe(&self, number: usize) -> MutexGuard<'_, ()> {
        self.stripes[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work`, whose writes do not wait for commits. Then waits for all of them, if `how` has `sync`. So `work` holds no lock across a
    /// sync.
    fn deferred<R>(&self, how: WriteOptions, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let (result, ticket) = defer_waits(work);
        let result = result?;
        if how.sync {
            self.index.wait_for_ticket(ticket)?;
        }
        Ok(result)
    }
}

/// Number of a stored key's lock.
fn stripe_of(stored: &[u8]) -> usize {
    crc32c::crc32c(stored) as usize % STRIPES
}
