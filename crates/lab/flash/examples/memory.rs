//! Draws the memory of a store over a run with data of many times its budget ([`flash::memory`]).

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use flash::memory::{self, MemoryOptions};

#[derive(Parser)]
#[command(name = "memory")]
struct Program {
    /// The memory budget of the store in MiB.
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u64).range(16..=1 << 20))]
    memory: u64,
    /// Bytes of all keys and values in MiB.
    #[arg(long, default_value_t = 4096, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    data: u64,
    /// Number of threads.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
    /// Seconds of each phase after the load.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Directory for the files, on a disk.
    #[arg(long, default_value = ".")]
    backing: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write the picture to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let Program { memory, data, threads, seconds, backing, json, svg } = Program::parse();
    let options = MemoryOptions {
        budget_bytes: memory << 20,
        data_bytes: data << 20,
        threads,
        phase: Duration::from_secs(seconds),
    };
    let dir = backing.join(format!("bristlecone-memory-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let result = memory::run(&dir, &options, &|phase| eprintln!("{phase}"));
    std::fs::remove_dir_all(&dir)?;
    let result = result?;
    if let Some(file) = svg {
        std::fs::write(file, result.svg()?)?;
    }
    Ok(terminal::show(result, json)?)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::report("memory", &error);
            ExitCode::FAILURE
        }
    }
}
