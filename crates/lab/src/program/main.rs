//! The `bristlecone-lab` program: benchmarks, crash exploration, cost model, simulated memory, the papers' experiments.
//!
//! Exit codes: 0 success; 1 an error; 2 wrong usage; 4 a failed check.
#![forbid(unsafe_code)]

mod bench;
mod costs;
mod experiments;
mod failure;

use std::process::ExitCode;

use clap::Parser;

/// Run benchmarks and experiments on Bristlecone's engines
#[derive(Parser)]
#[command(
    name = "bristlecone-lab",
    version,
    after_help = "\
Exit codes: 0 success; 1 error; 2 wrong usage; 4 a check failed.

Examples:
  bristlecone-lab bench trees --keys 1000000       compare engines with std's BTreeMap and the memory's baseline
  bristlecone-lab crash --tree wbtree              enumerate the states after a crash, recover and check each
  bristlecone-lab costs --check                    count words, flushes and fences, and compare with the papers
  bristlecone-lab run                              list the papers' experiments"
)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Measure operations, and compare them with the memory's baseline and with other stores
    Bench(bench::Arguments),
    #[command(flatten)]
    Experiments(Box<experiments::Command>),
}

fn main() -> ExitCode {
    let result = match Program::parse().command {
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Experiments(command) => experiments::run(&command),
    };
    match result {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
