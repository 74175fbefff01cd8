//! LMDB, through heed: a copy-on-write B+-tree in a mapped file, one writer at a time.
//!
//! Process durability: `NO_SYNC` with `WRITE_MAP`. A commit stores into the shared map and returns. The kernel keeps the pages of a dead
//! process. The two meta pages alternate, so an interrupted commit leaves the meta page of the previous commit. (`MAP_ASYNC` would add a
//! system call.) Power durability: the default. A commit writes its pages, syncs the file, and writes the meta page through a descriptor
//! that was opened with `O_DSYNC`. So a commit waits for the disk twice, in the sync and in the write of the meta page, but only the first
//! of them is a sync call.
//!
//! Each get is a separate read transaction: an older transaction would not see later commits (rule P3 of [the crate](crate)).
#![allow(unsafe_code)]

use std::ops::Bound;
use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, WithoutTls};

use crate::{Competitor, Kind, Options, Promise, Result, Session, refused};

const NAME: &str = "lmdb";

pub(crate) const KIND: Kind = Kind { name: NAME, setting, open };

/// Map bytes per byte of a pair. Random inserts leave pages two thirds full, and pages that a reader may still see are not reused at once.
/// The map uses address space only.
const MAP_BYTES_PER_BYTE: u64 = 16;
const MAP_BYTES_MIN: u64 = 1 << 30;
/// Maximum number of simultaneous sessions.
const READERS_MAX: u32 = 1024;

fn setting(promise: Promise) -> &'static str {
    match promise {
        Promise::Process => "WRITEMAP with NOSYNC: a commit is stores into the shared map",
        Promise::Power => "its default: pages, fdatasync, then the meta page through an O_DSYNC descriptor",
    }
}

struct Lmdb {
    env: Env<WithoutTls>,
    pairs: Database<Bytes, Bytes>,
}

fn open(path: &Path, options: &Options) -> Result<Box<dyn Competitor>> {
    let map_bytes = (options.bytes_max * MAP_BYTES_PER_BYTE).max(MAP_BYTES_MIN).next_multiple_of(1 << 20);
    let mut open = EnvOpenOptions::new().read_txn_without_tls();
    open.map_size(map_bytes as usize).max_readers(READERS_MAX);
    if options.memory_bytes.is_some() {
        // SAFETY: a hint for the kernel. LMDB recommends the flag for data that is larger than the memory.
        unsafe { open.flags(EnvFlags::NO_READ_AHEAD) };
    }
    if options.promise == Promise::Process {
        // SAFETY: without syncs, a loss of power may leave a damaged file. It is never opened again, because it is removed after the
        // measurement. Only LMDB writes into the map.
        unsafe { open.flags(EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP) };
    }
    // SAFETY: the directory belongs to the benchmark: no other process changes the file under the map.
    let env = unsafe { open.open(path) }.map_err(refused(NAME, "open its files"))?;
    let mut transaction = env.write_txn().map_err(refused(NAME, "begin a transaction"))?;
    let pairs = env.create_database(&mut transaction, None).map_err(refused(NAME, "make its table"))?;
    transaction.commit().map_err(refused(NAME, "commit"))?;
    Ok(Box::new(Lmdb { env, pairs }))
}

impl Competitor for Lmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Handle(self)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

struct Handle<'a>(&'a Lmdb);

impl Session for Handle<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch(&[(key, value)])
    }

    fn batch(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<()> {
        let mut transaction = self.0.env.write_txn().map_err(refused(NAME, "begin a transaction"))?;
        for (key, value) in pairs {
            self.0.pairs.put(&mut transaction, key, value).map_err(refused(NAME, "put"))?;
        }
        transaction.commit().map_err(refused(NAME, "commit"))
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let transaction = self.0.env.read_txn().map_err(refused(NAME, "begin reading"))?;
        let found = self.0.pairs.get(&transaction, key).map_err(refused(NAME, "get"))?;
        value.clear();
        value.extend_from_slice(found.unwrap_or_default());
        Ok(found.is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        let mut transaction = self.0.env.write_txn().map_err(refused(NAME, "begin a transaction"))?;
        self.0.pairs.delete(&mut transaction, key).map_err(refused(NAME, "delete"))?;
        transaction.commit().map_err(refused(NAME, "commit"))
    }

    fn scan(&mut self, from: &[u8], limit: u64, met: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let transaction = self.0.env.read_txn().map_err(refused(NAME, "begin reading"))?;
        let range =
            (if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) }, Bound::Unbounded);
        let pairs = self.0.pairs.range(&transaction, &range).map_err(refused(NAME, "scan"))?;
        let mut count = 0;
        for pair in pairs.take(usize::try_from(limit).unwrap_or(usize::MAX)) {
            let (key, value) = pair.map_err(refused(NAME, "scan"))?;
            met(key, value);
            count += 1;
        }
        Ok(count)
    }
}
