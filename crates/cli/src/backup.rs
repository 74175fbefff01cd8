//! `backup`: copies the state of a store at one moment into a new store.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use terminal::{Output, progress_bar};

use crate::failure::Result;

const EXAMPLES: &str = "\
The store is only read, whether it was closed or a crash left it. If a server has it open and it has a journal (as stores on
ordinary disks do), the backup is of one moment while the server goes on. Without a journal only the server itself can copy it:
start it with --backup-dir and tell it SAVE or BGSAVE.

TARGET does not exist or is an empty directory. A crash leaves nothing there that looks like a store. The backup has a journal if
the store has one; on another kind of file system, if a new store there would have one. To restore, back the backup up to where
the store shall be.

Examples:
  bristlecone backup data backups/monday
  bristlecone backup backups/monday /dev/shm/data      (restores it)";

/// Arguments of `backup`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Directory of the store.
    store: PathBuf,
    /// Directory of the backup.
    target: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let bar = progress_bar(0, "{wide_bar} {bytes}/{total_bytes} {eta}");
    let made = bristlecone::backup(&arguments.store, &arguments.target, &|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let made = made?;
    let mut output = Output::new();
    let target = arguments.target.display().to_string();
    if arguments.json {
        output.json(&json!({ "keys": made.keys, "bytes": made.bytes, "target": target }))?;
    } else {
        output.line(&format!("{} keys, {} bytes are in {target}", made.keys, made.bytes))?;
    }
    output.end()?;
    Ok(ExitCode::SUCCESS)
}
