//! `scan`: prints keys and values in key order.

use std::ffi::OsString;
use std::ops::Bound;
use std::process::ExitCode;

use serde_json::Map;

use terminal::Output;

use crate::common::{Reading, Table, bytes};
use crate::failure::Result;
use crate::text;

const EXAMPLES: &str = "\
Prints a key, a tab and its value on each line, in the order of the keys' bytes. Bytes that are not printable are shown as
\\xNN and a backslash as \\\\; --raw prints all bytes unchanged. With --json each line is an object with `key` and `value`, or
`key_base64` and `value_base64` if the bytes are not UTF-8.

Examples:
  bristlecone scan --prefix user: --limit 10
  bristlecone scan --from 2024 --to 2025 --reverse --keys-only";

/// Arguments of `scan`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Only keys with this prefix.
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
    /// First key of the range (inclusive).
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// End of the range (exclusive).
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// Print in descending key order.
    #[arg(long)]
    reverse: bool,
    /// Maximum number of keys.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print keys without values.
    #[arg(long)]
    keys_only: bool,
    /// Print bytes unescaped.
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
    let store = arguments.reading.open()?;
    let table = arguments.table.of(&store)?;
    let own = |bound: &Option<OsString>| bound.as_ref().map(|key| bytes(key).to_vec());
    let range = match &arguments.prefix {
        Some(prefix) => bristlecone::prefix_range(bytes(prefix)),
        None => (
            own(&arguments.from).map_or(Bound::Unbounded, Bound::Included),
            own(&arguments.to).map_or(Bound::Unbounded, Bound::Excluded),
        ),
    };
    let past = arguments.at.as_ref().map(|name| table.snapshot_named(name)).transpose()?;
    let scan = past.as_ref().map_or_else(|| table.scan(range.clone()), |past| past.scan(range.clone()));
    let mut scan = if arguments.reverse { scan.descending() } else { scan };
    let mut output = Output::new();
    let (mut key, mut value, mut line) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..arguments.limit.unwrap_or(u64::MAX) {
        if !scan.next_into(&mut key, &mut value)? {
            break;
        }
        let value = (!arguments.keys_only).then_some(value.as_slice());
        if arguments.reading.common.json {
            output.json(&object(&key, value))?;
        } else {
            line.clear();
            print(&mut line, &key, value, arguments.raw);
            output.write(&line)?;
        }
    }
    drop(scan);
    drop(past);
    output.end()?;
    store.close()?;
    Ok(ExitCode::SUCCESS)
}

fn object(key: &[u8], value: Option<&[u8]>) -> Map<String, serde_json::Value> {
    let mut object = Map::new();
    text::json_field(&mut object, "key", key);
    if let Some(value) = value {
        text::json_field(&mut object, "value", value);
    }
    object
}

fn print(line: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>, raw: bool) {
    let append = |line: &mut Vec<u8>, bytes: &[u8]| {
        if raw { line.extend_from_slice(bytes) } else { text::escape_into(line, bytes) }
    };
    append(line, key);
    if let Some(value) = value {
        line.push(b'\t');
        append(line, value);
    }
    line.push(b'\n');
}
