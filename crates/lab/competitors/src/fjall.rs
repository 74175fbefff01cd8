//! fjall: a log-structured merge tree with a journal.
//!
//! Process durability: the default. Each write hands the journal's buffer to the kernel, which keeps it after the death of the process.
//! Power durability: a put is followed by `persist(SyncData)`, a batch is committed with the mode `SyncData`. The journal's lock is held
//! during the sync, so writers do not share a sync.

use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::{Competitor, Kind, Options, Promise, Result, SETTLE_PAUSE, Session, refused};

const NAME: &str = "fjall";

pub(crate) const KIND: Kind = Kind { name: NAME, setting, open };

fn setting(promise: Promise) -> &'static str {
    match promise {
        Promise::Process => "its default: each write goes from the journal's buffer to the kernel",
        Promise::Power => "persist(SyncData) after each put, durability(SyncData) of each batch",
    }
}

struct Fjall {
    database: Database,
    pairs: Keyspace,
    promise: Promise,
}

fn open(path: &Path, options: &Options) -> Result<Box<dyn Competitor>> {
    let (buffer_bytes, cache_bytes) = options.split_cache();
    let database = Database::builder(path).cache_size(cache_bytes).open();
    let database = database.map_err(refused(NAME, "open its files"))?;
    let pairs = database.keyspace("pairs", || {
        let defaults = KeyspaceCreateOptions::default();
        match buffer_bytes {
            Some(bytes) => defaults.max_memtable_size(bytes),
            None => defaults,
        }
    });
    let pairs = pairs.map_err(refused(NAME, "open its keyspace"))?;
    Ok(Box::new(Fjall { database, pairs, promise: options.promise }))
}

impl Competitor for Fjall {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Handle(self)))
    }

    fn settle(&self) -> Result<()> {
        while self.database.outstanding_flushes() + self.database.active_compactions() > 0 {
            std::thread::sleep(SETTLE_PAUSE);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        let mode = match self.promise {
            Promise::Process => PersistMode::Buffer,
            Promise::Power => PersistMode::SyncAll,
        };
        self.database.persist(mode).map_err(refused(NAME, "close"))
    }
}

struct Handle<'a>(&'a Fjall);

impl Handle<'_> {
    /// Makes the last write as durable as promised.
    fn kept(&self) -> Result<()> {
        match self.0.promise {
            Promise::Process => Ok(()),
            Promise::Power => self.0.database.persist(PersistMode::SyncData).map_err(refused(NAME, "sync")),
        }
    }
}

impl Session for Handle<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.pairs.insert(key, value).map_err(refused(NAME, "put"))?;
        self.kept()
    }

    fn batch(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<()> {
        let mode = match self.0.promise {
            Promise::Process => PersistMode::Buffer,
            Promise::Power => PersistMode::SyncData,
        };
        let mut batch = self.0.database.batch().durability(Some(mode));
        for (key, value) in pairs {
            batch.insert(&self.0.pairs, *key, *value);
        }
        batch.commit().map_err(refused(NAME, "commit"))
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.0.pairs.get(key).map_err(refused(NAME, "get"))?;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.0.pairs.remove(key).map_err(refused(NAME, "delete"))?;
        self.kept()
    }

    fn scan(&mut self, from: &[u8], limit: u64, met: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut count = 0;
        for pair in self.0.pairs.range(from..).take(usize::try_from(limit).unwrap_or(usize::MAX)) {
            let (key, value) = pair.into_inner().map_err(refused(NAME, "scan"))?;
            met(&key, &value);
            count += 1;
        }
        Ok(count)
    }
}
