//! `costs`: words, flushes and fences of operations, compared with the papers' formulas.

use std::process::ExitCode;

use lab::Error;
use lab::costs::{self, categories};

use terminal::show;

use crate::failure::{Failure, Result, with_spinner};

/// Arguments of `costs`.
#[derive(clap::Args)]
pub struct Costs {
    /// Durable trees to measure, separated by commas [default: all].
    #[arg(long, value_delimiter = ',')]
    trees: Vec<String>,
    /// Cache lines of a node, separated by commas. Trees with a single node size use that size.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 8], value_parser = clap::value_parser!(u64).range(2..=16))]
    node_lines: Vec<u64>,
    /// Bytes of an entry in trees of 4 KB nodes, separated by commas: 16, 32, 64, 128.
    #[arg(long, value_delimiter = ',', default_values_t = costs::subject::ENTRY_BYTES, value_parser = entry_bytes)]
    entry_bytes: Vec<u64>,
    /// Fill level of leaves for inserts without split and for deletes, 0.3 to 0.9. Before a split they are full.
    #[arg(long, default_value_t = 0.7, value_parser = fill)]
    fill: f64,
    /// Number of keys in each tree [default: as many as 400 full leaves hold].
    #[arg(long, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    keys: Option<u64>,
    /// Exit with code 4 if an operation differs from its expected cost.
    #[arg(long)]
    check: bool,
    /// Report instead the bytes written for entries, structure and consistency, by VLAB's indexes A to G.
    #[arg(long, conflicts_with_all = ["trees", "node_lines", "entry_bytes", "fill", "keys", "check"])]
    by_category: bool,
    /// With --by-category: fraction of the paper's 30 million inserts and 20 million deletes to run.
    #[arg(long, default_value_t = 0.001, requires = "by_category", value_parser = scale)]
    scale: f64,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: &Costs) -> Result<ExitCode> {
    if arguments.by_category {
        let report = with_spinner(|progress| categories::run(arguments.scale, arguments.seed, progress))?;
        show(report, arguments.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = costs::Options {
        trees: arguments.trees.clone(),
        node_lines: arguments.node_lines.clone(),
        entry_bytes: arguments.entry_bytes.clone(),
        fill: arguments.fill,
        keys: arguments.keys,
        seed: arguments.seed,
    };
    let report = with_spinner(|progress| costs::run(&options, progress)).map_err(usage)?;
    let good = report.is_good() || !arguments.check;
    show(report, arguments.json)?;
    Ok(if good { ExitCode::SUCCESS } else { terminal::DAMAGED.into() })
}

/// Maps an unknown tree to wrong usage.
fn usage(failure: Failure) -> Failure {
    match failure {
        Failure::Lab(error @ Error::UnknownTree { .. }) => Failure::Usage(error.to_string()),
        other => other,
    }
}

fn number(text: &str, least: f64, most: f64) -> std::result::Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if (least..=most).contains(&number) { Ok(number) } else { Err(format!("give {least} to {most}")) }
}

fn fill(text: &str) -> std::result::Result<f64, String> {
    number(text, 0.3, 0.9)
}

fn scale(text: &str) -> std::result::Result<f64, String> {
    number(text, 0.000_001, 1.0)
}

fn entry_bytes(text: &str) -> std::result::Result<u64, String> {
    let sizes = costs::subject::ENTRY_BYTES;
    let bytes = text.parse().ok().filter(|bytes| sizes.contains(bytes));
    bytes.ok_or_else(|| format!("give some of {sizes:?}, separated by commas"))
}
