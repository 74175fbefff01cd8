//! Salvage of stores in files ([`crate::in_files`]).
//!
//! The identity must be readable: it has the kind of keys and values. Every other file may be damaged or missing. The pairs are read in the
//! order in which they were written, so the new store has the newest value that can be read.

use std::fs::File;
use std::path::Path;

use ::index::Kind as _;
use ::index::engine::TableOps;
use ::index::kind::U64;
use ::index::schema::TABLES;

use crate::error::Result;
use crate::in_files::Identity;
use crate::options::Options;
use crate::salvage::{SalvageReport, UNSYNCED};
use crate::store::{Store, StoreU64};
use crate::store_dir::{FILE_NAME, io};

/// Copies every pair that can be read into a new store in `new_dir`.
///
/// # Errors
/// As [`salvage`](crate::salvage()).
pub(crate) fn salvage(
    dir: &Path,
    new_dir: &Path,
    identity: &Identity,
    progress: &dyn Fn(f64),
) -> Result<SalvageReport> {
    let path = dir.join(FILE_NAME);
    let file = pmem::system::open(File::options().read(true), &path)
        .map_err(|source| io("cannot open", &path, source))?;
    pmem::file::lock_for_reading(&file, &path)?;
    let has_tables = identity.kind.ends_with(TABLES);
    let options = Options::default()
        .engine(&*identity.engine)
        .durability(identity.durability)
        .compression(identity.compression(dir)?)
        .tables(has_tables);
    let mut keys = 0i64;
    let lost = if identity.kind == U64::NAME {
        let store = StoreU64::open(new_dir, options)?.with(UNSYNCED);
        let new = store.engine().stored();
        let mut apply = |key: &u64, value: Option<&u64>| {
            let was_there = match value {
                Some(value) => new.put(key, value, UNSYNCED)?,
                None => new.delete(key, UNSYNCED)?,
            };
            keys += i64::from(value.is_some()) - i64::from(was_there);
            Ok(())
        };
        let lost = identity.read::<bwtree::Words>(dir, &mut apply, progress)?;
        store.close()?;
        lost
    } else {
        let store = Store::open(new_dir, options)?.with(UNSYNCED);
        let new = store.engine().stored();
        let mut apply = |key: &[u8], value: Option<&[u8]>| {
            if has_tables {
                keys += ::index::tables::repeat(&**new, key, value)?;
                return Ok(());
            }
            let was_there = match value {
                Some(value) => new.put(key, value, UNSYNCED)?,
                None => new.delete(key, UNSYNCED)?,
            };
            keys += i64::from(value.is_some()) - i64::from(was_there);
            Ok(())
        };
        let lost = identity.read::<bwtree::Bytes>(dir, &mut apply, progress)?;
        store.index().tables().map_or(Ok(()), TableOps::adopt)?;
        store.close()?;
        lost
    };
    Ok(SalvageReport {
        from_leaves: keys.unsigned_abs(),
        damaged_leaves: lost.leaves,
        superblock_lost: lost.checkpoint,
        journal_lost: lost.log,
        complete: lost == Default::default(),
        kind: identity.kind.clone(),
        ..SalvageReport::default()
    })
}
