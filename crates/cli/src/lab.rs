//! `lab`: experiments that prove, beside `bench` that measures.

use std::process::ExitCode;

use ::lab::crash_tree::{self, Engine};

use crate::common::{progress_bar, show};
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
Crash points are explored up to a number of images, beyond it sampled; the report counts those.
Exit code 4 on a violation, a mutant that is neither killed nor argued, a canary that lives, or fewer states than the floor.

Example:
  bristlecone lab crash --tree wbtree --json")]
    Crash(Crash),
}

#[derive(clap::Args)]
struct Crash {
    /// Which durable tree of the engines that `serve --help` lists.
    #[arg(long)]
    tree: Engine,
    /// Operations of each random run. Nothing else depends on it. Beyond 1,000 few images are tried at each crash point.
    #[arg(long, default_value_t = crash_tree::Options::OPS)]
    ops: usize,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Explore only nodes of this many cache lines (the floor does not apply then). The mutation run is always the same.
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..=64))]
    node_lines: Option<u64>,
    /// Most threads; what is found does not depend on it [default: all processors].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let What::Crash(crash) = &arguments.what;
    let about = crash.tree.about();
    if let Some(lines) = crash.node_lines.filter(|lines| !about.allows(*lines)) {
        let (least, most) = about.lines;
        let name = about.name;
        let why = format!("a node of {lines} lines: nodes of {name} have {least} to {most}");
        return Err(crate::failure::Failure::Usage(why));
    }
    let mut options = crash_tree::Options {
        ops: crash.ops,
        seed: crash.seed,
        node_lines: crash.node_lines,
        ..crash_tree::Options::new(crash.tree)
    };
    if let Some(threads) = crash.threads {
        options.threads = threads.into();
    }
    let bar = progress_bar(0, "{elapsed_precise} {bar:20} {pos}/{len} {prefix}: {wide_msg}");
    let report = crash_tree::run(&options, &|progress| {
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        bar.set_prefix(progress.stage);
        bar.set_message(progress.piece.to_owned());
    });
    bar.finish_and_clear();
    show(&report, crash.json)?;
    Ok(if report.is_good() { ExitCode::SUCCESS } else { crate::failure::DAMAGED.into() })
}
