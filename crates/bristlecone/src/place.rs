//! Where a store lives: its directory, its file, what that lies on, and which promise follows.
//!
//! A new store is made under another name and renamed when it is whole, so a file that bears the store's name always has
//! a superblock.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use pmem::native::{Backing, backing_of, lock};
use pmem::{Durability, Error as PmemError, Native};

use crate::error::{Error, Result};
use crate::store::Options;

/// The region file's name inside a store's directory.
pub const FILE_NAME: &str = "store.bristlecone";
const NEW_NAME: &str = "store.bristlecone.new";

/// A store's file, locked for this process, and the promise it can keep.
#[derive(Debug)]
pub struct Place {
    /// The region's path.
    pub path: PathBuf,
    /// The locked file.
    pub file: File,
    /// The file is fresh, under a temporary name: format it, then call [`Place::finish`].
    pub fresh: bool,
    /// The promise.
    pub durability: Durability,
    /// What the file lies on, in words.
    pub medium: &'static str,
    /// Why that promise, in words.
    pub reason: &'static str,
}

impl Place {
    /// Finds or makes the file of the store in `dir`.
    ///
    /// # Errors
    /// `Missing` without `options.create`; `Pmem` if the directory or file cannot be used or is in use, or the asked
    /// durability cannot be had there.
    pub fn take(dir: &Path, options: &Options) -> Result<Self> {
        let path = dir.join(FILE_NAME);
        loop {
            match OpenOptions::new().read(true).write(true).open(&path) {
                Ok(file) => {
                    lock(&file, &path)?;
                    return Self::judge(path, file, false, options);
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(io("cannot open", &path, source)),
            }
            if !options.create {
                return Err(Error::Missing { path: dir.to_owned() });
            }
            std::fs::create_dir_all(dir).map_err(|source| io("cannot make directory", dir, source))?;
            let new = dir.join(NEW_NAME);
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false) // only after the lock is held: another process may be at work on it
                .open(&new)
                .map_err(|source| io("cannot make", &new, source))?;
            lock(&file, &new)?;
            if path.exists() {
                continue; // another process finished making the store before the lock came to us
            }
            file.set_len(0).map_err(|source| io("cannot truncate", &new, source))?;
            return Self::judge(path, file, true, options);
        }
    }

    fn judge(path: PathBuf, file: File, fresh: bool, options: &Options) -> Result<Self> {
        let backing = backing_of(&file, &path)?;
        let (durability, reason) = promise(backing, options.durability)?;
        let medium = match backing {
            Backing::Dax => "persistent memory (DAX)",
            Backing::Tmpfs => "memory file system",
            Backing::Ordinary => "ordinary file",
        };
        Ok(Self { path, file, fresh, durability, medium, reason })
    }

    /// Maps the file.
    ///
    /// # Errors
    /// `Pmem` if it cannot be mapped.
    pub fn map(&self, options: &Options) -> Result<Native> {
        let file = self.file.try_clone().map_err(|source| io("cannot open", &self.path, source))?;
        Ok(Native::map(file, &self.path, options.max_bytes, self.durability)?)
    }

    /// Gives a fresh file, now a whole store, its name.
    ///
    /// # Errors
    /// `Pmem` if it cannot be synced or renamed.
    pub fn finish(&self) -> Result<()> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        let new = dir.join(NEW_NAME);
        self.file.sync_all().map_err(|source| io("cannot sync", &new, source))?;
        std::fs::rename(&new, &self.path).map_err(|source| io("cannot rename to", &self.path, source))?;
        let synced = File::open(dir).and_then(|dir| dir.sync_all());
        synced.map_err(|source| io("cannot sync directory", dir, source))
    }
}

/// Which promise a backing keeps, and why.
fn promise(backing: Backing, asked: Option<Durability>) -> Result<(Durability, &'static str)> {
    use {Backing as B, Durability as D};
    Ok(match (backing, asked) {
        (B::Dax, None | Some(D::Power)) => (D::Power, "persistent memory: flushed lines survive the machine"),
        (B::Dax, Some(D::Eadr)) => (D::Eadr, "as asked: caches are inside the power-safe domain"),
        (B::Dax, Some(D::Process)) => (D::Process, "as asked: writes survive the process, not the machine"),
        (B::Tmpfs, None | Some(D::Process)) => (
            D::Process,
            "a memory file system keeps writes when the process dies; it is gone when the machine stops",
        ),
        (B::Tmpfs, Some(asked)) => (
            asked,
            "emulated: flushes and fences are carried out, but a memory file system is gone when the machine stops",
        ),
        (B::Ordinary, None | Some(D::Process)) => (
            D::Process,
            "an ordinary file: the page cache keeps writes when the process dies, but a power cut can tear them",
        ),
        (B::Ordinary, Some(_)) => {
            return Err(PmemError::Durability(
                "power durability cannot be had on an ordinary file (flushing a processor's cache does not write back the \
                 page cache): use --durability process, or a directory on persistent memory or on a memory file system",
            )
            .into());
        }
    })
}

pub(crate) fn io(what: &'static str, path: &Path, source: std::io::Error) -> Error {
    PmemError::Io { what, path: path.to_owned(), source }.into()
}
