//! The system calls on files that a store makes. Tests inject faults here and record the changes.
//!
//! Calls on a store's files go through the functions of this module, or through [`call`] if their arguments need
//! `unsafe`. Calls that change no file (for example `madvise`, `munmap`, the mappings of `page_remap`) are made
//! directly. So are the reads ahead of [`ring`](crate::ring): a store repeats those that fail by a call of this module.
//! A function returns the system's own error. Its caller adds the failed action and the file.
//!
//! Invariants:
//! * Y1: without the feature `faults` each function here only makes its call. Only tests enable that feature.
//! * Y2: each call gets the path by which its file was opened. The file may have been renamed since. So a [`Watch`]
//!   that has to identify a file uses the inode.

use std::fs::{File, Metadata, OpenOptions};
use std::io::Result;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

#[cfg(feature = "faults")]
pub use watch::{Verdict, Watch, Watching, watch};

/// The kind of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `open`, also one that creates the file.
    Open,
    /// `dup`.
    Duplicate,
    /// `fstat`, `fstatfs`, `lseek`.
    Inspect,
    /// `flock`.
    Lock,
    /// `pread`.
    Read,
    /// `pwrite`, `copy_file_range`.
    Write,
    /// `ftruncate`.
    SetLength,
    /// `fallocate`.
    Allocate,
    /// `fallocate` that punches a hole.
    Discard,
    /// `mmap`.
    Map,
    /// `fsync`, `fdatasync`.
    Sync,
    /// `msync` of a range of the file.
    SyncRange {
        /// The offset in bytes.
        at: u64,
        /// The number of bytes.
        bytes: u64,
    },
    /// `fsync` of a directory.
    SyncDirectory,
    /// `rename`.
    Rename,
    /// `unlink`, `rmdir`.
    Remove,
    /// `mkdir`.
    MakeDirectory,
}

/// Assumed memory in bytes of a machine that does not report it.
const MEMORY_UNKNOWN: u64 = 4 << 30;
/// Files with the memory limit of this control group: version 2, version 1.
const GROUP_LIMITS: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// Memory of this process in bytes: the machine's, or the control group's limit if it is lower.
pub(crate) fn memory_bytes() -> u64 {
    let limit = |path: &&str| std::fs::read_to_string(path).ok()?.trim().parse().ok();
    let of_group: Option<u64> = GROUP_LIMITS.iter().filter_map(limit).min();
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        Some(total.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()? << 10)
    });
    of_group.unwrap_or(u64::MAX).min(machine.unwrap_or(MEMORY_UNKNOWN))
}

/// Makes a call on the file at `path` by running `real`. If the argument of `real` is true, `real` does only a part of its work, if its
/// work has parts.
///
/// # Errors
/// Those of `real`.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn call<T>(
    _kind: Kind,
    _path: &Path,
    _file: Option<&File>,
    real: impl FnOnce(bool) -> Result<T>,
) -> Result<T> {
    real(false)
}

/// Makes a call on the file at `path` by running `real`. If the argument of `real` is true, `real` does only a part of its work, if its
/// work has parts.
///
/// # Errors
/// The errors of `real`, and those injected by a [`Watch`] of a directory above `path`.
#[cfg(feature = "faults")]
pub fn call<T>(
    kind: Kind,
    path: &Path,
    file: Option<&File>,
    real: impl FnOnce(bool) -> Result<T>,
) -> Result<T> {
    let Some(watch) = watch::find(path) else { return real(false) };
    let failed = |code| Err(std::io::Error::from_raw_os_error(code));
    match watch.before(kind, path, file) {
        Verdict::Go => real(false),
        Verdict::Part => real(true),
        Verdict::Fail(code) => failed(code),
        Verdict::PartThenFail(code) => real(true).and_then(|_| failed(code)),
    }
}

/// Opens a file.
///
/// # Errors
/// The system's.
pub fn open(how: &OpenOptions, path: &Path) -> Result<File> {
    call(Kind::Open, path, None, |_| how.open(path))
}

/// A second handle of an open file.
///
/// # Errors
/// The system's.
pub fn duplicate(file: &File, path: &Path) -> Result<File> {
    call(Kind::Duplicate, path, Some(file), |_| file.try_clone())
}

/// The metadata of an open file.
///
/// # Errors
/// The system's.
pub fn inspect(file: &File, path: &Path) -> Result<Metadata> {
    call(Kind::Inspect, path, Some(file), |_| file.metadata())
}

/// Reads from offset `at`. Returns the number of bytes, 0 at the end of the file.
///
/// # Errors
/// The system's.
pub fn read_at(file: &File, path: &Path, at: u64, bytes: &mut [u8]) -> Result<usize> {
    call(Kind::Read, path, Some(file), |_| file.read_at(bytes, at))
}

/// Writes at offset `at`. Returns the number of bytes written.
///
/// # Errors
/// The system's.
pub fn write_at(file: &File, path: &Path, at: u64, bytes: &[u8]) -> Result<usize> {
    call(Kind::Write, path, Some(file), |part| {
        file.write_at(if part { &bytes[..bytes.len() / 2] } else { bytes }, at)
    })
}

/// Writes all of `bytes` at offset `at`, in as many calls as necessary.
///
/// # Errors
/// The system's; `WriteZero` if a call writes nothing. Some of the bytes may be written then.
pub fn write_all_at(file: &File, path: &Path, mut at: u64, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match write_at(file, path, at, bytes) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(taken) => (at, bytes) = (at + taken as u64, &bytes[taken..]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sets a file's length in bytes.
///
/// # Errors
/// The system's.
pub fn set_len(file: &File, path: &Path, bytes: u64) -> Result<()> {
    call(Kind::SetLength, path, Some(file), |_| file.set_len(bytes))
}

/// Makes a file's bytes, its length and its other metadata durable.
///
/// # Errors
/// The system's. Earlier writes may then be lost, and no later sync can tell.
pub fn sync_all(file: &File, path: &Path) -> Result<()> {
    call(Kind::Sync, path, Some(file), |_| file.sync_all())
}

/// Makes a file's bytes and its length durable.
///
/// # Errors
/// The system's. Earlier writes may then be lost, and no later sync can tell.
pub fn sync_data(file: &File, path: &Path) -> Result<()> {
    call(Kind::Sync, path, Some(file), |_| file.sync_data())
}

/// Makes the names in a directory durable.
///
/// # Errors
/// The system's.
pub fn sync_dir(dir: &Path) -> Result<()> {
    call(Kind::SyncDirectory, dir, None, |_| File::open(dir)?.sync_all())
}

/// Renames a file.
///
/// # Errors
/// The system's.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    call(Kind::Rename, from, None, |_| std::fs::rename(from, to))
}

/// Removes a file's name.
///
/// # Errors
/// The system's.
pub fn remove_file(path: &Path) -> Result<()> {
    call(Kind::Remove, path, None, |_| std::fs::remove_file(path))
}

/// Removes an empty directory.
///
/// # Errors
/// The system's.
pub fn remove_dir(path: &Path) -> Result<()> {
    call(Kind::Remove, path, None, |_| std::fs::remove_dir(path))
}

/// The mode of a new file: access for its owner only.
pub const OWNER: u32 = 0o600;

/// Options to open a file, or to create it with access for its owner only.
pub fn new_or_found() -> OpenOptions {
    let mut how = OpenOptions::new();
    how.read(true).write(true).create(true).truncate(false).mode(OWNER);
    how
}

/// Makes a directory with access for its owner only.
///
/// # Errors
/// The system's.
pub fn create_dir(path: &Path) -> Result<()> {
    call(Kind::MakeDirectory, path, None, |_| std::fs::DirBuilder::new().mode(0o700).create(path))
}

#[cfg(feature = "faults")]
mod watch {
    use std::fs::File;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, PoisonError, RwLock};

    use super::Kind;

    /// The fate of a call.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Verdict {
        /// The call is made.
        Go,
        /// A part of the call is made, without an error.
        Part,
        /// The call is not made and fails with this error number.
        Fail(i32),
        /// A part of the call is made (all of it if it has no parts), and it fails with this error number.
        PartThenFail(i32),
    }

    /// Receives every call on the files below a directory.
    pub trait Watch: Send + Sync {
        /// Called before a call; decides its fate. It must not call this module.
        fn before(&self, kind: Kind, path: &Path, file: Option<&File>) -> Verdict;
    }

    struct Entry {
        id: u64,
        dir: PathBuf,
        watch: Arc<dyn Watch>,
    }

    static WATCHES: RwLock<Vec<Entry>> = RwLock::new(Vec::new());
    static NEXT: AtomicU64 = AtomicU64::new(0);

    /// Ends a watch when it is dropped.
    #[must_use]
    pub struct Watching(u64);

    /// Watches the files below `dir`, for calls of all threads of this process.
    pub fn watch(dir: &Path, watch: Arc<dyn Watch>) -> Watching {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { id, dir: dir.to_owned(), watch };
        WATCHES.write().unwrap_or_else(PoisonError::into_inner).push(entry);
        Watching(id)
    }

    impl Drop for Watching {
        fn drop(&mut self) {
            WATCHES.write().unwrap_or_else(PoisonError::into_inner).retain(|entry| entry.id != self.0);
        }
    }

    pub(super) fn find(path: &Path) -> Option<Arc<dyn Watch>> {
        let watches = WATCHES.read().unwrap_or_else(PoisonError::into_inner);
        let found = watches.iter().find(|entry| path.starts_with(&entry.dir));
        found.map(|entry| Arc::clone(&entry.watch))
    }
}
