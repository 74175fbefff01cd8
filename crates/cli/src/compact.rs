//! `compact`: rewrites a store into a smaller file.

use std::process::ExitCode;

use terminal::{Output, progress_bar};

use crate::common::StoreArgument;
use crate::failure::Result;

const EXAMPLES: &str = "\
Writes all pairs in key order to a new file, and then renames it over the old one. A crash leaves the old file or the new one.
No other process may have the store open, and the disk must have space for both files. A store with versions keeps only the
newest one, without names. (Writes use the space of deleted keys again also without this command.) A store of `bwtree` in
files is compacted in place.

Example:
  bristlecone compact --dir data               (or: bristlecone compact data)";

/// Arguments of `compact`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArgument,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let bar = progress_bar(0, "{wide_bar} {percent} % {eta}");
    let done = bristlecone::compact(arguments.store.dir(), &|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let done = done?;
    let mut output = Output::new();
    if arguments.json {
        output.json(&done)?;
    } else {
        output.line(&format!(
            "{} keys; the file has {} bytes, and had {}",
            done.keys, done.bytes, done.bytes_before
        ))?;
    }
    output.end()?;
    Ok(ExitCode::SUCCESS)
}
