//! The `bristlecone` program: one module for each command, and here only the way to them.
//!
//! Exit codes: 0 all right; 1 an error; 2 wrong usage; 3 a key that `get` or `del` did not find; 4 a damaged store, or one of which
//! `check --salvage` did not rescue everything. A reader of the output that goes away (`scan | head`) is no error.
#![forbid(unsafe_code)]

mod backup;
mod check;
mod common;
mod compact;
mod elsewhere;
mod failure;
mod get;
mod input;
mod load;
mod put;
mod scan;
mod serve;
mod stats;
mod text;
mod versions;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

const EXIT_CODES: &str = "\
Exit codes: 0 all right; 1 an error; 2 wrong usage; 3 a key was not found (get, del); 4 the store is damaged (any command), or
not all of it was rescued (check --salvage).

Examples:
  bristlecone serve --dir data                     serve Redis clients on 127.0.0.1:7379
  bristlecone load pairs.tsv --format tsv          fill the store in ./bristlecone-data
  bristlecone scan --prefix user: --limit 10       print keys and values in order
  bristlecone check --json                         verify everything";

/// A durable ordered key-value store that never loses its place.
#[derive(Parser)]
#[command(name = "bristlecone", version, after_help = EXIT_CODES)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a store to Redis clients.
    Serve(serve::Arguments),
    /// Fill a store from a file.
    Load(load::Arguments),
    /// Print the value of a key.
    Get(get::Arguments),
    /// Store a value.
    Put(put::Arguments),
    /// Remove keys.
    Del(put::DelArguments),
    /// Print keys and values in key order.
    Scan(scan::Arguments),
    /// Keep versions of a store by name, and go back to them.
    Versions(versions::Arguments),
    /// Print sizes and counts of a store.
    Stats(stats::Arguments),
    /// Benchmarks are commands of bristlecone-lab.
    #[command(hide = true)]
    Bench(elsewhere::Arguments),
    /// Experiments are commands of bristlecone-lab.
    #[command(hide = true)]
    Lab(elsewhere::Arguments),
    /// Verify a store completely.
    Check(check::Arguments),
    /// Write a store anew, so that its file shrinks.
    Compact(compact::Arguments),
    /// Copy a store, closed or served, to another directory as of one moment.
    Backup(backup::Arguments),
}

fn main() -> ExitCode {
    // Without the handler, the program ends all the same, with no word.
    let _ = bristlecone::explain_bus_errors(i32::from(terminal::DAMAGED));
    let result = match Program::parse().command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Load(arguments) => load::run(&arguments),
        Command::Get(arguments) => get::run(&arguments),
        Command::Put(arguments) => put::run(&arguments),
        Command::Del(arguments) => put::run_del(&arguments),
        Command::Scan(arguments) => scan::run(&arguments),
        Command::Versions(arguments) => versions::run(&arguments),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Bench(arguments) => elsewhere::run("bench ", &arguments),
        Command::Lab(arguments) => elsewhere::run("", &arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Compact(arguments) => compact::run(&arguments),
        Command::Backup(arguments) => backup::run(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
