//! The arguments of `bench flash`.

use std::ffi::OsString;
use std::path::PathBuf;

use competitors::Promise;

use crate::Options;

/// Durabilities to measure.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Durability {
    /// Writes survive the death of the process.
    Process,
    /// Writes survive a loss of power.
    Power,
}

/// Arguments of `bench flash`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Memory of each store in MiB, page cache included.
    #[arg(long, default_value_t = 128, value_name = "MIB", value_parser = clap::value_parser!(u64).range(64..=1 << 20))]
    memory: u64,
    /// Run without a limit of the memory. Then the page cache holds all data.
    #[arg(long)]
    unlimited_memory: bool,
    /// Share of the memory for the caches and write buffers of a store, in percent.
    #[arg(long, default_value_t = 25, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=100))]
    cache: u64,
    /// Let Bristlecone read and write its pages without the page cache. Give --cache more of the memory then.
    #[arg(long)]
    direct_io: bool,
    /// Bytes of all keys and values as multiples of the memory, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [0.125, 2.0], value_name = "MULTIPLES", value_parser = multiple)]
    data: Vec<f64>,
    /// Failures that acknowledged writes survive, separated by commas. Reads are measured at the first one.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Durability::Process, Durability::Power])]
    durability: Vec<Durability>,
    /// Duration of each cell in seconds [default: 1.5, or 0.5 with --quick].
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// Maximum duration of a load in random order, in seconds; the remaining keys are then put in key order [default: 10, or 5 with --quick].
    #[arg(long, value_parser = seconds)]
    load_seconds: Option<f64>,
    /// Number of rounds; medians are reported [default: 3, or 1 with --quick].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: Option<u64>,
    /// Measure less: shorter loads and cells, one round.
    #[arg(long)]
    quick: bool,
    /// Competitors to measure, separated by commas: lmdb, rocksdb, redb, fjall, berkeley [default: all in this build].
    #[arg(long, value_delimiter = ',', value_name = "STORES")]
    only: Option<Vec<String>>,
    /// Directory for the files, on a disk.
    #[arg(long, default_value = ".")]
    backing: PathBuf,
    /// Seed of keys and their order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

fn number(text: &str, most: f64) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    if (0.001..=most).contains(&number) {
        Ok(number)
    } else {
        Err(format!("give a number from 0.001 to {most}"))
    }
}

fn multiple(text: &str) -> Result<f64, String> {
    number(text, 1000.0)
}

fn seconds(text: &str) -> Result<f64, String> {
    number(text, 3600.0)
}

impl Arguments {
    /// The parameters of the benchmark. `child` is the program, with its arguments, that calls [`crate::serve`].
    pub fn options(&self, child: Vec<OsString>) -> Options {
        let promise = |durability: &Durability| match durability {
            Durability::Process => Promise::Process,
            Durability::Power => Promise::Power,
        };
        Options {
            memory_bytes: self.memory << 20,
            cache_percent: self.cache,
            is_limited: !self.unlimited_memory,
            direct_io: self.direct_io,
            sizes: self.data.clone(),
            promises: self.durability.iter().map(promise).collect(),
            seconds: self.seconds.unwrap_or(if self.quick { 0.5 } else { 1.5 }),
            load_seconds: self.load_seconds.unwrap_or(if self.quick { 5.0 } else { 10.0 }),
            operations_max: u64::MAX,
            rounds: self.rounds.unwrap_or(if self.quick { 1 } else { 3 }) as usize,
            only: self.only.clone(),
            backing: self.backing.clone(),
            seed: self.seed,
            child,
        }
    }
}
