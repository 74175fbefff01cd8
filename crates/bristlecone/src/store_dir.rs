//! Where a store lives: its directory, its file, what that lies on, and which promise follows.
//!
//! A new store is made under another name and renamed when it is whole, so a file that bears the store's name always has
//! a superblock. On an ordinary file system it has a journal beside it ([`pmem::journal`]), unless it is made for process
//! durability; what a store was made with stays.
//!
//! Who writes has the file alone. Who only reads ([`StoreDir::look`]) shares it with other readers and keeps writers out; or, where a
//! writer has it and there is a journal, takes a copy as of one moment into memory. Nothing in the directory changes either way.

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

/// The region file's name inside a store's directory.
pub const FILE_NAME: &str = "store.bristlecone";
/// The journal's name beside it.
pub const JOURNAL_NAME: &str = "store.bristlecone.journal";
const NEW_NAME: &str = "store.bristlecone.new";
const NEW_JOURNAL_NAME: &str = "store.bristlecone.new.journal";
/// Smallest journal of a store in bytes: any change of any index fits into a group of it many times.
pub const JOURNAL_BYTES_MIN: u64 = 4 << 20;

/// What a store is like, as far as its copy depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyForm {
    /// What it lies on.
    pub backing: Backing,
    /// Bytes of its journal, if it has one.
    pub journal_bytes: Option<u64>,
}

impl CopyForm {
    /// Of a store with this promise, whose journal has so many bytes.
    pub fn new(promise: &Promise, journal_bytes: u64) -> Self {
        Self { backing: promise.backing, journal_bytes: promise.journaled.then_some(journal_bytes) }
    }
}

/// A store's file, locked for this process, and the promise it can keep.
#[derive(Debug)]
pub struct StoreDir {
    /// The region's path.
    pub path: PathBuf,
    /// The locked file.
    pub file: File,
    /// The file is fresh, under a temporary name: format it, then call [`StoreDir::finish`].
    pub fresh: bool,
    /// Who else may have the file.
    pub hold: Hold,
    /// What it keeps, and how.
    pub promise: Promise,
    /// When it was taken.
    pub since: Instant,
}

/// Who may do what with a store's files meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Nobody else may use them.
    Alone,
    /// Others may read them, nobody may write.
    Readers,
    /// Another process has them and writes to them. They have a journal.
    BesideWriter,
}

/// What a store can keep where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// What the file lies on.
    pub backing: Backing,
    /// What acknowledged writes survive.
    pub durability: Durability,
    /// A journal is beside the file.
    pub journaled: bool,
    /// What the file lies on, in words.
    pub medium: &'static str,
    /// Why that promise, in words.
    pub reason: &'static str,
}

impl StoreDir {
    /// Finds or makes the file of the store in `dir`.
    ///
    /// # Errors
    /// `Missing` without `options.create`; `Option` if a journal is there alone; `Pmem` if the directory or file cannot be used or is in use, or the asked
    /// durability cannot be had there.
    pub fn take(dir: &Path, options: &Options) -> Result<Self> {
        let path = dir.join(FILE_NAME);
        loop {
            match system::open(OpenOptions::new().read(true).write(true), &path) {
                Ok(file) => {
                    lock(&file, &path)?;
                    if !is_at(&file, &path)? {
                        continue; // another process put another file in its place before the lock came to us
                    }
                    // Beside a store these are what a compaction left that a crash cut short.
                    Self::new_names().iter().for_each(|name| _ = system::remove_file(&dir.join(name)));
                    return Self::judge(path, file, false, options);
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(io("cannot open", &path, source)),
            }
            if !options.create {
                return Err(Error::Missing { path: dir.to_owned() });
            }
            make_dir(dir)?;
            let (new, journal) = (dir.join(NEW_NAME), dir.join(JOURNAL_NAME));
            // Beside an unfinished store it is that one's. Alone it is of a store whose file somebody took away: a new store
            // would overwrite the newest writes of that one.
            if journal.exists() && !new.exists() {
                if path.exists() {
                    continue; // another process finished making the store between the two looks
                }
                return Err(Error::Option(format!(
                    "{} is there without {FILE_NAME}: put the store's file back beside its journal, or remove the journal \
                     if that store is given up",
                    journal.display()
                )));
            }
            let file = open_new(&new)?;
            if path.exists() || !is_at(&file, &new)? {
                continue; // another process finished making the store, or gave it up, before the lock came to us
            }
            system::set_len(&file, &new, 0).map_err(|source| io("cannot truncate", &new, source))?;
            return Self::judge(path, file, true, options);
        }
    }

    /// Makes the file of a store that will be a copy of one of this form, under its temporary name.
    ///
    /// # Errors
    /// As [`StoreDir::take`]; `Option` if another process made a store there meanwhile.
    pub(crate) fn for_copy(dir: &Path, form: CopyForm) -> Result<Self> {
        let options = Options::default();
        let mut place = Self::take(dir, &options)?;
        if !place.fresh {
            return Err(Error::Option(format!(
                "{} holds a store by now: name another directory",
                dir.display()
            )));
        }
        if place.promise.backing == form.backing {
            place.promise = promise(form.backing, Some(form.journal_bytes.is_some()), &options)?;
        }
        Ok(place)
    }

    /// Temporary names of a store's file and its journal.
    pub(crate) fn new_names() -> [&'static str; 2] {
        [NEW_NAME, NEW_JOURNAL_NAME]
    }

    /// Paths of a fresh store's file and its journal, as long as it has not got its names.
    pub(crate) fn new_paths(&self) -> (PathBuf, PathBuf) {
        (self.path.with_file_name(NEW_NAME), self.path.with_file_name(NEW_JOURNAL_NAME))
    }

    /// Removes the unfinished files of a store that could not be made, and says of `error` what a user needs. The files stay if
    /// the journal has its name already: without the store's file beside it, it would look like a journal that lost its store. The
    /// next creation then overwrites both.
    pub(crate) fn give_up(&self, error: Error) -> Error {
        if !self.path.with_file_name(JOURNAL_NAME).exists() {
            let (new, new_journal) = self.new_paths();
            [new_journal, new].iter().for_each(|path| _ = system::remove_file(path));
        }
        match error {
            Error::Pmem(PmemError::NoSpace { bytes, .. }) => {
                Error::NotMade { path: parent_of(&self.path).to_owned(), bytes }
            }
            other => with_lasting_name(other),
        }
    }

    /// Removes the store in `dir`. A crash on the way leaves the store, or an unfinished one that the next creation overwrites.
    ///
    /// # Errors
    /// `Missing`; `Pmem` if the store is in use or a call fails.
    pub fn remove(dir: &Path) -> Result<()> {
        let options = Options { create: false, ..Options::default() };
        let place = Self::take(dir, &options)?;
        let (new, _) = place.new_paths();
        system::rename(&place.path, &new).map_err(|source| io("cannot rename", &place.path, source))?;
        sync_dir(dir)?;
        let journal = dir.join(JOURNAL_NAME);
        if place.promise.journaled {
            system::remove_file(&journal).map_err(|source| io("cannot remove", &journal, source))?;
            sync_dir(dir)?;
        }
        system::remove_file(&new).map_err(|source| io("cannot remove", &new, source))?;
        sync_dir(dir)
    }

    /// The memory of a fresh place whose file was made a copy of a region.
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

    /// Makes an empty file beside the store in `dir`, locked: what will take the place of the store's. Whoever calls this has
    /// the store.
    ///
    /// # Errors
    /// `Pmem` if it cannot be made.
    pub(crate) fn file_beside(dir: &Path) -> Result<(PathBuf, File)> {
        let path = dir.join(NEW_NAME);
        let file = open_new(&path)?;
        system::set_len(&file, &path, 0).map_err(|source| io("cannot truncate", &path, source))?;
        Ok((path, file))
    }

    /// The same place once more.
    ///
    /// # Errors
    /// `Pmem` if the system has no more descriptors.
    pub(crate) fn again(&self) -> Result<Self> {
        let file = system::duplicate(&self.file, &self.path)
            .map_err(|source| io("cannot open", &self.path, source))?;
        let Self { ref path, fresh, hold, promise, since, .. } = *self;
        Ok(Self { path: path.clone(), file, fresh, hold, promise, since })
    }

    /// Finds the store in `dir` for reading alone.
    ///
    /// # Errors
    /// `Missing`; `Pmem` if the file cannot be read, or is in use and has no journal.
    pub fn look(dir: &Path) -> Result<Self> {
        let path = dir.join(FILE_NAME);
        loop {
            let file = match system::open(OpenOptions::new().read(true), &path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    return Err(Error::Missing { path: dir.to_owned() });
                }
                other => other.map_err(|source| io("cannot open", &path, source))?,
            };
            let shared = lock_for_reading(&file, &path);
            if !is_at(&file, &path)? {
                continue;
            }
            let mut place = Self::judge(path, file, false, &Options::default())?;
            place.hold = match shared {
                Ok(()) => Hold::Readers,
                Err(PmemError::Locked { .. }) if place.promise.journaled => Hold::BesideWriter,
                Err(PmemError::Locked { path, .. }) => return Err(Error::InUse { path }),
                Err(error) => return Err(error.into()),
            };
            return Ok(place);
        }
    }

    /// Copies a file that is mapped, or was. No thread stores to it meanwhile.
    pub(crate) fn copy_mapped(&self, to: &Target<'_>, progress: Progress<'_>) -> Result<()> {
        let bytes = system::inspect(&self.file, &self.path)
            .map_err(|source| io("cannot inspect", &self.path, source))?
            .len();
        Ok(pmem::copy::copy_file(&self.file, &self.path, 0, bytes, to, progress)?)
    }

    /// Bytes of the store's file, if it can be inspected.
    pub(crate) fn file_bytes(&self) -> Option<u64> {
        Some(self.file.metadata().ok()?.len())
    }

    /// What the file of its journal says, if it has one.
    pub(crate) fn journal_seen(&self) -> Option<JournalStats> {
        let path = self.path.with_file_name(JOURNAL_NAME);
        let bytes = pmem::journal::capacity_of(&path).filter(|_| self.promise.journaled)?;
        let file_bytes = std::fs::metadata(&path).ok()?.len();
        Some(JournalStats { bytes, file_bytes, activity: None })
    }

    fn judge(path: PathBuf, file: File, fresh: bool, options: &Options) -> Result<Self> {
        let backing = backing_of(&file, &path)?;
        let found = match fresh {
            true => None,
            false => Some(pmem::journal::is_journaled(&file, &path, &path.with_file_name(JOURNAL_NAME))?),
        };
        let promise = promise(backing, found, options)?;
        if options.journal_bytes.is_some() && !promise.journaled {
            return Err(Error::Option(format!(
                "a size for the journal of {}, which has none: with process durability there is no need of it, and a store \
                 that was made without one stays so",
                path.display()
            )));
        }
        Ok(Self { path, file, fresh, hold: Hold::Alone, promise, since: Instant::now() })
    }

    /// Maps the file, or opens it with its journal, bringing home what that holds.
    ///
    /// # Errors
    /// `Option` for a journal out of bounds; `Pmem` as [`Native::map`], [`Journal::create`] and [`Journal::open`].
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
        let (new, new_journal) = self.new_paths();
        Ok((Arc::new(Journal::create(file, &new, &new_journal, &sizes)?).into(), None))
    }

    /// Memory that holds what the files hold, and keeps what is stored to itself.
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

    /// Gives a fresh file, now a whole store, its name. Its journal gets its own first: the store is there with the other.
    ///
    /// # Errors
    /// `Pmem` if it cannot be synced or renamed.
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
            // The temporary names first. If the journal's name survived a power cut without the store's file, it would look like
            // the journal of a store whose file was taken away, and no store could be made here.
            sync_dir()?;
            rename(&dir.join(NEW_JOURNAL_NAME), &journal)?;
            sync_dir()?; // whatever order the file system has for two renames
        } else if journal.exists() {
            // Of a store that was never finished. Beside this one it would seem to be its own.
            system::remove_file(&journal).map_err(|source| io("cannot remove", &journal, source))?;
        }
        rename(&new, &self.path)?;
        sync_dir()?;
        // Whoever made the directory may have died before its name was durable.
        sync_parent(dir)
    }
}

/// An error about a file that is being made, with the name that the file is to get: the temporary one means nothing to a user.
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

/// Opens a file that may be there, or makes it, and locks it. Only then may it be emptied: another process may be at work on it.
fn open_new(path: &Path) -> Result<File> {
    let how = system::new_or_found();
    let file = system::open(&how, path);
    let file = file.map_err(|source| io("cannot make", path, source))?;
    lock(&file, path)?;
    Ok(file)
}

/// True if this is the file at `path`, and not one that was there before.
fn is_at(file: &File, path: &Path) -> Result<bool> {
    let identity = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    let own = system::inspect(file, path).map_err(|source| io("cannot inspect", path, source))?;
    match std::fs::metadata(path) {
        Ok(there) => Ok(identity(there) == identity(own)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(io("cannot inspect", path, source)),
    }
}

/// Makes a directory and all above it; the names of those made are durable when this returns.
fn make_dir(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    make_dir(parent_of(dir))?;
    match system::create_dir(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists || !dir.is_dir() => {
            return Err(io("cannot make directory", dir, error));
        }
        _ => {}
    }
    sync_parent(dir)
}

fn parent_of(dir: &Path) -> &Path {
    dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the name of a directory durable. One whose parent may not be read is left to whoever made it.
fn sync_parent(dir: &Path) -> Result<()> {
    let parent = parent_of(dir);
    match system::sync_dir(parent) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced.map_err(|source| io("cannot sync directory", parent, source)),
    }
}

/// Which promise a store keeps, how, and why. `found`: whether the store that there is has a journal.
fn promise(backing: Backing, found: Option<bool>, options: &Options) -> Result<Promise> {
    use {Backing as B, Durability as D};
    let asked = options.durability;
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

pub(crate) fn io(what: &'static str, path: &Path, source: std::io::Error) -> Error {
    PmemError::Io { what, path: path.to_owned(), source }.into()
}
