//! The protocol of memcached: the text commands and the meta commands of memcached 1.6.18, over a table of the store.
//!
//! [`session`] serves a connection. [`parse`] splits its bytes into requests, with [`words`] and [`options`]. [`commands`] runs text
//! commands, [`meta`] runs meta commands, [`stats`] answers `stats`. Items are values of the table [`Settings::table`]; [`item`] has
//! their bytes. A second table, whose name has `.state` behind it, has two records: `CAS` and `FLUSH`.
//!
//! Invariants:
//! * C1: each command is one atomic change of one key (`get` with many keys: one for each key). A reply is written when everything that
//!   its command wrote or read is durable.
//! * C2: two writes never give the same unique number (cas), also across restarts: the record `CAS` is larger than every number that was
//!   given. It is written before the first number of its range is used. If FLUSHALL removed the record, the numbers go on with the time
//!   of the restart in microseconds, which is larger unless a million writes a second ran since the first start.
//! * C3: a delayed `flush_all` is the record `FLUSH`. No command runs between its time and its end. So a write after it is not lost, also
//!   across a crash.
//! * C4: a read writes nothing durable, unless it changes the item: `gat`, and `mg` with `T`, with `N` for an absent item, or with a reply
//!   `W`.

pub mod commands;
pub mod item;
pub mod meta;
pub mod options;
pub mod parse;
pub mod recent;
pub mod session;
pub mod stats;
pub mod words;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bristlecone::{Deadline, Store};

use crate::scripts::functions;
use crate::shared::{DATABASES, Databases, MEMCACHED, Shared, lock, unix_time};
use crate::structures;
use recent::Recent;
use stats::Totals;

/// The version that `version` reports: clients choose commands by it.
pub const VERSION: &str = "1.6.18";
/// The record of the numbers that may have been given, big-endian.
const CAS: &[u8] = b"cas";
/// The record of a delayed `flush_all`: its time in milliseconds since 1970, big-endian.
const FLUSH: &[u8] = b"flush";
/// Numbers that one write of the record reserves.
const CAS_RESERVED: u64 = 1 << 20;
/// A larger expiry is a time since 1970.
const RELATIVE_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;
/// Behind the name of the table: the name of the table of the records.
const STATE: &str = ".state";
/// Maximum length of a table's name.
const NAME_BYTES_MAX: usize = 255;

/// Settings of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the table of items.
    pub table: String,
    /// Maximum size of an item ([`item::size`]).
    pub item_bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { table: "memcached".to_owned(), item_bytes_max: 1 << 20 }
    }
}

/// Minimum of [`Settings::item_bytes_max`].
pub const ITEM_BYTES_MIN: usize = 1 << 10;
/// Maximum of [`Settings::item_bytes_max`]. The header of an item has space beside it.
pub const ITEM_BYTES_MAX: usize = bristlecone::TABLE_VALUE_BYTES_MAX;

/// The reason why the protocol cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The table has a name that the server itself uses.
    #[error(
        "the table of memcached cannot have the name {0:?}: the server uses it, or it is longer than 249 bytes. Choose another one"
    )]
    Table(String),
    /// The limit of items is too small or too large.
    #[error(
        "the limit of memcached's items is {0} bytes: choose one between {ITEM_BYTES_MIN} and {ITEM_BYTES_MAX}"
    )]
    ItemBytes(usize),
    /// The tables cannot be opened.
    #[error("the table of memcached cannot be opened: {0}")]
    Store(#[from] bristlecone::Error),
}

impl Settings {
    /// Checks the settings.
    ///
    /// # Errors
    /// `Table`, `ItemBytes`.
    pub fn check(&self) -> Result<(), Error> {
        let is_number = self.table.parse::<usize>().is_ok_and(|number| number < DATABASES);
        let is_long = self.table.len() + STATE.len() > NAME_BYTES_MAX;
        let is_taken = [structures::TABLE, functions::TABLE].contains(&&*self.table);
        if self.table.is_empty() || is_number || is_long || is_taken {
            return Err(Error::Table(self.table.clone()));
        }
        match (ITEM_BYTES_MIN..=ITEM_BYTES_MAX).contains(&self.item_bytes_max) {
            true => Ok(()),
            false => Err(Error::ItemBytes(self.item_bytes_max)),
        }
    }
}

/// The end of an item's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// The item has this deadline.
    Until(Deadline),
    /// The item has expired already.
    Over,
}

impl Life {
    /// The life of an item with this expiry, at this time in milliseconds since 1970. The expiry is 0 for none, a number of seconds up to
    /// 30 days, or a time in seconds since 1970.
    #[must_use]
    pub fn new(exptime: i64, now: u64) -> Self {
        let millis = u64::try_from(exptime).map(|seconds| seconds.saturating_mul(1000));
        match millis {
            Err(_) => Self::Over,
            Ok(0) => Self::Until(None),
            Ok(millis) if exptime <= RELATIVE_SECONDS_MAX => Self::Until(Some(now.saturating_add(millis))),
            Ok(millis) if millis > now => Self::Until(Some(millis)),
            Ok(_) => Self::Over,
        }
    }
}

/// The state of the protocol, shared by its connections.
#[derive(Debug)]
pub struct Memcached {
    /// The table of the records.
    state: Store,
    /// The settings.
    pub settings: Settings,
    next_cas: AtomicU64,
    /// The record [`CAS`].
    reserved_cas: AtomicU64,
    /// Held while the record [`CAS`] is written.
    reserving: Mutex<()>,
    /// The record [`FLUSH`]. 0: none.
    flush_at: AtomicU64,
    /// Held while the record [`FLUSH`] is written or obeyed.
    flushing: Mutex<()>,
    /// Reads of items.
    pub recent: Recent,
    /// Counters for `stats`.
    pub totals: Totals,
}

/// A number in a record.
fn number(record: Option<Vec<u8>>) -> u64 {
    record.and_then(|record| record.try_into().ok()).map_or(0, u64::from_be_bytes)
}

impl Memcached {
    /// Opens the tables.
    ///
    /// # Errors
    /// Those of [`Settings::check`]; `Store`.
    pub fn open(databases: &Databases, store: &Store, settings: Settings) -> Result<Self, Error> {
        settings.check()?;
        databases.get(MEMCACHED)?;
        let state = store.table(&format!("{}{STATE}", settings.table))?;
        let micros = u64::try_from(unix_time().as_micros()).unwrap_or(0);
        let reserved = number(state.get(CAS)?);
        let flush_at = number(state.get(FLUSH)?);
        Ok(Self {
            next_cas: AtomicU64::new(reserved.max(micros)),
            reserved_cas: AtomicU64::new(0),
            reserving: Mutex::default(),
            flush_at: AtomicU64::new(flush_at),
            flushing: Mutex::default(),
            recent: Recent::default(),
            totals: Totals::default(),
            state,
            settings,
        })
    }

    /// A unique number for a write (C2).
    ///
    /// # Errors
    /// Those of writing the record.
    pub fn new_cas(&self) -> bristlecone::Result<u64> {
        let cas = self.next_cas.fetch_add(1, Ordering::Relaxed);
        if cas >= self.reserved_cas.load(Ordering::Acquire) {
            let _reserving = lock(&self.reserving);
            if cas >= self.reserved_cas.load(Ordering::Acquire) {
                let reserved = cas + CAS_RESERVED;
                self.state.put(CAS, &reserved.to_be_bytes())?;
                self.reserved_cas.store(reserved, Ordering::Release);
            }
        }
        Ok(cas)
    }

    /// Removes all items now, or when the life of an item with this expiry ends. The newest call counts.
    ///
    /// # Errors
    /// Those of the store.
    pub fn flush(&self, shared: &Shared, exptime: i64) -> bristlecone::Result<()> {
        let _flushing = lock(&self.flushing);
        match Life::new(exptime, shared.store.now()?) {
            Life::Until(Some(at)) => {
                self.state.put(FLUSH, &at.to_be_bytes())?;
                self.flush_at.store(at, Ordering::Release);
                Ok(())
            }
            Life::Until(None) | Life::Over => self.clear(shared),
        }
    }

    fn clear(&self, shared: &Shared) -> bristlecone::Result<()> {
        shared.databases.get(MEMCACHED)?.clear()?;
        if self.flush_at.load(Ordering::Acquire) > 0 {
            self.state.delete(FLUSH)?;
            self.flush_at.store(0, Ordering::Release);
        }
        Ok(())
    }

    /// Obeys a delayed `flush_all` whose time has come (C3). Each command calls this first.
    ///
    /// # Errors
    /// Those of the store.
    pub fn flush_if_due(&self, shared: &Shared) -> bristlecone::Result<()> {
        if self.flush_at.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let now = shared.store.now()?;
        let is_due = || (1..=now).contains(&self.flush_at.load(Ordering::Acquire));
        if is_due() {
            let _flushing = lock(&self.flushing);
            if is_due() {
                self.clear(shared)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_relative_up_to_thirty_days() {
        let now = 1_800_000_000_500;
        let cases = [
            (0, Life::Until(None)),
            (-1, Life::Over),
            (i64::MIN, Life::Over),
            (1, Life::Until(Some(now + 1000))),
            (2_592_000, Life::Until(Some(now + 2_592_000_000))),
            (2_592_001, Life::Over),
            (1_800_000_000, Life::Over),
            (1_800_000_001, Life::Until(Some(1_800_000_001_000))),
            (4_102_444_800, Life::Until(Some(4_102_444_800_000))),
            (i64::MAX, Life::Until(Some(u64::MAX))),
        ];
        for (exptime, life) in cases {
            assert_eq!(Life::new(exptime, now), life, "{exptime}");
        }
    }

    #[test]
    fn the_table_has_a_name_of_its_own() {
        let check = |table: &str| Settings { table: table.to_owned(), ..Settings::default() }.check();
        for name in ["", "0", "15", "structures", "functions", &"n".repeat(250)] {
            assert!(matches!(check(name), Err(Error::Table(_))), "{name}");
        }
        for name in ["memcached", "16", &"n".repeat(249)] {
            assert!(check(name).is_ok(), "{name}");
        }
        for bytes in [0, ITEM_BYTES_MIN - 1, ITEM_BYTES_MAX + 1] {
            let settings = Settings { item_bytes_max: bytes, ..Settings::default() };
            assert!(matches!(settings.check(), Err(Error::ItemBytes(_))));
        }
    }
}
