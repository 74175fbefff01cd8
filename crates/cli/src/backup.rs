//! `backup`: copies the state of a store at one moment into a new store.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use terminal::{Output, progress_bar};

use crate::common::StoreArgument;
use crate::failure::Result;

const EXAMPLES: &str = "\
Only reads the store, closed or crashed. While a server has the store open, a backup is possible if the store has a journal, as
stores on ordinary disks have; it contains the state of one moment. Without a journal only the server can copy its store: start
it with --backup-dir and send it SAVE or BGSAVE.

TARGET must not exist, or be an empty directory. An interrupted backup leaves no store there. The backup has a journal if the
store has one. On another kind of file system it has one if a new store there would have one. To restore, run
`bristlecone backup --dir BACKUP DIRECTORY`.

Examples:
  bristlecone backup --dir data backups/monday               (or: bristlecone backup data backups/monday)
  bristlecone backup --dir backups/monday /dev/shm/data      (restores it)";

/// Arguments of `backup`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, allow_missing_positional = true)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArgument,
    /// Directory of the backup.
    target: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let bar = progress_bar(0, "{wide_bar} {bytes}/{total_bytes} {eta}");
    let made = bristlecone::backup(arguments.store.dir(), &arguments.target, &|done, total| {
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
