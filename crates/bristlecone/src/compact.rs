//! Compaction: a store written anew, in key order if its engine has one, so that its file has what its pairs take (and of each kind and size of block
//! at most one chunk of 256 KiB that is begun and not full).
//!
//! The space of deleted keys is used again by later ones, but the file never shrinks by itself. Here the pairs are loaded
//! into a new file beside the store's, into nearly full leaves; when that is whole and durable it takes the store's name. A
//! journal stays: it holds nothing then, and the new file is made its data file. So there is one name that changes, in one step.
//!
//! | step | a crash before it |
//! |---|---|
//! | the store is opened by whoever compacts, alone | the store |
//! | pairs are loaded into a file under a temporary name | the store; the file is removed when the store is opened next |
//! | they are counted and checked; the file is closed as a store is, and synced | the same |
//! | the store is closed: its journal holds nothing | the same |
//! | the file gets the page that pairs it with the journal, synced | the same |
//! | the file gets the store's name: the commit point; the directory is synced | the store, or the new one, each whole |
//!
//! The store is for its compactor alone meanwhile: nobody else has it open, in this process or another. There must be space for
//! both files.

use std::fs::File;
use std::path::Path;

use pmem::copy::{Progress, Target};
use pmem::system;

use crate::error::{Error, Result};
use crate::options::Options;
use crate::registry::Open;
use crate::rewrite::{Written, write_pairs};
use crate::store::StoreOf;
use crate::store_dir::{FILE_NAME, JOURNAL_NAME, StoreDir, io, sync_dir};
use ::index::kind::{Bytes, Fixed, U64};

/// What a compaction came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Compacted {
    /// Keys in the store.
    pub keys: u64,
    /// Bytes of its file before.
    pub bytes_before: u64,
    /// Bytes of its file now.
    pub bytes: u64,
}

/// Writes the store in `dir`, which must not be open, anew. `progress` gets the number of keys that are written, and of all keys.
///
/// # Errors
/// `Missing`; `NoRoom` if the file system has no space for both files; `Pmem`: `Locked` if the store is in use, `Corrupt` if a pair
/// of it cannot be read, `Io`. The store is as it was then, unless the error is that of the last step, the sync of the directory.
pub fn compact(dir: &Path, progress: Progress<'_>) -> Result<Compacted> {
    // What is in it is known when it is open.
    match compact_kind::<Bytes>(dir, progress) {
        Err(Error::Pmem(pmem::Error::Mismatch { .. })) => {}
        other => return other,
    }
    match compact_kind::<U64>(dir, progress) {
        Err(Error::Pmem(pmem::Error::Mismatch { .. })) => compact_kind::<Fixed>(dir, progress),
        other => other,
    }
}

fn compact_kind<K: Open>(dir: &Path, progress: Progress<'_>) -> Result<Compacted> {
    let store = StoreOf::<K>::open(dir, Options { create: false, ..Options::default() })?;
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
    // Old and new file are locked until here, so nobody has met a name that may not stay.
    sync_dir(dir)?;
    Ok(compacted)
}

/// Writes the store's pairs to a file, makes that a store in all but name, and closes both. Returns the number of keys.
fn write<K: Open>(store: &StoreOf<K>, path: &Path, file: &File, progress: Progress<'_>) -> Result<u64> {
    let stats = store.stats();
    let origin = if stats.journal.is_some() { pmem::journal::ORIGIN } else { 0 };
    let to = Target { file, path, origin };
    let mut scan = store.walk();
    let next = &mut |key: &mut K::KeyBuf, value: &mut K::ValueBuf| scan.next_into(key, value);
    let Written { pairs, check } = write_pairs::<K>(&stats, &to, store.len().keys, progress, next)?;
    drop(scan);
    let keys = store.count()?;
    store.close()?;
    if [pairs, check.keys] != [keys; 2] || !check.problems.is_empty() {
        return Err(Error::Option(format!(
            "the compacted store would hold {} of {keys} keys{}: the store is as it was; run `check`",
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
