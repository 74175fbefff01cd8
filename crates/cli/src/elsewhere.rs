//! `bench` and `lab`: commands of the program `bristlecone-lab`. The program `bristlecone` only prints how to run them.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::failure::{Failure, Result};

/// All arguments of the command, unparsed.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Reports how to run the command: `prefix` and the arguments follow the name of the other program.
///
/// # Errors
/// `Usage`, always.
pub fn run(prefix: &str, arguments: &Arguments) -> Result<ExitCode> {
    let words: Vec<_> = arguments.words.iter().map(|word| word.to_string_lossy()).collect();
    let rest = if words.is_empty() { "--help".into() } else { words.join(" ") };
    Err(Failure::Usage(format!(
        "benchmarks and experiments are in bristlecone-lab: cargo run --release -p bristlecone-lab -- {prefix}{rest}"
    )))
}
