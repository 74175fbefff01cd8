//! `get`: prints the value of a key.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use serde_json::Map;

use terminal::{NOT_FOUND, Output};

use crate::common::{Reading, Table, bytes};
use crate::failure::Result;
use crate::text;

const EXAMPLES: &str = "\
Prints the value and a line end. Bytes that are not printable are shown as \\xNN. --raw prints the bytes of the value only.
Exit code 3 if the key is absent.

Examples:
  bristlecone get user:7
  bristlecone get --raw picture > picture.png";

/// Arguments of `get`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The key.
    key: OsString,
    /// Print the bytes of the value unescaped and without a line end.
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Read the version with this name (see `versions keep`).
    #[arg(long, value_name = "NAME")]
    at: Option<String>,
    #[command(flatten)]
    table: Table,
    #[command(flatten)]
    reading: Reading,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let key = bytes(&arguments.key);
    let store = arguments.reading.open()?;
    let table = arguments.table.of(&store)?;
    let value = match &arguments.at {
        None => table.get(key)?,
        Some(name) => table.snapshot_named(name)?.get(key)?,
    };
    store.close()?;
    let mut output = Output::new();
    if arguments.reading.common.json {
        let mut object = Map::new();
        text::json_field(&mut object, "key", key);
        object.insert("found".to_owned(), value.is_some().into());
        if let Some(value) = &value {
            text::json_field(&mut object, "value", value);
        }
        output.json(&object)?;
    } else if let Some(value) = &value {
        if arguments.raw {
            output.write(value)?;
        } else {
            output.line(&text::escaped(value))?;
        }
    } else {
        // An error here is ignored: the exit code reports the missing key too.
        let _ = writeln!(io::stderr(), "bristlecone: key not found: {}", text::escaped(key));
    }
    output.end()?;
    Ok(if value.is_some() { ExitCode::SUCCESS } else { NOT_FOUND.into() })
}
