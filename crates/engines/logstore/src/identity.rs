//! The store's own file, which the caller names and locks: one header, whose text says which engine made the store and of what it consists.

use std::fs::{File, OpenOptions};
use std::path::Path;

use pmem::file::io;
use pmem::{Result, system};

use crate::header::{self, Header, Kind};

/// The identity of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// A random number, the same in all files of the store.
    pub id: u64,
    /// Facts about the store, at most 460 bytes.
    pub text: String,
}

/// Writes the identity of a new store into its empty file. The caller syncs the file.
///
/// # Errors
/// `Io`.
pub fn write(file: &File, path: &Path, identity: &Identity) -> Result<()> {
    let Identity { id, text } = identity.clone();
    let header = Header { kind: Kind::Store, store: id, number: 0, lsn: 0, text };
    system::write_all_at(file, path, 0, &header.encode()).map_err(|source| io("cannot write", path, source))
}

/// Reads the identity of a store. `None` if there is no file, or the file is that of a store of another kind.
///
/// # Errors
/// `Foreign` if the file is damaged; `Version`; `Io`.
pub fn read(path: &Path) -> Result<Option<Identity>> {
    let file = match system::open(OpenOptions::new().read(true), path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(|source| io("cannot open", path, source))?,
    };
    let mut bytes = vec![0; header::BYTES];
    let count =
        system::read_at(&file, path, 0, &mut bytes).map_err(|source| io("cannot read", path, source))?;
    if !Header::is_ours(&bytes) {
        return Ok(None);
    }
    let Header { store: id, text, .. } = Header::decode(&bytes[..count], Kind::Store, 0, path)?;
    Ok(Some(Identity { id, text }))
}
