//! `bench`: times of operations beside the memory's own floor.

use std::path::PathBuf;
use std::process::ExitCode;

use ::lab::trees;

use crate::common::Output;
use crate::failure::Result;

/// Arguments of `bench`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Search, insert, update, delete and scan: our trees beside std's BTreeMap and the memory's floor.
    #[command(after_help = "Example:\n  bristlecone bench trees --keys 10000000 --json")]
    Trees(Trees),
}

#[derive(clap::Args)]
struct Trees {
    /// Keys in each tree.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    keys: u64,
    /// Operations of a batch; 0 for a tenth of the keys, at most a million.
    #[arg(long, default_value_t = 0)]
    operations: u64,
    /// Rounds; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Cache lines of a node.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..=16))]
    node_lines: u64,
    /// Directory whose file system backs trees and floor.
    #[arg(long, default_value = "/dev/shm")]
    backing: PathBuf,
    /// Flush with clflush and fence with mfence, as the papers did.
    #[arg(long)]
    paper_instructions: bool,
    /// Seed of keys and order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let What::Trees(trees) = &arguments.what;
    let options = trees::Options {
        keys: trees.keys,
        operations: trees.operations,
        rounds: trees.rounds as usize,
        node_lines: trees.node_lines,
        backing: trees.backing.clone(),
        paper_instructions: trees.paper_instructions,
        seed: trees.seed,
    };
    let spinner = indicatif::ProgressBar::new_spinner();
    let report = trees::run(&options, &|what| {
        spinner.set_message(what.to_owned());
        spinner.tick();
    })?;
    spinner.finish_and_clear();
    let mut output = Output::new();
    if trees.json {
        output.json(&report)?;
    } else {
        output.line(&report.to_string())?;
    }
    output.end()?;
    Ok(ExitCode::SUCCESS)
}
