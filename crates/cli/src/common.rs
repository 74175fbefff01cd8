//! What the commands share: the directory of the store, and keys as bytes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use bristlecone::{Options, Store};

use crate::failure::Result;

/// Options of every command.
#[derive(clap::Args)]
pub struct Common {
    /// Directory of the store.
    #[arg(long, value_name = "DIR", default_value = "./bristlecone-data")]
    pub dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl Common {
    /// Opens the store, and makes it if there is none.
    pub fn open_or_create(&self) -> Result<Store> {
        Ok(Store::open(&self.dir, Options::default())?)
    }

    /// Opens the store; an error if there is none.
    pub fn open(&self) -> Result<Store> {
        Ok(Store::open(&self.dir, Options { create: false, ..Options::default() })?)
    }
}

/// Options of the commands that only look.
#[derive(clap::Args)]
pub struct Reading {
    #[command(flatten)]
    pub common: Common,
    /// Change nothing of the store's files, not even to recover them. Several may read so at once; a store with a journal can be
    /// read beside the server that has it open, as of one moment (from a copy in memory).
    #[arg(long)]
    pub read_only: bool,
}

impl Reading {
    /// Opens the store; an error if there is none.
    pub fn open(&self) -> Result<Store> {
        let options = Options { create: false, read_only: self.read_only, ..Options::default() };
        Ok(Store::open(&self.common.dir, options)?)
    }
}

/// A key or value from the command line, whatever its bytes.
pub fn bytes(argument: &OsStr) -> &[u8] {
    argument.as_bytes()
}
