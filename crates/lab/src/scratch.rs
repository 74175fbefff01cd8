//! Files for measured trees, in the backing directory that the user chooses. The name of a file is removed at once, so the file disappears
//! when no process has it open.

use std::fs::{File, OpenOptions};
use std::path::Path;

use pmem::native::{FenceOp, FlushOp};
use pmem::{Durability, Native};

use crate::Error;

/// The instructions that make a change durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Instructions {
    /// clflush and mfence, as in the papers.
    Paper,
    /// The best flush instruction of the processor, and sfence.
    Best,
}

/// Makes durable memory in a new file of the backing directory.
///
/// # Errors
/// `File` or `Pmem` if the backing cannot be used.
pub fn medium(
    backing: &Path,
    name: &str,
    max_bytes: u64,
    durability: Durability,
    instructions: Instructions,
) -> Result<Native, Error> {
    let medium = Native::map(file(backing, name)?, Path::new(name), max_bytes, durability)?;
    Ok(match instructions {
        Instructions::Paper => medium.with_instructions(FlushOp::Clflush, FenceOp::Mfence),
        Instructions::Best => medium,
    })
}

/// Makes a file in the backing directory that disappears with its last user.
///
/// # Errors
/// `File` if the file cannot be made.
pub fn file(backing: &Path, name: &str) -> Result<File, Error> {
    let path = backing.join(format!("bristlecone-bench-{}-{name}", std::process::id()));
    let made = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let file = made.map_err(|source| Error::File { path: path.clone(), source })?;
    std::fs::remove_file(&path).map_err(|source| Error::File { path, source })?;
    Ok(file)
}
