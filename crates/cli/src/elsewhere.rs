//! `bench` and `lab`: commands of another program, `bristlecone-lab`. This one says how to run them.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::failure::{Failure, Result};

/// Whatever the command was given.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Says how to run the command: `prefix` and the words follow the name of the other program.
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
