//! `compact`: rewrites a store into a smaller file.

use std::path::PathBuf;
use std::process::ExitCode;

use terminal::{Output, progress_bar};

use crate::failure::Result;

const EXAMPLES: &str = "\
The space of deleted keys is used again, but the file does not shrink by itself. This writes all pairs to a new file beside it, in
key order, and gives that the store's name when it is whole: at any moment, a crash leaves the store or the new one. Nobody else
may have the store open, and there must be space for both files. Of a store that keeps versions the newest stays, without names.

Example:
  bristlecone compact data";

/// Arguments of `compact`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Directory of the store.
    store: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let bar = progress_bar(0, "{wide_bar} {human_pos}/{human_len} keys {eta}");
    let done = bristlecone::compact(&arguments.store, &|done, total| {
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
