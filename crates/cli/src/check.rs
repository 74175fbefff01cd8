//! `check`: verifies everything and tells what is wrong.

use std::process::ExitCode;

use crate::common::{Common, Output};
use crate::failure::{DAMAGED, Result};

const EXAMPLES: &str = "\
Reads the whole store: structure, order, checksums, ownership of every block. It changes nothing.
Exit code 4 if something is wrong.

Example:
  bristlecone check --dir data --json";

/// Arguments of `check`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let store = arguments.common.open()?;
    let report = store.check()?;
    store.close()?;
    let sound = report.problems.is_empty();
    let mut output = Output::new();
    if arguments.common.json {
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
