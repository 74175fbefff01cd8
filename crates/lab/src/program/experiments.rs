//! The commands other than `bench`: crash exploration, cost model, experiments of the papers, simulated memory.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crash_tree::{self, Engine};
use lab::experiment::{self, Experiment};
use lab::registry;
use lab::{flush, heat};

use terminal::{progress_bar, show};

use crate::costs::{self, Costs};
use crate::failure::{Failure, Result, with_spinner};

/// The commands.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Enumerate the memory images that a crash can leave, recover each and verify it; then remove every flush and fence in turn, which a
    /// check must detect
    #[command(after_help = "\
A crash point with too many possible images is sampled; the report counts such points.
Exit code 4: a violation, a surviving mutant that is not listed as equivalent, an undetected injected fault, or fewer states
than the recorded minimum.

Example:
  bristlecone-lab crash --tree wbtree --json")]
    Crash(Crash),
    /// Count the words, flushes and fences of inserts, splits and deletes, and compare them with the expected costs and the papers'
    /// formulas
    #[command(after_help = "\
With --check, exit code 4 if the words, flushes or fences of any operation differ from its commit protocol, or if a documented
difference from a paper's formula is different.

Examples:
  bristlecone-lab costs --trees wbtree,btree-log --node-lines 8
  bristlecone-lab costs --check
  bristlecone-lab costs --by-category --scale 0.001")]
    Costs(Costs),
    /// Repeat experiments of the papers, measured or simulated, and judge the papers' claims
    #[command(after_help = "\
Without a name, the experiments are listed. A claim that does not hold is a result, not an error.
Simulated experiments accept --memory and --set, but not --rounds or --backing: a seed gives the same cycles on every machine.

Examples:
  bristlecone-lab run
  bristlecone-lab run wb-fig13 --keys 1000000
  bristlecone-lab run wb-fig4 wb-fig11 wb-fig12 --scale 0.05
  bristlecone-lab run wb-fig11 --memory sttram --set ranks=8")]
    Run(Run),
    /// Insert keys into a tree on simulated memory, and show where and when it writes, which lines wear out, and after what time
    #[command(after_help = "\
Stores are words that the index stores. Writes are lines that the device writes, below the caches.

Examples:
  bristlecone-lab heat --tree wbtree --keys 1000
  bristlecone-lab heat --tree cdds,btree --node-lines 16,8 --keys 100000 --svg heat.svg
  bristlecone-lab heat --tree wbtree --start-gap 100 --set endurance=1e6")]
    Heat(Heat),
    /// Measure the lines written back per second, by the size of the flushed range
    #[command(after_help = "Example:\n  bristlecone-lab flush --rounds 5")]
    Flush(Flush),
    /// List all engines and their parts
    #[command(after_help = "Example:\n  bristlecone-lab registry --json")]
    Registry(Registry),
}

#[derive(clap::Args)]
/// Arguments of `run`.
pub struct Run {
    /// Names of the experiments.
    #[arg(value_parser = experiment::find)]
    names: Vec<&'static Experiment>,
    /// Number of keys in each tree [default: depends on the experiment, 5 to 21.5 million].
    #[arg(long, value_parser = clap::value_parser!(u64).range(100..=1 << 32))]
    keys: Option<u64>,
    /// Operations of a batch; for bulk-loaded trees at most a twentieth of the keys [default: depends on the experiment, 100,000 to 4
    /// million].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    operations: Option<u64>,
    /// Number of rounds; medians are reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Cache lines of a node. Several sizes are separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 8], value_parser = clap::value_parser!(u64).range(2..=16))]
    node_lines: Vec<u64>,
    /// Directory whose file system backs the trees.
    #[arg(long, default_value = "/dev/shm")]
    backing: PathBuf,
    /// Directory on an ordinary file system, for experiments that write files.
    #[arg(long, default_value = ".")]
    disk: PathBuf,
    /// Trace for vlab-fig19, vlab-fig20, vlab-table8 and, only if given, vlab-keys. A text file with a basket per line, item numbers
    /// separated by blanks [default: generated with the statistics of the paper's shop trace].
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Word list for vlab-keys: a text file with a word per line. Without it, the row for words is omitted.
    #[arg(long)]
    words: Option<PathBuf>,
    /// Factor for the numbers of keys and operations.
    #[arg(long, default_value_t = 1.0, value_parser = scale)]
    scale: f64,
    /// Seed of keys and their order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    memory: Memory,
    /// Draw each simulated figure into a new file in this directory, named after the experiment.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Print JSON, one line per experiment.
    #[arg(long)]
    json: bool,
}

/// The simulated memory hierarchy.
#[derive(clap::Args)]
struct Memory {
    /// Simulated memory: pcm (the paper's Table 4), sttram or nvdimm.
    #[arg(long, default_value = "pcm", value_parser = |name: &str| pcm::Config::preset(name))]
    memory: pcm::Config,
    /// Change parameters of the simulated memory, such as read-cycles=300; separate several with commas. An unknown name lists all
    /// parameters.
    #[arg(long, value_name = "FIGURE=NUMBER", value_delimiter = ',')]
    set: Vec<String>,
}

impl Memory {
    fn config(&self) -> Result<pcm::Config> {
        let mut config = self.memory;
        let set = config.set_all(self.set.iter().map(String::as_str));
        set.map_err(|why| Failure::Usage(format!("--set: {why}")))?;
        Ok(config)
    }
}

#[derive(clap::Args)]
/// Arguments of `heat`.
pub struct Heat {
    /// Trees of 64-bit keys, separated by commas. Several trees share one table and one picture.
    #[arg(long, required = true, value_delimiter = ',', value_parser = lab::engine)]
    tree: Vec<lab::Engine>,
    /// Number of keys to insert.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=2_000_000))]
    keys: u64,
    /// Insert keys in ascending order instead of random order.
    #[arg(long)]
    ascending: bool,
    /// Cache lines of a node: one number for all trees, or one for each tree, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [8], value_parser = clap::value_parser!(u64).range(2..=64))]
    node_lines: Vec<u64>,
    #[command(flatten)]
    memory: Memory,
    /// Level wear with start-gap, moving a line after this many writes.
    #[arg(long, value_name = "WRITES", value_parser = clap::value_parser!(u64).range(1..))]
    start_gap: Option<u64>,
    /// Inserts per second, for the estimated lifetime [default: as many as the memory allows].
    #[arg(long, value_name = "INSERTS", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    /// Seed of the keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw the result into this new file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
/// Arguments of `flush`.
pub struct Flush {
    /// Number of rounds; medians are reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Directory whose file system backs the region.
    #[arg(long, default_value = "/dev/shm")]
    backing: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
/// Arguments of `registry`.
pub struct Registry {
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
/// Arguments of `crash`.
pub struct Crash {
    /// Durable engine to explore.
    #[arg(long, required_unless_present = "list")]
    tree: Option<Engine>,
    /// Print the names of all engines that can be explored, one per line, and exit.
    #[arg(long)]
    list: bool,
    /// Operations of each random run. Other parts of the exploration do not depend on it. Beyond 1,000, few images are tried at each crash
    /// point.
    #[arg(long, default_value_t = crash_tree::Options::OPS)]
    ops: usize,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Explore only nodes with this many cache lines; the minimum number of states does not apply then. The mutation run is unaffected.
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..=64))]
    node_lines: Option<u64>,
    /// Maximum number of threads; the results do not depend on it [default: all processors].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Crash(crash) => run_crash(crash),
        Command::Costs(costs) => costs::run(costs),
        Command::Run(run) => run_experiment(run),
        Command::Heat(heat) => run_heat(heat),
        Command::Flush(flush) => {
            let options = flush::Options { rounds: flush.rounds as usize, backing: flush.backing.clone() };
            show(with_spinner(|progress| flush::run(&options, progress))?, flush.json)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Registry(listed) => {
            show(registry::report().map_err(lab::Error::from)?, listed.json)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run_experiment(run: &Run) -> Result<ExitCode> {
    if run.names.is_empty() {
        show(experiment::report::List::default(), run.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let memory = run.memory.config()?;
    for experiment in &run.names {
        if let Some(folder) = &run.svg {
            check_picture(&picture(folder, experiment))?;
        }
    }
    for experiment in &run.names {
        let options = experiment::Options {
            keys: run.keys.unwrap_or(experiment.sizes.0),
            operations: run.operations.unwrap_or(experiment.sizes.1),
            rounds: run.rounds as usize,
            node_lines: run.node_lines.clone(),
            backing: run.backing.clone(),
            disk: run.disk.clone(),
            trace: run.trace.clone(),
            words: run.words.clone(),
            scale: run.scale,
            seed: run.seed,
            memory,
        };
        let bar = progress_bar(0, "{elapsed_precise} {bar:20} {pos}/{len} {wide_msg}");
        let outcome = (experiment.run)(experiment, &options, &|step| {
            bar.set_length(step.total);
            bar.set_position(step.done);
            bar.set_message(step.what);
        });
        bar.finish_and_clear();
        let outcome = outcome?;
        let svg = outcome.svg();
        show(outcome, run.json)?;
        if let (Some(folder), Some(svg)) = (&run.svg, svg) {
            save_picture(&picture(folder, experiment), svg)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run_heat(of: &Heat) -> Result<ExitCode> {
    let usage = |why: String| Err(Failure::Usage(why));
    let lines: Vec<u64> = match of.node_lines[..] {
        [all] => vec![all; of.tree.len()],
        _ => of.node_lines.clone(),
    };
    if lines.len() != of.tree.len() {
        return usage(format!("--node-lines: {} sizes for {} trees", lines.len(), of.tree.len()));
    }
    for (tree, lines) in of.tree.iter().zip(&lines) {
        if !tree.allows(*lines) {
            let ((least, most), name) = (tree.lines, tree.name);
            return usage(format!("--node-lines {lines}: nodes of {name} have {least} to {most} lines"));
        }
    }
    of.svg.as_deref().map_or(Ok(()), check_picture)?;
    let mut heats = Vec::new();
    for (tree, lines) in of.tree.iter().zip(&lines) {
        let options = heat::Options {
            engine: tree,
            keys: of.keys,
            order: if of.ascending { heat::Order::Ascending } else { heat::Order::Random },
            node_lines: *lines,
            memory: of.memory.config()?,
            levelling: of
                .start_gap
                .map_or(pcm::Levelling::None, |writes| pcm::Levelling::StartGap { writes }),
            rate: of.rate.map(|rate| rate as f64),
            seed: of.seed,
        };
        let bar = progress_bar(of.keys, "{elapsed_precise} {bar:20} {pos}/{len} keys");
        let heat = heat::run(&options, &|done| bar.set_position(done));
        bar.finish_and_clear();
        heats.push(heat?);
    }
    let svg = heat::svg(&heats);
    let beside = heat::Beside::new(&heats);
    for heat in heats {
        show(heat, of.json)?;
    }
    if beside.rows.len() > 1 {
        show(beside, of.json)?;
    }
    if let Some(path) = &of.svg {
        save_picture(path, svg)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn picture(folder: &Path, experiment: &Experiment) -> PathBuf {
    folder.join(experiment.name).with_extension("svg")
}

/// Refuses, before a long run, the file of a picture that exists already or whose directory does not exist.
fn check_picture(path: &Path) -> Result<()> {
    let source = match (
        path.exists(),
        path.parent().is_none_or(|folder| folder == Path::new("") || folder.is_dir()),
    ) {
        (false, true) => return Ok(()),
        (true, _) => std::io::Error::from(std::io::ErrorKind::AlreadyExists),
        (false, false) => {
            std::io::Error::new(std::io::ErrorKind::NotFound, "its folder is not there: make it first")
        }
    };
    Err(Failure::Io(format!("cannot write {}", path.display()), source))
}

/// Writes a picture into a new file.
fn save_picture(path: &Path, svg: std::result::Result<String, String>) -> Result<()> {
    let written = svg.map_err(std::io::Error::other).and_then(|svg| {
        let mut file = std::fs::File::create_new(path)?;
        std::io::Write::write_all(&mut file, svg.as_bytes())
    });
    written.map_err(|source| Failure::Io(format!("cannot write {}", path.display()), source))
}

fn run_crash(crash: &Crash) -> Result<ExitCode> {
    let Some(tree) = crash.tree.filter(|_| !crash.list) else {
        let mut output = terminal::Output::new();
        for engine in Engine::all() {
            output.line(engine.name())?;
        }
        output.end()?;
        return Ok(ExitCode::SUCCESS);
    };
    let about = tree.about();
    if let Some(lines) = crash.node_lines.filter(|lines| !about.allows(*lines)) {
        let (least, most) = about.lines;
        let name = about.name;
        let why = format!("--node-lines {lines}: nodes of {name} have {least} to {most} lines");
        return Err(Failure::Usage(why));
    }
    let mut options = crash_tree::Options {
        ops: crash.ops,
        seed: crash.seed,
        node_lines: crash.node_lines,
        ..crash_tree::Options::new(tree)
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
    Ok(if report.is_good() { ExitCode::SUCCESS } else { terminal::DAMAGED.into() })
}
