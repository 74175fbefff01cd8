//! redb: a copy-on-write B+-tree in a file with its own cache, one writer at a time.
//!
//! Power durability: the default `Durability::Immediate`, which syncs in each commit. Process durability: the same commits on a file whose
//! syncs do nothing. `Durability::None` would be cheaper but is not durable enough: such a commit stays in the memory of the process until
//! the next `Immediate` one, and `kill -9` loses it. On the file without syncs, an `Immediate` commit still writes everything to the file,
//! so the kernel has it; only the wait for the disk is omitted.
//!
//! Each get is a separate read transaction: an older transaction would not see later commits (rule P3 of [the crate](crate)).

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use redb::backends::FileBackend;
use redb::{Database, Durability, ReadableDatabase, StorageBackend, TableDefinition};

use crate::{Competitor, Kind, Options, Promise, Result, Session, refused};

const NAME: &str = "redb";
const PAIRS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("pairs");
const FILE_NAME: &str = "redb";

pub(crate) const KIND: Kind = Kind { name: NAME, setting, open };

fn setting(promise: Promise) -> &'static str {
    match promise {
        Promise::Process => {
            "Durability::Immediate over a file whose syncs do nothing: commits of Durability::None are lost by kill -9"
        }
        Promise::Power => "its default, Durability::Immediate",
    }
}

/// A file whose syncs do nothing.
#[derive(Debug)]
struct Unsynced(FileBackend);

impl StorageBackend for Unsynced {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}

struct Redb {
    database: Database,
}

fn open(path: &Path, options: &Options) -> Result<Box<dyn Competitor>> {
    let path = path.join(FILE_NAME);
    let mut open = OpenOptions::new();
    let file = open.read(true).write(true).create(true).truncate(false).open(path);
    let backend = FileBackend::new(file.map_err(refused(NAME, "make its file"))?)
        .map_err(refused(NAME, "use its file"))?;
    let mut builder = Database::builder();
    builder.set_cache_size(options.cache_bytes() as usize);
    let database = match options.promise {
        Promise::Process => builder.create_with_backend(Unsynced(backend)),
        Promise::Power => builder.create_with_backend(backend),
    };
    let database = database.map_err(refused(NAME, "open its file"))?;
    let redb = Redb { database };
    // The table must exist before the first read. A write makes it.
    redb.session()?.batch(&[])?;
    Ok(Box::new(redb))
}

impl Competitor for Redb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Handle(&self.database)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.close().map_err(refused(NAME, "close"))
    }
}

struct Handle<'a>(&'a Database);

impl Handle<'_> {
    fn commit(
        &self,
        write: impl FnOnce(&mut redb::Table<'_, &[u8], &[u8]>) -> std::result::Result<(), redb::StorageError>,
    ) -> Result<()> {
        let mut transaction = self.0.begin_write().map_err(refused(NAME, "begin a transaction"))?;
        transaction.set_durability(Durability::Immediate).map_err(refused(NAME, "keep its promise"))?;
        {
            let mut table = transaction.open_table(PAIRS).map_err(refused(NAME, "open its table"))?;
            write(&mut table).map_err(refused(NAME, "write"))?;
        }
        transaction.commit().map_err(refused(NAME, "commit"))
    }
}

impl Session for Handle<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch(&[(key, value)])
    }

    fn batch(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<()> {
        self.commit(|table| pairs.iter().try_for_each(|(key, value)| table.insert(key, value).map(drop)))
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let transaction = self.0.begin_read().map_err(refused(NAME, "begin reading"))?;
        let table = transaction.open_table(PAIRS).map_err(refused(NAME, "open its table"))?;
        let found = table.get(key).map_err(refused(NAME, "get"))?;
        value.clear();
        if let Some(found) = &found {
            value.extend_from_slice(found.value());
        }
        Ok(found.is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.commit(|table| table.remove(key).map(drop))
    }

    fn scan(&mut self, from: &[u8], limit: u64, met: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let transaction = self.0.begin_read().map_err(refused(NAME, "begin reading"))?;
        let table = transaction.open_table(PAIRS).map_err(refused(NAME, "open its table"))?;
        let mut count = 0;
        let pairs = table.range(from..).map_err(refused(NAME, "scan"))?;
        for pair in pairs.take(usize::try_from(limit).unwrap_or(usize::MAX)) {
            let (key, value) = pair.map_err(refused(NAME, "scan"))?;
            met(key.value(), value.value());
            count += 1;
        }
        Ok(count)
    }
}
