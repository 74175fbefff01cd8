//! `check`: verifies a store and reports problems; with `--salvage`, copies intact records into a new store.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use terminal::{DAMAGED, Output, progress_bar};

use crate::common::Reading;
use crate::failure::Result;

const EXAMPLES: &str = "\
Reads the whole store: structure, order, checksums, ownership of every block.
Exit code 4 if a problem is found; with --salvage, if not everything was rescued.
Opening a store that was not closed recovers it, which writes to it. With --read-only nothing is written.

Examples:
  bristlecone check --dir data --json
  bristlecone check --dir data --read-only           (also while a server has it open, if it has a journal)
  bristlecone check --dir data --salvage rescued     (also for a store that does not open)";

/// Arguments of `check`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    reading: Reading,
    /// Copy every intact record into a new store in this directory, which must have no store yet. The damaged store is only read.
    #[arg(long, value_name = "NEW_DIR")]
    salvage: Option<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(new_dir) = &arguments.salvage {
        return salvage(arguments, new_dir);
    }
    let store = arguments.reading.open()?;
    let report = store.check()?;
    store.close()?;
    let sound = report.problems.is_empty();
    let mut output = Output::new();
    if arguments.reading.common.json {
        output.json(&report)?;
    } else {
        for problem in &report.problems {
            output.line(&format!("problem: {problem}"))?;
        }
        let verdict = match report.problems.len() {
            0 => "sound".to_owned(),
            1 => "damaged: 1 problem".to_owned(),
            count => format!("damaged: {count} problems"),
        };
        let (keys, nodes, levels, bytes) = (report.keys, report.nodes, report.levels, report.live_bytes);
        output
            .line(&format!("{verdict}; {keys} keys, {nodes} nodes, {levels} levels, {bytes} bytes in use"))?;
    }
    output.end()?;
    Ok(if sound { ExitCode::SUCCESS } else { DAMAGED.into() })
}

fn salvage(arguments: &Arguments, new_dir: &Path) -> Result<ExitCode> {
    let bar = progress_bar(1000, "{wide_bar} {percent} % {eta}");
    let report = bristlecone::salvage(&arguments.reading.common.dir, new_dir, &|share| {
        bar.set_position((share * 1000.0) as u64);
    });
    bar.finish_and_clear();
    let report = report?;
    let mut output = Output::new();
    if arguments.reading.common.json {
        output.json(&report)?;
    } else {
        let keys = report.keys();
        output.line(&format!("{keys} keys are in the new store in {}", new_dir.display()))?;
        output.line(&format!("{} from leaves", report.from_leaves))?;
        output.line(&format!("{} from records that no intact leaf names", report.from_records))?;
        let damaged = report.from_damaged_chunks;
        output.line(&format!(
            "{damaged} from chunks with damaged headers (they may have been deleted before)"
        ))?;
        output.line(&format!("{} records were damaged and left out", report.damaged_records))?;
        if report.damaged_leaves > 0 {
            output.line(&format!("{} leaves have parts that could not be read", report.damaged_leaves))?;
        }
        if report.too_long > 0 {
            let count = report.too_long;
            output.line(&format!(
                "{count} values are too long for the new store's journal and were left out; the damaged store still has them"
            ))?;
        }
        if report.superblock_lost {
            output.line("the superblock was lost: default sizes were assumed")?;
        }
        if report.journal_lost {
            output.line("the journal is missing or damaged: the newest writes may be missing")?;
        }
        if report.missing_bytes > 0 {
            output.line(&format!("the store's file lacks its last {} bytes", report.missing_bytes))?;
        }
        output.line(match report.complete {
            true => "every key of the store was rescued",
            false => "some keys of the store may be missing: compare with a backup",
        })?;
    }
    output.end()?;
    Ok(if report.complete { ExitCode::SUCCESS } else { DAMAGED.into() })
}
