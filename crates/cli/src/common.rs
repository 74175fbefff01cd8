//! Options that several commands share, and the conversion of arguments to bytes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bristlecone::{Compression, Options, Store};

use crate::failure::{Failure, Result};

/// Options of every command.
#[derive(clap::Args)]
pub struct Common {
    /// Directory of the store.
    #[arg(long, value_name = "DIR", default_value = "./bristlecone-data")]
    pub dir: PathBuf,
    /// Print JSON. An error is an object `{"error":"..."}` on standard error.
    #[arg(long)]
    pub json: bool,
}

impl Common {
    /// Opens the store. Makes it if it does not exist.
    pub fn open_or_create(&self) -> Result<Store> {
        self.open_or_create_with(Options::default())
    }

    /// Like [`Common::open_or_create`], with these options.
    pub fn open_or_create_with(&self, options: Options) -> Result<Store> {
        Ok(Store::open(&self.dir, options)?)
    }

    /// Opens the store. An error if it does not exist.
    pub fn open(&self) -> Result<Store> {
        Ok(Store::open(&self.dir, Options::default().create(false))?)
    }
}

/// The table that a command uses.
#[derive(clap::Args)]
pub struct Table {
    /// Use the table with this name. The databases 1 to 15 of `serve` are tables with these names [default: the store's default table,
    /// which is database 0 of `serve`].
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
}

impl Table {
    /// The table. An error if it does not exist.
    pub fn of(&self, store: &Store) -> Result<Store> {
        let Some(name) = &self.table else { return Ok(store.clone()) };
        store.find_table(name)?.ok_or_else(|| {
            let known = store.list_tables().unwrap_or_default();
            let known: Vec<_> =
                known.iter().filter(|(name, _)| !name.is_empty()).map(|(name, _)| name.as_str()).collect();
            Failure::Usage(match known.as_slice() {
                [] => format!("there is no table {name:?}: the store has only its default table"),
                known => format!("there is no table {name:?}: the store has {}", known.join(", ")),
            })
        })
    }

    /// The table. Makes it if it does not exist.
    pub fn make(&self, store: &Store) -> Result<Store> {
        Ok(match &self.table {
            None => store.clone(),
            Some(name) => store.table(name)?,
        })
    }
}

/// Directory of the store for the commands that also take it as their first argument.
#[derive(clap::Args)]
pub struct StoreArgument {
    /// Directory of the store.
    #[arg(value_name = "STORE", required_unless_present = "dir", conflicts_with = "dir")]
    store: Option<PathBuf>,
    /// Directory of the store, given as an option, as for the other commands.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl StoreArgument {
    /// The directory.
    pub fn dir(&self) -> &Path {
        // The parser requires one of the two.
        self.dir.as_deref().or(self.store.as_deref()).unwrap_or(Path::new("."))
    }
}

/// Options of the commands that write many keys.
#[derive(clap::Args, Default)]
pub struct Writing {
    /// Maximum bytes of memory for changed pages and for writes that are not checkpointed yet, at least 16M [default: a quarter of the
    /// memory of the machine or of the control group]. A smaller bound causes more checkpoints. `bwtree` in files: maximum bytes of
    /// memory for its pages; the others are read from the files.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    memory: Option<u64>,
    /// `bwtree` in files: compression of the pages that are written from now on [default: as at the last checkpoint; none for a new store].
    /// Pages of both forms are read in any case.
    #[arg(long, value_enum, value_name = "FORMAT")]
    compression: Option<Format>,
    /// `bwtree` in files: reads and writes pages without the page cache of the operating system. Give `--memory` most of the memory then.
    #[arg(long)]
    direct_io: bool,
}

impl Writing {
    /// Options with these.
    pub fn set(&self, options: Options) -> Options {
        let compression = self.compression.map(|format| match format {
            Format::None => Compression::None,
            Format::Lz4 => Compression::Lz4,
        });
        options.memory_bytes(self.memory).compression(compression).direct_io(self.direct_io)
    }
}

/// Format of compressed pages.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// No compression.
    None,
    /// LZ4.
    Lz4,
}

/// Parses a number of bytes: digits, then optionally K, M, G or T (powers of 1024). `KB`, `MB` … are the same.
pub fn size(text: &str) -> std::result::Result<u64, String> {
    let split = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" | "KB" => 10,
        "M" | "MB" => 20,
        "G" | "GB" => 30,
        "T" | "TB" => 40,
        _ => return Err("expected a number of bytes, optionally with a suffix K, M, G or T".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|error| format!("{error}"))?;
    number.checked_mul(1 << shift).ok_or_else(|| "too many bytes".to_owned())
}

/// Options of the commands that only read.
#[derive(clap::Args)]
pub struct Reading {
    #[command(flatten)]
    pub common: Common,
    /// Change nothing in the directory, not even for recovery. Several processes may read a store in this way. A store with a journal can
    /// be read while a server has it open: its state at one moment is copied into memory.
    #[arg(long)]
    pub read_only: bool,
}

impl Reading {
    /// Opens the store. An error if it does not exist.
    pub fn open(&self) -> Result<Store> {
        let options = Options::default().create(false).read_only(self.read_only);
        Ok(Store::open(&self.common.dir, options)?)
    }
}

/// The bytes of a key or value from the command line. They need not be UTF-8.
pub fn bytes(argument: &OsStr) -> &[u8] {
    argument.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        assert_eq!(size("123"), Ok(123));
        assert_eq!((size("2k"), size("2kb")), (Ok(2048), Ok(2048)));
        assert_eq!(size("3G"), Ok(3 << 30));
        for wrong in ["", "K", "-1", "1.5G", "12X", "99999999999T", "99999999999999999999"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
