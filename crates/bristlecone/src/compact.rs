//! Compaction: rewrites a store, so that its file shrinks to the size of its pairs. With an ordered engine, it writes the pairs in key
//! order.
//!
//! Later keys use the space of deleted keys, but the file of a store never shrinks by itself. A compaction loads the pairs into a new file
//! beside the store's file, into nearly full leaves. For each kind and size of block at most one chunk of 256 KiB remains partly empty.
//! When the new file is complete and durable, it gets the store's name. The store keeps its journal, which is empty at that point. The new
//! file becomes the journal's data file.
//!
//! Invariant: no other handle, in this process or another one, has the store open during a compaction. The file system needs space for both
//! files. Without it the compaction fails and the old store stays.
//!
//! A store in files (`in_files`) is cleaned in place instead.
//!
//! The commit point is the rename of the new file to the store's name.
//!
//! | step | state after a crash during the step |
//! |---|---|
//! | the compaction opens the store and locks it | the old store |
//! | the pairs are loaded into a file under a temporary name | the old store; the next open removes the new file |
//! | the keys of the new index are counted and checked; the new file is closed cleanly and synced | the same |
//! | the store is closed, which empties its journal | the same |
//! | if the store has a journal: the new file gets the page that pairs it with the journal, and is synced | the same |
//! | the new file gets the store's name; the directory is synced | the old store or the new one, complete |

use std::fs::File;
use std::path::Path;

use pmem::copy::{Progress, Target};
use pmem::system;

use crate::error::{Error, Result};
use crate::in_files;
use crate::options::Options;
use crate::registry::Open;
use crate::rewrite::{Written, write_pairs};
use crate::store::StoreOf;
use crate::store_dir::{FILE_NAME, JOURNAL_NAME, StoreDir, io, sync_dir};
use ::index::Kind as _;
use ::index::engine::TableOps;
use ::index::kind::{Bytes, Fixed, U64};

/// The result of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Compacted {
    /// Number of keys.
    pub keys: u64,
    /// Bytes of the store's file, or of all its files, before.
    pub bytes_before: u64,
    /// Bytes of the store's file, or of all its files, after.
    pub bytes: u64,
}

/// Compacts the store in `dir`, which must not be open. `progress` gets the number of written keys and of all keys. Takes time linear in
/// the size of the pairs.
///
/// # Errors
/// `Missing`; `NoRoom` if the file system has no space for both files; `NotCompiled` or `UnknownEngine` if this program does not have the
/// store's engine; `Option` if the new index does not have all keys; `Pmem`: `Locked` if the store is in use, `Corrupt` if a pair cannot be
/// read, `Io`. After an error the store is unchanged. Only the last step, the sync of the directory, is an exception: if it fails, the new
/// file already has the store's name, but a power failure can bring back the old one.
pub fn compact(dir: &Path, progress: Progress<'_>) -> Result<Compacted> {
    if let Some(identity) = in_files::Identity::of_store(dir)? {
        return match identity.kind == U64::NAME {
            true => compact_files::<U64>(dir, progress),
            false => compact_files::<Bytes>(dir, progress),
        };
    }
    // The kind of a store is known when it is open.
    match compact_kind::<Bytes>(dir, progress) {
        Err(Error::Pmem(pmem::Error::Mismatch { .. })) => {}
        other => return other,
    }
    match compact_kind::<U64>(dir, progress) {
        Err(Error::Pmem(pmem::Error::Mismatch { .. })) => compact_kind::<Fixed>(dir, progress),
        other => other,
    }
}

/// Compacts a store in files. It stays whole at every step: its cleaner moves images and makes checkpoints, as it always does.
fn compact_files<K: Open>(dir: &Path, progress: Progress<'_>) -> Result<Compacted> {
    let bytes_of = || -> Result<u64> {
        let entries = std::fs::read_dir(dir).map_err(|source| io("cannot read directory", dir, source))?;
        let names =
            entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(FILE_NAME));
        Ok(names.filter_map(|entry| entry.metadata().ok()).map(|about| about.len()).sum())
    };
    let bytes_before = bytes_of()?;
    let store = StoreOf::<K>::open(dir, Options::default().create(false))?;
    store.engine().stored().compact_files(progress)?;
    let keys = store.engine().keys()?;
    store.close()?;
    drop(store);
    Ok(Compacted { keys, bytes_before, bytes: bytes_of()? })
}

fn compact_kind<K: Open>(dir: &Path, progress: Progress<'_>) -> Result<Compacted> {
    let store = StoreOf::<K>::open(dir, Options::default().create(false))?;
    let path = dir.join(FILE_NAME);
    let bytes_of = |path: &Path| -> Result<u64> {
        Ok(std::fs::metadata(path).map_err(|source| io("cannot inspect", path, source))?.len())
    };
    let bytes_before = bytes_of(&path)?;
    let (new_path, file) = StoreDir::file_beside(dir)?;
    let written = write(&store, &new_path, &file, progress).and_then(|keys| {
        let bytes = bytes_of(&new_path)?;
        system::rename(&new_path, &path).map_err(|source| io("cannot rename to", &path, source))?;
        Ok(Compacted { keys, bytes_before, bytes })
    });
    let compacted = written.map_err(|error| {
        let _ = system::remove_file(&new_path);
        match error {
            Error::Pmem(pmem::Error::NoSpace { .. }) => Error::NoRoom {
                what: "the compacted store beside it",
                path: dir.to_owned(),
                bytes: bytes_before,
            },
            other => other,
        }
    })?;
    // The old and the new file are locked until here. So no other process has seen a name that may not be durable.
    sync_dir(dir)?;
    Ok(compacted)
}

/// Writes the store's pairs to a file, makes that file a store in all but name, and closes both. Returns the number of keys.
fn write<K: Open>(store: &StoreOf<K>, path: &Path, file: &File, progress: Progress<'_>) -> Result<u64> {
    let stats = store.stats();
    let origin = if stats.journal.is_some() { pmem::journal::ORIGIN } else { 0 };
    let to = Target { file, path, origin };
    store.index().tables().map_or(Ok(()), TableOps::settle)?;
    let stored = store.engine().stored();
    let mut cursor = stored.cursor();
    cursor.walk(None)?;
    let next = &mut |key: &mut K::KeyBuf, value: &mut K::ValueBuf| Ok(cursor.next(key, value)?);
    stored.count_all()?;
    let all = stored.len().keys;
    let Written { pairs, check } = write_pairs::<K>(&stats, &to, all, progress, next)?;
    drop(cursor);
    let keys = store.engine().keys()?;
    store.close()?;
    if [pairs, check.keys] != [all; 2] || !check.problems.is_empty() {
        return Err(Error::Option(format!(
            "the compacted store would hold {} of {all} keys{}: the store is as it was; run `check`",
            check.keys,
            check.problems.first().map(|problem| format!(" ({problem})")).unwrap_or_default(),
        )));
    }
    if stats.journal.is_some() {
        let again = system::duplicate(file, path).map_err(|source| io("cannot open", path, source))?;
        pmem::journal::adopt(again, path, &path.with_file_name(JOURNAL_NAME))?;
        system::sync_all(file, path).map_err(|source| io("cannot sync", path, source))?;
    }
    Ok(keys)
}
