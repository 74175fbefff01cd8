//! `bench`: times of operations beside the memory's own floor.

use std::path::PathBuf;
use std::process::ExitCode;

use ::lab::scratch::Instructions;
use ::lab::{Engine, engine, reopen, trees};

use crate::common::{show, with_spinner};
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
    /// Time to open a store that was not closed, at growing numbers of keys.
    #[command(after_help = "Example:\n  bristlecone bench reopen --keys 1000000,10000000")]
    Reopen(Reopen),
}

#[derive(clap::Args)]
struct Reopen {
    /// Numbers of keys, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [100_000, 1_000_000], value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    keys: Vec<u64>,
    /// Times that each store is opened; medians are reported.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Directory for the files.
    #[arg(long, default_value = "/dev/shm")]
    backing: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
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
    /// Engines, separated by commas; durable ones are measured at process and at power durability.
    #[arg(long, value_delimiter = ',', default_value = "btree,wbtree", value_parser = engine)]
    engines: Vec<Engine>,
    /// Cache lines of a node; several sizes, separated by commas, are compared in one run. An engine without nodes of a size
    /// is left out there.
    #[arg(long, value_delimiter = ',', default_values_t = [16], value_parser = clap::value_parser!(u64).range(2..=64))]
    node_lines: Vec<u64>,
    /// Bytes of a value. More than 8, a multiple of it up to 120, stand inside the entries of the trees of 4 KiB nodes: name such
    /// engines, and 64 lines a node.
    #[arg(long, default_value_t = 8)]
    value_bytes: u64,
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
    match &arguments.what {
        What::Trees(trees) => {
            let options = trees::Options {
                keys: trees.keys,
                operations: trees.operations,
                rounds: trees.rounds as usize,
                engines: trees.engines.clone(),
                node_lines: trees.node_lines.clone(),
                value_bytes: trees.value_bytes,
                backing: trees.backing.clone(),
                instructions: match trees.paper_instructions {
                    true => Instructions::Paper,
                    false => Instructions::Best,
                },
                seed: trees.seed,
            };
            show(with_spinner(|progress| trees::run(&options, progress))?, trees.json)?;
        }
        What::Reopen(sizes) => {
            let options = reopen::Options {
                keys: sizes.keys.clone(),
                rounds: sizes.rounds as usize,
                backing: sizes.backing.clone(),
            };
            show(with_spinner(|progress| reopen::run(&options, progress))?, sizes.json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
