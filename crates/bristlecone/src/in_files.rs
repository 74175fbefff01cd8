//! Stores of engines that keep their contents in files of their own: `bwtree`.
//!
//! The store's file has one sector, with the identity of the store: a random number that is in all files, the engine, the kind of keys and
//! values, the node size and the durability. It is made, named and locked like the file of every other store ([`StoreDir`]). The other
//! files are beside it and have its name as their beginning.

use std::path::Path;

use ::index::engine::{Files, InFiles};
use pmem::Durability;
use pmem::copy::Progress;

#[cfg(not(feature = "bwtree"))]
use crate::error::Error;
use crate::error::Result;
#[cfg(feature = "bwtree")]
use crate::options::Compression;
use crate::store_dir::{FILE_NAME, StoreDir};
#[cfg(feature = "bwtree")]
use logstore::salvage::Lost;

/// Cache lines of a page for each cache line of the node size: by default a page has 16 KiB. It is read from its file as a whole.
pub(crate) const PAGE_LINES: u64 = 4;

/// The identity of a store in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// A random number, the same in all files of the store. Never 0.
    pub(crate) id: u64,
    /// Name of the engine.
    pub(crate) engine: String,
    /// Kind of keys and values.
    pub(crate) kind: String,
    /// Cache lines of a node, from which the size of a page follows.
    pub(crate) node_lines: u64,
    /// The durability.
    pub(crate) durability: Durability,
}

/// Makes or opens the index of a kind.
pub(crate) type Opener<K> = fn(&Files<'_>) -> InFiles<K>;

impl Identity {
    /// Writes the identity into the file of a new store.
    ///
    /// # Errors
    /// `Pmem`: `Io`.
    #[cfg(feature = "bwtree")]
    pub(crate) fn write(&self, store_dir: &StoreDir) -> Result<()> {
        let Self { id, engine, kind, node_lines, durability } = self;
        let text = format!("{engine}\n{kind}\n{node_lines}\n{durability}");
        let path = store_dir.new_paths().0;
        Ok(logstore::identity::write(
            &store_dir.file,
            &path,
            &logstore::identity::Identity { id: *id, text },
        )?)
    }

    #[cfg(not(feature = "bwtree"))]
    fn write(&self, _store_dir: &StoreDir) -> Result<()> {
        Err(Error::Unsupported("no engine with files of its own is compiled".into()))
    }

    /// The identity of the store in `dir`. `None` if there is no store, or it is no store in files.
    ///
    /// # Errors
    /// `Pmem`: `Foreign` if it is damaged; `Version`; `Io`.
    #[cfg(feature = "bwtree")]
    pub(crate) fn of_store(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(FILE_NAME);
        let Some(logstore::identity::Identity { id, text }) = logstore::identity::read(&path)? else {
            return Ok(None);
        };
        let mut lines = text.lines();
        let mut next = || lines.next().map(str::to_owned);
        let identity = (|| {
            Some(Self {
                id,
                engine: next()?,
                kind: next()?,
                node_lines: next()?.parse().ok()?,
                durability: match next()?.as_str() {
                    "power" => Durability::Power,
                    "process" => Durability::Process,
                    _ => return None,
                },
            })
        })();
        let why = "its identity is damaged";
        identity.map(Some).ok_or_else(|| pmem::Error::Foreign { path, why }.into())
    }

    #[cfg(not(feature = "bwtree"))]
    pub(crate) fn of_store(_dir: &Path) -> Result<Option<Self>> {
        Ok(None)
    }

    /// Copies the files of a store that no process writes to.
    ///
    /// # Errors
    /// `Pmem`: `NoSpace`, `Io`.
    #[cfg(feature = "bwtree")]
    pub(crate) fn copy(&self, dir: &Path, to: &Path, progress: Progress<'_>) -> Result<u64> {
        Ok(logstore::copy::copy(dir, FILE_NAME, to, None, progress)?)
    }

    #[cfg(not(feature = "bwtree"))]
    pub(crate) fn copy(&self, _dir: &Path, _to: &Path, _progress: Progress<'_>) -> Result<u64> {
        Err(Error::Unsupported("no engine with files of its own is compiled".into()))
    }

    /// The compression of new pages, also of a damaged store.
    ///
    /// # Errors
    /// `Pmem`: `Io`.
    #[cfg(feature = "bwtree")]
    pub(crate) fn compression(&self, dir: &Path) -> Result<Compression> {
        let compresses = logstore::salvage::compresses(dir, FILE_NAME, self.id)?;
        Ok(if compresses { Compression::Lz4 } else { Compression::None })
    }

    /// Reads all pairs that can be read, also of a damaged store: see [`logstore::salvage`].
    ///
    /// # Errors
    /// `Pmem`: `Io`; those of `apply`.
    #[cfg(feature = "bwtree")]
    pub(crate) fn read<P: bwtree::Pairs>(
        &self,
        dir: &Path,
        apply: logstore::salvage::Apply<'_, P>,
        progress: &dyn Fn(f64),
    ) -> Result<Lost> {
        Ok(logstore::salvage::salvage::<P>(dir, FILE_NAME, self.id, apply, progress)?)
    }
}
