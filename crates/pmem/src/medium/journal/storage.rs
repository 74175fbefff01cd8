//! The files of a journal: a small trait, its implementation over `std::fs::File`, and the pair of files with one shared failure
//! state.
//!
//! Invariants:
//! * S1: a failed sync is never repeated. The kernel reports a failed write of a page only once and then treats the page as clean, so a
//!   second sync would report a false success. Syncs of a file therefore go one at a time. A failed sync poisons both files before the next
//!   sync may begin, and later calls get `Failed`.
//! * S2: a failed write poisons the files as well. So does a write that wrote only a part of its bytes and cannot continue.

use std::fmt::Debug;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::file::{allocate, io, next_data, punch};
use crate::medium::events::Site;
use crate::sync::atomics::unmodelled::Mutex;
use crate::system;

/// One file. Offsets and lengths are in bytes.
pub trait Storage: Debug + Send + Sync + 'static {
    /// Reads from offset `at` into `bytes`, at most `bytes.len()` bytes. Returns the number of bytes read, 0 at the end of the
    /// file.
    ///
    /// # Errors
    /// `Io` if the system call fails.
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> Result<usize>;

    /// Writes `bytes` at offset `at`. Returns the number of bytes written, which may be fewer. Durable after a [`Storage::sync`].
    ///
    /// # Errors
    /// `Io` if the system call fails.
    fn write_at(&self, at: u64, bytes: &[u8]) -> Result<usize>;

    /// Makes everything written, and the file's length, durable.
    ///
    /// # Errors
    /// `Io` if the system call fails. Earlier writes may then be lost, and no later sync can tell.
    fn sync(&self) -> Result<()>;

    /// As [`Storage::sync`], with the call site in the journal's source: a simulated file can leave out this one call.
    ///
    /// # Errors
    /// As [`Storage::sync`].
    fn sync_for(&self, site: Site) -> Result<()> {
        let _ = site;
        self.sync()
    }

    /// Allocates blocks of zeros for `[from, to)`, where `from` is the end of the file. The file is then `to` bytes long.
    ///
    /// # Errors
    /// `NoSpace` if the file system is full, `Io` otherwise; the file keeps its length.
    fn allocate(&self, from: u64, to: u64) -> Result<()>;

    /// Truncates the file to `to` bytes, which is less than before. The default does nothing.
    ///
    /// # Errors
    /// `Io` if the system call fails.
    fn shorten(&self, to: u64) -> Result<()> {
        let _ = to;
        Ok(())
    }

    /// Returns the storage of `[from, to)` (whole pages) to the file system: the range reads as zeros from now on. Not durable
    /// before a [`Storage::sync`]: until then each sector has its old content or zeros. The default returns an error.
    ///
    /// # Errors
    /// `Io` if the system call fails or does not exist. The range is unchanged then.
    fn discard(&self, from: u64, to: u64) -> Result<()> {
        let _ = (from, to);
        Err(io("cannot punch a hole in", self.path(), std::io::ErrorKind::Unsupported.into()))
    }

    /// Allocates blocks of zeros for the holes in `[from, to)`. The default assumes that there are none.
    ///
    /// # Errors
    /// `NoSpace` if the file system is full, `Io` otherwise; the file's bytes are unchanged.
    fn fill_holes(&self, from: u64, to: u64) -> Result<()> {
        let _ = (from, to);
        Ok(())
    }

    /// Ranges without allocated blocks, ascending: discarded ranges, and holes that a copy of the file may have. They read as
    /// zeros. If there is a hole, blocks that were allocated and never written may be reported too. The default returns none.
    ///
    /// # Errors
    /// `Io` if the system call fails.
    fn holes(&self) -> Result<Vec<(u64, u64)>> {
        Ok(Vec::new())
    }

    /// Bytes of the file.
    ///
    /// # Errors
    /// `Io` if the system call fails.
    fn len(&self) -> Result<u64>;

    /// True if the file has no bytes.
    ///
    /// # Errors
    /// As [`Storage::len`].
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// The file to map. Without one, as in a simulation, the image is read into memory.
    fn file(&self) -> Option<&File> {
        None
    }

    /// Its path, for errors.
    fn path(&self) -> &Path;
}

/// An ordinary file.
#[derive(Debug)]
pub struct FileStorage {
    file: File,
    path: PathBuf,
}

impl FileStorage {
    /// Uses an open file; `path` is its path in errors.
    pub fn new(file: File, path: &Path) -> Self {
        Self { file, path: path.to_owned() }
    }

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `Io` if the file does not exist or cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        let file = system::open(File::options().read(true).write(true), path);
        Ok(Self::new(file.map_err(|source| io("cannot open", path, source))?, path))
    }

    fn again<T>(&self, what: &'static str, mut call: impl FnMut(&File) -> std::io::Result<T>) -> Result<T> {
        loop {
            match call(&self.file) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                outcome => return outcome.map_err(|source| io(what, &self.path, source)),
            }
        }
    }
}

impl Storage for FileStorage {
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> Result<usize> {
        self.again("cannot read", |file| system::read_at(file, &self.path, at, bytes))
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> Result<usize> {
        self.again("cannot write", |file| system::write_at(file, &self.path, at, bytes))
    }

    fn sync(&self) -> Result<()> {
        // Not repeated when interrupted (S1).
        system::sync_data(&self.file, &self.path).map_err(|source| io("cannot sync", &self.path, source))
    }

    fn allocate(&self, from: u64, to: u64) -> Result<()> {
        allocate(&self.file, &self.path, from, to)
    }

    fn shorten(&self, to: u64) -> Result<()> {
        system::set_len(&self.file, &self.path, to)
            .map_err(|source| io("cannot truncate", &self.path, source))
    }

    fn discard(&self, from: u64, to: u64) -> Result<()> {
        self.again("cannot punch a hole in", |file| punch(file, &self.path, from, to))
    }

    fn fill_holes(&self, from: u64, to: u64) -> Result<()> {
        allocate(&self.file, &self.path, from, to)
    }

    fn holes(&self) -> Result<Vec<(u64, u64)>> {
        let meta = self.again("cannot inspect", |file| system::inspect(file, &self.path))?;
        let (mut holes, mut at, len) = (Vec::new(), 0, meta.len());
        if meta.blocks() * 512 >= len {
            return Ok(holes);
        }
        while let Some((data, hole)) = next_data(&self.file, &self.path, at, len)? {
            holes.extend((data > at).then_some((at, data)));
            at = hole;
        }
        holes.extend((at < len).then_some((at, len)));
        Ok(holes)
    }

    fn len(&self) -> Result<u64> {
        self.again("cannot inspect", |file| Ok(system::inspect(file, &self.path)?.len()))
    }

    fn file(&self) -> Option<&File> {
        Some(&self.file)
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// A file whose syncs go one at a time (S1).
#[derive(Debug)]
pub(super) struct Disk {
    storage: Box<dyn Storage>,
    syncing: Mutex<()>,
}

/// Both files of a journaled region and their shared failure state.
#[derive(Debug)]
pub(super) struct Files {
    /// The region's bytes, after a page that pairs it with its journal.
    pub data: Disk,
    /// Header copies and two halves of groups.
    pub journal: Disk,
    failed: AtomicBool,
    /// Successful syncs of both files.
    syncs: AtomicU64,
}

impl Files {
    pub fn new(data: Box<dyn Storage>, journal: Box<dyn Storage>) -> Self {
        let (data, journal) = (Disk::new(data), Disk::new(journal));
        Self { data, journal, failed: AtomicBool::new(false), syncs: AtomicU64::new(0) }
    }

    /// Returns `Failed` if anything failed before.
    pub fn check(&self) -> Result<()> {
        if self.failed.load(Ordering::SeqCst) { Err(Error::Failed) } else { Ok(()) }
    }

    /// Refuses all writes from now on.
    pub fn poison(&self, error: Error) -> Error {
        self.failed.store(true, Ordering::SeqCst);
        error
    }

    /// Writes all of `bytes`, in as many calls as necessary.
    pub fn write(&self, disk: &Disk, mut at: u64, mut bytes: &[u8]) -> Result<()> {
        self.check()?;
        while !bytes.is_empty() {
            let taken = disk.storage.write_at(at, bytes).map_err(|error| self.poison(error))?;
            if taken == 0 || taken > bytes.len() {
                let source = std::io::Error::from(std::io::ErrorKind::WriteZero);
                return Err(self.poison(io("cannot write", disk.path(), source)));
            }
            at += taken as u64;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Makes all earlier writes to a file durable.
    #[track_caller]
    pub fn sync(&self, disk: &Disk) -> Result<()> {
        let _turn = disk.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        // Checked while the lock is held: a sync that failed before has set the flag by now.
        self.check()?;
        disk.storage.sync_for(Location::caller()).map_err(|error| self.poison(error))?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Successful syncs of both files since they were opened.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}

impl Disk {
    pub fn new(storage: Box<dyn Storage>) -> Self {
        Self { storage, syncing: Mutex::new(()) }
    }

    pub fn shorten(&self, to: u64) -> Result<()> {
        self.storage.shorten(to)
    }

    /// Reads until `bytes` is full.
    pub fn read(&self, mut at: u64, mut bytes: &mut [u8]) -> Result<()> {
        while !bytes.is_empty() {
            let count = self.storage.read_at(at, bytes)?;
            if count == 0 || count > bytes.len() {
                let source = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
                return Err(io("cannot read", self.path(), source));
            }
            at += count as u64;
            bytes = &mut bytes[count..];
        }
        Ok(())
    }

    pub fn allocate(&self, from: u64, to: u64) -> Result<()> {
        self.storage.allocate(from, to)
    }

    pub fn discard(&self, from: u64, to: u64) -> Result<()> {
        self.storage.discard(from, to)
    }

    pub fn fill_holes(&self, from: u64, to: u64) -> Result<()> {
        self.storage.fill_holes(from, to)
    }

    pub fn holes(&self) -> Result<Vec<(u64, u64)>> {
        self.storage.holes()
    }

    pub fn len(&self) -> Result<u64> {
        self.storage.len()
    }

    pub fn file(&self) -> Option<&File> {
        self.storage.file()
    }

    pub fn path(&self) -> &Path {
        self.storage.path()
    }
}
