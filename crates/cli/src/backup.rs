//! `backup`: copies the state of a store at one moment into a new store.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bristlecone::{Options, Store};
use serde_json::json;

use terminal::{DAMAGED, Output, progress_bar};

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
  bristlecone backup --dir data backups/monday --check       (a backup that is known to be sound)
  bristlecone backup --dir backups/monday /dev/shm/data      (restores it)";

/// Arguments of `backup`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, allow_missing_positional = true)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArgument,
    /// Directory of the backup.
    target: PathBuf,
    /// Verify the backup: read all of it, as `check --dir TARGET` does. Exit code 4 if it is damaged, probably because the store is.
    #[arg(long)]
    check: bool,
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
    let problems = arguments.check.then(|| problems(&arguments.target)).transpose()?;
    let mut output = Output::new();
    let target = arguments.target.display().to_string();
    if arguments.json {
        let mut report = json!({
            "keys": made.keys, "keys_pending": made.keys_pending, "bytes": made.bytes, "target": target,
        });
        if let Some(problems) = &problems {
            report["problems"] = json!(problems);
        }
        output.json(&report)?;
    } else {
        let about = if made.keys_pending { "about " } else { "" };
        output.line(&format!("{about}{} keys, {} bytes are in {target}", made.keys, made.bytes))?;
        match problems.as_deref() {
            None => {}
            Some([]) => output.line("the backup is sound")?,
            Some(problems) => {
                problems.iter().try_for_each(|problem| output.line(&format!("problem: {problem}")))?;
                output.line(&format!(
                    "the backup is damaged: keep older backups, and run `check --dir {}` to see whether the store is, too",
                    arguments.store.dir().display()
                ))?;
            }
        }
    }
    output.end()?;
    Ok(if problems.is_none_or(|problems| problems.is_empty()) { ExitCode::SUCCESS } else { DAMAGED.into() })
}

/// The problems of the backup.
fn problems(target: &Path) -> bristlecone::Result<Vec<String>> {
    let check = || -> bristlecone::Result<Vec<String>> {
        let store = Store::open(target, Options::default().create(false))?;
        let report = store.check()?;
        store.close()?;
        Ok(report.problems)
    };
    match check() {
        Err(error) if error.is_damage() => Ok(vec![error.to_string()]),
        checked => checked,
    }
}
