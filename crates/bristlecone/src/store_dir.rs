//! The directory of a store: its files, their locks, and the durability that the file system can provide.
//!
//! Invariants:
//! * A file with the store's name always has a superblock. A new store is made under a temporary name. The rename to the store's name is
//!   the commit point.
//! * A writer locks the file exclusively. Readers ([`StoreDir::look`]) take a shared lock, which excludes writers. If a writer has the lock
//!   and the store has a journal, a reader copies the state of one moment into memory. A reader changes nothing in the directory.
//! * An existing store with a journal keeps the journal. An existing store without a journal never gets one.
//!
//! On an ordinary file system a store has a journal ([`pmem::journal`]), unless it is made for [`Durability::Process`].

use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use pmem::copy::{Progress, Target};
use pmem::file::{Backing, backing_of, lock, lock_for_reading, memory_file};
use pmem::journal::{Journal, Replay};
use pmem::system;
use pmem::{Durability, Durable, Error as PmemError, Native};

use crate::error::{Error, Result};
use crate::options::Options;
use crate::stats::JournalStats;

/// Name of the region file inside a store's directory.
pub const FILE_NAME: &str = "store.bristlecone";
/// Name of the journal beside the region file.
pub const JOURNAL_NAME: &str = "store.bristlecone.journal";
const NEW_NAME: &str = "store.bristlecone.new";
const NEW_JOURNAL_NAME: &str = "store.bristlecone.new.journal";
/// Minimum size of a store's journal in bytes. Every change of every index takes only a small part of a write group of such a journal.
pub const JOURNAL_BYTES_MIN: u64 = 4 << 20;

/// The properties of a store that its copy needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyForm {
    /// Kind of file system.
    pub backing: Backing,
    /// Bytes of the journal; `None` without one.
    pub journal_bytes: Option<u64>,
}

impl CopyForm {
    /// The form of a store with this durability. `journal_bytes` counts only if it has a journal.
    pub fn new(promise: &Promise, journal_bytes: u64) -> Self {
        Self { backing: promise.backing, journal_bytes: promise.journaled.then_some(journal_bytes) }
    }
}

/// The file of a store, locked for this process, and the durability that it provides.
#[derive(Debug)]
pub struct StoreDir {
    /// Path of the region file.
    pub path: PathBuf,
    /// The locked file.
    pub file: File,
    /// True if the file is new and has a temporary name. Then format it and call [`StoreDir::finish`].
    pub fresh: bool,
    /// Access that other processes may have to the file.
    pub hold: Hold,
    /// The durability of the store, and its reason.
    pub promise: Promise,
    /// Time at which the file was locked.
    pub since: Instant,
    /// Number of directories that were made for it: the store's own and its parents.
    made_dirs: usize,
}

/// Access of other processes to a store's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// No other process may use them.
    Alone,
    /// Other processes may read them. No process may write.
    Readers,
    /// Another process writes to them. They have a journal.
    BesideWriter,
}

/// The durability of a store in its directory.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// Kind of file system.
    pub backing: Backing,
    /// The failures that acknowledged writes survive.
    pub durability: Durability,
    /// True if a journal is beside the file.
    pub journaled: bool,
    /// Kind of file, as text for users.
    pub medium: &'static str,
    /// The reason for the durability, as text for users.
    pub reason: &'static str,
}

impl StoreDir {
    /// Opens or makes the file of the store in `dir`, and locks it.
    ///
    /// # Errors
    /// `Missing` without `options.create`; `Option` if there is a journal without a store's file, or a size for the journal of a store that
    /// has none; `Pmem` if the directory or the file cannot be used or is in use, or the file system cannot provide the requested
    /// durability.
    pub fn take(dir: &Path, options: &Options) -> Result<Self> {
        let mut made_dirs = 0;
        match Self::take_or_make(dir, options, &mut made_dirs) {
            Ok(taken) => Ok(Self { made_dirs, ..taken }),
            Err(error) => {
                remove_dirs(dir, made_dirs);
                Err(error)
            }
        }
    }

    /// As [`StoreDir::take`]. Counts the directories that it makes, even if it fails.
    fn take_or_make(dir: &Path, options: &Options, made_dirs: &mut usize) -> Result<Self> {
        let path = dir.join(FILE_NAME);
        loop {
            match system::open(OpenOptions::new().read(true).write(true), &path) {
                Ok(file) => {
                    lock(&file, &path)?;
                    if !is_at(&file, &path)? {
                        continue; // another process replaced the file before this one got the lock
                    }
                    // Files with temporary names beside a store are from a compaction that a crash cut short.
                    Self::new_names().iter().for_each(|name| _ = system::remove_file(&dir.join(name)));
                    return Self::judge(path, file, false, options);
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(io("cannot open", &path, source)),
            }
            if !options.create {
                return Err(missing(dir));
            }
            make_dir(dir, made_dirs)?;
            let (new, journal) = (dir.join(NEW_NAME), dir.join(JOURNAL_NAME));
            // Beside an unfinished store the journal and the files belong to it. Alone they belong to a store whose file was moved away. A
            // new store would overwrite writes of that store.
            let alone = journal.exists().then(|| journal.clone()).or_else(|| parts(dir).next());
            if let Some(alone) = alone.filter(|_| !new.exists()) {
                if path.exists() {
                    continue; // another process finished making the store between the two checks
                }
                let whose = if alone == journal { "journal" } else { "files" };
                return Err(Error::Option(format!(
                    "{} is there without {FILE_NAME}: put the store's file back beside its {whose}, or remove the {whose} \
                     if that store is given up",
                    alone.display()
                )));
            }
            let file = open_new(&new)?;
            if path.exists() || !is_at(&file, &new)? {
                continue; // another process finished the store, or removed it, before this one got the lock
            }
            system::set_len(&file, &new, 0).map_err(|source| io("cannot truncate", &new, source))?;
            // The file is locked until it is removed. So no other process makes a store of it.
            let promise = Self::promised(&path, &file, true, options).inspect_err(|_| remove_new(dir))?;
            return Ok(Self::of(path, file, true, promise));
        }
    }

    /// Makes the file of a store that will be a copy of a store of this form, under its temporary name.
    ///
    /// # Errors
    /// As [`StoreDir::take`]; `Option` if another process has made a store there.
    pub(crate) fn for_copy(dir: &Path, form: CopyForm) -> Result<Self> {
        let options = Options::default();
        let mut store_dir = Self::take(dir, &options)?;
        if !store_dir.fresh {
            return Err(Error::Option(format!(
                "{} holds a store by now: name another directory",
                dir.display()
            )));
        }
        if store_dir.promise.backing == form.backing {
            store_dir.promise = promise(form.backing, Some(form.journal_bytes.is_some()), &options)?;
        }
        Ok(store_dir)
    }

    /// Temporary names of the file of a store and of its journal.
    pub(crate) fn new_names() -> [&'static str; 2] {
        [NEW_NAME, NEW_JOURNAL_NAME]
    }

    /// Temporary paths of the file of a new store and of its journal.
    pub(crate) fn new_paths(&self) -> (PathBuf, PathBuf) {
        (self.path.with_file_name(NEW_NAME), self.path.with_file_name(NEW_JOURNAL_NAME))
    }

    /// Removes the unfinished files of a store that could not be made, and the directories that were made for it. Returns `error` in terms
    /// of the store.
    pub(crate) fn give_up(&self, error: Error) -> Error {
        let dir = parent_of(&self.path);
        remove_new(dir);
        remove_dirs(dir, self.made_dirs);
        match error {
            Error::Pmem(PmemError::NoSpace { bytes, .. }) => Error::NotMade { path: dir.to_owned(), bytes },
            other => with_lasting_name(other),
        }
    }

    /// Removes the store in `dir`. After a crash half-way, the directory holds either the store or an unfinished one, which the next
    /// creation overwrites.
    ///
    /// # Errors
    /// `Missing`; `Pmem` if the store is in use or a system call fails.
    pub fn remove(dir: &Path) -> Result<()> {
        let options = Options::default().create(false);
        let store_dir = Self::take(dir, &options)?;
        let (new, _) = store_dir.new_paths();
        system::rename(&store_dir.path, &new)
            .map_err(|source| io("cannot rename", &store_dir.path, source))?;
        sync_dir(dir)?;
        remove_parts(dir);
        let journal = dir.join(JOURNAL_NAME);
        if store_dir.promise.journaled {
            system::remove_file(&journal).map_err(|source| io("cannot remove", &journal, source))?;
            sync_dir(dir)?;
        }
        system::remove_file(&new).map_err(|source| io("cannot remove", &new, source))?;
        sync_dir(dir)
    }

    /// The memory of a new store whose file is a copy of a region.
    ///
    /// # Errors
    /// As [`StoreDir::memory`].
    pub(crate) fn memory_of_copy(&self) -> Result<(Durable, Option<Replay>)> {
        let (path, journal_path) = self.new_paths();
        let file = system::duplicate(&self.file, &path).map_err(|source| io("cannot open", &path, source))?;
        let max_bytes = Options::default().max_bytes;
        if !self.promise.journaled {
            let native = Native::map(file, &path, max_bytes, self.promise.durability)?;
            return Ok((native.into(), None));
        }
        let (journal, replay) = Journal::open(file, &path, &journal_path, max_bytes)?;
        Ok((Arc::new(journal).into(), Some(replay)))
    }

    /// Makes an empty, locked file beside the store in `dir`, which will replace the store's file. The caller has the store open.
    ///
    /// # Errors
    /// `Pmem` if the file cannot be made.
    pub(crate) fn file_beside(dir: &Path) -> Result<(PathBuf, File)> {
        let path = dir.join(NEW_NAME);
        let file = open_new(&path)?;
        system::set_len(&file, &path, 0).map_err(|source| io("cannot truncate", &path, source))?;
        Ok((path, file))
    }

    /// Sets the promise of a store in files, which was chosen at its creation.
    pub(crate) fn set_promise_in_files(&mut self, durability: Durability) {
        self.promise = promise_in_files(self.promise.backing, durability);
    }

    /// A second handle on the same file and the same lock.
    ///
    /// # Errors
    /// `Pmem` if the system has no more file descriptors.
    pub(crate) fn again(&self) -> Result<Self> {
        let file = system::duplicate(&self.file, &self.path)
            .map_err(|source| io("cannot open", &self.path, source))?;
        let Self { ref path, fresh, hold, promise, since, made_dirs, .. } = *self;
        Ok(Self { path: path.clone(), file, fresh, hold, promise, since, made_dirs })
    }

    /// Opens the store in `dir` for reading only.
    ///
    /// # Errors
    /// `Missing`; `InUse` if a writer has the store and it has no journal; `Pmem` if the file cannot be read.
    pub fn look(dir: &Path) -> Result<Self> {
        let path = dir.join(FILE_NAME);
        loop {
            let file = match system::open(OpenOptions::new().read(true), &path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    return Err(missing(dir));
                }
                other => other.map_err(|source| io("cannot open", &path, source))?,
            };
            let shared = lock_for_reading(&file, &path);
            if !is_at(&file, &path)? {
                continue;
            }
            let mut store_dir = Self::judge(path, file, false, &Options::default())?;
            store_dir.hold = match shared {
                Ok(()) => Hold::Readers,
                Err(PmemError::Locked { .. }) if store_dir.promise.journaled => Hold::BesideWriter,
                Err(PmemError::Locked { path, .. }) => return Err(Error::InUse { path }),
                Err(error) => return Err(error.into()),
            };
            return Ok(store_dir);
        }
    }

    /// Copies a file without a journal. The caller ensures that no thread stores to it meanwhile.
    pub(crate) fn copy_mapped(&self, to: &Target<'_>, progress: Progress<'_>) -> Result<()> {
        let bytes = system::inspect(&self.file, &self.path)
            .map_err(|source| io("cannot inspect", &self.path, source))?
            .len();
        Ok(pmem::copy::copy_file(&self.file, &self.path, 0, bytes, to, progress)?)
    }

    /// Bytes of the store's file, and of the other files of a store in files. `None` if it cannot be inspected.
    pub(crate) fn file_bytes(&self) -> Option<u64> {
        // A file may be removed meanwhile.
        let parts = self.path.parent().into_iter().flat_map(parts);
        let parts = parts.filter_map(|part| Some(std::fs::metadata(part).ok()?.len()));
        Some(self.file.metadata().ok()?.len() + parts.sum::<u64>())
    }

    /// Sizes that the journal's file shows. `None` without a journal.
    pub(crate) fn journal_seen(&self) -> Option<JournalStats> {
        let path = self.path.with_file_name(JOURNAL_NAME);
        let bytes = pmem::journal::capacity_of(&path).filter(|_| self.promise.journaled)?;
        let file_bytes = std::fs::metadata(&path).ok()?.len();
        Some(JournalStats { bytes, file_bytes, activity: None })
    }

    fn judge(path: PathBuf, file: File, fresh: bool, options: &Options) -> Result<Self> {
        let promise = Self::promised(&path, &file, fresh, options)?;
        Ok(Self::of(path, file, fresh, promise))
    }

    fn of(path: PathBuf, file: File, fresh: bool, promise: Promise) -> Self {
        Self { path, file, fresh, hold: Hold::Alone, promise, since: Instant::now(), made_dirs: 0 }
    }

    /// The durability that the options and the file system give to the store of this file.
    fn promised(path: &Path, file: &File, fresh: bool, options: &Options) -> Result<Promise> {
        let backing = backing_of(file, path)?;
        let found = match fresh {
            true => None,
            false => Some(pmem::journal::is_journaled(file, path, &path.with_file_name(JOURNAL_NAME))?),
        };
        let promise = promise(backing, found, options)?;
        if options.journal_bytes.is_some() && !promise.journaled && !options.in_files {
            return Err(Error::Option(format!(
                "a size for the journal of {}, which has none: with process durability there is no need of it, and a store \
                 that was made without one stays so",
                path.display()
            )));
        }
        Ok(promise)
    }

    /// Maps the file. If the store has a journal, opens both files and replays the journal instead.
    ///
    /// # Errors
    /// `Option` for a journal size out of bounds; `Pmem` as [`Native::map`], [`Journal::create`] and [`Journal::open`].
    pub fn memory(&self, options: &Options) -> Result<(Durable, Option<Replay>)> {
        let file = system::duplicate(&self.file, &self.path)
            .map_err(|source| io("cannot open", &self.path, source))?;
        if self.hold != Hold::Alone {
            return Ok((self.memory_aside(file)?.into(), None));
        }
        if !self.promise.journaled {
            let native = Native::map(file, &self.path, options.max_bytes, self.promise.durability)?;
            return Ok((native.into(), None));
        }
        let journal_path = self.path.with_file_name(JOURNAL_NAME);
        if !self.fresh {
            let (journal, replay) = Journal::open(file, &self.path, &journal_path, options.max_bytes)?;
            return Ok((Arc::new(journal).into(), Some(replay)));
        }
        let capacity_bytes = options.journal_bytes.unwrap_or(pmem::journal::CAPACITY);
        if !(JOURNAL_BYTES_MIN..=pmem::journal::CAPACITY_MAX).contains(&capacity_bytes) {
            return Err(Error::Option(format!(
                "a journal of {capacity_bytes} bytes: a store's has from 4 MiB to 1 GiB"
            )));
        }
        let sizes = pmem::journal::Options { capacity_bytes, max_bytes: options.max_bytes };
        let (_, new_journal) = self.new_paths();
        // Errors name the files as they are called while the store is used.
        let names = (&*self.path, &*journal_path);
        Ok((Arc::new(Journal::create_as(file, &new_journal, names, &sizes)?).into(), None))
    }

    /// Private memory with the contents of the files. Stores to it reach no file.
    fn memory_aside(&self, file: File) -> Result<Native> {
        let journal_path = self.path.with_file_name(JOURNAL_NAME);
        Ok(match self.hold {
            Hold::BesideWriter => {
                let copy = memory_file()?;
                let target = Target { file: &copy, path: Path::new("a copy in memory"), origin: 0 };
                pmem::journal::copy_files(&self.path, &journal_path, true, &target, &|_, _| {})?;
                Native::map_aside(copy, &self.path, 0, 0)?
            }
            _ if self.promise.journaled => pmem::journal::view(file, &self.path, &journal_path)?,
            _ => Native::map_aside(file, &self.path, 0, 0)?,
        })
    }

    /// Renames the file of a new, complete store to its final name. Renames its journal first: the store's name is the commit point.
    ///
    /// # Errors
    /// `Pmem` if a file cannot be synced or renamed.
    pub fn finish(&self) -> Result<()> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        let new = dir.join(NEW_NAME);
        system::sync_all(&self.file, &new).map_err(|source| io("cannot sync", &new, source))?;
        let rename = |from: &Path, to: &Path| {
            system::rename(from, to).map_err(|source| io("cannot rename to", to, source))
        };
        let sync_dir = || sync_dir(dir);
        let journal = dir.join(JOURNAL_NAME);
        if self.promise.journaled {
            // This sync makes the temporary names durable. If only the journal's name survived a power cut, it would look like the journal
            // of a lost store, and no store could be made here.
            sync_dir()?;
            rename(&dir.join(NEW_JOURNAL_NAME), &journal)?;
            sync_dir()?; // the file system may reorder two renames
        } else if journal.exists() {
            // The journal is from a store that was never finished. Beside this store it would seem to belong to it.
            system::remove_file(&journal).map_err(|source| io("cannot remove", &journal, source))?;
        }
        rename(&new, &self.path)?;
        sync_dir()?;
        // The process that made the directory may have died before the directory's name was durable.
        sync_parent(dir)
    }
}

/// Replaces the temporary name in an error by the final name. The temporary name means nothing to a user.
pub(crate) fn with_lasting_name(mut error: Error) -> Error {
    if let Error::Pmem(PmemError::Io { path, .. } | PmemError::Locked { path, .. }) = &mut error {
        for (temporary, lasting) in [(NEW_NAME, FILE_NAME), (NEW_JOURNAL_NAME, JOURNAL_NAME)] {
            if path.file_name().is_some_and(|name| name == temporary) {
                path.set_file_name(lasting);
            }
        }
    }
    error
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<()> {
    system::sync_dir(dir).map_err(|source| io("cannot sync directory", dir, source))
}

/// Opens or makes a file and locks it. Only then may it be truncated, because another process may use it.
fn open_new(path: &Path) -> Result<File> {
    let how = system::new_or_found();
    let file = system::open(&how, path);
    let file = file.map_err(|source| io("cannot make", path, source))?;
    lock(&file, path)?;
    Ok(file)
}

/// True if this is the file at `path`, and not an earlier file of that name.
fn is_at(file: &File, path: &Path) -> Result<bool> {
    let identity = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    let own = system::inspect(file, path).map_err(|source| io("cannot inspect", path, source))?;
    match std::fs::metadata(path) {
        Ok(there) => Ok(identity(there) == identity(own)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(io("cannot inspect", path, source)),
    }
}

/// Makes a directory and its missing parents. Their names are durable on return. Adds the number of those that it made to `made`.
fn make_dir(dir: &Path, made: &mut usize) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    make_dir(parent_of(dir), made)?;
    match system::create_dir(dir) {
        Ok(()) => *made += 1,
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists || !dir.is_dir() => {
            return Err(io("cannot make directory", dir, error));
        }
        Err(_) => {} // another process made it
    }
    sync_parent(dir)
}

/// Removes `made` directories from `dir` upwards, as far as they are empty.
fn remove_dirs(dir: &Path, made: usize) {
    let mut dirs = dir.ancestors().take(made);
    while dirs.next().is_some_and(|dir| system::remove_dir(dir).is_ok()) {}
}

/// Removes the unfinished files of a new store. They stay if the journal already has its final name: without the store's file, it would
/// look like the journal of a lost store. The next creation overwrites both.
fn remove_new(dir: &Path) {
    if !dir.join(JOURNAL_NAME).exists() {
        [NEW_JOURNAL_NAME, NEW_NAME].iter().for_each(|name| _ = system::remove_file(&dir.join(name)));
    }
}

fn parent_of(dir: &Path) -> &Path {
    dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the name of a directory durable. If the parent may not be read, the process that made the directory is responsible.
fn sync_parent(dir: &Path) -> Result<()> {
    let parent = parent_of(dir);
    match system::sync_dir(parent) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced.map_err(|source| io("cannot sync directory", parent, source)),
    }
}

/// The durability of a store and its reason. `found` is true if an existing store has a journal; `None` for a new store.
fn promise(backing: Backing, found: Option<bool>, options: &Options) -> Result<Promise> {
    use {Backing as B, Durability as D};
    let asked = options.durability;
    if options.in_files {
        let usual = if backing == B::Tmpfs { D::Process } else { D::Power };
        return Ok(promise_in_files(backing, asked.unwrap_or(usual)));
    }
    let wanted = match asked {
        None | Some(D::Power) => backing == B::Ordinary || options.journal_bytes.is_some(),
        Some(D::Process | D::Eadr) => false,
    };
    let journaled = found.unwrap_or(wanted);
    let (durability, reason) = match (backing, journaled, asked) {
        (_, true, Some(D::Process | D::Eadr)) => {
            return Err(PmemError::Durability(
                "this store has a journal, so its writes survive a power cut: leave the durability out, or copy its pairs into \
                 a new store of another durability (`scan`, `load`)",
            )
            .into());
        }
        (B::Tmpfs, true, _) => (
            D::Power,
            "emulated: groups of writes are synced, but a memory file system is gone when the machine stops",
        ),
        (_, true, _) => (D::Power, "a journal: each group of writes is durable with one sync of the disk"),
        (B::Dax, _, None | Some(D::Power)) => {
            (D::Power, "persistent memory: flushed lines survive the machine")
        }
        (B::Dax, _, Some(D::Eadr)) => (D::Eadr, "as asked: caches are inside the power-safe domain"),
        (B::Dax, _, Some(D::Process)) => {
            (D::Process, "as asked: writes survive the process, not the machine")
        }
        (B::Tmpfs, _, None | Some(D::Process)) => (
            D::Process,
            "a memory file system keeps writes when the process dies; it is gone when the machine stops",
        ),
        (B::Tmpfs, _, Some(asked)) => (
            asked,
            "emulated: flushes and fences are carried out, but a memory file system is gone when the machine stops",
        ),
        (B::Ordinary, _, None | Some(D::Process)) => (
            D::Process,
            "made so: the page cache keeps writes when the process dies, but a power cut can tear them",
        ),
        (B::Ordinary, _, Some(D::Power)) => {
            return Err(PmemError::Durability(
                "this store was made without a journal, for process durability: use that, or copy its pairs into a new store, \
                 which has one (`scan`, `load`)",
            )
            .into());
        }
        (B::Ordinary, _, Some(D::Eadr)) => {
            return Err(PmemError::Durability(
                "eADR on an ordinary file system, whose pages are not persistent memory: use power durability, which keeps \
                 a journal there",
            )
            .into());
        }
    };
    let medium = match (backing, journaled) {
        (B::Dax, false) => "persistent memory (DAX)",
        (B::Tmpfs, false) => "memory file system",
        (B::Ordinary, false) => "ordinary file",
        (B::Dax, true) => "persistent memory (DAX), with a journal",
        (B::Tmpfs, true) => "memory file system, with a journal",
        (B::Ordinary, true) => "ordinary file with a journal",
    };
    Ok(Promise { backing, durability, journaled, medium, reason })
}

/// True for the name of a file of a store in files, other than its identity.
pub(crate) fn is_part(name: &Path) -> bool {
    let rest = name.to_str().and_then(|name| name.strip_prefix(FILE_NAME)).unwrap_or_default();
    [".log-", ".pages-", ".checkpoint"].iter().any(|part| rest.starts_with(part))
}

/// The paths of these files in a directory.
fn parts(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| is_part(Path::new(&entry.file_name()))).map(|entry| entry.path())
}

/// The error if the store's own file is missing in a directory. If other files of a store are there, the error says so: a new store would
/// overwrite them.
pub(crate) fn missing(dir: &Path) -> Error {
    let journal = dir.join(JOURNAL_NAME);
    let journal = (journal.exists() && !is_unfinished(dir)).then_some(journal);
    match has_parts(dir).or(journal) {
        Some(found) => Error::Incomplete { path: dir.to_owned(), found },
        None => Error::Missing { path: dir.to_owned() },
    }
}

/// A log, a checkpoint or a file of pages in a directory without the store's own file. `None` if they belong to an unfinished store.
pub(crate) fn has_parts(dir: &Path) -> Option<PathBuf> {
    parts(dir).min().filter(|_| !is_unfinished(dir))
}

/// True if the making of a store was cut short: its journal and its files hold nothing.
fn is_unfinished(dir: &Path) -> bool {
    dir.join(NEW_NAME).exists()
}

/// Removes the files of a store other than its identity. The caller has locked the store, and has removed its name.
pub(crate) fn remove_parts(dir: &Path) {
    parts(dir).for_each(|part| _ = system::remove_file(&part));
}

/// The durability of a store in files.
fn promise_in_files(backing: Backing, durability: Durability) -> Promise {
    let medium = match backing {
        Backing::Tmpfs => "files of a memory file system",
        Backing::Dax | Backing::Ordinary => "files: commit log and pages",
    };
    let reason = match (durability, backing) {
        (Durability::Process, _) => "as asked: writes survive the process, not the machine",
        (_, Backing::Tmpfs) => {
            "emulated: the commit log is synced, but a memory file system is gone when the machine stops"
        }
        _ => "a commit log: the writes of all threads are durable with one sync of the disk",
    };
    Promise { backing, durability, journaled: false, medium, reason }
}

pub(crate) fn io(what: &'static str, path: &Path, source: std::io::Error) -> Error {
    PmemError::Io { what, path: path.to_owned(), source }.into()
}
