//! `lab`: proofs and experiments.

use std::process::ExitCode;

use ::lab::crash_tree;

use crate::common::Output;
use crate::failure::Result;

/// Arguments of `lab`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Enumerate what a power cut can leave of a durable tree, and check every image; then leave out each flush and fence,
    /// and see that some image breaks.
    #[command(after_help = CRASH_HELP)]
    Crash(Crash),
}

const CRASH_HELP: &str = "\
The exit code is 1 on a violation, a mutant that is neither caught nor argued, an uncaught canary, or fewer states than
the recorded floor.

Example:
  bristlecone lab crash --tree wbtree --ops 2000 --seed 7 --json";

#[derive(clap::Args)]
struct Crash {
    /// The tree: wbtree (words, and byte strings with inline prefixes) or wbtree-keyptr.
    #[arg(long)]
    tree: crash_tree::Engine,
    /// Operations of each random run.
    #[arg(long, default_value_t = crash_tree::Options::OPS)]
    ops: usize,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only nodes of this many cache lines.
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..=16))]
    node_lines: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let What::Crash(crash) = &arguments.what;
    let options = crash_tree::Options {
        engine: crash.tree,
        ops: crash.ops,
        seed: crash.seed,
        node_lines: crash.node_lines,
    };
    let spinner = indicatif::ProgressBar::new_spinner();
    let report = crash_tree::run(&options, &|what| {
        spinner.set_message(what.to_owned());
        spinner.tick();
    });
    spinner.finish_and_clear();
    let mut output = Output::new();
    if crash.json {
        output.json(&report)?;
    } else {
        output.line(&report.to_string())?;
    }
    output.end()?;
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
