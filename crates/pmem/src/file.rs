//! Files that are mapped into memory: the kind of their file system, their locks, their space.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub use crate::error::Holder;
use crate::error::{Error, Result};
use crate::medium::view::PAGE;
use crate::system::{self, Kind};

/// The magic of a region's file.
pub(crate) const REGION_MAGIC: u64 = u64::from_le_bytes(*b"BRSTLCN\x01");

/// True if the file can be mapped so that flushed lines are durable (MAP_SYNC: persistent memory with DAX).
pub fn is_dax(file: &File) -> bool {
    let flags = libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC;
    // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing; it is never accessed.
    let page = unsafe {
        libc::mmap(std::ptr::null_mut(), PAGE as usize, libc::PROT_READ, flags, file.as_raw_fd(), 0)
    };
    if page == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: exactly the range that was mapped above.
    unsafe { libc::munmap(page, PAGE as usize) };
    true
}

/// The storage below a file, as far as it matters for durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Persistent memory, mapped directly.
    Dax,
    /// A memory file system: its content is lost when the machine stops.
    Tmpfs,
    /// A disk or SSD behind the page cache.
    Ordinary,
}

/// Determines the storage below `file`.
///
/// # Errors
/// `Io` if the system call fails.
pub fn backing_of(file: &File, path: &Path) -> Result<Backing> {
    if is_dax(file) {
        return Ok(Backing::Dax);
    }
    // SAFETY: all-zero is a valid `statfs`, which is plain data.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    let inspected = system::call(Kind::Inspect, path, Some(file), |_| {
        // SAFETY: `stat` is a live `statfs` for the call to fill.
        match unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut stat) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    });
    inspected.map_err(|source| io("cannot inspect the file system of", path, source))?;
    const RAMFS_MAGIC: i64 = 0x8584_58F6;
    let memory = [libc::TMPFS_MAGIC, RAMFS_MAGIC].contains(&stat.f_type);
    Ok(if memory { Backing::Tmpfs } else { Backing::Ordinary })
}

/// Makes an unnamed file in memory. Its memory is freed when the file is closed and no longer mapped.
///
/// # Errors
/// `Io` if the system cannot make the file.
pub fn memory_file() -> Result<File> {
    // SAFETY: a system call that reads our zero-terminated string and touches no other memory.
    let descriptor = unsafe { libc::memfd_create(c"bristlecone".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io("cannot make", Path::new("a file in memory"), std::io::Error::last_os_error()));
    }
    // SAFETY: the descriptor is open and has no other owner.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// The holder of a file's lock, found in the system's lists of descriptors and locks.
fn holder_of(file: &File) -> Holder {
    let Ok(meta) = file.metadata() else { return Holder::Another(None) };
    if is_open_twice(&meta) {
        return Holder::This;
    }
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    Holder::Another(process_in(&locks, meta.ino()))
}

/// True if this process has a second descriptor of the file.
fn is_open_twice(meta: &std::fs::Metadata) -> bool {
    let identity = |meta: &std::fs::Metadata| (meta.dev(), meta.ino());
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return false };
    let open = entries.filter_map(|entry| std::fs::metadata(entry.ok()?.path()).ok());
    open.filter(|other| identity(other) == identity(meta)).take(2).count() == 2
}

/// The process that holds a lock on the file with this inode, from the lines of `/proc/locks` (proc(5)): `1: FLOCK  ADVISORY  WRITE 708
/// 00:13:91 0 EOF`. Process 0 stands for a process that is not visible in this process namespace.
fn process_in(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        if fields.next()? != "FLOCK" {
            return None;
        }
        let (process, file) = (fields.nth(2)?, fields.next()?);
        let found: u64 = file.rsplit(':').next()?.parse().ok()?;
        process.parse().ok().filter(|process| *process != 0 && found == inode)
    })
}

/// Locks the file exclusively, until it is closed.
///
/// # Errors
/// `Locked` if another process, or another open store in this process, holds a lock; `Io` if the file cannot be locked.
pub fn lock(file: &File, path: &Path) -> Result<()> {
    match system::call(Kind::Lock, path, Some(file), |_| Ok(file.try_lock()?)) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            Err(Error::Locked { path: path.to_owned(), holder: holder_of(file) })
        }
        outcome => outcome.map_err(|source| io("cannot lock", path, source)),
    }
}

/// Takes a shared lock on the file until it is closed. Other readers may hold the lock too. No process may have the file open for
/// writing meanwhile. If the lock fails for any other reason, for example on a file system without locks, this succeeds.
///
/// # Errors
/// `Locked` if a store has the file open for writing.
pub fn lock_for_reading(file: &File, path: &Path) -> Result<()> {
    match file.try_lock_shared() {
        Err(std::fs::TryLockError::WouldBlock) => {
            Err(Error::Locked { path: path.to_owned(), holder: holder_of(file) })
        }
        Ok(()) | Err(std::fs::TryLockError::Error(_)) => Ok(()),
    }
}

/// The first range of data (its first byte, the byte after its last) at or after `from`, up to `len`.
pub(crate) fn next_data(file: &File, path: &Path, from: u64, len: u64) -> Result<Option<(u64, u64)>> {
    if from >= len {
        return Ok(None);
    }
    let seek = |at: u64, whence| -> std::io::Result<u64> {
        system::call(Kind::Inspect, path, Some(file), |_| {
            // SAFETY: a system call on our own descriptor, whose position is not used.
            let found = unsafe { libc::lseek(file.as_raw_fd(), at as libc::off_t, whence) };
            u64::try_from(found).map_err(|_| std::io::Error::last_os_error())
        })
    };
    let stretch =
        seek(from, libc::SEEK_DATA).and_then(|data| Ok((data, seek(data, libc::SEEK_HOLE)?.min(len))));
    match stretch {
        Ok((data, hole)) => Ok((data < hole).then_some((data, hole))),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        // On a file system that does not report holes, everything is data.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(Some((from, len))),
        Err(source) => Err(io("cannot inspect", path, source)),
    }
}

/// Allocates blocks for `[from, to)` of the file (N1 of [`crate::native`]).
pub fn allocate(file: &File, path: &Path, from: u64, to: u64) -> Result<()> {
    let before = system::inspect(file, path).map_err(|source| io("cannot inspect", path, source))?.len();
    loop {
        let allocated = system::call(Kind::Allocate, path, Some(file), |part| {
            let bytes = if part { ((to - from) / 2).max(1) } else { to - from };
            // SAFETY: a system call on our own descriptor.
            let code =
                unsafe { libc::posix_fallocate(file.as_raw_fd(), from as libc::off_t, bytes as libc::off_t) };
            if code == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(code)) }
        });
        let Err(source) = allocated else { return Ok(()) };
        match source.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => {
                // Frees blocks that were allocated after the end (ext4 keeps them): they would waste the remaining space.
                let _ = system::set_len(file, path, before);
                return Err(Error::NoSpace { path: path.to_owned(), bytes: to - from });
            }
            _ => return Err(io("cannot allocate space in", path, source)),
        }
    }
}

/// Asks the system to begin a read of `bytes` bytes from offset `from` on, and does not wait for it. This is advice, so it cannot fail.
pub fn will_read(file: &File, from: u64, bytes: u64) {
    // SAFETY: a system call on our own descriptor; it changes no memory.
    unsafe {
        libc::posix_fadvise(
            file.as_raw_fd(),
            from as libc::off_t,
            bytes as libc::off_t,
            libc::POSIX_FADV_WILLNEED,
        )
    };
}

/// Returns the blocks of `[from, to)` (whole blocks) to the file system: the range reads as zeros from now on, durably after a
/// sync.
pub(crate) fn punch(file: &File, path: &Path, from: u64, to: u64) -> std::io::Result<()> {
    system::call(Kind::Discard, path, Some(file), |_| {
        let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (at, bytes) = (from as libc::off_t, (to - from) as libc::off_t);
        // SAFETY: a system call on our own descriptor; callers ensure that no load reads from the hole.
        match unsafe { libc::fallocate(file.as_raw_fd(), how, at, bytes) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    })
}

/// Converts the result of `mmap`.
pub(crate) fn mapped(at: *mut libc::c_void) -> std::io::Result<*mut libc::c_void> {
    if at == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(at) }
}

/// Free bytes of the file system, if it reports them.
pub(crate) fn free_bytes(file: &File) -> Option<u64> {
    // SAFETY: all-zero is a valid `statfs`, which is plain data.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is a live `statfs` for the call to fill.
    let said = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut stat) } == 0;
    // A memory file system without a limit reports no blocks.
    said.then(|| {
        if stat.f_blocks == 0 {
            u64::MAX
        } else {
            stat.f_bavail.saturating_mul(u64::try_from(stat.f_bsize).unwrap_or(0))
        }
    })
}

/// An error of a system call on a file. `what` is the action, as a phrase ("cannot open").
pub fn io(what: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Io { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_holds_a_lock_is_found_by_the_inode() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:91 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 708 fe:00:91 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 709 fe:00:91 0 EOF\n\
                     3: FLOCK  ADVISORY  READ  0 fe:00:92 0 EOF\n";
        assert_eq!(process_in(locks, 91), Some(708));
        assert_eq!(process_in(locks, 92), None);
        assert_eq!(process_in(locks, 93), None);
        assert_eq!(process_in("nonsense\n\n1: FLOCK", 91), None);
    }

    #[test]
    fn a_second_lock_in_one_process_says_so() {
        let file = tempfile::NamedTempFile::new().unwrap();
        lock(file.as_file(), file.path()).unwrap();
        let again = File::open(file.path()).unwrap();
        let error = lock(&again, file.path()).unwrap_err();
        assert!(matches!(error, Error::Locked { holder: Holder::This, .. }), "{error}");
        assert!(error.to_string().contains("is in use by this process already"), "{error}");
    }
}
