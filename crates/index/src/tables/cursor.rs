//! Cursors, snapshots and versions of a table.

use std::ops::{Bound, Deref};
use std::sync::PoisonError;

use pmem::Result;

use super::catalog::Catalog;
use super::keys::{self, untag};
use super::{Tables, table::Table};
use crate::engine::{Cursor, History, Retain, Versions, View};
use crate::kind::Bytes;

/// A cursor over a table. It hides the table's number, deadlines, and keys whose deadline has passed.
struct TableCursor<'a> {
    stored: Box<dyn Cursor<Bytes> + 'a>,
    of: Of<'a>,
    /// The first bytes of the table's keys.
    prefix: Vec<u8>,
}

/// The contents that a cursor reads.
enum Of<'a> {
    /// The current contents of a table.
    Current(&'a Table),
    /// The contents of the table with this number at one moment. Deadlines are judged by `now`.
    Moment { id: u32, now: u64 },
}

impl Table {
    /// Makes a cursor of the table from a cursor of the index.
    pub(super) fn cursor_over<'a>(
        &'a self,
        stored: Box<dyn Cursor<Bytes> + 'a>,
    ) -> Box<dyn Cursor<Bytes> + 'a> {
        Box::new(TableCursor { stored, of: Of::Current(self), prefix: Vec::new() })
    }

    /// The table with this number, in a view of the index.
    pub(super) fn view<'a>(
        &'a self,
        stored: Box<dyn View<Bytes> + 'a>,
        id: u32,
    ) -> Box<dyn View<Bytes> + 'a> {
        Box::new(TableView { stored, id, now: self.tables.now() })
    }

    /// The table in a version of the index. `None` if the table did not exist then, or if the catalog of the version cannot be read.
    fn version<'a>(&'a self, stored: Box<dyn View<Bytes> + 'a>) -> Option<Box<dyn View<Bytes> + 'a>> {
        let id = number_in(&*stored, &self.slot.name).ok()??;
        Some(self.view(stored, id))
    }
}

/// The number of a table in a view of the index. `None` if the table did not exist then.
fn number_in(stored: &(impl View<Bytes> + ?Sized), name: &str) -> Result<Option<u32>> {
    let mut bytes = Vec::new();
    let catalog = match stored.get(keys::CATALOG, &mut bytes)? {
        true => Catalog::decode(&bytes)?,
        false => Catalog::default(),
    };
    Ok(catalog.ids.get(name).copied())
}

impl Cursor<Bytes> for TableCursor<'_> {
    fn seek(&mut self, from: Bound<&[u8]>, descending: bool) -> Result<()> {
        let id = match self.of {
            Of::Current(table) => table.slot.id()?,
            Of::Moment { id, .. } => id,
        };
        self.prefix = keys::range(id).0;
        let from = keys::bound(id, from, descending);
        self.stored.seek(from.as_ref().map(Vec::as_slice), descending)
    }

    fn next(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool> {
        let prefix = self.prefix.as_slice();
        while self.stored.next(key, value)? && without_prefix(key, prefix).is_some() {
            if !self.of.is_past(untag(value)?) {
                key.drain(..prefix.len());
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn visit(&mut self, with: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool> {
        let (prefix, of) = (self.prefix.as_slice(), &self.of);
        let mut end = Ok(true);
        let is_stopped = self.stored.visit(&mut |key, value| {
            let Some(key) = without_prefix(key, prefix) else {
                end = Ok(false);
                return false;
            };
            match keys::split_value(value) {
                Ok((_, deadline)) if of.is_past(deadline) => true,
                Ok((value, _)) => with(key, value),
                Err(error) => {
                    end = Err(error);
                    false
                }
            }
        })?;
        Ok(end? && is_stopped)
    }
}

/// The part of a key behind a prefix. `None` if it does not begin with that. Byte by byte: a prefix is so short that a call takes longer.
fn without_prefix<'k>(key: &'k [u8], prefix: &[u8]) -> Option<&'k [u8]> {
    let (first, rest) = key.split_at_checked(prefix.len())?;
    first.iter().zip(prefix).all(|(a, b)| a == b).then_some(rest)
}

impl Of<'_> {
    /// True if a deadline has passed.
    fn is_past(&self, deadline: Option<u64>) -> bool {
        match self {
            Of::Current(table) => table.tables.is_past(deadline),
            Of::Moment { now, .. } => deadline.is_some_and(|deadline| deadline <= *now),
        }
    }
}

/// A table at one moment, in a view of the index. Deadlines are judged by the time at which the view was opened.
struct TableView<S> {
    stored: S,
    id: u32,
    now: u64,
}

impl<S: Deref<Target: View<Bytes>> + Send + Sync> View<Bytes> for TableView<S> {
    fn version(&self) -> Option<u64> {
        self.stored.version()
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        if !self.stored.get(&keys::StoredKey::new(self.id, key), value)? {
            return Ok(false);
        }
        Ok(untag(value)?.is_none_or(|deadline| deadline > self.now))
    }

    fn cursor(&self) -> Box<dyn Cursor<Bytes> + '_> {
        let of = Of::Moment { id: self.id, now: self.now };
        Box::new(TableCursor { stored: self.stored.cursor(), of, prefix: Vec::new() })
    }

    fn table(&self, name: &str) -> Result<Option<Box<dyn View<Bytes> + '_>>> {
        let id = number_in(&*self.stored, name)?;
        Ok(id.map(|id| Box::new(TableView { stored: &*self.stored, id, now: self.now }) as _))
    }
}

/// Number of stored keys that are not those of tables.
fn keys_beside_tables(view: &dyn View<Bytes>) -> Result<u64> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let (mut cursor, mut keys) = (view.cursor(), 0);
    cursor.seek(Bound::Unbounded, false)?;
    while cursor.next(&mut key, &mut value)? && key.as_slice() < keys::FIRST_TABLE {
        keys += 1;
    }
    Ok(keys)
}

impl Table {
    fn versions_of(&self) -> &dyn History<Bytes> {
        self.tables.index.history().expect("a table has versions only if its index has")
    }
}

impl History<Bytes> for Table {
    fn at(&self, version: u64) -> Option<Box<dyn View<Bytes> + '_>> {
        self.version(self.versions_of().at(version)?)
    }

    fn named(&self, name: &str) -> Option<Box<dyn View<Bytes> + '_>> {
        self.version(self.versions_of().named(name)?)
    }

    /// The number of keys of a named version is that of all tables. Keys of dropped tables that were not removed yet count. O(n) in the
    /// number of deadlines.
    fn versions(&self) -> Versions {
        let mut versions = self.versions_of().versions();
        for named in &mut versions.named {
            let view = self.versions_of().named(&named.name);
            let others = view.and_then(|view| keys_beside_tables(&*view).ok()).unwrap_or_default();
            named.keys = named.keys.saturating_sub(others);
        }
        versions
    }

    fn keep(&self, name: &str) -> Result<bool> {
        self.versions_of().keep(name)
    }

    fn forget(&self, name: &str) -> Result<bool> {
        self.versions_of().forget(name)
    }

    fn retain(&self, what: Retain) {
        self.versions_of().retain(what);
    }

    /// Rolls back all tables, with their names.
    fn roll_back(&self, version: u64) -> Result<bool> {
        self.tables.roll_back(|| self.versions_of().roll_back(version))
    }
}

impl Tables {
    /// Runs a rollback while no write runs, and reads the catalog again.
    fn roll_back(&self, roll_back: impl FnOnce() -> Result<bool>) -> Result<bool> {
        // A step of the background must not remove keys of a table that the rollback brings back.
        let _step = self.upkeep.lock().unwrap_or_else(PoisonError::into_inner);
        let mut gate = self.exclusive();
        let done = roll_back()?;
        if done {
            self.load(&mut gate, false)?;
        }
        Ok(done)
    }
}
