//! `lab`: experiments that prove or judge, beside `bench` that measures.

use std::path::PathBuf;
use std::process::ExitCode;

use ::lab::crash_tree::{self, Engine};
use ::lab::experiment::{self, Experiment};
use ::lab::registry;

use crate::common::{progress_bar, show};
use crate::costs::{self, Costs};
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
    /// Count the words, flushes and fences of inserts, splits and deletes, and hold each operation against its price and
    /// against the papers' formulas.
    #[command(after_help = "\
With --check, exit code 4 if a single operation stores other words, passes other fences or flushes other lines than its
protocol says, or stands to a paper's formula otherwise than it should.

Examples:
  bristlecone lab costs --trees wbtree,btree-log --node-lines 8
  bristlecone lab costs --check
  bristlecone lab costs --by-category --scale 0.001")]
    Costs(Costs),
    /// Measure a figure of a paper again, and judge what the paper says of it.
    #[command(after_help = "\
Without a name the experiments are listed. A claim that does not hold is a result, not an error.

Examples:
  bristlecone lab run
  bristlecone lab run wb-fig13 --keys 1000000")]
    Run(Run),
    /// List every engine, its parts, and the lines of code that it takes.
    #[command(after_help = "Example:\n  bristlecone lab registry --json")]
    Registry(Registry),
}

#[derive(clap::Args)]
struct Run {
    /// Name of the experiment.
    #[arg(value_parser = experiment::find)]
    name: Option<&'static Experiment>,
    /// Keys in each tree.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(100..=1 << 32))]
    keys: u64,
    /// Operations of a batch; at most a twentieth of the keys are done.
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    operations: u64,
    /// Rounds; medians are reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Cache lines of a node, several sizes separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 8], value_parser = clap::value_parser!(u64).range(2..=16))]
    node_lines: Vec<u64>,
    /// Directory whose file system backs the trees.
    #[arg(long, default_value = "/dev/shm")]
    backing: PathBuf,
    /// Multiply keys and operations.
    #[arg(long, default_value_t = 1.0, value_parser = scale)]
    scale: f64,
    /// Seed of keys and order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Registry {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn scale(text: &str) -> std::result::Result<f64, String> {
    let scale: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let fits = scale > 0.0 && scale <= 1000.0;
    fits.then_some(scale).ok_or_else(|| "more than 0, at most 1000".to_owned())
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
    match &arguments.what {
        What::Crash(crash) => run_crash(crash),
        What::Costs(costs) => costs::run(costs),
        What::Run(run) => run_experiment(run),
        What::Registry(listed) => {
            show(registry::report()?, listed.json)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run_experiment(run: &Run) -> Result<ExitCode> {
    let Some(experiment) = run.name else {
        show(experiment::report::List::default(), run.json)?;
        return Ok(ExitCode::SUCCESS);
    };
    let options = experiment::Options {
        keys: run.keys,
        operations: run.operations,
        rounds: run.rounds as usize,
        node_lines: run.node_lines.clone(),
        backing: run.backing.clone(),
        scale: run.scale,
        seed: run.seed,
    };
    let bar = progress_bar(0, "{elapsed_precise} {bar:20} {pos}/{len} {wide_msg}");
    let report = (experiment.run)(experiment, &options, &|step| {
        bar.set_length(step.total);
        bar.set_position(step.done);
        bar.set_message(step.what);
    });
    bar.finish_and_clear();
    show(report?, run.json)?;
    Ok(ExitCode::SUCCESS)
}

fn run_crash(crash: &Crash) -> Result<ExitCode> {
    let about = crash.tree.about();
    if let Some(lines) = crash.node_lines.filter(|lines| !about.allows(*lines)) {
        let (least, most) = about.lines;
        let name = about.name;
        let why = format!("--node-lines {lines}: nodes of {name} have {least} to {most} lines");
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
