//! The directory of a store and the names of its files.

use std::path::PathBuf;

use pmem::Result;
use pmem::file::io;

/// The place and the identity of a store's files.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) dir: PathBuf,
    /// The files' names are this and a number.
    pub(crate) stem: String,
    /// Id of the store.
    pub(crate) store: u64,
}

impl Place {
    pub(crate) fn path(&self, what: &str, number: u64) -> PathBuf {
        self.dir.join(format!("{}.{what}-{number:016x}", self.stem))
    }

    /// The numbers of the files of a kind, ascending.
    pub(crate) fn numbers(&self, what: &str) -> Result<Vec<u64>> {
        let entries =
            std::fs::read_dir(&self.dir).map_err(|source| io("cannot read directory", &self.dir, source))?;
        let start = format!("{}.{what}-", self.stem);
        let mut numbers: Vec<u64> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                u64::from_str_radix(name.strip_prefix(&start)?, 16).ok()
            })
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}
