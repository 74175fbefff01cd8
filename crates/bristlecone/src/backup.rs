//! Backups: a store's state as of one moment, made a store of its own in another directory.
//!
//! A store that this process has open gives a snapshot, whose pairs are written into a new region; readers and writers go on. A store that
//! is closed, that another process has open, or that has named versions is copied as a crash at that moment would leave it
//! ([`pmem::copy`], [`pmem::journal::copy_files`]). The copy is opened, which recovers it, and closed, which counts its keys; only then
//! does it get its name. So a backup is found as after a clean close, and that it opens is known.
//!
//! The moment of such a copy of the region: over a journal the end of a group of writes, while writers go on until the journal is full.
//! Elsewhere the writer's lock is held while the file is copied. Readers always go on.
//!
//! | step | a crash before it |
//! |---|---|
//! | the region is copied into a file under a temporary name | no backup: files under temporary names, overwritten by the next |
//! | it gets a journal of its own, if it is to have one | the same |
//! | it is opened and closed | the same |
//! | names, as in making a store ([`StoreDir::finish`]) | the same, or a whole backup |
//!
//! A backup has a journal if the store has one; on another kind of file system, if a new store there would have one. So a store
//! in memory is backed up to a disk, and from there to memory again, and has everywhere what suits the place.

use std::path::{Path, PathBuf};

use pmem::copy::{Progress, Target};
use pmem::system;

use crate::durable_engine::Engine;
use crate::error::{Error, Result};
use crate::registry::{self, Open};
use crate::rewrite;
use crate::store_dir::{CopyForm, FILE_NAME, Hold, JOURNAL_NAME, StoreDir, io};

/// What a backup holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Backup {
    /// Keys in it.
    pub keys: u64,
    /// Bytes of its region.
    pub bytes: u64,
}

/// Makes a backup in `target` of the store in `dir`, which is only read. It may be closed, or left by a crash; another process may
/// have it open if it has a journal. `target` does not exist or is empty. `progress` is told bytes copied, and of how many.
///
/// A store that this process has open is backed up with [`Store::backup`](crate::Store::backup).
///
/// # Errors
/// `Missing` if there is no store; `InUse` if another process has it open and it has no journal; else as
/// [`Store::backup`](crate::Store::backup).
pub fn backup(dir: &Path, target: &Path, progress: Progress<'_>) -> Result<Backup> {
    let place = StoreDir::look(dir)?;
    let journal_path = dir.join(JOURNAL_NAME);
    let capacity = pmem::journal::capacity_of(&journal_path).unwrap_or(pmem::journal::CAPACITY);
    make(target, CopyForm::new(&place.promise, capacity), progress, &|to, progress| {
        if place.promise.journaled {
            let beside = place.hold == Hold::BesideWriter;
            return Ok(pmem::journal::copy_files(&place.path, &journal_path, beside, to, progress)?);
        }
        place.copy_mapped(to, progress)
    })
}

/// Makes a backup in `dir` of the store that `engine` has open.
///
/// # Errors
/// As [`Store::backup`](crate::Store::backup).
pub(crate) fn of_engine<K: Open>(engine: &Engine<K>, dir: &Path, progress: Progress<'_>) -> Result<Backup> {
    // Its memory may differ from the files by what recovery stored, so the files are read once more.
    if let Some(store_dir) = engine.read_only_dir() {
        return backup(store_dir.path.parent().unwrap_or(Path::new(".")), dir, progress);
    }
    let form = engine.form_of_copy()?;
    // What was written without sync before the call is there too.
    engine.commit()?;
    let has_names = engine.history().is_some_and(|history| !history.versions().named.is_empty());
    make(dir, form, progress, &|to, progress| match has_names {
        true => engine.copy_region(to, progress),
        false => copy_pairs(engine, to, progress),
    })
}

/// Writes the pairs of a snapshot, so that writers go on.
fn copy_pairs<K: Open>(engine: &Engine<K>, to: &Target<'_>, progress: Progress<'_>) -> Result<()> {
    let view = engine.snapshot()?;
    let mut cursor = view.cursor();
    cursor.walk(None)?;
    let total = engine.len().keys;
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

/// Copies a region's bytes.
pub(crate) type Copy<'a> = &'a dyn Fn(&Target<'_>, Progress<'_>) -> Result<()>;

/// Makes a store in `dir` of the region that `copy` copies.
///
/// # Errors
/// `Option` if there is something in `dir`; `NoRoom`; what `copy` says, and what opening the copy says.
pub(crate) fn make(dir: &Path, form: CopyForm, progress: Progress<'_>, copy: Copy<'_>) -> Result<Backup> {
    let removal = Removal { existed: refuse_full(dir)?, dir };
    let place = StoreDir::for_copy(dir, form).inspect_err(|_| removal.remove_dir())?;
    let made = fill(&place, form, progress, copy).and_then(|made| place.finish().map(|()| made));
    // The files are locked until the place is dropped: what is removed is ours.
    made.map_err(|error| {
        removal.remove();
        removal.explain(error)
    })
}

fn fill(place: &StoreDir, form: CopyForm, progress: Progress<'_>, copy: Copy<'_>) -> Result<Backup> {
    let (path, journal_path) = place.new_paths();
    let origin = if place.promise.journaled { pmem::journal::ORIGIN } else { 0 };
    copy(&Target { file: &place.file, path: &path, origin }, progress)?;
    let bytes =
        system::inspect(&place.file, &path).map_err(|source| io("cannot inspect", &path, source))?.len()
            - origin;
    if place.promise.journaled {
        let file =
            system::duplicate(&place.file, &path).map_err(|source| io("cannot open", &path, source))?;
        let capacity = form.journal_bytes.unwrap_or(pmem::journal::CAPACITY);
        pmem::journal::pair(file, &path, &journal_path, capacity)?;
    }
    Ok(Backup { keys: registry::close_copy(place)?, bytes })
}

/// Refuses a directory with anything in it but what an unfinished store left. True if it exists.
fn refuse_full(dir: &Path) -> Result<bool> {
    let names = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        other => other.map_err(|source| io("cannot look into", dir, source))?,
    };
    let names = names.map(|entry| entry.map(|entry| entry.file_name())).collect::<std::io::Result<Vec<_>>>();
    let names = names.map_err(|source| io("cannot look into", dir, source))?;
    let has = |name: &Path| names.iter().any(|found| found == name.as_os_str());
    if has(Path::new(FILE_NAME)) {
        return Err(Error::Option(format!(
            "{} already holds a store: name a directory that does not exist or is empty",
            dir.display()
        )));
    }
    let [new, new_journal] = StoreDir::new_names().map(Path::new);
    // Named after its store's file is whole, and before that has its name.
    let unfinished =
        |name: &Path| name == new || name == new_journal || name == Path::new(JOURNAL_NAME) && has(new);
    if let Some(name) = names.iter().find(|name| !unfinished(Path::new(name))) {
        return Err(Error::Option(format!(
            "{} is not empty ({} is there): name a directory that does not exist or is empty",
            dir.display(),
            Path::new(name).display()
        )));
    }
    Ok(true)
}

/// Removes what was made of a store that came to nothing.
struct Removal<'a> {
    dir: &'a Path,
    existed: bool,
}

impl Removal<'_> {
    /// The store's own name first: from then on there is none. What cannot be removed bears no name of a store.
    fn remove(&self) {
        let [new, new_journal] = StoreDir::new_names();
        for name in [FILE_NAME, JOURNAL_NAME, new, new_journal] {
            let _ = system::remove_file(&self.dir.join(name));
        }
        self.remove_dir();
    }

    /// Removes the directory if it is empty and was made for this.
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
