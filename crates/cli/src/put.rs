//! `put` and `del`: change single keys from the command line.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::process::ExitCode;

use bristlecone::VALUE_BYTES_MAX;
use serde_json::json;

use terminal::{NOT_FOUND, Output};

use crate::common::{Common, Table, bytes};
use crate::failure::{Result, io};

const EXAMPLES: &str = "\
Examples:
  bristlecone put user:7 Ada
  bristlecone put picture - < picture.png";

/// Arguments of `put`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Key, 1 to 65,520 bytes (65,535 in a store without tables).
    key: OsString,
    /// Value, up to 256 MiB; `-` reads it from standard input.
    #[arg(allow_hyphen_values = true)]
    value: OsString,
    #[command(flatten)]
    table: Table,
    #[command(flatten)]
    common: Common,
}

/// Runs `put`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut read = Vec::new();
    let value = if arguments.value == "-" {
        // One byte more than the maximum, so that the store refuses a longer value.
        let input = io::stdin().lock().take(VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut read);
        input.map_err(io("cannot read the standard input"))?;
        &read[..]
    } else {
        bytes(&arguments.value)
    };
    let store = arguments.common.open_or_create()?;
    let replaced = arguments.table.make(&store)?.put(bytes(&arguments.key), value)?;
    store.close()?;
    let mut output = Output::new();
    if arguments.common.json {
        output.json(&json!({ "stored": true, "replaced": replaced }))?;
    }
    output.end()?;
    Ok(ExitCode::SUCCESS)
}

const DEL_EXAMPLES: &str = "\
Prints the number of removed keys. Exit code 3 if a key is absent (the others are removed).

Example:
  bristlecone del user:7 user:8";

/// Arguments of `del`.
#[derive(clap::Args)]
#[command(after_help = DEL_EXAMPLES)]
pub struct DelArguments {
    /// Keys to remove.
    #[arg(required = true)]
    keys: Vec<OsString>,
    #[command(flatten)]
    table: Table,
    #[command(flatten)]
    common: Common,
}

/// Runs `del`.
pub fn run_del(arguments: &DelArguments) -> Result<ExitCode> {
    let store = arguments.common.open()?;
    let table = arguments.table.of(&store)?;
    let mut removed = 0;
    for key in &arguments.keys {
        removed += usize::from(table.delete(bytes(key))?);
    }
    store.close()?;
    let missing = arguments.keys.len() - removed;
    let mut output = Output::new();
    if arguments.common.json {
        output.json(&json!({ "removed": removed, "missing": missing }))?;
    } else {
        output.line(&removed.to_string())?;
    }
    output.end()?;
    Ok(if missing == 0 { ExitCode::SUCCESS } else { NOT_FOUND.into() })
}
