//! Salvage of stores in files ([`crate::in_files`]).
//!
//! Every file may be damaged or missing. The identity has the kind of keys and values; without it the kind is guessed from the pairs that
//! can be read. The pairs are read in the order in which they were written, so the new store has the newest value that can be read.

use std::fs::File;
use std::path::Path;

use ::index::Kind as _;
use ::index::engine::TableOps;
use ::index::kind::{Bytes, U64};
use ::index::schema::TABLES;

use pmem::Durability;

use crate::error::Result;
use crate::in_files::Identity;
use crate::options::Options;
use crate::salvage::{SalvageReport, UNSYNCED};
use crate::store::{Store, StoreU64};
use crate::store_dir::{FILE_NAME, io};

/// The engine whose stores are in files of their own.
const ENGINE: &str = "bwtree";

/// As [`salvage`], for a store whose identity is lost.
///
/// # Errors
/// As [`salvage`](crate::salvage()).
pub(crate) fn salvage_without_identity(
    dir: &Path,
    new_dir: &Path,
    progress: &dyn Fn(f64),
) -> Result<SalvageReport> {
    let identity = guess(dir)?;
    let report = salvage(dir, new_dir, &identity, progress)?;
    Ok(SalvageReport { superblock_lost: true, complete: false, ..report })
}

/// The most probable identity of a store: it has tables if each pair has the form of a pair of tables. Its keys are numbers if all keys and
/// values have their length, and more keys are above the one before as numbers than as byte strings: the pairs of a leaf are in key order.
/// The size of nodes is the default.
fn guess(dir: &Path) -> Result<Identity> {
    let about = crate::registry::engines().find(|about| about.name == ENGINE);
    let mut identity = Identity {
        id: logstore::salvage::store_id(dir, FILE_NAME)?.unwrap_or(0),
        engine: ENGINE.to_owned(),
        kind: Bytes::NAME.to_owned(),
        node_lines: about.map_or(1, |about| about.default_lines),
        durability: Durability::Power,
    };
    let (mut pairs, mut of_tables, mut of_numbers) = (0u64, 0u64, 0u64);
    // Keys above the one before.
    let (mut bytes_above, mut numbers_above) = (0u64, 0u64);
    let mut before: Option<[u8; 8]> = None;
    let mut count = |key: &[u8], value: Option<&[u8]>| {
        let Some(value) = value else { return Ok(()) };
        pairs += 1;
        of_tables += u64::from(::index::tables::is_pair(key, value));
        let number = <[u8; 8]>::try_from(key).ok().filter(|_| value.len() == 8);
        of_numbers += u64::from(number.is_some());
        if let Some((before, number)) = before.zip(number) {
            bytes_above += u64::from(before < number);
            numbers_above += u64::from(u64::from_le_bytes(before) < u64::from_le_bytes(number));
        }
        before = number;
        Ok(())
    };
    identity.read::<bwtree::Bytes>(dir, &mut count, &|_| {})?;
    if of_numbers == pairs && numbers_above > bytes_above {
        identity.kind = U64::NAME.to_owned();
    } else if pairs > 0 && of_tables == pairs {
        identity.kind += TABLES;
    }
    Ok(identity)
}

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
    let file = match pmem::system::open(File::options().read(true), &path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        file => Some(file.map_err(|source| io("cannot open", &path, source))?),
    };
    // Held until the end.
    file.as_ref().map_or(Ok(()), |file| pmem::file::lock_for_reading(file, &path))?;
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
