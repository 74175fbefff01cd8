//! `lab`: experiments that prove, beside `bench` that measures.

use std::process::ExitCode;

use ::lab::crash_tree::{self, Engine};

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
    /// Enumerate what a crash can leave behind, recover every image, and judge it; then leave out every flush and fence in
    /// turn and demand that something breaks.
    #[command(after_help = "\
Exit code 4 on a violation, a mutant that is neither killed nor argued, a canary that lives, or fewer states than the floor.

Example:
  bristlecone lab crash --tree wbtree --json")]
    Crash(Crash),
}

#[derive(clap::Args)]
struct Crash {
    /// Which durable tree: wbtree or wbtree-keyptr.
    #[arg(long)]
    tree: Engine,
    /// Operations of each random run.
    #[arg(long, default_value_t = crash_tree::Options::OPS)]
    ops: usize,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only nodes of this many cache lines (the floor does not apply then).
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
    spinner.enable_steady_tick(std::time::Duration::from_millis(200));
    let report = crash_tree::run(&options, &|what| spinner.set_message(what.to_owned()));
    spinner.finish_and_clear();
    let mut output = Output::new();
    if crash.json {
        output.json(&report)?;
    } else {
        output.line(&report.to_string())?;
    }
    output.end()?;
    Ok(if report.is_good() { ExitCode::SUCCESS } else { crate::failure::DAMAGED.into() })
}
