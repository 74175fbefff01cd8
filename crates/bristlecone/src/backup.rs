//! Backup: copies the state of a store at one moment into a new store in another directory.
//!
//! There are two methods:
//! * A store that this process has open for writing and that has no named versions: the pairs of a snapshot are written into a new region.
//! * Every other store is copied byte by byte. The copy has the bytes that a crash at the moment of the copy would leave ([`pmem::copy`],
//!   [`pmem::journal::copy_files`]).
//!
//! With both methods, the backup then opens the new store, which recovers it, and closes it, which counts its keys. At the end the new
//! files get their names.
//!
//! Reads continue during a backup. In a store with a journal, a byte copy has the state at the end of a write group, and writes continue
//! until the journal is full. In a store without a journal, a byte copy holds the writer's lock, so writes wait.
//!
//! Invariant: with both methods, the new region file gets its final name only after the backup has opened and closed the new store. So a
//! region file with its final name opens as after a clean close.
//!
//! The commit point is the last rename of [`StoreDir::finish`].
//!
//! | step | state after a crash in this step |
//! |---|---|
//! | the region is copied or written into a file under a temporary name | no backup; files under temporary names, which the next backup overwrites |
//! | the copy gets its own journal, if it is a store with a journal | the same |
//! | the copy is opened and closed | the same |
//! | the files get their names ([`StoreDir::finish`]) | the same, or a complete backup |
//!
//! On a file system of the same kind as the store's, a backup has a journal if the store has one. On a file system of another kind, it has
//! a journal if a new store there would have one. So a store in memory can be backed up to a disk, and from there to memory again.

use std::path::{Path, PathBuf};

use ::index::engine::Count;
use pmem::copy::{Progress, Target};
use pmem::system;

use crate::durable_engine::Engine;
use crate::error::{Error, Result};
use crate::in_files;
use crate::options::Options;
use crate::registry::{self, Open};
use crate::rewrite;
use crate::store_dir::{CopyForm, FILE_NAME, Hold, JOURNAL_NAME, StoreDir, io, is_part, remove_parts};
use crate::tabled::count;

/// The result of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Backup {
    /// Number of keys of all tables.
    pub keys: u64,
    /// True if `keys` is an estimate: a backup of a `bwtree` in files that is open or was not closed cleanly does not read all pages.
    pub keys_pending: bool,
    /// Bytes of the region.
    pub bytes: u64,
}

/// Makes a backup in `target` of the store in `dir`. Only reads the store. The store may be closed, or left by a crash. Another process may
/// have it open if it has a journal. `target` must not exist, or must be empty. `progress` gets the number of copied bytes and of all
/// bytes. Takes time linear in the size of the region.
///
/// For a store that this process has open, use [`Store::backup`](crate::Store::backup).
///
/// # Errors
/// `Missing` if there is no store; `InUse` if another process has it open and it has no journal; otherwise as
/// [`Store::backup`](crate::Store::backup).
pub fn backup(dir: &Path, target: &Path, progress: Progress<'_>) -> Result<Backup> {
    if let Some(identity) = in_files::Identity::of_store(dir)? {
        let _lock = StoreDir::look(dir)?;
        return of_files(&identity, target, &|to| identity.copy(dir, to, progress));
    }
    let store_dir = StoreDir::look(dir)?;
    let journal_path = dir.join(JOURNAL_NAME);
    let capacity = pmem::journal::capacity_of(&journal_path).unwrap_or(pmem::journal::CAPACITY);
    make(target, CopyForm::new(&store_dir.promise, capacity), progress, &|to, progress| {
        if store_dir.promise.journaled {
            let beside = store_dir.hold == Hold::BesideWriter;
            return Ok(pmem::journal::copy_files(&store_dir.path, &journal_path, beside, to, progress)?);
        }
        store_dir.copy_mapped(to, progress)
    })
}

/// Makes a backup in `dir` of the open store of `engine`.
///
/// # Errors
/// As [`Store::backup`](crate::Store::backup).
pub(crate) fn of_engine<K: Open>(engine: &Engine<K>, dir: &Path, progress: Progress<'_>) -> Result<Backup> {
    // Recovery changed the memory of a store that is only read. So the backup reads the files again.
    if let Some(store_dir) = engine.read_only_dir() {
        return backup(store_dir.path.parent().unwrap_or(Path::new(".")), dir, progress);
    }
    if let Some(identity) = engine.identity_in_files()? {
        let known = count(&**engine.index());
        let made = of_files(&identity, dir, &|to| Ok(engine.stored().copy_files(to, progress)?))?;
        // Others may have written meanwhile, so this stays an estimate, but it is a better one.
        let is_better = made.keys_pending && !known.pending;
        return Ok(if is_better { Backup { keys: known.keys, ..made } } else { made });
    }
    let form = engine.form_of_copy()?;
    // A backup contains the writes without sync from before the call.
    engine.commit()?;
    let has_names = engine.history().is_some_and(|history| !history.versions().named.is_empty());
    make(dir, form, progress, &|to, progress| match has_names {
        true => engine.copy_region(to, progress),
        false => copy_pairs(engine, to, progress),
    })
}

/// Writes the pairs of a snapshot. Writers go on.
fn copy_pairs<K: Open>(engine: &Engine<K>, to: &Target<'_>, progress: Progress<'_>) -> Result<()> {
    let view = engine.stored().snapshot()?;
    let mut cursor = view.cursor();
    cursor.walk(None)?;
    let total = engine.stored().len().keys;
    let written = rewrite::write_pairs::<K>(&engine.stats(), to, total, progress, &mut |key, value| {
        Ok(cursor.next(key, value)?)
    })?;
    match written.check.problems.first() {
        None if written.check.keys == written.pairs => Ok(()),
        problem => Err(Error::Option(format!(
            "the backup would hold {} of {} keys{}: nothing was made; run `check` on the store",
            written.check.keys,
            written.pairs,
            problem.map(|problem| format!(" ({problem})")).unwrap_or_default(),
        ))),
    }
}

/// Copies the bytes of a region.
pub(crate) type Copy<'a> = &'a dyn Fn(&Target<'_>, Progress<'_>) -> Result<()>;

/// Makes a store in `dir` from the region that `copy` copies.
///
/// # Errors
/// `Option` if `dir` is not empty; `NoRoom`; the errors of `copy` and of opening the copy.
pub(crate) fn make(dir: &Path, form: CopyForm, progress: Progress<'_>, copy: Copy<'_>) -> Result<Backup> {
    let removal = Removal { existed: refuse_full(dir)?, dir };
    let store_dir = StoreDir::for_copy(dir, form).inspect_err(|_| removal.remove_dir())?;
    let made = fill(&store_dir, form, progress, copy).and_then(|made| store_dir.finish().map(|()| made));
    // The files stay locked until `store_dir` is dropped. So the removed files are those of this backup.
    made.map_err(|error| {
        removal.remove();
        removal.explain(error)
    })
}

fn fill(store_dir: &StoreDir, form: CopyForm, progress: Progress<'_>, copy: Copy<'_>) -> Result<Backup> {
    let (path, journal_path) = store_dir.new_paths();
    let origin = if store_dir.promise.journaled { pmem::journal::ORIGIN } else { 0 };
    copy(&Target { file: &store_dir.file, path: &path, origin }, progress)?;
    let bytes =
        system::inspect(&store_dir.file, &path).map_err(|source| io("cannot inspect", &path, source))?.len()
            - origin;
    if store_dir.promise.journaled {
        let file =
            system::duplicate(&store_dir.file, &path).map_err(|source| io("cannot open", &path, source))?;
        let capacity = form.journal_bytes.unwrap_or(pmem::journal::CAPACITY);
        pmem::journal::pair(file, &path, &journal_path, capacity)?;
    }
    Ok(Backup { keys: registry::close_copy(store_dir)?, keys_pending: false, bytes })
}

/// Makes a store in `target` of the files that `copy` copies there. Returns its number of keys and bytes.
///
/// # Errors
/// `Option` if `target` is not empty; `NoRoom`; the errors of `copy` and of opening the copy.
fn of_files(
    identity: &in_files::Identity,
    target: &Path,
    copy: &dyn Fn(&Path) -> Result<u64>,
) -> Result<Backup> {
    refuse_full(target)?;
    let options = Options { in_files: true, ..Options::default().durability(identity.durability) };
    let store_dir = StoreDir::take(target, &options)?;
    let made = (|| {
        if !store_dir.fresh {
            return Err(Error::Option(format!(
                "{} holds a store by now: name another directory",
                target.display()
            )));
        }
        let bytes = copy(target)?;
        let Count { keys, pending } = registry::close_files(identity, target)?;
        identity.write(&store_dir)?;
        store_dir.finish()?;
        Ok(Backup { keys, keys_pending: pending, bytes })
    })();
    made.map_err(|error| {
        if !store_dir.fresh {
            return error;
        }
        remove_parts(target);
        let error = store_dir.give_up(error);
        match error {
            Error::NotMade { path, bytes } => Error::NoRoom { what: "the backup", path, bytes },
            Error::Pmem(pmem::Error::NoSpace { bytes, .. }) => {
                Error::NoRoom { what: "the backup", path: target.to_owned(), bytes }
            }
            other => other,
        }
    })
}

/// Refuses a directory with any other contents than those of an unfinished store. True if the directory exists.
fn refuse_full(dir: &Path) -> Result<bool> {
    let names = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        other => other.map_err(|source| io("cannot inspect", dir, source))?,
    };
    let names = names.map(|entry| entry.map(|entry| entry.file_name())).collect::<std::io::Result<Vec<_>>>();
    let names = names.map_err(|source| io("cannot inspect", dir, source))?;
    let has = |name: &Path| names.iter().any(|found| found == name.as_os_str());
    if has(Path::new(FILE_NAME)) {
        return Err(Error::Option(format!(
            "{} already holds a store: name a directory that does not exist or is empty",
            dir.display()
        )));
    }
    let [new, new_journal] = StoreDir::new_names().map(Path::new);
    // The journal gets its name after the store's file is complete, and before that file gets its name.
    let unfinished = |name: &Path| {
        name == new || name == new_journal || (name == Path::new(JOURNAL_NAME) || is_part(name)) && has(new)
    };
    if let Some(name) = names.iter().find(|name| !unfinished(Path::new(name))) {
        return Err(Error::Option(format!(
            "{} is not empty ({} is there): name a directory that does not exist or is empty",
            dir.display(),
            Path::new(name).display()
        )));
    }
    Ok(true)
}

/// Removes the files of a failed backup.
struct Removal<'a> {
    dir: &'a Path,
    existed: bool,
}

impl Removal<'_> {
    /// Removes the store's name first. After that there is no store, even if other files cannot be removed.
    fn remove(&self) {
        let [new, new_journal] = StoreDir::new_names();
        for name in [FILE_NAME, JOURNAL_NAME, new, new_journal] {
            let _ = system::remove_file(&self.dir.join(name));
        }
        self.remove_dir();
    }

    /// Removes the directory if it is empty and this backup made it.
    fn remove_dir(&self) {
        if !self.existed {
            let _ = system::remove_dir(self.dir);
        }
    }

    fn explain(&self, error: Error) -> Error {
        let within = |path: &PathBuf| path.starts_with(self.dir);
        match error {
            Error::Pmem(pmem::Error::NoSpace { path, bytes }) if within(&path) => {
                Error::NoRoom { what: "the backup", path: self.dir.to_owned(), bytes }
            }
            other => other,
        }
    }
}
