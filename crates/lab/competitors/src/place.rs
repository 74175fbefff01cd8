//! The directory of the measured stores. It is inside the directory that `--backing` names, and is removed at the end, also after
//! an error.
//!
//! A process that is killed cannot clean up. So each run locks a file in its directory, and removes the directories of other runs whose
//! lock is free.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Error of a directory for measured stores.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The backing directory does not exist.
    #[error("there is no directory {0}: make it, or name another with --backing")]
    NoDirectory(PathBuf),
    /// An operation on a file or directory failed.
    #[error("cannot make {path}: {source}")]
    File {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

const PREFIX: &str = "bristlecone-bench-store-";
const LOCK_NAME: &str = "lock";

/// A directory that is removed when this value is dropped.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    _lock: File,
}

impl Place {
    /// Makes the directory.
    ///
    /// # Errors
    /// `NoDirectory` if the backing is no directory, `File` if it is not writable.
    pub fn take(backing: &Path) -> Result<Self, Error> {
        if !backing.is_dir() {
            return Err(Error::NoDirectory(backing.to_owned()));
        }
        sweep(backing);
        let path = (0_u32..)
            .map(|number| backing.join(format!("{PREFIX}{}-{number}", std::process::id())))
            .find(|path| !path.exists());
        let path = path.unwrap_or_else(|| backing.join(PREFIX));
        fs::create_dir(&path).map_err(file(&path))?;
        let lock_path = path.join(LOCK_NAME);
        let lock = File::create(&lock_path).map_err(file(&lock_path))?;
        lock.lock().map_err(file(&lock_path))?;
        Ok(Self { path, _lock: lock })
    }

    /// Makes a directory for a store.
    ///
    /// # Errors
    /// `File` if the directory cannot be made.
    pub fn folder(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        fs::create_dir(&path).map_err(file(&path))?;
        Ok(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The error is ignored; the next run tries again.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, source }
}

/// Removes the directories of killed runs. Directories that cannot be removed stay.
fn sweep(backing: &Path) {
    let Ok(entries) = fs::read_dir(backing) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_run = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        // A directory without a lock file may belong to a run that is starting.
        if is_run && File::open(path.join(LOCK_NAME)).is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Bytes that the files of a directory occupy on the file system.
pub fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() => bytes_below(&entry.path()),
        Ok(about) => about.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().map(of).sum()
}

/// Free bytes on the file system of a directory.
///
/// # Errors
/// `File` if the system call fails.
pub fn bytes_free(folder: &Path) -> Result<u64, Error> {
    let about = rustix::fs::statvfs(folder).map_err(|errno| file(folder)(errno.into()))?;
    Ok(about.f_bavail * about.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_gone_with_its_user_and_leftovers_go_with_the_next() {
        let backing = tempfile::tempdir().unwrap();
        let list = || fs::read_dir(backing.path()).unwrap().count();
        let first = Place::take(backing.path()).unwrap();
        fs::write(first.folder("a").unwrap().join("b"), vec![1; 10_000]).unwrap();
        assert!(bytes_below(backing.path()) >= 10_000);
        // A killed run: its directory exists, its lock is free.
        let left = backing.path().join(format!("{PREFIX}0-0"));
        fs::create_dir(&left).unwrap();
        fs::write(left.join(LOCK_NAME), "").unwrap();
        let second = Place::take(backing.path()).unwrap();
        assert!(!left.exists(), "nobody holds it");
        assert_eq!(list(), 2, "the first is in use and stays");
        drop((first, second));
        assert_eq!(list(), 0);
    }

    #[test]
    fn a_missing_backing_is_an_error_that_says_what_to_do() {
        let error = Place::take(Path::new("no-such-folder")).unwrap_err().to_string();
        assert!(error.contains("no-such-folder") && error.contains("--backing"), "{error}");
    }
}
