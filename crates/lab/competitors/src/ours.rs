//! Bristlecone behind the interface of its competitors, through its public API only.

use std::ops::Bound;
use std::path::Path;

use bristlecone::{Durability, Store};

use crate::{Competitor, Kind, Options, Promise, Result, Session, refused};

/// The name of Bristlecone in reports.
pub const NAME: &str = "bristlecone";

/// Bristlecone with its default engine.
pub const KIND: Kind = Kind { name: NAME, setting, open };

fn setting(promise: Promise) -> &'static str {
    match promise {
        Promise::Process => "Durability::Process: stores into the mapped file",
        Promise::Power => {
            "Durability::Power: a journal with one fdatasync for all that wait; flushes and fences on memory file systems"
        }
    }
}

struct Ours(Store);

fn open(path: &Path, options: &Options) -> Result<Box<dyn Competitor>> {
    open_as(path, bristlecone::Options::default().durability(durability(options.promise)))
}

/// The durability of a store that survives these failures.
pub fn durability(promise: Promise) -> Durability {
    match promise {
        Promise::Process => Durability::Process,
        Promise::Power => Durability::Power,
    }
}

/// Opens a store with the given options.
///
/// # Errors
/// Errors of opening the store.
pub fn open_as(path: &Path, options: bristlecone::Options) -> Result<Box<dyn Competitor>> {
    Ok(Box::new(Ours(Store::open(path, options).map_err(refused(NAME, "open its file"))?)))
}

impl Competitor for Ours {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Handle(&self.0)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.0.close().map_err(refused(NAME, "close"))
    }
}

struct Handle<'a>(&'a Store);

impl Session for Handle<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        // As the other stores, it need not tell whether the key was present.
        self.0.set(key, value).map_err(refused(NAME, "set"))
    }

    fn batch(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<()> {
        let mut batch = self.0.batch();
        pairs.iter().for_each(|(key, value)| _ = batch.put(key, value));
        batch.commit().map(drop).map_err(refused(NAME, "commit"))
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.0.get_into(key, value).map_err(refused(NAME, "get"))
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.0.unset(key).map_err(refused(NAME, "unset"))
    }

    fn scan(&mut self, from: &[u8], limit: u64, met: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let from = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from.to_vec()) };
        let mut pairs = self.0.scan((from, Bound::Unbounded));
        let mut count = 0;
        // As the other stores, it need not copy pairs.
        let visit = |key: &[u8], value: &[u8]| {
            met(key, value);
            count += 1;
            count < limit
        };
        if limit > 0 {
            pairs.visit(visit).map_err(refused(NAME, "scan"))?;
        }
        Ok(count)
    }
}
